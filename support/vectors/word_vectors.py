"""Word vectors: neighbors, analogies, and the text formats of GloVe, word2vec and fastText."""

from __future__ import annotations

import codecs
import difflib
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from support.data.files import whole_file

Question = tuple[str, str, str, str]
BATCH = 512  # analogy questions answered at a time, which bounds the memory


@dataclass
class AnalogyReport:
    """How many analogy questions were answered; one is asked if its four words are known."""

    sections: dict[str, tuple[int, int, int]]  # name to (correct, asked, given)

    @property
    def asked(self) -> int:
        """Questions whose four words are in the vocabulary."""
        return sum(asked for _, asked, _ in self.sections.values())

    @property
    def accuracy(self) -> float:
        """Fraction of the asked questions that were answered correctly; nan if none was asked."""
        correct = sum(correct for correct, _, _ in self.sections.values())
        return correct / self.asked if self.asked else float("nan")

    @property
    def coverage(self) -> float:
        """Fraction of the given questions that could be asked; nan if none was given."""
        given = sum(given for _, _, given in self.sections.values())
        return self.asked / given if given else float("nan")


class WordVectors:
    """Words with a vector each: `words`, a list, and `matrix`, (n_words, dim) float32."""

    def __init__(self, words: Sequence[str], matrix: np.ndarray):
        self.words = list(words)
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words) or not self.matrix.size:
            raise ValueError(
                f"expected a matrix of {len(self.words)} rows, one a word, got {np.shape(matrix)}"
            )
        self._index = {word: i for i, word in enumerate(self.words)}
        if len(self._index) < len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self._index[w] != i)
            raise ValueError(f"{twice!r} is given twice; each word has one vector")
        length = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        if not np.isfinite(length).all():
            bad = self.words[int(np.argmin(np.isfinite(length)))]
            raise ValueError(f"the vector of {bad!r} has an entry that is not finite, or too large")
        self._unit = self.matrix / np.maximum(length, 1e-12)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def __getitem__(self, word: str) -> np.ndarray:
        return self.matrix[self.index(word)]

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words, {self.dim} dimensions)"

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        return self.matrix.shape[1]

    def index(self, word: str) -> int:
        """Return a word's row; a KeyError for an unknown word names the nearest spellings."""
        if word not in self._index:
            near = difflib.get_close_matches(word, self.words, n=3)
            hint = f"; nearest spellings: {', '.join(near)}" if near else ""
            raise KeyError(f"no vector for {word!r}{hint}")
        return self._index[word]

    def similarity(self, a: str, b: str) -> float:
        """Return the cosine of the angle between two words' vectors, -1 … 1."""
        return float(self._unit[self.index(a)] @ self._unit[self.index(b)])

    def most_similar(
        self, query: str | np.ndarray, k: int = 10, exclude: Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """Return the k words of highest cosine with a word (itself left out) or a (dim,) vector."""
        if isinstance(query, str):
            exclude = (query, *exclude)
            query = self._unit[self.index(query)]
        query = np.asarray(query, np.float32)
        cosine = self._unit @ (query / max(float(np.linalg.norm(query)), 1e-12))
        out = {self.index(word) for word in exclude}
        best = [i for i in np.argsort(-cosine, kind="stable")[: k + len(out)] if i not in out]
        return [(self.words[i], float(cosine[i])) for i in best[:k]]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[tuple[str, float]]:
        """Return the k best answers d to "a is to b as c is to d", the three words left out.

        Source: Mikolov et al. 2013c: d maximizes cos(d, b - a + c) over unit vectors.
        """
        unit = [self._unit[self.index(word)] for word in (a, b, c)]
        return self.most_similar(unit[1] - unit[0] + unit[2], k, exclude=(a, b, c))

    def evaluate_analogies(self, questions: Mapping[str, Sequence[Question]]) -> AnalogyReport:
        """Return how many questions (a, b, c, d) `analogy` answers correctly, by section.

        A word unknown as written is tried in lower case.
        """
        sections = {}
        for name, given in questions.items():
            rows = [[self._index.get(w, self._index.get(w.lower())) for w in q] for q in given]
            asked = [row for row in rows if None not in row]
            correct = 0
            for i in range(0, len(asked), BATCH):
                a, b, c, d = np.array(asked[i : i + BATCH]).T
                target = self._unit[b] - self._unit[a] + self._unit[c]
                score = target @ self._unit.T  # (BATCH, n_words)
                each = np.arange(len(a))
                for query in (a, b, c):
                    score[each, query] = -np.inf
                correct += int((score.argmax(1) == d).sum())
            sections[name] = (correct, len(asked), len(given))
        return AnalogyReport(sections)

    def save(self, path: str | os.PathLike, format: str = "glove") -> None:
        """Write a text file: "glove", or "word2vec", which has a heading line, as fastText's .vec.

        The file appears whole or not at all. Its numbers have the digits that float32 needs. A word
        that would not come back, such as one with a space before a number, is a ValueError.
        """
        if format not in ("glove", "word2vec"):
            raise ValueError(f"expected the format glove or word2vec, got {format!r}")
        lines = [f"{len(self)} {self.dim}\n".encode()] if format == "word2vec" else []
        for word, vector in zip(self.words, self.matrix, strict=True):
            lines.append(f"{word} {' '.join(map(str, vector))}\n".encode())
        for word, (back, _) in zip(self.words, _read_text(lines), strict=True):
            if back != word:
                raise ValueError(f"{word!r} would come back from the file as {back!r}")
        with whole_file(path) as file:
            file.writelines(lines)

    @classmethod
    def load(cls, path: str | os.PathLike) -> WordVectors:
        """Return the vectors of a text file, with or without a heading, or of one packed by gzip.

        A word that comes again is left out with a warning. A line that is not a word and as many
        numbers as the others have is a ValueError that names it.
        """
        rows: dict[str, np.ndarray] = {}
        try:
            with open(path, "rb") as file:
                packed = file.read(2) == b"\x1f\x8b"
                file.seek(0)
                for word, vector in _read_text(gzip.open(file) if packed else file):
                    if word in rows:
                        warnings.warn(f"{word!r} comes again and is left out", stacklevel=2)
                    else:
                        rows[word] = vector
            if not rows:
                raise ValueError("it holds no vectors")
        except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: {error}") from None
        return cls(list(rows), np.stack(list(rows.values())))


def _read_text(lines: Iterable[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the words and vectors (dim,) float32 of a text file, with or without a heading."""
    dim = promised = None
    found = 0
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        fields = line.split()
        if number == 1 and len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
            promised, dim = map(int, fields)
        elif fields:
            try:
                word, vector = _parse(line, dim)
            except ValueError as error:
                raise ValueError(f"line {number}, {line[:40]!r}…: {error}") from None
            yield word, vector
            dim, found = len(vector), found + 1
    if promised not in (None, found):
        raise ValueError(f"the heading promises {promised} vectors, the file holds {found}")


def _parse(line: bytes, dim: int | None) -> tuple[str, np.ndarray]:
    """Return a line's word and vector (dim,); without dim, all fields but the first are numbers.

    A word may hold spaces, as a few do in glove.840B, but none before a number, which is rather one
    of too many.
    """
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            "expected UTF-8 text; binary files, such as word2vec's .bin, are not read here, but "
            "gensim's KeyedVectors saves them as text"
        ) from None
    fields = line.split()
    dim = len(fields) - 1 if dim is None else dim
    word = b" ".join(fields[:-dim]).decode()
    if dim < 1 or not word or re.search(" -*[0-9]", word):
        raise ValueError(f"expected {dim} numbers, got {len(fields) - 1}")
    vector = np.array(fields[-dim:], dtype=np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("a number is not finite")
    return word, vector
