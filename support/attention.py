"""Scaled dot-product and multi-head attention, their masks, and the cache for decoding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from support import checks


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout: nn.Module | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention output and weights, step by step.

    Args: q (B, H, T, d), k and v (B, H, S, d); attn_mask, boolean, broadcastable to (B, H, T, S),
    True = may attend; dropout acts on the weights.
    Returns: output (B, H, T, d), weights (B, H, T, S) before dropout. A row of weights sums to 1,
    or to 0 where the mask lets it attend to nothing.
    Raises: ValueError for shapes that do not fit, or a mask that is not boolean.
    Source: Vaswani et al. 2017, eq. 1.
    """
    _check_heads(q, k, v, attn_mask)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        # The smallest finite number, not -inf: the softmax of a row of -inf would be NaN.
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(~attn_mask, 0.0)
    dropped = dropout(weights) if dropout else weights
    return dropped @ v, weights


def fused_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Return the output of attention from PyTorch's fused kernel, which never stores the weights.

    Arguments, errors and output as in attention; is_causal stands for a causal_mask of T = S.
    Source: Dao et al. 2022 (FlashAttention), where the kernel is to be had.
    """
    _check_heads(q, k, v, attn_mask)
    if is_causal and q.shape[-2] != k.shape[-2]:
        raise ValueError(f"is_causal needs T = S, got {q.shape[-2]} and {k.shape[-2]}")
    if attn_mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, dropout_p=dropout)
    if is_causal:
        raise ValueError("give attn_mask or is_causal, not both: combine them with causal_mask")
    attn_mask = attn_mask.expand(*attn_mask.shape[:-2], q.shape[-2], k.shape[-2])
    some = attn_mask.any(-1, keepdim=True)  # kernels disagree about rows without any
    out = F.scaled_dot_product_attention(q, k, v, attn_mask | ~some, dropout_p=dropout)
    return out.masked_fill(~some, 0.0)


def _check_heads(q, k, v, attn_mask) -> None:
    if q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1] or q.shape[:-2] != k.shape[:-2]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v must be (B, H, T, d), (B, H, S, d), (B, H, S, d), got {shapes}")
    if attn_mask is None:
        return
    if attn_mask.dtype != torch.bool:
        raise ValueError(f"attn_mask must be boolean, True = may attend, got {attn_mask.dtype}")
    shape, mask = (*q.shape[:-1], k.shape[-2]), tuple(attn_mask.shape)
    pairs = zip(mask[::-1], shape[::-1], strict=False)
    if len(mask) > len(shape) or any(n not in (1, m) for n, m in pairs):
        raise ValueError(f"attn_mask must be broadcastable to {shape}, got {mask}")


def padding_mask(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """Return (B, 1, size), True at the first lengths[b] positions of row b.

    Raises: ValueError unless lengths (B,) are integers from 0 to size.
    """
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        given = f"{lengths.dtype} {tuple(lengths.shape)}"
        raise ValueError(f"lengths must be integers (B,), got {given}")
    if not torch.compiler.is_compiling() and len(lengths):
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > size:
            raise ValueError(f"lengths must be from 0 to {size}, got {low} to {high}")
    return (torch.arange(size, device=lengths.device) < lengths[:, None])[:, None]


def causal_mask(
    length: int, past: int = 0, device: torch.device | str | None = None
) -> torch.Tensor:
    """Return (length, past + length), True where a position may attend: to itself and before.

    past positions came earlier, all of which may be attended to.
    Raises: ValueError for a negative length or past.
    """
    checks.integers(0, length=length, past=past)
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)


class Dropout(nn.Module):
    """Zero elements with probability p in training, and scale the others by 1 / (1 - p).

    On the CPU 16 random bits decide about an element, four to each number that NumPy's SFC64
    draws, seeded from PyTorch's generator: about four times as fast there as nn.Dropout. p is met
    within 2**-16. Raises: ValueError unless 0 <= p < 1. Source: Srivastava et al. 2014.
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        checks.rates(dropout=p)
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        draws = np.random.SFC64(int(torch.randint(2**62, ()))).random_raw(-(-x.numel() // 4))
        bits = torch.from_numpy(draws.view(np.int16))[: x.numel()].view(x.shape)
        keep = bits >= min(round(2**16 * self.p), 2**16 - 1) - 2**15  # must fit in an int16
        return x * keep.to(x.dtype).mul_(1.0 / (1.0 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class KeyValueCache:
    """The keys and values (B, H, length, d) that one attention layer has computed so far.

    capacity is the most positions it takes. In cross-attention, the first call fills it with the
    memory's, and later calls only read it.
    """

    def __init__(self, capacity: int):
        checks.integers(0, capacity=capacity)
        self.capacity = capacity
        self.length = 0
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all keys and values, with k and v (B, H, T, d) added at the end.

        Raises: ValueError beyond capacity, or for another batch, heads or width than before.
        """
        end = self.length + k.shape[2]
        if end > self.capacity:
            raise ValueError(f"the cache takes {self.capacity} positions, asked for {end}")
        shape = (*k.shape[:2], self.capacity, k.shape[3])
        if self.keys is None:
            self.keys, self.values = k.new_empty(shape), v.new_empty(shape)
        if self.keys.shape != shape or v.shape != k.shape:
            given = f"{tuple(k.shape)} and {tuple(v.shape)}"
            raise ValueError(f"the cache holds {tuple(self.keys.shape)}, given {given}")
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows: torch.Tensor) -> None:
        """Keep the given rows (any number, repeats allowed) of the batch: what beam search does."""
        if self.keys is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class MultiHeadAttention(nn.Module):
    """Attention in n_heads sub-spaces at once, as self-attention or over a memory.

    qkv holds the three projections as one (3 * d_model, d_model) matrix; attention_dropout acts on
    the weights. Raises: ValueError if n_heads does not divide d_model.
    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, d_model: int, n_heads: int, attention_dropout: float = 0.0):
        super().__init__()
        checks.integers(-math.inf, d_model=d_model, n_heads=n_heads)
        if n_heads < 1 or d_model < 1 or d_model % n_heads:
            raise ValueError(f"d_model {d_model} must be a positive multiple of n_heads {n_heads}")
        self.d_model, self.n_heads = d_model, n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = Dropout(attention_dropout)
        self.recorded: list[torch.Tensor] | None = None  # see record_weights
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model).

        Args: memory (B, S, d_model) to attend to, default x itself; attn_mask boolean, (T, S),
        (B, T or 1, S) or (B, H or 1, T or 1, S), True = may attend, S with what the cache holds;
        is_causal hides later positions on top; cache is read and added to.
        Raises: ValueError for shapes that do not fit.
        """
        _check_input("x", x, self.d_model)
        d = self.d_model
        if memory is None:
            q, k, v = (self._split(part) for part in self.qkv(x).split(d, dim=-1))
            if cache is not None:
                k, v = cache.append(k, v)
        else:
            _check_input("memory", memory, d, batch=x.shape[0])
            weight, bias = self.qkv.weight, self.qkv.bias
            q = self._split(F.linear(x, weight[:d], bias[:d]))
            if cache is not None and cache.length:
                if (n := memory.shape[1]) != cache.length:
                    raise ValueError(f"memory has {n} positions, the cache {cache.length}")
                k, v = (kept[:, :, : cache.length] for kept in (cache.keys, cache.values))
            else:
                both = F.linear(memory, weight[d:], bias[d:])
                k, v = (self._split(part) for part in both.split(d, dim=-1))
                if cache is not None:
                    k, v = cache.append(k, v)
        out = self._attend(q, k, v, attn_mask, is_causal)  # (B, H, T, d_head)
        return self.out(out.transpose(1, 2).reshape(x.shape))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, H, T, d_head) for x (B, T, d_model)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def _attend(self, q, k, v, attn_mask, is_causal) -> torch.Tensor:
        length, size = q.shape[2], k.shape[2]
        if attn_mask is not None:
            attn_mask = _check_mask(attn_mask, (*q.shape[:3], size))
        is_causal = is_causal and length > 1  # one position may attend to all there are
        record = self.recorded is not None
        rate = self.dropout.p if self.training else 0.0
        explicit = record or (rate > 0 and q.device.type == "cpu")  # where our dropout is faster
        if is_causal and (explicit or attn_mask is not None or size != length):
            causal = causal_mask(length, size - length, q.device)
            attn_mask = causal if attn_mask is None else attn_mask & causal
            is_causal = False
        if not explicit:
            return fused_attention(q, k, v, attn_mask, is_causal, rate)
        out, weights = attention(q, k, v, attn_mask, self.dropout)
        if record:
            self.recorded.append(weights.detach())
        return out


def _check_input(name: str, x: torch.Tensor, d_model: int, batch: int | None = None) -> None:
    if x.dim() != 3 or x.shape[-1] != d_model or (batch is not None and x.shape[0] != batch):
        wanted = f"({'B' if batch is None else batch}, T, {d_model})"
        raise ValueError(f"{name} must be {wanted}, got {tuple(x.shape)}")


def _check_mask(mask: torch.Tensor, shape: tuple[int, int, int, int]) -> torch.Tensor:
    """Return mask with four dimensions, for weights of shape (B, H, T, S)."""
    b, h, t, s = shape
    fits = {2: ((t,), (s,)), 3: ((b,), (1, t), (s,)), 4: ((b,), (1, h), (1, t), (s,))}
    sizes = fits.get(mask.dim(), ())
    if not sizes or any(n not in fit for n, fit in zip(mask.shape, sizes, strict=True)):
        raise ValueError(
            f"attn_mask must be ({t}, {s}), ({b}, {t} or 1, {s}) or "
            f"({b}, {h} or 1, {t} or 1, {s}), got {tuple(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        raise ValueError(f"attn_mask must be boolean, True = may attend, got {mask.dtype}")
    return mask[:, None] if mask.dim() == 3 else mask[None, None] if mask.dim() == 2 else mask


@contextmanager
def record_weights(model: nn.Module) -> Iterator[list[list[torch.Tensor]]]:
    """Yield a list with one list for each attention layer of model, in the order of its modules.

    While the block lasts, each call of a layer adds its weights (B, H, T, S) to the layer's list.
    In a decoder self-attention comes before cross-attention. Inner such blocks record alone.
    """
    layers = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    outer = [layer.recorded for layer in layers]
    recorded: list[list[torch.Tensor]] = [[] for _ in layers]
    try:
        for layer, weights in zip(layers, recorded, strict=True):
            layer.recorded = weights
        yield recorded
    finally:
        for layer, before in zip(layers, outer, strict=True):
            layer.recorded = before
