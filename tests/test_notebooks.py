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
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image, ImageChops, ImageStat

from tests import notebook_rules as rules
from tools import address, folding, report, run_notebooks
from tools.format_notebooks import bootstrap, format_notebook, notebooks, read, text_of
from tools.notebook_parts import in_view

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
    for rule in rules.RULES
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


def test_bootstrap_passes_over_another_folder_of_that_name(tmp_path):
    (tmp_path / "elsewhere" / "support" / "tickets").mkdir(parents=True)
    cloned = make_support(tmp_path)
    (tmp_path / "chapters").mkdir()
    before = f"import sys; sys.path.insert(0, {str(tmp_path / 'elsewhere')!r})"
    assert run_bootstrap(tmp_path / "chapters", before) == str(cloned)


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
        new_code_cell(bootstrap(), metadata={"tags": ["setup"]}),
        new_code_cell("settings = profile.settings(n=3)", metadata={"tags": ["settings"]}),
        new_markdown_cell("## A section"),
        new_code_cell("print(1)", outputs=[new_output("stream", name="stdout", text="1\n")]),
        new_code_cell(
            "print(time.time())",
            outputs=[new_output("stream", name="stdout", text="17\n")],
            metadata={"tags": ["nbval-ignore-output"]},
        ),
        new_code_cell(
            "plot()",
            outputs=[new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"})],
            metadata={"tags": ["plot"], "mystnb": {"image": {"alt": "a line that falls"}}},
        ),
        new_code_cell("assert 1 + 1 == 2, 'one and one are two'", metadata={"tags": ["checks"]}),
        new_markdown_cell("## Why\n\nA proof.", metadata={"tags": ["going-deeper"]}),
        new_markdown_cell("\n\n".join(exercise.format(n) for n in range(5))),
        new_markdown_cell(
            "## Summary\n\n- One.\n\n## References\n\n- {cite:t}`firth1957`: a line."
        ),
    ]
    notebook = new_notebook(cells=cells)
    for count, cell in enumerate(rules.cells(notebook, "code"), start=1):
        cell.execution_count = count
    return format_notebook(notebook, "good")


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
    (rules.one_title, edit(3, "## A", "# A")),
    (rules.bootstrap_first, edit(1, "git+https", "git+http")),
    (rules.bootstrap_first, put(1, metadata={})),
    (rules.bootstrap_once, edit(4, "print", "!pip install gensim\nprint")),
    (rules.bootstrap_once, edit(4, "print", "sys.path.append('..')\nprint")),
    (rules.executed_in_order, put(4, execution_count=7)),
    (rules.executed_in_order, put(4, execution_count=None)),
    (rules.no_errors, output(4, "error", **ERROR)),
    (rules.no_errors, put(4, metadata={"tags": ["raises-exception"]})),
    (rules.no_traces, put(4, metadata={"execution": {"iopub.execute_input": "2026"}})),
    (rules.no_traces, output(4, "stream", name="stderr", text="Warning")),
    (rules.no_traces, output(4, "display_data", WIDGET)),
    (rules.no_traces, lambda notebook: notebook.metadata.update(widgets={})),
    (rules.allowed_tags, put(4, metadata={"tags": ["nbval-skip"]})),
    (rules.allowed_tags, put(0, metadata={"tags": ["remove-cell"]})),
    (rules.allowed_tags, put(0, metadata={"tags": ["checks"]})),
    (rules.allowed_tags, put(4, metadata={"tags": ["going-deeper"]})),
    (rules.allowed_tags, put(4, metadata={"tags": ["plot", "checks"]})),
    (rules.allowed_tags, put(4, metadata={"tags": ["play-gpt"]})),
    (rules.allowed_tags, edit(8, "## Why", "Why")),
    (rules.allowed_tags, edit(4, "print", "# NBVAL_SKIP\nprint")),
    (rules.allowed_tags, edit(4, "print", "#NBVAL_IGNORE_OUTPUT\nprint")),
    (rules.allowed_tags, put(0, cell_type="raw")),
    (rules.proven, put(7, source="print('checked')")),
    (rules.proven, put(7, metadata={"tags": ["plot"]})),
    (rules.proven, edit(7, "assert", "# assert")),
    (rules.proven, put(6, cell_type="markdown", source="### Another section")),
    (rules.settings_once, put(2, metadata={})),
    (rules.settings_once, put(4, metadata={"tags": ["settings"]})),
    (rules.settings_once, put(4, source="print(profile.settings(m=4))")),
    (rules.no_empty_cells, put(4, source=" ")),
    (rules.local_images, edit(0, "A question", "![a map](https://example.org/map.png)")),
    (rules.local_images, edit(0, "A question", '<img alt="a map" src="//example.org/map.png">')),
    (rules.local_images, edit(0, "A question", "![a map][map]\n\n[map]: https://a.org/map.png")),
    (rules.local_images, output(4, "display_data", {"text/html": "<script src=https://a.org>"})),
    (rules.local_images, put(0, attachments={"map.png": {}})),
    (rules.alt_texts, put(6, metadata={})),
    (rules.alt_texts, put(6, metadata={"mystnb": {"image": {"alt": "figure"}}})),
    (rules.alt_texts, edit(0, "A question", "![](map.png)")),
    (rules.exercises, edit(9, "{solution} e0", "{solution} e9")),
    (rules.exercises, edit(9, ":label: e0", ":label: e1")),
    (rules.exercises, edit(9, ":class: dropdown", "")),
    (rules.code_that_runs, edit(0, "A question", "```python\nprint(1)\n```")),
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
    assert {rule for rule, _ in SPOILT} == {*rules.RULES}


# The formatter.


def test_formatter_makes_a_messy_notebook_clean():
    notebook = good_notebook()
    notebook.metadata = {"kernelspec": {"name": "mine"}, "widgets": {}, "colab": {"name": "x"}}
    cell = notebook.cells[4]
    cell.metadata = {"execution": {"shell": "2026"}, "collapsed": True, "tags": ["hide-input"]}
    cell.outputs.append(new_output("stream", name="stderr", text="Warning"))
    cell.outputs.append(new_output("display_data", WIDGET))
    notebook.cells[1].source = notebook.cells[1].source.replace("git+https", "git+http")
    clean = format_notebook(notebook, "x")
    assert json.dumps(clean.metadata).count("name") == 3
    assert dict(clean.cells[4].metadata) == {}, "no fold without a tag of ours"
    assert [out.name for out in clean.cells[4].outputs] == ["stdout"]
    assert clean.cells[1].source == bootstrap()
    assert rules.no_traces(notebook) and not rules.no_traces(clean)


@pytest.mark.parametrize(
    ("tag", "in_book", "in_lab", "title"),
    [
        ("settings", ["hide-cell", "nbval-ignore-output"], {}, "Settings"),
        ("plot", ["hide-input"], {}, "Show the code of this figure"),
        ("checks", ["hide-cell"], {"outputs_hidden": True}, "Checks"),
    ],
)
def test_one_tag_folds_a_cell_in_the_book_in_jupyterlab_and_on_colab(tag, in_book, in_lab, title):
    cell = new_code_cell("x = 1\ny = 2", metadata={"tags": [tag, "nbval-ignore-output"]})
    cell.metadata["mystnb"] = {"image": {"alt": "a figure of x"}, "code_prompt_show": "old"}
    folded = format_notebook(new_notebook(cells=[cell]), "x").cells[0]
    assert set(folded.metadata.tags) == {tag, *in_book, "nbval-ignore-output"}
    assert folded.metadata.mystnb.code_prompt_show == title
    assert folded.metadata.mystnb.image.alt == "a figure of x"
    assert folded.metadata.jupyter == {"source_hidden": True, **in_lab}
    assert folded.metadata.cellView == "form"
    assert folded.source == f"# @title {title}\nx = 1\ny = 2"
    folded.metadata.tags.remove(tag)
    opened = format_notebook(new_notebook(cells=[folded]), "x").cells[0]
    assert opened.source == cell.source
    assert set(opened.metadata) == {"tags", "mystnb"} and set(opened.metadata.mystnb) == {"image"}
    assert opened.metadata.tags == ["nbval-ignore-output"]


def test_only_the_settings_are_exempt_from_comparison_by_their_tag():
    cells = [new_code_cell("x", metadata={"tags": [tag]}) for tag in folding.FOLDS]
    clean = format_notebook(new_notebook(cells=cells), "x").cells
    ignored = [folding.fold_tag(c) for c in clean if folding.IGNORED in c.metadata.tags]
    assert ignored == ["settings"]


def test_a_section_to_go_deeper_is_folded_in_jupyterlab_and_on_colab():
    clean = format_notebook(good_notebook(), "x")
    headed = clean.cells[8]
    assert headed.metadata.tags == ["going-deeper"]
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
    assert ids == [cell.id for cell in format_notebook(notebook, "x").cells]
    assert (ids[0], ids[4], ids[5]) == (kept, "x-5", "x-6")
    assert len(set(ids)) == len(ids)


def test_formatter_is_idempotent():
    once = format_notebook(good_notebook(), "x")
    assert text_of(format_notebook(once, "x")) == text_of(once)


def test_a_section_to_go_deeper_is_folded_in_the_book(tmp_path):
    cells = [
        new_markdown_cell("# Title\n\n## Before\n\nPlain."),
        new_markdown_cell("## Why\n\nFirst.", metadata={"tags": ["going-deeper"]}),
        new_code_cell("x = 1"),
        new_markdown_cell("### Within\n\nSecond."),
        new_markdown_cell("## After\n\nPlain again."),
    ]
    notebook = format_notebook(new_notebook(cells=cells), "index")
    (tmp_path / "index.ipynb").write_text(text_of(notebook), encoding="utf-8")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / '_ext')!r})\n"
        "extensions = ['myst_nb', 'folded_section']\nnb_execution_mode = 'off'\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", str(tmp_path), str(tmp_path / "_")]
    subprocess.run(command, check=True)
    page = (tmp_path / "_" / "index.html").read_text(encoding="utf-8")
    assert page.count("<details") == page.count("</details>") == 1
    before, folded, after = re.split(r"<details.*?</summary>|</details>", page, flags=re.S)
    assert "Plain." in before and 'id="why"' in before and "<h2>Why" in before
    assert "First." in folded and "<h3>Within" in folded and "Second." in folded
    assert "highlight" in folded, "the code cell"
    assert "Plain again." in after and "<h2>After" in after


def test_the_report_measures_what_is_in_view():
    notebook = good_notebook()
    assert [cell.source for cell in in_view(notebook) if cell.cell_type == "code"] == [
        "print(1)",
        "print(time.time())",
    ]
    notebook.cells.insert(-1, new_markdown_cell("### Within the folded section"))
    notebook.cells.insert(-1, new_code_cell("hidden = 1"))
    notebook.cells.append(new_markdown_cell("````{solution-start} e0\n````"))
    notebook.cells.append(new_code_cell("solved = 1"))
    notebook.cells.append(new_markdown_cell("````{solution-end}\n````\n\nTwo words."))
    notebook.cells.append(
        new_code_cell(
            "assert x\nassert y\noptimizer.step()",
            outputs=[new_output("stream", name="stdout", text="x is True\n")],
        )
    )
    measured = report.measure(notebook)
    assert (measured["cells"], measured["median"], measured["longest"]) == (3, 1, 3)
    assert (measured["asserts"], measured["True"], measured["step()"]) == (2, 1, 1)
    assert (measured["exercises"], measured["summary"]) == (5, 1)
    assert measured["in a row"] == 1
    assert report.outside("True", 1) and report.outside("words a line", 6.9)
    assert not report.outside("cells", 40) and not report.outside("summary", 99)


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


@pytest.mark.parametrize(("chosen", "kept"), [("laptop", ["x.data.js"]), ("smoke", [])])
def test_run_keeps_the_numbers_of_explorers_in_laptop(tmp_path, monkeypatch, chosen, kept):
    export = """from pathlib import Path\nimport os
        if folder := os.environ["PRETRAIN_PLAY"]:
            (Path(folder) / "x.data.js").write_text("x")"""
    path = small_notebook(
        tmp_path, export.replace("\n        ", "\n"), "assert Path('go').exists()"
    )
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
