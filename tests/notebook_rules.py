"""The rules of form that every notebook keeps: each takes a notebook and returns complaints."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from nbformat import NotebookNode

from tools import address
from tools.format_notebooks import bootstrap

LONGEST_CELL = 25
FEWEST_CHECKS = 3
FEWEST_EXERCISES = 5
LONGEST_SUMMARY = 5
SHARE_COMPARED = 0.5
ALLOWED_TAGS = {
    "hide-input",
    "hide-output",
    "hide-cell",
    "nbval-ignore-output",
    "raises-exception",
}
NBVAL_COMMENT = re.compile(r"^\s*#\s*(?:NBVAL_|PYTEST_VALIDATE_)\w+", re.M)
FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})(?P<rest>.*)$")
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


def cells(notebook: NotebookNode, kind: str) -> list[NotebookNode]:
    """Return the notebook's cells of one kind, code or markdown."""
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def code(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    """Return the code cells, numbered from 1 as a reader counts them."""
    return list(enumerate(cells(notebook, "code"), start=1))


def tags(cell: NotebookNode) -> set[str]:
    """Return the cell's tags."""
    return set(cell.metadata.get("tags", []))


def prose(notebook: NotebookNode) -> list[str]:
    """Return the lines of all markdown cells, those inside fences of code left out."""
    lines = []
    for cell in cells(notebook, "markdown"):
        open_fences: list[tuple[str, bool]] = []  # each with whether it holds code
        for line in cell.source.splitlines():
            match = FENCE.match(line.strip())
            fence, rest = (match["fence"], match["rest"].strip()) if match else ("", "")
            inner, in_code = open_fences[-1] if open_fences else ("", False)
            if fence and not rest and fence.startswith(inner or "none"):
                open_fences.pop()
            elif not in_code:
                if fence:
                    open_fences.append((fence, fence[0] == "`" and not rest.startswith("{")))
                lines.append(line)
    return lines


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


def section(notebook: NotebookNode, title: str) -> list[str] | None:
    """Return the lines below the heading of that title, up to the next, or None without one."""
    lines = prose(notebook)
    starts = [i for i, line in enumerate(lines) if re.match(rf"#+ +{title}\s*$", line)]
    if not starts:
        return None
    body = []
    for line in lines[starts[-1] + 1 :]:
        if re.match(r"#+ ", line):
            break
        body.append(line)
    return body


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
    if first.source != bootstrap() or tags(first) != {"hide-input"}:
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
        if unknown := tags(cell) - ALLOWED_TAGS:
            complaints.append(f"cell {n} has the tags {sorted(unknown)}")
        if cell.cell_type == "code" and NBVAL_COMMENT.search(cell.source):
            complaints.append(f"cell {n} has a comment for nbval, but only tags are allowed")
        if cell.cell_type == "raw":
            complaints.append(f"cell {n} is raw, neither text nor code")
    return complaints


def compared(cell: NotebookNode) -> bool:
    """Return whether nbval compares something of the cell's output; a figure it does not."""
    if "nbval-ignore-output" in tags(cell):
        return False
    return any(
        not any(kind.startswith("image/") for kind in output.get("data", {}))
        for output in cell.outputs
    )


def share_compared(notebook: NotebookNode) -> list[str]:
    """At least half of the cells with an output have it compared; figures do not count."""
    bearing = [cell for cell in cells(notebook, "code") if cell.outputs]
    share = sum(map(compared, bearing)) / max(len(bearing), 1)
    if not bearing:
        return ["no cell has an output"]
    if share < SHARE_COMPARED:
        return [f"{share:.0%} of {len(bearing)} cells with an output are compared, not 50 %"]
    return []


def short_cells(notebook: NotebookNode) -> list[str]:
    """No code cell is longer than 25 lines, and none is empty."""
    lengths = [(n, len(cell.source.splitlines())) for n, cell in code(notebook)]
    return [
        f"code cell {n} has {length} lines, but 1 to {LONGEST_CELL} are allowed"
        for n, length in lengths
        if not 1 <= length <= LONGEST_CELL
    ]


def _asserts(source: str) -> tuple[int, int]:
    """Return how many assertions the source holds, and how many of them have no message."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        nodes = list(ast.walk(ast.parse("\n".join(lines))))
    except SyntaxError:  # a cell that shows one
        return 0, 0
    count = silent = 0
    for node in nodes:
        if isinstance(node, ast.Assert):
            count, silent = count + 1, silent + (node.msg is None)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            count += name.startswith("assert_")
    return count, silent


def checks(notebook: NotebookNode) -> list[str]:
    """At least three cells in plain view assert something, and each assert names its claim."""
    complaints = []
    visible = 0
    for n, cell in code(notebook):
        count, silent = _asserts(cell.source)
        visible += bool(count) and not tags(cell) & {"hide-input", "hide-cell"}
        if silent:
            complaints.append(f"code cell {n} has an assert without a message")
    if visible < FEWEST_CHECKS:
        complaints.append(f"{visible} visible cells assert something, not {FEWEST_CHECKS}")
    return complaints


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
    """At least five exercises, each with one solution of the same label, folded away."""
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
    if len(labels) < FEWEST_EXERCISES:
        complaints.append(f"{len(labels)} exercises, but at least {FEWEST_EXERCISES} are needed")
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


def summary(notebook: NotebookNode) -> list[str]:
    """A summary of five lines at most."""
    lines = section(notebook, "Summary") or []
    points = [line for line in lines if re.match(r"(?:[-*+]|\d+\.) ", line)]
    paragraphs = "\n".join(lines).strip().split("\n\n") if not points else points
    if not any(paragraphs):
        return ["no summary below a heading `Summary`"]
    if len(paragraphs) > LONGEST_SUMMARY:
        return [f"the summary has {len(paragraphs)} points, not {LONGEST_SUMMARY}"]
    return []


def references(notebook: NotebookNode) -> list[str]:
    """The works used, cited from references.bib."""
    if not CITATION.search("\n".join(section(notebook, "References") or [])):
        return ["no work is cited below a heading `References`"]
    return []


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
    share_compared,
    short_cells,
    checks,
    local_images,
    alt_texts,
    exercises,
    code_that_runs,
    summary,
    references,
    colab_links,
)
# A worked solution is itself the solution to an exercise.
SOLUTION_RULES = tuple(rule for rule in RULES if rule not in (exercises, summary))
