"""The Chinese edition: every message of the book is translated, none has lost what it carries."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import polib
import pytest

from tools import translation

ROOT = translation.ROOT
PAGES = sorted(
    path.relative_to(translation.MESSAGES).with_suffix("").as_posix()
    for path in translation.MESSAGES.rglob("*.po")
)
HAN = "\u3400-\u9fff"
GLOSSARY = (ROOT / "glossary.md").read_text(encoding="utf-8")
SCRIPTS = sorted((ROOT / "_static" / "play").glob("*.js"))


@cache
def entries(page: str) -> tuple[polib.POEntry, ...]:
    """Return the messages of a page with their translations."""
    return tuple(polib.pofile(str(translation.MESSAGES / f"{page}.po")))


@cache
def names() -> dict[str, str]:
    """Return the first Chinese name of each English one in the glossary, in small letters."""
    found = {}
    for entry in re.split(r"\n\s*\n", GLOSSARY.split("```{glossary}")[1]):
        terms = [line for line in entry.splitlines() if re.match(r"[^\s:`]", line)]
        chinese = [term for term in terms if re.search(f"[{HAN}]", term)]
        found |= {term.lower(): chinese[0] for term in terms if chinese}
    return found


@pytest.fixture(scope="session")
def extracted(tmp_path_factory) -> Path:
    """Return a folder with the messages of the pages as they are now."""
    folder = tmp_path_factory.mktemp("messages")
    assert translation.extract(folder) == 0
    return folder / "pot"


def test_the_messages_are_those_of_the_pages(extracted):
    now = {
        (path.relative_to(extracted).with_suffix("").as_posix(), entry.msgid)
        for path in extracted.rglob("*.pot")
        for entry in polib.pofile(str(path))
        if entry.msgid  # a list of pages without a caption has an empty one
    }
    kept = {(page, entry.msgid) for page in PAGES for entry in entries(page)}
    assert not now ^ kept, "run `make translate`, and translate what it lists"


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_untranslated_or_out_of_date(page):
    left = [f"{state}: {e.msgid}" for e in entries(page) if (state := translation.to_do(e))]
    assert not left


@pytest.mark.parametrize("page", PAGES)
def test_formulas_code_links_and_numbers_are_those_of_the_english(page):
    for entry in entries(page):
        assert not translation.differences(entry.msgid, entry.msgstr), entry.msgid


@pytest.mark.parametrize("page", PAGES)
def test_a_term_has_one_name(page):
    for entry in entries(page):
        for role, content in translation.ROLE.findall(entry.msgstr):
            if role != "term":
                continue
            said = re.fullmatch(r"(.*?)\s*<([^<>]+)>", content)
            assert said, f"{content}: write {{term}}`中文 <English>`"
            assert said[1] == names().get(said[2].lower(), said[1]), entry.msgid


@pytest.mark.parametrize("page", PAGES)
def test_punctuation_is_chinese(page):
    for entry in entries(page):
        if "\\begin{" in entry.msgid:
            continue
        text = translation.MATH.sub("§", translation.CODE.sub("§", entry.msgstr))
        text = re.sub(r"\]\([^)]*\)", "]", text)
        wrong = re.findall(f'[{HAN}][,;:?!]|[{HAN}]\\.(?:\\s|$)|[{HAN}] [{HAN}]|“[{HAN}]*"', text)
        assert not wrong, entry.msgstr


def test_the_explorers_say_everything_in_chinese():
    checked = 0
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        found = {
            language: re.search(rf"^    {language}: {{\n(.*?)^    }},\n", text, re.S | re.M)
            for language in ("en", "zh")
        }
        if not found["en"]:
            continue
        assert found["zh"], f"{path.name} has no words in Chinese"
        english, chinese = (found[language][1] for language in ("en", "zh"))
        keys = re.compile(r"^      (\w+):", re.M)
        assert keys.findall(english) == keys.findall(chinese), path.name
        assert set(re.findall(r"{\w+}", english)) == set(re.findall(r"{\w+}", chinese)), path.name
        checked += 1
    assert checked == 9


def test_a_changed_sentence_is_named(tmp_path):
    page = "chapters/bpe"
    entry = next(e for e in entries(page) if len(e.msgid.split()) > 20 and e.msgstr)
    for folder, text in (("pot", entry.msgid.replace(" the ", " this ")), ("locale", entry.msgid)):
        ending = "pot" if folder == "pot" else f"{translation.LANGUAGE}/LC_MESSAGES"
        path = tmp_path / folder / ("" if folder == "pot" else ending) / f"{page}.po"
        path = path.with_suffix(".pot") if folder == "pot" else path
        path.parent.mkdir(parents=True)
        file = polib.POFile()
        file.metadata = {"Content-Type": "text/plain; charset=utf-8"}
        file.append(polib.POEntry(msgid=text, msgstr="" if folder == "pot" else entry.msgstr))
        file.save(str(path))
    assert not translation.listed(tmp_path / "locale")
    translation.update(tmp_path / "pot", tmp_path / "locale")
    [line] = translation.listed(tmp_path / "locale")
    assert line.startswith(f"{page}: fuzzy: ") or line.startswith(f"{page}: untranslated: ")


@pytest.mark.parametrize(
    ("english", "chinese", "named"),
    [
        ("The loss is $x^2$.", "损失是 $x^3$。", "formula"),
        ("Call `f`.", "调用 `g`。", "code"),
        ("See [BERT](bert.ipynb).", "见 [BERT](gpt.ipynb)。", "link"),
        ("In 1,000 steps", "共 100 步", "number"),
        ("By {cite:t}`a2020b`.", "见 {cite:t}`b2020a`。", "cite:t"),
        ("A {term}`token`.", "一个{term}`词元 <tokens>`。", "term"),
    ],
)
def test_what_a_translation_lost_is_named(english, chinese, named):
    assert any(named in line for line in translation.differences(english, chinese))
    assert not translation.differences(english, english)
