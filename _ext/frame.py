"""What is around the text of a page: its description, its search, and letters in citations."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

LENGTH = 160  # of a description: as much as the engines of the web show


def words(node: nodes.Node) -> str:
    """Return the text of a node without its formulas and tooltips."""
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, nodes.math) or "term-tooltip" in node["classes"]:
        return ""
    return "".join(map(words, node.children))


def describe(app: Sphinx, pagename: str, template: str, context: dict, doctree: object) -> None:
    """Describe a page by the beginning of its first paragraph."""
    first = doctree and next((p for p in doctree.findall(nodes.paragraph) if prose(p)), None)
    if first:
        text = " ".join(words(first).split())
        if len(text) > LENGTH:
            text = re.sub(r"\W*\w*$", "…", text[:LENGTH], count=1)
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}" />'


def prose(paragraph: nodes.paragraph) -> bool:
    """Return whether a paragraph is a part of a section, and no link alone."""
    return isinstance(paragraph.parent, nodes.section) and len(words(paragraph)) > 20


def tell_apart(app: Sphinx) -> None:
    """Give works of the same authors and year a letter: 2013a and 2013b."""
    alike = defaultdict(list)
    for entry in app.env.get_domain("cite").bibdata.data.entries.values():
        names = [" ".join(person.last_names) for person in entry.persons.get("author", [])]
        year = entry.fields["year"] = entry.fields["year"].rstrip("abcdefghijk")
        alike[(*names, year) if len(names) < 3 else (names[0], "et al.", year)].append(entry)
    for entries in alike.values():
        for letter, entry in zip("abcdefghijk", entries if len(entries) > 1 else [], strict=False):
            entry.fields["year"] += letter


def add_scorer(app: Sphinx, config: Config) -> None:
    """Have Sphinx put our part of the search behind its own."""
    config.html_search_scorer = str(Path(__file__).with_name("search.js"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call."""
    app.connect("config-inited", add_scorer)
    app.connect("builder-inited", tell_apart)
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
