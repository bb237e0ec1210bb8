"""Word vectors: neighbors, analogies, and the file formats of GloVe and word2vec."""

from __future__ import annotations

import codecs
import difflib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from support import checks
from support.data.files import whole_file

Question = tuple[str, str, str, str]
FORMATS = ("glove", "word2vec")
BATCH = 512  # analogy questions answered at a time, which bounds the memory


@dataclass
class AnalogyReport:
    """How many analogy questions were answered, by section.

    sections: name -> (right, asked, given); a question is asked when its four words are known.
    """

    sections: dict[str, tuple[int, int, int]]

    @property
    def asked(self) -> int:
        """Questions whose four words are in the vocabulary."""
        return sum(asked for _, asked, _ in self.sections.values())

    @property
    def accuracy(self) -> float:
        """Share of the asked questions that were answered right; nan if none was asked."""
        right = sum(right for right, _, _ in self.sections.values())
        return right / self.asked if self.asked else float("nan")

    @property
    def coverage(self) -> float:
        """Share of the given questions that could be asked."""
        given = sum(given for _, _, given in self.sections.values())
        return self.asked / given if given else float("nan")


class WordVectors:
    """Words with a vector each: `words`, a list, and `matrix`, (n_words, dim) float32.

    Raises: ValueError if the shapes disagree, a word comes twice, or a length is not finite.
    """

    def __init__(self, words: Sequence[str], matrix: np.ndarray):
        self.words = list(words)
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words) or not self.matrix.size:
            raise ValueError(
                f"{len(self.words)} words need a matrix of as many rows, given {np.shape(matrix)}"
            )
        self._index = {word: i for i, word in enumerate(self.words)}
        if len(self._index) < len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self._index[w] != i)
            raise ValueError(f"{twice!r} is given twice; each word has one vector")
        with np.errstate(over="ignore"):
            length = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        if not np.isfinite(length).all():
            bad = self.words[int(np.argmin(np.isfinite(length)))]
            raise ValueError(f"the vector of {bad!r} holds a number not finite, or too large")
        self._unit = self.matrix / np.maximum(length, 1e-12)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def __getitem__(self, word: str) -> np.ndarray:
        return self.matrix[self.index(word)]

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words, {self.dim} numbers each)"

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self.matrix.shape[1]

    def index(self, word: str) -> int:
        """Return a word's row. Raises: KeyError naming the nearest spellings if it is unknown."""
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
        """Return the k words of highest cosine with a word (itself left out) or a (dim,) vector.

        Raises: KeyError for an unknown word; ValueError for k < 1 or a vector of another length.
        """
        checks.integers(1, k=k)
        checks.strings(exclude=exclude)
        if isinstance(query, str):
            exclude = (query, *exclude)
            query = self._unit[self.index(query)]
        query = np.asarray(query, np.float32)
        if query.shape != (self.dim,) or not np.isfinite(query).all():
            raise ValueError(
                f"the query must have shape ({self.dim},) and finite numbers, given {query.shape}"
            )
        cosine = self._unit @ (query / max(float(np.linalg.norm(query)), 1e-12))
        cosine[[self.index(word) for word in exclude]] = -np.inf
        k = min(k, len(self) - len(set(exclude)))
        best = np.argpartition(-cosine, k - 1)[:k] if k else np.empty(0, int)
        best = best[np.argsort(-cosine[best], kind="stable")]
        return [(self.words[i], float(cosine[i])) for i in best]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[tuple[str, float]]:
        """Return the k best answers d to "a is to b as c is to d", the three words left out.

        Source: Mikolov et al. 2013c: d maximizes cos(d, b - a + c) over unit vectors.
        """
        unit = [self._unit[self.index(word)] for word in (a, b, c)]
        return self.most_similar(unit[1] - unit[0] + unit[2], k, exclude=(a, b, c))

    def evaluate_analogies(self, questions: Mapping[str, Sequence[Question]]) -> AnalogyReport:
        """Return how many questions (a, b, c, d) `analogy` answers right, by section.

        A word unknown as written is tried in lower case.
        Raises: ValueError for a question that is not four words.
        """
        sections = {}
        for name, given in questions.items():
            asked = [row for row in map(self._rows, given) if row is not None]
            right = 0
            for i in range(0, len(asked), BATCH):
                a, b, c, d = np.array(asked[i : i + BATCH]).T
                target = self._unit[b] - self._unit[a] + self._unit[c]
                score = target @ self._unit.T  # (BATCH, n_words)
                each = np.arange(len(a))
                for query in (a, b, c):
                    score[each, query] = -np.inf
                right += int((score.argmax(1) == d).sum())
            sections[name] = (right, len(asked), len(given))
        return AnalogyReport(sections)

    def _rows(self, question: Question) -> list[int] | None:
        if isinstance(question, str) or len(question) != 4:
            raise ValueError(f"a question is four words, given {question!r}")
        rows = [self._index.get(w, self._index.get(w.lower())) for w in question]
        return None if None in rows else rows

    def save(self, path: str | os.PathLike, format: str = "glove") -> None:
        """Write a text file: "glove", or "word2vec", which has a heading line.

        The file appears whole or not at all. It keeps 9 digits, which float32 survives, and holds
        words with spaces in them, as glove.840B has.
        Raises: ValueError for another format, or a word that would not come back from it.
        """
        _check_format(format)
        _check_words(self.words, format)
        with whole_file(path) as file:
            if format != "glove":
                file.write(f"{len(self)} {self.dim}\n".encode())
            for word, vector in zip(self.words, self.matrix, strict=True):
                numbers = " ".join(f"{x:.9g}" for x in vector.tolist())
                file.write(f"{word} {numbers}\n".encode())

    @classmethod
    def load(cls, path: str | os.PathLike, format: str | None = None) -> WordVectors:
        """Return the vectors of a text file; without `format`, with or without a heading.

        Word2vec's binary files are not read here; gensim's KeyedVectors turns them into text.
        A word that comes again is left out with a warning. Raises: ValueError naming the line for
        a missing or extra column, a field that is no number, or a number that is not finite; and
        for a file that ends too early or goes on after as many vectors as its heading promises.
        """
        if format is not None:
            _check_format(format)
        rows: dict[str, np.ndarray] = {}
        again = []
        try:
            with open(path, "rb") as file:
                for word, vector in _read_text(file, format):
                    if word in rows:
                        again.append(word)
                    else:
                        rows[word] = vector
            if not rows:
                raise ValueError("it holds no vectors")
            vectors = cls(list(rows), np.stack(list(rows.values())))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if again:
            warnings.warn(f"{len(again)} words came twice, first kept: {again[:3]}", stacklevel=2)
        return vectors


def _check_format(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, given {format!r}")


_NUMBER_AFTER_SPACE = re.compile(rb" -*[0-9]")  # a field too many, not a part of a word


def _check_words(words: Sequence[str], format: str) -> None:
    """Raise ValueError for a word that would not come back from a file of this format."""
    never = re.compile("^$|[\ud800-\udfff\n]| -*[0-9]")
    for i, word in enumerate(words):
        first = i == 0 and (word[:1] == "\ufeff" or format == "glove" and " " in word)
        if first or never.search(word) or word.strip(" ") not in ("", word):
            raise ValueError(
                f"{word!r} cannot be written: nothing, half a character, a line end and a space "
                "before a number, at an end or in line 1 would not come back from the format "
                f"{format}"
            )


def _read_text(file: BinaryIO, format: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield words and vectors (dim,) float32 of a text file, with or without a heading.

    A word may hold spaces, as a few do in glove.840B: the last dim fields are the vector. Lines at
    the end may be blank.
    Raises: ValueError naming the line at fault, or for other than the number that was promised.
    """
    dim = promised = blank = None
    found = 0
    for number, line in enumerate(file, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        fields = line.rstrip().split(b" ")
        if number == 1 and format != "glove" and _is_heading(fields):
            promised, dim = map(int, fields)
            continue
        if number == 1 and format == "word2vec":
            raise ValueError(f"line 1: expected a heading 'words dimensions', found {line[:40]!r}")
        if not line.strip():
            blank = blank or number
            continue
        if blank:
            raise ValueError(f"line {blank} has 0 numbers; lines may be blank only at the end")
        dim = len(fields) - 1 if dim is None else dim
        try:
            word, numbers = b" ".join(fields[:-dim]), fields[-dim:]
            if dim < 1 or len(fields) <= dim or _NUMBER_AFTER_SPACE.search(word):
                raise ValueError(f"{len(fields) - 1} numbers instead of {dim}")
            with np.errstate(over="ignore"):
                vector = np.array(numbers, dtype=np.float32)
            if not np.isfinite(vector).all():
                raise ValueError("a number that is not finite")
            yield _word(word), vector
        except ValueError as error:
            raise ValueError(f"line {number}, {line[:40]!r}…: {error}") from None
        found += 1
    if promised not in (None, found):
        raise ValueError(f"the heading promises {promised} vectors, the file holds {found}")


def _is_heading(fields: Sequence[bytes]) -> bool:
    return len(fields) == 2 and all(part.isdigit() and len(part) < 20 for part in fields)


def _word(data: bytes) -> str:
    """Return a word of a file. Raises: ValueError for none, or one with spaces around it."""
    word = data.decode("utf-8")
    if not word or word.strip(" ") not in ("", word):
        raise ValueError(f"{word!r} is no word: a field before or after it is empty")
    return word
