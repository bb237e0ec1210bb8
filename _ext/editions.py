"""The English and the Chinese edition: a switch between them, and what is particular to Chinese.

`python -m tools.translation build` writes the Chinese pages into the folder zh/ of the English
ones, under the same names and with the same anchors. An English page shows its switch only where
that folder is there; _static/editions.js says so.
"""

from __future__ import annotations

import copy
import functools
import gettext
import os
import re

import nbformat
from docutils import frontend, nodes
from markdown_it import MarkdownIt
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers import sphinx_
from pybtex import plugin
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.search.en import SearchEnglish
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import extract_messages
from sphinx_exercise.nodes import exercise_subtitle, is_extension_node

from tools import course_map, translation

CHINESE = "zh_CN"
FOLDER = "zh/"
MAP = "各章的地图：箭头从一章指向以它为基础的另一章。"
AFTER = "，在{}之后读"
SPLIT_QUERY = r"""
// A query in Chinese is split into the longest words that the index knows, as the pages were.
function splitQuery(query) {
  const { terms, titleterms } = Search._index ?? { terms: {}, titleterms: {} };
  const known = (word) => Object.hasOwn(terms, word) || Object.hasOwn(titleterms, word);
  const words = [];
  for (const run of query.match(/[\u4e00-\u9fff]+|[^\P{L}\u4e00-\u9fff]+|[\p{N}_]+/gu) ?? []) {
    if (!/[\u4e00-\u9fff]/.test(run)) words.push(run);
    else {
      for (let start = 0, end; start < run.length; start = end) {
        for (end = run.length; end > start + 1 && !known(run.slice(start, end)); ) end -= 1;
        words.push(run.slice(start, end));
      }
    }
  }
  const long = words.filter((word) => word.length > 1);  // a single character is in no index
  return long.length ? long : words;
}
"""


class ChineseSearch(SearchEnglish):
    """Chinese is cut by jieba, so that the parts of long words are found as well; Latin as ever."""

    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = SPLIT_QUERY
    chinese = re.compile("[\u4e00-\u9fff]+")
    latin = re.compile("[^\\W\u4e00-\u9fff]+")

    def init(self, options: dict[str, str]) -> None:
        """Load the dictionary, and put the terms of the glossary into it."""
        import jieba

        super().init(options)
        jieba.setLogLevel("WARNING")
        glossary = course_map.ROOT / "appendix" / "glossary.md"
        for name in self.chinese.findall(glossary.read_text(encoding="utf-8")):
            jieba.add_word(name)
        self.cut = jieba.cut_for_search
        self.stem = functools.cache(self.stem)

    def split(self, input: str) -> list[str]:
        """Return the words of a text."""
        words = [word for run in self.chinese.findall(input) for word in self.cut(run)]
        return words + self.latin.findall(input)

    def word_filter(self, word: str) -> bool:
        """Return whether a word goes into the index."""
        return len(word) > 1 and word not in self.stopwords


class ExerciseTitles(SphinxTransform):
    """Makes a message of an exercise's title, which sphinx-exercise hides from translators."""

    default_priority = 15  # before Sphinx translates

    def apply(self, **kwargs: object) -> None:
        """Say where the titles of a page come from."""
        for title in self.document.findall(exercise_subtitle):
            title.source, title.line = self.document["source"], title.parent.parent.line or 1
            title.rawsource = title.astext()


class ChineseFormulas(SphinxTransform):
    """Translates the words in formulas, which Sphinx would do as if they were blocks of reST."""

    default_priority = 15  # before Sphinx translates

    def apply(self, **kwargs: object) -> None:
        """Put a page's translated formulas in the places of the English ones."""
        if self.config.language != CHINESE:
            return
        folder = self.config.locale_dirs[0]
        catalog = gettext.translation(self.env.docname, folder, [CHINESE], fallback=True)
        for formula in self.document.findall(nodes.math_block):
            formula.rawsource = catalog.gettext(formula.rawsource or formula.astext())
            formula[:] = [nodes.Text(formula.rawsource)]


class KeepTitles(SphinxPostTransform):
    """Has the builder of messages find those titles, which sphinx-exercise would now merge."""

    default_priority = 19  # before sphinx-exercise
    builders = ("gettext",)

    def run(self, **kwargs: object) -> None:
        """Repeat the titles of a page in front of its exercises' text."""
        for title in self.document.findall(exercise_subtitle):
            copy = nodes.paragraph(title.rawsource, title.rawsource)
            copy.source, copy.line, copy.uid = title.source, title.line, ""  # it looks for a uid
            title.parent.parent[1].insert(0, copy)


class KeepAltTexts(SphinxPostTransform):
    """Has the builder of messages find the texts for figures, in place of which it takes words."""

    default_priority = 3  # before MyST-NB chooses between pictures and words
    builders = ("gettext",)

    def run(self, **kwargs: object) -> None:
        """Repeat the alternative texts of a page's figures at its end."""
        images = [*self.document.findall(nodes.image)]
        for text in [image["alt"] for image in images if "alt" in image]:
            copy = nodes.paragraph(text, text)
            copy.source, copy.line, copy.uid = self.document["source"], 1, ""
            self.document.append(copy)


class KeepPage(SphinxTransform):
    """Takes out of a page what translating each of its messages has left in it."""

    default_priority = 25  # after Sphinx has translated

    def apply(self, **kwargs: object) -> None:
        """Note the anchors of the English page, to which all links lead, in place of a message's.

        A translated node still points to the document of its message, and that to the whole
        environment: 11 MB a page, written and read again, in place of 0.3.
        """
        if hasattr(self.document, "myst_slugs"):
            self.env.metadata[self.env.docname]["myst_slugs"] = self.document.myst_slugs
        for node in self.document.findall():
            node.document = self.document
        if self.config.language == CHINESE:
            self.note_what_is_english()

    def note_what_is_english(self) -> None:
        """Correct Sphinx's notes, of which `translation_progress_classes` makes visible marks."""
        for node, _ in extract_messages(self.document):
            node.setdefault("translated", False)  # a page without a catalog has no notes
            if isinstance(node, (nodes.image, nodes.math_block)):
                del node["translated"]  # theirs are always False


class Captions(SphinxTransform):
    """Translates the names of the book's parts, which enter the page too late for Sphinx."""

    default_priority = 110  # after sphinx-external-toc has put in the table of contents

    def apply(self, **kwargs: object) -> None:
        """Put the translated names above the parts of the table of contents."""
        if self.config.language != CHINESE:
            return
        folder = self.config.locale_dirs[0]
        catalog = gettext.translation(self.env.docname, folder, [CHINESE], fallback=True)
        for part in self.document.findall(addnodes.toctree):
            part["caption"] = part["caption"] and catalog.gettext(part["caption"])


class SolutionTitles(SphinxTransform):
    """Gives the translated titles to the solutions, too."""

    default_priority = 25  # after Sphinx has translated

    def apply(self, **kwargs: object) -> None:
        """Copy the titles of a page's exercises to where its solutions look for them."""
        for title in self.document.findall(exercise_subtitle):
            exercise = title.parent.parent
            known = self.env.sphinx_exercise_registry[exercise["label"]]
            known["node"] = exercise.deepcopy()


class InChinese(SphinxPostTransform):
    """Says in Chinese what is no message: the titles of folded cells, the map of chapters."""

    default_priority = 200  # after MyST-NB has folded the cells
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Change a page of the Chinese edition."""
        if self.config.language != CHINESE:
            return
        for node in self.document.findall(nodes.Element):
            for key in {"prompt_show", "prompt_hide"} & set(node.attributes):
                node[key] = translation.PROMPTS.get(node[key], node[key])
        for node in self.document.findall(is_extension_node):
            for part in node[0].findall(nodes.Text):
                if part in (" (", ")"):
                    part.parent.replace(part, nodes.Text({" (": "（", ")": "）"}[part]))
        for node in self.document.findall(nodes.raw):
            if "course-map" in node.astext():
                node[:] = [nodes.Text(chinese_map(self.config.locale_dirs[0]))]


def put_figures(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a notebook of the Chinese edition its Chinese figures."""
    if app.config.language == CHINESE and app.env.doc2path(docname).endswith(".ipynb"):
        notebook = nbformat.reads(source[0], as_version=4)
        translation.put_figures(docname, notebook)
        source[0] = nbformat.writes(notebook)


def chinese_map(folder: str) -> str:
    """Return the map of the chapters, with the titles that their Chinese pages have."""

    def say(text: str, page: str) -> str:
        return gettext.translation(page, folder, [CHINESE], fallback=True).gettext(text)

    return course_map.figure(course_map.chapters(), MAP, AFTER, "、", say)


def add_switch(app: Sphinx, pagename: str, template: str, context: dict, doctree: object) -> None:
    """Put a link to the same page of the other edition into the header, if there is one."""
    if not translation.CHINESE:
        return
    chinese = app.config.language == CHINESE
    here = app.builder.get_target_uri(pagename)
    up = "../" * here.count("/")
    there = f"{up}../{here}" if chinese else f"{up}{FOLDER}{here}"
    context.setdefault("header_buttons", []).append(
        {
            "type": "link",
            "url": there,
            "text": "EN" if chinese else "中文",
            "tooltip": "This page in English" if chinese else "本页的中文版",
            "label": "edition",
            "classes": "edition",
        }
    )


def save_time() -> None:
    """Do once what libraries do for each of the 11,000 messages, each citation, each reference."""
    settings = functools.cache(frontend.get_default_settings)
    frontend.get_default_settings = lambda *parts: copy.copy(settings(*parts))
    # A plugin that is registered is found without a look at every installed package.
    for name in ("plaintext", "docutils"):
        backend = plugin.find_plugin("pybtex.backends", name)
        plugin.register_plugin("pybtex.backends", name, backend, force=True)
    make, made = sphinx_.create_md_parser, {}

    def parser(config: MdParserConfig, renderer: type) -> MarkdownIt:
        if made.get("config") is not config:
            made.update(config=config, parser=make(config, renderer))
        return made["parser"]

    sphinx_.create_md_parser = parser
    # Else the page of a figure is read from disk for every reference to its number.
    resolve = StandardDomain._resolve_numref_xref
    read = functools.cache(BuildEnvironment.get_doctree)

    def number(domain: StandardDomain, env: BuildEnvironment, *where: object) -> object:
        env.get_doctree = functools.partial(read, env)
        try:
            return resolve(domain, env, *where)
        finally:
            del env.get_doctree

    StandardDomain._resolve_numref_xref = number


def work_in_parallel(app: Sphinx) -> None:
    """Read and write pages in several processes: two extensions do nothing while they are read."""
    for name in ("sphinx_multitoc_numbering", "sphinx-mathjax-offline"):
        if name in app.extensions:
            app.extensions[name].parallel_read_safe = True
    app.parallel = max(app.parallel, min(4, (os.cpu_count() or 1) + 1))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call."""
    save_time()
    app.connect("builder-inited", work_in_parallel)
    app.add_search_language(ChineseSearch)
    app.add_transform(ExerciseTitles)
    app.add_transform(ChineseFormulas)
    app.add_transform(KeepPage)
    app.add_transform(Captions)
    app.add_transform(SolutionTitles)
    app.add_post_transform(KeepTitles)
    app.add_post_transform(KeepAltTexts)
    app.add_post_transform(InChinese)
    app.connect("source-read", put_figures)
    app.connect("html-page-context", add_switch, priority=503)  # after the theme's buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}
