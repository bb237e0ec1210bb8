"""A headless browser that can reach nothing but the built book."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest

from tools import address

HTML = address.ROOT / "_build" / "html"
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if not {"_static", "slides"} & {*path.relative_to(HTML).parts}
)
BROWSERS = [
    *"chromium chromium-browser google-chrome google-chrome-stable chrome microsoft-edge".split(),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
]
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
SCRIPT = Path(__file__).with_name("browser.js")
DESKTOP = {"width": 1400, "height": 900}
PHONE = {"width": 360, "height": 740}
# The scheme, the width and the rules of each audit. The first has all rules; in the dark, colors
# alone are different, and on a phone what is shown and what scrolls.
AUDITS = (
    ("light", 1400, None),
    ("dark", 1400, ["color-contrast", "link-in-text-block"]),
    (
        "light",
        360,
        ["aria-hidden-focus", "button-name", "link-name", "scrollable-region-focusable"],
    ),
)


def in_course(page: str) -> bool:
    """Return whether the course has the notebook of a page; a fork may have removed it."""
    return (address.ROOT / page.partition("#")[0]).with_suffix(".ipynb").exists()


def unavailable(reason: str) -> None:
    """Skip for a reader, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def no_chinese() -> None:
    """Skip where the Chinese edition is left out; else it has not been built."""
    from tools import translation  # here, since it loads the book's builder

    if not translation.CHINESE:
        pytest.skip(translation.LEFT_OUT)
    unavailable("the Chinese edition is not built: run `make book-zh`")


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


@pytest.fixture(scope="session")
def origin():
    """Serve the book on this machine and give its address."""
    if not PAGES:
        unavailable("the book is not built: run `make book` first")
    handler = functools.partial(Quiet, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Start the Chromium of this machine, its profile and caches in a temporary folder."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not executable:
        unavailable("no Chromium or Chrome on this machine: looked for " + ", ".join(BROWSERS))
    try:
        from playwright import sync_api
    except ImportError:
        unavailable("playwright is not installed: it is in requirements/dev.txt")
    places = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
    environment = {**os.environ, **dict.fromkeys(places, str(tmp_path_factory.mktemp("browser")))}
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
    """A tab of the browser; `problems` is what went wrong since it opened its page.

    Without `math`, formulas stay as they are typed, and a chapter is there in half the time.
    """

    def __init__(self, browser, start: str, math: bool = True, **options) -> None:
        self.start, self.problems, self.asked, self.options = start, [], [], options
        self.context = browser.new_context(**{"viewport": DESKTOP, **options})
        self.context.add_init_script(path=SCRIPT)
        if not math:
            script = {"body": "", "content_type": "text/javascript"}
            self.context.route("**/mathjax/**", lambda route: route.fulfill(**script))
        self.page = self.context.new_page()
        note = self.note
        self.page.on("console", lambda m: m.type == "error" and note(f"console: {m.text}"))
        self.page.on("pageerror", lambda error: note(f"script: {error}"))
        self.page.on("request", self.request)
        self.page.on("requestfailed", lambda request: note(f"failed: {request.url}"))
        self.page.on("websocket", lambda socket: note(f"opened a socket: {socket.url}"))
        self.page.on("response", self.answered)

    def note(self, problem: str) -> None:
        """Keep a problem, but for the fonts that the theme may not preload from a folder."""
        from_folder = self.start.startswith("file:")
        if not (from_folder and ("/webfonts/" in problem or problem.endswith("net::ERR_FAILED"))):
            self.problems.append(problem)

    def request(self, request) -> None:
        """Note what is asked for, and a request that leaves the book."""
        self.asked.append(request.url)
        if not request.url.startswith((self.start, "data:", "blob:")):
            self.note(f"asked another host: {request.url}")

    def answered(self, response) -> None:
        """Note an answer that is an error."""
        if response.status >= 400:
            self.note(f"status {response.status}: {response.url}")

    def open(self, name: str, width: int = 1400, content: str | None = None) -> None:
        """Open the page at `start` + `name`; with `content`, that stands in for it."""
        self.problems, self.asked = [], []
        if content:
            html = {"body": content, "content_type": "text/html; charset=utf-8"}
            self.context.route(self.start + name, lambda route: route.fulfill(**html))
        self.look("light", width)
        self.page.goto(self.start + name, wait_until="load")
        self.page.evaluate("course.ready()")
        self.opened = len(self.asked)  # the requests without those that scrolling brings
        self.page.evaluate("course.images()")

    def look(self, scheme: str, width: int) -> None:
        """Change the window's width and the color scheme of the system."""
        self.page.emulate_media(color_scheme=scheme)
        self.page.set_viewport_size({"width": width, "height": 900})

    def audit(self, part: str) -> list[str]:
        """Return what axe-core finds serious or critical in a part of the page that is open."""
        self.page.evaluate("part => course.alone(part)", part)
        self.page.evaluate(axe())
        faults = []
        for scheme, width, rules in AUDITS:
            self.look(scheme, width)
            found = self.page.evaluate("given => course.audit(...given)", [part, rules])
            faults += [f"{scheme}, {width} px: {fault}" for fault in found]
        return faults
