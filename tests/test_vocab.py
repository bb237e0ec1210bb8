"""Tokenizer, vocabulary and corpus: torchtext's rules token for token, and the flat array."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text.vocab import (
    Corpus,
    Vocab,
    basic_english,
    build_vocab_from_iterator,
    vocab_from_counts,
)

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
        ("rock 'n' roll", "rock ' n ' roll"),
        ('He said "no".', "he said no ."),
        ('"quo"ted', "quoted"),
        ("U.S.A.", "u . s . a ."),
        ("...", ". . ."),
        ("3.14,15", "3 . 14 , 15"),
        ("(a,b)!?", "( a , b ) ! ?"),
        ("a;b:c", "a b c"),
        ("it's 5:30;ok", "it ' s 5 30 ok"),
        ("one<br />two", "one two"),
        ("one<BR />two", "one two"),
        ("one<br/>two", "one<br/>two"),
        ("<br  />", "<br />"),
        ("<<br />br />", "< br />"),
        ('<b"r />', ""),
        ("<br '/>", "<br ' />"),
        ("<br /.>", "<br / . >"),
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


def test_order_is_by_falling_frequency_then_alphabet():
    assert vocab_from_counts(COUNTS).get_itos() == ["c", "<unk>", "B", "a", "b", "é", "rare"]


def test_min_freq_is_the_lowest_frequency_kept():
    assert vocab_from_counts(COUNTS, min_freq=3).get_itos() == ["c", "<unk>", "B", "a", "b", "é"]
    assert vocab_from_counts(COUNTS, min_freq=4).get_itos() == ["c", "<unk>"]
    assert vocab_from_counts(COUNTS, min_freq=4, specials=["rare"]).get_itos() == [
        *["rare", "c", "<unk>"]
    ]


def test_specials_stand_first_and_once():
    first = vocab_from_counts(COUNTS, 3, ["<pad>", "<unk>"])
    assert first.get_itos() == ["<pad>", "<unk>", "c", "B", "a", "b", "é"]


def test_max_tokens_counts_the_specials_in():
    assert vocab_from_counts(COUNTS, max_tokens=3).get_itos() == ["c", "<unk>", "B"]
    three = vocab_from_counts(COUNTS, max_tokens=3, specials=["<pad>"])
    assert three.get_itos() == ["<pad>", "c", "<unk>"]
    # As in torchtext: the cut comes before the special leaves the list, so one place stays empty.
    cut = vocab_from_counts(COUNTS, max_tokens=3, specials=["<unk>"])
    assert cut.get_itos() == ["<unk>", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_freq": 0}, "min_freq must be at least 1, got 0"),
        ({"max_tokens": 2, "specials": ["x", "y"]}, "max_tokens must be at least 3, got 2"),
        ({"specials": ["x", "x"]}, r"more than once: \['x'\]"),
    ],
)
def test_counts_that_make_no_vocabulary_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        vocab_from_counts(COUNTS, **arguments)


def test_an_iterator_of_token_lists_is_counted_in_one_pass():
    vocab = build_vocab_from_iterator(iter([["b", "a"], [], iter(["b", "c"])]), specials=["<unk>"])
    assert vocab.get_itos() == ["<unk>", "b", "a", "c"]
    assert build_vocab_from_iterator([["b", "a"], ["b"]], 2).get_itos() == ["b"]


def test_tokens_and_indices_are_looked_up_both_ways():
    vocab = Vocab(["x", "y", "z"])
    assert len(vocab) == 3
    assert [vocab["x"], vocab["z"]] == [0, 2]
    assert vocab(["z", "x"]) == vocab.lookup_indices(["z", "x"]) == [2, 0]
    assert vocab.lookup_token(1) == "y"
    assert vocab.lookup_tokens([2, 0]) == ["z", "x"]
    assert "y" in vocab and "w" not in vocab
    assert vocab.get_stoi() == {"x": 0, "y": 1, "z": 2}
    assert "3 tokens" in repr(vocab)


def test_what_is_handed_out_is_a_copy():
    vocab = Vocab(["x", "y"])
    vocab.get_itos().append("z")
    vocab.get_stoi()["z"] = 2
    assert "z" not in vocab and len(vocab) == 2


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


def test_a_token_is_never_there_twice():
    with pytest.raises(ValueError, match=r"more than once: \['x'\]"):
        Vocab(["x", "y", "x"])


@pytest.mark.parametrize("index", [-1, 3])
def test_indices_outside_are_refused(index):
    vocab = Vocab(["x", "y"])
    with pytest.raises(IndexError, match=rf"index {index} is outside 0 … 1"):
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
        with pytest.raises(ValueError, match="no token left"):
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


def test_a_rare_word_goes_and_its_neighbors_move_together():
    corpus = Corpus.from_text(TOY, min_freq=2)
    assert [corpus.tokens(i) for i in range(len(corpus))] == [
        *(["the", "cat", "sat"], ["the", "dog", "sat", "the", "cat"], ["dog"])
    ]
    with pytest.raises(KeyError):
        corpus.vocab["never seen"]


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
        with pytest.raises(IndexError, match=rf"sentence {i} is outside 0 … 2"):
            corpus[i]


def test_the_tokenizer_can_be_another():
    corpus = Corpus.from_text("A.B\n;", tokenizer=basic_english)
    assert len(corpus) == 1 and corpus.tokens(0) == ["a", ".", "b"]
    assert Corpus.from_text("a b", tokenizer=list).tokens(0) == ["a", " ", "b"]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", {}, "no token left of 0 in 1 lines"),
        (" \n\n", {}, "no token left of 0 in 3 lines"),
        ("a b c", {"min_freq": 2}, "no token left of 3 in 1 lines with min_freq=2"),
        ("a", {"min_freq": 0}, "min_freq must be at least 1"),
        ("a b", {"vocab": Vocab(["x"])}, "no token left of 2"),
        ("a b", {"vocab": Vocab(["a"]), "unk": "<unk>"}, "unk='<unk>' is not in the given"),
    ],
)
def test_a_text_that_gives_no_corpus_is_refused(text, arguments, message):
    with pytest.raises(ValueError, match=message):
        Corpus.from_text(text, **arguments)
