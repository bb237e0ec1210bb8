"""Batches of images: slices of one tensor on the device, without work on single images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from support import checks, profile


def image_batches(
    images: torch.Tensor, batch_size: int, *, device: str | torch.device | None = None
) -> Callable[[int], Iterator[torch.Tensor]]:
    """Return a function from the epoch to its batches, in an order that the epoch determines.

    Args: images (N, 28, 28) uint8, of any height and width. They are put on the device (default
    profile.device()) once; a batch becomes numbers there.
    Batches: (B, 1, 28, 28) float32 from 0 to 1; the last may be shorter.
    Raises: ValueError for other images, or a batch size below 1.
    """
    if not isinstance(images, torch.Tensor):
        raise ValueError(f"images must be a tensor, got {type(images).__name__}")
    if images.dim() != 3 or images.dtype != torch.uint8 or not len(images):
        given = f"{tuple(images.shape)} {images.dtype}"
        raise ValueError(f"images must be (N, height, width) uint8, got {given}")
    checks.integers(1, batch_size=batch_size)
    images = images.to(device or profile.device())

    def batches(epoch: int) -> Iterator[torch.Tensor]:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for chosen in order.to(images.device).split(batch_size):
            yield to_unit(images[chosen])

    return batches


def to_unit(images: torch.Tensor) -> torch.Tensor:
    """Return images (N, 28, 28) uint8 as (N, 1, 28, 28) float32 from 0 to 1."""
    return images[:, None].float().div_(255)
