"""The rules of form that every notebook keeps: each takes a notebook and returns complaints.

A complaint names the cell and says what to do. What the book's build or nbval finds by itself, such
as an unknown reference or a cell that fails, has no rule here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nbformat import NotebookNode

from tools import folding
from tools.notebook_parts import FENCE, assertions, cells, code, prose, sections, tags

KNOWN_NBVAL = {folding.IGNORED, "raises-exception"}
NBVAL_COMMENT = re.compile(r"^\s*#\s*(?:NBVAL_|PYTEST_VALIDATE_)\w+", re.M)
INSTALLS = re.compile(r"^\s*[!%](?:pip|conda)\b|\bsys\.path\b|[\"']pip[\"']", re.M)
PYTHON_FENCE = re.compile(r"^\s*(?:`{3,}|:{3,})\s*(?:python|py|\{code(?:-block|-cell)?\})", re.M)
DIRECTIVE = re.compile(r"\{(?P<name>[\w-]+)\}[ \t]*(?P<argument>.*)$")
REMOTE = re.compile(
    r"""!\[[^\]]*\]\(\s*<?(?:https?:)?//"""  # ![alt](https://…)
    r"""|\bsrc\s*=\s*["']?(?:https?:)?//"""  # <img src="https://…">
    r"""|\{(?:image|figure)\}\s*(?:https?:)?//""",  # ```{image} https://…
    re.I,
)

Rule = Callable[[NotebookNode], list[str]]


def directives(notebook: NotebookNode) -> list[tuple[str, str, dict[str, str]]]:
    """Return name, argument and options of each MyST directive, in order."""
    found = []
    options = None
    for line in prose(notebook):
        match = FENCE.match(line.strip())
        directive = DIRECTIVE.match(match["rest"].strip()) if match else None
        option = re.match(r"\s*:([\w-]+):\s*(.*)$", line)
        if directive:
            options = {}
            found.append((directive["name"], directive["argument"].strip(), options))
        elif option and options is not None:
            options[option[1]] = option[2].strip()
        else:
            options = None
    return found


def one_title(notebook: NotebookNode) -> list[str]:
    """The notebook opens with its title, the only heading of the first level."""
    titles = [line for line in prose(notebook) if re.match(r"# ", line)]
    opens = notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    complaints = [] if opens else ["cell 1 must open with the title: `# …`"]
    if len(titles) > 1:
        complaints.append(f"{titles[1]!r} is a second title: begin it with `##`")
    return complaints


def one_installation(notebook: NotebookNode) -> list[str]:
    """The first code cell makes `support` importable, and no other installs anything."""
    first, *rest = code(notebook)
    complaints = []
    if folding.fold_tag(first[1]) != "setup":
        complaints.append("code cell 1 must be another chapter's first: copy it, `make format`")
    return complaints + [
        f"code cell {n} installs or edits sys.path: leave that to the first"
        for n, cell in rest
        if INSTALLS.search(cell.source)
    ]


def executed_in_order(notebook: NotebookNode) -> list[str]:
    """The outputs are those of one run from first to last."""
    counts = [cell.execution_count for cell in cells(notebook, "code")]
    if counts != list(range(1, len(counts) + 1)):
        return ["the code cells have not run from first to last: run `make run NB=…`"]
    return []


def nothing_skipped(notebook: NotebookNode) -> list[str]:
    """Every cell is run by nbval, and every section to go deeper can be folded."""
    complaints = []
    for n, cell in enumerate(notebook.cells, start=1):
        nbval = {tag for tag in tags(cell) - KNOWN_NBVAL if tag.startswith("nbval")}
        if nbval or (cell.cell_type == "code" and NBVAL_COMMENT.search(cell.source)):
            complaints.append(f"cell {n} must run: of nbval's tags only {sorted(KNOWN_NBVAL)}")
        if folding.GOING_DEEPER in tags(cell) and not re.match("##+ ", cell.source):
            complaints.append(f"cell {n} is tagged going-deeper: begin it with the heading, `## …`")
    return complaints


def proven(notebook: NotebookNode) -> list[str]:
    """Where an output differs between profiles, the section has a cell of checks that asserts."""
    complaints = []
    for title, section in sections(notebook):
        loose = [c for c in section if folding.IGNORED in tags(c) and "settings" not in tags(c)]
        lab = "lab" in notebook.metadata  # its bars are asserted in view
        checked = any((lab or "checks" in tags(c)) and assertions(c.source) for c in section)
        if loose and not checked:
            ids = ", ".join(cell.id for cell in loose)
            complaints.append(
                f"section {title!r}: the outputs of {ids} are not compared: assert in a cell with "
                "the tag checks what the text says of them"
            )
    return complaints


def local_images(notebook: NotebookNode) -> list[str]:
    """A reader without a network sees every image."""
    complaints = []
    for n, cell in enumerate(notebook.cells, start=1):
        texts = [cell.source] if cell.cell_type == "markdown" else []
        for output in cell.get("outputs", []):
            texts += [v for k, v in output.get("data", {}).items() if k.startswith("text/")]
        if any(REMOTE.search(text) for text in texts) or cell.get("attachments"):
            complaints.append(f"cell {n} shows an image of another host: keep it in _static/")
    return complaints


def alt_texts(notebook: NotebookNode) -> list[str]:
    """Every figure says in words what it shows."""
    complaints = []
    for n, cell in code(notebook):
        images = [k for output in cell.outputs for k in output.get("data", {}) if "image/" in k]
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if images and len(alt.split()) < 3:
            complaints.append(f"code cell {n}: give its figure alt text, metadata mystnb.image.alt")
    images = [line for line in prose(notebook) if re.search(r"!\[\s*\]", line)]
    return complaints + [f"give the image alt text: {line}" for line in images]


def captions(notebook: NotebookNode) -> list[str]:
    """A figure with a caption has a name, by which the text refers to it."""
    text = "\n".join(prose(notebook))
    complaints = []
    for n, cell in code(notebook):
        figure = cell.metadata.get("mystnb", {}).get("figure")
        if figure is not None and not (figure.get("name") and figure.get("caption")):
            complaints.append(f"code cell {n}: mystnb.figure needs both a name and a caption")
        elif figure and f"{{numref}}`{figure['name']}`" not in text:
            complaints.append(f"refer to the figure of code cell {n}: {{numref}}`{figure['name']}`")
    return complaints


def solved(notebook: NotebookNode) -> list[str]:
    """Each exercise has a solution, folded away."""
    found = directives(notebook)
    exercises = [o.get("label", "") for name, _, o in found if name.startswith("exercise")]
    solutions = {a: o.get("class", "") for name, a, o in found if name.startswith("solution")}
    complaints = [
        f"exercise {label!r}: write its {{solution-start}} {label}"
        for label in exercises
        if label and label not in solutions
    ]
    return complaints + [
        f"the solution to {label} is not folded: give it `:class: dropdown`"
        for label, kind in solutions.items()
        if label and "dropdown" not in kind.split()
    ]


def code_that_runs(notebook: NotebookNode) -> list[str]:
    """Python is in code cells, where it is run, and not in fences, where it may rot."""
    return [
        f"markdown cell {n} has a fence of Python, which no test runs: make it a code cell"
        for n, cell in enumerate(cells(notebook, "markdown"), start=1)
        if PYTHON_FENCE.search(cell.source)
    ]


RULES: tuple[Rule, ...] = (
    one_title,
    one_installation,
    executed_in_order,
    nothing_skipped,
    proven,
    local_images,
    alt_texts,
    captions,
    solved,
    code_that_runs,
)


def complaints(notebook: NotebookNode) -> list[str]:
    """Return what is wrong with the form of a notebook, a line each, with the remedy."""
    return [complaint for rule in RULES for complaint in rule(notebook)]
