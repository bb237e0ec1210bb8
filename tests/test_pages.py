"""The built pages, each opened in a headless browser that can reach nothing but the book itself."""

from __future__ import annotations

import re
import shutil
from urllib.parse import quote

import pytest

from tests import page_rules
from tests.browser import HTML, PAGES, Page, Tab, launch, open_book, open_page, serve, unavailable
from tools import address

# Terms of the course, and a page that a reader who looks for each must be led to.
SEARCHES = {
    "negative sampling": "chapters/word2vec",
    "负采样": "chapters/word2vec",
    "hierarchical softmax": "chapters/word2vec",
    "co-occurrence": "chapters/glove",
    "n-gram": "chapters/fasttext",
    "字节对编码": "chapters/bpe",
    "词元": "chapters/bpe",
    "WordPiece": "chapters/pretrained_models",
    "3CosAdd": "chapters/similarity_and_analogy",
    "WEAT": "chapters/bias",
    "dropout": "chapters/training",
    "LSTM": "chapters/text_encoders",
    "注意力": "chapters/transformer",
    "掩码语言模型": "chapters/bert",
    "perplexity": "chapters/gpt",
    "beam search": "chapters/seq2seq",
    "束搜索": "chapters/seq2seq",
    "Viterbi": "chapters/tags",
    "Huffman": "chapters/compression",
    "重参数化": "chapters/vae",
    "principal components": "solutions/exercise_27_4",
}
# One page of each kind: they have their scripts and styles in common.
KINDS = (
    "index.html",
    "appendix/glossary.html",
    "chapters/bert.html",
    "solutions/exercise_27_4.html",
    "zh/index.html",
    "zh/chapters/bert.html",
)


@pytest.fixture(scope="module")
def origin():
    """Serve the book on this machine and give its address."""
    with serve() as start:
        yield start


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start the Chromium of this machine, its profile and caches in a temporary folder."""
    with launch(str(tmp_path_factory.mktemp("browser"))) as running:
        yield running


@pytest.fixture(scope="module")
def site(origin, tmp_path_factory) -> dict[str, Page]:
    """Open and use every page once and give what was found, by name."""
    return open_book(origin, tmp_path_factory.mktemp("browsers"))


@pytest.mark.parametrize("name", PAGES or ["(not built)"])
@pytest.mark.parametrize("rule", page_rules.RULES, ids=lambda rule: rule.__name__)
def test_page_keeps_the_rule(site, name, rule):
    faults = rule(site[name])
    assert not faults, rule.__doc__ + "\n" + "\n".join(faults[:10])


@pytest.mark.parametrize("name", PAGES or ["(not built)"])
def test_page_links_to_places_that_exist(site, origin, name):
    dead = page_rules.links(site[name], site, origin)
    assert not dead


def test_pages_open_from_a_folder_too(browser):
    """Some themes preload fonts in a way that Chromium refuses there; other faults do count."""
    if not PAGES:
        unavailable("the book is not built: run `make book` first")
    tab = Tab(browser, HTML.as_uri() + "/", use=False)
    for name in KINDS:
        page = tab.open(name)
        problems = [problem for problem in page.problems if "/webfonts/" not in problem]
        problems = [problem for problem in problems if not problem.endswith("net::ERR_FAILED")]
        assert not problems, f"{name}: " + "\n".join(problems)
        assert not page_rules.mathematics(page), name
    tab.context.close()


@pytest.fixture(scope="module")
def search(browser, origin):
    """Return a function from a term to the pages that the book's search finds, best first."""
    tab = browser.new_page()

    def found(term: str) -> list[str]:
        tab.goto(f"{origin}search.html?q={quote(term)}")
        tab.wait_for_function(
            "/did not match|found/.test(document.querySelector('.search-summary')?.textContent)"
        )
        pages = tab.eval_on_selector_all("#search-results li a", "found => found.map(e => e.href)")
        return [re.sub(r"\.html.*", "", page.removeprefix(origin)) for page in pages]

    yield found
    tab.close()


@pytest.mark.parametrize(("term", "page"), SEARCHES.items())
def test_search_finds(search, term, page):
    assert page in search(term)


def test_search_finds_nothing_that_is_not_there(search):
    assert search("qwxzv") == []


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

FAULTY = r"""<!doctype html><html><head><title>x</title><style>
.toggle-hidden > :not(.admonition-title) { visibility: hidden }
@media (prefers-color-scheme: dark) { .night { color: #333; background: #222 } }
@media (min-width: 700px) and (max-width: 800px) { .tablet { width: 900px } }
@media (min-width: 400px) { .phone { display: none } }
</style></head><body><main>
<script>throw new Error("a broken script")</script>
<script src="https://example.org/far.js"></script>
<img src="missing.png" alt="a picture"><img src="_static/plus.png" alt="">
<span class="math">\(x\)</span><p>left as text: $$y$$ and {term}`z`</p>
<div style="width: 2000px">wide</div><div class="tablet"></div><a href="gone.html">dead</a>
<details id="open" open><summary>open</summary><p>seen</p></details>
<details id="empty"><summary>empty</summary></details>
<details id="stuck"><summary onclick="event.preventDefault()">stuck</summary><p>never</p></details>
<details id="half"><summary>half</summary><p>seen</p><pre style="display:none">x</pre></details>
<div id="covered" style="position: relative" class="dropdown admonition toggle-hidden">
<p class="admonition-title">covered</p><p>never</p>
<div style="visibility: visible; position: absolute; inset: 0"></div></div>
<div class="cell_input"><pre>x = 1
</pre><button class="copybtn" onclick="navigator.clipboard.writeText('>>> x = 1')">copy</button>
</div>
<div><pre>y = 2</pre><button class="copybtn">a dead copy</button></div>
<p style="color: #aaa; background: #fff">pale</p><p class="night">dim</p>
<button id="nameless"></button><button class="phone"></button>
<pre id="unreachable" style="width: 50px; overflow: auto">longer than fifty pixels</pre>
<a href="https://colab.research.google.com/github/a/b/blob/main/other.ipynb">Colab</a>
<a class="btn-download-source-button" href="_sources/glossary.md">source</a>
</main></body></html>"""
FORMULA = r"""<!doctype html><html><head><title>x</title>
<script defer src="_static/mathjax/tex-chtml.js"></script></head><body><main>
<span class="math">\(FORMULA\)</span></main></body></html>"""


@pytest.fixture(scope="module")
def faulty(browser, origin) -> Page:
    """Give what is found where the page of a notebook has every fault."""
    return open_page(browser, origin, "chapters/bert.html", FAULTY.replace("_s", "../_s"))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("quiet", "a broken script"),
        ("quiet", "another host: https://example.org/far.js"),
        ("quiet", "status 404: .*missing.png"),
        ("mathematics", "not typeset"),
        ("mathematics", r"left as text.*\$\$y"),
        ("directives", "left as text.*{term}"),
        ("images", "did not load: .*missing.png"),
        ("images", "no alt: .*plus.png"),
        ("width", "wider than 1400 px: .*2000px"),
        ("width", "wider than 768 px: (.|\n)*tablet"),
        ("hidden", "not hidden at first: .*open"),
        ("hidden", "does not open: .*empty"),
        ("hidden", "does not open: .*stuck"),
        ("hidden", "does not open: .*half"),
        ("hidden", "in front of its title: .*covered"),
        ("hidden", "5 hidden boxes, the source has [^5]"),
        ("copies", r"shown 'x = 1\\n', copied '>>> x = 1'"),
        ("copies", "shown 'y = 2', copied 'nothing was copied'"),
        ("copies", "1 cells can be copied, the notebook has"),
        ("copies", "cell '.*', copied '>>> x = 1'"),
        ("accessible", "light, 1400 px: color-contrast.*pale"),
        ("accessible", "dark, 1400 px: color-contrast.*dim"),
        ("accessible", "light, 1400 px: button-name.*nameless"),
        ("accessible", "light, 360 px: button-name.*phone"),
        ("accessible", "light, 1400 px: scrollable-region-focusable.*unreachable"),
        ("colab", "other.ipynb.*, should be .*chapters/bert.ipynb"),
        ("downloads", "glossary.md is not bert.ipynb"),
    ],
)
def test_faults_are_seen(faulty, rule, message):
    faults = getattr(page_rules, rule)(faulty)
    assert any(re.search(message, fault) for fault in faults), faults


def test_faults_are_seen_by_every_rule(faulty):
    assert all(rule(faulty) for rule in page_rules.RULES)


def test_dead_links_are_seen(faulty, origin):
    assert f"{origin}chapters/gone.html" in page_rules.links(faulty, {faulty.name: faulty}, origin)


def test_downloads_that_do_not_open_are_seen(tmp_path, monkeypatch):
    """The notebook on disk is broken in the same way: equality alone would not see it."""
    broken = tmp_path / "chapters" / "x.ipynb"
    broken.parent.mkdir()
    broken.write_text('{"cells": [{}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}')
    shutil.copytree(broken.parent, tmp_path / "_build" / "colab" / "chapters")
    monkeypatch.setattr(address, "ROOT", tmp_path)
    page = Page("chapters/x.html", "", found={"downloads": [broken.as_uri()]})
    with pytest.raises(Exception, match="is not valid"):
        page_rules.downloads(page)


@pytest.mark.parametrize(
    ("formula", "message"),
    [("x", None), (r"\frac{1}", "cannot read"), (r"\nosuch{x}", "does not know: .*nosuch")],
)
def test_bad_formulas_are_seen(browser, origin, formula, message):
    content = FORMULA.replace("FORMULA", formula)
    page = open_page(browser, origin, "formula.html", content, use=False)
    faults = page_rules.mathematics(page)
    assert faults == [] if message is None else re.search(message, faults[0])
