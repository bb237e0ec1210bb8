"""Markdown and notebooks without MyST's markup: what the book prints, in any viewer."""

from __future__ import annotations

import json
import re
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import archive, colab, lab


class Numbers:
    """A book that answers with what it was asked."""

    origin = "[the book](https://book.test/page.html)"

    def refer(self, role, content):
        return f"<{role}: {content}>"

    def link(self, target):
        return f"https://book.test/{target}", "a title"

    def equation(self, label):
        return {"loss": "5.1"}[label]

    def exercise(self, label):
        return {"count": "Exercise 5.2"}[label]


def convert(*cells: str) -> list[str]:
    """Return the plain form of Markdown cells that follow each other."""
    converter = colab.Converter(Numbers())
    return [converter.cell(cell) for cell in cells]


PLAIN = {
    "a citation": ("see {cite:p}`a2013,\nb2014`.", "see <cite:p: a2013, b2014>."),
    "code": ("`{eq}` and ``a `{eq}`b` c``", "`{eq}` and ``a `{eq}`b` c``"),
    "a formula": ("$f[a](b)$ and $\\{x\\}$", "$f[a](b)$ and $\\{x\\}$"),
    "a link": ("[GPT](gpt.ipynb#mask)", "[GPT](https://book.test/gpt.ipynb#mask)"),
    "a target": ("(here)=\n\n## Heading\n\nText", "## Heading\n\nText"),
    "an equation": ("$$\na\n$$ (loss)\n\nb", "$$\na \\tag{5.1}\n$$\n\nb"),
    "an equation of two lines": (
        "```{math}\n:label: loss\na &= b \\\\\n&= c\n```",
        "$$\n\\begin{split}\na &= b \\\\\n&= c\n\\end{split} \\tag{5.1}\n$$",
    ),
    "a note": ("```{note}\nMind {eq}`loss`.\n```", "> **Note.** Mind <eq: loss>."),
    "colons": (":::{warning}\nHot.\n:::\nAfter", "> **Warning.** Hot.\nAfter"),
    "code in a fence": ("```python\n{eq}`loss`\n```", "```python\n{eq}`loss`\n```"),
    "an exercise": (
        "```{exercise} ★ How much?\n:label: count\nCount.\n```",
        "**Exercise 5.2 (★ How much?)**\n\nCount.",
    ),
    "a solution": (
        "```{solution} count\n:class: dropdown\nFive.\n```",
        "<details>\n<summary>Solution to Exercise 5.2</summary>\n\nFive.\n\n</details>",
    ),
}


@pytest.mark.parametrize("case", PLAIN)
def test_plain_form(case):
    source, expected = PLAIN[case]
    assert convert(source) == [expected]


START, END = "```{solution-start} count\n:class: dropdown\n```\n", "```{solution-end}\n```\n"


def folded(summary: str, text: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def test_solution_is_folded_over_several_cells():
    assert convert(f"Before.\n\n{START}\nFirst.", "Second.", f"Third.\n\n{END}\nAfter.") == [
        "Before.\n\n" + folded("Solution to Exercise 5.2", "First."),
        folded("Solution to Exercise 5.2, continued", "Second."),
        folded("Solution to Exercise 5.2, continued", "Third.") + "\n\nAfter.",
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("```{list-table}\n- * a\n```", "directive {list-table}"),
        ("a\n\n:::\nb", ":::"),
        ("[z]\n\n[z]: gpt.ipynb", "a link to gpt.ipynb"),
        ("````{note}\n```{solution-start} count\n```\n````", "inside another block"),
    ],
)
def test_markup_without_a_plain_form_is_refused(source, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        convert(source)


def test_code_cells_stay_but_for_the_fold_of_a_solution():
    output = nbformat.v4.new_output("stream", text="1\n")
    kept = new_code_cell("x = 1\nx", metadata={"tags": ["a"]}, outputs=[output])
    solved = new_code_cell("y = 2", metadata={"tags": ["b"]}, outputs=[output], execution_count=3)
    cells = [new_markdown_cell("# T\n\na"), kept, new_markdown_cell(START), solved]
    cells += [new_code_cell("%%time\nz = 3"), new_markdown_cell(END), new_code_cell("after")]
    notebook = new_notebook(cells=cells)
    before = json.dumps(notebook)
    plain = colab.plain(notebook, Numbers())
    assert json.dumps(notebook) == before, "the notebook that is given stays as it is"
    title, first, second, third, after = plain.cells
    assert title.source == "# T\n\nFrom [the book](https://book.test/page.html).\n\na"
    assert (first, after) == (kept, notebook.cells[-1])
    assert second.source == "# @title Solution to Exercise 5.2\ny = 2"
    assert second.metadata.tags == ["b"] and second.metadata.cellView == "form"
    assert second.metadata.jupyter == {"source_hidden": True, "outputs_hidden": True}
    assert (second.outputs, second.execution_count, second.id) == ([output], 3, solved.id)
    assert third.source == "%%time\nz = 3", "a magic must stay in the first line"


def test_caption_is_a_cell_below_the_figure():
    figure = {"name": "curve", "caption": "The loss of {eq}`loss` falls."}
    plot = new_code_cell("plot()", metadata={"mystnb": {"figure": figure}})
    cells = [new_markdown_cell("# T"), plot, new_code_cell("after")]
    _, shown, caption, after = colab.plain(new_notebook(cells=cells), Numbers()).cells
    assert (shown, after) == (plot, cells[-1])
    assert caption.source == "**<numref: curve>** The loss of <eq: loss> falls."


def test_above_an_explorer_s_figure_is_a_link_to_its_page():
    said = new_markdown_cell("## How *low*?\n\nIt falls.\n\nNow press it.\nTwice.")
    figure = new_code_cell("draw()", metadata={"tags": ["plot", "play-gpt"]})
    cells = [new_markdown_cell("# T"), said, figure]
    plain = colab.plain(new_notebook(cells=cells), Numbers())
    note = "Interactive [on the page](https://book.test/#how-low); below is a still figure."
    assert plain.cells[1].source == (
        f"## How *low*?\n\nIt falls.\n\n> **{note}** Now press it.\n> Twice."
    )
    assert plain.cells[2] == figure


def test_copies_to_change_stay_as_their_reader_left_them(tmp_path):
    plain, mine = tmp_path / "plain", tmp_path / "mine"
    for name in ("chapters/gpt", "chapters/bert", "solutions/exercise_27_1"):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        (plain / f"{name}.ipynb").write_text("first")
    assert lab.copy(plain, mine).endswith("yours to change")
    (mine / "gpt.ipynb").write_text("my own")
    assert lab.copy(plain, mine).endswith("kept as you have changed them: gpt.ipynb")
    for path in (plain / "chapters").iterdir():
        path.write_text("second")
    assert lab.copy(plain, mine).endswith("delete to get the newer ones: gpt.ipynb")
    texts = {path.name: path.read_text() for path in mine.glob("*.ipynb")}
    assert texts == {
        "bert.ipynb": "second",
        "exercise_27_1.ipynb": "first",
        "gpt.ipynb": "my own",
    }


def test_the_archive_of_the_same_pages_is_the_same(tmp_path, monkeypatch):
    book = tmp_path / "html"
    for name in ("b.html", "zh/a.html"):
        (book / name).parent.mkdir(exist_ok=True, parents=True)
        (book / name).write_text(name)
    archive.pack(book, tmp_path / "book.zip")
    first = (tmp_path / "book.zip").read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    (book / "b.html").touch(mode=0o600)
    archive.pack(book, tmp_path / "book.zip")
    assert (tmp_path / "book.zip").read_bytes() == first
    names = archive.zipfile.ZipFile(tmp_path / "book.zip").namelist()
    assert names == ["book/b.html", "book/zh/a.html"]
