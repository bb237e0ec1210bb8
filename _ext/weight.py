"""What a page loads, made light when the book is built: few files, and none that it does not need.

The theme brings its icons as a script of 1.5 MB and as fonts of 0.3; _static/icons/ has those that
are used. MathJax stays on pages with formulas, the search index on the page of the search. Styles
are joined into one file and scripts into two. Figures are WebP and come when they are near the
screen. What no page refers to is deleted; the Chinese pages share the files of the English ones.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from pathlib import Path

from PIL import Image
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)
# The fonts in _static/icons/ are parts of Font Awesome Free 6 (icons CC BY 4.0, fonts SIL OFL 1.1),
# made from the theme's by `pyftsubset fa-solid-900.ttf --unicodes=U+F002,… --flavor=woff
# --no-hinting --desubroutinize --layout-features=`; F09B alone is in fa-brands-400.
ICONS = frozenset(
    "f002 f00d f010 f019 f03a f040 f042 f04b f054 f057 f058 f05a f062 f064 f065 f06a f071 f078 f09b"
    " f0c9 f0eb f0f3 f104 f105 f107 f121 f15b f185 f186 f1c1 f303 f35d".split()
)
SEARCH = ["searchtools.js", "language_data.js", "searchindex.js"]
ALONE = [*SEARCH, "/mathjax/", "/play/", "/editions.js"]  # not joined to others
KEPT = re.compile(
    r"/_static/(?:play/|mathjax/(?:tex-chtml\.js|output/chtml/fonts/|input/tex/extensions/))"
)
LINK = re.compile(r'<link\b[^>]*?\bhref="([^"?#]*)[^>]*>\n?')
SCRIPT = re.compile(r'<script\b[^>]*?(?:\bsrc="([^"?#]*)[^>]*)?>([^<]*)</script>\n?')
SETTING = re.compile(r"(?:let|var) ")  # a script within the page that others need
IMAGE = re.compile(r'<img\b(?![^>]*\bloading=)[^>]*?\bsrc="([^":]+)"')
PLAIN = re.compile(r'<span class="[nwp]">([^<]*)</span>')  # in code: of the color of all text
ICON = re.compile(r'<(i|span) (?=class="(?:[^"]* )?fa[sb]? |class="(?:[^"]* )?fa-)')
PLACE = re.compile(r'\b(?:href|src)="([^":?#]+)')
IN_CSS = re.compile(r"""url\(["']?(?!data:)([^)"'?#]+)[^)]*\)""")
IMPORT = re.compile(r'@import\s+(?:url\()?"([^"]+)"\)?;')
FACE = re.compile(r"@font-face\s*\{[^}]*?(fa-\w+-\d+)\.woff2[^}]*\}")
GLYPH = re.compile(r'((?:\.fa-[\w-]+::?before,?)+)\{content:"\\?([^"]*)"\}')


class Site:
    """The folder of an edition's pages, and that of the edition whose files it may share."""

    def __init__(self, folder: Path, shared: Path | None = None) -> None:
        self.folder, self.shared = folder, shared
        self.pages = [p for p in folder.rglob("*.html") if self.mine(p)]
        self.joined: dict[Path, str] = {}
        self.icons: set[str] = set()  # the classes of those that the pages have

    def mine(self, page: Path) -> bool:
        """Return whether a file is a page of this edition."""
        return not {"_static", "zh"} & {*page.relative_to(self.folder).parts}

    def lighten(self) -> None:
        """Rewrite the pages, and delete what none of them needs."""
        texts = {page: page.read_text(encoding="utf-8") for page in self.pages}
        for text in texts.values():
            self.icons.update(" ".join(re.findall(r'class="([^"]*\bfa-[^"]*)"', text)).split())
        for page, text in texts.items():
            page.write_text(self.light(page, text), encoding="utf-8")
        self.prune()

    def light(self, page: Path, text: str) -> str:
        """Return the text of a page that loads less."""
        head, body = text.split("</head>", 1)
        unused = ["fontawesome"]
        unused += [] if 'class="math' in body else ["/mathjax/", "window.MathJax ="]
        unused += [] if "sd-tab-set" in body else ["design-tabs"]
        unused += [] if page.name == "search.html" else SEARCH
        head = LINK.sub(lambda m: "" if 'rel="preload"' in m[0] else m[0], head)
        head = SCRIPT.sub(lambda m: "" if any(part in m[0] for part in unused) else m[0], head)
        head = self.join(page, head, LINK, "rel=.stylesheet")
        head = self.join(page, head, SCRIPT, "<script(?!.* defer)")
        body = self.join(page, body, SCRIPT, "<script.* defer")
        body = PLAIN.sub(r"\1", body)
        body = ICON.sub(r'<\1 aria-hidden="true" ', body)
        body = IMAGE.sub(lambda m: self.sized(page, m), body)
        return PLACE.sub(lambda m: self.elsewhere(page, m), f"{head}</head>{body}")

    def join(self, page: Path, text: str, tag: re.Pattern, kind: str) -> str:
        """Put one file in the place of the first of several files that a page loads."""
        found = [m for m in tag.finditer(text) if re.search(kind, m[0]) and joins(m)]
        files = [Path(os.path.normpath(page.parent / m[1])) for m in found if m[1]]
        if len(files) < 2:
            return text
        names = " ".join(file.relative_to(self.folder).as_posix() for file in files)
        file = self.folder / "_static" / f"book-{digest(names)}{files[0].suffix}"
        if file not in self.joined:
            read = self.style if tag is LINK else script
            parts = [read(page.parent / m[1]) if m[1] else m[2] + ";" for m in found]
            self.joined[file] = "\n".join(parts)
            file.write_text(self.joined[file], encoding="utf-8")
        place = f"{os.path.relpath(file, page.parent)}?v={digest(self.joined[file])}"
        first = next(m[0] for m in found if m[1])
        new = re.sub(r'(\b(?:href|src)=")[^"]*', rf"\g<1>{place}", first)
        for match in found:
            text = text.replace(match[0], new if match[0] == first else "", 1)
        return text

    def style(self, file: Path) -> str:
        """Return a style sheet as a part of one in _static/, with no icon that no page has."""
        text = file.read_text(encoding="utf-8")
        text = IMPORT.sub(lambda m: self.style(file.parent / m[1]), text)
        text = FACE.sub(self.face, text)
        text = GLYPH.sub(self.glyph, text)
        static = self.folder / "_static"
        return IN_CSS.sub(lambda m: f"url({os.path.relpath(file.parent / m[1], static)})", text)

    def face(self, match: re.Match) -> str:
        """Return a font of icons with our part of it, or nothing if we have none."""
        font = self.folder / "_static" / "icons" / f"{match[1]}.woff"
        if not font.exists():
            return ""
        data = base64.b64encode(font.read_bytes()).decode()
        source = f'src:url("data:font/woff;base64,{data}") format("woff")'
        return re.sub(r"src:[^}]*", source, match[0])

    def glyph(self, match: re.Match) -> str:
        """Return the rule of an icon that a page has, and see to it that our fonts have it, too."""
        if not self.icons & {name[1:] for name in re.split("::?before,?", match[1])}:
            return ""
        if match[2].lower() not in ICONS:
            log.warning(f"_static/icons/ has no {match[0]}: see _ext/weight.py")
        return match[0]

    def sized(self, page: Path, match: re.Match) -> str:
        """Return an image that comes when it is near the screen and has its place before."""
        new = match[0].replace("<img", '<img loading="lazy"', 1)
        file = page.parent / match[1]
        if file.suffix != ".png":
            return new
        webp = (self.shared or self.folder) / "_images" / f"{file.stem}.webp"
        with Image.open(file) as image:
            if "width" not in new:
                new = new.replace("<img", f'<img width="{image.width}" height="{image.height}"', 1)
            if not webp.exists():
                image.save(webp, lossless=True, quality=50, method=2)
        return new.replace(match[1], os.path.relpath(webp, page.parent))

    def elsewhere(self, page: Path, match: re.Match) -> str:
        """Return a place in the edition that has the same file, where there is one."""
        file = Path(os.path.normpath(page.parent / match[1]))
        if self.shared and file.is_relative_to(self.folder) and file.suffix != ".html":
            other = self.shared / file.relative_to(self.folder)
            if other.is_file() and file.is_file() and other.read_bytes() == file.read_bytes():
                return match[0].replace(match[1], os.path.relpath(other, page.parent))
        return match[0]

    def prune(self) -> None:
        """Delete the files that no page refers to."""
        used = set()
        for page in self.pages:
            for place in PLACE.findall(page.read_text(encoding="utf-8")):
                used.add(Path(os.path.normpath(page.parent / place)))
        for sheet in [file for file in used if file.suffix == ".css" and file.exists()]:
            for place in IN_CSS.findall(sheet.read_text(encoding="utf-8")):
                used.add(Path(os.path.normpath(sheet.parent / place)))
        static = self.folder / "_static"
        if not self.shared:
            used.update(f for f in static.rglob("*") if KEPT.search(f.as_posix()))
        for file in [*static.rglob("*"), *self.folder.glob("_images/*")]:
            if file.is_file() and file not in used:
                file.unlink()
        for folder in sorted(static.rglob("*"), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def joins(match: re.Match) -> bool:
    """Return whether what a tag loads, or the setting that it makes, may be part of a file."""
    if not match[1]:
        return bool(SETTING.match(match[2]))
    return ":" not in match[1] and not any(part in match[1] for part in ALONE)


def digest(text: str) -> str:
    """Return a short hash."""
    return hashlib.sha1(text.encode()).hexdigest()[:8]


def script(file: Path) -> str:
    """Return a script as a part of one."""
    text = file.read_text(encoding="utf-8")
    return re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.M) + ";"


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Make the built pages light."""
    if exception or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    chinese = folder.name == "zh"
    Site(folder, folder.parent if chinese else None).lighten()
    if chinese:
        shutil.rmtree(folder.parent / "jupyter_execute", ignore_errors=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call."""
    app.connect("build-finished", finish, priority=900)  # after MathJax has been copied
    return {"parallel_read_safe": True, "parallel_write_safe": True}
