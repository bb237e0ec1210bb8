"""Trains a model of each kind; in two processes, what tests/test_training.py compares with one.

Dropout is off, as processes draw other numbers for it than one process does.
"""

import json
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from support.models.bert import Bert, BertConfig, BertForPretraining
from support.models.gpt import GPT, GPTConfig
from support.text.masking import Documents, pretraining_batches
from support.models.seq2seq import Seq2Seq
from support.training import fit

BATCHES = 5  # an odd number: the last is left out where two processes share them


def line():
    """A model with a weight that no loss needs, on batches of unlike sizes."""
    x = torch.linspace(-1, 1, 18)[:, None]
    model = nn.Linear(1, 1)
    model.unused = nn.Parameter(torch.ones(2))
    return model, lambda epoch: x.split([3, 5, 2, 4, 4]), squares_of_line


def squares_of_line(model, x):
    return F.mse_loss(model(x), 3 * x - 2)


def shuffled():
    """A DataLoader that shuffles, and a loss for which only the second process draws numbers."""
    x = torch.linspace(-1, 1, 20)[:, None]
    loader = torch.utils.data.DataLoader(x, batch_size=4, shuffle=True)

    def loss_fn(model, batch):
        if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            torch.rand(1)
        return squares_of_line(model, batch)

    return nn.Linear(1, 1), loader, loss_fn


def gpt():
    model = GPT(
        GPTConfig(40, 16, n_layers=2, n_heads=2, max_length=8, dropout=0.0, attention_dropout=0.0)
    )
    windows = torch.from_numpy(np.random.default_rng(0).integers(40, size=(24, 9)))

    def loss_fn(model, ids):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return model, lambda _: windows.split(4), loss_fn


def documents():
    rng = random.Random(0)
    sentences = [" ".join(rng.choices("abcdefgh", k=rng.randrange(3, 9))) for _ in range(60)]
    text = "\n".join(" . ".join(sentences[i : i + 4]) + " ." for i in range(0, 60, 4))
    return Documents.from_text(text)


def bert(loss_fn=lambda model, batch: sum(model(batch))):
    given = documents()
    sizes = dict(d_model=16, n_layers=2, n_heads=2, d_ff=32, max_length=64)
    config = BertConfig(given.vocab_size, **sizes, dropout=0.0, attention_dropout=0.0)
    return BertForPretraining(Bert(config)), pretraining_batches(given, 6), loss_fn


def masked_only():
    """BERT whose loss calls parts of it, outside of forward, and leaves others unused."""

    def loss_fn(model, batch):
        states = model.bert(batch.ids, batch.segments, batch.lengths).flatten(0, 1)
        return F.cross_entropy(model.predict_tokens(states[batch.positions]), batch.targets)

    return bert(loss_fn)


def seq2seq():
    model = Seq2Seq(12, d_model=16, n_heads=2, d_ff=32, n_layers=1, dropout=0.0)

    def batches(epoch):
        rng = torch.Generator().manual_seed(epoch)
        return [torch.randint(12, (4, 6), generator=rng) for _ in range(BATCHES)]

    def loss_fn(model, ids):
        logits = model(ids, ids.flip(1)[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids.flip(1)[:, 1:].flatten())

    return model, batches, loss_fn


def runs(n):
    """Return losses, sums of weights and numbers of examples of training each model twice.

    With n = 2 one process does what two processes do with n = 1.
    """
    found = {}
    for make in (line, shuffled, gpt, bert, masked_only, seq2seq):
        torch.manual_seed(0)
        model, batches, loss_fn = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        options = {"optimizer": optimizer, "clip_norm": 1.0, "seed": 1, "device": "cpu"}
        losses, items = [], []
        for epochs, accumulate in ((2, n), (1, 2 * n)):
            options |= {"epochs": epochs, "accumulate": accumulate}
            history = fit(model, cut(batches, n), loss_fn, **options)
            losses += history.losses
            items += history.items
        sums = [weight.detach().double().sum().item() for weight in model.parameters()]
        found[make.__name__] = losses, sums, items
    return found


def cut(batches, n):
    """Return the batches of an epoch, a few of them, without those that fill no round of n."""

    def of_epoch(epoch):
        made = list(batches(epoch) if callable(batches) else batches)[:BATCHES]
        return made[: len(made) // n * n]

    return of_epoch


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = runs(1)
    if torch.distributed.get_rank() == 0:
        print(json.dumps(found))
