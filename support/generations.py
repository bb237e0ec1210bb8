"""Folders that are written whole or not at all, and checked before anything reads them.

A folder keeps two generations, the newest and the one before: epoch-0002 and epoch-0003, each with
the same files and a checkpoint.json that holds their sizes and SHA-256, and its own. They are
written into epoch-0003.part, which gets its name when all is on the disk: a run killed while it
saves leaves the generations before, and the next save removes what is left over. Nothing but these
files is ever opened or removed; what the reader puts beside or among them stays.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

FILES = ("model.safetensors", "state.safetensors")
_MANIFEST = "checkpoint.json"
_OURS = {*FILES, _MANIFEST}
_KEPT = 2


def write(folder: Path, number: int, files: dict[str, bytes], about: Any) -> None:
    """Add a generation; keep the one before, remove all others.

    Those of the same or a higher number are of a run that was given up, and are replaced.
    Args: files: contents by the names in FILES; about: what JSON can hold, for checkpoint.json.
    Raises: OSError if it cannot be written; the generations before are then as they were.
    """
    final = folder / f"epoch-{number:04d}"
    part = final.with_suffix(".part")
    sums = {name: [len(data), _sha256(data)] for name, data in files.items()}
    manifest = _seal(json.dumps({"epoch": number, "files": sums, "about": about}).encode())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if final.is_symlink() or final.exists() and not set(os.listdir(final)) <= _OURS:
            raise FileExistsError(errno.EEXIST, "a link, or a folder with other files, is there")
        for path in folder.iterdir():
            if re.fullmatch(r"epoch-[0-9]{4,}\.(part|old)", path.name):
                _clear(path)
        part.mkdir()
        for name, data in {**files, _MANIFEST: manifest}.items():
            with open(part / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(part)
        for _, path in [pair for pair in found(folder) if pair[0] >= number]:
            _remove(path)
        part.rename(final)
        _sync(folder)
    except OSError as error:
        reason = f"the checkpoint {final} could not be written ({error})"
        raise OSError(error.errno, f"{reason}; {last_good(folder)}") from error
    finally:
        _clear(part)
    for _, path in found(folder)[_KEPT:]:
        with suppress(OSError):  # the new one is safe; the next save tries again
            _remove(path)


def read(number: int, path: Path) -> tuple[Any, dict[str, bytes]]:
    """Return what `write` was given as about and files.

    Raises: ValueError naming the file that is missing, cut off or altered.
    """
    if path.is_symlink():
        raise ValueError(f"{path} is a link")
    data = _content(path / _MANIFEST)
    if data != _seal(b"{" + data[len(_seal(b"{")) :]):
        raise ValueError(f"{path / _MANIFEST} is cut off or altered")
    try:
        manifest = json.loads(data)
        epoch, about = manifest["epoch"], manifest["about"]
        wanted = {
            name: (size, digest) for name in FILES for size, digest in [manifest["files"][name]]
        }
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path / _MANIFEST} is none of ours ({error!r})") from error
    if epoch != number:
        raise ValueError(f"{path / _MANIFEST} is of epoch {epoch}")
    files = {}
    for name, (size, digest) in wanted.items():
        files[name] = _content(path / name, size)
        if _sha256(files[name]) != digest:
            raise ValueError(f"{path / name} is altered: checkpoint.json has another SHA-256")
    return about, files


def found(folder: Path) -> list[tuple[int, Path]]:
    """Return number and place of the generations in folder, good or damaged, the newest first.

    A folder in which the reader's own files are all that is left is none.
    """
    pairs = []
    for path in folder.iterdir() if folder.exists() else ():
        if re.fullmatch(r"epoch-[0-9]{4,}", path.name):
            inside = set(os.listdir(path)) if path.is_dir() else {"no folder"}
            if path.is_symlink() or not inside or inside & _OURS:
                pairs.append((int(path.name[6:]), path))
    return sorted(pairs, reverse=True)


def last_good(folder: Path) -> str:
    """Return a sentence: which generation is whole, and how to go on from it."""
    damaged = []
    for number, path in found(folder):
        try:
            read(number, path)
        except (OSError, ValueError):
            damaged.append(str(path))
            continue
        way = f": to go on from it, remove {' and '.join(damaged)}" if damaged else ""
        return f"the last good checkpoint is {path}{way}"
    way = f": remove {' and '.join(damaged)} or pass resume=False to start anew" if damaged else ""
    return f"there is no good checkpoint in {folder}{way}"


def _content(path: Path, size: int | None = None) -> bytes:
    """Return what a file holds, which is read only if it has the size."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is no ordinary file")
    if size not in (None, status.st_size):
        raise ValueError(f"{path} has {status.st_size} bytes instead of {size}")
    return path.read_bytes()


def _sync(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system can."""
    with suppress(OSError):  # Windows opens no folders, and some network drives refuse
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    """Remove a generation, at once unless the reader's own files are in it: these stay."""
    if path.is_symlink():
        return
    if set(os.listdir(path)) <= _OURS:
        path = path.rename(path.with_suffix(".old"))
    _clear(path)


def _clear(path: Path) -> None:
    """Remove our files, and the folder if it is then empty."""
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):
            for name in _OURS:
                (path / name).unlink(missing_ok=True)
            path.rmdir()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _seal(body: bytes) -> bytes:
    """Return a JSON object with its own SHA-256 put in front."""
    return b'{"sha256": "' + _sha256(body).encode() + b'", ' + body[1:]
