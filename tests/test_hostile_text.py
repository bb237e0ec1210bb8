"""Texts and files that go wrong elsewhere: read right, or refused with the place and the reason."""

from __future__ import annotations

import random
import time
from collections import Counter

import numpy as np
import pytest

from support.data import readers
from support.text import masking, vocab
from support.text.bpe import BPETokenizer
from support.text.wordpiece import SPECIALS, WordPieceTokenizer
from support.vectors import fasttext, glove, word2vec
from support.vectors.word_vectors import WordVectors

FAMILY = "👩‍👩‍👧‍👦"  # seven code points, of which three are zero-width joiners
ACUTE = "e\u0301"  # a letter and a combining mark
HEBREW = "\u200fשלום עולם\u200e"  # between the marks of right-to-left and of left-to-right
ARABIC = "\u202bمرحبا بالعالم\u202c"  # in an embedding

TEXTS = {
    "one word": "word",
    "no newline at the end": "one two\nthree",
    "CRLF": "one two\r\nthree four\r\n",
    "CR alone": "one two\rthree four",
    "byte order mark": "\ufeffone two\n",
    "NUL": "one\0two three\0",
    "emoji": f"a {FAMILY} family {FAMILY}\n🏳️‍🌈 👍🏽",
    "combining marks": f"caf{ACUTE} cafe {ACUTE * 3}\nZ\u0336a\u0337l\u0338g\u0321o",
    "right to left": f"{HEBREW} and {ARABIC}\n{HEBREW}",
    "lone surrogates": "a \ud800 b\udfff\n\udc80",
    "separators of Unicode": "a\u2028b\u2029c\x85d\x0be\x1cf",
    "white space of all kinds": "a\u00a0b\u3000c\td\u200be",
}
every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


# A file of the reader's own.


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"word", "word"),
        (b"one\ntwo", "one\ntwo"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"one\rtwo", "one\ntwo"),
        (b"a\r\r\n\nb", "a\n\n\nb"),
        (b"\xef\xbb\xbfone", "one"),
        (b"\xef\xbb\xbf\xef\xbb\xbfone", "\ufeffone"),  # only one is a mark
        (f"{FAMILY} {ACUTE} {HEBREW}".encode(), f"{FAMILY} {ACUTE} {HEBREW}"),
        ("a\u2028b\x85c".encode(), "a\u2028b\x85c"),
    ],
)
def test_a_file_is_read_to_the_letter(content, text):
    assert readers.text(content, "own") == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"abc\x80", "0x80 at byte 3"),  # a byte that continues nothing
        (b"a\xc0\xafb", "0xc0 at byte 1"),  # "/" in two bytes
        (b"\xe0\x80\xaf", "0xe0 at byte 0"),  # and in three
        (b"ab\xed\xa0\x80", "0xed at byte 2"),  # half a surrogate pair
        (b"\xf4\x90\x80\x80", "0xf4 at byte 0"),  # above U+10FFFF
        (b"x\xf8\x88\x80\x80\x80", "0xf8 at byte 1"),  # five bytes
        ("Kräne".encode()[:3], "0xc3 at byte 2"),  # ends within a character
        ("Kräne".encode("latin-1"), "0xe4 at byte 2"),
        ("שלום".encode("cp1255"), "0xf9 at byte 0"),
        ("text".encode("utf-16"), "NUL at byte 3"),
        ("שלום".encode("utf-16"), "not UTF-8: 0xff at byte 0"),
        ("text".encode("utf-32-le"), "NUL at byte 1"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(content, message):
    with pytest.raises(ValueError, match=f"^own .*{message}") as caught:
        readers.text(content, "own")
    assert type(caught.value) is ValueError


# Words and vocabularies.


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("word", ["word"]),
        ("One.\r\nTwo!", ["one", ".", "two", "!"]),
        ("a\0b", ["a\0b"]),
        (f"{FAMILY}, {FAMILY}", [FAMILY, ",", FAMILY]),
        (f"Caf{ACUTE}!", [f"caf{ACUTE}", "!"]),
        (f"({HEBREW})", ["(", "\u200fשלום", "עולם\u200e", ")"]),
        ("مرحبا، يا.", ["مرحبا،", "يا", "."]),
        ("a \ud800.", ["a", "\ud800", "."]),
    ],
)
def test_basic_english_on_hostile_text(text, tokens):
    assert vocab.basic_english(text) == tokens


@every_text
def test_a_corpus_and_a_vocabulary_lose_nothing(text):
    lines = [words for line in text.split("\n") if (words := line.split())]
    corpus = vocab.Corpus.from_text(text)
    assert [corpus.tokens(i) for i in range(len(corpus))] == lines
    made = vocab.build_vocab_from_iterator(lines, specials=["<unk>"])
    assert [made.lookup_tokens(made(words)) for words in lines] == lines
    counts = Counter(word for words in lines for word in words)
    assert made.get_itos()[1:] == sorted(counts, key=lambda word: (-counts[word], word))


@pytest.mark.parametrize("text", ["", "\n\n", "\r\n \t\r\n", "\x85\u2028"])
def test_a_text_without_a_word_gives_no_corpus(text):
    with pytest.raises(ValueError, match="no token left of 0 in .*give more text"):
        vocab.Corpus.from_text(text)


@every_text
def test_words_side_by_side_are_counted_as_by_hand(text):
    corpus = vocab.Corpus.from_text(text + "\nof the end")
    expected = Counter()
    for i in range(len(corpus)):
        words = corpus.tokens(i)
        for place, word in enumerate(words):
            for distance in (1, 2):
                for other in words[place + distance : place + distance + 1]:
                    expected[word, other] += 1 / distance
                    expected[other, word] += 1 / distance
    found = glove.count(corpus, window=2)
    entries = found.matrix.tocoo()
    pairs = zip(entries.row, entries.col, entries.data, strict=True)
    assert {(found.words[i], found.words[j]): x for i, j, x in pairs} == expected
    examples = word2vec.skipgram_examples(corpus, window=2, negatives=1, subsample=0)
    together = zip(examples.centers, examples.contexts, strict=True)
    assert {tuple(corpus.vocab.lookup_tokens(pair)) for pair in together} <= expected.keys()


# Tokenizers.

BYTES = BPETokenizer.train("the cat and the hat\n" + FAMILY + HEBREW, 280, ["<|end|>"])
PIECES = WordPieceTokenizer([*SPECIALS, "one", "two", "cafe", "##e", "a", "שלום", "👩", "##👧"])


@every_text
def test_byte_pairs_give_any_text_back(text):
    for tokenizer in (BYTES, BPETokenizer.train(text, 300)):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids, errors="surrogatepass") == text
    assert BYTES.encode("") == [] and BPETokenizer.train("", 300).vocab_size == 256


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\ufeffOne\0 two\r\n", ["one", "two"]),
        (f"Caf{ACUTE}", ["cafe"]),
        (HEBREW, ["שלום", "עולם"]),  # the marks are no letters
        (ARABIC, ["مرحبا", "بالعالم"]),
        (FAMILY, ["👩👩👧👦"]),
        ("a\u2028b\u00a0c\u3000d", ["a", "b", "c", "d"]),
        ("", []),
        ("\0\u200f\ufeff", []),
    ],
)
def test_word_pieces_drop_what_is_not_seen(text, words):
    assert PIECES.words(text) == words


@every_text
def test_word_pieces_take_any_text(text):
    encoding = PIECES.encode(text, pair=text)
    assert all(0 <= i < len(PIECES) for i in encoding.ids)
    assert encoding.ids.count(PIECES.sep_id) == 2


@every_text
def test_subwords_of_any_word(text):
    words = sorted(set(text.split()))
    hashes, owners = fasttext.ngram_hashes(words, 3, 4)
    for i, word in enumerate(words):
        marked = f"<{word}>"
        grams = [marked[i : i + n] for n in (3, 4) for i in range(len(marked) - n + 1)]
        assert (owners == i).sum() == len(grams)
        for gram, found in zip(grams, hashes[owners == i], strict=True):
            value = 2166136261
            for byte in gram.encode("utf-8", "surrogatepass"):
                value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 % 2**32
            assert found == value


def test_a_model_of_subwords_knows_hostile_words():
    text = "\n".join(f"{TEXTS['emoji']} {TEXTS['right to left']}".split("\n") * 20)
    corpus = vocab.Corpus.from_text(text)
    model = fasttext.train(corpus, dim=4, epochs=1, subsample=0, batch=16, buckets=50, seed=0)
    for word in (FAMILY, "עולם\u200e", "שלום", f"{FAMILY}s"):
        assert np.isfinite(model[word]).all()


# The data of BERT and GPT.


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", " \n\t\n"])
def test_line_ends_do_not_change_the_sentences(end):
    lines = ["The cat sat . It slept .", "שלום . עולם !", f"A {FAMILY} came . caf{ACUTE} ?"]
    found = masking.Documents.from_text(end.join(lines))
    whole = masking.Documents.from_text("\n".join(lines) + "\n")
    for name in ("ids", "sentences", "paragraphs"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()
    assert found.paragraphs.tolist() == [0, 2, 4, 6]


@every_text
def test_pairs_of_any_text_are_made_or_refused(text):
    try:
        documents = masking.Documents.from_text(text)
        batches = masking.pretraining_batches(documents, 4, 16)
    except ValueError as error:
        assert type(error) is ValueError and "sentence" in str(error)
    else:
        assert sum(len(batch.ids) for batch in batches(0)) > 0
    joined = " . ".join(text.split())
    whole = masking.Documents.from_text("\n".join(f"{joined} . x{i} y ." for i in range(6)))
    batches = masking.pretraining_batches(whole, 4, 16)
    assert all(int(batch.ids.max()) < whole.vocab_size for batch in batches(0))


@pytest.mark.parametrize("text", ["", "\n \r\n", "= Only a heading =\n"])
def test_a_text_without_a_sentence_has_no_documents(text):
    with pytest.raises(ValueError, match="no token left"):
        masking.Documents.from_text(text)


# A line of 10 MB.


@pytest.fixture(scope="module")
def line():
    rng = random.Random(0)
    words = [f"w{rng.randrange(5000)}" for _ in range(1 << 16)]
    return (" ".join(words) * 40)[:10_000_000]


LONG = {
    "basic_english": vocab.basic_english,
    "Corpus": vocab.Corpus.from_text,
    "split_sentences": masking.split_sentences,
    "BPE, encoded": BYTES.encode,
    "WordPiece": PIECES.encode,
    "bytes to text": lambda text: readers.text(text.encode(), "x"),
}
SOLID = {name: f for name, f in LONG.items() if name != "BPE, encoded"}


def seconds(act, *arguments):
    start = time.process_time()
    act(*arguments)
    return time.process_time() - start


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LONG)
def test_a_line_of_10_mb_costs_what_its_length_costs(line, name, tally):
    act = LONG[name]
    act(line[:100_000])  # what is made once
    part, whole = (seconds(act, line[:n]) for n in (1_000_000, 10_000_000))
    tally(f"a line of 10 MB, {name}: {whole:.2f} s")
    assert whole < 10 * part * 3 + 0.5  # quadratic would be 100 times
    assert whole < 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOLID)
@pytest.mark.parametrize("unit", ["a", "=", "[", ". ", "👩‍"])
def test_a_line_of_3_mb_without_a_word_boundary(name, unit):
    act, most = SOLID[name], 3_000_000 // len(unit)
    part, whole = (seconds(act, unit * n) for n in (most // 10, most))
    assert whole < 10 * part * 3 + 0.5


@pytest.mark.exhaustive
def test_byte_pairs_of_one_long_word_take_linear_time():
    letters = "".join(random.Random(1).choices("abcdefgh", k=200_000))
    part, whole = (seconds(BPETokenizer.train, letters[:n], 280) for n in (20_000, 200_000))
    assert whole < 10 * part * 3 + 0.5
    part, whole = (seconds(BYTES.encode, "the" * n) for n in (20_000, 200_000))
    assert whole < 10 * part * 3 + 0.5


@pytest.mark.exhaustive
def test_a_long_line_is_read_from_a_file(tmp_path, line):
    (tmp_path / "line").write_text(line, encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(line, encoding="utf-8")
    for read, path in ((WordVectors.load, "line"), (WordPieceTokenizer.from_folder, ".")):
        with pytest.raises(ValueError) as caught:
            read(tmp_path / path)
        assert len(str(caught.value)) < 1000, "a message must not repeat 10 MB"
