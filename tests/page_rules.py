"""What must be true of each built page: a rule takes what a browser found and lists the faults."""

from __future__ import annotations

import functools
import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import nbformat

from tests.browser import HTML, Page
from tools import address

MATHS_AS_TEXT = r".{0,40}(?:\$\$|\\\(|\\\[|\\begin\{|(?<!\\)\$\\\w).{0,40}"
DIRECTIVE_AS_TEXT = r".{0,40}(?:\{(?:cite|term|ref|numref|eq|doc)(?::\w+)?\}|:::|```).{0,40}"


def quiet(page: Page) -> list[str]:
    """No error in the console, no request that fails or leaves the book."""
    return page.problems


def mathematics(page: Page) -> list[str]:
    """Every formula is typeset, with the right fonts and no unknown command."""
    found = page.found
    faults = [f"not typeset: {formula}" for formula in found["raw"]]
    faults += [f"MathJax cannot read: {formula}" for formula in found["broken"]]
    faults += [f"a command that MathJax does not know: {name}" for name in found["unknown"]]
    faults += [f"left as text: {text}" for text in re.findall(MATHS_AS_TEXT, found["prose"])]
    if found["formulas"] and not found["fonts"]:
        faults.append("the fonts of MathJax have not come")
    return faults


def directives(page: Page) -> list[str]:
    """No role and no directive is left as text."""
    return [f"left as text: {text}" for text in re.findall(DIRECTIVE_AS_TEXT, page.found["prose"])]


def images(page: Page) -> list[str]:
    """Every image has loaded and is described."""
    shown = [(image, image["source"][:200]) for image in page.found["images"]]
    faults = [f"did not load: {source}" for image, source in shown if not image["width"]]
    return faults + [f"no alt: {source}" for image, source in shown if not image["alt"].strip()]


def width(page: Page) -> list[str]:
    """The page never scrolls sideways."""
    return [f"wider than {window} px: {what}" for window, what in page.overflow.items() if what]


def hidden(page: Page) -> list[str]:
    """What is hidden opens at a click, and there is as much of it as the source asks for."""
    faults = list(page.hidden["stuck"])
    path = source(page)
    asked = 0
    if path and path.suffix == ".ipynb":
        for cell in notebook(path).cells:
            tags = cell.metadata.get("tags", [])
            asked += "going-deeper" in tags or any(tag.startswith("hide-") for tag in tags)
            asked += len(re.findall(r"^:class: dropdown$", cell.source, re.M))
    if page.hidden["boxes"] != asked:
        faults.append(f"{page.hidden['boxes']} hidden boxes, the source has {asked}")
    return faults


def copies(page: Page) -> list[str]:
    """A copy button copies what its box shows, and that is the source of the notebook's cell."""
    faults = [
        f"shown {copy['shown']!r}, copied {copy['copied']!r}"
        for copy in page.copies
        if copy["shown"].removesuffix("\n") != copy["copied"]
    ]
    path = source(page)
    if path and path.suffix == ".ipynb":
        cells = [cell.source for cell in notebook(path).cells if cell.cell_type == "code"]
        copied = [copy["copied"] for copy in page.copies if copy["input"]]
        if len(copied) != len(cells):
            faults.append(f"{len(copied)} cells can be copied, the notebook has {len(cells)}")
        pairs = zip(copied, cells, strict=False)
        faults += [f"cell {cell!r}, copied {copy!r}" for copy, cell in pairs if copy != cell]
    return faults


def accessible(page: Page) -> list[str]:
    """axe-core finds nothing serious or critical, contrast in light and in dark included."""
    return page.violations


def colab(page: Page) -> list[str]:
    """A notebook's page opens that notebook in Colab, and no page opens another."""
    links = [link for link in page.found["links"] if "colab.research.google.com" in link]
    path = source(page)
    asked = []
    if path and path.suffix == ".ipynb":
        name = path.relative_to(address.ROOT).as_posix()
        asked = [address.colab(address.repository(), name)]
    return [] if links == asked else [f"links to Colab {links}, should be {asked}"]


def downloads(page: Page) -> list[str]:
    """A page's source can be downloaded, byte for byte; of a notebook, its plain form."""
    links, path = page.found["downloads"], source(page)
    if not path:
        return [f"downloads {link}, but has no source" for link in links]
    if len(links) != 1:
        return [f"{len(links)} downloads: {links}"]
    with urllib.request.urlopen(links[0]) as answer:
        body = answer.read()
    if path.suffix == ".ipynb":
        path = address.ROOT / "_build" / "colab" / path.relative_to(address.ROOT)
    if body != path.read_bytes():
        return [f"{links[0]} is not {path.name}"]
    if path.suffix == ".ipynb":
        nbformat.validate(nbformat.from_dict(json.loads(body)))
    return []


def links(page: Page, site: dict[str, Page], origin: str) -> list[str]:
    """Every link into the book leads to a place that is there."""
    dead = []
    for link in page.found["links"]:
        target, anchor = urldefrag(urljoin(page.address, link))
        if not target.startswith(origin):
            continue
        name = unquote(urlsplit(target).path).lstrip("/") or "index.html"
        if name in site:
            if anchor and unquote(anchor) not in site[name].found["ids"]:
                dead.append(link)
        elif not (HTML / name).is_file():
            dead.append(link)
    return dead


def source(page: Page) -> Path | None:
    """Return the file that the page is made of; the index and the search have none.

    A page of the Chinese edition is made of the same file.
    """
    path = address.ROOT / page.name.removeprefix("zh/")
    places = [path.with_suffix(end) for end in (".ipynb", ".md")]
    return next((place for place in places if place.is_file()), None)


@functools.cache
def notebook(path: Path):
    """Return the notebook in the file."""
    return nbformat.read(path, as_version=4)


# Each asks one page alone.
RULES = (
    quiet,
    mathematics,
    directives,
    images,
    width,
    hidden,
    copies,
    accessible,
    colab,
    downloads,
)
