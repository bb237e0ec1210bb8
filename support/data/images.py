"""Batches of images: slices of one tensor on the device, without work on single images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from support import profile


def image_batches(
    images: torch.Tensor, batch_size: int, *, device: str | torch.device | None = None
) -> Callable[[int], Iterator[torch.Tensor]]:
    """Return a function from the epoch to its batches, in an order that the epoch determines.

    Args:
        images: (N, height, width) uint8, moved to the device once.
        batch_size: B; the last batch may be smaller.
        device: default profile.device().
    Returns:
        A function that yields batches (B, 1, height, width) float32, from 0 to 1.
    """
    if images.dtype != torch.uint8:
        raise ValueError(f"expected images as uint8, 0 to 255, got {images.dtype}")
    images = images.to(device or profile.device())

    def batches(epoch: int) -> Iterator[torch.Tensor]:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for chosen in order.to(images.device).split(batch_size):
            yield to_unit(images[chosen])

    return batches


def to_unit(images: torch.Tensor) -> torch.Tensor:
    """Return images (N, height, width) uint8 as (N, 1, height, width) float32 from 0 to 1."""
    return images[:, None].float().div_(255)
