"""The two editions in a browser: the switch between them, and the search of the Chinese one."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.browser import HTML, launch, serve, unavailable

# Twenty terms, and a page that a reader who looks for each must be led to.
SEARCHES = {
    "学习率": "chapters/training",
    "循环神经网络": "chapters/text_encoders",
    "梯度消失": "chapters/text_encoders",
    "多头注意力": "chapters/transformer",
    "位置编码": "chapters/transformer",
    "负采样": "chapters/word2vec",
    "哈夫曼树": "chapters/word2vec",
    "共现矩阵": "chapters/glove",
    "哈希冲突": "chapters/fasttext",
    "字节对编码": "chapters/bpe",
    "余弦相似度": "chapters/similarity_and_analogy",
    "去偏": "chapters/bias",
    "离散余弦变换": "chapters/compression",
    "去噪自编码器": "chapters/autoencoders",
    "重参数化": "chapters/vae",
    "掩码语言模型": "chapters/bert",
    "困惑度": "chapters/gpt",
    "束搜索": "chapters/seq2seq",
    "低秩适应": "chapters/finetuning",
    "BERT 的词表": "chapters/bpe",
}


@pytest.fixture(scope="module")
def origin():
    """Serve the book on this machine and give its address."""
    if not (HTML / "zh" / "index.html").exists():
        unavailable("the Chinese edition is not built: run `make book-zh` first")
    with serve() as start:
        yield start


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """Give a tab of the Chromium of this machine."""
    with launch(str(tmp_path_factory.mktemp("browser"))) as browser:
        yield browser.new_page()


@pytest.mark.parametrize(("term", "page"), SEARCHES.items())
def test_search_finds_chinese(tab, origin, term, page):
    tab.goto(f"{origin}zh/search.html?q={quote(term)}")
    summary = "document.querySelector('.search-summary')?.textContent"
    tab.wait_for_function(f"/[0-9]|没有|找不到|未找到|did not/.test({summary})")
    found = tab.eval_on_selector_all("#search-results li a", "found => found.map(e => e.href)")
    assert page in [re.sub(r"\.html.*", "", link.removeprefix(f"{origin}zh/")) for link in found]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("index.html", "zh/index.html"),
        ("appendix/glossary.html#term-token", "zh/appendix/glossary.html#term-token"),
        ("chapters/bpe.html#ten-merges-by-hand", "zh/chapters/bpe.html#ten-merges-by-hand"),
        ("solutions/exercise_27_4.html", "zh/solutions/exercise_27_4.html"),
    ],
)
def test_switch_leads_to_the_same_section_and_back(tab, origin, here, there):
    for start, end in ((here, there), (there, here)):
        tab.goto(origin + start)
        tab.locator("a.edition:visible").first.click()
        tab.wait_for_url(origin + end)
        anchor = end.partition("#")[2]
        assert not anchor or tab.locator(f"[id='{anchor}']").count() == 1


@pytest.mark.parametrize(("page", "language"), [("", "en"), ("zh/", "zh")])
def test_a_page_says_its_language(tab, origin, page, language):
    tab.goto(f"{origin}{page}chapters/bpe.html")
    assert tab.evaluate("document.documentElement.lang").startswith(language)


def test_chinese_pages_hold_chinese(tab, origin):
    tab.goto(f"{origin}zh/chapters/gpt.html")
    prose = tab.eval_on_selector_all("main article p", "all => all.map(p => p.textContent)")
    # Short paragraphs may be a name or a number.
    english = [p for p in prose if len(p) > 80 and not re.search("[\u4e00-\u9fff]", p)]
    assert not english


def test_headings_and_the_names_of_the_parts_are_translated(origin):
    heading = re.compile(r'<h[1-4]>.*?</h[1-4]>|<p [^>]*class="caption".*?</p>', re.DOTALL)
    pages = [*(HTML / "zh").glob("chapters/*.html"), *(HTML / "zh").glob("solutions/*.html")]
    found = {
        re.sub("<[^>]*>", "", text).strip()
        for page in [*pages, HTML / "zh" / "index.html"]
        for text in heading.findall(page.read_text("utf-8"))
    }
    assert len(found) > 300
    assert not [text for text in found if not re.search("[\u4e00-\u9fff]", text)]


def test_titles_of_exercises_and_formulas_are_translated(origin):
    pages = [page.read_text("utf-8") for page in (HTML / "zh" / "chapters").glob("*.html")]
    titles = [
        re.sub("<[^>]*>", "", title)
        for page in pages
        for title in re.findall(r'<p class="admonition-title">.*?</p>', page, re.DOTALL)
        if "★" in title
    ]
    assert len(titles) > 200
    translated = re.compile("（.*★ (?:BERT-|.*[\u4e00-\u9fff]).*）")  # a model keeps its name
    assert not [title for title in titles if not translated.search(title)]
    formulas = [f for page in pages for f in re.findall(r"\\\[.*?\\\]", page, re.DOTALL)]
    assert len(formulas) > 100 and not any("::" in formula for formula in formulas)
