"""The repository's address: read from pyproject.toml, carried to every file that names it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLAIN = "notebooks"  # the branch of the notebooks without MyST's markup: see tools/colab.py
CARRIERS = (
    "_config.yml",
    "README.md",
    "index.md",
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
    "CITATION.cff",
)


def repository() -> str:
    """Return the repository's address, https://github.com/OWNER/NAME, as pyproject.toml has it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(r'^Repository = "(https://github\.com/[\w.-]+/[\w.-]+)"$', text, re.M)[1]


def slug(address: str) -> str:
    """Return OWNER/NAME of an address."""
    return address.removeprefix("https://github.com/")


def pages(address: str) -> str:
    """Return the address of the published book on GitHub Pages."""
    owner, name = slug(address).split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def colab(address: str, path: str) -> str:
    """Return the address that opens the plain form of the notebook at `path` in Colab."""
    return f"https://colab.research.google.com/github/{slug(address)}/blob/{PLAIN}/{path}"


def kaggle(address: str, path: str) -> str:
    """Return the address that opens the plain form of the notebook at `path` in Kaggle."""
    raw = f"https://raw.githubusercontent.com/{slug(address)}/{PLAIN}/{path}"
    return f"https://kaggle.com/kernels/welcome?src={raw}"


def move(text: str, old: str, new: str) -> str:
    """Return the text with every form of the address `old` replaced by that of `new`."""
    for form in (pages, str, lambda address: f"google.com/github/{slug(address)}"):
        text = re.sub(re.escape(form(old)) + r"(?![\w-])", form(new), text)
    return text


def configured() -> str:
    """Return the address that _config.yml holds, which in a fork is still the old one."""
    text = (ROOT / "_config.yml").read_text(encoding="utf-8")
    return re.search(r"^  url: (https://github\.com/[\w.-]+/[\w.-]+)$", text, re.M)[1]


def carry() -> list[str]:
    """Rewrite the files that name the address, where it has moved, and return their names."""
    old, new = configured(), repository()
    changed = []
    for name in CARRIERS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        moved = move(text, old, new)
        if moved != text:
            path.write_text(moved, encoding="utf-8")
            changed.append(name)
    return changed
