"""Where a page links to a term of the glossary, a tooltip gives its Chinese and its meaning.

The tooltip is part of the page. _static/course.css shows it while the pointer or the keyboard is on
the link, so it needs no script and no network.
"""

from __future__ import annotations

import functools
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

GLOSSARY = "appendix/glossary"
CHINESE = re.compile("[\u4e00-\u9fff]")


class TermLink(nodes.reference):
    """A link to an entry of the glossary; `describedby` is the id of its tooltip."""


class Tooltip(nodes.inline):
    """The names and the meaning of a term."""


@functools.lru_cache(maxsize=1)  # the glossary is read from its file once, not for every page
def entries(env: BuildEnvironment) -> dict[str, nodes.definition_list_item]:
    """Return the entry of the glossary that each id of a name stands for."""
    items = env.get_doctree(GLOSSARY).findall(nodes.definition_list_item)
    return {id_: item for item in items for term in item.findall(nodes.term) for id_ in term["ids"]}


def tooltip(entry: nodes.definition_list_item, id_: str) -> Tooltip:
    """Return the entry in one line: its names, those in Chinese marked as such, and its meaning."""
    names = nodes.strong()
    for term in entry.findall(nodes.term):
        name = term.astext()
        language = ["language-zh"] if CHINESE.search(name) else []
        names += [nodes.inline("", name, classes=language), nodes.Text(" ")]
    meaning = next(entry.findall(nodes.definition)).next_node(nodes.paragraph)
    return Tooltip("", "", names, *meaning.deepcopy().children, ids=[id_], classes=["term-tooltip"])


def add_tooltips(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put a tooltip behind each link to a term."""
    if app.builder.format != "html" or page == GLOSSARY:
        return
    links = [
        link
        for link in doctree.findall(nodes.reference)
        if link.children and "std-term" in getattr(link[0], "attributes", {}).get("classes", [])
    ]
    known = entries(app.env) if links else {}
    for number, link in enumerate(links, start=1):
        id_ = f"term-tooltip-{number}"
        described = TermLink("", "", *link.children, refuri=link["refuri"], describedby=id_)
        link.replace_self([described, tooltip(known[link["refuri"].split("#")[1]], id_)])


def depend_on_glossary(app: Sphinx, doctree: nodes.document) -> None:
    """Have a page with a term built anew when the glossary has changed."""
    if any(x["reftype"] == "term" for x in doctree.findall(addnodes.pending_xref)):
        app.env.note_dependency(app.env.doc2path(GLOSSARY))


def visit_link(self, node: TermLink) -> None:
    link = {"href": node["refuri"], "aria-describedby": node["describedby"]}
    self.body.append(self.starttag(node, "a", "", CLASS="reference internal term", **link))


def depart_link(self, node: TermLink) -> None:
    self.body.append("</a>")


def visit_tooltip(self, node: Tooltip) -> None:
    self.body.append(self.starttag(node, "span", "", role="tooltip"))


def depart_tooltip(self, node: Tooltip) -> None:
    self.body.append("</span>")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the two nodes and the two steps with Sphinx."""
    app.add_node(TermLink, html=(visit_link, depart_link))
    app.add_node(Tooltip, html=(visit_tooltip, depart_tooltip))
    app.setup_extension("glossary_links")
    app.connect("doctree-read", depend_on_glossary)
    app.connect("doctree-resolved", add_tooltips)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
