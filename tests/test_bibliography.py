"""The bibliography: each entry says who, where and when, once, and how to find the work."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = (ROOT / "appendix" / "references.bib").read_text(encoding="utf-8")
# Nothing to link to: old print, and proceedings and a book that are not on the publisher's pages.
NO_LINK = {"gage1994bpe", "firth1957", "zipf1949", "lafferty2001crf", "li2022machine"}
WHERE = {
    "article": "journal",
    "inproceedings": "booktitle",
    "incollection": "booktitle",
    "book": "publisher",
    "techreport": "institution",
    "misc": "howpublished",
}


def entries(source):
    """Return (kind, key, {field: value}) of each entry, one field a line."""
    found = re.findall(r"^@(\w+)\{([^,\s]+),\n(.*?)^\}", source, re.M | re.S)
    field = re.compile(r"^  (\w+)\s*= \{(.*)\},?$", re.M)
    return [(kind, key, dict(field.findall(body))) for kind, key, body in found]


def faults_of(kind, key, work):
    """Yield what is wrong with one entry."""
    missing = {"author", "title", "year", WHERE[kind]} - work.keys()
    if missing:
        yield f"{', '.join(sorted(missing))} missing"
        return
    if work["year"] not in key:
        yield f"the year is {work['year']}"
    for name in work["author"].split(" and "):
        if "," not in name and name[0] != "{":  # this finds "others", too
            yield f"author {name}, not 'Last, First'"
    if not (work.keys() & {"doi", "url"} or key in NO_LINK):
        yield "neither doi nor url"
    if not re.fullmatch(r"10\.\d{4,}/\S+", work.get("doi", "10.1000/x")):
        yield f"doi {work['doi']}"
    first, dash, last = work.get("pages", "1--2").partition("--")
    arabic = first.isdigit() and last.isdigit() and int(first) < int(last)
    if not (dash and (arabic or re.fullmatch(r"[ivxl]+", first + last))):
        yield f"pages {work['pages']}"
    number = re.fullmatch(r"arXiv:(\S+)", work.get("howpublished", ""))
    if number and not work["url"].endswith("/abs/" + number[1]):
        yield f"{number[0]} is not at {work['url']}"


def faults(source):
    """Return what is wrong with a bibliography, a line each."""
    works = entries(source)
    wrong = [f"{key}: {fault}" for kind, key, work in works for fault in faults_of(kind, key, work)]
    once = [work[f].lower() for _, _, work in works for f in ("doi", "url") if f in work]
    return wrong + [f"{what}: {n} entries" for what, n in Counter(once).items() if n > 1]


def test_each_work_is_named_in_full_and_can_be_found():
    assert len(entries(SOURCE)) == len(re.findall(r"^@", SOURCE, re.M))
    assert faults(SOURCE) == []


def test_each_work_is_cited():
    """The page of references shows only these; the book's build finds what is cited and missing."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("appendix/*.md"), *ROOT.glob("*s/*.ipynb")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    cited = ",".join(re.findall(r"\{cite:\w+\}`([^`]+)`", text)).replace(" ", "").split(",")
    uncited = {key for _, key, _ in entries(SOURCE)} - {*cited}
    assert not uncited, "cite these, or take them out of references.bib"
