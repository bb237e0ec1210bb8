"""Batches of images: every image once, as numbers from 0 to 1, in an order the epoch determines."""

from __future__ import annotations

import pytest
import torch

from support.data.images import image_batches, to_unit

IMAGES = torch.arange(10 * 4, dtype=torch.uint8).view(10, 2, 2)


def test_batches_hold_every_image_once_from_0_to_1():
    batches = list(image_batches(IMAGES, 4)(0))
    assert [tuple(batch.shape) for batch in batches] == [(4, 1, 2, 2), (4, 1, 2, 2), (2, 1, 2, 2)]
    together = torch.cat(batches)
    assert together.dtype == torch.float32
    rows = sorted(tuple(row) for row in together.flatten(1).mul(255).round().int().tolist())
    assert rows == sorted(tuple(row) for row in IMAGES.flatten(1).int().tolist())
    together.zero_()
    assert IMAGES.flatten().tolist() == list(range(40)), "the images are as they were"
    assert to_unit(torch.tensor([[[0, 255]]], dtype=torch.uint8)).tolist() == [[[[0.0, 1.0]]]]


def test_order_depends_on_the_epoch_alone():
    batches = image_batches(IMAGES, 10)
    orders = [next(batches(epoch)).tolist() for epoch in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    torch.manual_seed(5)
    assert next(image_batches(IMAGES, 10)(0)).tolist() == orders[0]


def test_images_that_are_no_bytes_are_refused():
    with pytest.raises(ValueError, match="expected images as uint8.*float32"):
        image_batches(IMAGES.float(), 4)
