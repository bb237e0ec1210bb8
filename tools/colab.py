"""Turn a notebook of the book into a plain one, for Colab and for download.

MyST's own markup is noise wherever the book is not built: Colab and JupyterLab show citations,
numbers of equations, admonitions and exercises as they are typed. Here they become what the page
prints, in Markdown that every notebook viewer knows. What they refer to, the book says: see `Book`.
The code cells stay as they are; those of a solution are folded.
"""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import nbformat
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.base import default_slugify
from myst_parser.parsers.mdit import create_md_parser

# Those of _config.yml that open a block of their own; one more would change nothing.
EXTENSIONS = {"amsmath", "colon_fence", "deflist", "dollarmath"}
ADMONITIONS = (
    "admonition attention caution danger error hint important note seealso tip warning "
    "margin sidebar topic"
).split()
FOLDED = ("dropdown", "toggle")
EXPLORER = "Interactive [on the page]({}); below is a still figure."
# What is left of the words of a role that refers to nothing.
PLAIN_ROLES = {
    "abbr": "{}",
    "math": "${}$",
    "sub": "<sub>{}</sub>",
    "sup": "<sup>{}</sup>",
    "kbd": "`{}`",
}
# Code and formulas stay as they are: the first of these alternatives that fits takes the text.
INLINE = re.compile(
    r"""
      \{(?P<role>[A-Za-z][\w:+-]*)\}(?P<fence>`+)(?P<content>.+?)(?<!`)(?P=fence)(?!`)
    | (?P<code>(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))
    | (?P<math>\$\$.+?\$\$|(?<![\\\w])\$[^$\s](?:[^$]*[^$\s\\])?\$)
    | (?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]
      \(<?(?P<target>[^)\s>]*)>?(?P<tip>\s+"[^"]*")?\)
    """,
    re.DOTALL | re.VERBOSE,
)


class Book(Protocol):
    """What a page of the book knows of the others; `origin` is a link to the page itself."""

    origin: str

    def refer(self, role: str, content: str) -> str:
        """Return, as Markdown, what the page prints for a role such as {cite:p} or {eq}."""

    def link(self, target: str) -> tuple[str, str]:
        """Return the address and the title of what a link of the page leads to."""

    def equation(self, label: str) -> str:
        """Return the number of an equation as the page prints it, such as "5.1"."""

    def exercise(self, label: str) -> str:
        """Return the name of an exercise as the page prints it, such as "Exercise 5.1"."""


def plain(
    notebook: nbformat.NotebookNode,
    book: Book,
    translate: Callable[[str], str] = str,
    words: Mapping[str, str] | None = None,
) -> nbformat.NotebookNode:
    """Return a plain copy of the notebook.

    `translate` gets the text of each cell and each caption, in MyST's Markdown; `words` has the
    translations of what this module itself says.

    Outputs, ids and tags stay; the caption of a figure becomes a cell below it. In a solution, a
    code cell gets the metadata that folds it, and a first line `# @title …` that Colab shows in its
    place. Such a line is translated; no other line of code is touched. What tells the reader how to
    use an explorer leads to the page, where it is.
    Raises: ValueError where the text holds markup that has no plain form.
    """
    converter = Converter(book, words)
    notebook = copy.deepcopy(notebook)
    cells, notebook.cells = notebook.cells, []
    section, before = "", cells[0]
    for cell in cells:
        notebook.cells.append(cell)
        if cell.cell_type == "markdown":
            section = [section, *re.findall(r"^##+ (.+)$", cell.source, re.MULTILINE)][-1]
            cell.source = converter.cell(translate(cell.source))
        elif cell.cell_type == "code" and converter.solution:
            fold(cell, converter.solution)
        elif before.cell_type == "markdown" and is_explorer(cell):
            announce(
                before, converter.say(EXPLORER).format(book.link("#" + default_slugify(section))[0])
            )
        if title := re.match(r"# @title (.+)", cell.source):
            cell.source = f"# @title {converter.say(title[1])}{cell.source[title.end() :]}"
        if figure := cell.metadata.get("mystnb", {}).get("figure"):
            text = f"**{{numref}}`{figure['name']}`** {translate(figure['caption'])}"
            below = nbformat.v4.new_markdown_cell(
                converter.cell(text), id=f"{cell.id[:56]}-caption"
            )
            notebook.cells.append(below)
        before = cell
    notebook.cells = [cell for cell in notebook.cells if cell.source or cell.cell_type == "code"]
    title = notebook.cells[0]
    origin = converter.say("From {}.").format(book.origin)
    title.source = re.sub(r"\A(# .*)", rf"\1\n\n{origin}", title.source)
    return notebook


def is_explorer(cell: nbformat.NotebookNode) -> bool:
    """Return whether the page has an explorer in the place of the cell's figure."""
    return any(tag.startswith("play-") for tag in cell.metadata.get("tags", []))


def announce(cell: nbformat.NotebookNode, title: str) -> None:
    """Let the last paragraph before an explorer's figure say that the explorer is on the page."""
    *text, last = cell.source.split("\n\n")
    cell.source = "\n\n".join([*text, quotation(title, last)])


def fold(cell: nbformat.NotebookNode, title: str) -> None:
    """Fold a code cell and its outputs, on Colab under the title, in JupyterLab under a bar."""
    cell.metadata.update(cellView="form", collapsed=True)
    hidden = {"source_hidden": True, "outputs_hidden": True}
    cell.metadata["jupyter"] = {**cell.metadata.get("jupyter", {}), **hidden}
    if not cell.source.startswith(("# @title", "%%")):
        cell.source = f"# @title {title}\n{cell.source}"


class Converter:
    """Makes the Markdown of one notebook plain, cell after cell.

    `solution` is the title of the solution that is open at the end of a cell, or None: a solution
    may go on for several cells.
    """

    def __init__(self, book: Book, words: Mapping[str, str] | None = None) -> None:
        self.book = book
        self.words = words or {}
        self.solution: str | None = None
        self.parser = create_md_parser(MdParserConfig(enable_extensions=EXTENSIONS), RendererHTML)

    def cell(self, text: str) -> str:
        """Return a cell's text in plain Markdown; what belongs to a solution is folded.

        Raises: ValueError if markup is left that only the book understands.
        """
        parts = [[self._continued(), ""]]
        for piece in self._pieces(text):
            if isinstance(piece, Gate):
                self.solution = piece.solution
                parts.append([piece.solution, ""])
            else:
                parts[-1][1] += piece
        folded = [
            details(summary, body) if summary else body.strip("\n")
            for summary, body in parts
            if body.strip()
        ]
        result = "\n\n".join(folded)
        if left := markup_left(result):
            raise ValueError(f"no plain form is known for {left!r}")
        return result

    def say(self, text: str) -> str:
        """Return what this module says, in the language of the notebook."""
        return self.words.get(text, text)

    def convert(self, text: str) -> str:
        """Return a text in plain Markdown, such as the inside of an admonition."""
        pieces = list(self._pieces(text))
        if any(isinstance(piece, Gate) for piece in pieces):
            raise ValueError("a solution begins or ends inside another block")
        return "".join(pieces).strip("\n")

    def _continued(self) -> str | None:
        return self.solution and self.say("{}, continued").format(self.solution)

    def _pieces(self, text: str) -> Iterator[str | Gate]:
        """Yield the text in plain pieces, and a Gate where a solution begins or ends."""
        lines = text.splitlines(keepends=True)
        done = 0
        for token in self.parser.parse(text):
            replace = self._replacement(token)
            if replace is None or token.map[0] < done:
                continue
            start, end = token.map
            while end > start + 1 and not lines[end - 1].strip():
                end -= 1
            yield self._prose("".join(lines[done:start]))
            done = end
            if replace is as_it_is:
                yield "".join(lines[start:end])
                continue
            new = replace(token)
            yield new if isinstance(new, Gate) else indented(new, lines[start])
            if not new:  # one empty line less, else two would follow each other
                done += done < len(lines) and not lines[done].strip()
        yield self._prose("".join(lines[done:]))

    def _replacement(self, token: Token) -> Callable[[Token], str | Gate] | None:
        """Return what makes a block plain, or None where the block is prose."""
        if token.type in ("fence", "colon_fence"):
            return self._directive if token.info.lstrip().startswith("{") else as_it_is
        return {
            "code_block": as_it_is,
            "amsmath": as_it_is,
            "math_block": self._formula,
            "math_block_label": self._formula,
            "myst_target": nothing,
            "myst_line_comment": nothing,
            "myst_block_break": nothing,
        }.get(token.type)

    def _formula(self, token: Token) -> str:
        return self._equation(token.content, token.info)

    def _equation(self, content: str, label: str) -> str:
        """Return a formula on lines of its own, with its number where it has a label."""
        content = textwrap.dedent(content).strip()
        # As Sphinx has it: without an environment, MathJax would ignore the ends of the lines.
        outside = re.sub(r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}", "", content, flags=re.DOTALL)
        if "\\\\" in outside:
            content = f"\\begin{{split}}\n{content}\n\\end{{split}}"
        number = f" \\tag{{{self.book.equation(label)}}}" if label else ""
        return f"$$\n{content}{number}\n$$"

    def _directive(self, token: Token) -> str | Gate:
        """Return the plain form of a directive.

        Raises: ValueError for one that has none.
        """
        name, argument = re.match(r"\s*\{([^}]*)\}\s*(.*)", token.info).groups()
        options, body = options_and_body(token.content)
        argument = self._prose(argument.strip())
        if name == "solution-start":
            return Gate(self._solution(argument))
        if name == "solution-end":
            return Gate(None)
        if name == "solution":
            return details(self._solution(argument), self.convert(body))
        if name in ("exercise", "exercise-start"):
            title = self.book.exercise(options.get("label", ""))
            title += f" ({argument})" if argument else ""
            return f"**{title}**\n\n{self.convert(body)}".rstrip()
        if name == "exercise-end":
            return ""
        if name in FOLDED or name in ADMONITIONS and "dropdown" in options.get("class", ""):
            return details(argument or self.say(name.capitalize()), self.convert(body))
        if name in ADMONITIONS:
            titled = name in ("admonition", "sidebar", "topic")
            name = {"seealso": "See also"}.get(name, name.capitalize())
            title = argument if titled else self.say(name)
            body = body if titled or not argument else f"{argument}\n{body}"
            return quotation(title, self.convert(body))
        if name == "math":
            return self._equation(body, options.get("label", ""))
        if name in ("code", "code-block"):
            return f"```{argument}\n{body}\n```"
        if name in ("image", "figure"):
            image = f"![{options.get('alt', '')}]({self.book.link(argument)[0]})"
            return f"{image}\n\n{self.convert(body)}".rstrip()
        raise ValueError(f"no plain form is known for the directive {{{name}}}")

    def _solution(self, label: str) -> str:
        return self.say("Solution to {}").format(self.book.exercise(label))

    def _prose(self, text: str) -> str:
        """Return paragraphs, lists and tables with plain links in place of roles."""
        paragraphs = re.split(r"(\n[ \t]*\n)", text)  # a role or a link ends with its paragraph
        return "".join(INLINE.sub(self._inline, paragraph) for paragraph in paragraphs)

    def _inline(self, match: re.Match[str]) -> str:
        if role := match["role"]:
            content = " ".join(match["content"].split())
            if role in PLAIN_ROLES:
                return PLAIN_ROLES[role].format(content)
            return self.book.refer(role, content)
        if match["target"] is None:
            return match[0]
        text = self._prose(match["text"])
        address, title = match["target"], ""
        if not re.match(r"[a-z]+:", address):
            address, title = self.book.link(address)
        return f"{match['image']}[{text or title}]({address}{match['tip'] or ''})"


class Gate:
    """The place where a solution begins, under its title, or where one ends (None)."""

    def __init__(self, solution: str | None) -> None:
        self.solution = solution


def as_it_is(token: Token) -> None:
    """Leave a block of code or of formulas alone."""


def nothing(token: Token) -> str:
    """Return no text: a label, a comment or a break says nothing to the reader."""
    return ""


def indented(text: str, first_line: str) -> str:
    """Return a block where it stood: in its list item or its quotation, ending in a newline."""
    if not text:
        return ""
    before = re.match(r"(?:[ \t>]|(?:[-*+]|\d+[.)])(?=\s))*", first_line)[0]
    below = re.sub(r"[^\s>]", " ", before)
    first, *rest = text.split("\n")
    return "\n".join([before + first, *((below + line).rstrip() for line in rest)]) + "\n"


def options_and_body(content: str) -> tuple[dict[str, str], str]:
    """Return a directive's options, in either of MyST's two forms, and its text."""
    if form := re.match(r"---\n(.*?\n)---\n?", content, re.DOTALL):
        found = re.findall(r"^([\w-]+):[ \t]*(.*)$", form[1], re.MULTILINE)
    else:
        form = re.match(r"(?::[\w-]+:.*(?:\n|$))*", content)
        found = re.findall(r"^:([\w-]+):[ \t]*(.*)$", form[0], re.MULTILINE)
    return dict(found), content[form.end() :].strip("\n")


def details(summary: str, body: str) -> str:
    """Return a text that unfolds at a click; the empty lines let it be read as Markdown."""
    body = body.strip("\n")
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def quotation(title: str, body: str) -> str:
    """Return a quotation that begins with its title in bold."""
    starts_with_words = re.match(r"(?![-*+] |\d+[.)] |[#>|`$<!])", body)
    stop = "：" if "\u4e00" <= title[-1:] <= "\u9fff" else "."
    ends = not starts_with_words or title[-1:] in ".!?:。！？："
    bold = f"**{title}**" if ends else f"**{title}{stop}**"
    text = bold + (" " if starts_with_words else "\n\n") + body
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def markup_left(text: str) -> str:
    """Return the first piece of the text that only the book would understand, or ""."""
    parser = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin).use(footnote_plugin)
    for token in parser.parse(text):
        if token.type == "fence" and token.info.startswith("{"):
            return f"```{token.info}"
        if token.type != "inline":
            continue
        if found := re.search(r"^(?::::+.*|\([\w-]+\)=)$", token.content, re.MULTILINE):
            return found[0]
        before = ""
        for child in token.children:
            address = child.attrs.get("href") or child.attrs.get("src") or ""
            if address and not re.match(r"https?:|mailto:|attachment:|data:", address):
                return f"a link to {address}"
            if child.type == "code_inline" and (role := re.search(r"\{[\w:+-]+\}$", before)):
                return f"{role[0]}`{child.content}`"
            before = child.content if child.type == "text" else ""
    return ""
