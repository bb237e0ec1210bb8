"""WordPiece, BERT's tokenizer, with the ids of the Transformers library's `BertTokenizerFast`.

Source: Devlin et al. 2019, section 3, and the code released with it; Wu et al. 2016, section 4.1
(the pieces). Song et al. 2021 find the same pieces in time linear in the length of a word.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex
import torch

from support import checks
from support.data import readers
from support.text.pieces import SPACE, PieceCache, code_points
from support.text.vocab import Vocab

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_LONGEST_WORD = 100  # characters; a longer word is [UNK]

# The library classes characters as Unicode 8 did. What came or changed later is left out here, in
# ranges that hold nothing that Unicode 8 has in these classes, and four characters are put back.
_AFTER_UNICODE_8 = code_points(
    "5C8-5C9 61D 7FD 890-8E2 9FD-9FE A76 AFA-AFF B53-B55 C04-C3C C77 C84 D00 D3B-D3C D81 EBA "
    "ECE 180F-1886 1ABF-1AF0 1B4E-1B4F 1B7D-1B7F 1DF6-1DFB 2E43-2E63 A82C A8C5 A8FF A9BD "
    "10D24-10F89 11070-11074 110C2-110CD 111C9 111CF 1123E-11241 1133B 113BB-1145E "
    "11660-1166C 116B9 1182F-1183B 1193B-11FFF 12FF1-1612F 16D6D-16F4F 16FE2-16FE4 "
    "1CF00-1D128 1D25B-1D25C 1E000-1E6F5 1E944-1E95F"
)
_PUNCTUATION = rf"[\p{{P}}--[{_AFTER_UNICODE_8}]]$+<=>\^`\|\~\u166d\U000111c9"
_WORD = regex.compile(rf"[{_PUNCTUATION}]|[^\ {_PUNCTUATION}]+", regex.V1)
_REMOVED = regex.compile(rf"[[\p{{Cc}}\p{{Cf}}\p{{Co}}--[{_AFTER_UNICODE_8}]]\ufffd]", regex.V1)
_ACCENT = regex.compile(rf"[[\p{{Mn}}--[{_AFTER_UNICODE_8}]]\u1734\U0001171e]", regex.V1)
# The paper's code has 2B820 where the library has 2B920: 256 characters of Chinese differ.
_CHINESE = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)
# Special tokens, and stretches without white space; each can be split by itself, and be kept.
_STRETCH = re.compile("|".join(map(re.escape, SPECIALS)) + rf"|\[?[^\[{SPACE}]+|\[")


class Encoding(NamedTuple):
    """A text, or a pair, as the model reads it; three lists of one length.

    segments: 0 in the first text, 1 in the second, [SEP] with the text that it ends. word_ids: the
    index of the word, in its own text, that a piece comes from; -1 for the [CLS] and [SEP] added.
    """

    ids: list[int]
    segments: list[int]
    word_ids: list[int]


class Batch(NamedTuple):
    """Encodings padded to the longest: ids and segments (B, T), lengths (B,), all int64."""

    ids: torch.Tensor
    segments: torch.Tensor
    lengths: torch.Tensor


class WordPieceTokenizer:
    """Text to pieces of words and back.

    A special token written out in a text, such as "[SEP]", is that token, as in the library.

    Args: vocab, the pieces in the order of their ids, "##" before one that continues a word; lower,
    lower-case the text; strip_accents, drop accents (None: if lower); split_chinese, make every
    Chinese character a word.
    Raises: ValueError if vocab repeats a piece or lacks one of `SPECIALS`.
    """

    def __init__(
        self,
        vocab: Sequence[str],
        lower: bool = True,
        *,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ):
        self._index = Vocab(vocab).get_stoi()
        self.vocab = list(self._index)
        self.lower = lower
        self.strip_accents = lower if strip_accents is None else strip_accents
        self.split_chinese = split_chinese
        if missing := [piece for piece in SPECIALS if piece not in self._index]:
            raise ValueError(f"a vocabulary needs {', '.join(SPECIALS)}; given without {missing}")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._index[piece] for piece in SPECIALS
        )
        self._longest = max(map(len, self.vocab))
        self._cache = PieceCache(self._match_words)

    def __len__(self) -> int:
        return len(self.vocab)

    @classmethod
    def from_folder(cls, path: str | os.PathLike) -> WordPieceTokenizer:
        """Return the tokenizer of a checkpoint: its vocab.txt, read as tokenizer_config.json says.

        Raises: ValueError if there is no vocab.txt, or one of the two is not what it should be.
        """
        vocab, config = Path(path) / "vocab.txt", Path(path) / "tokenizer_config.json"
        if not vocab.is_file():
            raise ValueError(f"a WordPiece tokenizer needs vocab.txt, which {path} does not have")
        try:
            given = json.loads(config.read_bytes()) if config.is_file() else {}
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{config} is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise ValueError(f"{config} must hold an object, not {type(given).__name__}")
        lines = readers.text(vocab.read_bytes(), str(vocab)).removesuffix("\n").split("\n")
        try:
            return cls(
                lines,
                lower=given.get("do_lower_case", True),
                strip_accents=given.get("strip_accents"),
                split_chinese=given.get("tokenize_chinese_chars", True),
            )
        except ValueError as error:
            raise ValueError(f"{vocab}: {error}") from None

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation marks of a text, cleaned, before they become pieces.

        Lower case, and the parts of a letter, are as in Python's version of Unicode.
        """
        return list(chain.from_iterable(map(self._split, _stretches(text))))

    def tokenize(self, text: str) -> list[str]:
        """Return the pieces of a text.

        >>> WordPieceTokenizer([*SPECIALS, "play", "##ing"]).tokenize("Playing chess")
        ['play', '##ing', '[UNK]']
        """
        return [self.vocab[i] for i in chain.from_iterable(self._words_as_ids(text))]

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoding:
        """Return [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], in at most max_length ids.

        The longer text gives up its end first; equally long, both do.
        Raises: ValueError if max_length is less than 3, or 5 for a pair.
        """
        texts = [text] if pair is None else [text, pair]
        parts = [list(self._words_as_ids(part)) for part in texts]
        lengths = [sum(map(len, words)) for words in parts]
        encoding = Encoding([self.cls_id], [0], [-1])
        for segment, (words, n) in enumerate(zip(parts, _shares(lengths, max_length), strict=True)):
            word_ids = [i for i, word in enumerate(words) for _ in word]
            encoding.ids.extend([*chain.from_iterable(words)][:n] + [self.sep_id])
            encoding.segments.extend([segment] * (n + 1))
            encoding.word_ids.extend([*word_ids[:n], -1])
        return encoding

    def batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_length: int | None = None,
    ) -> Batch:
        """Return the encodings of texts, or of (texts[i], pairs[i]), padded with [PAD].

        Raises: ValueError if texts is a str, if there are more or fewer pairs than texts, or as
        `encode` does.
        """
        if isinstance(texts, str) or isinstance(pairs, str):
            raise ValueError("texts and pairs must be lists of str, given one str")
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"each text needs its pair: given {len(texts)} and {len(pairs)}")
        seconds = repeat(None) if pairs is None else pairs
        encodings = [self.encode(*both, max_length) for both in zip(texts, seconds, strict=False)]
        lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
        taken = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
        ids, segments = np.full(taken.shape, self.pad_id, np.int64), np.zeros(taken.shape, np.int64)
        ids[taken] = [*chain.from_iterable(encoding.ids for encoding in encodings)]
        segments[taken] = [*chain.from_iterable(encoding.segments for encoding in encodings)]
        return Batch(*map(torch.from_numpy, (ids, segments, lengths)))

    def _words_as_ids(self, text: str) -> Iterable[tuple[int, ...]]:
        """Return for each word of a text the ids of its pieces."""
        return chain.from_iterable(map(self._cache.__getitem__, _stretches(text)))

    def _split(self, stretch: str) -> list[str]:
        """Return the words of a special token or of a stretch without white space."""
        if stretch in SPECIALS:
            return [stretch]
        if not (stretch.isascii() and stretch.isprintable()):
            stretch = _REMOVED.sub("", stretch)
            if self.split_chinese:
                stretch = _CHINESE.sub(r" \g<0> ", stretch)
            if self.strip_accents:
                stretch = _ACCENT.sub("", unicodedata.normalize("NFD", stretch))
        if self.lower:
            # Letter by letter, as a whole word in lower case would end in ς for Σ.
            stretch = "".join(map(str.lower, stretch))
        return _WORD.findall(stretch)

    def _match_words(self, stretch: str) -> tuple[tuple[int, ...], ...]:
        """Return for each word of a stretch the ids of its pieces."""
        return tuple(map(self._match, self._split(stretch)))

    def _match(self, word: str) -> tuple[int, ...]:
        """Return the ids of a word: at each place the longest piece that fits, or [UNK] for all."""
        if len(word) > _LONGEST_WORD:
            return (self.unk_id,)
        ids, start, prefix = [], 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if (found := self._index.get(prefix + word[start:end])) is not None:
                    break
            else:
                return (self.unk_id,)
            ids.append(found)
            start, prefix = end, "##"
        return tuple(ids)


def _stretches(text: str) -> list[str]:
    checks.text(text=text)
    return _STRETCH.findall(text)


def _shares(lengths: list[int], max_length: int | None) -> list[int]:
    """Return how many ids of each text are kept: "longest first", as the library cuts.

    The shorter keeps half of the room if it needs it, the longer (the second, if equal) the rest.
    """
    added = len(lengths) + 1
    if max_length is None:
        return lengths
    checks.integers(added + len(lengths), max_length=max_length)  # one id of each text at least
    room = max_length - added
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    shorter = min(min(lengths), room // 2)
    longer = min(max(lengths), room - shorter)
    return [longer, shorter] if lengths[0] > lengths[1] else [shorter, longer]
