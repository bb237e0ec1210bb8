"""The form of notebooks: rules that can be broken, what the formatter mends, what a run saves."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from matplotlib.figure import Figure
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image, ImageChops, ImageStat

from tools import address, check, notebook_seconds, report, run_notebooks
from tools import notebook_rules as rules
from tools.format_notebooks import bootstrap, format_notebook, read, text_of
from tools.notebook_parts import in_view

ROOT = address.ROOT


# The bootstrap cell, in the situations in which it is run.


def run_bootstrap(folder: Path, before: str = "") -> str:
    """Return what the cell and then `import support` print, in a Python that has no `support`."""
    code = f"{before}\n{bootstrap()}\nimport support\nprint(support.__file__)"
    # Without the site packages, where an installed `support` may lie, and without this folder.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_support(folder: Path) -> Path:
    """Return the __init__.py of an empty `support` made in the folder, beside chapters/."""
    (folder / "support").mkdir(parents=True)
    (folder / "chapters").mkdir()
    (folder / "support" / "profile.py").touch()
    (folder / "support" / "__init__.py").touch()
    return folder / "support" / "__init__.py"


def test_bootstrap_takes_an_installed_support_else_the_clone(tmp_path):
    installed, cloned = make_support(tmp_path / "installed"), make_support(tmp_path / "clone")
    (tmp_path / "elsewhere" / "support" / "tickets").mkdir(parents=True)
    at = "import sys; sys.path.insert(0, {!r})"
    chapters = tmp_path / "clone" / "chapters"
    assert run_bootstrap(chapters, at.format(str(tmp_path / "installed"))) == str(installed)
    assert run_bootstrap(chapters) == str(cloned)
    another = at.format(str(tmp_path / "elsewhere"))
    assert run_bootstrap(chapters, another) == str(cloned), "another folder of that name"


def test_bootstrap_installs_from_the_repository_elsewhere(tmp_path):
    installed = make_support(tmp_path / "site")
    before = f"""
import subprocess, sys
def pretend(command, check):
    assert check and command[1:4] == ["-m", "pip", "install"], command
    assert command[-1] == "git+{address.repository()}", command
    sys.path.insert(0, {str(tmp_path / "site")!r})
subprocess.run = pretend"""
    assert run_bootstrap(tmp_path, before) == str(installed)


# Every rule can be broken: a notebook that keeps them all, and ways to spoil it.


def good_notebook() -> nbformat.NotebookNode:
    """Return a small notebook that keeps every rule."""
    exercise = (
        "```{exercise}\n:label: e0\nWhy?\n```\n\n```{solution} e0\n:class: dropdown\nSo.\n```"
    )
    one = new_output("stream", name="stdout", text="1\n")
    figure = new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"})
    figure_of = {"name": "line", "caption": "It falls."}
    alt = {"mystnb": {"image": {"alt": "a line that falls"}, "figure": figure_of}}
    cells = [
        new_markdown_cell("# A title\n\nA question, {numref}`line`."),
        new_code_cell(bootstrap(), metadata={"tags": ["setup"]}),
        new_code_cell("settings = profile.settings(n=3)", metadata={"tags": ["settings"]}),
        new_markdown_cell("## A section"),
        new_code_cell("print(1)", outputs=[one]),
        new_code_cell("print(time())", outputs=[one], metadata={"tags": ["nbval-ignore-output"]}),
        new_code_cell("plot()", outputs=[figure], metadata={"tags": ["plot"], **alt}),
        new_code_cell("assert 1 + 1 == 2, 'one and one are two'", metadata={"tags": ["checks"]}),
        new_markdown_cell("## Why\n\nA proof.", metadata={"tags": ["going-deeper"]}),
        new_markdown_cell(exercise),
        new_markdown_cell("## Summary\n\n- One."),
    ]
    notebook = new_notebook(cells=cells)
    for count, cell in enumerate(rules.cells(notebook, "code"), start=1):
        cell.execution_count = count
    return format_notebook(notebook, "good")


def edit(number: int, old: str, new: str):
    """Return a change of the source of one cell."""

    def change(notebook):
        assert old in notebook.cells[number].source
        notebook.cells[number].source = notebook.cells[number].source.replace(old, new)

    return change


def put(number: int, **values):
    """Return a change of attributes of one cell."""
    return lambda notebook: notebook.cells[number].update(nbformat.from_dict(values))


SPOILT = [
    (rules.one_title, edit(0, "# A", "## A")),
    (rules.one_title, edit(3, "## A", "# A")),
    (rules.one_installation, put(1, metadata={})),
    (rules.one_installation, edit(4, "print", "!pip install gensim\nprint")),
    (rules.executed_in_order, put(4, execution_count=7)),
    (rules.nothing_skipped, put(4, metadata={"tags": ["nbval-skip"]})),
    (rules.nothing_skipped, edit(4, "print", "# NBVAL_SKIP\nprint")),
    (rules.nothing_skipped, edit(8, "## Why", "Why")),
    (rules.proven, edit(7, "assert", "# assert")),
    (rules.proven, put(6, cell_type="markdown", source="### Another section")),
    (rules.local_images, edit(0, "A question", "![a map](https://example.org/map.png)")),
    (rules.local_images, edit(0, "A question", '<img alt="a map" src="//example.org/map.png">')),
    (rules.alt_texts, put(6, metadata={})),
    (rules.alt_texts, edit(0, "A question", "![](map.png)")),
    (rules.captions, edit(0, "{numref}`line`", "no reference")),
    (rules.captions, put(6, metadata={"mystnb": {"figure": {"name": "line"}}})),
    (rules.solved, edit(9, "{solution} e0", "{solution} e9")),
    (rules.solved, edit(9, ":class: dropdown", "")),
    (rules.code_that_runs, edit(0, "A question", "```python\nprint(1)\n```")),
]


@pytest.mark.parametrize(("rule", "spoil"), SPOILT)
def test_broken_rule_is_seen(rule, spoil):
    notebook = good_notebook()
    assert rules.complaints(notebook) == []
    spoil(notebook)
    assert len(rule(notebook)) == 1


def test_check_names_the_file_and_the_remedy(tmp_path, monkeypatch, capsys):
    notebook = good_notebook()
    put(4, execution_count=7)(notebook)
    (tmp_path / "new.ipynb").write_text(nbformat.writes(notebook, indent=2), encoding="utf-8")
    (tmp_path / "page.md").write_text("[here](new.ipynb), [gone](old.md#x)", encoding="utf-8")
    files = [tmp_path / "new.ipynb", tmp_path / "page.md"]
    monkeypatch.setattr(check, "files", lambda everything: files)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "of_the_book", lambda: [])
    assert check.main([]) == 1
    said = capsys.readouterr().out
    assert "new.ipynb: run `make format`" in said
    assert "new.ipynb: the code cells have not run from first to last: run `make run NB" in said
    assert "page.md: the link to old.md leads to no file" in said and said.count("link") == 1


# The formatter.


def test_formatter_makes_a_messy_notebook_clean_and_keeps_what_it_does_not_know():
    notebook = good_notebook()
    notebook.metadata = {"kernelspec": {"name": "mine"}, "widgets": {}, "nbgrader": {"version": 3}}
    notebook.cells[1].source = "# old\nimportlib.util.find_spec('support')"
    notebook.cells[1].metadata["editable"] = False
    graded = {"nbgrader": {"grade_id": "q1", "points": 2}, "slideshow": {"slide_type": "slide"}}
    cell = notebook.cells[4]
    cell.metadata = {"execution": {"shell": "2026"}, "scrolled": True, "tags": ["hide-input"]}
    cell.metadata |= graded
    cell.outputs.append(new_output("stream", name="stderr", text="Warning"))
    widget = {"application/vnd.jupyter.widget-view+json": {}}
    cell.outputs.append(new_output("display_data", widget))
    clean = format_notebook(notebook, "x")
    assert set(clean.metadata) == {"kernelspec", "language_info", "nbgrader", "colab"}
    assert clean.metadata.kernelspec.name == "python3"
    assert clean.cells[4].metadata == graded, "no fold without a tag of ours"
    assert [out.name for out in clean.cells[4].outputs] == ["stdout"]
    assert clean.cells[1].source == bootstrap() and clean.cells[1].metadata.editable is False
    assert text_of(format_notebook(clean, "x")) == text_of(clean)


@pytest.mark.parametrize(
    ("tag", "in_book", "in_lab", "title"),
    [
        ("settings", ["hide-cell", "nbval-ignore-output"], {}, "Settings"),
        ("plot", ["hide-input"], {}, "Show the code"),
        ("checks", ["hide-cell"], {"outputs_hidden": True}, "Checks"),
    ],
)
def test_one_tag_folds_a_cell_in_the_book_in_jupyterlab_and_on_colab(tag, in_book, in_lab, title):
    cell = new_code_cell("x = 1\ny = 2", metadata={"tags": [tag]})
    cell.metadata["mystnb"] = {"image": {"alt": "a figure of x"}, "code_prompt_show": "old"}
    folded = format_notebook(new_notebook(cells=[cell]), "x").cells[0]
    assert folded.metadata.tags == [tag, *in_book]
    assert folded.metadata.mystnb.code_prompt_show == title
    assert folded.metadata.mystnb.image.alt == "a figure of x"
    assert folded.metadata.jupyter == {"source_hidden": True, **in_lab}
    assert folded.metadata.cellView == "form"
    assert folded.source == f"# @title {title}\nx = 1\ny = 2"
    folded.metadata.tags.remove(tag)
    opened = format_notebook(new_notebook(cells=[folded]), "x").cells[0]
    assert opened.source == cell.source
    assert set(opened.metadata) <= {"tags", "mystnb"} and set(opened.metadata.mystnb) == {"image"}


def test_a_section_to_go_deeper_is_folded_in_jupyterlab_and_on_colab():
    clean = format_notebook(good_notebook(), "x")
    headed = clean.cells[8]
    assert headed.metadata["jp-MarkdownHeadingCollapsed"] is True
    assert clean.metadata.colab.collapsed_sections == [headed.metadata.id] == [headed.id]
    headed.metadata.tags.clear()
    opened = format_notebook(clean, "x")
    assert "colab" not in opened.metadata and not opened.cells[8].metadata


def test_formatter_keeps_ids_and_gives_missing_ones_the_same_each_time():
    notebook = good_notebook()
    kept = notebook.cells[0].id
    del notebook.cells[4]["id"]
    notebook.cells[5].id = kept
    ids = [cell.id for cell in format_notebook(notebook, "x").cells]
    assert (ids[0], ids[4], ids[5]) == (kept, "x-5", "x-6")
    assert len(set(ids)) == len(ids)


def test_the_report_measures_what_is_in_view():
    notebook = good_notebook()
    code = [cell.source for cell in in_view(notebook) if cell.cell_type == "code"]
    assert code == ["print(1)", "print(time())"], "not what is folded"
    notebook.cells.insert(-1, new_code_cell("hidden = 1"))
    notebook.cells.append(new_markdown_cell("````{solution-start} e0\n````"))
    notebook.cells.append(new_code_cell("solved = 1"))
    notebook.cells.append(new_markdown_cell("````{solution-end}\n````\n\nTwo words."))
    true = new_output("stream", name="stdout", text="x is True\n")
    notebook.cells.append(new_code_cell("assert x\nassert y\noptimizer.step()", outputs=[true]))
    found = report.measure(notebook)
    assert (found["cells"], found["median"], found["longest"], found["in a row"]) == (3, 1, 3, 1)
    assert (found["asserts"], found["True"], found["step()"]) == (2, 1, 1)
    assert (found["exercises"], found["summary"]) == (1, 1)
    assert report.outside("x", "True", 1) and report.outside("x", "words a line", 5.9)
    assert not report.outside("x", "cells", 40) and not report.outside("x", "summary", 99)
    assert report.outside("bias", "words", 3_000) and not report.outside("x", "words", 3_000)


# Running: what is saved, and when.


def small_notebook(folder: Path, *sources: str) -> Path:
    """Return the path of a notebook with these code cells, as an editor may leave it."""
    path = folder / "small.ipynb"
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.cells[0].metadata["execution"] = {"shell": "2026"}
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    return path


def test_run_saves_a_clean_notebook_in_its_own_folder_and_nothing_of_one_that_fails(
    tmp_path, capsys
):
    path = small_notebook(
        tmp_path,
        "import os, sys\nprint(os.getcwd())",
        "for n in 1, 2:\n    print(n, flush=True)\n    print('w', file=sys.stderr, flush=True)",
        "sys.executable",
    )
    ids = [cell.id for cell in read(path).cells]
    assert run_notebooks.run(path) > 0
    cells = read(path).cells
    assert [cell.id for cell in cells] == ids
    assert [cell.execution_count for cell in cells] == [1, 2, 3]
    assert cells[0].outputs[0].text == f"{tmp_path}\n"
    assert [out.text for out in cells[1].outputs] == ["1\n2\n"]
    assert cells[2].outputs[0].data["text/plain"] == repr(sys.executable)
    assert path.read_text(encoding="utf-8") == text_of(format_notebook(read(path), path.stem))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]

    path = small_notebook(tmp_path, "print(1)", "assert 1 + 1 == 3, 'arithmetic'")
    before = path.read_bytes()
    assert run_notebooks.main([str(path)]) == 1
    assert path.read_bytes() == before
    assert "assert 1 + 1 == 3, 'arithmetic'" in capsys.readouterr().err


@pytest.mark.parametrize(("chosen", "kept"), [("laptop", ["x.data.js"]), ("smoke", [])])
def test_run_keeps_the_numbers_of_explorers_in_laptop(tmp_path, monkeypatch, chosen, kept):
    export = (
        "from pathlib import Path\nimport os\n"
        "if folder := os.environ['PRETRAIN_PLAY']:\n"
        "    (Path(folder) / 'x.data.js').write_text('x')"
    )
    path = small_notebook(tmp_path, export, "assert Path('go').exists()")
    folder = tmp_path / "_static" / "play"
    folder.mkdir(parents=True)
    monkeypatch.setattr(run_notebooks, "PLAY", folder)
    monkeypatch.setenv("PRETRAIN_PROFILE", chosen)
    with pytest.raises(CellExecutionError):
        run_notebooks.run(path)
    assert not list(folder.iterdir()), "of a notebook that fails nothing is kept"
    (tmp_path / "go").touch()
    run_notebooks.run(path)
    assert [file.name for file in folder.iterdir()] == kept


def test_figures_are_saved_small_and_look_the_same():
    figure = Figure(figsize=(5, 3))
    axes = figure.subplots()
    for slope in range(1, 6):
        axes.plot([0, 1], [0, slope], label=f"line {slope}")
    data = io.BytesIO()
    figure.savefig(data, format="png")
    before = base64.b64encode(data.getvalue()).decode()
    after = run_notebooks.smaller(before)
    assert len(after) < len(before) / 2
    one, other = (Image.open(io.BytesIO(base64.b64decode(x))) for x in (before, after))
    difference = ImageChops.difference(one.convert("RGB"), other.convert("RGB"))
    assert ImageStat.Stat(difference).mean < [0.5] * 3


def test_the_seconds_of_a_notebook_are_said_the_slowest_first(monkeypatch):
    monkeypatch.setattr(notebook_seconds, "seconds", defaultdict(float))
    for cell, taken in (("a.ipynb::1", 0.5), ("b.ipynb::1", 0.25), ("b.ipynb::2", 1), ("c.py", 9)):
        report = SimpleNamespace(nodeid=f"chapters/{cell}", duration=taken)
        notebook_seconds.pytest_runtest_logreport(report)
    lines = []
    terminal = SimpleNamespace(section=lines.append, write_line=lines.append)
    notebook_seconds.pytest_terminal_summary(terminal)
    assert lines[1:] == ["    1.2  chapters/b.ipynb", "    0.5  chapters/a.ipynb"]
