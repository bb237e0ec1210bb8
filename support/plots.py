"""Figures that several chapters draw, in one style: print-safe, color-blind safe, labeled axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    import torch

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def style() -> None:
    """Set Matplotlib's defaults for the course. Source of the colors: Okabe and Ito 2008."""
    plt.rcParams.update(
        {
            "axes.grid": True,
            "axes.prop_cycle": cycler(color=COLORS),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.constrained_layout.use": True,
            "figure.dpi": 100,
            "figure.figsize": (6.4, 3.6),
            "font.size": 10,
            "grid.alpha": 0.3,
            "image.cmap": "cividis",
            "legend.frameon": False,
            "savefig.facecolor": "white",
        }
    )


def loss_curve(
    losses: Mapping[str, Sequence[float]] | Sequence[float],
    *,
    epochs: int = 1,
    smooth: int = 1,
    floor: float | None = None,
    floor_label: str = "lowest possible",
    unit: str = "nats",
) -> Axes:
    """Return the axes of loss against epochs, one line a run, and the floor as a dashed line.

    Args:
        losses: values at even distances over all epochs, or a dictionary label -> values.
        smooth: number of values in a running mean.
        unit: of the loss, for the axis label.
    """
    runs = losses if isinstance(losses, Mapping) else {"": losses}
    _, ax = plt.subplots()
    for label, values in runs.items():
        width = min(smooth, len(values))
        mean = np.convolve(values, np.ones(width) / width, mode="valid")
        x = np.linspace(epochs * width / len(values), epochs, len(mean))
        ax.plot(x, mean, label=label or None, marker="o" if len(mean) <= 30 else None, ms=3)
    if floor is not None:
        ax.axhline(floor, color="black", ls="--", lw=1, label=f"{floor_label}: {floor:.3f}")
    ax.set(xlabel="epochs", ylabel=f"loss ({unit})")
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def heat_map(
    matrix: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    digits: int | None = None,
) -> Axes:
    """Return a (rows, columns) matrix as colored cells with a labeled scale, numbers if asked."""
    matrix = np.asarray(matrix, float)
    if matrix.shape != (len(rows), len(columns)):
        expected = f"a matrix of {len(rows)} rows and {len(columns)} columns"
        raise ValueError(f"expected {expected}, as there are names for, got shape {matrix.shape}")
    _, ax = plt.subplots(figsize=(2.6 + 0.55 * len(columns), max(2.4, 1.2 + 0.4 * len(rows))))
    image = ax.imshow(matrix, aspect="auto")
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(False)
    if digits is not None:
        middle = (np.nanmin(matrix) + np.nanmax(matrix)) / 2
        for (i, j), value in np.ndenumerate(matrix):
            color = "white" if value < middle else "black"
            ax.text(j, i, f"{value:.{digits}f}", ha="center", va="center", color=color, fontsize=8)
    ax.figure.colorbar(image, label=label)
    return ax


def image_rows(rows: Mapping[str, np.ndarray | torch.Tensor], *, size: float = 0.75) -> Figure:
    """Return a figure of gray images, one labeled row below another.

    Args:
        rows: label -> images (n, height, width) or (n, 1, height, width), 0 black to 1 white.
        size: of an image, in inches.
    """
    pictures = {label: np.asarray(images, float) for label, images in rows.items()}
    pictures = {k: v[:, 0] if v.ndim == 4 and v.shape[1] == 1 else v for k, v in pictures.items()}
    most = max(len(images) for images in pictures.values())
    figsize = (size * most + 0.11 * max(map(len, pictures)), size * len(pictures))
    figure, axes = plt.subplots(len(pictures), figsize=figsize, squeeze=False)
    for ax, (label, images) in zip(axes[:, 0], pictures.items(), strict=True):
        # One image a row, as axes take long to draw: a tile is an image and the gap after it.
        gap = -(-images.shape[2] // 10)
        tiles = np.pad(images, ((0, most - len(images)), (0, 0), (0, gap)), constant_values=np.nan)
        row = np.hstack([*tiles])[:, :-gap]  # (height, most * (width + gap) - gap)
        ax.imshow(row, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.grid(False)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_ylabel(label, rotation=0, ha="right", va="center")
    return figure
