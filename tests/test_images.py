"""Batches of images: every image once, as numbers from 0 to 1, in an order the epoch determines."""

from __future__ import annotations

import pytest
import torch

from support.data.images import image_batches, to_unit

IMAGES = torch.arange(10 * 4, dtype=torch.uint8).view(10, 2, 2)


def test_batches_hold_every_image_once_as_shares_of_255():
    batches = list(image_batches(IMAGES, 4)(0))
    assert [tuple(batch.shape) for batch in batches] == [(4, 1, 2, 2), (4, 1, 2, 2), (2, 1, 2, 2)]
    together = torch.cat(batches)
    assert together.dtype == torch.float32
    rows = sorted(tuple(row) for row in together.flatten(1).mul(255).round().int().tolist())
    assert rows == sorted(tuple(row) for row in IMAGES.flatten(1).int().tolist())


def test_order_depends_on_the_epoch_alone():
    batches = image_batches(IMAGES, 10)
    orders = [next(batches(epoch)).tolist() for epoch in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    torch.manual_seed(5)
    assert next(image_batches(IMAGES, 10)(0)).tolist() == orders[0]


def test_white_is_one_and_black_is_zero():
    images = torch.tensor([[[0, 255]]], dtype=torch.uint8)
    assert to_unit(images).tolist() == [[[[0.0, 1.0]]]]


def test_images_are_not_changed():
    before = IMAGES.clone()
    next(image_batches(IMAGES, 4)(0)).zero_()
    assert IMAGES.equal(before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"images": IMAGES.float(), "batch_size": 2}, "uint8, got .*float32"),
        ({"images": IMAGES[None], "batch_size": 2}, r"\(1, 10, 2, 2\)"),
        ({"images": IMAGES, "batch_size": 0}, "at least 1, got 0"),
    ],
)
def test_what_cannot_be_batched(arguments, words):
    with pytest.raises(ValueError, match=words):
        image_batches(**arguments)
