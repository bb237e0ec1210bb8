"""Print the built book: a PDF a chapter and one of the whole, for both editions, in _build/print/.

    python -m tools.print [--solutions] [PAGE…]

A headless Chromium prints each page with the style below `@media print` in _static/course.css, from
A4 margins to what is left out. PAGE names pages, such as chapters/bpe; then there is no whole book.
With --solutions the solutions are printed, too: those in the chapters and their own pages.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from pypdf import PdfWriter
from pypdf.generic import NameObject, TextStringObject

from tools import address, translation

HTML = address.ROOT / "_build" / "html"
PRINT = address.ROOT / "_build" / "print"
EDITIONS = {"": "en", "zh/": "zh"}
BROWSERS = "chromium chromium-browser google-chrome google-chrome-stable chrome microsoft-edge"
FLAGS = ("--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
# Formulas and pictures have come; links to other pages lead to the published book.
READY = """async ([built, published, first, solutions]) => {
  await window.MathJax?.startup?.promise;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
  await document.fonts.ready;
  for (const link of document.querySelectorAll("a[href]")) {
    const given = link.getAttribute("href");
    const there = new URL(given, location).href;
    if (!given.startsWith("#")) link.setAttribute("href", there.replace(built, published));
  }
  document.documentElement.dataset.theme = "light";
  document.documentElement.classList.toggle("solutions", solutions);
  document.documentElement.style.counterReset = `page ${first - 1}`;
}"""
# Chromium makes a bookmark of each heading, but joins words where a line ends.
TITLES = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .filter((heading) => heading.checkVisibility()).map((heading) => heading.innerText)"""


def pages(solutions: bool) -> list[str]:
    """Return the names of the book's pages in the order of its contents."""

    def files(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            yield from (part[key] for key in ("root", "file") if key in part)
            part = list(part.values())
        for inner in part if isinstance(part, list) else []:
            yield from files(inner)

    contents = yaml.safe_load((address.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [name for name in files(contents) if solutions or not name.startswith("solutions/")]


def chromium(playwright: Playwright) -> Browser:
    """Start the browser: one of the machine's, else Playwright's own."""
    executable = next(filter(None, map(shutil.which, BROWSERS.split())), None)
    return playwright.chromium.launch(executable_path=executable, args=list(FLAGS))


def pdf(
    tab: Page,
    name: str,
    path: Path,
    *,
    first: int = 1,
    solutions: bool = False,
    folder: Path | None = None,
) -> int:
    """Print a page of the book, or of `folder`, and return how many sheets it has.

    They are numbered from `first` on.
    """
    folder = folder or HTML
    tab.goto((folder / f"{name}.html").as_uri())
    published = address.pages(address.repository())
    tab.evaluate(READY, [f"{folder.as_uri()}/", published, first, solutions])
    path.parent.mkdir(parents=True, exist_ok=True)
    tab.pdf(path=path, prefer_css_page_size=True, outline=True, tagged=True)
    tab.emulate_media(media="print")
    titles = tab.evaluate(TITLES)
    tab.emulate_media()
    writer = PdfWriter(clone_from=path)
    bookmarks = list(walk(writer.get_outline_root()))
    for bookmark, title in zip(bookmarks, titles, strict=True):
        bookmark[NameObject("/Title")] = TextStringObject(title)
    writer.write(path)
    return len(writer.pages)


def walk(root: Any) -> Iterator[Any]:
    """Yield the bookmarks below one, from first to last."""
    bookmark = root.get("/First")
    while bookmark:
        yield bookmark.get_object()
        yield from walk(bookmark.get_object())
        bookmark = bookmark.get_object().get("/Next")


def edition(tab: Page, folder: str, names: list[str], *, whole: bool, solutions: bool) -> None:
    """Print the pages of one edition, and with `whole` the book that they make."""
    sheets, book = 0, PdfWriter()
    for name in names:
        path = PRINT / EDITIONS[folder] / f"{name}.pdf"
        first = sheets + 1 if whole else 1
        sheets += pdf(tab, folder + name, path, first=first, solutions=solutions)
        book.append(path)
    if whole:
        book.page_mode = "/UseOutlines"
        book.compress_identical_objects()
        book.write(PRINT / EDITIONS[folder] / "pretraining-by-hand.pdf")
    print(f"{sheets} pages are printed: {PRINT / EDITIONS[folder]}")


def main(arguments: list[str] | None = None) -> int:
    """Print the pages named, or all, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--solutions", action="store_true", help="print them, too")
    options = parser.parse_args(arguments)
    if not (HTML / "index.html").exists():
        parser.error("the book is not built: run `make book` first, or `make book-zh`")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # Chromium's files count their parts short
    names = options.pages or pages(options.solutions)
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        for folder in [f for f in translation.FOLDERS if (HTML / f / "index.html").exists()]:
            tab = browser.new_page()
            edition(tab, folder, names, whole=not options.pages, solutions=options.solutions)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
