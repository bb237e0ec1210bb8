"""The files of the explorers, as the tests read them."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools import address
from tools.format_notebooks import notebooks, read

FOLDER = address.ROOT / "_static" / "play"
BLANK = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title>
<script src="{}"></script></head><body></body></html>"""


def cells() -> list[tuple[Path, str, Any]]:
    """Return the notebook, the explorer's name and the cell of each figure that has one."""
    return [
        (path, tag.removeprefix("play-"), cell)
        for path in notebooks()
        for cell in read(path).cells
        for tag in cell.metadata.get("tags", [])
        if tag.startswith("play-")
    ]


def defined(chapter: str) -> dict[str, Any]:
    """Return what a chapter defines without a call; of one name, the last definition."""
    found: dict[str, Any] = {}
    for cell in read(address.ROOT / "chapters" / f"{chapter}.ipynb").cells:
        for statement in ast.parse(cell.source).body if cell.cell_type == "code" else ():
            calls = any(isinstance(node, ast.Call) for node in ast.walk(statement))
            if not calls or isinstance(statement, ast.FunctionDef | ast.ClassDef):
                with contextlib.suppress(Exception):  # what needs the data of the chapter
                    exec(compile(ast.Module([statement], []), chapter, "exec"), found)
    return found


def names() -> list[str]:
    """Return the names of all explorers."""
    scripts = (path.name.removesuffix(".js") for path in FOLDER.glob("*.js"))
    return sorted(name for name in scripts if name != "play" and "." not in name)


def data(script: str) -> dict[str, Any]:
    """Return what a file NAME.data.js holds, its tensors as the page has them."""
    coded = re.fullmatch(r'play\.data\("[\w-]+", "([^"]*)"\);\n', script)[1]
    content = zlib.decompress(base64.b64decode(coded))
    start = 4 + int.from_bytes(content[:4], "little")
    buffer = content[start:]

    def array(kind: str, at: int, size: int) -> np.ndarray:
        assert at % np.dtype(kind).itemsize == 0, "a browser reads no number from there"
        return np.frombuffer(buffer, np.dtype(kind).newbyteorder("<"), size, at)

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "tensor" not in value:
            return {key: walk(item) for key, item in value.items()}
        about = value["tensor"]
        shape = about["shape"]
        tensor = array(about["type"], about["at"], int(np.prod(shape))).reshape(shape)
        if "scale" in about:
            scale = array("float16", about["scale"], shape[0]).astype(np.float32)
            return tensor * scale.reshape(-1, *[1] * (len(shape) - 1))
        return tensor.astype(np.float32) if about["type"] == "float16" else tensor

    return walk(json.loads(content[4:start]))


def committed(name: str) -> dict[str, Any]:
    """Return what the explorer of that name computes with; skip if its chapter was removed."""
    if not (path := FOLDER / f"{name}.data.js").exists():
        pytest.skip(f"this course has no explorer {name}")
    return data(path.read_text(encoding="utf-8"))
