"""The repository holds together: its sizes, its address, its imports, its commands."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import address, check, course_map, sizes, stages
from tools.format_notebooks import notebooks, read

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = address.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("support", "pretrain")
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MEGABYTE = 1_000_000
OUTSIDE = "../" + "shared"  # a folder that may lie next to the checkout in CI
# A folder of the place where the course was written, a path that leaves the repository, a registry.
FOREIGN = re.compile(rf"(?<![\w./-])/w[o]rk/\w|{re.escape(OUTSIDE)}|pypi\.or[g]|python[h]osted")


def shown(path: Path) -> str:
    """Return the path as it is read in a message."""
    return path.relative_to(ROOT).as_posix()


def text(name: str) -> str:
    """Return the text of one of the repository's files."""
    return (ROOT / name).read_text(encoding="utf-8")


# Sizes and contents of files.


@pytest.mark.parametrize("what", sizes.LIMITS)
def test_sizes(what):
    """A limit may be lowered, never raised; `make sizes` prints all."""
    assert sizes.measured()[what] <= sizes.LIMITS[what], "cut, or move it to where it is used"


def test_no_large_file_and_no_path_of_another_place():
    for path in check.files(everything=True):
        assert path.stat().st_size < MEGABYTE, f"{shown(path)} is over 1 MB: keep it elsewhere"
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        content = re.sub(r'"image/\w+": "[^"]*"', "", content)  # base64 may spell anything
        allowed = OUTSIDE if shown(path) == ".ci/run" else None
        found = [m[0] for m in FOREIGN.finditer(content) if m[0] != allowed]
        assert not found, f"{shown(path)} names {found}, which no reader has: leave it out"


def imports_of(path: Path) -> set[str]:
    """Return the modules of ours that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = path.parents[node.level - 1].relative_to(ROOT) if node.level else Path()
            base = ".".join((*package.parts, *(node.module or "").split("."))).strip(".")
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith(PACKAGES)}


def test_no_modules_import_each_other_in_a_circle_and_support_imports_no_pretrain():
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in MODULES}
    graph = {name: imports_of(path) for name, path in names.items()}
    up = {name: {n for n in found if n.startswith("pretrain")} for name, found in graph.items()}
    assert not {name: found for name, found in up.items() if found and name.startswith("support")}
    while leaves := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    assert not graph, "these import each other in a circle"


def test_the_wheel_holds_every_file_of_support_and_pretrain(tmp_path):
    """Colab's first cell installs the wheel; a module may open a file that lies beside it."""
    present = [package for package in PACKAGES if (ROOT / package).is_dir()]
    unwanted = shutil.ignore_patterns("__pycache__")
    for package in present:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=unwanted)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    files = [p for package in present for p in (tmp_path / package).rglob("*") if p.is_file()]
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    command = [sys.executable, "-c", build]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    held = zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]).namelist()
    assert {path.relative_to(tmp_path).as_posix() for path in files} <= {*held}


# The address.


def test_address_is_the_same_everywhere():
    here = address.repository()
    assert yaml.safe_load(text("_config.yml"))["repository"]["url"] == here
    for name in address.CARRIERS:
        found = re.findall(r"https://github\.com/[\w-]+/[\w.-]*\w", text(name))
        assert {*found} == {here}, f"{name}: run `make format`"


def test_address_moves_in_all_its_forms():
    old, new = "https://github.com/a/b", "https://github.com/C/d"
    before = f"{old} {old}/issues {old}-c {address.colab(old, 'x.ipynb')} {address.pages(old)}"
    after = f"{new} {new}/issues {old}-c {address.colab(new, 'x.ipynb')} {address.pages(new)}"
    assert address.move(before, old, new) == after
    assert address.pages(new) == "https://c.github.io/d/"


# What is imported is declared, and the other way round.

DISTRIBUTIONS = {"IPython": "ipython", "PIL": "pillow", "sklearn": "scikit-learn"}


def imported(source: str) -> set[str]:
    """Return the distributions, not of the standard library or ours, that the source needs.

    What is imported within `try` with an `except ImportError` is a peer that may be missing.
    """
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            getattr(handler.type, "id", "") == "ImportError" for handler in node.handlers
        ):
            node.body = []
    nodes = list(ast.walk(tree))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    tops = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names)
    return {DISTRIBUTIONS.get(top, top) for top in tops - {*PACKAGES, ""}}


def test_dependencies_are_what_the_packages_and_the_notebooks_import():
    sources = [path.read_text(encoding="utf-8") for path in MODULES]
    for path in notebooks():
        code = [cell for cell in read(path).cells if cell.cell_type == "code"]
        sources += [c.source for c in code if "raises-exception" not in c.metadata.get("tags", [])]
    needed = set().union(*map(imported, sources))
    declared = {re.match(r"[\w.-]+", line)[0] for line in PROJECT["dependencies"]}
    assert needed == declared, "mend the dependencies in pyproject.toml"
    readers = text("requirements.txt").splitlines() + text("requirements/book.txt").splitlines()
    assert {*PROJECT["dependencies"]} <= {*readers}, "the same bounds in requirements.txt"


@pytest.mark.skipif("CI" not in os.environ, reason="a reader may do without some")
@pytest.mark.parametrize("peer", ["gensim", "playwright", "tokenizers", "transformers"])
def test_what_the_tests_compare_with_is_here(peer):
    """Where one does not load, its tests are skipped; CI must not take that for success."""
    assert importlib.import_module(peer)
    assert importlib.import_module("transformers").utils.is_torch_available()


# Commands.


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_make_says_what_its_targets_do():
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "book", "check", "test", "run", "format", "release"):
        assert re.search(rf"make {target}\s+\w", said), f"`make` does not explain {target}"


@pytest.mark.skipif(os.name == "nt", reason="a script of the shell")
def test_stages_are_told_in_a_table_and_what_needs_a_failed_one_is_left_out(capsys):
    script = ["sh", "-c", 'echo "output of $0"; test "$0" != book']
    needs = {"book": (), "chinese": ("book",), "pages": ("chinese",), "unit": ()}
    assert not stages.run(needs, script)
    said = capsys.readouterr().out
    assert "== book: FAILED\noutput of book" in said and "output of pages" not in said
    rows = [re.sub(r" {2,}.*", "", line.replace("left out", "left")) for line in said.splitlines()]
    assert rows[-5:] == [*needs, "all, two at a time"]
    assert re.search(r"^chinese +left out .*^unit +passed +0:0\d$", said, re.M | re.S)
    assert stages.run({"unit": ()}, script)


# The map of the chapters.


def test_map_shows_every_chapter_below_what_it_needs():
    pages = [page for page in course_map.chapters() if page.file.startswith("chapters/")]
    row = {page.file: n for n, row in enumerate(course_map.rows(pages)) for page in row}
    assert len(row) == len(pages)
    for page in pages:
        assert all(row[need] < row[page.file] for need in page.needs), page.file


@pytest.fixture
def small_book(tmp_path, monkeypatch):
    """Make a book of the chapters named, each with what its run card needs."""

    def make(toc: dict[str, str], said: str) -> None:
        monkeypatch.setattr(course_map, "ROOT", tmp_path)
        (tmp_path / "chapters").mkdir()
        for name, need in toc.items():
            text = f"# Page {name}: a page\n\n- **Prerequisites**: [x]({need}.ipynb).\n- none\n"
            (tmp_path / "chapters" / f"{name}.md").write_text(text, encoding="utf-8")
        files = [{"file": f"chapters/{name}"} for name in toc]
        parts = {"parts": [{"caption": "Part", "numbered": 1, "chapters": files}]}
        (tmp_path / "_toc.yml").write_text(yaml.safe_dump(parts), encoding="utf-8")
        lines = "\n".join(f"chapters/{name}: {name}" for name in said)
        (tmp_path / "chapters" / "chapters.yml").write_text(lines, encoding="utf-8")

    return make


@pytest.mark.parametrize(
    ("toc", "said", "message"),
    [
        ("ab", "a", "_toc.yml has chapters/b where chapters/chapters.yml has no page"),
        ("ab", "ba", "_toc.yml has chapters/a where chapters/chapters.yml has chapters/b"),
        ("ab", "ab", "the run card of chapters/a.md needs chapters/b, which does not come before"),
    ],
)
def test_map_refuses_two_lists_that_disagree(small_book, toc, said, message):
    small_book(dict(zip(toc, "ba", strict=True)), said)
    with pytest.raises(ValueError, match=message):
        course_map.chapters()


def test_map_leaves_out_arrows_that_others_imply(small_book):
    small_book({"a": "", "b": "a", "c": "b"}, "abc")
    pages = course_map.chapters()
    vars(pages[2])["needs"] = ["chapters/a", "chapters/b"]
    assert course_map.arrows(pages)["chapters/c"] == ["chapters/b"], "not a as well"


def test_paths_follow_the_order():
    order = [Path(page.file).name for page in course_map.chapters()]
    for path in course_map.PATHS.values():
        names = re.findall(r"(?<!/)\b\w+\b(?!/)", path)
        assert names == sorted(names, key=order.index)


def test_times_count_what_is_in_view_and_the_stars_of_exercises(small_book):
    small_book({"a": "", "b": "a"}, "ab")
    _, page = course_map.chapters()
    assert (page.number, page.title, page.needs) == ("2", "Page b: a page", ["chapters/a"])
    words = new_markdown_cell("word " * 300)
    cells = [new_code_cell("1"), new_code_cell("2"), new_code_cell("3")]
    cells[2].metadata["tags"] = ["checks"]
    vars(page).update(notebook=new_notebook(cells=[words, *cells]), text="")
    assert (page.reading, page.doing) == (3, 0)
    vars(page)["text"] = "```{exercise} ★★ Why?\n```\n```{exercise-start} How?\n```"
    assert page.doing == 30
