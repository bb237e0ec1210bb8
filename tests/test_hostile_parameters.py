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
from support.models import bert, gpt, seq2seq, transformer
from support.text import masking, vocab, wordpiece
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
GPT = gpt.GPT(gpt.GPTConfig(vocab_size=9, d_model=4, n_layers=1, n_heads=2, max_length=8))
BERT = bert.Bert(bert.BertConfig(9, 4, 1, 2, 8, 8))
PICTURES = torch.zeros(4, 2, 2, dtype=torch.uint8)
SIZES = (0, -1, 2.5, True, NAN, "3", None)  # for what must be a positive integer
ONES = torch.ones(2, 3)


def make(kind, **fixed):
    return lambda **given: kind(**{**fixed, **given})


def train(kind, **fixed):
    return make(kind.train, corpus=CORPUS, epochs=1, device="cpu", progress=False, **fixed)


def gpt_config(**given):
    return gpt.GPT(gpt.GPTConfig(**{"vocab_size": 9, "d_model": 4, "n_heads": 2, **given}))


def bert_config(**given):
    return bert.Bert(bert.BertConfig(**{"vocab_size": 9, "d_model": 4, "n_heads": 2, **given}))


pairs = make(masking.pretraining_batches, documents=DOCUMENTS, batch_size=2)
mask = make(
    masking.mask_tokens,
    ids=np.full((2, 3), 7),
    choosable=np.ones((2, 3), bool),
    rng=np.random.default_rng(0),
    mask_id=4,
    random_ids=np.arange(5, 9),
)
generate = make(gpt.generate, model=GPT, prompts=[[1]], new_tokens=2)
next_token = make(gpt.next_token_probabilities, logits=torch.zeros(1, 4))
pictures = make(images.image_batches, images=PICTURES, batch_size=2, device="cpu")
examples = make(word2vec.skipgram_examples, corpus=CORPUS)
counted = make(vocab.vocab_from_counts, counts={"a": 2, "b": 1})
lines = make(Corpus.from_text, text="a b\nc")
learned = make(BPETokenizer.train, texts="the cat", vocab_size=260)
block = make(transformer.TransformerBlock, d_model=4, n_heads=2, d_ff=8)
s2s = make(seq2seq.Seq2Seq, source_vocab_size=5, d_model=4, n_heads=2, d_ff=8, n_layers=1)
loss = make(
    transformer.linear_cross_entropy,
    states=ONES,
    weight=torch.ones(5, 3),
    bias=None,
    targets=torch.tensor([0, 4]),
)

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
    # models
    *((gpt_config, name, SIZES) for name in ("vocab_size", "d_model", "n_heads", "max_length")),
    (gpt_config, "d_ff", SIZES[:-1]),
    (gpt_config, "n_heads", (3,)),
    (gpt_config, "n_layers", (-1, 1.5, True)),
    *((bert_config, name, SIZES) for name in ("vocab_size", "d_model", "n_heads", "d_ff",
      "max_length", "n_segments")),
    (bert_config, "n_heads", (3,)),
    (bert_config, "n_layers", (-1, 1.5, True)),
    *((config, name, (-0.1, 1, 1.5, NAN, "0", None)) for config in (gpt_config, bert_config)
      for name in ("dropout", "attention_dropout")),
    *((config, "norm_eps", (0, -1, NAN)) for config in (gpt_config, bert_config)),
    *((config, "activation", ("swish", "")) for config in (gpt_config, bert_config)),
    *((make(kind, bert=BERT), "n_classes", SIZES)
      for kind in (bert.TextClassifier, bert.TokenClassifier)),
    (BERT.forward, "ids", (torch.tensor([[9]]), torch.tensor([[-1]]), torch.tensor([1]),
        torch.ones(1, 2), torch.zeros(1, 9, dtype=torch.long))),
    (make(BERT.forward, ids=torch.ones(2, 3, dtype=torch.long)), "lengths",
        (torch.tensor([1, 4]), torch.tensor([1]), torch.tensor([1.0, 2.0]), torch.tensor([-1, 2]))),
    (make(BERT.forward, ids=torch.ones(2, 3, dtype=torch.long)), "segments",
        (torch.ones(2, 2, dtype=torch.long), torch.full((2, 3), 2), torch.full((2, 3), -1))),
    (make(BERT.forward, ids=torch.ones(2, 3, dtype=torch.long)), "rows",
        (torch.tensor([[3], [0]]), torch.tensor([[-1], [0]]), torch.tensor([[0]]),
         torch.tensor([[0.5], [0.5]]))),
    (GPT.forward, "ids", (torch.tensor([[9]]), torch.tensor([[-1]]), torch.tensor([1]),
        torch.ones(1, 2), torch.zeros(1, 9, dtype=torch.long))),
    *((s2s, name, SIZES) for name in ("source_vocab_size", "d_model", "n_heads", "d_ff",
      "max_length")),
    (s2s, "target_vocab_size", SIZES[:-1]),
    (s2s, "n_layers", (-1, 1.5, True)),
    *((block, name, SIZES) for name in ("d_model", "n_heads", "d_ff")),
    (block, "n_heads", (3,)),
    (block, "dropout", (-0.1, 1, NAN, "0")),
    (block, "activation", ("swish", None)),
    (make(transformer.MultiHeadAttention, d_model=12, n_heads=3), "d_model", (*SIZES, 10)),
    (make(transformer.Dropout), "p", (-0.1, 1.0, NAN, None, "0.1", True)),
    (make(transformer.KeyValueCache), "capacity", (-1, 1.5, True, None)),
    (make(transformer.causal_mask, past=0), "length", (-1, 1.5, True, None)),
    (make(transformer.padding_mask, size=3), "lengths",
        (torch.tensor([4]), torch.tensor([-1]), torch.tensor([0.5]), torch.tensor(1))),
    (make(transformer.sinusoidal_positions, length=3), "d_model", (*SIZES, 3)),
    (make(transformer.sinusoidal_positions, d_model=4), "length", (-1, 1.5, True, None)),
    (make(transformer.Positions, d_model=4, learned=True), "max_length", SIZES),
    (make(transformer.Positions, max_length=4, learned=True), "d_model", SIZES),
    (make(transformer.FeedForward, d_model=4, d_ff=8), "d_ff", SIZES),
    (make(transformer.Encoder, d_model=4, n_heads=2, d_ff=8), "n_layers", (-1, 1.5, True, None)),
    (loss, "targets", (torch.tensor([0, 5]), torch.tensor([-1, 0]), torch.tensor([0]),
        torch.tensor([0.0, 1.0]))),
    (loss, "states", (ONES[:, :2], ONES[:1], ONES[0])),
    (loss, "bias", (torch.ones(4),)),
    # generation
    (next_token, "temperature", (-0.1, NAN, INF, 1e-30, "1", None, True)),
    (next_token, "top_k", (0, -1, 1.5, True, NAN, "3")),
    (next_token, "top_p", (0, -0.1, 1.1, NAN, "1", True)),
    (generate, "new_tokens", (*SIZES, 9)),
    (generate, "prompts", ([], [[]], [[1], []], [1, 2], "text", ["text"], [[9]], [[-1]],
        torch.ones(1, 2), torch.tensor([1]), [[1] * 9])),
    (generate, "stop", (5, "5", None)),
    # training
    (make(training.warmup_linear, warmup_steps=0), "total_steps", (0, -1, NAN)),
    (make(training.warmup_linear, total_steps=9), "warmup_steps", (-1, 9, NAN)),
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
    for call in (lines, learned, examples, next_token, generate, loss, block, s2s, mask):
        call()
    for call in (pairs, pictures):
        next(iter(call()(0)))
    for kind in (word2vec, fasttext):
        train(kind, dim=2, batch=16, subsample=0)()
    assert glove.train(COUNTS, dim=2, epochs=1, progress=False).vectors.dim == 2
    assert gpt_config(n_layers=0) and bert_config(n_layers=0)


def test_integers_of_numpy_are_integers():
    assert counted(min_freq=np.int64(2)).get_itos() == ["a"]
    assert gpt_config(d_model=np.int64(4), n_layers=0).config.d_model == 4


def test_the_coldest_temperature_is_greedy():
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)) * 1e3
    cold = next_token(logits=logits, temperature=gpt.COLDEST)
    assert torch.equal(cold, next_token(logits=logits, temperature=0))


def test_a_window_of_any_size_ends():
    found = examples(window=10**9, subsample=0)
    assert found.n_centers == 12 and 0 < len(found.centers) <= 2 * 6 * 5


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, np.bool_(True)])
def test_what_is_no_integer_is_called_so(value):
    with pytest.raises(ValueError, match=f"k must be an integer, got {re.escape(repr(value))}"):
        VECTORS.most_similar("a", k=value)
