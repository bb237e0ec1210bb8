"""A text of any size as a file of tokens, which is mapped into memory and never read as a whole.

The datasets library reads texts in a stream: plain, packed by gzip or zstd, or JSON lines. The
tokenizers library turns them into ids, on all cores.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from support import checks
from support.data.files import read_json, whole_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "<|endoftext|>"  # between two documents
JSON = (".jsonl", ".json", ".ndjson")
PACKED = (".gz", ".zst")
LINES = 10_000  # are read at once
PIECE = 2**12  # characters of a piece of text, or one line if that is longer
GROUP = 2**22  # characters that are turned into tokens at once, on all cores
FOR_TOKENIZER = 200_000_000  # bytes of text from which a tokenizer is learned


@dataclass(frozen=True)
class Tokens:
    """Token ids in a file: values is mapped into memory; n_bytes is the size of the text, UTF-8."""

    values: np.ndarray
    n_bytes: int

    def split(self, share: float, least: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return all but the last share of the values, and these; ValueError below the least."""
        at = len(self.values) - round(share * len(self.values))
        parts = {"training": self.values[:at], "validation": self.values[at:]}
        for name, part in parts.items():
            if len(part) < least:
                raise ValueError(
                    f"a window needs {least:,} tokens, and {len(part):,} are left for {name}: "
                    "take a longer text, another --valid or a shorter --context"
                )
        return tuple(parts.values())


def read_texts(paths: Sequence[str | Path], field: str = "text") -> Iterator[str | None]:
    """Yield pieces of the texts in files, in order; None after each document.

    A document is a file, or in JSON lines a record, whose text is in a field. The pieces of a file
    end at ends of lines. Files may be packed, .gz or .zst.
    Raises: ValueError for a file that is missing, damaged, no UTF-8 text, or has no such field.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from zstandard import ZstdError

    for path in map(Path, paths):
        _check_file(path)
        kind = "json" if _inner_suffix(path) in JSON else "text"
        options = {"keep_linebreaks": True} if kind == "text" else {}
        try:
            data = load_dataset(
                kind, data_files=[str(path)], split="train", streaming=True, **options
            )
            for batch in data.iter(batch_size=LINES):
                if field not in batch and kind == "json":
                    raise ValueError(f"{path}: no field {field!r}, only {sorted(batch)}")
                if kind == "text":
                    yield from map("".join, _grouped(batch["text"], PIECE))
                    continue
                for text in batch[field]:
                    if not isinstance(text, str):
                        raise ValueError(
                            f"{path}: field {field!r} holds {text!r}, which is no text"
                        )
                    yield text
                    yield None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no UTF-8 text: {error}") from error
        except (EOFError, ZstdError, DatasetsError, gzip.BadGzipFile, ValueError) as error:
            if isinstance(error, ValueError) and str(error).startswith(f"{path}: "):
                raise  # our own
            raise ValueError(f"{path} is damaged: {error}") from error
        if kind == "text":
            yield None


def train_tokenizer(
    texts: Iterator[str | None], vocab_size: int, specials: Sequence[str] = (END,), bert=False
) -> Tokenizer:
    """Return a tokenizer learned from the first 200 MB of texts: byte-level BPE, or WordPiece.

    Raises: ValueError if vocab_size is too small for the bytes and the special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    least = len(specials) + 256
    if vocab_size < least:
        raise ValueError(f"a vocabulary needs {least} tokens at least, got {vocab_size}")
    options = {"vocab_size": vocab_size, "special_tokens": list(specials), "show_progress": False}
    if bert:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(**options)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(**options, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(_first(texts, FOR_TOKENIZER), trainer)
    return tokenizer


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer that a file holds; ValueError if it is none."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # of no kind of its own
        reason = "give another, or remove it if the command made it"
        raise ValueError(f"{path} is no tokenizer ({error}): {reason}") from error


def make_tokens(
    paths: Sequence[str | Path], tokenizer: Tokenizer, folder: str | Path, field: str = "text"
) -> Tokens:
    """Return the tokens of files of text, from folder if they are there, else written to it.

    They are 2 bytes each, or 4 if the vocabulary is larger than 65,536. The files come from no
    other text: folder remembers names, sizes and ends of the texts, and the tokenizer.
    Raises: ValueError for texts as in read_texts or empty ones; OSError if the disk is full, and
    then nothing is left in folder.
    """
    folder = Path(folder)
    about = {"texts": [_mark(path) for path in paths], "field": field}
    about["tokenizer"] = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    data, note = folder / "tokens.bin", folder / "tokens.json"
    kind = np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.uint32
    if note.exists() and data.exists():
        known = read_json(note)
        if known["about"] != about:
            raise ValueError(
                f"{folder} holds tokens of another text or tokenizer: give another folder"
            )
        if data.stat().st_size == known["tokens"] * np.dtype(kind).itemsize:
            return Tokens(np.memmap(data, kind, "r"), known["n_bytes"])
    folder.mkdir(parents=True, exist_ok=True)
    _check_room(paths, folder)
    end, n_bytes, n_tokens = tokenizer.token_to_id(END), 0, 0
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)  # from 0.20.1 on
    for leftover in folder.glob(".tokens.*.tmp"):  # of a run that was killed
        leftover.unlink()
    with whole_file(data) as file:
        for pieces in _grouped(read_texts(paths, field), GROUP):
            texts = [piece for piece in pieces if piece is not None]
            encoded = iter(encode(texts, add_special_tokens=False))
            for piece in pieces:
                last = [] if end is None else [end]
                ids = last if piece is None else next(encoded).ids
                file.write(np.asarray(ids, kind).tobytes())
                n_tokens += len(ids)
            n_bytes += sum(len(text.encode()) for text in texts)
        if not n_bytes:
            raise ValueError(f"there is no text in {', '.join(map(str, paths))}")
    with whole_file(note) as file:
        file.write(json.dumps({"about": about, "n_bytes": n_bytes, "tokens": n_tokens}).encode())
    return Tokens(np.memmap(data, kind, "r"), n_bytes)


class Windows:
    """Windows of tokens in random order, without end: pass after pass over all of them.

    values (N,), cut into windows of length tokens; each pass begins at another place, and its order
    follows from seed. Raises: ValueError if there are fewer than length + 1 values.
    """

    def __init__(self, values: np.ndarray, length: int, seed: int = 0):
        checks.integers(1, length=length)
        if len(values) < length + 1:
            raise ValueError(
                f"a window needs {length + 1:,} tokens, and the text has {len(values):,}: take a "
                "longer text or a shorter context"
            )
        self.values, self.length, self.seed = values, length, seed
        # All passes have as many windows: one fewer than would fit, where the start is shifted.
        self.n = max(1, (len(values) - 1) // length - 1)
        self._known: tuple[int, np.ndarray] | None = None

    def starts(self, first: int, n: int) -> list[int]:
        """Return where windows number first, first + 1, … of the endless order begin."""
        found = []
        for i in range(first, first + n):
            turn, place = divmod(i, self.n)
            found.append(int(self._order(turn)[place]))
        return found

    def at(self, starts: Sequence[int]) -> np.ndarray:
        """Return the windows (B, length + 1) that begin there, with the token that follows."""
        rows = [self.values[start : start + self.length + 1] for start in starts]
        return np.stack(rows).astype(np.int64)

    def _order(self, turn: int) -> np.ndarray:
        if self._known is None or self._known[0] != turn:
            rng = np.random.default_rng((self.seed, turn))
            room = len(self.values) - 1 - self.n * self.length
            shift = rng.integers(min(room, self.length) + 1)
            self._known = turn, shift + self.length * rng.permutation(self.n)
        return self._known[1]


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    with path.open("rb") as file:
        head = file.read(4096)
    if path.suffix not in PACKED and b"\0" in head:
        raise ValueError(f"{path} is no text: it has a zero byte")


def _inner_suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def _first(texts: Iterator[str | None], n_bytes: int) -> Iterator[str]:
    taken = 0
    for text in texts:
        if taken >= n_bytes:
            return
        if text is not None:
            taken += len(text.encode())
            yield text


def _grouped(texts: Iterable[str | None], size: int) -> Iterator[list[str | None]]:
    """Yield lists of texts, each as short as it can be with so many characters."""
    group, length = [], 0
    for text in texts:
        group.append(text)
        length += len(text or "")
        if length >= size:
            yield group
            group, length = [], 0
    if group:
        yield group


def _mark(path: str | Path) -> list:
    """Return what a file is known by on any machine: name, size, and a hash of both its ends."""
    size, path = os.path.getsize(path), Path(path)
    with path.open("rb") as file:
        ends = file.read(2**20)
        file.seek(max(0, size - 2**20))
        ends += file.read()
    return [path.name, size, hashlib.sha256(ends).hexdigest()]


def _check_room(paths: Sequence[str | Path], folder: Path) -> None:
    """Raise OSError if the tokens of unpacked texts, a byte for each of theirs, would not fit."""
    needed = sum(os.path.getsize(path) for path in paths)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"{folder} has room for {free:,} bytes, and the tokens may need {needed:,}")
