"""Files of vectors, tables and tokenizers that are not what they say."""

from __future__ import annotations

import pytest

from support.data import readers
from support.text.wordpiece import SPECIALS, WordPieceTokenizer
from support.vectors.word_vectors import WordVectors


def write(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


def refused(read, path, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert type(caught.value) is ValueError and str(path) in str(caught.value)


# Vectors.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xef\xbb\xbfa 1 2\nb 3 4\n", ["a", "b"]),
        (b"\xef\xbb\xbf2 2\na 1 2\nb 3 4\n", ["a", "b"]),
        (b"a 1 2\n  3 4\n", ["a", " "]),  # the token is a space
        (b"a 1 2\n. . . 3 4\n", ["a", ". . ."]),
        ("a 1 2\n\x85 3 4\n\u2028 5 6\n".encode(), ["a", "\x85", "\u2028"]),
        (b"a 1 2\r\nb 3 4", ["a", "b"]),
        (b"7 1\n", ["7"]),
    ],
)
def test_vectors_with_unusual_words_are_read(tmp_path, content, words):
    format = "glove" if words == ["7"] else None
    assert WordVectors.load(write(tmp_path, content), format).words == words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no vectors"),
        (b"a 1 2\nb 3\n", "line 2.* 1 numbers instead of 2"),
        (b"a 1 2\nb 3 4 5\n", "line 2.* 3 numbers instead of 2"),
        (b"a 1 2\nb 3 x\n", "line 2.*could not convert"),
        (b"a 1 2\n 3 4\n", "line 2.*'' is no word"),
        (b"a 1 2\nb  3 4\n", "line 2.*'b ' is no word"),
        (b"a 1 2\nb nan 4\n", "line 2.*not finite"),
        (b"a 1 2\nb -inf 4\n", "line 2.*not finite"),
        (b"a 1 2\nb 1e39 4\n", "line 2.*not finite"),
        (b"a 1 2\n\xff 3 4\n", "line 2.*can't decode"),
        (b"a 1 2\n\nb 3 4\n", "line 2.* 0 numbers"),
        (b" 5\na 1\n", "line 1.*'' is no word"),
        (b"3 2\na 1 2\nb 3 4\n", "promises 3 vectors, the file holds 2"),
        (b"1 2\na 1 2\nb 3 4\n", "promises 1 vectors, the file holds 2"),
        (b"2 3\na 1 2\nb 3 4\n", "line 2.* 2 numbers instead of 3"),
        (b"2 0\na\nb\n", "line 2"),
        (b"999999999 300\na 1 2\n", "line 2.* 2 numbers instead of 300"),
        (b"999999999999999999999 300\na 1 2\n", "line 2.* 2 numbers instead of 1"),
        (b"word\n", "line 1.* 0 numbers"),
    ],
)
def test_text_that_is_no_vectors_is_refused(tmp_path, content, message):
    refused(WordVectors.load, write(tmp_path, content), message)


# Questions.


@pytest.mark.parametrize(
    ("content", "sections"),
    [
        (b"", {}),
        (b": one\n", {}),
        (b"\xef\xbb\xbf: one\r\na b c d\r\n", {"one": [("a", "b", "c", "d")]}),
        (b"a b c d", {"file": [("a", "b", "c", "d")]}),
        (b": x\na b c d\n: x\ne f g h", {"x": [("a", "b", "c", "d"), ("e", "f", "g", "h")]}),
        ("עיר ארץ עיר ארץ".encode(), {"file": [("עיר", "ארץ", "עיר", "ארץ")]}),
    ],
)
def test_questions_are_read(content, sections):
    assert readers.questions(content, "x", "file") == sections


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a b c d\na b c\n", "line 2: expected four words, found 'a b c'"),
        (b"a b c d e", "line 1: expected four words"),
        (b"a b c \xff", "not UTF-8: 0xff at byte 6"),
        (b"a b c d\0", "NUL at byte 7"),
        (b"\n\rx\r\ny", "line 3: expected four words, found 'x'"),
    ],
)
def test_questions_that_are_none_are_refused(content, message):
    with pytest.raises(ValueError, match=f"^x.*{message}"):
        readers.questions(content, "x", "file")


# Tokenizers.

PIECES = "\n".join([*SPECIALS, "a", "##b", "\u2028", "e\u0301"])


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_vocabulary_in_any_form_of_text_is_read(tmp_path, mark, line_end, end):
    content = mark + (PIECES + end).replace("\n", line_end)
    (tmp_path / "vocab.txt").write_bytes(content.encode())
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer.vocab == PIECES.split("\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "needs .*given without"),
        (PIECES.encode("utf-16"), "NUL|not UTF-8"),
        (PIECES.encode() + b"\n\xff", "not UTF-8: 0xff"),
        (PIECES.encode() + b"\n\0", "NUL at byte"),
        ((PIECES + "\na").encode(), r"given more than once: \['a'\]"),
        ((PIECES + "\n\n\n").encode(), r"given more than once: \[''\]"),
        (PIECES.replace("[SEP]", "[sep]").encode(), r"given without \['\[SEP\]'\]"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(tmp_path, content, message):
    if content.endswith(b"\n\n\n"):
        content += b"\n"
    (tmp_path / "vocab.txt").write_bytes(content)
    refused(WordPieceTokenizer.from_folder, tmp_path, message)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"[]", "must hold an object, not list"),
    ],
)
def test_settings_of_a_tokenizer_that_are_none_are_refused(tmp_path, config, message):
    (tmp_path / "vocab.txt").write_text(PIECES, encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    with pytest.raises(ValueError, match=message) as caught:
        WordPieceTokenizer.from_folder(tmp_path)
    assert "tokenizer_config.json" in str(caught.value)
