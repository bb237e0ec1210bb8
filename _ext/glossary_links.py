"""The glossary leads on: letters at its top, and from each term to the section that explains it.

That is the section where a chapter links to the term, since a term is linked where it is first
used. A section that is named after the term goes before an earlier one that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from terms import GLOSSARY

SEE = {"en": "See", "zh_CN": "见"}
# Terms that no chapter links to, by the page that speaks of them.
ELSEWHERE = {
    "chapters/training": "curvature, independent, objective function",
    "chapters/word2vec": "corpus, embedding, embedding layer, likelihood, one-hot vector, word2vec",
    "chapters/glove": "sparse matrix, squared error, weighting function",
    "chapters/fasttext": "inflection",
    "chapters/similarity_and_analogy": "dimension, similarity",
    "chapters/bias": "spread, subspace",
    "chapters/transformer": "ablation, scaled dot-product attention",
    "chapters/seq2seq": "machine translation",
    "chapters/bert": "self-supervised learning",
    "chapters/finetuning": "downstream task, sentence embedding",
    "chapters/pairs_and_spans": "span",
    "chapters/chinese": "forward maximum matching",
    "chapters/compression": "bits per pixel, codec, compression",
    "chapters/vae": "bernoulli distribution, covariance, generative model, marginal distribution, "
    "numerical quadrature, precision matrix, total variation",
    "solutions/exercise_27_1": "conditional probability",
    "solutions/exercise_27_4": "centering, stationary point, trace",
    "solutions/exercise_27_5": "conditional mean",
}
Place = tuple[str, str, str]  # a page, the id of a section of it or "", and the section's title


def uses(env: BuildEnvironment) -> list[tuple[str, Place]]:
    """Return each link to a term, with the section that has it, in the order of the book."""
    found = []
    for page in family(env, env.config.root_doc):
        for link in env.get_doctree(page).findall(addnodes.pending_xref):
            if link["reftype"] == "term" and (section := section_of(link)) is not None:
                top = isinstance(section.parent, nodes.document)
                place = page, "" if top else section["ids"][0], section[0].astext()
                found.append((link["reftarget"].lower(), place))
    return found


def family(env: BuildEnvironment, page: str) -> Iterator[str]:
    """Yield a page and the pages below it."""
    yield page
    for child in env.toctree_includes.get(page, []):
        yield from family(env, child)


def section_of(node: nodes.Node) -> nodes.section | None:
    """Return the innermost section around a node; the box of an exercise is none."""
    outer = (nodes.document, nodes.section)
    while node and not (isinstance(node, nodes.section) and isinstance(node.parent, outer)):
        node = node.parent
    return node


def best(names: list[str], places: list[Place]) -> Place | None:
    """Return the first section that begins or ends with one of the names, else the first."""
    named = "|".join(re.escape(name) for name in names)
    heading = re.compile(rf"((a|the) )?({named})s?\b|.*: (the |a )?({named})s?$", re.IGNORECASE)
    ranked = [p for p in places if heading.match(p[2]) and p[0].startswith("chapters/")]
    return next(iter([*ranked, *(p for p in places if p[1] != "exercises"), *places]), None)


def lead_on(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put the links into the glossary."""
    if app.builder.format != "html" or page != GLOSSARY:
        return
    found, see = uses(app.env), SEE.get(app.config.language, SEE["en"])
    here = [page for page in ELSEWHERE if page in app.env.found_docs]  # a fork may leave out some
    other = {name: page for page in here for name in ELSEWHERE[page].split(", ")}
    letters = nodes.paragraph(classes=["glossary-letters"])
    for entry in doctree.findall(nodes.definition_list_item):
        terms = list(entry.findall(nodes.term))
        names = [term.astext().lower().replace("’", "'") for term in terms]
        letter = names[0][0].upper()
        if not letters.children or letters[-2].astext() != letter:
            to_letter = nodes.reference("", letter, internal=True, refid=terms[0]["ids"][0])
            letters += [to_letter, nodes.Text(" ")]
        place = best(names, [place for name, place in found if name in names])
        if place is None and names[0] in other:
            place = other[names[0]], "", ""
        if place is not None:
            link, line = nodes.paragraph(classes=["glossary-see"]), title(app.env, place)
            uri = app.builder.get_relative_uri(page, place[0]) + (place[1] and f"#{place[1]}")
            link += [nodes.Text(f"{see} "), nodes.reference("", line, internal=True, refuri=uri)]
            next(entry.findall(nodes.definition)).append(link)
    glossary = next(doctree.findall(addnodes.glossary))
    glossary.parent.insert(glossary.parent.index(glossary), letters)


def title(env: BuildEnvironment, place: Place) -> str:
    """Return what a link to a place reads: the page's title up to a colon, and the section's."""
    page = re.split("[:：]", env.titles[place[0]].astext())[0]
    return f"{page} › {place[2]}" if place[1] else page


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call, and to write the glossary whenever a page has changed."""
    app.connect("env-updated", lambda app, env: [GLOSSARY])
    app.connect("doctree-resolved", lead_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
