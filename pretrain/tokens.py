"""Text of any size to token ids in a file, which is memory-mapped and never read as a whole."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from support.data import datasets

NAMES = {"shakespeare": datasets.shakespeare, "wikitext2": datasets.wikitext2, "ptb": datasets.ptb}
SPECIALS = {"gpt": ["<|endoftext|>"], "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]}
# What a tokenizer may call the token between two documents.
ENDS = {"gpt": ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"], "bert": ["[SEP]"]}
JSON_LINES = (".jsonl", ".ndjson", ".json")
BLOCK = 2**20  # characters, or bytes, of a file that are read at once
PIECE = 2**13  # characters that the tokenizer gets as one text
GROUP = 256  # pieces that are encoded together, on all cores
FOR_TOKENIZER = 2_500  # pieces from which a tokenizer is learned: 20 million characters
WORD_END = re.compile(r"(?s).*\S(?=[ \n])")
SURROGATES = re.compile("[\ud800-\udfff]")  # JSON can hold them, UTF-8 cannot
RARE = "ⵣ𒀀ᐁ"  # characters that hardly any vocabulary holds


def text_file(name: str, folder: Path) -> Path:
    """Return the file of a text: a path, or a data set by its name, put into folder."""
    if name not in NAMES:
        return Path(name)
    path = folder / f"{name}.txt"
    if not path.exists():
        path.write_text(NAMES[name]().text, "utf-8")
    return path


def read_texts(paths: Sequence[Path], field: str = "text") -> Iterator[str | None]:
    """Yield pieces of at most PIECE characters of the texts in files; None after each document.

    A document is a file, or in JSON lines a record, whose text is in a field; .gz is unpacked. A
    piece ends before the space or the line end that follows a word, where byte-level BPE cuts as
    well, so that the pieces have the tokens of the whole text.

    Raises:
        ValueError: for a file that is missing, damaged, not UTF-8 text, or has no such field.
    """
    for path in paths:
        opened = gzip.open if path.suffix.lower() == ".gz" else open
        try:
            with opened(path, "rt", encoding="utf-8-sig") as file:
                if path.name.lower().removesuffix(".gz").endswith(JSON_LINES):
                    for number, line in enumerate(file, 1):
                        if line.strip():
                            yield from _pieces([_record(line, f"{path}, line {number}", field)])
                            yield None
                else:
                    yield from _pieces(_blocks(file, path))
                    yield None
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged: {error}") from error


def _blocks(file: TextIO, path: Path) -> Iterator[str]:
    while block := file.read(BLOCK):
        if "\0" in block:
            raise ValueError(f"{path} is not a text: it has a zero byte")
        yield block


def _record(line: str, where: str, field: str) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    found = record.get(field) if isinstance(record, dict) else None
    if not isinstance(found, str):
        has = f"fields {sorted(record)}" if isinstance(record, dict) else "no record"
        raise ValueError(f"{where}: no text in field {field!r}; it has {has}")
    return SURROGATES.sub("\ufffd", found)


def _pieces(blocks: Iterable[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
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
    """Return byte-level BPE learned from texts, which has tokens for any character.

    Raises:
        ValueError: if vocab_size is too small for the bytes and the special tokens.
    """
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

    Raises:
        ValueError: for a file that holds no tokenizer, or one that drops characters or lacks a
            special token of the model.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        content |= {"truncation": None, "padding": None, "post_processor": None}
        if "dropout" in content["model"]:
            content["model"]["dropout"] = None
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises no kind of its own
        raise ValueError(f"{path} is no tokenizer ({error}): give another, or remove it") from error
    end_id(tokenizer, model)
    missing = [name for name in SPECIALS["bert"] if tokenizer.token_to_id(name) is None]
    if model == "bert" and missing:
        raise ValueError(f"a tokenizer for BERT needs the tokens {', '.join(missing)}: {path}")
    if not all(encode([character], tokenizer, [])[0] for character in RARE):
        raise ValueError(
            f"the tokenizer {path} drops characters that it does not know: "
            "give one that works on bytes or has an unknown token"
        )
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


def encode(pieces: list[str | None], tokenizer: Tokenizer, end: list[int]) -> tuple[list, int]:
    """Return the token ids of pieces, with end for each None, and their size in bytes.

    Raises:
        ValueError: for text that the tokenizer cannot encode.
    """
    texts = [piece for piece in pieces if piece is not None]
    try:
        found = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    except Exception as error:  # the library raises no kind of its own
        raise ValueError(f"the tokenizer cannot encode the text: {error}") from error
    ids = [i for piece in pieces for i in (end if piece is None else next(found).ids)]
    return ids, sum(len(text.encode()) for text in texts)


def make_tokens(
    paths: Sequence[Path], tokenizer: Tokenizer, end: int, folder: Path, field: str = "text"
) -> tuple[np.ndarray, int]:
    """Return the token ids of texts, mapped into memory, and the size of the texts in bytes.

    They are those in folder, or else they are written there: two bytes each, or four if there are
    more than 65,536 ids. tokens.json says of which texts and which tokenizer they are.

    Raises:
        ValueError: as read_texts does, for empty texts, and if folder holds other tokens.
    """
    data, note = folder / "tokens.bin", folder / "tokens.json"
    kind = np.dtype(np.uint16 if n_ids(tokenizer) <= 2**16 else np.uint32)
    about = {"texts": [_sha256(path) for path in paths if path.is_file()], "field": field}
    about["tokenizer"] = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    if note.exists():
        known = read_json(note)
        if known["about"] != about:
            raise ValueError(f"{folder} holds tokens of another text or tokenizer")
        if data.exists() and data.stat().st_size == known["n_tokens"] * kind.itemsize:
            return np.memmap(data, kind, "r"), known["n_bytes"]
    n_bytes, texts, unfinished = 0, read_texts(paths, field), data.with_suffix(".unfinished")
    try:
        with unfinished.open("wb") as file:
            while pieces := list(islice(texts, GROUP)):
                ids, size = encode(pieces, tokenizer, [end])
                file.write(np.asarray(ids, kind).tobytes())
                n_bytes += size
        if not n_bytes:
            raise ValueError(f"there is no text in {', '.join(map(str, paths))}")
        n_tokens = unfinished.stat().st_size // kind.itemsize
        unfinished.replace(data)
    finally:
        unfinished.unlink(missing_ok=True)
    write_json(note, {"about": about, "n_bytes": n_bytes, "n_tokens": n_tokens})
    return np.memmap(data, kind, "r"), n_bytes


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def read_json(path: Path) -> dict:
    """Return what a JSON file of a run holds; ValueError if it is damaged."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): remove it") from error


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, which is there as a whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=1), "utf-8")
    unfinished.replace(path)
