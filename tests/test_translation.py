"""The Chinese edition: what is not translated is listed, and no translation has lost anything."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import nbformat
import polib
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image, PngImagePlugin

from tools import translation

ROOT = translation.ROOT
PAGES = sorted(
    path.relative_to(translation.MESSAGES).with_suffix("").as_posix()
    for path in translation.MESSAGES.rglob("*.po")
)
HAN = "\u3400-\u9fff"
SCRIPTS = sorted((ROOT / "_static" / "play").glob("*.js"))


def translated(page: str) -> Iterator[polib.POEntry]:
    """Yield the messages of a page that have an up-to-date translation."""
    entries = polib.pofile(str(translation.MESSAGES / f"{page}.po"))
    return (entry for entry in entries if translation.to_do(entry) is None)


@cache
def names() -> dict[str, str]:
    """Return the first Chinese name of each English one in the glossary, in small letters."""
    found = {}
    glossary = (ROOT / "appendix" / "glossary.md").read_text(encoding="utf-8")
    for entry in re.split(r"\n\s*\n", glossary.split("```{glossary}")[1]):
        terms = [line for line in entry.splitlines() if re.match(r"[^\s:`]", line)]
        chinese = [term for term in terms if re.search(f"[{HAN}]", term)]
        found |= {term.lower(): chinese[0] for term in terms if chinese}
    return found


def wrong_terms(translation_: str) -> list[str]:
    """Return the terms that a translation does not call by their name in the glossary."""
    wrong = []
    for role, content in translation.ROLE.findall(translation_):
        said = re.fullmatch(r"(.*?)\s*<([^<>]+)>", content)
        if role == "term" and not said:
            wrong.append(f"{content}: write {{term}}`中文 <English>`")
        elif role == "term" and said[1] != (name := names().get(said[2].lower(), said[1])):
            wrong.append(f"{said[2]} is {name} in the glossary, not {said[1]}")
    return wrong


def wrong_marks(translation_: str) -> list[str]:
    """Return where Chinese has English punctuation or a space within it."""
    text = translation.MATH.sub("§", translation.CODE.sub("§", translation_))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    marks = re.findall(f'[{HAN}][,;:?!]|[{HAN}]\\.(?:\\s|$)|[{HAN}] [{HAN}]|“[{HAN}]*"', text)
    return [f"punctuation: {mark!r}" for mark in marks]


@pytest.mark.skipif(not translation.CHINESE, reason=translation.LEFT_OUT)
@pytest.mark.parametrize("page", PAGES)
def test_a_translation_keeps_formulas_code_links_numbers_and_terms(page):
    found = []
    for entry in translated(page):
        wrong = translation.differences(entry.msgid, entry.msgstr) + wrong_terms(entry.msgstr)
        if "\\begin{" not in entry.msgid or "$" in entry.msgid:
            wrong += wrong_marks(entry.msgstr)
        found += [f"{message}: {entry.msgstr}" for message in wrong]
    assert not found, f"mend locale/zh_CN/LC_MESSAGES/{page}.po:\n" + "\n".join(found)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_explorer_says_everything_in_chinese(path):
    text = path.read_text(encoding="utf-8")
    said = {
        language: found[1]
        for language in ("en", "zh")
        if (found := re.search(rf"^    {language}: {{\n(.*?)^    }},\n", text, re.S | re.M))
    }
    if said:  # else it has no words of its own
        assert said.keys() == {"en", "zh"}, f"{path.name} has words in {[*said]} only"
        for kind in (r"^      (\w+):", r"({\w+})"):
            english, chinese = ({*re.findall(kind, words, re.M)} for words in said.values())
            assert english == chinese, f"{path.name}, in one language only: {english ^ chinese}"


def test_a_changed_sentence_is_listed_and_keeps_its_translation(tmp_path):
    messages = tmp_path / "locale" / translation.LANGUAGE / "LC_MESSAGES" / "chapters"
    (tmp_path / "pot" / "chapters").mkdir(parents=True)
    messages.mkdir(parents=True)
    old, same = "Each meeting of two words within the window is noted.", "Nothing changes here."
    for path, first, to in (
        (messages / "glove.po", old, ("记下每次相遇。", "这里不变。")),
        (messages / "gone.po", old, ("记下每次相遇。", "这里不变。")),
        (tmp_path / "pot" / "chapters" / "glove.pot", old.replace("noted", "counted"), ("", "")),
    ):
        file = polib.POFile()
        file.metadata = {"Content-Type": "text/plain; charset=utf-8"}
        for message, chinese in zip((first, same), to, strict=True):
            file.append(polib.POEntry(msgid=message, msgstr=chinese))
        file.save(str(path))
    assert not translation.listed(tmp_path / "locale")
    translation.update(tmp_path / "pot", tmp_path / "locale")
    [line] = translation.listed(tmp_path / "locale")
    assert line == f"chapters/glove: fuzzy: {old.replace('noted', 'counted')}"
    assert [entry.msgstr for entry in polib.pofile(str(messages / "glove.po"))] == [
        "记下每次相遇。",
        "这里不变。",
    ]
    assert not (messages / "gone.po").exists()


def test_a_figure_is_chinese_until_the_english_one_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    monkeypatch.setattr(translation, "FIGURES", tmp_path / "figures")
    (tmp_path / "figures.po").write_text('msgid "{} of {}"\nmsgstr "{} 之 {}"\n', encoding="utf-8")
    (tmp_path / "figures" / "chapters").mkdir(parents=True)
    for color, kept in (("red", {tmp_path / "figures" / "chapters" / "a.png"}), ("blue", set())):
        Image.new("RGB", (1, 1), color).save(drawn := io.BytesIO(), "png")
        png = base64.b64encode(drawn.getvalue()).decode()
        data = {"image/png": png, "image/svg+xml": "<text>1 of 2.5</text>"}
        cell = new_code_cell(id="a", outputs=[new_output("display_data", data)])
        notebook = new_notebook(cells=[cell])
        nbformat.write(notebook, tmp_path / "chapters.ipynb")
        [(path, out, sha)] = translation.figures("chapters", notebook)
        if kept:
            info = PngImagePlugin.PngInfo()
            info.add_text("English", sha)
            Image.new("RGB", (2, 2)).save(path, pnginfo=info)
        assert translation.put_figures("chapters", notebook) == kept
        assert (out.data["image/png"] != png) == bool(kept)
        assert out.data["image/svg+xml"] == "<text>1 之 2.5</text>"
        assert [line.split(":")[0] for line in translation.old_figures()] == (
            [] if kept else ["chapters/a"]
        )


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


def test_a_term_and_a_mark_that_are_not_chinese_are_named():
    assert wrong_terms("{term}`符号 <token>`") == ["token is 词元 in the glossary, not 符号"]
    assert not wrong_terms("{term}`词元 <token>`")
    assert len(wrong_marks("中文,中文 中文.")) == 3 and not wrong_marks("中文，$x$ 中文。")


@pytest.mark.parametrize(
    ("languages", "status", "said"),
    [("en", 0, translation.LEFT_OUT), ("zh", 1, "must be: en, or en,zh")],
)
def test_one_variable_leaves_the_edition_out(languages, status, said):
    command = [sys.executable, "-m", "tools.translation", "build"]
    given = {**os.environ, "COURSE_LANGUAGES": languages}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, encoding="utf-8")
    assert done.returncode == status and said in done.stdout + done.stderr
