"""The repository holds together: its address, its imports, its sizes, its commands."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tools import address, course_map
from tools.format_notebooks import notebooks, read

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = address.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MEGABYTE = 1_000_000
OUTSIDE = "../" + "shared"  # a folder that may lie next to the checkout in CI
# A folder of somebody's machine, a path that leaves the repository, a package registry.
FOREIGN = re.compile(
    rf"(?<![\w./-])/(?:work|tmp|home|root|Users)/\w|{re.escape(OUTSIDE)}|pypi\.org|python[h]osted"
)


def tracked() -> list[Path]:
    """Return the files that are in git or would be added."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def shown(path: Path) -> str:
    """Return the path as it is read in a message."""
    return path.relative_to(ROOT).as_posix()


def text(name: str) -> str:
    """Return the text of one of the repository's files."""
    return (ROOT / name).read_text(encoding="utf-8")


# Sizes and contents of files.


def test_no_large_file():
    large = [shown(path) for path in tracked() if path.stat().st_size > MEGABYTE]
    assert not large


def test_support_stays_small():
    """Under 5,800 lines, and 1,950 for the data sets, docstrings included."""
    lines = {p: p.read_text("utf-8").count("\n") for p in (ROOT / "support").rglob("*.py")}
    data = sum(n for path, n in lines.items() if path.parent.name == "data")
    assert 1000 < sum(lines.values()) - data < 5800 and data < 1950, lines


def imports_of(path: Path) -> set[str]:
    """Return the modules of support/ that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = path.parents[node.level - 1].relative_to(ROOT) if node.level else Path()
            base = ".".join((*package.parts, *(node.module or "").split("."))).strip(".")
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("support.")}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, or nothing."""
    while leaves := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    return sorted(graph)


def test_no_module_of_support_imports_itself_in_a_circle():
    paths = (ROOT / "support").rglob("*.py")
    graph = {".".join(p.relative_to(ROOT).with_suffix("").parts): imports_of(p) for p in paths}
    assert circle(graph) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_the_wheel_holds_every_file_of_support(tmp_path):
    shutil.copytree(ROOT / "support", tmp_path / "support")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    command = [sys.executable, "-c", build]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    held = zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]).namelist()
    files = {shown(path) for path in tracked() if shown(path).startswith("support/")}
    assert {name for name in held if name.startswith("support/")} == files


def test_no_path_of_another_place():
    found = []
    for path in tracked():
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        content = re.sub(r'"image/\w+": "[^"]*"', "", content)  # base64 may spell anything
        allowed = {OUTSIDE} if shown(path) == ".ci/run" else set()
        found += [(shown(path), m[0]) for m in FOREIGN.finditer(content) if m[0] not in allowed]
    assert not found


def test_no_vague_names():
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [shown(path) for path in tracked() if vague & set(path.with_suffix("").parts)]


# The address.


def test_address_is_the_same_everywhere():
    here = address.repository()
    assert yaml.safe_load(text("_config.yml"))["repository"]["url"] == here
    for name in address.CARRIERS:
        content = text(name)
        assert here in content, f"{name} does not name {here}"
        for other in re.findall(r"https://github\.com/[\w-]+/[\w.-]+", content):
            assert other.rstrip(".") == here, f"{name}: run `make format`"
        for other in re.findall(r"colab\.research\.google\.com/github/([\w-]+/[\w.-]+)", content):
            assert other == address.slug(here), f"{name}: run `make format`"
    assert address.pages(here) in text("README.md")


def test_address_moves_in_all_its_forms():
    old, new = "https://github.com/a/b", "https://github.com/C/d"
    before = f"{old} {old}/issues {old}-c {address.colab(old, 'x.ipynb')} {address.pages(old)}"
    after = f"{new} {new}/issues {old}-c {address.colab(new, 'x.ipynb')} {address.pages(new)}"
    assert address.move(before, old, new) == after
    assert address.pages(new) == "https://c.github.io/d/"


def test_readme_links_every_notebook_and_nothing_that_is_missing():
    content = text("README.md")
    for path in notebooks():
        link = address.colab(address.repository(), shown(path))
        assert link in content, shown(path)
    for name in ("README.md", "index.md", "CONTRIBUTING.md"):
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", text(name))
        assert not [target for target in targets if not (ROOT / target).exists()], name


# What is imported is declared, and the other way round.

DISTRIBUTIONS = {
    "IPython": "ipython",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def imported(source: str) -> set[str]:
    """Return the distributions, not of the standard library or ours, that the source needs.

    What is imported within `try` with an `except ImportError` is a peer that may be missing.
    """
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        nodes = list(ast.walk(_without_peers(ast.parse("\n".join(lines)))))
    except SyntaxError:
        return set()
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    tops = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names) - {"support"}
    return {DISTRIBUTIONS.get(top, top) for top in tops if top}


def _without_peers(tree: ast.Module) -> ast.Module:
    """Return the tree, its `try` statements that catch an ImportError emptied."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            getattr(handler.type, "id", "") == "ImportError" for handler in node.handlers
        ):
            node.body = []
    return tree


def declared(requirements: list[str]) -> set[str]:
    """Return the names of the distributions that lines of requirements name."""
    found = [re.match(r"[A-Za-z0-9_.-]+", line) for line in requirements]
    return {match[0].lower() for match in found if match}


def lines_of(name: str) -> list[str]:
    """Return the lines of a requirements file, without comments and without -r."""
    return [line for line in text(name).splitlines() if re.match(r"\w", line)]


def test_dependencies_are_what_support_and_the_notebooks_import():
    sources = [text(shown(path)) for path in (ROOT / "support").rglob("*.py")]
    for path in notebooks():
        sources += [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    needed = set().union(*map(imported, sources))
    assert needed == declared(PROJECT["dependencies"])


@pytest.mark.skipif("CI" not in os.environ, reason="a reader may do without some")
@pytest.mark.parametrize("peer", ["gensim", "playwright", "tokenizers", "transformers"])
def test_what_the_tests_compare_with_is_here(peer):
    """Where one does not load, its tests are skipped; CI must not take that for success."""
    assert importlib.import_module(peer)
    assert importlib.import_module("transformers").utils.is_torch_available()


def test_torchtext_is_not_installed_with_what_we_install():
    if any(line.startswith("2.3.") for line in [importlib.metadata.version("torch")]):
        pytest.skip("this is the environment in which torchtext works")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("torchtext")


# Commands.


def test_make_says_what_its_targets_do():
    if sys.platform == "win32" or not shutil.which("make"):
        pytest.skip("no make on this machine")
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("setup", "book", "test", "run", "bench", "format", "clean"):
        assert re.search(rf"make {target}\s+\w", said), f"`make help` does not explain {target}"


# Pages of reference.


@pytest.mark.parametrize("name", ["index.md", "README.md"])
def test_map_and_tables_are_fresh(name):
    made = course_map.updated(name, course_map.contents()[name])
    assert made == text(name), "run `make format`"


def test_map_shows_every_chapter_below_what_it_needs():
    shown = [page for page in course_map.chapters() if page.file.startswith("chapters/")]
    assert {page.path for page in shown} == {p for p in notebooks() if p.parent.name == "chapters"}
    row = {page.file: n for n, row in enumerate(course_map.rows(shown)) for page in row}
    assert len(row) == len(shown)
    for page in shown:
        assert all(row[need] < row[page.file] for need in page.needs), page.file


@pytest.mark.parametrize(
    ("toc", "said", "message"),
    [
        ("ab", "a: {}", "_toc.yml has b where chapters.yml has no page"),
        ("ab", "b: {}\na: {}", "_toc.yml has a where chapters.yml has b"),
        ("ab", "a: {needs: [b]}\nb: {}", "a needs b, which does not come before it"),
    ],
)
def test_map_refuses_two_lists_that_disagree(tmp_path, monkeypatch, toc, said, message):
    monkeypatch.setattr(course_map, "ROOT", tmp_path)
    pages = [{"file": file} for file in toc]
    toc = yaml.safe_dump({"parts": [{"caption": "Part", "chapters": pages}]})
    (tmp_path / "_toc.yml").write_text(toc, encoding="utf-8")
    said = said.replace("{", "{title: t, about: u, ").replace(", }", "}")
    (tmp_path / "chapters.yml").write_text(said, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        course_map.chapters()


def test_map_needs_its_place_in_the_page():
    with pytest.raises(ValueError, match="reading.md must hold the lines"):
        course_map.updated("reading.md", "")


def test_every_topic_of_the_lecture_documents_has_its_section():
    row = r"^\| [^|]+ \| [^|]+ \| [^|]+ \| (?:[^|\[]+: )?\[([^\]]+)\]\(([^)#]+)#?([^)]*)\) \|$"
    rows = re.findall(row, text("lecture_map.md"), re.M)
    assert len(rows) > 100
    headings = {}
    for path in notebooks():
        cells = [c.source for c in read(path).cells if c.cell_type == "markdown"]
        headings[shown(path)] = re.findall(r"^#+ (.+)$", "\n".join(cells), re.M)
    for section, file, anchor in rows:
        assert file in headings, file
        if anchor:
            assert section in headings[file], f"{file} has no section {section!r}"
            plain = re.sub(r"[^\w\- ]", "", section.lower())
            assert anchor == plain.replace(" ", "-"), f"{section!r}: {anchor}"
    assert {file for _, file, _ in rows} >= {f for f in headings if f.startswith("solutions/")}


def test_bibliography_is_complete():
    entries = re.findall(r"^@(\w+)\{([^,\s]+),\n(.*?)^\}", text("references.bib"), re.M | re.S)
    assert len(entries) >= 30
    place = {
        "article": "journal",
        "inproceedings": "booktitle",
        "incollection": "booktitle",
        "book": "publisher",
        "techreport": "institution",
        "misc": "howpublished",
    }
    for kind, key, body in entries:
        fields = set(re.findall(r"^\s*(\w+)\s*=", body, re.M))
        assert {"author", "title", "year", place[kind]} <= fields, key
