"""As modern.py, but with Muon for the matrices of the blocks."""

from __future__ import annotations

import math
import time
from itertools import islice

import torch
from torch import nn
from torch.nn import functional as F

from support.text.vocab import Vocab

D_MODEL, D_FF, LAYERS, HEADS = 128, 344, 2, 4
D_HEAD = D_MODEL // HEADS
LR, MUON_LR, FIRST_BATCH, LAST_BATCH = 0.005, 0.015, 96, 384  # batches in sentences


class Block(nn.Module):
    """Attention with rotary positions and SwiGLU, each after an RMSNorm.

    The tokens x (N, d_model) of all sentences lie one after the other, so that padding costs
    nothing; only attention, where `places` (N,) has them in a table (B * T), sees it.
    """

    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(D_MODEL), nn.RMSNorm(D_MODEL)
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.out = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.gate_up = nn.Linear(D_MODEL, 2 * D_FF, bias=False)
        self.down = nn.Linear(D_FF, D_MODEL, bias=False)

    def forward(self, x, shape, places, turns):
        (B, T), (cos, sin) = shape, turns
        qkv = self.qkv(self.attention_norm(x))
        table = qkv.new_zeros(B * T, 3 * D_MODEL).index_copy(0, places, qkv)
        q, k, v = table.view(B, T, 3, HEADS, D_HEAD).permute(2, 0, 3, 1, 4)
        q, k = (y * cos + y.roll(D_HEAD // 2, -1) * sin for y in (q, k))
        # The padding is at the end, so the causal mask hides it from the tokens.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(y.reshape(B * T, D_MODEL)[places])
        gate, up = self.gate_up(self.feed_forward_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class GPT(nn.Module):
    """The model; layers that add to the residual stream start at zero."""

    def __init__(self, vocab_size):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, D_MODEL)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final_norm = nn.RMSNorm(D_MODEL)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                adds = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0 if adds else 0.02 * math.sqrt(768 / weight.shape[1]))

    def forward(self, ids, real):
        """Return the logits (N, V) after the N tokens of ids (B, T) that are real (B, T)."""
        B, T = ids.shape
        angles = torch.arange(T)[:, None] * 10_000.0 ** (-torch.arange(0, D_HEAD, 2) / D_HEAD)
        sin = angles.sin()
        turns = angles.cos().repeat(1, 2), torch.cat([-sin, sin], dim=-1)  # (T, d_head) each
        x, places = self.tokens(ids[real]), real.flatten().nonzero()[:, 0]
        for layer in self.layers:
            x = layer(x, (B, T), places, turns)
        return self.final_norm(x) @ self.tokens.weight.T


def losses(model, vocab, sentences):
    """Return minus log P (N,) of every token of some sentences."""
    rows = [torch.tensor(vocab([".", *sentence.split()])) for sentence in sentences]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    real = ids[:, 1:] >= 0
    return F.cross_entropy(model(ids[:, :-1], real), ids[:, 1:][real], reduction="none")


def orthogonalize(x):
    """Return matrices (n, rows, columns) of the same directions, with singular values near 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = x if x.shape[1] <= x.shape[2] else x.mT
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = wide @ wide.mT
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide if x.shape[1] <= x.shape[2] else wide.mT


class Muon(torch.optim.Optimizer):
    """Muon of the chapter; `parts` matrices that share a weight are orthogonalized one by one."""

    @torch.no_grad()
    def step(self):
        """Change the weights once."""
        for group in self.param_groups:
            for w in group["params"]:
                mean = self.state[w].setdefault("mean", torch.zeros_like(w))
                mean.lerp_(w.grad, 0.05)
                parts = w.grad.lerp(mean, 0.95).view(group["parts"], -1, w.shape[1])
                tall = math.sqrt(max(1, parts.shape[1] / w.shape[1]))
                w -= group["lr"] * tall * orthogonalize(parts).view_as(w)


def optimizers(model):
    """Return Muon for the matrices of the blocks, and AdamW for the rest."""
    parts = {"qkv": 3, "gate_up": 2, "out": 1, "down": 1}
    groups = [
        {"params": [getattr(layer, name).weight for layer in model.layers], "parts": n}
        for name, n in parts.items()
    ]
    rest = [w for name, w in model.named_parameters() if w.dim() == 1 or name == "tokens.weight"]
    adamw = torch.optim.AdamW(rest, LR, (0.9, 0.99), weight_decay=0, fused=True)
    return [Muon(groups, {"lr": MUON_LR}), adamw]


def train(sentences, seconds):
    """Return the log-probability, in nats, of a model trained for that many processor seconds."""
    end = time.process_time() + 0.99 * seconds - 0.2  # what is left is for the last step
    torch.manual_seed(0)
    torch.set_num_threads(1)
    vocab = Vocab(["<unk>", *sorted({w for s in islice(sentences, 50_000) for w in s.split()})])
    vocab.set_default_index(0)
    model = GPT(len(vocab))
    made = optimizers(model)
    groups = [(group, group["lr"]) for part in made for group in part.param_groups]
    start = time.process_time()
    while (now := time.process_time()) < end:
        done = (now - start) / (end - start)  # from 0 to 1
        size = round(FIRST_BATCH * (LAST_BATCH / FIRST_BATCH) ** done)
        losses(model, vocab, islice(sentences, size)).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group, lr in groups:
            group["lr"] = lr * min(1, 20 * done) * (1 + math.cos(math.pi * done)) / 2
        for part in made:
            part.step()
            part.zero_grad()

    @torch.no_grad()
    def log_probability(sentence):
        # An unknown word has the probability of "<unk>", times that of its letters and its end.
        letters = sum(len(word) + 1 for word in sentence.split() if word not in vocab)
        return -losses(model, vocab, [sentence]).double().sum().item() - letters * math.log(27)

    return log_probability
