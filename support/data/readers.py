"""The bytes of a file to a text, a table or an array: right, or refused with the place at fault."""

from __future__ import annotations

import csv
import io

import numpy as np


def text(data: bytes, name: str) -> str:
    """Return a text without a byte order mark, its lines ended by "\\n".

    Raises: ValueError if it is not UTF-8 or holds a NUL byte (a sign of a file that is no text),
    with the place in bytes.
    """
    return _decode(data, name).replace("\r\n", "\n").replace("\r", "\n")


def questions(data: bytes, name: str, section: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """Return the questions "a b c d" under each heading ": section"; before any, under `section`.

    Raises: ValueError as `text`, and naming the line that is not four words.
    """
    sections: dict[str, list[tuple[str, str, str, str]]] = {}
    for number, line in enumerate(text(data, name).split("\n"), 1):
        words = line.split()
        if line.startswith(":"):
            section = line[1:].strip()
        elif len(words) == 4:
            sections.setdefault(section, []).append(tuple(words))
        elif words:
            raise ValueError(f"{name}, line {number}: expected four words, found {line[:80]!r}")
    return sections


def news(data: bytes, name: str, classes: int = 4) -> tuple[list[str], np.ndarray]:
    """Return texts, "title description", and labels (N,) int64 from 0, of AG News' CSV.

    Quotes, doubled quotes and line breaks in a field are as in RFC 4180.
    Raises: ValueError as `text`, and naming the row that has not three columns, or whose label is
    not 1 … classes.
    """
    # csv raises for a field over 131,072 characters, which a quote that is never closed makes.
    try:
        rows = list(csv.reader(io.StringIO(_decode(data, name), newline="")))
    except csv.Error as error:
        raise ValueError(f"{name} is not a CSV file: {error}") from None
    known = set(map(str, range(1, classes + 1)))
    for number, row in enumerate(rows, 1):
        if len(row) != 3:
            raise ValueError(
                f"{name}, row {number}: expected label, title, description, found {row!r:.80}"
            )
        if row[0] not in known:
            raise ValueError(f"{name}, row {number}: label {row[0]!r:.40} is not 1 to {classes}")
    if not rows:
        raise ValueError(f"{name} is empty")
    labels = np.array([int(row[0]) - 1 for row in rows], dtype=np.int64)
    return [" ".join(row[1:]) for row in rows], labels


def idx(data: bytes, name: str, dims: int) -> np.ndarray:
    """Return the array of bytes in an idx file, MNIST's format, of `dims` dimensions.

    Raises: ValueError for another type or number of dimensions, or sizes that are 0 or not those
    of the data.
    Source: LeCun et al. 1998, the files' own description.
    """
    start = 4 + 4 * dims
    if data[:4] != bytes([0, 0, 8, dims]) or len(data) < start:
        raise ValueError(f"{name} is no idx file of bytes in {dims} dimensions: {data[:4]!r}")
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4"))
    size = int(np.prod(shape, dtype=object))
    if len(data) - start != size or not size:
        raise ValueError(f"{name} announces {shape}, {size} bytes, and holds {len(data) - start}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _decode(data: bytes, name: str) -> str:
    if (nul := data.find(b"\0")) >= 0:
        raise ValueError(f"{name} is not a text: NUL at byte {nul}")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        bad, place = data[error.start], error.start
        raise ValueError(
            f"{name} is not UTF-8: 0x{bad:02x} at byte {place}; save it as UTF-8"
        ) from None
