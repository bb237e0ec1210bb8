"""torchtext beside ours: the same tokens, the same vocabulary, the same articles.

`make test-torchtext` makes the environment in which torchtext still loads. Where it is installed, a
torchtext that does not load is a failure; elsewhere these tests are skipped.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import importlib.util
import io
import os
import shutil
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.data import catalog, datasets
from support.data.files import DataFile
from support.text.vocab import Vocab, basic_english, build_vocab_from_iterator

if not importlib.util.find_spec("torchtext"):
    pytest.skip("torchtext is not installed: `make test-torchtext`", allow_module_level=True)

REAL = os.environ.get("PRETRAIN_DATA_DIR")
NEWS = "ag_news_csv/test.csv"
needs_news = pytest.mark.skipif(
    not REAL or not (Path(REAL) / NEWS).is_file(), reason=f"no {NEWS} in PRETRAIN_DATA_DIR"
)
thorough = settings(
    max_examples=500,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

PIECES = ["<br />", "<BR />", "<br/>", "<b", 'r"', " /", ">", *'\'"".,()!?;:', " ", "\t", "\u00a0"]
PIECES += ["a", "B", "É", "İ", "ΑΣ", "ß", "7", "-", "’", "\x1c", "\u200b", "\n", "词", "👩‍🔬", "\0"]
hard_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=20).map("".join)
words = st.sampled_from(["a", "b", "c", "A", "é", "词", "<unk>", "<pad>", ""]) | st.text(max_size=2)


@pytest.fixture(scope="module")
def torchtext():
    """Return torchtext; that it loads is what this environment is for."""
    package = importlib.import_module("torchtext")
    package.disable_torchtext_deprecation_warning()
    for name in ("data", "datasets", "vocab"):
        importlib.import_module(f"torchtext.{name}")
    return package


@pytest.fixture
def read_by_torchtext(torchtext, tmp_path, monkeypatch):
    """Return a function from a file to the rows that torchtext's reader of AG News finds in it.

    The file is put where torchtext would download it to, under the checksum of its content.
    """
    module = importlib.import_module("torchtext.datasets.ag_news")
    place = tmp_path / "datasets" / "AG_NEWS" / "test.csv"
    place.parent.mkdir(parents=True)

    def rows(path: Path) -> list[tuple[int, str]]:
        shutil.copyfile(path, place)
        monkeypatch.setitem(module.MD5, "test", hashlib.md5(place.read_bytes()).hexdigest())
        return list(module.AG_NEWS(root=str(tmp_path), split="test"))

    return rows


@pytest.fixture(scope="module")
def news():
    """Return the 7,600 articles of AG News' test split as our reader gives them."""
    read = datasets.ag_news("test", source="real")
    assert len(read.texts) == 7600
    return read


def rows_of(news) -> list[tuple[int, str]]:
    """Return labels (1 to 4, as in the file) and texts."""
    return list(zip((news.labels + 1).tolist(), news.texts, strict=True))


@needs_news
def test_all_articles_are_read_the_same(read_by_torchtext, news):
    assert read_by_torchtext(Path(REAL) / NEWS) == rows_of(news)


@needs_news
@pytest.mark.parametrize(
    ("min_freq", "specials", "max_tokens"),
    [(1, None, None), (5, ["<unk>", "<pad>"], None), (2, ["<pad>", "the"], 10_000)],
)
def test_all_articles_have_the_same_ids(torchtext, news, min_freq, specials, max_tokens):
    given = {"min_freq": min_freq, "specials": specials, "max_tokens": max_tokens}
    tokenize = torchtext.data.get_tokenizer("basic_english")
    theirs = torchtext.vocab.build_vocab_from_iterator(map(tokenize, news.texts), **given)
    ours = build_vocab_from_iterator(map(basic_english, news.texts), **given)
    assert ours.get_itos() == theirs.get_itos()
    assert ours.get_stoi() == theirs.get_stoi()
    if specials:
        ours.set_default_index(0)
        theirs.set_default_index(0)
    same = sum(ours(basic_english(text)) == theirs(tokenize(text)) for text in news.texts)
    assert same == 7600


# Rows that a publisher could have: quotes, commas and line ends inside a field. No carriage return:
# torchtext opens the file as text, which turns one inside a field into a line end; ours keeps it.
fields = st.text(st.sampled_from(list("\",\n\\;' ab\t词é👩") + ["\u2028", "\x85"]), max_size=12)


@given(st.lists(st.tuples(st.integers(1, 4), fields, fields), min_size=1, max_size=5))
@thorough
def test_any_rows_are_read_the_same(read_by_torchtext, tmp_path, monkeypatch, rows):
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    content = written.getvalue().encode("utf-8")
    path = tmp_path / NEWS
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(catalog.FILES, NEWS, DataFile(NEWS, len(content), digest, ()))
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    assert rows_of(datasets.ag_news("test", source="real")) == read_by_torchtext(path)


@given(hard_text)
@thorough
def test_any_text_has_the_same_tokens(torchtext, text):
    assert basic_english(text) == torchtext.data.get_tokenizer("basic_english")(text)


@given(
    lines=st.lists(st.lists(words, max_size=6), max_size=8),
    min_freq=st.integers(1, 3),
    specials=st.sampled_from([None, ["<unk>"], ["<pad>", "a"]]),
    max_tokens=st.sampled_from([None, 3, 5]),
)
@settings(thorough, max_examples=100)  # each of torchtext's vocabularies takes 120 MB
def test_any_lines_have_the_same_vocabulary(torchtext, lines, min_freq, specials, max_tokens):
    given = {"min_freq": min_freq, "specials": specials, "max_tokens": max_tokens}
    ours = build_vocab_from_iterator(lines, **given)
    theirs = torchtext.vocab.build_vocab_from_iterator(lines, **given)
    assert ours.get_itos() == theirs.get_itos()
    assert ours.get_stoi() == theirs.get_stoi()
    ours.set_default_index(len(ours) - 1 if len(ours) else 0)
    theirs.set_default_index(len(ours) - 1 if len(ours) else 0)
    for line in lines if len(ours) else []:
        assert ours(line) == theirs(line)


def test_lookups_are_the_same(torchtext):
    theirs = torchtext.vocab.vocab(OrderedDict.fromkeys(["x", "y", "z", "w", "end"], 1))
    for vocab in (theirs, Vocab(["x", "y", "z", "w", "end"])):
        with pytest.raises((KeyError, RuntimeError)):
            vocab["missing"]
        vocab.set_default_index(2)
        assert (len(vocab), vocab["missing"], "missing" in vocab) == (5, 2, False)
        three = ["end", "w", "missing"]
        assert vocab(three) == vocab.lookup_indices(three) == [4, 3, 2]
        assert vocab.lookup_tokens([2, 0]) == ["z", "x"] and vocab.lookup_token(4) == "end"
