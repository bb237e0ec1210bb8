"""What must be true of the file of each built page, whichever the edition."""

from __future__ import annotations

import functools
import gzip
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import nbformat

from tests import play_files
from tests.browser import HTML
from tools import address

VOID = set("area base br col embed hr img input link meta source track wbr".split())
HERE = "http://book.test/"
DOWNLOAD = "btn-download-source-button"
MATH_AS_TEXT = r"\$\$|\\\(|\\\[|\\begin\{|(?<!\\)\$\\\w"
MARKUP_AS_TEXT = r"\{(?:cite|term|ref|numref|eq|doc)(?::\w+)?\}|:::|```"
AS_TEXT = re.compile(rf".{{0,40}}(?:{MATH_AS_TEXT}|{MARKUP_AS_TEXT}).{{0,40}}")


class Page(HTMLParser):
    """A page as its file has it: its prose, its code, its boxes, and where its links lead."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self.name, self.prose = name, ""
        self.ids: list[str] = []
        self.links: list[str] = []
        self.buttons: list[str] = []  # of Colab, of Kaggle, to edit, and of the download
        self.described = False
        self.undescribed: list[str] = []
        self.code: list[str] = []
        self.explorers: list[str] = []
        self.boxes = 0
        self.open: list[tuple[str, str]] = []
        self.within: Counter[str] = Counter()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what the element is, has and leads to."""
        given = dict(attributes)
        classes = (given.get("class") or "").split()
        if "id" in given:
            self.ids.append(given["id"])
        place = given.get("href") or given.get("src") or ""
        if place and not place.startswith("data:"):
            self.links.append(urljoin(HERE + self.name, place))
            if re.search(r"colab\.research|kaggle|/edit/main/", place) or DOWNLOAD in classes:
                self.buttons.append(self.links[-1])
        self.described |= given.get("name") == "description" and bool(given.get("content"))
        if tag == "img" and not (given.get("alt") or "").strip():
            self.undescribed.append(place[:100])
        if self.within["main"]:
            self.boxes += tag == "details" or {"dropdown", "admonition"} <= {*classes}
            self.explorers += [c.removeprefix("tag_play-") for c in classes if "tag_play-" in c]
        if "cell_input" in classes:
            self.code.append("")
        if tag not in VOID:
            kind = tag if tag == "main" else "input" if "cell_input" in classes else ""
            if tag in ("pre", "code", "script", "style") or "math" in classes:
                kind = "no prose"
            self.open.append((tag, kind))
            self.within[kind] += 1

    def handle_endtag(self, tag: str) -> None:
        """Leave the element, and what was left open in it."""
        if any(tag == name for name, _ in self.open):
            name = ""
            while name != tag:
                name, kind = self.open.pop()
                self.within[kind] -= 1

    def handle_data(self, text: str) -> None:
        """Keep the text, as code or as prose."""
        if self.within["input"]:
            self.code[-1] += text
        elif self.within["main"] and not self.within["no prose"]:
            self.prose += text


@functools.cache
def page(name: str) -> Page:
    """Return a page of the book."""
    return Page(name, (HTML / name).read_text(encoding="utf-8"))


def source(name: str) -> Path | None:
    """Return the file that a page is made of, in both editions; search and index have none."""
    path = address.ROOT / name.removeprefix("zh/")
    places = [path.with_suffix(end) for end in (".ipynb", ".md")]
    return next((place for place in places if place.is_file()), None)


@functools.cache
def cells(path: Path) -> list[nbformat.NotebookNode]:
    """Return the cells of a notebook."""
    return nbformat.read(path, as_version=4).cells


def faults(found: Page) -> list[str]:
    """Return what is wrong with a page, each fault with what to do."""
    path = source(found.name)
    notebook = path is not None and path.suffix == ".ipynb"
    told = [f"left as text, mend its markup: {text}" for text in AS_TEXT.findall(found.prose)]
    told += [f"an image without a description, give it an alt: {x}" for x in found.undescribed]
    told += [f"leads nowhere, mend the link: {link}" for link in found.links if dead(link, found)]
    for name, n in Counter(found.ids).items():
        if n > 1 and not name.endswith("-content"):  # sphinx-exercise gives all its boxes one id
            told.append(f"{n} elements have the id {name}, give one another name")
    text = path.read_text("utf-8") if path and not notebook else ""
    code, asked = [], len(re.findall(r"^:class: dropdown$", text, re.M))
    for cell in cells(path) if notebook else []:
        tags = cell.metadata.get("tags", [])
        asked += "going-deeper" in tags or any(tag.startswith("hide-") for tag in tags)
        asked += len(re.findall(r"^:class: dropdown$", cell.source, re.M))
        code += [cell.source] if cell.cell_type == "code" else []
    if found.boxes != asked:
        told.append(f"{found.boxes} folded boxes, but its tags ask for {asked}")
    shown = [text.strip("\n") for text in found.code]
    if notebook and shown != [text.strip("\n") for text in code]:
        told.append("shows and copies other code than the notebook has: build the book again")
    return told + buttons(found, path) + explorers(found)


def dead(link: str, found: Page) -> bool:
    """Return whether a link into the book leads to no place of it."""
    target, anchor = urldefrag(link)
    if not target.startswith(HERE):
        return False
    name = unquote(urlsplit(target).path).strip("/") or "index.html"
    if name == found.name:
        return bool(anchor) and unquote(anchor) not in found.ids
    if not (HTML / name).is_file():
        return True
    return name.endswith(".html") and bool(anchor) and unquote(anchor) not in page(name).ids


def buttons(found: Page, path: Path | None) -> list[str]:
    """Return faults of what is around a page: its description, and where its buttons lead."""
    if not path:
        return [f"has the buttons {found.buttons}, but no source"] if found.buttons else []
    name, where = path.relative_to(address.ROOT).as_posix(), address.repository()
    asked, plain = [f"{where}/edit/main/{name}"], path
    if path.suffix == ".ipynb":
        name = f"{'zh/' * found.name.startswith('zh/')}{name}"  # a Chinese page's is Chinese
        asked = [address.colab(where, name), address.kaggle(where, name), *asked]
        plain = address.ROOT / "_build" / "colab" / name
    downloads = [link for link in found.buttons if "/_sources/" in link]
    others = [link for link in found.buttons if link not in downloads]
    told = [] if found.described else ["has no description for search engines"]
    if sorted(others) != sorted(asked):
        told.append(f"its buttons open {others}, should open {asked}")
    if len(downloads) != 1:
        return [*told, f"gives {downloads} for download, should give its source"]
    for link in downloads:
        if (HTML / link.removeprefix(HERE)).read_bytes() != plain.read_bytes():
            told.append(f"the download {link} is not {plain.name}")
    return told


def explorers(found: Page) -> list[str]:
    """Return the fault of a page that loads other scripts of explorers than it needs."""
    loaded = sorted(urlsplit(x).path.split("/play/")[1] for x in found.links if "/play/" in x)
    looks = [p.name for name in found.explorers for p in play_files.FOLDER.glob(f"{name}.css")]
    wanted = sorted([*looks, "play.css", "play.js"]) if found.explorers else []
    return [] if loaded == wanted else [f"loads {loaded} for its explorers, needs {wanted}"]


@functools.cache
def compressed(file: Path) -> int:
    """Return the size of a file as a server sends it, compressed."""
    return len(gzip.compress(file.read_bytes(), 6)) if file.is_file() else 0


def weight(found: Page, asked: list[str], origin: str) -> tuple[int, int]:
    """Return the bytes that a page loads, compressed, and those of its explorers' numbers besides.

    These come only when a reader gets to the explorer.
    """
    names = {unquote(urlsplit(url).path) for url in asked if url.startswith(origin)}
    files = [HTML / (name.strip("/") or "index.html") for name in names]
    numbers = [HTML / "_static" / "play" / f"{name}.data.js" for name in found.explorers]
    return sum(compressed(f) for f in files if f not in numbers), sum(map(compressed, numbers))


def site(folder: str) -> int:
    """Return the bytes of the site below a folder; the Chinese pages are not the English ones'."""
    files = [file for file in (HTML / folder).rglob("*") if file.is_file()]
    return sum(f.stat().st_size for f in files if folder or "zh" not in f.relative_to(HTML).parts)
