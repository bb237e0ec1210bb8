"""What every measurement needs: turns, times, rows and footnotes, and the machine's own speed."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def alternate(ours: Callable[[], float], peer: Callable[[], float], repeats: int):
    """Return the values of both sides, taken in turn so that both meet the same machine."""
    pairs = [(ours(), peer()) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def seconds(work: Callable[[], object]) -> float:
    """Return how long the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(
    work: str,
    unit: str,
    values: tuple[list[float], list[float]],
    peer_name: str,
    higher_is_better: bool,
    target: float,
    note: str = "",
) -> dict:
    """Return one row of the table; `target` is the ratio to reach, above 1 for better."""
    return {
        "work": work,
        "unit": unit,
        "ours": values[0],
        "peer_name": peer_name,
        "peer": values[1],
        "higher_is_better": higher_is_better,
        "target": target,
        "note": note,
    }


def alone(work: str, unit: str, values: list[float], beside: str) -> dict:
    """Return a footnote: what was measured, and in `beside` a figure that is not of this run."""
    return {"work": work, "unit": unit, "ours": values, "beside": beside}


def matmul_gflops(size: int = 2048) -> float:
    """Return the machine's float32 matrix-product speed, GFLOP/s, best of five."""
    a = torch.randn(size, size)
    best = min(seconds(lambda: a @ a) for _ in range(5))
    return 2 * size**3 / best / 1e9
