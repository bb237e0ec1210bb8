"""Byte-level BPE: every text comes back, and ids are those of the `tokenizers` library."""

import json
import os
import random
import time
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers as library
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text import bpe
from support.text.bpe import BPETokenizer

TEXT = (
    "The lowest of the lower houses is low, lower than the newest of the wider ones.\n"
    "It's 1999; they'll re-use 19 999 things, won't they?   Yes -- \n\n  they've done it.\n"
    "词向量和子词。 Größe, naïve café, пример слова; 🙂👍🏽 and 👩‍👩‍👧 too!\n"
) * 3

HARD = [
    "",
    " ",
    "a",
    "\n\n \t\r\n",
    "trailing space ",
    "  two   three    four ",
    "don't we'll I'M they'RE ''s 'tis",
    "x=1234567890;y=3.14e-10",
    "\x00\x01\x1c\x1d\x1e\x1f\x7f",
    "a\x1cb!\x1f!",
    "a\x85b\u1680c\u2003d\u2028e\u3000f\u00a0g",
    "zero\u200bwidth\u200dand\ufeffmark",
    "e\u0301 vs é, A\u030a\u0327",
    "词元化：把文本切成词元。",
    "עברית ગુજરાતી ไทย 한국어 ꙮ",
    "👩‍👩‍👧‍👦🇨🇳🏴󠁧󠁢󠁥󠁮󠁧󠁿1️⃣",
    "\U0001f9ff\U0002ffff\U0010ffff\ufffe\uffff",
    "٣٤٥ Ⅷ ½ ² 一二",
    "Ġ already looks like a byte symbol Ċ é",
    "<|end|><pad>< pad >",
]

SPANS = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x206F)]
SPANS += [(0x3000, 0x9FFF), (0xA700, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF)]
SPANS += [(0x1F300, 0x1FAFF), (0x20000, 0x3FFFF), (0xE0000, 0x10FFFF), (0x10D40, 0x10D8F)]
ODD = "\x00\x1c\x1f\x85\xa0\u1680\u180e\u200b\u200d\u2028\u202f\u3000\ufeff\r\n\t\x0b '\u0301\ufe0f"


def random_strings(n: int, seed: int = 0) -> list[str]:
    """Return n strings from all planes, thick with white space, marks and controls."""
    rng = random.Random(seed)

    def character() -> str:
        kind = rng.random()
        if kind < 0.5:
            return rng.choice(ODD) if kind < 0.3 else rng.choice("abcdestr'12 ")
        found = chr(rng.randint(*rng.choice(SPANS)))
        # Releases of the libraries know the letters of different versions of Unicode.
        return "x" if unicodedata.category(found) == "Cn" else found

    return ["".join(character() for _ in range(rng.randint(1, 50))) for _ in range(n)]


def naive_merges(words: dict[str, int], n_merges: int) -> list[tuple[str, str]]:
    """Return merges from recounting all pairs every time; of equal counts, the lowest ids."""
    order = sorted(bpe.byte_symbols())
    symbols = bpe.byte_symbols()
    split = [[symbols[byte] for byte in word.encode()] for word in words]
    merges = []
    while len(merges) < n_merges:
        counts: Counter = Counter()
        for word, n in zip(split, words.values(), strict=True):
            for pair in pairwise(word):
                counts[pair] += n
        if not counts:
            break
        best = min(counts, key=lambda p: (-counts[p], order.index(p[0]), order.index(p[1])))
        merges.append(best)
        order.append("".join(best))
        for word in split:
            for i in range(len(word) - 1):
                if word[i : i + 2] == list(best):
                    word[i : i + 2] = ["".join(best)]
    return merges


def naive_encode(tokenizer: BPETokenizer, text: str) -> list[int]:
    """Return ids from merging, again and again, the leftmost of the pairs with the lowest rank."""
    ranks = {merge: rank for rank, merge in enumerate(tokenizer.merges)}
    ids = []
    for pre_token in bpe.pre_tokenize(text):
        word = [bpe.byte_symbols()[byte] for byte in pre_token.encode()]
        while known := [pair for pair in pairwise(word) if pair in ranks]:
            best = min(known, key=ranks.__getitem__)
            i = list(pairwise(word)).index(best)
            word[i : i + 2] = ["".join(best)]
        ids += [tokenizer.vocab[symbol] for symbol in word]
    return ids


@pytest.fixture(scope="module")
def tokenizer() -> BPETokenizer:
    return BPETokenizer.train(TEXT, 400)


# Few letters, so that pairs come again and tie; and what is hard to cut.
letters = st.sampled_from([*"aab  \n", "'s", "é", "e\u0301", "👩‍👧", "ש", "\u200f", "\0", "1"])
texts = st.lists(letters, max_size=60).map("".join)
any_text = st.text(max_size=30) | texts
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


# Against the slow, plain way


@given(texts, st.integers(0, 30), st.lists(any_text, max_size=4))
@quick
def test_merges_and_ids_are_those_of_the_plain_way(text, n, others):
    tokenizer = BPETokenizer.train(text, 256 + n)
    counts = Counter(bpe.pre_tokenize(text))
    assert tokenizer.merges == naive_merges(counts, n)
    for other in (text, *others):
        ids = tokenizer.encode(other)
        assert ids == naive_encode(tokenizer, other) and tokenizer.decode(ids) == other


@quick
@given(st.text(st.characters(categories=["Cs", "Ll", "Zs"])))
def test_lone_surrogates_come_back_when_asked_for(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, errors="surrogatepass") == text
    tokenizer.decode(ids).encode()  # by default they are replaced, so that UTF-8 can hold the text


def test_bytes_that_are_not_utf8_are_replaced_in_text_only(tokenizer):
    first_byte = [tokenizer.vocab[bpe.byte_symbols()[0xC3]]]
    assert tokenizer.decode(first_byte) == "\ufffd"
    assert tokenizer.decode_bytes(first_byte) == b"\xc3"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode(first_byte, errors="strict")


def test_arrays_and_tensors_decode(tokenizer):
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(np.array(ids, dtype=np.int32)) == TEXT
    assert tokenizer.decode(torch.tensor(ids)) == TEXT
    assert tokenizer.decode([]) == ""


# What text is cut into


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Hello world", ["Hello", " world"]),
        ("I'll we've", ["I", "'ll", " we", "'ve"]),
        ("I'LL", ["I", "'", "LL"]),
        ("he's I'm can't they're he'd", "he|'s| I|'m| can|'t| they|'re| he|'d".split("|")),
        ("a  b", ["a", " ", " b"]),
        ("a \n b", ["a", " \n", " b"]),
        ("a ", ["a", " "]),
        ("in 1984!?", ["in", " 1984", "!?"]),
        ("x1 y", ["x", "1", " y"]),
        ("!\x1c!", ["!\x1c!"]),
        ("a\u3000b", ["a", "\u3000", "b"]),
    ],
)
def test_the_pattern_cuts_as_in_gpt2(text, parts):
    assert bpe.pre_tokenize(text) == parts


def test_byte_symbols_are_printable_and_differ():
    symbols = bpe.byte_symbols()
    assert len(set(symbols)) == 256 and all(symbol.isprintable() for symbol in symbols)
    assert symbols[ord("a")] == "a" and symbols[ord(" ")] == "Ġ" and symbols[ord("\n")] == "Ċ"


def test_of_equal_counts_the_lowest_ids_are_merged_first():
    by_hand = [("a", "b"), ("c", "d"), ("ab", "cd")]
    assert BPETokenizer.train("cd\nab\nabcd", 259).merges == by_hand
    # A new symbol has a higher id than every byte, so (z, z) goes before (ab, c).
    assert BPETokenizer.train("abc\nzz", 258).merges == [("a", "b"), ("z", "z")]


def test_ids_are_bytes_then_merges(tokenizer):
    tokens = list(tokenizer.vocab)
    assert list(tokenizer.vocab.values()) == list(range(400)) and tokenizer.vocab_size == 400
    assert tokens[:256] == sorted(bpe.byte_symbols())
    assert tokens[256:] == [a + b for a, b in tokenizer.merges]


def test_training_stops_when_no_pair_is_left():
    tokenizer = BPETokenizer.train("abab", 10_000)
    assert tokenizer.vocab_size == 258
    assert BPETokenizer.train([], 10_000).vocab_size == 256


def test_texts_are_cut_one_by_one():
    assert BPETokenizer.train(["ab", "cd"], 300).vocab.keys().isdisjoint({"bc"})
    assert BPETokenizer.train(iter([TEXT]), 400).merges == BPETokenizer.train(TEXT, 400).merges


def test_long_pieces_do_not_take_quadratic_time():
    start = time.perf_counter()
    tokenizer = BPETokenizer.train("acgt" * 20_000, 280)
    assert tokenizer.decode(tokenizer.encode("acgtt" * 20_000)) == "acgtt" * 20_000
    assert time.perf_counter() - start < 20  # quadratic: minutes


def test_a_full_cache_changes_no_ids(monkeypatch, tokenizer):
    monkeypatch.setattr(bpe, "CACHE_SIZE", 7)
    small = BPETokenizer(tokenizer.vocab, tokenizer.merges)
    assert small.encode(TEXT) == tokenizer.encode(TEXT) and 0 < len(small._cache) <= 7


def test_a_vocabulary_without_room_for_the_bytes_is_refused():
    with pytest.raises(ValueError, match="vocab_size of at least 256, got 255"):
        BPETokenizer.train("abc", 255)


# The same as the `tokenizers` library


def library_tokenizer(texts: list[str], vocab_size: int):
    """Return what `tokenizers` learns from the same texts."""
    byte_level = library.pre_tokenizers.ByteLevel
    theirs = library.Tokenizer(library.models.BPE())
    theirs.pre_tokenizer = byte_level(add_prefix_space=False, use_regex=True)
    theirs.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    return theirs


def merges_of(theirs) -> list[tuple[str, str]]:
    """Return the merges of a tokenizer of the library; releases before 0.20 write them "a b"."""
    merges = json.loads(theirs.to_str())["model"]["merges"]
    return [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]


def same_as_the_library(texts: list[str], vocab_size: int):
    """Return (ours, theirs) after checking that vocabulary, merges and ids of `texts` agree."""
    ours = BPETokenizer.train(texts, vocab_size)
    theirs = library_tokenizer(texts, vocab_size)
    assert ours.vocab == theirs.get_vocab() and ours.merges == merges_of(theirs)
    assert [ours.encode(text) for text in texts] == [e.ids for e in theirs.encode_batch(texts)]
    return ours, theirs


@pytest.mark.parametrize("seed", range(20))
def test_ids_are_the_librarys_on_texts_full_of_ties(seed):
    """Few letters make many ties, and symbols that two pairs make."""
    rng = random.Random(seed)
    letters = rng.choice(["ab", "abc", "a", "ab ", "aé中 "])
    texts = ["".join(rng.choices(letters, k=rng.randint(0, 400))) for _ in range(3)]
    same_as_the_library([*texts, "aba b"], 260 + rng.randint(0, 150))


def test_ids_are_the_librarys_on_hard_strings():
    ours, theirs = same_as_the_library([TEXT, *HARD], 600)
    for text in HARD:
        assert ours.encode(text) == theirs.encode(text).ids


def test_ids_are_the_librarys_on_random_unicode():
    strings = random_strings(1000)
    ours, theirs = same_as_the_library([TEXT], 400)
    for text, encoding in zip(strings, theirs.encode_batch(strings), strict=True):
        assert ours.encode(text) == encoding.ids, ascii(text)
        assert ours.decode(encoding.ids) == text
    same_as_the_library(strings, 1000)


def test_letters_and_numbers_are_those_of_the_library():
    """Every code point that this Python calls a letter or a number, and each 64th of the others."""
    byte_level = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    everything = (chr(i) for i in range(0x110000) if not 0xD800 <= i <= 0xDFFF)
    kinds = ((c, unicodedata.category(c)) for c in everything)
    some = [c for c, kind in kinds if kind[0] in "LNZ" or ord(c) % 64 == 0 and kind != "Cn"]
    for start in range(0, len(some), 2000):
        text = "".join(f"a{c}1 !{c}!" for c in some[start : start + 2000])
        theirs = [text[a:b] for _, (a, b) in byte_level.pre_tokenize_str(text)]
        assert bpe.pre_tokenize(text) == theirs


@pytest.mark.parametrize("name", ["ptb/ptb.valid.txt", "wikitext-2/wiki.test.tokens"])
def test_ids_are_the_librarys_on_real_text(name):
    path = Path(os.environ.get("PRETRAIN_DATA_DIR", ".")) / name
    if not path.is_file():
        pytest.skip(f"PRETRAIN_DATA_DIR holds no {name}")
    lines = path.read_text(encoding="utf-8")[:300_000].splitlines(keepends=True)
    ours, _ = same_as_the_library(lines, 4096)
    assert ours.vocab_size == 4096
