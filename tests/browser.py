"""A headless browser that can reach nothing but the built book, and what it finds on a page."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import http.server
import os
import queue
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools import address

HTML = address.ROOT / "_build" / "html"
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if "_static" not in path.relative_to(HTML).parts
)
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
SCRIPT = Path(__file__).with_name("browser.js")
WIDTHS = (768, 360, 1400)
BUTTONS = 10
# Each audit's color scheme, width and rules. The first has all rules; in the dark, colors alone are
# different, and on a phone what is shown and what scrolls.
AUDITS = (
    ("light", 1400, None),
    ("dark", 1400, ["color-contrast", "link-in-text-block"]),
    (
        "light",
        360,
        ["aria-hidden-focus", "button-name", "link-name", "scrollable-region-focusable"],
    ),
)


@dataclass
class Page:
    """What a browser found on one page."""

    name: str
    address: str
    problems: list[str] = field(default_factory=list)
    found: dict = field(default_factory=dict)
    overflow: dict[int, str] = field(default_factory=dict)
    hidden: dict = field(default_factory=dict)
    copies: list[dict] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


def unavailable(reason: str) -> None:
    """Skip for a reader, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing; the icon that a browser asks for unasked is an empty one."""

    def do_GET(self):
        """Answer with a file of the book."""
        if self.path == "/favicon.ico":
            self.send_response(http.HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        """Keep the log out of the tests' output."""


@contextlib.contextmanager
def serve():
    """Serve the book on this machine and give its address."""
    if not PAGES:
        unavailable("the book is not built: run `make book` first")
    handler = functools.partial(Quiet, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextlib.contextmanager
def launch(home: str):
    """Start the Chromium of this machine, its profile and caches in the folder `home`."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not executable:
        unavailable("no Chromium or Chrome on this machine: looked for " + ", ".join(BROWSERS))
    try:
        from playwright import sync_api
    except ImportError:
        unavailable("playwright is not installed: it is in requirements/dev.txt")
    places = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
    environment = {**os.environ, **dict.fromkeys(places, home)}
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=executable, args=list(FLAGS), env=environment
        )
        yield running
        running.close()


@functools.cache
def axe() -> str:
    """Return the script of axe-core."""
    try:
        from axe_playwright_python.base import AXE_FILE_PATH
    except ImportError:
        unavailable("axe-playwright-python is not installed: it is in requirements/dev.txt")
    return AXE_FILE_PATH.read_text(encoding="utf-8")


class Tab:
    """A tab of the browser, in which one page after another is opened.

    The browser finds no other host. With `use`, a page is also used as a reader would: all that is
    hidden opened, all buttons for copying clicked, at each width, audited.
    """

    def __init__(self, browser, start: str, use: bool = True) -> None:
        self.start, self.use, self.page = start, use, Page("", "")
        self.looks: dict[str, list[str]] = {"light": [], "dark": []}  # whose contrast is known
        self.context = browser.new_context(viewport={"width": 1400, "height": 900})
        self.context.add_init_script(path=SCRIPT)
        if use:
            self.context.add_init_script(script=axe())
            self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.tab = self.context.new_page()
        self.tab.on("console", lambda m: m.type == "error" and self.note(f"console: {m.text}"))
        self.tab.on("pageerror", lambda error: self.note(f"script: {error}"))
        self.tab.on("request", self.asked)
        self.tab.on("requestfailed", lambda request: self.note(f"failed: {request.url}"))
        self.tab.on("websocket", lambda socket: self.note(f"opened a socket: {socket.url}"))
        self.tab.on("response", self.answered)

    def note(self, problem: str) -> None:
        """Keep a problem of the page that is open."""
        self.page.problems.append(problem)

    def asked(self, request) -> None:
        """Note a request that leaves the book."""
        if not request.url.startswith((self.start, "data:", "blob:")):
            self.note(f"asked another host: {request.url}")

    def answered(self, response) -> None:
        """Note an answer that is an error."""
        if response.status >= 400:
            self.note(f"status {response.status}: {response.url}")

    def open(self, name: str, content: str | None = None) -> Page:
        """Return what the browser finds on the page at `start` + `name`.

        With `content`, that stands in for the page.
        """
        page = self.page = Page(name, self.start + name)
        if content:
            html = {"body": content, "content_type": "text/html; charset=utf-8"}
            self.context.route(page.address, lambda route: route.fulfill(**html))
        self.tab.emulate_media(color_scheme="light")
        self.tab.set_viewport_size({"width": 1400, "height": 900})
        self.tab.goto(page.address, wait_until="load")
        self.tab.evaluate("course.ready()")
        page.found = self.tab.evaluate("course.inspect()")
        if self.use:
            self.use_page(page)
        return page

    def use_page(self, page: Page) -> None:
        """Use the page as a reader would, and note in it how that went."""
        tab = self.tab
        page.hidden = tab.evaluate("course.open()")
        # A few buttons a call: a browser lets a page copy within five seconds of a reader's act.
        for first in range(0, tab.evaluate("course.buttons().length"), BUTTONS):
            page.copies += tab.evaluate("range => course.copy(...range)", [first, first + BUTTONS])
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            page.overflow[width] = tab.evaluate("course.overflow()")
        tab.evaluate("course.thin()")
        for scheme, width, rules in AUDITS:
            tab.emulate_media(color_scheme=scheme)
            tab.set_viewport_size({"width": width, "height": 900})
            found = tab.evaluate("given => course.audit(...given)", [rules, self.looks[scheme]])
            if rules is None or "color-contrast" in rules:
                self.looks[scheme] = found["looks"]
            page.violations += [f"{scheme}, {width} px: {what}" for what in found["faults"]]


def open_page(browser, start: str, name: str, content: str, use: bool = True) -> Page:
    """Return what the browser finds on a page of this content, in a tab of its own."""
    tab = Tab(browser, start, use)
    page = tab.open(name, content)
    tab.context.close()
    return page


def open_book(start: str, home: Path) -> dict[str, Page]:
    """Return what is found on every page of the book, two being open at a time."""
    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in PAGES:
        names.put(name)

    def open_pages(number: int) -> list[Page]:
        pages = []
        with launch(str(home / str(number))) as browser:
            tab = Tab(browser, start)
            with contextlib.suppress(queue.Empty):
                while True:
                    pages.append(tab.open(names.get_nowait()))
        return pages

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = {page.name: page for pages in pool.map(open_pages, (0, 1)) for page in pages}
    return {name: found[name] for name in PAGES}
