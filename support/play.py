"""What an explorer of the book computes with: numbers of a notebook's run, packed for its page.

An explorer is a page's small program, `_static/play/NAME.js`, that takes the place of a figure. The
cell of that figure calls `export`, so that the explorer shows what the notebook has computed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

FOLDER = "PRETRAIN_PLAY"  # the environment variable that names the folder to write into


def rounded(array: np.ndarray | torch.Tensor, levels: int = 127) -> np.ndarray:
    """Return the decimals of a tensor as the page has them.

    A tensor (n, …) of two dimensions or more keeps whole numbers from -levels to levels and one
    scale for each of its n rows; the fewer levels, the smaller the file. One of fewer dimensions
    keeps numbers of 16 bits.
    Raises:
        ValueError: levels is not from 1 to 127, or 16 bits are too few for the numbers.
    """
    array = _array(array).astype(np.float32)
    if array.ndim < 2:
        return _half(array).astype(np.float32)
    whole, scale = _whole(array, levels)
    return whole * scale.astype(np.float32).reshape(-1, *[1] * (array.ndim - 1))


def export(name: str, *, levels: int = 127, **things: Any) -> None:
    """Pack things for the explorer of that name, and print how much that is.

    Where PRETRAIN_PLAY names a folder, as for `tools.run_notebooks` in laptop, they are written
    there, to NAME.data.js.
    Args:
        things: tensors, as decimals kept as `rounded` says, or as whole numbers; anything that
            JSON knows; mappings and lists of these.
    Raises:
        ValueError: as `rounded`, or a number that is not finite, which JSON does not know.
    """
    packed = _Packed(levels)
    values = json.dumps(packed.add(things), separators=(",", ":"), allow_nan=False).encode()
    values += b" " * (-len(values) % 4)  # so that the tensors begin where numbers may begin
    content = len(values).to_bytes(4, "little") + values + packed.bytes
    deflate = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)  # the best for tensors
    coded = base64.b64encode(deflate.compress(content) + deflate.flush()).decode()
    script = f'play.data("{name}", "{coded}");\n'.encode()
    if folder := os.environ.get(FOLDER):
        (Path(folder) / f"{name}.data.js").write_bytes(script)
    size = f"{packed.numbers:,} numbers, {len(script) / 1000:,.0f} KB"
    print(f"{name}: {size}, sha256 {hashlib.sha256(script).hexdigest()[:8]}")


class _Packed:
    """Tensors one after the other in `bytes`, and what JSON says about them."""

    def __init__(self, levels: int):
        self.levels, self.bytes, self.numbers = levels, b"", 0

    def add(self, thing: Any) -> Any:
        """Return what stands for a thing in JSON."""
        if isinstance(thing, Mapping):
            return {str(key): self.add(value) for key, value in thing.items()}
        if isinstance(thing, (list, tuple)):
            return [self.add(value) for value in thing]
        if not hasattr(thing, "shape"):
            return thing
        array = _array(thing)
        self.numbers += array.size
        about: dict[str, Any] = {"shape": list(array.shape)}
        if array.dtype.kind != "f":
            array = _smallest(array)
        elif array.ndim < 2:
            array = _half(array)
        else:
            array, scale = _whole(array.astype(np.float32), self.levels)
            about["scale"] = self._append(scale)
        return {"tensor": about | {"type": array.dtype.name, "at": self._append(array)}}

    def _append(self, array: np.ndarray) -> int:
        """Return where an array begins, which is where its type may begin."""
        self.bytes += bytes(-len(self.bytes) % array.itemsize)
        start = len(self.bytes)
        self.bytes += array.astype(array.dtype.newbyteorder("<")).tobytes()
        return start


def _array(thing: np.ndarray | torch.Tensor) -> np.ndarray:
    return np.asarray(thing.detach().cpu() if hasattr(thing, "detach") else thing)


def _smallest(array: np.ndarray) -> np.ndarray:
    """Return whole numbers in the smallest type that holds them."""
    least, most = (array.min(), array.max()) if array.size else (0, 0)
    for kind in ("uint8", "uint16", "int32"):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return array.astype(kind)
    raise ValueError(f"expected whole numbers of 32 bits, got some from {least} to {most}")


def _half(array: np.ndarray) -> np.ndarray:
    """Return numbers as float16."""
    if not (np.abs(array) < 65_504).all():
        raise ValueError("expected numbers within ±65,504, the range of float16, and no NaN")
    return array.astype(np.float16)


def _whole(array: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a tensor (n, …) as whole numbers, and the scale (n,) of each row."""
    if not 1 <= levels <= 127:
        raise ValueError(f"expected levels from 1 to 127, which a byte holds, got {levels!r}")
    rows = array.reshape(len(array), -1)
    largest = np.abs(rows).max(axis=1)
    scale = _half(largest / levels)
    if small := largest[(scale == 0) & (largest > 0)].tolist():
        raise ValueError(f"expected rows of zeros or with larger numbers, got one below {small[0]}")
    scale[scale == 0] = 1
    whole = np.clip(np.rint(rows / scale[:, None].astype(np.float32)), -levels, levels)
    return whole.astype(np.int8).reshape(array.shape), scale
