"""Vectors of tokens and of positions."""

from __future__ import annotations

import torch
from torch import nn

from support import checks


def sinusoidal_positions(length: int, d_model: int) -> torch.Tensor:
    """Return (length, d_model): sines in even columns, cosines in odd, slower from pair to pair.

    Raises: ValueError unless d_model is even, and length not negative.
    Source: Vaswani et al. 2017, section 3.5.
    """
    checks.integers(0, length=length, d_model=d_model)
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model must be even, got {d_model}")
    # In float64: the angles of late positions lose digits in float32.
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = position * frequency  # (length, d_model / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


class Positions(nn.Module):
    """One vector for each position below max_length: learned, or the sinusoids.

    weight is (max_length, d_model). Raises: ValueError for sizes that are no positive integers.
    """

    def __init__(self, max_length: int, d_model: int, *, learned: bool):
        super().__init__()
        checks.integers(1, max_length=max_length, d_model=d_model)
        if learned:
            self.weight = nn.Parameter(torch.randn(max_length, d_model) * 0.02)
        else:
            self.register_buffer(
                "weight", sinusoidal_positions(max_length, d_model), persistent=False
            )

    def forward(self, length: int, start: int = 0) -> torch.Tensor:
        """Return (length, d_model), the vectors of positions start, start + 1, …

        Raises: ValueError beyond max_length, or for a start below 0.
        """
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        if start + length > len(self.weight):
            raise ValueError(
                f"the model has {len(self.weight)} positions, the sequence needs {start + length}"
            )
        return self.weight[start : start + length]


def embed(table: nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
    """Return table's vectors (B, T, d) for ids (B, T).

    Raises: ValueError if ids are not integers (B, T), or one is outside the vocabulary. Under
    torch.compile the second is not looked at.
    """
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"ids must be integers (B, T), got {ids.dtype} {tuple(ids.shape)}")
    if not torch.compiler.is_compiling() and ids.numel():
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= table.num_embeddings:
            raise ValueError(
                f"ids must be from 0 to {table.num_embeddings - 1}, got {low} to {high}"
            )
    return table(ids)
