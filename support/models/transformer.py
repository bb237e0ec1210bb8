"""The Transformer by hand: positions, attention, block, encoder, decoder, and the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from support import checks


def sinusoidal_positions(length: int, d_model: int) -> torch.Tensor:
    """Return (length, d_model): sines in even columns, cosines in odd, slower from pair to pair.

    Raises: ValueError unless d_model is even, and length not negative.
    Source: Vaswani et al. 2017, section 3.5.
    """
    checks.integers(0, length=length)
    checks.integers(2, d_model=d_model)
    if d_model % 2:
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


def check_values(name: str, values: torch.Tensor, most: int) -> None:
    """Raise ValueError unless all values are from 0 to most.

    They are looked at on the CPU only. To read them from a GPU, the program would have to wait
    until the GPU has done all its work; there PyTorch's own kernels stop at a wrong index. Under
    torch.compile they are not looked at either.
    """
    if values.device.type != "cpu" or torch.compiler.is_compiling() or not values.numel():
        return
    low, high = (int(bound) for bound in values.aminmax())
    if low < 0 or high > most:
        raise ValueError(f"{name} must be from 0 to {most}, got {low} to {high}")


def embed(table: nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
    """Return table's vectors (B, T, d) for ids (B, T).

    Raises: ValueError if ids are not integers (B, T), or outside the vocabulary; see check_values.
    """
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"ids must be integers (B, T), got {ids.dtype} {tuple(ids.shape)}")
    check_values("ids", ids, table.num_embeddings - 1)
    return table(ids)


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
    if attn_mask is not None:
        _check_mask(attn_mask, (*q.shape[:-1], k.shape[-2]))


def _check_mask(attn_mask: torch.Tensor, shape: tuple[int, ...]) -> None:
    if attn_mask.dtype != torch.bool:
        raise ValueError(f"attn_mask must be boolean, True = may attend, got {attn_mask.dtype}")
    mask = tuple(attn_mask.shape)
    pairs = zip(mask[::-1], shape[::-1], strict=False)
    if len(mask) > len(shape) or any(n not in (1, m) for n, m in pairs):
        raise ValueError(f"attn_mask must be broadcastable to {shape}, got {mask}")


def padding_mask(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """Return (B, 1, size), True at the first lengths[b] positions of row b.

    Raises: ValueError unless lengths (B,) are integers from 0 to size; see check_values.
    """
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        given = f"{lengths.dtype} {tuple(lengths.shape)}"
        raise ValueError(f"lengths must be integers (B,), got {given}")
    check_values("lengths", lengths, size)
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
            raise ValueError(f"the cache holds {tuple(self.keys.shape)}, got {given}")
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class MultiHeadAttention(nn.Module):
    """Attention in n_heads sub-spaces at once, as self-attention or over a memory.

    qkv holds the three projections as one (3 * d_model, d_model) matrix; attention_dropout acts on
    the weights. Raises: ValueError if n_heads does not divide d_model.
    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, d_model: int, n_heads: int, attention_dropout: float = 0.0):
        super().__init__()
        checks.integers(1, d_model=d_model, n_heads=n_heads)
        if d_model % n_heads:
            raise ValueError(f"d_model {d_model} must be a multiple of n_heads {n_heads}")
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
            if attn_mask.dim() > 2 and len(attn_mask) != len(q):
                given = tuple(attn_mask.shape)
                raise ValueError(f"attn_mask must be for a batch of {len(q)}, got {given}")
            # A mask (B, T, S) is the same for all heads.
            attn_mask = attn_mask[:, None] if attn_mask.dim() == 3 else attn_mask
            _check_mask(attn_mask, (*q.shape[:3], size))
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


@contextmanager
def record_weights(model: nn.Module) -> Iterator[list[list[torch.Tensor]]]:
    """Yield a list with one list for each attention layer of model, in the order of its modules.

    While the block lasts, each call of a layer adds its weights (B, H, T, S) to the layer's list.
    In a decoder self-attention comes before cross-attention.
    """
    layers = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    recorded: list[list[torch.Tensor]] = [[] for _ in layers]
    try:
        for layer, weights in zip(layers, recorded, strict=True):
            layer.recorded = weights
        yield recorded
    finally:
        for layer in layers:
            layer.recorded = None


# Logits at a time: 16 MB in float32, much of which stays in the caches of a CPU; a GPU wants more.
CHUNK_CPU, CHUNK_GPU = 2**22, 2**27


def linear_cross_entropy(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
) -> torch.Tensor:
    """Return the mean cross-entropy in nats of the logits states @ weight.T + bias.

    Same value and gradients as F.cross_entropy(F.linear(states, weight, bias), targets), but the
    logits of some rows are made at a time and their gradient at once, so that N x V numbers are
    never stored. It can be differentiated once.

    Args: states (N, d); weight (V, d); bias (V,); targets (N,) from 0 to V - 1.
    Raises: ValueError for shapes that do not fit, for N = 0, and for targets outside; see
    check_values.
    """
    n, vocab_size = len(states), len(weight)
    fits = (
        states.dim() == weight.dim() == 2
        and states.shape[1:] == weight.shape[1:]
        and targets.shape == (n,)
    )
    if not fits or (bias is not None and bias.shape != (vocab_size,)):
        given = [None if x is None else tuple(x.shape) for x in (states, weight, bias, targets)]
        raise ValueError(f"states (N, d), weight (V, d), bias (V,), targets (N,), got {given}")
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64, got {targets.dtype}")
    if n == 0:
        raise ValueError("there is nothing to predict")
    check_values("targets", targets, vocab_size - 1)
    at_once = CHUNK_CPU if states.device.type == "cpu" else CHUNK_GPU
    chunk = max(1, at_once // vocab_size)  # rows
    # Inside a Function gradients are always off: only here is it known whether any are wanted.
    return _LinearCrossEntropy.apply(states, weight, bias, targets, chunk, torch.is_grad_enabled())


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss and, in the same pass over the logits, its gradients."""

    @staticmethod
    def forward(ctx, states, weight, bias, targets, chunk, grad_enabled):
        # What autocast would compute in: the type of a product here.
        kind = F.linear(states[:1], weight[:1]).dtype
        x, w = states.to(kind), weight.to(kind)
        b = None if bias is None else bias.to(kind)
        exact = torch.promote_types(kind, torch.float32)  # half precision is too short for sums
        wants = grad_enabled and any(ctx.needs_input_grad)
        dx = torch.empty_like(x)
        dw = torch.zeros_like(weight)
        db = None if bias is None else torch.zeros_like(bias)
        total = states.new_zeros((), dtype=exact)
        for start in range(0, len(x), chunk):
            part, wanted = x[start : start + chunk], targets[start : start + chunk, None]
            logits = F.linear(part, w, b)
            log_p = logits.to(exact).log_softmax(-1)  # (chunk, V)
            total -= log_p.gather(1, wanted).sum()
            if not wants:
                continue
            # The gradient with respect to the logits is p minus one at the target.
            error = log_p.exp_()
            error.scatter_add_(1, wanted, error.new_full(wanted.shape, -1.0))
            error = error.to(kind)
            torch.mm(error, w, out=dx[start : start + chunk])
            if kind == dw.dtype:
                dw.addmm_(error.T, part)
            else:
                dw += error.T @ part
            if db is not None:
                db += error.sum(0)
        ctx.save_for_backward(dx, dw, db)
        ctx.kind, ctx.n = states.dtype, len(x)
        return total / len(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        dx, dw, db = ctx.saved_tensors
        scale = gradient / ctx.n  # only here, where half precision cannot lose it
        db = None if db is None else db * scale
        return dx.to(ctx.kind) * scale, dw * scale, db, None, None, None


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # GPT-2's
}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, at every position alike.

    Raises: ValueError for other sizes than positive integers, or an activation that is not "relu",
    "gelu" or "gelu_tanh".
    Source: Vaswani et al. 2017, eq. 2.
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu"):
        super().__init__()
        checks.integers(1, d_model=d_model, d_ff=d_ff)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {[*ACTIVATIONS]}, got {activation!r}")
        self.up = nn.Linear(d_model, d_ff)
        self.activation = activation
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model)."""
        return self.down(ACTIVATIONS[self.activation](self.up(x)))


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention if wanted, feed-forward; each with Add & Norm around it.

    norm_first puts the normalization before each sub-layer instead of after the addition.
    dropout acts on the output of each sub-layer, attention_dropout (default the same) on the
    attention weights. Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020 (norm_first).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        activation: str = "relu",
        norm_first: bool = False,
        cross_attention: bool = False,
        norm_eps: float = 1e-5,
    ):
        super().__init__()
        weight_dropout = dropout if attention_dropout is None else attention_dropout
        self.attention = MultiHeadAttention(d_model, n_heads, weight_dropout)
        self.attention_norm = nn.LayerNorm(d_model, eps=norm_eps)
        if cross_attention:
            self.cross_attention = MultiHeadAttention(d_model, n_heads, weight_dropout)
            self.cross_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.dropout = Dropout(dropout)
        self.norm_first, self.has_cross_attention = norm_first, cross_attention

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        memory_mask: torch.Tensor | None = None,
        cache: tuple[KeyValueCache, KeyValueCache] | None = None,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model) and memory (B, S, d_model).

        Masks as in MultiHeadAttention; cache is the pair for self- and cross-attention. With rows
        (B, P), indices into T, only those positions are computed, from all of x: (B, P, d_model).
        Raises: ValueError if memory is given to a block without cross-attention, or missing.
        """
        if (memory is not None) != self.has_cross_attention:
            raise ValueError(
                f"memory is {'needed' if self.has_cross_attention else 'not used'} by this block"
            )
        if rows is not None and (is_causal or cache or not _same_for_all(attn_mask)):
            raise ValueError("rows goes with attn_mask (B, 1, S) only, not with is_causal or cache")
        own, cross = cache or (None, None)

        def attend(y: torch.Tensor) -> torch.Tensor:
            if rows is None:
                return self.attention(y, attn_mask=attn_mask, is_causal=is_causal, cache=own)
            return self.attention(take_rows(y, rows), y, attn_mask=attn_mask)

        def look(y: torch.Tensor) -> torch.Tensor:
            return self.cross_attention(y, memory, attn_mask=memory_mask, cache=cross)

        x = self._add_and_norm(x, self.attention_norm, attend, rows)
        if memory is not None:
            x = self._add_and_norm(x, self.cross_norm, look)
        return self._add_and_norm(x, self.feed_forward_norm, self.feed_forward)

    def _add_and_norm(self, x, norm, sublayer, rows=None) -> torch.Tensor:
        kept = x if rows is None else take_rows(x, rows)
        if self.norm_first:
            return kept + self.dropout(sublayer(norm(x)))
        return norm(kept + self.dropout(sublayer(x)))


def _same_for_all(attn_mask: torch.Tensor | None) -> bool:
    return attn_mask is None or attn_mask.shape[-2:-1] == (1,)


def take_rows(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return (B, P, d), the positions rows (B, P) of x (B, T, d).

    Raises: ValueError for rows of another shape, or outside of 0 … T - 1; see check_values.
    """
    if rows.dim() != 2 or len(rows) != len(x) or rows.dtype != torch.int64:
        raise ValueError(f"rows must be ({len(x)}, P), got {tuple(rows.shape)} {rows.dtype}")
    check_values("rows", rows, x.shape[1] - 1)
    return x.gather(1, rows[:, :, None].expand(-1, -1, x.shape[2]))


class Encoder(nn.Module):
    """A stack of n_layers blocks; final_norm adds a last normalization, as norm_first needs one.

    block takes the options of TransformerBlock. Raises: ValueError for a negative n_layers.
    """

    cross_attention = False

    def __init__(
        self,
        n_layers: int,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        final_norm: bool = False,
        **block,
    ):
        super().__init__()
        checks.integers(0, n_layers=n_layers)
        self.layers = nn.ModuleList(
            TransformerBlock(d_model, n_heads, d_ff, cross_attention=self.cross_attention, **block)
            for _ in range(n_layers)
        )
        eps = block.get("norm_eps", 1e-5)
        self.final_norm = nn.LayerNorm(d_model, eps=eps) if final_norm else nn.Identity()

    def forward(
        self,
        x: torch.Tensor,
        *,
        attn_mask: torch.Tensor | None = None,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model); attn_mask as in MultiHeadAttention.

        With rows (B, P), indices into T, the last layer computes only those: (B, P, d_model).
        """
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, attn_mask=attn_mask, rows=rows if i == last else None)
        return self.final_norm(x)


class Decoder(Encoder):
    """A stack of blocks with cross-attention, in which no position attends to a later one."""

    cross_attention = True

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor,
        *,
        attn_mask: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        cache: list[tuple[KeyValueCache, KeyValueCache]] | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model) and memory (B, S, d_model).

        The causal mask comes on top of attn_mask. With a cache, x holds the new positions only.
        """
        for i, layer in enumerate(self.layers):
            x = layer(
                x,
                memory,
                attn_mask=attn_mask,
                is_causal=True,
                memory_mask=memory_mask,
                cache=cache[i] if cache else None,
            )
        return self.final_norm(x)

    def new_cache(self, capacity: int, memory_length: int):
        """Return an empty cache for up to capacity positions: a pair for each layer."""
        return [(KeyValueCache(capacity), KeyValueCache(memory_length)) for _ in self.layers]


class EncoderDecoder(nn.Module):
    """Encoder and decoder on vectors: what nn.Transformer is.

    block takes the options of TransformerBlock. Source: Vaswani et al. 2017, figure 1.
    """

    def __init__(
        self,
        d_model: int = 512,
        n_heads: int = 8,
        d_ff: int = 2048,
        n_layers: int = 6,
        *,
        final_norm: bool = False,
        **block,
    ):
        super().__init__()
        sizes = n_layers, d_model, n_heads, d_ff
        self.encoder = Encoder(*sizes, final_norm=final_norm, **block)
        self.decoder = Decoder(*sizes, final_norm=final_norm, **block)

    def forward(self, source, target, *, source_mask=None, target_mask=None) -> torch.Tensor:
        """Return (B, T, d_model) for source (B, S, d_model) and target (B, T, d_model).

        source_mask (B, 1, S) hides source positions from encoder and decoder.
        """
        memory = self.encoder(source, attn_mask=source_mask)
        return self.decoder(target, memory, attn_mask=target_mask, memory_mask=source_mask)
