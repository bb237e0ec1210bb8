"""A chapter is taken out, or added, by one command, and what is cheap to check still holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import address, check, course_map

course = pytest.importorskip("tools.course")
FILES = check.files(everything=True)
pytestmark = pytest.mark.skipif(not FILES, reason="the command needs a checkout of git")
TEXT = "# Rare words: how often they come\n\n" + "Most words are rare {cite:p}`zipf1949`.\n\n" * 5
CODE = "```python\nprint(2+2)\n```\n"
FIRST = course_map.chapters()[0].file  # any chapter would do
AFTER = ("--after", FIRST, "--about", 'rare words, "hapax"')
TAGS = (address.ROOT / "chapters" / "tags.ipynb").exists()


def run(folder: Path, *command: str, fails: bool = False) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def python(folder: Path, *module: str, fails: bool = False) -> str:
    return run(folder, sys.executable, "-m", *module, fails=fails)


def commit(folder: Path) -> None:
    run(folder, "git", "add", "--all")
    run(folder, "git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")


@pytest.fixture
def copy(tmp_path):
    """Copy the repository's files, as they are now, into a checkout of their own."""
    folder = tmp_path / "course"
    for path in FILES:
        there = folder / path.relative_to(address.ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    run(folder.parent, "git", "init", "--quiet", "course")
    commit(folder)
    return folder


def outputs(path: Path) -> list:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.skipif(not TAGS, reason="this course has no chapter on tags to remove")
def test_a_chapter_is_removed_and_a_text_becomes_one(copy):
    before = run(copy, "git", "ls-files").split()
    said = python(copy, "tools.course", "remove", "chapters/tags")
    assert "-111: read again: That is the subject of the chapter on tags." in said
    gone = [name for name in before if not (copy / name).exists()]
    assert gone == ["chapters/tags.ipynb", "locale/zh_CN/LC_MESSAGES/chapters/tags.po"]
    named = ("git", "grep", "-F", "tags.ipynb", "--", "*.md", "*s/*.ipynb", "*.po", "*.tsv")
    run(copy, *named, fails=True)  # nothing is found
    catalog = (copy / "locale/zh_CN/LC_MESSAGES/index.po").read_text("utf-8")
    assert "(chapters/finetuning.ipynb)、[](chapters/pairs_and" in catalog

    (copy.parent / "rare-words.md").write_text(TEXT, "utf-8")
    added = ("tools.course", "add", "../rare-words.md", *AFTER)
    assert "commit or stash these files first:" in python(copy, *added, fails=True)
    commit(copy)
    python(copy, *added)
    assert outputs(copy / "chapters" / "rare_words.ipynb") == [[]]
    assert 'rare_words.ipynb) | rare words, "hapax" | ' in (copy / "index.md").read_text("utf-8")

    python(copy, "tools.check", "--all")
    tests = [f"tests/test_{name}.py" for name in ("lecture_items", "bibliography", "gallery")]
    python(copy, "pytest", "-q", *tests, "tests/test_repository.py::test_paths_follow_the_order")
    for path in copy.glob("*s/*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for link in check.LINK.findall("".join(cell["source"])):
                if cell["cell_type"] == "markdown" and link.endswith((".ipynb", ".md")):
                    assert (path.parent / link).exists(), f"{path.name}: {link}"


@pytest.mark.exhaustive
def test_a_text_with_code_is_run(copy):
    (copy.parent / "rare.md").write_text(TEXT + CODE.replace("2+2", "1/0"), encoding="utf-8")
    said = python(copy, "tools.course", "add", "../rare.md", *AFTER, fails=True)
    assert "ZeroDivisionError" in said and not run(copy, "git", "status", "--porcelain")
    (copy.parent / "rare.md").write_text(TEXT + CODE, encoding="utf-8")
    python(copy, "tools.course", "add", "../rare.md", *AFTER)
    assert outputs(copy / "chapters" / "rare.ipynb")[1][0]["text"] == ["4\n"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["remove", "chapters/no"], "_toc.yml has no page chapters/no"),
        (["remove", "chapters/labs"], "chapters/labs cannot go"),
        (["add", "x.md", "--after", "chapters/no", "--about", "x"], "no chapter chapters/no"),
        (["add", f"{FIRST}.md", *AFTER], f"there is a {FIRST} already"),
        (["add", str(address.ROOT / "_toc.yml"), *AFTER], "must begin with its title"),
    ],
)
def test_errors_are_clear(capsys, arguments, message):
    assert course.main(arguments) == 1 and message in capsys.readouterr().err
