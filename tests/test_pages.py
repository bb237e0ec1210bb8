"""The built pages, each opened in a headless browser that can reach nothing but the book itself."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

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
WIDTHS = (360, 1400)

# What a page says about itself once its mathematics is typeset.
INSPECT = """async () => {
  if (window.MathJax) await window.MathJax.startup.promise;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
  await document.fonts.ready;
  const prose = document.querySelector("main").cloneNode(true);
  prose.querySelectorAll("pre, code, script, style, mjx-container").forEach(e => e.remove());
  const formulas = [...document.querySelectorAll(".math")];
  return {
    formulas: formulas.length,
    raw: formulas.filter(e => !e.querySelector("mjx-container")).map(e => e.textContent),
    broken: [...document.querySelectorAll("mjx-merror")].map(
      e => e.getAttribute("data-mjx-error")),
    unknown: [...document.querySelectorAll("mjx-assistive-mml [mathcolor=red]")].map(
      e => e.textContent),
    fonts: [...document.fonts].filter(f => f.status === "loaded" && /MJX/.test(f.family)).length,
    prose: prose.textContent,
    images: [...document.images].map(e => ({
      source: e.src, width: e.naturalWidth, alt: e.getAttribute("alt") || "",
    })),
    links: [...document.querySelectorAll("a[href]")].map(e => e.href),
    ids: [...document.querySelectorAll("[id]")].map(e => e.id),
  };
}"""


@dataclass
class Page:
    """What a browser found on one page."""

    name: str
    address: str
    problems: list[str] = field(default_factory=list)
    found: dict = field(default_factory=dict)
    overflow: dict[int, str] = field(default_factory=dict)


def unavailable(reason: str) -> None:
    """Skip for a reader, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

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
        unavailable("playwright is not installed: it is in requirements-dev.txt")
    home = str(tmp_path_factory.mktemp("browser"))
    places = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
    environment = {**os.environ, **dict.fromkeys(places, home)}
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=executable, args=list(FLAGS), env=environment
        )
        yield running
        running.close()


def open_page(browser, start: str, name: str, content: str | None = None) -> Page:
    """Return what the browser finds on the page at `start` + `name`, other hosts cut off.

    With `content`, that stands in for the page.
    """
    page = Page(name, start + name)
    context = browser.new_context(viewport={"width": 1400, "height": 900})

    def guard(route):
        if content and route.request.url == page.address:
            route.fulfill(body=content, content_type="text/html")
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
    page.found = tab.evaluate(INSPECT)
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        page.overflow[width] = tab.evaluate(OVERFLOW)
    context.close()
    return page


# The innermost elements that reach beyond the window, unless a box of their own scrolls them.
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const wide = [...document.querySelectorAll("main *")].filter(
    e => e.getBoundingClientRect().right > width + 1);
  return wide.slice(0, 3).map(e => e.outerHTML.slice(0, 120)).join("\\n") || "unknown element";
}"""


@pytest.fixture(scope="session")
def site(browser, origin) -> dict[str, Page]:
    """Open every page once and give what was found, by name."""
    return {name: open_page(browser, origin, name) for name in PAGES}


@pytest.fixture(params=PAGES or ["(not built)"])
def page(request, site) -> Page:
    """Give each page in turn."""
    return site[request.param]


def test_page_is_quiet_and_asks_no_other_host(page):
    assert not page.problems, "\n".join(page.problems)


def test_page_typesets_its_mathematics(page):
    found = page.found
    assert not found["raw"], f"not typeset: {found['raw'][:5]}"
    assert not found["broken"], f"MathJax cannot read: {found['broken']}"
    assert not found["unknown"], f"commands that MathJax does not know: {found['unknown']}"
    assert found["fonts"] or not found["formulas"], "the fonts of MathJax have not come"
    left = re.findall(r".{0,40}(?:\$\$|\\\(|\\\[|\\begin\{|(?<!\\)\$\\\w).{0,40}", found["prose"])
    assert not left, f"mathematics left as text: {left}"


def test_page_leaves_no_directive_as_text(page):
    left = re.findall(
        r".{0,40}(?:\{(?:cite|term|ref|numref|eq|doc)(?::\w+)?\}|:::|```).{0,40}",
        page.found["prose"],
    )
    assert not left, f"a directive left as text: {left}"


def test_page_shows_its_images_and_describes_them(page):
    images = page.found["images"]
    assert not [image["source"] for image in images if not image["width"]], "did not load"
    assert not [image["source"][:200] for image in images if not image["alt"].strip()], "no alt"


def test_page_fits_its_window(page):
    too_wide = {width: what for width, what in page.overflow.items() if what}
    assert not too_wide


def test_page_links_to_places_that_exist(page, site, origin):
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
    assert not dead


@pytest.mark.parametrize("name", [n for n in PAGES if n.startswith(("chapters/", "solutions/"))])
def test_chapter_opens_in_colab(site, name):
    notebook = Path(name).with_suffix(".ipynb").as_posix()
    assert address.colab(address.repository(), notebook) in site[name].found["links"]


def test_pages_open_from_a_folder_too(browser):
    """Some themes preload fonts in a way that Chromium refuses there; other faults do count."""
    if not PAGES:
        unavailable("the book is not built: run `make book` first")
    start = HTML.as_uri() + "/"
    for name in PAGES:
        page = open_page(browser, start, name)
        problems = [problem for problem in page.problems if "/webfonts/" not in problem]
        problems = [problem for problem in problems if not problem.endswith("net::ERR_FAILED")]
        assert not problems, f"{name}: " + "\n".join(problems)
        assert page.found["fonts"] or not page.found["formulas"], name
        assert not page.found["raw"], name


def test_search_finds_a_chapter(browser, origin):
    tab = browser.new_page()
    tab.goto(f"{origin}search.html?q=negative+sampling")
    tab.wait_for_selector("#search-results li a", timeout=10_000)
    tab.close()


# The tests can fail: a page with every fault is put in place of one.

FAULTY = r"""<!doctype html><html><head><title>x</title></head><body><main>
<script>throw new Error("a broken script")</script>
<script src="https://example.org/far.js"></script>
<img src="missing.png" alt="a picture"><img src="_static/plus.png" alt="">
<span class="math">\(x\)</span><p>left as text: $$y$$ and {term}`z`</p>
<div style="width: 2000px">wide</div><a href="gone.html">dead</a></main></body></html>"""
FORMULA = r"""<!doctype html><html><head><title>x</title>
<script defer src="_static/mathjax/tex-chtml.js"></script></head><body><main>
<span class="math">\(FORMULA\)</span></main></body></html>"""


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (test_page_is_quiet_and_asks_no_other_host, "a broken script"),
        (test_page_is_quiet_and_asks_no_other_host, "another host: https://example.org/far.js"),
        (test_page_is_quiet_and_asks_no_other_host, "status 404: .*missing.png"),
        (test_page_typesets_its_mathematics, "not typeset"),
        (test_page_leaves_no_directive_as_text, "as text"),
        (test_page_shows_its_images_and_describes_them, "did not load"),
        (test_page_fits_its_window, "2000px"),
    ],
)
def test_faults_are_seen(browser, origin, check, message):
    with pytest.raises(AssertionError, match=message):
        check(open_page(browser, origin, "faulty.html", FAULTY))


def test_dead_links_and_missing_descriptions_are_seen(browser, origin):
    page = open_page(browser, origin, "faulty.html", FAULTY)
    with pytest.raises(AssertionError, match="gone.html"):
        test_page_links_to_places_that_exist(page, {page.name: page}, origin)
    page.found["images"] = [image for image in page.found["images"] if image["width"]]
    with pytest.raises(AssertionError, match="no alt"):
        test_page_shows_its_images_and_describes_them(page)


@pytest.mark.parametrize(
    ("formula", "message"),
    [("x", None), (r"\frac{1}", "cannot read"), (r"\nosuch{x}", "does not know: .*nosuch")],
)
def test_bad_formulas_are_seen(browser, origin, formula, message):
    page = open_page(browser, origin, "formula.html", FORMULA.replace("FORMULA", formula))
    if message is None:
        test_page_typesets_its_mathematics(page)
    else:
        with pytest.raises(AssertionError, match=message):
            test_page_typesets_its_mathematics(page)
