"""The bibliography: each entry says who, where and when, once, and how to find the work."""

import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "references.bib"
# Nothing to link to: old print, and proceedings and a book that are not on the publisher's pages.
NO_LINK = {"gage1994bpe", "firth1957", "zipf1949", "lafferty2001crf", "li2022machine"}


def entries(source):
    """(key, {field: value}) of each entry of a BibTeX text with one field a line."""
    found = re.findall(r"^@\w+\{([^,\s]+),\n(.*?)^\}", source, re.M | re.S)
    return [(key, dict(re.findall(r"^  (\w+)\s*= \{(.*)\},?$", body, re.M))) for key, body in found]


def faults_of(key, work):
    """What is wrong with one entry, a line each."""
    if work["year"] not in key:
        yield f"the year is {work['year']}"
    for name in work["author"].split(" and "):
        if "," not in name and name[0] != "{":  # this finds "others", too
            yield f"author {name}, not 'Last, First'"
    if not (work.keys() & {"doi", "url"} or key in NO_LINK):
        yield "neither doi nor url"
    if not re.fullmatch(r"10\.\d{4,}/\S+", work.get("doi", "10.1000/x")):
        yield f"doi {work['doi']}"
    if not re.fullmatch(r"https?://\S+", work.get("url", "https://x")):
        yield f"url {work['url']}"
    first, dash, last = work.get("pages", "1--2").partition("--")
    arabic = first.isdigit() and last.isdigit() and int(first) < int(last)
    if not (dash and (arabic or re.fullmatch(r"[ivxl]+", first + last))):
        yield f"pages {work['pages']}"
    number = re.fullmatch(r"arXiv:(\S+)", work.get("howpublished", ""))
    if number and not work["url"].endswith("/abs/" + number[1]):
        yield f"{number[0]} is not at {work['url']}"
    if re.search(r"\([A-Z-]{3,}\)", work.get("booktitle", "")):
        yield "an acronym after the name of the conference, unlike the others"


def faults(source):
    """What is wrong with a bibliography, a line each."""
    works = entries(source)
    wrong = [f"{key}: {fault}" for key, work in works for fault in faults_of(key, work)]
    once = [key for key, _ in works]
    once += [work[f].lower() for _, work in works for f in ("doi", "url") if f in work]
    return wrong + [f"{what}: {n} entries" for what, n in Counter(once).items() if n > 1]


def test_each_work_is_named_in_full_and_can_be_found():
    source = SOURCE.read_text(encoding="utf-8")
    assert len(entries(source)) == len(re.findall(r"^@", source, re.M)) > 150
    assert faults(source) == []


def test_each_work_is_cited():
    """The page of references shows only these."""
    pages = [
        SOURCE.with_name("index.md"),
        SOURCE.with_name("reading.md"),
        *SOURCE.parent.glob("*s/*.ipynb"),
    ]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    cited = {
        key.strip()
        for keys in re.findall(r"\{cite:\w+\}`([^`]+)`", text)
        for key in keys.split(",")
    }
    assert {key for key, _ in entries(SOURCE.read_text(encoding="utf-8"))} == cited


GOOD = """@article{kim2014,
  author = {Kim, Yoon},
  pages  = {3--9},
  year   = {2014},
  doi    = {10.3115/v1/D14-1181}
}
"""
LINK = "doi    = {10.3115/v1/D14-1181}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{2014}", "{2015}"),
        ("Kim, Yoon", "Kim, Yoon and others"),
        ("Kim, Yoon", "Yoon Kim"),
        (LINK, "note   = {none}"),
        ("10.3115", "https://doi.org/10.3115"),
        (LINK, "url    = {aclanthology.org}"),
        (LINK, "howpublished = {arXiv:1},\n  url    = {https://arxiv.org/abs/2}"),
        ("3--9", "3-9"),
        ("3--9", "9--3"),
        ("pages  = {3--9}", "booktitle = {Conference (EMNLP)}"),
        (GOOD, GOOD + GOOD.replace(LINK, "url    = {https://x.org}")),
        (GOOD, GOOD + GOOD.replace("kim2014", "kim2014b")),
    ],
)
def test_the_check_sees_the_fault(old, new):
    assert faults(GOOD) == []
    assert len(faults(GOOD.replace(old, new))) == 1
