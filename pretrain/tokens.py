"""Texts of any size to windows of token ids, memory-mapped and never read as a whole."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO

import datasets
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = {"gpt": ["<|endoftext|>"], "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}
# What a tokenizer may call the token between two documents.
ENDS = {"gpt": ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"], "bert": ["[SEP]"]}
JSON_LINES = (".jsonl", ".ndjson", ".json")
BLOCK = 2**20  # bytes or characters of a file that are read at once
PIECE = 2**13  # characters that the tokenizer gets as one text
GROUP = 256  # pieces that are encoded together, on all cores
FOR_TOKENIZER = 2_500  # pieces from which a tokenizer is learned: 20 million characters
WORD_END = re.compile(r"(?s).*\S(?=[ \n])")
SURROGATES = re.compile("[\ud800-\udfff]")  # JSON can hold them, UTF-8 cannot
RARE = "ⵣ𒀀ᐁ"  # characters that hardly any vocabulary holds


def read_texts(paths: Sequence[Path], field: str = "text") -> Iterator[str | None]:
    """Yield pieces of at most PIECE characters of the texts in files; None after each document.

    A document is a file, or in JSON lines a record, whose text is in a field; .gz is unpacked. A
    piece ends before the space or the line end that follows a word, where byte-level BPE cuts as
    well, so that the pieces have the tokens of the whole text.
    Raises: ValueError for a file that is missing, damaged, not UTF-8 text, or has no such field.
    """
    # Not by the readers of `datasets`: to them a line is one text, and "book[1].txt" a pattern.
    for path in paths:
        unpack = gzip.open if path.suffix.lower() == ".gz" else open
        records = path.name.lower().removesuffix(".gz").endswith(JSON_LINES)
        try:
            with unpack(path, "rt", encoding="utf-8-sig") as file:
                blocks = iter(partial(file.read, BLOCK), "")
                for text in _records(file, field) if records else [blocks]:
                    yield from _pieces(text)
                    yield None
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error


def _records(file: TextIO, field: str) -> Iterator[list[str]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from error
            found = record.get(field) if isinstance(record, dict) else None
            if not isinstance(found, str):
                raise ValueError(f"line {number} has no text in field {field!r}: {line[:60]!r}")
            yield [SURROGATES.sub("\ufffd", found)]


def _pieces(blocks: Iterable[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        if "\0" in block:
            raise ValueError("it has a zero byte, which no text has")
        text, start = rest + block, 0
        while len(text) - start > PIECE:
            word_end = WORD_END.match(text, start, start + PIECE)
            end = word_end.end() if word_end else start + PIECE
            yield text[start:end]
            start = end
        rest = text[start:]
    if rest:
        yield rest


def train_tokenizer(texts: Iterable[str | None], vocab_size: int, model: str = "gpt") -> Tokenizer:
    """Return byte-level BPE learned from texts, which has tokens for any character."""
    least = len(SPECIALS[model]) + 256
    if vocab_size < least:
        raise ValueError(f"--vocab must be at least {least}, got {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIALS[model],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    first = (piece or "" for piece in islice(texts, FOR_TOKENIZER))
    tokenizer.train_from_iterator(first, trainer)
    return tokenizer


def read_tokenizer(path: Path, model: str = "gpt") -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, which then loses nothing of a text.

    Truncation, padding, dropout and added tokens that were saved with it are switched off.
    Raises: ValueError for a file that holds no tokenizer, or one that drops characters or lacks a
        special token of the model.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        content |= {"truncation": None, "padding": None, "post_processor": None}
        content["model"].pop("dropout", None)
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises no kind of its own
        raise ValueError(f"{path} is no tokenizer ({error}): give another, or remove it") from error
    end_id(tokenizer, model)
    missing = [name for name in SPECIALS["bert"] if tokenizer.token_to_id(name) is None]
    if model == "bert" and missing:
        raise ValueError(f"a tokenizer for BERT needs the tokens {', '.join(missing)}: {path}")
    if not all(encode([character], tokenizer, []) for character in RARE):
        raise ValueError(f"{path} drops unknown characters: give a tokenizer that works on bytes")
    return tokenizer


def end_id(tokenizer: Tokenizer, model: str) -> int:
    """Return the id of the token between two documents; ValueError if there is none."""
    for name in ENDS[model]:
        if (found := tokenizer.token_to_id(name)) is not None:
            return found
    raise ValueError(f"the tokenizer has no end token, such as {' or '.join(ENDS[model])}")


def n_ids(tokenizer: Tokenizer) -> int:
    """Return the largest id and one more: there may be gaps."""
    return max(tokenizer.get_vocab().values()) + 1


def encode(pieces: Sequence[str | None], tokenizer: Tokenizer, end: list[int]) -> list[int]:
    """Return the token ids of pieces, with end for each None; ValueError for what has none."""
    texts = [piece for piece in pieces if piece is not None]
    try:
        found = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    except Exception as error:  # the library raises no kind of its own
        raise ValueError(f"the tokenizer cannot encode the text: {error}") from error
    return [i for piece in pieces for i in (end if piece is None else next(found).ids)]


def make_windows(
    paths: Sequence[Path], field: str, tokenizer: Tokenizer, end: int, length: int, folder: Path
) -> datasets.Dataset:
    """Return the windows of the texts, rows "ids" (length,), the rest at the end left out.

    They are memory-mapped from folder, where `datasets` writes them unless it has done so before.
    Raises: ValueError as read_texts does, and for texts of less than two windows.
    """
    datasets.disable_progress_bars()
    kind = "uint16" if n_ids(tokenizer) <= 2**16 else "uint32"
    given = {"paths": tuple(paths), "field": field, "tokenizer": tokenizer.to_str(), "end": end}
    try:
        rows = datasets.Dataset.from_generator(
            _windows,
            features=datasets.Features({"ids": datasets.Sequence(datasets.Value(kind), length)}),
            gen_kwargs=given | {"length": length, "times": [p.stat().st_mtime_ns for p in paths]},
            cache_dir=str(folder),
        )
    except datasets.exceptions.DatasetGenerationError as error:
        raise error.__cause__ or error from None
    return rows.with_format("numpy")


def _windows(paths, field, tokenizer, end, length, times) -> Iterator[dict[str, np.ndarray]]:
    """Yield windows; by the times, datasets notices a file that has changed."""
    tokenizer, texts = Tokenizer.from_str(tokenizer), read_texts(paths, field)
    ids, n = np.zeros(0, np.int64), 0
    while pieces := list(islice(texts, GROUP)):
        ids = np.concatenate([ids, encode(pieces, tokenizer, [end])])
        whole = len(ids) // length * length
        for row in ids[:whole].reshape(-1, length):
            n += 1
            yield {"ids": row}
        ids = ids[whole:]
    if n < 2:
        has = f"the text has {n * length + len(ids)} tokens"
        raise ValueError(f"{has}: a longer text, or shorter --context, must give {2 * length}")
