"""Arguments that cannot be meant: each gives one clear ValueError that shows what was given."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from support import training
from support.data import images
from support.text import masking
from support.text import vocab, wordpiece
from support.text.bpe import BPETokenizer
from support.text.vocab import Corpus, Vocab
from support.vectors import fasttext, glove, huffman, word2vec, word_vectors

NAN, INF = math.nan, math.inf
CORPUS = Corpus.from_text("the cat sat on the mat\nthe dog sat on the log")
COUNTS = glove.count(CORPUS)
TEXT = "\n".join(f"the cat {i} sat . a dog {i} ran . so it went {i} ." for i in range(6))
DOCUMENTS = masking.Documents.from_text(TEXT)
VECTORS = word_vectors.WordVectors(["a", "b", "c"], np.eye(3))
BPE = BPETokenizer.train("the cat", 260)
PIECES = wordpiece.WordPieceTokenizer([*wordpiece.SPECIALS, "a"])
PICTURES = torch.zeros(4, 2, 2, dtype=torch.uint8)
SIZES = (0, -1, 2.5, True, NAN, "3", None)  # for what must be a positive integer
ONES = torch.ones(2, 3)


def make(kind, **fixed):
    return lambda **given: kind(**{**fixed, **given})


def train(kind, **fixed):
    return make(kind.train, corpus=CORPUS, epochs=1, device="cpu", progress=False, **fixed)


def fit(**given):
    model = nn.Linear(2, 1)
    return training.fit(
        model,
        [ONES[:, :2]],
        lambda m, x: m(x).sum(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        **{"epochs": 1, "device": "cpu", "progress": False, **given},
    )


pairs = make(masking.pretraining_batches, documents=DOCUMENTS, batch_size=2)
mask = make(
    masking.mask_tokens,
    ids=np.full((2, 3), 7),
    choosable=np.ones((2, 3), bool),
    rng=np.random.default_rng(0),
    mask_id=4,
    random_ids=np.arange(5, 9),
)
pictures = make(images.image_batches, images=PICTURES, batch_size=2, device="cpu")
examples = make(word2vec.skipgram_examples, corpus=CORPUS)
counted = make(vocab.vocab_from_counts, counts={"a": 2, "b": 1})
lines = make(Corpus.from_text, text="a b\nc")
learned = make(BPETokenizer.train, texts="the cat", vocab_size=260)

# A function, an argument of it, and values that it must refuse.
TABLE = [
    # the text and its numbers
    (lambda **x: vocab.basic_english(**x), "text", (None, b"bytes", 5, ["a"])),
    (make(Vocab), "tokens", ([1, 2], [None], ["a", b"b"])),
    (counted, "min_freq", SIZES),
    (counted, "max_tokens", (0, -1, 1.5, True)),
    (counted, "specials", ("<unk>", [1], ["<unk>", "<unk>"])),
    (counted, "counts", ({1: 2}, {None: 1})),
    (lambda **x: vocab.build_vocab_from_iterator(**x), "iterator", ("the cat",)),
    (lambda index: Vocab(["a"]).set_default_index(index), "index", ("<unk>", 1.5, True)),
    (lines, "text", (b"bytes", [b"bytes"], [["a"]], "", [])),
    (lines, "min_freq", (*SIZES, 9)),
    (lines, "specials", ("<unk>", ["<unk>", "<unk>"])),
    (
        lambda ids: Corpus(np.array(ids), np.array([0, 2]), Vocab(["a", "b"])),
        "ids",
        ([0, 2], [-1, 0], [0], [0, 1, 1]),
    ),
    (
        lambda offsets: Corpus(np.array([0, 1]), np.array(offsets), Vocab(["a", "b"])),
        "offsets",
        ([0], [1, 2], [0, 3], [0, 2, 1, 2]),
    ),
    # tokenizers
    (learned, "vocab_size", (0, -1, 255, 260.5, True, NAN, "300", None)),
    (learned, "texts", (b"bytes", ["a", 5])),
    (learned, "special_tokens", ("<s>", [""], ["<s>", "<s>"], [5], ["\ud800"])),
    (make(BPE.encode), "text", (None, b"bytes", 5, ["a"])),
    (make(BPE.decode), "ids", ([260], [-1], [[1]], ["a"], [0.5], None, 5, torch.ones(2, 2))),
    (make(wordpiece.WordPieceTokenizer), "vocab", ([], ["a"], [*wordpiece.SPECIALS, 5])),
    (make(PIECES.encode), "text", (None, b"bytes", 5, ["a"])),
    (make(PIECES.encode, text="a"), "max_length", (0, -1, 2, 3.5, True, "9", NAN)),
    (make(PIECES.batch), "texts", ("a", [None])),
    # word vectors
    (make(word_vectors.WordVectors, words=["a", "b"]), "matrix", (np.ones(2), np.ones((3, 2)),
        np.ones((2, 0)), [[1, NAN], [0, 1]])),
    (make(word_vectors.WordVectors, matrix=np.eye(2)), "words", (["a"], ["a", "a"], [])),
    (make(VECTORS.most_similar, query="a"), "k", SIZES),
    (make(VECTORS.most_similar, query="a"), "exclude", ("b", [1])),
    (make(VECTORS.most_similar), "query", (np.ones(2), np.ones((1, 3)), [NAN, 0, 0])),
    (make(VECTORS.evaluate_analogies), "questions", ({"x": [("a", "b", "c")]}, {"x": ["abcd"]})),
    (make(examples), "window", SIZES),
    (make(examples), "negatives", SIZES),
    (make(examples), "subsample", (-1e-9, NAN, "1", None, True)),
    (make(word2vec.noise_table), "counts", (np.zeros(3), np.array([]), np.array([1, -1]))),
    (make(huffman.HuffmanTree.from_counts), "counts", ([], [5], [1, -1], [0.5, 1], [NAN, 1])),
    *((train(kind), name, SIZES) for kind in (word2vec, fasttext)
      for name in ("dim", "window", "negatives", "epochs", "batch")),
    *((train(kind), name, (-1, NAN, "1", True)) for kind in (word2vec, fasttext)
      for name in ("lr", "subsample")),
    (train(fasttext), "buckets", SIZES),
    (train(fasttext), "min_n", (0, 1, 7, -1, 2.5, True, NAN)),
    (train(fasttext), "max_n", (0, 2, -1, 4.5, True, NAN)),
    (make(glove.count, corpus=CORPUS), "window", SIZES),
    (make(glove.weight, counts=np.ones(2)), "x_max", (0, -1, NAN)),
    *((make(glove.train, counts=COUNTS, progress=False), name, SIZES)
      for name in ("dim", "epochs", "blocks")),
    *((make(glove.train, counts=COUNTS, progress=False), name, (0, -1, NAN, "1", True))
      for name in ("lr", "x_max", "alpha")),
    # the data of BERT and GPT, images
    (make(masking.Documents.from_text, text=TEXT), "min_freq", SIZES),
    (make(masking.Documents.from_text), "text", (None, 5, b"bytes", "")),
    (make(masking.Documents.from_ids, vocab_size=9), "paragraphs",
        ([], [[]], [[[]]], [[[9]]], [[[-1]]], [[[2**40]]], [[[0.5]]], [[["a"]]])),
    (pairs, "batch_size", SIZES),
    (pairs, "max_length", (*SIZES, 4)),
    (pairs, "seed", (-1, 0.5, None, True)),
    (pairs, "share", (0, -0.1, 1.1, NAN, "1", None, True)),
    (pairs, "fractions", ((1, 0), (0.5, 0.5, 0.5), (2, -1, 0), (NAN, 0.5, 0.5), ())),
    (pairs, "word_starts", (np.ones(3, bool),)),
    (mask, "share", (0, 2, NAN)),
    (mask, "random_ids", (np.array([], int),)),
    (mask, "ids", (np.full(3, 7), np.full((3, 2), 7))),
    (mask, "choosable", (np.ones((2, 3), int), np.ones(3, bool))),
    (pictures, "batch_size", SIZES),
    (pictures, "images", (PICTURES.float(), PICTURES[0], PICTURES[:0], PICTURES.numpy(), None)),
    # training
    (fit, "epochs", SIZES),
    (fit, "accumulate", SIZES),
    (fit, "clip_norm", (0, -1, NAN)),
    (fit, "precision", ("half", None, "fp16")),
    (make(training.warmup_linear, warmup_steps=0), "total_steps", (0, -1, NAN)),
    (make(training.warmup_linear, total_steps=9), "warmup_steps", (-1, 9, NAN)),
    (make(training.warmup_cosine, warmup_steps=1, total_steps=9), "floor", (-0.1, 1, NAN)),
]  # fmt: skip

# What some arguments are called in a message.
CALLED = {
    "counts": "symbols",
    "matrix": "vector",
    "paragraphs": "sentences",
    "special_tokens": "special",
    "vocab": "vocabulary",
}

CASES = [(call, name, value) for call, name, values in TABLE for value in values]


def shown(value) -> set[str]:
    """Return the numbers and words of a value, of which a message must show one."""
    return set(re.findall(r"[\w.-]+", f"{value} {getattr(value, 'shape', '')}"))


def number(i) -> str:
    call, name, value = CASES[i]
    return f"{i}-{name}-{value!r:.20}".replace("\n", " ")


@pytest.mark.exhaustive
@pytest.mark.parametrize("i", range(len(CASES)), ids=number)
def test_what_cannot_be_meant_is_refused_with_one_clear_error(i):
    call, name, value = CASES[i]
    with pytest.raises(ValueError) as caught:
        made = call(**{name: value})
        if callable(made) and not isinstance(made, nn.Module):
            next(iter(made(0)))
    message = str(caught.value)
    assert type(caught.value) is ValueError, f"{caught.type.__name__}: {message}"
    assert len(message) < 400
    if isinstance(value, int | float | str | None):
        assert str(value) in message or type(value).__name__ in message, message
    else:
        named = {name, name.removesuffix("s"), CALLED.get(name)} | shown(value)
        assert named & set(re.findall(r"[\w.-]+", message)), message


def test_the_good_values_of_the_table_are_taken():
    for call in (lines, learned, examples, mask, fit):
        call()
    for call in (pairs, pictures):
        next(iter(call()(0)))
    for kind in (word2vec, fasttext):
        train(kind, dim=2, batch=16, subsample=0)()
    assert glove.train(COUNTS, dim=2, epochs=1, progress=False).vectors.dim == 2


def test_integers_of_numpy_are_integers():
    assert counted(min_freq=np.int64(2)).get_itos() == ["a"]


def test_a_window_of_any_size_ends():
    found = examples(window=10**9, subsample=0)
    assert found.n_centers == 12 and 0 < len(found.centers) <= 2 * 6 * 5


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, np.bool_(True)])
def test_what_is_no_integer_is_called_so(value):
    with pytest.raises(ValueError, match=f"k must be an integer, got {re.escape(repr(value))}"):
        VECTORS.most_similar("a", k=value)
