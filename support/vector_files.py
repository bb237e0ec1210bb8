"""The files of word vectors: GloVe's text, word2vec's text with a heading, word2vec's binary."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

_MARK = codecs.BOM_UTF8.decode()


def check_words(words: Sequence[str]) -> None:
    """Raise ValueError for a word that no format can hold."""
    for word in words:
        if word.split() != [word]:
            raise ValueError(f"{word!r} cannot be written: spaces separate the fields")
        if not _is_utf8(word):
            raise ValueError(f"{word!r} cannot be written: UTF-8 has no place for surrogates")
    if words[0].startswith(_MARK):
        raise ValueError(f"{words[0]!r} cannot be first: it begins with a byte order mark")


def text(file: BinaryIO, format: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield words and vectors (dim,) float32 of a text file, with or without a heading.

    Raises: ValueError naming the line at fault, or for other than the number that was promised.
    """
    dim = promised = None
    number = 0
    for number, line in enumerate(file, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        fields = line.rstrip().split(b" ")
        if number == 1 and format != "glove" and _is_heading(fields):
            promised, dim = map(int, fields)
            continue
        if number == 1 and format == "word2vec":
            raise ValueError(f"line 1: expected a heading 'words dimensions', found {line[:40]!r}")
        dim = len(fields) - 1 if dim is None else dim
        try:
            # More fields than dim + 1: a token that holds spaces itself, as in glove.840B.
            extra = any(part.lstrip(b"-")[:1].isdigit() for part in fields[1:-dim])
            if dim < 1 or len(fields) <= dim or extra:
                raise ValueError(f"{len(fields) - 1} numbers instead of {dim}")
            if b"\0" in line and b"\0" in b"".join(fields[-dim:]):
                raise ValueError("a NUL byte, which is no part of a number")
            word = _word(b" ".join(fields[:-dim]))
            with np.errstate(over="ignore"):
                vector = np.array(fields[-dim:], dtype=np.float32)
            if not np.isfinite(vector).all():
                raise ValueError("a number that is not finite")
        except ValueError as error:
            raise ValueError(f"line {number}, {line[:40]!r}…: {error}") from None
        yield word, vector
    if promised not in (None, number - 1):
        raise ValueError(f"the heading promises {promised} vectors, the file holds {number - 1}")


def binary(file: BinaryIO) -> Iterator[tuple[str, np.ndarray]]:
    """Yield words and vectors (dim,) float32 of word2vec's binary format.

    Raises: ValueError naming the vector at fault, or for other than the number that was promised.
    """
    heading = file.readline(64).split()
    if not _is_heading(heading):
        raise ValueError(f"expected a heading 'words dimensions', found {heading}")
    n_words, dim = map(int, heading)
    size = os.fstat(file.fileno()).st_size
    if n_words and 4 * dim > size:  # to read so much would ask for the memory first
        raise ValueError(f"the file ends within the first of {dim} numbers, after {size} bytes")
    for number in range(1, n_words + 1):
        word = bytearray()
        while (byte := file.read(1)) != b" ":
            if not byte or len(word) > 1000:
                raise ValueError(f"vector {number} of {n_words}: the file ends within a word")
            word += byte
        data = file.read(4 * dim)
        if len(data) < 4 * dim:
            raise ValueError(f"vector {number} of {n_words}: the file ends within its numbers")
        vector = np.frombuffer(data, "<f4")
        if not np.isfinite(vector).all():
            raise ValueError(f"vector {number} of {n_words}: a number that is not finite")
        try:
            yield _word(bytes(word).lstrip(b"\n")), vector
        except ValueError as error:
            raise ValueError(f"vector {number} of {n_words}: {error}") from None
    if file.read(2).strip():
        raise ValueError(f"the heading promises {n_words} vectors, the file goes on after them")


def _is_heading(fields: Sequence[bytes]) -> bool:
    return len(fields) == 2 and all(part.isdigit() and len(part) < 20 for part in fields)


def _word(data: bytes) -> str:
    """Return a word of a file. Raises: ValueError for none, or one with spaces around it."""
    word = data.decode("utf-8")
    if not word or word.strip(" ") not in ("", word):
        raise ValueError(f"{word!r} is no word: a field before or after it is empty")
    return word


def _is_utf8(word: str) -> bool:
    try:
        return bool(word.encode())
    except UnicodeEncodeError:
        return False
