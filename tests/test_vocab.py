"""Tokenizer, vocabulary and corpus: torchtext's rules token for token, and the flat array."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text.vocab import Corpus, Vocab, basic_english, build_vocab_from_iterator

quick = settings(max_examples=150, derandomize=True, database=None, deadline=None)

PIECES = ["<br />", "<BR />", "<br/>", "<b", 'r"', " /", ">", *'\'"".,()!?;:', " ", "\t", "\u00a0"]
PIECES += ["a", "B", "É", "İ", "ΑΣ", "ß", "7", "-", "’", "\x1c", "\u200b", "\n", "词"]
hard_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=20).map("".join)


# ------------------------------------------------------------------------------ basic_english
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \t\n \r", ""),
        ("You can now install it using pip!", "you can now install it using pip !"),
        ("Don't", "don ' t"),
        ('He said "no".', "he said no ."),
        ('"quo"ted', "quoted"),
        ("...", ". . ."),
        ("3.14,15", "3 . 14 , 15"),
        ("(a,b)!?", "( a , b ) ! ?"),
        ("a;b:c", "a b c"),
        ("one<br />two", "one two"),
        ("one<BR />two", "one two"),
        ("one<br/>two", "one<br/>two"),
        ("<br  />", "<br />"),
        ("<<br />br />", "< br />"),
        ("well-known [x] #1 & 50% a_b", "well-known [x] #1 & 50% a_b"),
        ("don’t “quote” …", "don’t “quote” …"),
        ("a\u00a0b\u2003c\x1cd", "a b c d"),
        ("zero\u200bwidth", "zero\u200bwidth"),
        ("naïve ÉCOLE ΑΣ STRASSE", "naïve école ας strasse"),
        ("İ", "i̇"),
        ("词向量,很好。", "词向量 , 很好。"),
    ],
)
def test_basic_english_on_hard_strings(text, expected):
    assert basic_english(text) == expected.split(" ") * bool(expected)


def slow_basic_english(text):
    """Return the tokens by torchtext's list of replacements, one after the other."""
    steps = [("'", " '  "), ('"', ""), (".", " . "), ("<br />", " "), (",", " , ")]
    steps += [("(", " ( "), (")", " ) "), ("!", " ! "), ("?", " ? "), (";", " "), (":", " ")]
    text = text.lower()
    for old, new in steps:
        text = text.replace(old, new)
    return text.split()


@given(hard_text)
@quick
def test_basic_english_equals_the_replacements_in_order(text):
    assert basic_english(text) == slow_basic_english(text)


# -------------------------------------------------------------------------------------- Vocab
COUNTS = {"b": 3, "a": 3, "c": 5, "rare": 1, "B": 3, "é": 3, "<unk>": 4}


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        ({}, "c <unk> B a b é rare"),
        ({"min_freq": 3}, "c <unk> B a b é"),
        ({"min_freq": 4}, "c <unk>"),
        ({"min_freq": 4, "specials": ["rare"]}, "rare c <unk>"),
        ({"min_freq": 3, "specials": ["<pad>", "<unk>"]}, "<pad> <unk> c B a b é"),
        ({"max_tokens": 3}, "c <unk> B"),
        ({"max_tokens": 3, "specials": ["<pad>"]}, "<pad> c <unk>"),
        # As in torchtext: the cut comes before the special leaves the list.
        ({"max_tokens": 3, "specials": ["<unk>"]}, "<unk> c"),
    ],
)
def test_a_vocabulary_is_in_the_order_of_torchtext(arguments, tokens):
    from_counts = build_vocab_from_iterator([COUNTS], **arguments)
    lists = [[token] * n for token, n in COUNTS.items()]
    from_lists = build_vocab_from_iterator(iter(lists), **arguments)
    assert from_counts.get_itos() == from_lists.get_itos() == tokens.split()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vocab(["x", "y", "x"]), r"more than once: \['x'\]"),
        (lambda: build_vocab_from_iterator("the cat"), "got one str"),
        (lambda: build_vocab_from_iterator([], specials="<unk>"), "got one str"),
        (lambda: build_vocab_from_iterator([COUNTS], 1, ["x", "y"], 2), "leaves no room"),
    ],
)
def test_what_would_be_a_wrong_vocabulary_in_silence_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tokens_and_indices_are_looked_up_both_ways():
    vocab = Vocab(["x", "y", "z"])
    assert len(vocab) == 3
    assert [vocab["x"], vocab["z"]] == [0, 2]
    assert vocab(["z", "x"]) == vocab.lookup_indices(["z", "x"]) == [2, 0]
    assert vocab.lookup_token(1) == "y"
    assert vocab.lookup_tokens([2, 0]) == ["z", "x"]
    assert "y" in vocab and "w" not in vocab
    assert vocab.get_stoi() == {"x": 0, "y": 1, "z": 2}
    vocab.get_itos().append("w")
    assert len(vocab) == 3, "what is handed out is a copy"


def test_a_missing_token_is_an_error_until_a_default_index_is_set():
    vocab = Vocab(["<unk>", "x"])
    with pytest.raises(KeyError, match="'w' is not in the vocabulary"):
        vocab["w"]
    with pytest.raises(KeyError, match="'w'"):
        vocab(["x", "w"])
    vocab.set_default_index(vocab["<unk>"])
    assert vocab(["x", "w"]) == [1, 0]
    assert "w" not in vocab
    vocab.set_default_index(None)
    with pytest.raises(KeyError):
        vocab["w"]


@pytest.mark.parametrize("index", [-1, 3])
def test_indices_outside_are_refused(index):
    vocab = Vocab(["x", "y"])
    with pytest.raises(IndexError):
        vocab.lookup_tokens([0, index])


# ------------------------------------------------------------------------------------- Corpus
words = st.sampled_from(["a", "b", "c", "d", "<unk>", "é", "w1", "a\0b", "\0"])
texts = st.lists(st.lists(words, max_size=6).map(" ".join), max_size=8).map("\n".join)
TOY = "the cat sat\n\n  \nthe dog sat on the cat\n<unk> dog\n"


def slow_corpus(text, min_freq=1, unk=None, vocab=None, specials=()):
    """Return sentences of ids and the tokens in order, word by word."""
    sentences = [line.split() for line in text.split("\n")]
    if vocab is None:
        extra = [unk] if unk is not None and unk not in specials else []
        counts = Counter(word for sentence in sentences for word in sentence)
        tokens = [*extra, *specials]
        for word, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if n >= min_freq and word not in tokens:
                tokens.append(word)
    else:
        tokens = vocab.get_itos()
    numbered = []
    for sentence in sentences:
        ids = []
        for word in sentence:
            if word in tokens:
                ids.append(tokens.index(word))
            elif unk is not None:
                ids.append(tokens.index(unk))
        if ids:
            numbered.append(ids)
    return numbered, tokens


def check_corpus(corpus, sentences, tokens):
    assert corpus.ids.dtype == np.int32 and corpus.offsets.dtype == np.int64
    assert corpus.ids.shape == (sum(map(len, sentences)),)
    assert corpus.offsets.shape == (len(sentences) + 1,)
    assert corpus.offsets[0] == 0 and corpus.offsets[-1] == len(corpus.ids)
    assert (np.diff(corpus.offsets) > 0).all()
    assert [sentence.tolist() for sentence in corpus] == sentences
    assert corpus.vocab.get_itos() == tokens
    assert corpus.counts.tolist() == [
        sum(s.count(i) for s in sentences) for i in range(len(tokens))
    ]


@given(
    text=texts,
    min_freq=st.integers(1, 4),
    unk=st.sampled_from([None, "<unk>", "a"]),
    specials=st.sampled_from([(), ("<pad>",), ("<pad>", "<unk>"), ("a",)]),
)
@quick
def test_a_corpus_equals_the_slow_reference(text, min_freq, unk, specials):
    sentences, tokens = slow_corpus(text, min_freq, unk, None, specials)
    arguments = {"min_freq": min_freq, "unk": unk, "specials": specials}
    if not sentences:
        with pytest.raises(ValueError, match="no token is left"):
            Corpus.from_text(text, **arguments)
        return
    check_corpus(Corpus.from_text(text, **arguments), sentences, tokens)
    check_corpus(Corpus.from_text(iter(text.split("\n")), **arguments), sentences, tokens)


@given(text=texts, unk=st.sampled_from([None, "<unk>"]), default=st.sampled_from([None, 0, 2]))
@quick
def test_a_given_vocabulary_is_used_and_not_changed(text, unk, default):
    vocab = Vocab(["d", "<unk>", "unused", "a"])
    vocab.set_default_index(default)
    sentences, tokens = slow_corpus(text, unk=unk, vocab=vocab)
    if sentences:
        corpus = Corpus.from_text(text, vocab=vocab, unk=unk, min_freq=3)
        check_corpus(corpus, sentences, tokens)
        assert corpus.vocab is vocab
    assert vocab.get_itos() == ["d", "<unk>", "unused", "a"]
    assert vocab["never seen"] == default if default is not None else "never seen" not in vocab


def test_with_unk_a_rare_word_becomes_unk_and_so_do_new_words():
    corpus = Corpus.from_text(TOY, min_freq=2, unk="<unk>")
    assert corpus.tokens(1) == ["the", "dog", "sat", "<unk>", "the", "cat"]
    assert corpus.vocab.get_itos()[0] == "<unk>"
    assert corpus.vocab["never seen"] == 0
    assert corpus.counts[0] == 2
    behind = Corpus.from_text(TOY, min_freq=2, unk="<unk>", specials=("<pad>", "<unk>"))
    assert behind.vocab["never seen"] == behind.vocab["<unk>"] == 1


def test_sentences_are_indexed_like_a_list():
    corpus = Corpus.from_text(TOY)
    assert len(corpus) == 3
    assert corpus.tokens(-1) == corpus.tokens(2) == ["<unk>", "dog"]
    np.testing.assert_array_equal(corpus[-3], corpus[0])
    for i in (3, -4):
        with pytest.raises(IndexError):
            corpus[i]


def test_the_tokenizer_can_be_another():
    corpus = Corpus.from_text("A.B\n;", tokenizer=basic_english)
    assert len(corpus) == 1 and corpus.tokens(0) == ["a", ".", "b"]
    assert Corpus.from_text("a b", tokenizer=list).tokens(0) == ["a", " ", "b"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [("", {}), (" \n\x85\u2028", {}), ("a b c", {"min_freq": 2}), ("a b", {"vocab": Vocab(["x"])})],
)
def test_a_text_that_gives_no_corpus_is_refused(text, arguments):
    with pytest.raises(ValueError, match="no token is left"):
        Corpus.from_text(text, **arguments)
