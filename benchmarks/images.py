"""Images: batches as slices of one tensor against a DataLoader that converts one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_pil_image, to_tensor

from benchmarks.measure import alternate, row, seconds
from support.data import datasets
from support.data.images import image_batches

BATCH = 256
SMALL_BATCH = 32  # the lecture notes'
CODE_CHANNELS = 4  # of 7 × 7 numbers each, as in exercise 27.3


class OneByOne(Dataset):
    """What torchvision's MNIST does with ToTensor: an image object, then a tensor, for each."""

    def __init__(self, images: torch.Tensor):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> torch.Tensor:
        return to_tensor(to_pil_image(self.images[i].numpy(), mode="L"))


def autoencoder() -> nn.Module:
    """Return the network of exercise 27.3."""
    up = {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, CODE_CHANNELS, 3, stride=2, padding=1),
        nn.ConvTranspose2d(CODE_CHANNELS, 16, **up),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, **up),
        nn.Sigmoid(),
    )


def run(data_dir: Path, repeats: int) -> list[dict]:
    """Return the rows of this part: the batches alone, and a whole epoch of training."""
    images = datasets.mnist("train", source="real").images
    slices = image_batches(images, BATCH)
    loaders = {
        size: DataLoader(OneByOne(images), batch_size=size, shuffle=True)
        for size in (BATCH, SMALL_BATCH)
    }

    def speed(work: Callable[[Iterable[torch.Tensor]], None], batches: Callable) -> Callable:
        return lambda: len(images) / seconds(lambda: work(batches()))

    def train(batches: Iterable[torch.Tensor]) -> None:
        model = autoencoder()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for batch in batches:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch), batch).backward()
            optimizer.step()

    def only_read(batches: Iterable[torch.Tensor]) -> None:
        for _ in batches:
            pass

    def compared(what: str, work: Callable, size: int, note: str = "") -> dict:
        ours, peer = speed(work, lambda: slices(0)), speed(work, lambda: loaders[size])
        values = alternate(ours, peer, repeats)
        return row(what, "images/s", values, f"DataLoader, ToTensor, {size}", True, 5.0, note)

    same = "most of ours is the network itself, which both sides run"
    other = "the peer has the lecture notes' batch size, and so more steps"
    return [
        compared(f"batches of {BATCH} MNIST images", only_read, BATCH),
        compared(f"an epoch of exercise 27.3, batches of {BATCH}", train, BATCH, same),
        compared(f"an epoch of exercise 27.3, batches of {BATCH}", train, SMALL_BATCH, other),
    ]
