"""The Chinese edition: its search, the switch between the editions, and what is not translated."""

from __future__ import annotations

import io
import re
from urllib.parse import quote

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tests.browser import HTML, in_course, no_chinese
from tools import address

# Terms, and a page that a reader who looks for each must be led to.
SEARCHES = {
    "学习率": "chapters/training",
    "多头注意力": "chapters/transformer",
    "负采样": "chapters/word2vec",
    "哈希冲突": "chapters/fasttext",
    "余弦相似度": "chapters/similarity_and_analogy",
    "离散余弦变换": "chapters/compression",
    "困惑度": "chapters/gpt",
    "低秩适应": "chapters/finetuning",
    "BERT 的词表": "chapters/bpe",
}
HAN = re.compile("[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def tab(browser, origin):
    """Give a tab for the Chinese edition."""
    if not (HTML / "zh" / "index.html").exists():
        no_chinese()
    tab = browser.new_page()
    yield tab
    tab.close()


def test_search_finds_chinese(tab, origin):
    missed = []
    for term, page in SEARCHES.items():
        if not in_course(page):
            continue
        tab.goto(f"{origin}zh/search.html?q={quote(term)}")
        summary = "document.querySelector('.search-summary')?.textContent"
        tab.wait_for_function(f"/[0-9]|没有|找不到|未找到|did not/.test({summary})")
        links = tab.eval_on_selector_all("#search-results li a", "all => all.map(e => e.href)")
        found = [re.sub(r"\.html.*", "", link.removeprefix(f"{origin}zh/")) for link in links]
        missed += [] if page in found else [(term, page, found)]
    assert not missed


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("index.html", "zh/index.html"),
        ("appendix/glossary.html#term-token", "zh/appendix/glossary.html#term-token"),
        ("chapters/bpe.html#ten-merges-by-hand", "zh/chapters/bpe.html#ten-merges-by-hand"),
    ],
)
def test_switch_leads_to_the_same_section_and_back(tab, origin, here, there):
    for start, end in ((here, there), (there, here)):
        tab.goto(origin + start)
        language = "zh" if start.startswith("zh/") else "en"
        assert tab.evaluate("document.documentElement.lang").startswith(language)
        tab.locator("a.edition:visible").first.click()
        tab.wait_for_url(origin + end)
        anchor = end.partition("#")[2]
        assert not anchor or tab.locator(f"[id='{anchor}']").count() == 1


def test_headings_parts_and_formulas_are_chinese():
    if not (HTML / "zh" / "index.html").exists():
        no_chinese()
    pages = {
        page.relative_to(HTML).as_posix(): page.read_text("utf-8")
        for page in [*(HTML / "zh").glob("*/*.html"), HTML / "zh" / "index.html"]
        if "_static" not in page.parts
    }
    for kind, pattern in {
        # English may run ahead: what is marked as not yet translated is not looked at.
        "headings": r"<h[1-4](?![^>]*untranslated).*?</h[1-4]>",
        "names of parts": r'<p [^>]*class="caption".*?</p>',
    }.items():
        texts = [
            re.sub("<[^>]*>", "", found)
            for page in pages.values()
            for found in re.findall(pattern, page, re.DOTALL)
        ]
        chinese = sum(bool(HAN.search(text)) for text in texts)
        assert chinese > 0.9 * len(texts) > 0, f"{chinese} of {len(texts)} {kind} are in Chinese"
    formula = re.compile(r"\\\[.*?\\\]", re.DOTALL)
    formulas = [text for page in pages.values() for text in formula.findall(page)]
    assert sum(bool(HAN.search(text)) for text in formulas) > 5
    assert not any("::" in text for text in formulas)


PAGE = """\
# First

A *sentence* that is translated.

A sentence that has changed.

A sentence that is new.

$$
a \\text{ of } b
$$
"""
CATALOG = """\
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "First"
msgstr "第一"

msgid "A *sentence* that is translated."
msgstr "译好的*一句*。"

#, fuzzy
msgid "A sentence that has changed."
msgstr "过时的一句。"

msgid "\\na \\\\text{ of } b\\n"
msgstr "\\na \\\\text{ 之 } b\\n"
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Build a small Chinese book, of whose pages one has a catalog, and return its pages."""
    source, out = tmp_path_factory.mktemp("book"), tmp_path_factory.mktemp("out")
    catalogs = source / "locale" / "zh_CN" / "LC_MESSAGES"
    catalogs.mkdir(parents=True)
    (catalogs / "index.po").write_text(CATALOG, encoding="utf-8")
    (source / "index.md").write_text(f"{PAGE}\n```{{toctree}}\nother\n```\n", encoding="utf-8")
    (source / "other.md").write_text("# Other\n\nA page without a catalog.\n", encoding="utf-8")
    settings = {
        "extensions": ["myst_nb", "sphinx_exercise", "editions"],
        "html_title": "A book",
        "language": "zh_CN",
        "locale_dirs": [str(source / "locale")],
        "gettext_compact": False,
        "myst_enable_extensions": ["dollarmath"],
        "nb_execution_mode": "off",
        "translation_progress_classes": "untranslated",
    }
    warnings = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, patch_docutils(), docutils_namespace():
        patch.syspath_prepend(str(address.ROOT / "_ext"))
        folders = source, None, out / "html", out / "doctrees"
        app = Sphinx(*folders, "html", settings, status=None, warning=warnings)
        app.build()
    assert not warnings.getvalue()
    return {page.stem: page.read_text("utf-8") for page in (out / "html").glob("*.html")}, out


def test_what_is_not_translated_stands_in_english_with_a_mark(pages):
    html, _ = pages
    marked = re.findall(r'<\w+ class="untranslated[^>]*>(.*?)<', html["index"])
    assert marked == ["A sentence that has changed.", "A sentence that is new."]
    assert "<p>译好的<em>一句</em>。</p>" in html["index"] and "过时" not in html["index"]
    assert "a \\text{ 之 } b" in html["index"]
    assert "A page without a catalog." in re.findall(
        r'<p class="untranslated[^>]*>(.*?)<', html["other"]
    )


def test_a_page_does_not_carry_the_environment_along(pages):
    """Each translated node once did: 11 MB a page, and a build that took four times as long."""
    _, out = pages
    for path in (out / "doctrees").glob("*.doctree"):
        assert b"BuildEnvironment" not in path.read_bytes(), path.name
