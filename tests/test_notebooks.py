"""The form of the notebooks: each rule holds for each notebook, and each rule can be broken."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image, ImageChops, ImageStat

from tests import notebook_rules as rules
from tools import address, run_notebooks
from tools.format_notebooks import bootstrap, format_notebook, notebooks, read, text_of

ROOT = address.ROOT
NOTEBOOKS = notebooks()
MEGABYTE = 1_000_000


def names(path: Path) -> str:
    """Return the path as it is shown in a test's name."""
    return path.relative_to(ROOT).as_posix()


def contents() -> list[str]:
    """Return every file that the table of contents lists, without its ending."""
    text = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    yaml.safe_load(text)
    return re.findall(r"^\s*(?:- file|root): *(\S+)\s*$", text, re.M)


FORM = [
    pytest.param(path, rule, id=f"{names(path)}-{rule.__name__}")
    for path in NOTEBOOKS
    for rule in (rules.SOLUTION_RULES if path.parent.name == "solutions" else rules.RULES)
]


@pytest.mark.parametrize(("path", "rule"), FORM)
def test_form(path, rule):
    complaints = rule(read(path))
    assert not complaints, f"{rule.__doc__}\n" + "\n".join(complaints)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_file_is_as_the_formatter_writes_it(path):
    formatted = text_of(format_notebook(read(path), path.stem))
    assert path.read_text(encoding="utf-8") == formatted, "run `make format`"


def test_contents_list_every_notebook_and_no_other():
    listed = {name for name in contents() if name.startswith(("chapters/", "solutions/"))}
    assert listed == {names(path).removesuffix(".ipynb") for path in NOTEBOOKS}


def test_contents_list_files_that_exist_once():
    listed = contents()
    assert len(set(listed)) == len(listed)
    missing = [n for n in listed if not any((ROOT / (n + e)).is_file() for e in (".md", ".ipynb"))]
    assert not missing


def test_citations_are_in_the_bibliography():
    entries = re.findall(r"^@\w+\{([^,\s]+),", (ROOT / "references.bib").read_text("utf-8"), re.M)
    assert len(set(entries)) == len(entries)
    pages = [ROOT / f"{name}.md" for name in contents() if (ROOT / f"{name}.md").is_file()]
    for path in [*NOTEBOOKS, *pages]:
        text = path.read_text(encoding="utf-8")
        cited = {key.strip() for keys in rules.CITATION.findall(text) for key in keys.split(",")}
        assert cited <= set(entries), f"{names(path)} cites what references.bib does not have"


def test_labels_of_exercises_are_unique_in_the_book():
    labels = [
        options["label"]
        for path in NOTEBOOKS
        for name, _, options in rules.directives(read(path))
        if name in ("exercise", "exercise-start") and "label" in options
    ]
    assert len(set(labels)) == len(labels)


def test_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 10 * MEGABYTE


# The bootstrap cell, in the three situations in which it is run.


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
    """Return the __init__.py of an empty `support` made in the folder."""
    (folder / "support").mkdir(parents=True)
    (folder / "support" / "profile.py").touch()
    (folder / "support" / "__init__.py").touch()
    return folder / "support" / "__init__.py"


def test_bootstrap_leaves_an_importable_support_alone(tmp_path):
    installed = make_support(tmp_path / "installed")
    make_support(tmp_path / "clone")
    (tmp_path / "clone" / "chapters").mkdir()
    before = f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})"
    assert run_bootstrap(tmp_path / "clone" / "chapters", before) == str(installed)


def test_bootstrap_finds_a_clone_that_is_not_installed(tmp_path):
    cloned = make_support(tmp_path)
    (tmp_path / "chapters").mkdir()
    assert run_bootstrap(tmp_path / "chapters") == str(cloned)


def test_bootstrap_installs_from_the_repository_elsewhere(tmp_path):
    installed = make_support(tmp_path / "site")
    (tmp_path / "content").mkdir()
    before = f"""
import subprocess, sys
def pretend(command, check):
    assert check and command[1:4] == ["-m", "pip", "install"], command
    assert command[-1] == "git+{address.repository()}", command
    sys.path.insert(0, {str(tmp_path / "site")!r})
subprocess.run = pretend"""
    assert run_bootstrap(tmp_path / "content", before) == str(installed)


# Every rule can be broken: a notebook that keeps them all, and ways to spoil it.


def good_notebook() -> nbformat.NotebookNode:
    """Return a small notebook that keeps every rule."""
    exercise = "```{{exercise}}\n:label: e{0}\nWhy?\n```\n\n"
    exercise += "```{{solution}} e{0}\n:class: dropdown\nSo.\n```"
    cells = [
        new_markdown_cell("# A title\n\nA question."),
        new_code_cell(bootstrap(), metadata={"tags": ["hide-input"]}),
        new_code_cell("print(1)", outputs=[new_output("stream", name="stdout", text="1\n")]),
        new_code_cell("assert 1 + 1 == 2, 'one and one are two'"),
        new_code_cell("assert 1 + 2 == 3, 'one and two are three'"),
        new_code_cell("torch.testing.assert_close(a, b)"),
        new_code_cell(
            "plot()",
            outputs=[new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"})],
            metadata={"mystnb": {"image": {"alt": "a line that falls"}}},
        ),
        new_markdown_cell("\n\n".join(exercise.format(n) for n in range(5))),
        new_markdown_cell(
            "## Summary\n\n- One.\n\n## References\n\n- {cite:t}`firth1957`: a line."
        ),
    ]
    notebook = new_notebook(cells=cells)
    for count, cell in enumerate(rules.cells(notebook, "code"), start=1):
        cell.execution_count = count
    return notebook


def test_good_notebook_keeps_every_rule():
    assert {rule.__name__: rule(good_notebook()) for rule in rules.RULES} == {
        rule.__name__: [] for rule in rules.RULES
    }


def edit(number: int, old: str, new: str):
    """Return a change of the source of one cell."""

    def change(notebook):
        assert old in notebook.cells[number].source
        notebook.cells[number].source = notebook.cells[number].source.replace(old, new)

    return change


def put(number: int, **values):
    """Return a change of attributes of one cell."""
    return lambda notebook: notebook.cells[number].update(nbformat.from_dict(values))


def output(number: int, *args, **values):
    """Return a change that adds one output to a cell."""
    return lambda notebook: notebook.cells[number].outputs.append(new_output(*args, **values))


ERROR = {"ename": "E", "evalue": "", "traceback": []}
WIDGET = {"application/vnd.jupyter.widget-view+json": {}}
SPOILT = [
    (rules.one_title, edit(0, "# A", "## A")),
    (rules.one_title, edit(7, "```{exercise}\n:label: e0", "# Another\n```{exercise}\n:label: e0")),
    (rules.bootstrap_first, edit(1, "git+https", "git+http")),
    (rules.bootstrap_first, put(1, metadata={})),
    (rules.bootstrap_once, edit(2, "print", "!pip install gensim\nprint")),
    (rules.bootstrap_once, edit(2, "print", "sys.path.append('..')\nprint")),
    (rules.executed_in_order, put(2, execution_count=7)),
    (rules.executed_in_order, put(2, execution_count=None)),
    (rules.no_errors, output(2, "error", **ERROR)),
    (rules.no_errors, put(2, metadata={"tags": ["raises-exception"]})),
    (rules.no_traces, put(2, metadata={"execution": {"iopub.execute_input": "2026"}})),
    (rules.no_traces, output(2, "stream", name="stderr", text="Warning")),
    (rules.no_traces, output(2, "display_data", WIDGET)),
    (rules.no_traces, lambda notebook: notebook.metadata.update(widgets={})),
    (rules.allowed_tags, put(2, metadata={"tags": ["nbval-skip"]})),
    (rules.allowed_tags, put(0, metadata={"tags": ["remove-cell"]})),
    (rules.allowed_tags, edit(2, "print", "# NBVAL_SKIP\nprint")),
    (rules.allowed_tags, edit(2, "print", "#NBVAL_IGNORE_OUTPUT\nprint")),
    (rules.allowed_tags, put(0, cell_type="raw")),
    (rules.share_compared, put(2, metadata={"tags": ["nbval-ignore-output"]})),
    (rules.share_compared, put(2, outputs=[])),
    (rules.share_compared, output(5, "display_data", {"image/png": "aGk="})),
    (rules.short_cells, put(2, source="\n".join(["print(1)"] * 26))),
    (rules.short_cells, put(2, source="")),
    (rules.checks, put(3, source="assert 1 +")),
    (rules.checks, put(3, metadata={"tags": ["hide-cell"]})),
    (rules.checks, edit(3, ", 'one and one are two'", "")),
    (rules.local_images, edit(0, "A question", "![a map](https://example.org/map.png)")),
    (rules.local_images, edit(0, "A question", '<img alt="a map" src="//example.org/map.png">')),
    (rules.local_images, edit(0, "A question", "![a map][map]\n\n[map]: https://a.org/map.png")),
    (rules.local_images, output(2, "display_data", {"text/html": "<script src=https://a.org>"})),
    (rules.local_images, put(0, attachments={"map.png": {}})),
    (rules.alt_texts, put(6, metadata={})),
    (rules.alt_texts, put(6, metadata={"mystnb": {"image": {"alt": "figure"}}})),
    (rules.alt_texts, edit(0, "A question", "![](map.png)")),
    (rules.exercises, edit(7, "{solution} e0", "{solution} e9")),
    (rules.exercises, edit(7, ":label: e0", ":label: e1")),
    (rules.exercises, edit(7, ":class: dropdown", "")),
    (rules.exercises, put(7, source="")),
    (rules.code_that_runs, edit(0, "A question", "```python\nprint(1)\n```")),
    (rules.summary, edit(8, "## Summary", "## The end")),
    (rules.summary, edit(8, "- One.", "")),
    (rules.summary, edit(8, "- One.", "- One.\n" * 6)),
    (rules.references, edit(8, "{cite:t}`firth1957`", "Firth")),
    (rules.colab_links, edit(0, "A q", "https://colab.research.google.com/github/a/b/blob/m/c q")),
]


@pytest.mark.parametrize(
    ("rule", "spoil"), SPOILT, ids=[f"{rule.__name__}-{n}" for n, (rule, _) in enumerate(SPOILT)]
)
def test_broken_rule_is_seen(rule, spoil):
    notebook = good_notebook()
    spoil(notebook)
    assert rule(notebook)


def test_every_rule_is_seen_broken():
    assert {rule for rule, _ in SPOILT} == set(rules.RULES)


# The formatter.


def test_formatter_makes_a_messy_notebook_clean():
    notebook = good_notebook()
    notebook.metadata = {"kernelspec": {"name": "mine"}, "widgets": {}, "colab": {}}
    cell = notebook.cells[2]
    cell.metadata = {"execution": {"shell": "2026"}, "collapsed": True, "tags": ["hide-input"]}
    cell.outputs.append(new_output("stream", name="stderr", text="Warning"))
    cell.outputs.append(new_output("display_data", WIDGET))
    notebook.cells[1].source = notebook.cells[1].source.replace("git+https", "git+http")
    clean = format_notebook(notebook, "x")
    assert json.dumps(clean.metadata).count("name") == 3
    assert dict(clean.cells[2].metadata) == {"tags": ["hide-input"]}
    assert [out.name for out in clean.cells[2].outputs] == ["stdout"]
    assert clean.cells[1].source == bootstrap()
    assert rules.no_traces(notebook) and not rules.no_traces(clean)


def test_formatter_keeps_ids_and_gives_missing_ones_the_same_each_time():
    notebook = good_notebook()
    kept = notebook.cells[0].id
    del notebook.cells[3]["id"]
    notebook.cells[4].id = kept
    ids = [cell.id for cell in format_notebook(notebook, "x").cells]
    assert ids == [cell.id for cell in format_notebook(notebook, "x").cells]
    assert (ids[0], ids[3], ids[4]) == (kept, "x-4", "x-5")
    assert len(set(ids)) == len(ids)


def test_formatter_is_idempotent():
    once = format_notebook(good_notebook(), "x")
    assert text_of(format_notebook(once, "x")) == text_of(once)


# Running: what is saved, and when.


def small_notebook(folder: Path, *sources: str) -> Path:
    """Return the path of a notebook with these code cells, as an editor may leave it."""
    path = folder / "small.ipynb"
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.cells[0].metadata["execution"] = {"shell": "2026"}
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    return path


def test_run_saves_a_clean_notebook_in_its_own_folder(tmp_path):
    sources = (
        "import os, sys\nprint(os.getcwd())",
        "for n in 1, 2:\n    print(n, flush=True)\n    print('w', file=sys.stderr, flush=True)",
        "sys.executable",
    )
    path = small_notebook(tmp_path, *sources)
    ids = [cell.id for cell in read(path).cells]
    assert run_notebooks.run(path) > 0
    cells = read(path).cells
    assert [cell.id for cell in cells] == ids
    assert [cell.execution_count for cell in cells] == [1, 2, 3]
    assert cells[0].outputs[0].text == f"{tmp_path}\n"
    assert [out.text for out in cells[1].outputs] == ["1\n2\n"]
    assert cells[2].outputs[0].data["text/plain"] == repr(sys.executable)
    assert not rules.no_traces(read(path))
    assert path.read_text(encoding="utf-8") == text_of(format_notebook(read(path), path.stem))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_figures_are_saved_small_and_look_the_same():
    figure = Figure(figsize=(5, 3))
    axes = figure.subplots()
    for slope in range(1, 6):
        axes.plot([0, 1], [0, slope], label=f"line {slope}")
    axes.legend()
    data = io.BytesIO()
    figure.savefig(data, format="png")
    before = base64.b64encode(data.getvalue()).decode()
    after = run_notebooks.smaller(before)
    assert len(after) < len(before) / 2
    one, other = (
        Image.open(io.BytesIO(base64.b64decode(x))).convert("RGB") for x in (before, after)
    )
    assert ImageStat.Stat(ImageChops.difference(one, other)).mean < [0.5] * 3
    dot = io.BytesIO()
    Image.new("L", (1, 1)).save(dot, "png")
    dot = base64.b64encode(dot.getvalue()).decode()
    assert run_notebooks.smaller(dot) == dot, "what saves nothing stays"


def test_run_leaves_a_notebook_that_fails_as_it_was(tmp_path, capsys):
    path = small_notebook(tmp_path, "print(1)", "assert 1 + 1 == 3, 'arithmetic'")
    before = path.read_bytes()
    assert run_notebooks.main([str(path)]) == 1
    assert path.read_bytes() == before
    assert "assert 1 + 1 == 3, 'arithmetic'" in capsys.readouterr().err


def test_the_seconds_of_a_notebook_are_said(tmp_path):
    path = small_notebook(tmp_path, "import time; time.sleep(0.3)")
    (tmp_path / "conftest.py").write_bytes((ROOT / "conftest.py").read_bytes())
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", path.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    taken = re.search(rf"seconds per notebook.*\n +([\d.]+)  {re.escape(path.name)}", done.stdout)
    assert float(taken[1]) >= 0.3
