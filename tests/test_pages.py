"""The built pages: their files, and what a reader finds who opens them in a browser."""

from __future__ import annotations

import datetime
import json
import re

import pytest

from tests import page_rules
from tests.browser import HTML, PAGES, Tab, in_course, no_chinese
from tools import page_report

ENGLISH = [page for page in PAGES if not page.startswith("zh/")] or ["(not built)"]
CHINESE = [page for page in PAGES if page.startswith("zh/")] or ["(not built)"]
# One page of each kind: the pages of a kind have their scripts and styles in common.
KINDS = (
    "index.html",
    "appendix/glossary.html",
    "chapters/bert.html",
    "zh/index.html",
)
# The Chinese pages have the code and the scripts of the English ones: a few, and each day another.
SOME = ["zh/appendix/glossary.html", "zh/chapters/bert.html"]
SOME.append(CHINESE[datetime.date.today().toordinal() % len(CHINESE)])
OPENED = sorted({*ENGLISH, *KINDS, *SOME} & {*PAGES}) or ["(not built)"]
# Terms of the course, and the section that a reader who looks for each must be led to first.
SECTIONS = {
    "negative sampling": "word2vec.html#negative-sampling-a-few-questions-instead-of-a-long-sum",
    "learning rate": "training.html#the-learning-rate-how-far-to-step",
    "KV cache": "generation.html#the-key-value-cache-kv-cache-writing-faster",
    "position": "transformer.html#positional-encoding-the-order-of-the-words",
    "attention mask": "transformer.html#attention-masks-hiding-the-future",
    "perplexity": "gpt.html#perplexity-how-low-can-the-loss-go",
    "LoRA": "finetuning.html#lora-last-layers-or-all-what-to-train",
    "residual connection": "transformer.html#residual-connections-how-to-stack-many-layers",
}
# And a page that must be among those found.
SEARCHES = {
    "co-occurrence": "chapters/glove.html",
    "n-gram": "chapters/fasttext.html",
    "字节对编码": "chapters/bpe.html",
    "3CosAdd": "chapters/similarity_and_analogy.html",
    "principal components": "solutions/exercise_27_4.html",
}
SECTIONS = {term: page for term, page in SECTIONS.items() if in_course(f"chapters/{page}")}
SEARCHES = {term: page for term, page in SEARCHES.items() if in_course(page)}
SEARCH = """term => Search._performSearch(...Search._parseQuery(term)).reverse().map(
    ([page, , anchor]) => `${page}.html${anchor}`)"""
# The most that a page may load, in bytes as sent and in requests before a reader scrolls; and how
# many outputs may be cut in a window of 1,400 px, and tables in one of 360. None: printed alone.
LIMITS = {"bytes": 1_200_000, "requests": 25, "cut outputs": 0, "cut tables": 0}
SITE = 30_000_000  # bytes of an edition


@pytest.mark.parametrize("pages", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_files_are_in_order(origin, pages):
    if pages == ["(not built)"]:
        no_chinese()
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
        for step in ("inspect", "open", "copy", "overflow")
        for fault in tab.page.evaluate(f"course.{step}()")
    ]
    told += measured(tab, name) if content is None else []
    for width in (768, 1400) if full else ():
        tab.look("light", width)
        told += tab.page.evaluate("course.overflow()")
    if full:
        told += tab.audit("body")
    return [*told, *tab.problems]


def measured(tab: Tab, name: str) -> list[str]:
    """Measure a page whose boxes are open, note the numbers, and return those beyond a limit."""
    tables = tab.page.evaluate("course.wide('.pst-scrollable-table-container')")
    tab.look("light", 1400)
    outputs = tab.page.evaluate("course.wide('.cell_output pre, main .cell_output .output')")
    size, numbers = page_rules.weight(page_rules.page(name), tab.asked, tab.start)
    found = dict(zip(LIMITS, (size, tab.opened, outputs, tables), strict=True))
    note(name, {**found, "explorer": numbers})
    return [
        f"{kind}: {found[kind]:,}, at most {n:,}" for kind, n in LIMITS.items() if found[kind] > n
    ]


def note(name: str, numbers: dict[str, int]) -> None:
    """Keep numbers for `python -m tools.page_report`, which prints those of the last run."""
    file = page_report.FOLDER / f"{name.replace('/', ' ')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(numbers), encoding="utf-8")


@pytest.mark.parametrize("name", OPENED)
def test_page_can_be_read_and_used(tab, name):
    told = used(tab, name, full=name in KINDS)
    assert not told, f"{name}: " + "\n".join(told[:10])


@pytest.mark.parametrize("folder", ["", "zh"])
def test_the_site_is_small(origin, folder):
    size = page_rules.site(folder)
    note(f"{folder or 'en'} (site)", {"bytes": size})
    assert size <= SITE


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


@pytest.mark.parametrize("start", ["origin", "folder"])
def test_search_leads_to_sections(browser, origin, start):
    tab = Tab(browser, origin if start == "origin" else HTML.as_uri() + "/")
    tab.open("search.html?q=LoRA")
    tab.page.wait_for_function("document.querySelector('#search-results li a')")
    first = tab.page.locator("#search-results li").first
    assert first.locator("a").get_attribute("href").endswith(SECTIONS["LoRA"])
    if start == "origin":  # a page from a folder may not read others
        snippet = first.locator(".context").text_content()
        assert "LoRA" in snippet and not re.search(
            r"\\[a-z(]|[$]|low-rank adaptation.{0,40}低秩", snippet
        )
    found = {
        term: tab.page.evaluate(SEARCH, term) for term in {**SECTIONS, **SEARCHES, "qwxzv": ""}
    }
    tab.context.close()
    ranks = {
        t: [*found[t], f"chapters/{x}"].index(f"chapters/{x}") + 1 for t, x in SECTIONS.items()
    }
    note("search (rank)", ranks)
    assert set(ranks.values()) == {1}, ranks
    assert not {term: page for term, page in SEARCHES.items() if page not in found[term]}
    assert found["qwxzv"] == []


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
<img src="missing.png" alt="a picture"><img src="../_static/favicon.svg" alt="">
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
        "without a description.*favicon.svg",
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
