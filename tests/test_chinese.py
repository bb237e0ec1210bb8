"""The Chinese texts: the readers of the real files, and the stand-ins made from our own grammar."""

from __future__ import annotations

import hashlib
import json
import os
import re

import numpy as np
import pytest

from support.data import catalog, chinese
from support.data.files import DataFile

REAL = os.environ.get("PRETRAIN_DATA_DIR", "")
needs_real = pytest.mark.skipif(not REAL, reason="PRETRAIN_DATA_DIR is not set")
SPLITS = ("train", "dev", "test")


@pytest.fixture
def give(monkeypatch, tmp_path):
    """Return a function that puts a small file in the place of a real one."""
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")

    def put(path: str, text: str) -> None:
        data = text.encode("utf-8")
        file = DataFile(path, len(data), hashlib.sha256(data).hexdigest(), ())
        monkeypatch.setitem(catalog.FILES, path, file)
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)

    return put


def test_titles_of_dev_and_test_are_not_trained_on(give):
    give("thucnews/train.head45000.txt", "一二\t3\n三 四\t0\n五\t9\n六\t1\n")
    give("thucnews/dev.txt", "五\t9\n")
    give("thucnews/test.txt", "六\t2\n七\t2\n")
    titles = chinese.thucnews()
    assert titles.texts == ["一二", "三 四"] and titles.labels.tolist() == [3, 0]
    assert titles.origin == "folder" and titles.classes[3] == "education"
    assert chinese.thucnews("test").texts == ["六", "七"]


@pytest.mark.parametrize("line", ["一二 3", "一二\t10", "一二\t", "\t3", "一二\t²", "", "一\t3 "])
def test_a_title_without_its_label_is_refused(give, line):
    give("thucnews/dev.txt", f"一\t1\n{line}\n二\t2\n")
    with pytest.raises(ValueError, match=r"dev.txt, line 2: expected a title, a tab, a digit"):
        chinese.thucnews("dev")


def test_tagged_resumes(give):
    give("resume_ner/dev.char.bmes", "王 B-NAME\n明 E-NAME\n\n\n董 O\n")
    tagged = chinese.resume_ner("dev")
    assert tagged.words == [["王", "明"], ["董"]]
    assert tagged.tags == [["B-NAME", "E-NAME"], ["O"]]
    for line in ("王明 O", "王", "王 O O", "王\tO"):
        give("resume_ner/dev.char.bmes", f"王 O\n{line}\n")
        with pytest.raises(ValueError, match="line 2: expected a character and a tag"):
            chinese.resume_ner("dev")


def test_songs_that_are_whole_and_different(give, monkeypatch):
    paths = [path for path in catalog.FILES if path.startswith("song_ci/")]
    for path in paths[1:]:
        monkeypatch.delitem(catalog.FILES, path)
    songs = [
        ["春。", "夏。 "],
        ["秋□。"],
        ["（缺词文）"],
        ["春。", "夏。"],
        [],
        ["冬\ufffd"],
        ["冬。"],
    ]
    entries = [
        {"rhythmic": f"调{n}", "author": "我", "paragraphs": lines} for n, lines in enumerate(songs)
    ]
    give(paths[0], json.dumps(entries, ensure_ascii=False))
    found = chinese.song_ci()
    assert [song.lines for song in found.poems] == [("春。", "夏。"), ("冬。",)]
    assert found.poems[0].tune == "调0" and found.poems[0].author == "我"


@pytest.mark.parametrize("load", [chinese.thucnews, chinese.resume_ner])
def test_a_split_that_does_not_exist(load):
    with pytest.raises(ValueError, match="split must be one of 'train', 'dev', 'test'"):
        load("valid")


def test_embedded_titles():
    parts = {split: chinese.thucnews(split, source="embedded") for split in SPLITS}
    assert [len(part.texts) for part in parts.values()] == [3_200, 400, 400]
    assert len({text for part in parts.values() for text in part.texts}) == 4_000
    assert np.bincount(parts["train"].labels, minlength=10).min() > 200
    assert max(len(text) for text in parts["train"].texts) < 24
    assert not any("{" in text for text in parts["train"].texts)


def test_embedded_songs_keep_the_pattern_of_their_tune():
    songs = chinese.song_ci(source="embedded").poems
    patterns = {song.tune: set() for song in songs}
    for song in songs:
        patterns[song.tune].add(tuple(len(line) - 1 for line in song.lines))
    assert patterns["浣溪沙"] == {(7,) * 6} and all(len(found) == 1 for found in patterns.values())
    assert len({line for song in songs for line in song.lines}) > 3_000


def test_embedded_resumes():
    follows = re.compile(r"(?:O|S-\w+|B-(\w+)(?: M-\1)* E-\1)(?: |$)")
    seen = []
    for split, n in zip(SPLITS, (800, 100, 100), strict=True):
        tagged = chinese.resume_ner(split, source="embedded")
        assert len(tagged.words) == len(tagged.tags) == n
        for words, tags in zip(tagged.words, tagged.tags, strict=True):
            assert len(words) == len(tags)
            assert re.fullmatch(f"(?:{follows.pattern})+", " ".join(tags))
        seen += map("".join, tagged.words)
    assert len(set(seen)) == 1_000


def test_the_stand_ins_are_the_same_every_time():
    for load in (chinese.thucnews, chinese.resume_ner):
        one, two = load("dev", source="embedded"), load("dev", source="embedded")
        assert str(one) == str(two)
    assert chinese.song_ci(source="embedded") == chinese.song_ci(source="embedded")


@needs_real
def test_real_chinese():
    titles = chinese.thucnews(source="real")
    assert len(titles.texts) == 44_872
    assert np.bincount(chinese.thucnews("test", source="real").labels).tolist() == [1_000] * 10
    sizes = [len(chinese.resume_ner(split, source="real").words) for split in SPLITS]
    assert sizes == [3_821, 463, 477]
    songs = chinese.song_ci(source="real").poems
    assert len(songs) == 20_122
    assert not any("□" in line for song in songs for line in song.lines)
