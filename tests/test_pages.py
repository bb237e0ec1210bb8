"""The built pages: their files, and what a reader finds who opens them in a browser."""

from __future__ import annotations

import datetime
import re
from urllib.parse import quote

import pytest

from tests import page_rules
from tests.browser import HTML, PAGES, Tab, unavailable

ENGLISH = [page for page in PAGES if not page.startswith("zh/")] or ["(not built)"]
CHINESE = [page for page in PAGES if page.startswith("zh/")] or ["(not built)"]
# One page of each kind: the pages of a kind have their scripts and styles in common.
KINDS = (
    "index.html",
    "appendix/glossary.html",
    "chapters/bert.html",
    "solutions/exercise_27_4.html",
    "zh/index.html",
    "zh/chapters/bert.html",
)
# The Chinese pages have the code and the scripts of the English ones: a few, and each day another.
SOME = ["zh/appendix/glossary.html", "zh/solutions/exercise_27_4.html"]
SOME.append(CHINESE[datetime.date.today().toordinal() % len(CHINESE)])
OPENED = sorted({*ENGLISH, *KINDS, *SOME} & {*PAGES}) or ["(not built)"]
# Terms of the course, and a page that a reader who looks for each must be led to.
SEARCHES = {
    "negative sampling": "chapters/word2vec",
    "co-occurrence": "chapters/glove",
    "n-gram": "chapters/fasttext",
    "字节对编码": "chapters/bpe",
    "3CosAdd": "chapters/similarity_and_analogy",
    "perplexity": "chapters/gpt",
    "principal components": "solutions/exercise_27_4",
}


@pytest.mark.parametrize("pages", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_files_are_in_order(origin, pages):
    if pages == ["(not built)"]:
        unavailable("the Chinese edition is not built: run `make book-zh` first")
    told = [
        f"{name}: {fault}" for name in pages for fault in page_rules.faults(page_rules.page(name))
    ]
    assert not told, "\n".join(told[:20])


@pytest.fixture(scope="session")
def tab(browser, origin):
    """Give a tab in which one page after another is opened."""
    tab = Tab(browser, origin)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return tab


def used(tab: Tab, name: str, full: bool, content: str | None = None) -> list[str]:
    """Use a page as a reader with a phone would, and return what went wrong.

    What is hidden is opened and code is copied. With `full`, larger windows are tried as well, and
    axe-core looks at the page, in light and in dark.
    """
    tab.open(name, 360, content)
    told = [
        fault
        for step in ("inspect", "open", "copy")
        for fault in tab.page.evaluate(f"course.{step}()")
    ]
    for width in (360, 768, 1400) if full else (360,):
        tab.look("light", width)
        told += tab.page.evaluate("course.overflow()")
    if full:
        told += tab.audit("body")
    return [*told, *tab.problems]


@pytest.mark.parametrize("name", OPENED)
def test_page_can_be_read_and_used(tab, name):
    told = used(tab, name, full=name in KINDS)
    assert not told, f"{name}: " + "\n".join(told[:10])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PAGES)
def test_page_can_be_used_in_every_window_and_by_everyone(tab, name):
    told = used(tab, name, full=True)
    assert not told, f"{name}: " + "\n".join(told[:10])


def test_pages_open_from_a_folder_too(browser, origin):
    tab = Tab(browser, HTML.as_uri() + "/")
    for name in {*KINDS} & {*PAGES}:
        tab.open(name)
        assert not tab.page.evaluate("course.inspect()") + tab.problems, name
    tab.context.close()


def test_search_finds_terms_and_nothing_that_is_not_there(tab, origin):
    def found(term: str) -> list[str]:
        tab.open(f"search.html?q={quote(term)}")
        tab.page.wait_for_function(
            "/did not match|found/.test(document.querySelector('.search-summary')?.textContent)"
        )
        links = tab.page.eval_on_selector_all("#search-results li a", "all => all.map(e => e.href)")
        return [re.sub(r"\.html.*", "", link.removeprefix(origin)) for link in links]

    missed = {term: page for term, page in SEARCHES.items() if page not in found(term)}
    assert not missed
    assert found("qwxzv") == []


def test_a_term_shows_its_meaning_to_the_pointer_and_to_the_keyboard(browser, origin):
    tab = browser.new_page()
    tab.goto(f"{origin}chapters/glove.html")
    term = tab.get_by_role("link", name="context window", exact=True)
    meaning = tab.locator(f"#{term.get_attribute('aria-describedby')}")
    assert "上下文窗口" in meaning.text_content()
    assert not meaning.is_visible()
    term.hover()
    assert meaning.is_visible()
    tab.keyboard.press("Escape")
    assert not meaning.is_visible()
    tab.mouse.move(0, 0)
    tab.keyboard.press("Tab")  # so that the next focus counts as the keyboard's
    term.focus()
    assert meaning.is_visible()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/appendix/glossary.html#term-context-window")
    tab.close()


# The rules can fail: a page with every fault is put in place of one.

FAULTY = r"""<!doctype html><html lang="en"><head><title>x</title><style>
@media (prefers-color-scheme: dark) { .night { color: #333; background: #222 } }
@media (min-width: 700px) and (max-width: 800px) { .tablet { width: 900px } }
</style><script defer src="../_static/mathjax/tex-chtml.js"></script></head><body><main>
<script>throw new Error("a broken script")</script>
<script src="https://example.org/far.js"></script>
<img src="missing.png" alt="a picture"><img src="../_static/plus.png" alt="">
<span class="math">plain</span><span class="math">\(\frac{1}\)</span>
<span class="math">\(\nosuch{x}\)</span><p>text with $$y$$ and with {term}`z`</p>
<div style="width: 2000px">wide</div><div class="tablet"></div><a href="gone.html">dead</a>
<p id="twice"></p><p id="twice"></p><a href="bpe.html#gone">gone</a>
<details id="open" open><summary>open</summary><p>seen</p></details>
<details id="stuck"><summary onclick="event.preventDefault()">stuck</summary><p>never</p></details>
<div id="covered" style="position: relative" class="dropdown admonition">
<p class="admonition-title">covered</p><p>text</p><div style="position: absolute; inset: 0"></div>
</div>
<div class="cell_input"><pre>y = 2</pre><button class="copybtn">a dead copy</button></div>
<p style="color: #aaa; background: #fff">pale</p><p class="night">dim</p>
<button id="nameless"></button>
<a href="https://colab.research.google.com/github/a/b/blob/main/other.ipynb">Colab</a>
<a class="btn-download-source-button" href="../_sources/appendix/glossary.md">source</a>
</main></body></html>"""


def test_faults_of_files_are_seen(origin):
    told = page_rules.faults(page_rules.Page("chapters/bert.html", FAULTY))
    for message in (
        r"left as text.*text with \$\$y",
        "left as text.*{term}",
        "without a description.*plus.png",
        "leads nowhere.*gone.html",
        "leads nowhere.*bpe.html#gone",
        "2 elements have the id twice",
        "3 folded boxes, but its tags",
        "other code than the notebook",
        "other.ipynb.*should open.*chapters/bert.ipynb",
        "glossary.md is not bert.ipynb",
    ):
        assert any(re.search(message, fault) for fault in told), (message, told)
    script = '<script src="_static/play/play.js"></script>'
    assert "needs []" in page_rules.faults(page_rules.Page("search.html", script))[0]


def test_faults_in_the_browser_are_seen(browser, origin):
    tab = Tab(browser, origin)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    told = used(tab, "chapters/faulty.html", full=True, content=FAULTY)
    tab.context.close()
    for message in (
        "a broken script",
        "another host: https://example.org/far.js",
        "status 404: .*missing.png",
        "did not load: .*missing.png",
        "not typeset: plain",
        r"MathJax cannot read",
        r"does not know: .*nosuch",
        "not hidden at first: .*open",
        "does not open: .*stuck",
        "in front of its title: .*covered",
        "shown y = 2, copied nothing",
        "wider than 1400 px: .*2000px",
        "wider than 768 px: (.|\n)*tablet",
        "light, 1400 px: color-contrast.*pale",
        "dark, 1400 px: color-contrast.*dim",
        "light, 360 px: button-name.*nameless",
    ):
        assert any(re.search(message, fault) for fault in told), (message, told)
