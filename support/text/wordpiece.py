"""WordPiece, BERT's tokenizer: the `tokenizers` library's, with arrays for our models.

Source: Devlin et al. 2019, section 3, and the code released with it; Wu et al. 2016, section 4.1
(the pieces). The chapter on byte pair encoding builds one by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer

from support import checks
from support.data import readers
from support.text.vocab import Vocab

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


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
        index = Vocab(vocab).get_stoi()
        self.vocab = list(index)
        if missing := [piece for piece in SPECIALS if piece not in index]:
            raise ValueError(f"a vocabulary needs {', '.join(SPECIALS)}; given without {missing}")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(index.get, SPECIALS)
        self._library = BertWordPieceTokenizer(
            index,
            handle_chinese_chars=split_chinese,
            strip_accents=lower if strip_accents is None else strip_accents,
            lowercase=lower,
        )

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
        except (ValueError, TypeError) as error:
            raise ValueError(f"{vocab}: {error}") from None

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation marks of a text, cleaned, before they become pieces."""
        clean = self._library.normalize(_encodable(text))
        return [word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(clean)]

    def tokenize(self, text: str) -> list[str]:
        """Return the pieces of a text.

        >>> WordPieceTokenizer([*SPECIALS, "play", "##ing"]).tokenize("Playing chess")
        ['play', '##ing', '[UNK]']
        """
        return [self.vocab[i] for i in self.encode(text).ids[1:-1]]

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoding:
        """Return [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], in at most max_length ids.

        The longer text gives up its end first; equally long, both do.
        Raises: ValueError if max_length is less than 3, or 5 for a pair.
        """
        # As a batch of one: given alone, an empty second text is none to the library.
        return self._encodings([text], None if pair is None else [pair], max_length)[0]

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
        encodings = self._encodings(texts, pairs, max_length)
        lengths = np.array([len(encoding.ids) for encoding in encodings], np.int64)
        taken = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
        ids, segments = np.full(taken.shape, self.pad_id, np.int64), np.zeros(taken.shape, np.int64)
        ids[taken] = [i for encoding in encodings for i in encoding.ids]
        segments[taken] = [s for encoding in encodings for s in encoding.segments]
        return Batch(*map(torch.from_numpy, (ids, segments, lengths)))

    def _encodings(self, texts, pairs, max_length: int | None) -> list[Encoding]:
        self._library.no_truncation()
        if max_length is not None:
            checks.integers(3 if pairs is None else 5, max_length=max_length)
            self._library.enable_truncation(int(max_length))
        texts = [_encodable(text) for text in texts]
        if pairs is not None:
            texts = list(zip(texts, map(_encodable, pairs), strict=True))
        return [
            Encoding(e.ids, e.type_ids, [-1 if i is None else i for i in e.word_ids])
            for e in self._library.encode_batch(texts)
        ]


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 has no place for: WordPiece drops them."""
    checks.text(text=text)
    return text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8")
