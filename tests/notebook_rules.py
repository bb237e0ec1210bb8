"""The rules of form that every notebook keeps: each takes a notebook and returns complaints."""

from __future__ import annotations

import re
from collections.abc import Callable

from nbformat import NotebookNode

from tools import address, folding
from tools.format_notebooks import bootstrap
from tools.notebook_parts import FENCE, assertions, cells, code, prose, sections, tags

ALLOWED_TAGS = {
    "code": {*folding.FOLDS, *folding.DERIVED_TAGS, folding.IGNORED, "raises-exception"},
    "markdown": {folding.GOING_DEEPER},
}
NBVAL_COMMENT = re.compile(r"^\s*#\s*(?:NBVAL_|PYTEST_VALIDATE_)\w+", re.M)
DIRECTIVE = re.compile(r"\{(?P<name>[\w-]+)\}[ \t]*(?P<argument>.*)$")
CITATION = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")
REMOTE = re.compile(
    r"""!\[[^\]]*\]\(\s*<?(?:https?:)?//"""  # ![alt](https://…)
    r"""|\bsrc\s*=\s*["']?(?:https?:)?//"""  # <img src="https://…">
    r"""|\{(?:image|figure)\}\s*(?:https?:)?//"""  # ```{image} https://…
    r"""|^\[[^\]]+\]:\s*<?\S+\.(?:png|jpe?g|gif|svg|webp)\b""",  # [alt]: https://….png
    re.M | re.I,
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
    complaints = [] if opens else ["the first cell does not open with the title, `# …`"]
    if len(titles) != 1:
        complaints.append(f"{len(titles)} headings of the first level, but 1 is allowed: {titles}")
    return complaints


def bootstrap_first(notebook: NotebookNode) -> list[str]:
    """The first code cell is the bootstrap cell, byte for byte, its input folded away."""
    first = cells(notebook, "code")[0]
    if first.source != bootstrap() or folding.fold_tag(first) != "setup":
        return ["the first code cell is not the bootstrap cell: run `make format`"]
    return []


def bootstrap_once(notebook: NotebookNode) -> list[str]:
    """Only the first code cell installs anything or touches the path."""
    pattern = re.compile(r"^\s*[!%](?:pip|conda)\b|\bsys\.path\b|[\"']pip[\"']", re.M)
    return [
        f"code cell {n} installs or edits sys.path"
        for n, cell in code(notebook)[1:]
        if pattern.search(cell.source)
    ]


def executed_in_order(notebook: NotebookNode) -> list[str]:
    """Every code cell has run, once, from first to last."""
    counts = [cell.execution_count for cell in cells(notebook, "code")]
    if counts != list(range(1, len(counts) + 1)):
        return [f"execution counts are {counts}: run `make run NB=…`"]
    return []


def no_errors(notebook: NotebookNode) -> list[str]:
    """A cell ends in an error when, and only when, it is tagged raises-exception."""
    complaints = []
    for n, cell in code(notebook):
        failed = any(output.output_type == "error" for output in cell.outputs)
        if failed != ("raises-exception" in tags(cell)):
            verb = "fails without" if failed else "does not fail in spite of"
            complaints.append(f"code cell {n} {verb} the tag raises-exception")
    return complaints


def no_traces(notebook: NotebookNode) -> list[str]:
    """Nothing is kept of one run: no times, no warnings on stderr, no widgets."""
    complaints = ["widget state in the metadata"] if "widgets" in notebook.metadata else []
    for n, cell in code(notebook):
        if "execution" in cell.metadata:
            complaints.append(f"code cell {n} keeps its execution times")
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                complaints.append(f"code cell {n} has output on stderr")
            if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                complaints.append(f"code cell {n} shows a widget")
    return complaints


def allowed_tags(notebook: NotebookNode) -> list[str]:
    """No tag but the few that are allowed, and no comment that steers nbval: nothing is skipped."""
    complaints = []
    for n, cell in enumerate(notebook.cells, start=1):
        plays = {tag for tag in tags(cell) if tag.startswith("play-") and "plot" in tags(cell)}
        if unknown := tags(cell) - ALLOWED_TAGS.get(cell.cell_type, set()) - plays:
            complaints.append(f"{cell.cell_type} cell {n} has the tags {sorted(unknown)}")
        if len(tags(cell) & set(folding.FOLDS)) > 1:
            complaints.append(f"cell {n} is folded by more than one tag: {sorted(tags(cell))}")
        if folding.GOING_DEEPER in tags(cell) and not re.match("##+ ", cell.source):
            complaints.append(f"cell {n} is tagged going-deeper, but opens with no heading")
        if cell.cell_type == "code" and NBVAL_COMMENT.search(cell.source):
            complaints.append(f"cell {n} has a comment for nbval, but only tags are allowed")
        if cell.cell_type == "raw":
            complaints.append(f"cell {n} is raw, neither text nor code")
    return complaints


def proven(notebook: NotebookNode) -> list[str]:
    """Where an output differs between profiles, the section has a cell of checks that asserts."""
    complaints = []
    for title, section in sections(notebook):
        loose = [c for c in section if folding.IGNORED in tags(c) and "settings" not in tags(c)]
        checked = any("checks" in tags(cell) and assertions(cell.source) for cell in section)
        if loose and not checked:
            ids = ", ".join(cell.id for cell in loose)
            complaints.append(f"section {title!r}: nothing is asserted about the outputs of {ids}")
    return complaints


def settings_once(notebook: NotebookNode) -> list[str]:
    """One cell at most holds the settings, and no other calls `profile.settings`."""
    tagged = [n for n, cell in code(notebook) if "settings" in tags(cell)]
    calling = [n for n, cell in code(notebook) if "profile.settings(" in cell.source]
    if len(tagged) > 1 or tagged != calling:
        return [f"code cells {tagged} are tagged settings, {calling} call profile.settings"]
    return []


def no_empty_cells(notebook: NotebookNode) -> list[str]:
    """No cell is empty."""
    return [f"cell {n} is empty" for n, c in enumerate(notebook.cells, 1) if not c.source.strip()]


def local_images(notebook: NotebookNode) -> list[str]:
    """No image, script or frame comes from another host, and none is an attachment."""
    complaints = []
    for n, cell in enumerate(notebook.cells, start=1):
        texts = [cell.source] if cell.cell_type == "markdown" else []
        for output in cell.get("outputs", []):
            texts += [v for k, v in output.get("data", {}).items() if k.startswith("text/")]
        if any(REMOTE.search(text) for text in texts):
            complaints.append(f"cell {n} shows something from another host")
        if cell.get("attachments"):
            complaints.append(f"cell {n} has an attachment, which the book cannot show")
    return complaints


def alt_texts(notebook: NotebookNode) -> list[str]:
    """Every figure says in words what it shows, in the metadata mystnb.image.alt."""
    complaints = []
    for n, cell in code(notebook):
        images = [k for output in cell.outputs for k in output.get("data", {}) if "image/" in k]
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if images and len(alt.split()) < 3:
            complaints.append(f"code cell {n} shows a figure without alt text: {alt!r}")
    complaints += [
        f"an image without alt text: {line}"
        for line in prose(notebook)
        if re.search(r"!\[\s*\]", line)
    ]
    return complaints


def exercises(notebook: NotebookNode) -> list[str]:
    """Each exercise has one solution of the same label, folded away."""
    found = directives(notebook)
    labels = [
        options.get("label", "")
        for name, _, options in found
        if name in ("exercise", "exercise-start")
    ]
    solutions = [
        (argument, options.get("class", ""))
        for name, argument, options in found
        if name in ("solution", "solution-start")
    ]
    solved = [argument for argument, _ in solutions]
    complaints = []
    if "" in labels or len(set(labels)) < len(labels):
        complaints.append(f"labels of exercises are missing or given twice: {labels}")
    if sorted(solved) != sorted(labels):
        complaints.append(f"exercises {sorted(labels)} but solutions to {sorted(solved)}")
    complaints += [
        f"the solution to {label} is not folded: give it `:class: dropdown`"
        for label, kind in solutions
        if "dropdown" not in kind.split()
    ]
    return complaints


def code_that_runs(notebook: NotebookNode) -> list[str]:
    """Python stands in code cells, where it is run, and not in fences, where it may rot."""
    return [
        f"markdown cell {n} has a fence of Python, which no test runs"
        for n, cell in enumerate(cells(notebook, "markdown"), start=1)
        if re.search(
            r"^\s*(?:`{3,}|:{3,})\s*(?:python|py|\{code(?:-block|-cell)?\})", cell.source, re.M
        )
    ]


def colab_links(notebook: NotebookNode) -> list[str]:
    """A link to Colab in the text opens a notebook of this repository."""
    start = address.colab(address.repository(), "")
    links = re.findall(
        r"https://colab\.research\.google\.com/[^\s)>\"'`]*", "\n".join(prose(notebook))
    )
    return [f"{link} does not start with {start}" for link in links if not link.startswith(start)]


RULES: tuple[Rule, ...] = (
    one_title,
    bootstrap_first,
    bootstrap_once,
    executed_in_order,
    no_errors,
    no_traces,
    allowed_tags,
    proven,
    settings_once,
    no_empty_cells,
    local_images,
    alt_texts,
    exercises,
    code_that_runs,
    colab_links,
)
