"""The edition without solutions: no line of one is in any file of it."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import zlib
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tools import address
from tools.labs import SOLUTION

EXERCISES = """\
## Exercises

```{exercise} Short
:label: short
What is a question of an exercise?
```

````{solution} short
:class: dropdown

```python
secret_code_in_a_directive = 1
```
````

```{exercise} Long
:label: long
Another question, of a longer exercise.
```

````{solution-start} long
:class: dropdown
````

A secret sentence before the secret code.
"""
END = """\
A secret sentence after the secret code.

````{solution-end}
````

What follows the solutions is to stay.
"""
SETTINGS = {
    "extensions": [
        "myst_nb", "sphinx_external_toc", "sphinx_exercise", "sphinxcontrib.bibtex", "solutions",
        "tools.plain_notebooks",
    ],
    "bibtex_bibfiles": [],
    "exclude_patterns": ["out"],
    "external_toc_path": "_toc.yml",
    "html_sourcelink_suffix": "",
    "html_title": "A book",
    "myst_enable_extensions": ["colon_fence", "dollarmath"],
    "nb_execution_mode": "off",
    "suppress_warnings": ["bibtex"],
}  # fmt: skip
CONTENTS = """\
format: jb-book
root: index
chapters: [{file: chapters/bpe}, {file: labs/bpe}, {file: solutions/exercise_27_3}]
"""


def write(book: Path) -> set[str]:
    """Write a book of a chapter, a lab and a solution, and return the lines of all solutions."""
    for name in ("labs/bpe.ipynb", "solutions/exercise_27_3.ipynb"):
        (book / name).parent.mkdir()
        shutil.copy(address.ROOT / name, book / name)
    output = new_output("stream", text="the secret output of the code\n")
    cells = [
        new_markdown_cell("# A chapter"),
        new_markdown_cell(EXERCISES),
        new_code_cell("secret_code = 'of a long solution'", outputs=[output]),
        new_markdown_cell(END),
    ]
    (book / "chapters").mkdir()
    nbformat.write(new_notebook(cells=cells), book / "chapters" / "bpe.ipynb")
    (book / "index.md").write_text("# Index\n\nSee [](solutions/exercise_27_3.ipynb).\n")
    (book / "_toc.yml").write_text(CONTENTS)
    lab = nbformat.read(book / "labs/bpe.ipynb", 4)
    solved = nbformat.read(book / "solutions/exercise_27_3.ipynb", 4)
    setup = next(cell.source for cell in solved.cells if cell.cell_type == "code")  # as in labs
    title = solved.cells[0].source.partition("\n")[0]
    texts = [m[0] for c in lab.cells if c.cell_type == "code" for m in SOLUTION.finditer(c.source)]
    texts += [cell.source for cell in solved.cells]
    rest = "\n".join([setup, title, *(SOLUTION.sub("", cell.source) for cell in lab.cells)])
    lines = {line.strip() for text in texts for line in text.split("\n")} | {output.text.strip()}
    lines = {line for line in lines if len(line) > 20 and line not in rest and "### " not in line}
    return lines | {line for cell in cells for line in cell.source.split("\n") if "secret" in line}


def strings(value: object) -> str:
    """Return all strings in a notebook, joined."""
    if isinstance(value, dict):
        return "\n".join(map(strings, value.values()))
    return "".join(map(strings, value)) if isinstance(value, list) else str(value)


def contents(folder: Path) -> str:
    """Return what a reader can find in the files of a folder, pages without their tags."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".ipynb":
            text = strings(json.loads(text))
        elif path.suffix == ".html":
            text += html.unescape(re.sub(r"<[^>]+>", "", text))
        elif path.name == "objects.inv":
            text = zlib.decompress(path.read_bytes().split(b"zlib.\n", 1)[1]).decode()
        found.append(text)
    return "\n".join(found)


def build(book: Path, solutions: str) -> str:
    """Build the book, its doctrees being kept, and return what is in its files."""
    folders = ("out/html", "out/colab", "out/jupyter_execute")
    for folder in folders:
        shutil.rmtree(book / folder, ignore_errors=True)
    warnings = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, patch_docutils(), docutils_namespace():
        patch.syspath_prepend(str(address.ROOT / "_ext"))
        patch.setenv("SOLUTIONS", solutions)
        places = book, None, book / "out" / "html", book / "out" / "doctrees"
        Sphinx(*places, "html", SETTINGS, status=None, warning=warnings).build()
    assert solutions == "all" or not warnings.getvalue()
    return "\n".join(contents(book / folder) for folder in folders)


@pytest.mark.exhaustive
def test_no_line_of_a_solution_is_in_the_book_without_solutions(tmp_path):
    lines = write(tmp_path)
    assert len(lines) > 100
    whole = build(tmp_path, "all")
    assert {line for line in lines if line not in whole} == set()
    left_out = build(tmp_path, "none")
    assert {line for line in lines if line in left_out} == set()
    assert 'raise NotImplementedError("write this part")' in left_out
    assert "The solutions are left out of this edition." in left_out
    assert "Another question, of a longer exercise." in left_out
    assert "What follows the solutions is to stay." in left_out
    assert (tmp_path / "out" / "colab" / "labs" / "bpe.ipynb").exists()
    assert "A secret sentence after the secret code." in build(tmp_path, "all"), "the way back"
