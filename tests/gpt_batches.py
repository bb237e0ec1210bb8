"""Batches of a text for a GPT, as a chapter makes them."""

import numpy as np
import torch


def token_batches(ids, batch_size, length):
    """Return a function of the epoch: ids (B, T) in random order, and targets one place later."""
    flat = torch.as_tensor(ids).long()

    def batches(epoch):
        starts = np.arange(0, len(flat) - length, length)
        np.random.default_rng(epoch).shuffle(starts)
        for i in range(0, len(starts) - batch_size + 1, batch_size):
            rows = [flat[start : start + length + 1] for start in starts[i : i + batch_size]]
            windows = torch.stack(rows)  # (B, T + 1)
            yield windows[:, :-1], windows[:, 1:]

    return batches
