"""A headless browser that can reach nothing but the built book, and what it finds on a page."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import http.server
import os
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
    """Serves files and says nothing."""

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
        unavailable("playwright is not installed: it is in requirements-dev.txt")
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
        unavailable("axe-playwright-python is not installed: it is in requirements-dev.txt")
    return AXE_FILE_PATH.read_text(encoding="utf-8")


def open_page(browser, start: str, name: str, content: str | None = None, use: bool = True) -> Page:
    """Return what the browser finds on the page at `start` + `name`, other hosts cut off.

    With `content`, that stands in for the page. With `use`, the page is also used as a reader
    would: all that is hidden opened, all buttons for copying clicked, at each width, audited.
    """
    page = Page(name, start + name)
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(path=SCRIPT)
    if use:
        context.grant_permissions(["clipboard-read", "clipboard-write"])

    def guard(route):
        if content and route.request.url == page.address:
            route.fulfill(body=content, content_type="text/html; charset=utf-8")
        elif route.request.url.startswith((start, "data:", "blob:")):
            route.continue_()
        else:
            page.problems.append(f"asked another host: {route.request.url}")
            route.abort()

    def answered(response):
        if response.status >= 400:
            page.problems.append(f"status {response.status}: {response.url}")

    context.route("**/*", guard)
    tab = context.new_page()
    tab.on("console", lambda m: m.type == "error" and page.problems.append(f"console: {m.text}"))
    tab.on("pageerror", lambda error: page.problems.append(f"script: {error}"))
    tab.on("requestfailed", lambda request: page.problems.append(f"failed: {request.url}"))
    tab.on("websocket", lambda socket: page.problems.append(f"opened a socket: {socket.url}"))
    tab.on("response", answered)
    tab.goto(page.address, wait_until="load")
    tab.evaluate("course.ready()")
    page.found = tab.evaluate("course.inspect()")
    if use:
        use_page(tab, page)
    context.close()
    return page


def open_book(start: str, home: Path) -> dict[str, Page]:
    """Return what is found on every page of the book, two being open at a time.

    From a folder, not a server, the pages are opened but not used.
    """

    def every_second(first: int) -> dict[str, Page]:
        use = not start.startswith("file:")
        with launch(str(home / str(first))) as browser:
            return {name: open_page(browser, start, name, use=use) for name in PAGES[first::2]}

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(every_second, (0, 1)))
    found = {name: page for half in halves for name, page in half.items()}
    return {name: found[name] for name in PAGES}


def use_page(tab, page: Page) -> None:
    """Use the page in the tab as a reader would, and note in `page` how that went."""
    page.hidden = tab.evaluate("course.open()")
    # One call a button: a browser lets a page copy within five seconds of a reader's act.
    for number in range(tab.evaluate("course.buttons().length")):
        page.copies.append(tab.evaluate("number => course.copy(number)", number))
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        page.overflow[width] = tab.evaluate("course.overflow()")
    tab.evaluate("course.thin()")
    tab.evaluate(axe())
    for scheme, width, rules in AUDITS:
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 900})
        found = tab.evaluate("rules => course.audit(rules)", rules)
        page.violations += [f"{scheme}, {width} px: {what}" for what in found]
