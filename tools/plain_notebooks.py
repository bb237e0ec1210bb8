"""A Sphinx extension: with the pages of the book, write its notebooks in their plain form.

`jupyter-book build .` puts them into _build/colab/, under the names that they have in the
repository; the workflow `pages` publishes that folder as the branch `notebooks`. A page's buttons
open the plain form: the one for Colab on that branch, the one for download beside the page. What
a citation or a number reads, Sphinx itself says, so it reads as on the page. The builder `plain`
writes these notebooks and no pages; `make lab` uses it.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import nbformat
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.util import logging
from sphinx.util.nodes import split_explicit_title

from tools import address, colab, labs, translation

log = logging.getLogger(__name__)
DOMAINS = {"doc": "std", "eq": "math", "numref": "std", "ref": "std", "term": "std"}
CHINESE = {
    "From {}.": "出自{}。",
    "Solution to {}": "{} 的解答",
    "{}, continued": "{}（续）",
    colab.EXPLORER: "[网页上]({})可以互动，下面是静态图。",
    "Note": "注",
    "Tip": "提示",
    "Warning": "注意",
    "See also": "另见",
    "Dropdown": "展开",
    **translation.PROMPTS,
}
README = """\
# The notebooks of [{title}]({pages}), plain

Made from the branch `main` whenever it changes, for Colab and for download: do not edit them here.
"""


class SphinxBook:
    """What Sphinx knows after a build, seen from one page: see `colab.Book`."""

    def __init__(self, app: Sphinx, docname: str) -> None:
        self.app, self.env, self.docname = app, app.env, docname
        self.root = address.pages(address.repository())
        self.page = self.root + app.builder.get_target_uri(docname)
        self.origin = f"[{app.config.html_title}]({self.page})"
        self.papers = {
            urljoin(self.root, f"{app.builder.get_target_uri(at.docname)}#{cited.citation_id}"): url
            for cited in self.env.get_domain("cite").citations
            if (at := cited.bibliography_key) and (url := paper(cited.entry.fields))
        }

    def refer(self, role: str, content: str) -> str:
        """Return, as Markdown, what the page prints for a role that refers to something.

        Raises: ValueError if the role or its target is unknown.
        """
        domain, _, kind = role.rpartition(":")
        domain = domain or DOMAINS.get(kind)
        if domain is None:
            raise ValueError(f"no plain form is known for the role {{{role}}}")
        explicit, title, target = split_explicit_title(content)
        if kind == "ref" and target in self.env.sphinx_exercise_registry and not explicit:
            kind = "numref"  # as sphinx-exercise has it
        target = target.lower() if kind == "ref" else target
        words = nodes.inline("", title)
        details = {"refdoc": self.docname, "reftarget": target, "refexplicit": explicit}
        asked = addnodes.pending_xref("", words, refdomain=domain, reftype=kind, **details)
        found = self.env.get_domain(domain).resolve_xref(
            self.env, self.docname, self.app.builder, kind, target, asked, words
        )
        printed = nodes.paragraph("", "", *([found] if found else []))
        if not list(printed.findall(nodes.reference)):
            raise ValueError(f"{{{role}}}`{content}` refers to nothing")
        if domain == "cite":  # (Zipf, 1949): the page's square brackets would look like a link's
            for text in list(printed.findall(nodes.Text)):
                text.parent.replace(text, nodes.Text(text.translate({91: "(", 93: ")"})))
        return markdown(printed, self._address)

    def link(self, target: str) -> tuple[str, str]:
        """Return the address and the title of a page, a heading, a label or a file of the book.

        Raises: ValueError if there is no such place.
        """
        path, _, anchor = target.partition("#")
        name = self.env.relfn2path(path, self.docname)[0] if path else None
        docname = self.env.path2doc(self.env.srcdir / name) if name else self.docname
        if docname not in self.env.found_docs:
            return self._file(target, name)
        place = urljoin(self.root, self.app.builder.get_target_uri(docname))
        if not anchor:
            return place, self.env.titles[docname].astext()
        slugs = self.env.metadata[docname].get("myst_slugs", {})
        if anchor in slugs:
            _, identifier, title = slugs[anchor]
            return f"{place}#{identifier}", title
        std = self.env.get_domain("std")
        if anchor in std.anonlabels:
            labelled, identifier = std.anonlabels[anchor]
            page = urljoin(self.root, self.app.builder.get_target_uri(labelled))
            return f"{page}#{identifier}", std.labels.get(anchor, ("", "", anchor))[2]
        if path:  # such as glossary.html#term-token: the page itself knows it
            return f"{place}#{anchor}", self.env.titles[docname].astext()
        raise ValueError(f"there is no heading or label #{anchor}")

    def equation(self, label: str) -> str:
        """Return the number of an equation as the page prints it, such as "5.1"."""
        return re.search(r"[\d.]+", self.refer("eq", label))[0]

    def exercise(self, label: str) -> str:
        """Return the name of an exercise as the page prints it, such as "Exercise 5.1".

        Raises: ValueError if there is no such label.
        """
        if label not in self.env.sphinx_exercise_registry:
            raise ValueError(f"there is no exercise with the label {label!r}")
        docname = self.env.sphinx_exercise_registry[label]["docname"]
        number = self.env.toc_fignumbers.get(docname, {}).get("exercise", {}).get(label)
        if number is None:
            return "Exercise"
        return self.app.config.numfig_format["exercise"] % ".".join(map(str, number))

    def _file(self, target: str, name: str | None) -> tuple[str, str]:
        """Return where a file lies that is no page: in the published book or the repository."""
        if name is None or not (Path(self.env.srcdir) / name).exists():
            raise ValueError(f"there is no file or page {target}")
        if name.startswith("_static/"):
            return self.root + name, Path(name).name
        return f"{address.repository()}/blob/main/{name}", Path(name).name

    def _address(self, uri: str) -> str | None:
        """Return where a reference leads, or None: what has a number on this page needs no link."""
        found = urljoin(self.page, uri)
        if found in self.papers:
            return self.papers[found]
        page, _, anchor = found.partition("#")
        figures = self.env.toc_fignumbers.get(self.docname, {}).get("figure", {})
        numbered = anchor in figures or anchor in self.env.sphinx_exercise_registry
        numbered = numbered or anchor.startswith("equation-")
        return None if page == self.page and numbered else found


class Plain(Builder):
    """Reads the book, and writes its plain notebooks only."""

    name = "plain"

    def get_outdated_docs(self) -> list[str]:
        """Return none: the notebooks are written at the end."""
        return []

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        """Return where the page is in the book."""
        return f"{docname}.html"

    def write(self, *args: Any, **options: Any) -> None:
        """Write no pages."""


def paper(fields: dict[str, str]) -> str | None:
    """Return the address of a paper, from its entry's url or doi, or None."""
    if "doi" in fields:
        return "https://doi.org/" + quote(fields["doi"])
    return fields.get("url")


def markdown(node: nodes.Node, address_of: Callable[[str], str | None]) -> str:
    """Return the inside of a paragraph as Markdown, links by the addresses that are given."""
    if isinstance(node, nodes.Text):
        return node.astext()
    inside = "".join(markdown(child, address_of) for child in node.children)
    if isinstance(node, nodes.reference):
        uri = node.get("refuri") or f"#{node['refid']}"
        found = address_of(uri)
        return f"[{inside}]({found})" if found else inside
    if isinstance(node, nodes.emphasis):
        return f"*{inside}*"
    return f"`{inside}`" if isinstance(node, nodes.literal) else inside


def edition(app: Sphinx) -> str:
    """Return the folder of an edition's notebooks, for the English ones the one above."""
    return "zh" if app.config.language == translation.LANGUAGE else ""


def lead_buttons(app: Sphinx, pagename: str, template: str, context: dict, doctree: Any) -> None:
    """Let the page's buttons open the plain notebook, and the form for issues with this page."""
    words = "在 {} 中打开" if app.config.language == "zh_CN" else "Open in {}"
    notebook = str(Path(edition(app)) / f"{pagename}.ipynb")
    where, places = address.repository(), {"Colab": address.colab, "Kaggle": address.kaggle}
    for group in context.get("header_buttons", []):
        if group["label"] == "launch-buttons":
            group["icon"], group["tooltip"] = "fa-solid fa-play", words.format("Colab / Kaggle")
            group["buttons"] = [
                {"type": "link", "text": words.format(name), "url": url(where, notebook)}
                for name, url in places.items()
            ]
        for button in group.get("buttons", []):
            if "/issues/new" in button.get("url", ""):
                form = f"template=report.yml&page={quote(pagename, safe='')}"
                button["url"] = f"{where}/issues/new?{form}"


def write_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Write every notebook in its plain form, into _build/colab/ and for the download button."""
    builder = app.builder.name
    if exception or builder not in ("html", "plain"):
        return
    chinese = app.config.language == translation.LANGUAGE
    folder = address.ROOT / "_build" / "colab" / edition(app)
    shutil.rmtree(folder, ignore_errors=True)
    for docname in sorted(app.env.found_docs):
        source = Path(app.env.doc2path(docname))
        if source.suffix != ".ipynb":
            continue
        text = [source.read_text(encoding="utf-8")]
        app.emit("source-read", docname, text)  # which may leave the solutions out
        notebook = nbformat.reads(text[0], as_version=4)
        notebook = labs.blank(notebook) if source.parent == labs.LABS else notebook
        known = translation.messages(docname) if chinese else {}
        turn = functools.partial(translation.translate, known=known)
        words = CHINESE if chinese else {}
        try:
            notebook = colab.plain(notebook, SphinxBook(app, docname), turn, words)
        except ValueError as error:
            log.warning(f"the plain notebook is not written: {error}", location=docname)
            continue
        copies = [folder] if builder == "plain" else [folder, Path(app.outdir) / "_sources"]
        for path in (copy / f"{docname}.ipynb" for copy in copies):
            path.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, path)
    pages = address.pages(address.repository())
    text = README.format(title=app.config.html_title, pages=pages)
    (folder / "README.md").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call."""
    app.add_builder(Plain)
    app.connect("html-page-context", lead_buttons, priority=502)  # after the theme's buttons
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
