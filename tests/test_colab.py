"""Markdown and notebooks without MyST's markup: what the book prints, in any viewer."""

from __future__ import annotations

import io
import json
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tools import address, colab


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
    "a number": ("by {eq}`loss`, *so*", "by <eq: loss>, *so*"),
    "a term in a table": ("| a |\n|---|\n| {term}`token` |", "| a |\n|---|\n| <term: token> |"),
    "an abbreviation": ("{abbr}`MLM (masked)`", "MLM (masked)"),
    "code": ("`{eq}` and ``a `{eq}`b` c``", "`{eq}` and ``a `{eq}`b` c``"),
    "a formula": ("$f[a](b)$ and $\\{x\\}$", "$f[a](b)$ and $\\{x\\}$"),
    "prices": ("\\$5 [a](b.ipynb) \\$6", "\\$5 [a](https://book.test/b.ipynb) \\$6"),
    "a link": ("[GPT](gpt.ipynb#mask)", "[GPT](https://book.test/gpt.ipynb#mask)"),
    "a link without words": ("[](gpt.ipynb)", "[a title](https://book.test/gpt.ipynb)"),
    "a link outside": ("[x](https://x.test/a 'b')", "[x](https://x.test/a 'b')"),
    "a role in a link": ("[{eq}`loss`](#a)", "[<eq: loss>](https://book.test/#a)"),
    "an image": ("![a [b] c](../a.svg)", "![a [b] c](https://book.test/../a.svg)"),
    "a target": ("(here)=\n\n## Heading\n\nText", "## Heading\n\nText"),
    "a comment": ("% note\n\nText\n+++\nMore", "Text\nMore"),
    "a footnote": ("Text[^1]\n\n[^1]: note", "Text[^1]\n\n[^1]: note"),
    "an equation": ("$$\na\n$$ (loss)\n\nb", "$$\na \\tag{5.1}\n$$\n\nb"),
    "an equation of its own": ("$$\na = b\n$$", "$$\na = b\n$$"),
    "an equation of two lines": (
        "```{math}\n:label: loss\na &= b \\\\\n&= c\n```",
        "$$\n\\begin{split}\na &= b \\\\\n&= c\n\\end{split} \\tag{5.1}\n$$",
    ),
    "cases": (
        "$$\n\\begin{cases} a \\\\ b \\end{cases}\n$$",
        "$$\n\\begin{cases} a \\\\ b \\end{cases}\n$$",
    ),
    "an environment": (
        "\\begin{align}\na &= b \\\\\n\\end{align}",
        "\\begin{align}\na &= b \\\\\n\\end{align}",
    ),
    "an equation in a list": (
        "- item\n\n  $$\n  a\n  $$ (loss)\n- next",
        "- item\n\n  $$\n  a \\tag{5.1}\n  $$\n- next",
    ),
    "a note": ("```{note}\nMind {eq}`loss`.\n```", "> **Note.** Mind <eq: loss>."),
    "a note with a list": ("```{tip}\n- a\n- b\n```", "> **Tip**\n>\n> - a\n> - b"),
    "a title": ("```{admonition} Why?\n:class: tip\nSo.\n```", "> **Why?** So."),
    "colons": (":::{warning}\nHot.\n:::\nAfter", "> **Warning.** Hot.\nAfter"),
    "a note in a note": (
        "````{note}\nA\n\n```{tip}\nB\n```\n````",
        "> **Note.** A\n>\n> > **Tip.** B",
    ),
    "a note in a list": ("1. item\n   ```{note}\n   A\n   ```", "1. item\n   > **Note.** A"),
    "a note in a quotation": ("> ```{note}\n> A\n> ```", "> > **Note.** A"),
    "a dropdown": (
        "```{dropdown} More\nText\n```",
        "<details>\n<summary>More</summary>\n\nText\n\n</details>",
    ),
    "a listing": ("```{code-block} python\nx = 1\n```", "```python\nx = 1\n```"),
    "code in a fence": ("```python\n{eq}`loss`\n```", "```python\n{eq}`loss`\n```"),
    "indented code": ("a\n\n    {eq}`loss`\n\nb", "a\n\n    {eq}`loss`\n\nb"),
    "an exercise": (
        "```{exercise} ★ How much?\n:label: count\nCount.\n```",
        "**Exercise 5.2 (★ How much?)**\n\nCount.",
    ),
    "an exercise of several cells": (
        "```{exercise-start}\n:label: count\n```\n\nCount.\n\n```{exercise-end}\n```",
        "**Exercise 5.2**\n\nCount.",
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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see {eq}`loss`, *so*", "{eq}`loss`"),
        ("| a |\n|---|\n| {term}`token` |", "{term}`token`"),
        ("> (here)=\n> text", "(here)="),
        ("- ```{note}\n  a\n  ```", "```{note}"),
        ("![a](b.svg)", "a link to b.svg"),
        ("[a](https://b.test) `{eq}` $f(x)$ \n\n```python\n{eq}`a`\n```", ""),
    ],
)
def test_what_only_the_book_understands_is_found(text, left):
    assert colab.markup_left(text) == left


def test_code_cells_stay_but_for_the_fold_of_a_solution():
    output = nbformat.v4.new_output("stream", text="1\n")
    kept = new_code_cell("x = 1\nx", metadata={"tags": ["a"], "cellView": "form"}, outputs=[output])
    solved = new_code_cell("y = 2", metadata={"tags": ["b"]}, outputs=[output], execution_count=3)
    magic = new_code_cell("%%time\nz = 3")
    cells = [new_markdown_cell("# T\n\na"), kept, new_markdown_cell(START), solved, magic]
    notebook = new_notebook(cells=[*cells, new_markdown_cell(END), new_code_cell("after")])
    before = json.dumps(notebook)
    plain = colab.plain(notebook, Numbers())
    assert json.dumps(notebook) == before, "the notebook that is given stays as it is"
    nbformat.validate(plain)
    title, first, second, third, after = plain.cells
    assert title.source == "# T\n\nFrom [the book](https://book.test/page.html).\n\na"
    assert (first, after) == (kept, notebook.cells[-1])
    assert second.source == "# @title Solution to Exercise 5.2\ny = 2"
    assert second.metadata == {
        "tags": ["b"],
        "cellView": "form",
        "collapsed": True,
        "jupyter": {"source_hidden": True, "outputs_hidden": True},
    }
    assert (second.outputs, second.execution_count, second.id) == ([output], 3, solved.id)
    assert third.source == "%%time\nz = 3", "a magic must stay in the first line"


# A book of two pages, built by Sphinx itself.

BIB = """\
@article{a2013, author = {Mikolov, Tomas and Chen, Kai and Dean, Jeffrey}, title = {T}, year = 2013,
  journal = {J}, doi = {10.1/a(b)}}
@book{b1949, author = {Zipf, George}, title = {U}, publisher = {P}, year = 1949}
"""
INDEX = """\
# Index

```{toctree}
:numbered:
chapters/first
chapters/other
glossary
broken
```

```{bibliography}
```
"""
FIRST = """\
# First

{cite:p}`a2013` and {cite:t}`b1949`; {term}`token`; {ref}`label`; {ref}`here <label>`;
{numref}`count`; {ref}`count`; {eq}`loss`; [](other.md); [there](other.md#a-second-heading);
[file](../a.py); [term](../glossary.md#term-token); {doc}`/glossary`

(label)=
## A heading

$$
a
$$ (loss)

```{exercise} How much?
:label: count
Count.
```
"""


@pytest.fixture(scope="module")
def small_book(tmp_path_factory):
    """Build a book and return its folder, its plain notebook's text, and Sphinx's warnings."""
    source, out = tmp_path_factory.mktemp("book"), tmp_path_factory.mktemp("out")
    (source / "chapters").mkdir()
    cells = [new_markdown_cell(FIRST), new_code_cell("1 + 1")]
    nbformat.write(new_notebook(cells=cells), source / "chapters" / "first.ipynb")
    broken = new_notebook(cells=[new_markdown_cell("# B\n\n```{csv-table}\na, b\n```")])
    nbformat.write(broken, source / "broken.ipynb")
    files = {
        "index.md": INDEX,
        "chapters/other.md": "# Other\n\n## A second heading\n\n{eq}`loss`\n",
        "glossary.md": "# Glossary\n\n```{glossary}\ntoken\n  A piece.\n```\n",
        "references.bib": BIB,
        "a.py": "",
    }
    for name, text in files.items():
        (source / name).write_text(text, encoding="utf-8")
    settings = {
        "extensions": [
            "myst_nb",
            "sphinx_exercise",
            "sphinxcontrib.bibtex",
            "tools.plain_notebooks",
        ],
        "bibtex_bibfiles": ["references.bib"],
        "bibtex_reference_style": "author_year",
        "html_title": "A book",
        "myst_enable_extensions": ["dollarmath"],
        "myst_heading_anchors": 3,
        "nb_execution_mode": "off",
        "numfig": True,
        "root_doc": "index",
    }
    warnings = io.StringIO()
    with patch_docutils(), docutils_namespace():
        folders = source, None, out / "html", out / "doctrees"
        app = Sphinx(*folders, "html", settings, status=None, warning=warnings)
        app.build()
    return out, warnings.getvalue()


def test_a_page_and_its_notebook_refer_alike(small_book):
    out, _ = small_book
    notebook = nbformat.read(out / "colab" / "chapters" / "first.ipynb", as_version=4)
    book = address.pages(address.repository())
    assert notebook.cells[0].source.split("\n\n", 2)[1] == (
        f"From [A book]({book}chapters/first.html)."
    )
    assert re.split(r";\s", notebook.cells[0].source.split("\n\n")[2]) == [
        "([Mikolov *et al.*, 2013](https://doi.org/10.1/a%28b%29)) and "
        f"Zipf ([1949]({book}index.html#id3))",
        f"[token]({book}glossary.html#term-token)",
        f"[A heading]({book}chapters/first.html#label)",
        f"[here]({book}chapters/first.html#label)",
        "Exercise 1.1",
        "Exercise 1.1",
        "(1.1)",
        f"[Other]({book}chapters/other.html)",
        f"[there]({book}chapters/other.html#a-second-heading)",
        f"[file]({address.repository()}/blob/main/a.py)",
        f"[term]({book}glossary.html#term-token)",
        f"[Glossary]({book}glossary.html)",
    ]
    assert "## A heading\n\n$$\na \\tag{1.1}\n$$\n\n**Exercise 1.1 (How much?)**" in (
        notebook.cells[0].source
    )
    assert notebook.cells[1].source == "1 + 1"


def test_download_is_the_plain_notebook(small_book):
    out, _ = small_book
    plain = (out / "colab" / "chapters" / "first.ipynb").read_bytes()
    assert (out / "html" / "_sources" / "chapters" / "first.ipynb").read_bytes() == plain


def test_build_warns_of_a_notebook_that_cannot_be_plain(small_book):
    out, warnings = small_book
    said = "the plain notebook is not written: no plain form is known for the directive {csv-table}"
    assert said in warnings
    assert not (out / "colab" / "broken.ipynb").exists()
