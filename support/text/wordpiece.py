"""WordPiece, BERT's tokenizer: the `tokenizers` library's, with arrays for our models.

Source: Devlin et al. 2019, section 3, and the code released with it; Wu et al. 2016, section 4.1.
The chapter on byte pair encoding builds one by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.nn.utils.rnn import pad_sequence

from support.text.vocab import Vocab

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Encoding(NamedTuple):
    """A text, or a pair, as the model sees it; three lists of one length.

    segments: 0 in the first text, 1 in the second, [SEP] with the text that it ends. word_ids: the
    index of the word, in its own text, that a subword comes from; -1 for the [CLS] and [SEP] added.
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
    """Text to subwords and their ids. A special token written out in a text is that token.

    Args:
        vocab: the subwords in the order of their ids, "##" before one that continues a word.
        lower: lower-case the text.
        strip_accents: drop accents; None: if `lower`.
        split_chinese: make every Chinese character a word.
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
        library = Tokenizer(models.WordPiece(index, unk_token="[UNK]"))
        library.normalizer = normalizers.BertNormalizer(
            handle_chinese_chars=split_chinese,
            strip_accents=lower if strip_accents is None else strip_accents,
            lowercase=lower,
        )
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._use(library)

    def _use(self, library: Tokenizer) -> None:
        """Wrap a tokenizer of the library, which needs the special tokens, and ids without gaps."""
        index = library.get_vocab()
        self.vocab = sorted(index, key=index.__getitem__)
        if missing := [token for token in SPECIALS if token not in index]:
            raise ValueError(f"a vocabulary needs {', '.join(SPECIALS)}; given without {missing}")
        if index[self.vocab[-1]] != len(index) - 1:
            raise ValueError(f"expected ids 0 … {len(index) - 1}, got {index[self.vocab[-1]]}")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(index.get, SPECIALS)
        library.add_special_tokens(list(SPECIALS))
        ends = ("[SEP]", self.sep_id), ("[CLS]", self.cls_id)
        library.post_processor = processors.BertProcessing(*ends)
        library.no_padding()
        self._library = library

    def __len__(self) -> int:
        return len(self.vocab)

    @classmethod
    def from_folder(cls, path: str | os.PathLike) -> WordPieceTokenizer:
        """Return the tokenizer of a checkpoint.

        It is that of vocab.txt, used as tokenizer_config.json says, or of tokenizer.json, which is
        all that Transformers 5 saves. A ValueError says what is damaged or not there.
        """
        folder = Path(path)
        vocab, config = folder / "vocab.txt", folder / "tokenizer_config.json"
        try:
            if not vocab.is_file():
                made = cls.__new__(cls)
                made._use(Tokenizer.from_str((folder / "tokenizer.json").read_text("utf-8")))
                return made
            given = json.loads(config.read_bytes()) if config.is_file() else {}
            return cls(
                vocab.read_text("utf-8-sig").removesuffix("\n").split("\n"),
                lower=given.get("do_lower_case", True),
                strip_accents=given.get("strip_accents"),
                split_chinese=given.get("tokenize_chinese_chars", True),
            )
        except FileNotFoundError:
            raise ValueError(f"{path} holds neither vocab.txt nor tokenizer.json") from None
        except Exception as error:  # the library has no class of its own for its errors
            raise ValueError(f"{path} holds no WordPiece tokenizer: {error}") from None

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation marks of a text, cleaned, before they are divided."""
        clean = self._library.normalizer.normalize_str(text)
        return [word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(clean)]

    def tokenize(self, text: str) -> list[str]:
        """Return the subwords of a text.

        >>> WordPieceTokenizer([*SPECIALS, "play", "##ing"]).tokenize("Playing chess")
        ['play', '##ing', '[UNK]']
        """
        return [self.vocab[i] for i in self.encode(text).ids[1:-1]]

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoding:
        """Return [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], in at most max_length ids.

        The longer text loses tokens from its end first; equally long, both do.
        """
        # As a batch of one: given alone, an empty second text is none to the library.
        return self._encodings([text], None if pair is None else [pair], max_length)[0]

    def batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_length: int | None = None,
    ) -> Batch:
        """Return the encodings of texts, or of (texts[i], pairs[i]), padded with [PAD]."""
        if isinstance(texts, str) or isinstance(pairs, str):
            raise ValueError("expected lists of str for texts and pairs, got one str")
        encodings = self._encodings(texts, pairs, max_length)
        ids = [torch.tensor(encoding.ids) for encoding in encodings]
        segments = [torch.tensor(encoding.segments) for encoding in encodings]
        return Batch(
            pad_sequence(ids, batch_first=True, padding_value=self.pad_id),
            pad_sequence(segments, batch_first=True),
            torch.tensor([len(row) for row in ids]),
        )

    def _encodings(self, texts, pairs, max_length: int | None) -> list[Encoding]:
        self._library.no_truncation()
        if max_length is not None:
            # Below that the library cuts nothing, and does not say so.
            if max_length < (least := 3 if pairs is None else 5):
                raise ValueError(f"expected a max_length of at least {least}, got {max_length}")
            self._library.enable_truncation(max_length)
        if pairs is not None:
            texts = list(zip(texts, pairs, strict=True))
        return [
            Encoding(e.ids, e.type_ids, [-1 if i is None else i for i in e.word_ids])
            for e in self._library.encode_batch(texts)
        ]
