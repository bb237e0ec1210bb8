"""The Transformer by hand: positions, masks, attention, block, encoder and decoder."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


def sinusoidal_positions(length: int, d_model: int) -> torch.Tensor:
    """Return position vectors (length, d_model): sines in even columns, cosines in odd ones.

    The frequency falls from each pair of columns to the next; d_model must be even.
    Source: Vaswani et al. 2017, section 3.5.
    """
    # In float64: the angles of late positions lose digits in float32.
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = position * frequency  # (length, d_model / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


def padding_mask(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """Return a mask (B, 1, size), True at the first lengths[b] positions; lengths is (B,)."""
    return (torch.arange(size, device=lengths.device) < lengths[:, None])[:, None]


def causal_mask(
    length: int, past: int = 0, device: torch.device | str | None = None
) -> torch.Tensor:
    """Return a mask (length, past + length), True at each position itself and at those before it.

    The past positions came before the others; all may attend to them.
    """
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout: nn.Module | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention output and the attention weights, step by step.

    Args:
        q: queries (B, H, T, d); k, v: keys and values (B, H, S, d).
        attn_mask: boolean, broadcastable to (B, H, T, S); True = may attend.
        dropout: a module that acts on the weights.
    Returns:
        output (B, H, T, d) and weights (B, H, T, S) before dropout. A row of weights sums to 1, or
        to 0 where the mask allows nothing.
    Source: Vaswani et al. 2017, eq. 1.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        # The smallest finite number, not -inf: the softmax of a row of -inf would be NaN.
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(~attn_mask, 0.0)
    dropped = dropout(weights) if dropout else weights
    return dropped @ v, weights


class KeyValueCache:
    """The keys and values (B, H, length, d) that a layer of self-attention has computed so far."""

    def __init__(self):
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    @property
    def length(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all keys and values, with k and v (B, H, T, d) added at the end."""
        if self.keys is not None:
            k, v = torch.cat((self.keys, k), dim=2), torch.cat((self.values, v), dim=2)
        self.keys, self.values = k, v
        return k, v


class MultiHeadAttention(nn.Module):
    """Attention in n_heads subspaces at once: self-attention, or cross-attention over a memory.

    It computes the output of `attention` by PyTorch's fused kernel, which never stores the weights.
    d_model must be a multiple of n_heads. Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, d_model: int, n_heads: int, attention_dropout: float = 0.0):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model {d_model} must be a multiple of n_heads {n_heads}")
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, attention_dropout
        self.qkv = nn.Linear(d_model, 3 * d_model)  # the three projections as one matrix
        self.out = nn.Linear(d_model, d_model)
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

        Args:
            memory: vectors (B, S, d_model) to attend to, by default x itself.
            attn_mask: boolean (T, S), (B, 1 or T, S) or (B, H, T, S); True = may attend.
            is_causal: whether to hide later positions as well.
            cache: earlier keys and values of self-attention, which count in S; x's are added.
        Raises: ValueError for a mask that is not boolean.
        """
        B, T, d = x.shape
        if memory is None:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
        else:
            q = F.linear(x, self.qkv.weight[:d], self.qkv.bias[:d])
            k, v = F.linear(memory, self.qkv.weight[d:], self.qkv.bias[d:]).chunk(2, dim=-1)
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (q, k, v))
        if cache is not None:
            k, v = cache.append(k, v)
        if attn_mask is not None:
            if attn_mask.dtype != torch.bool:  # PyTorch would add numbers to the scores
                raise ValueError(f"expected a boolean attn_mask, got {attn_mask.dtype}")
            if attn_mask.dim() == 3:  # the same for all heads
                attn_mask = attn_mask[:, None]
        is_causal = is_causal and T > 1  # one position may attend to all there are
        if is_causal and (attn_mask is not None or k.shape[2] > T):
            # The kernel's own is_causal takes no mask and no past.
            causal = causal_mask(T, k.shape[2] - T, x.device)
            attn_mask = causal if attn_mask is None else attn_mask & causal
            is_causal = False
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout, is_causal)
        return self.out(y.transpose(1, 2).reshape(B, T, d))


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's
}


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity in between, the same at every position.

    activation is "relu", "gelu" or "gelu_tanh". Source: Vaswani et al. 2017, eq. 2.
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu"):
        super().__init__()
        self.up = nn.Linear(d_model, d_ff)
        self.activation = activation
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model)."""
        return self.down(ACTIVATIONS[self.activation](self.up(x)))


class TransformerBlock(nn.Module):
    """Self-attention, cross-attention if wanted, and feed-forward, each with Add & Norm.

    dropout acts on the output of each sublayer, attention_dropout (by default the same) on the
    attention weights. norm_first normalizes before each sublayer instead of after the addition.
    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020 (norm_first).
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
        if attention_dropout is None:
            attention_dropout = dropout
        self.attention = MultiHeadAttention(d_model, n_heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(d_model, eps=norm_eps)
        if cross_attention:
            self.cross_attention = MultiHeadAttention(d_model, n_heads, attention_dropout)
            self.cross_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        memory_mask: torch.Tensor | None = None,
        cache: KeyValueCache | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model).

        memory and memory_mask are for cross-attention, the other options for self-attention. With
        positions (P,), indices into B * T, only those are computed: (P, d_model).
        """
        attend = partial(self.attention, attn_mask=attn_mask, is_causal=is_causal, cache=cache)
        x = self._add_and_norm(x, self.attention_norm, attend)
        if memory is not None:
            cross = partial(self.cross_attention, memory=memory, attn_mask=memory_mask)
            x = self._add_and_norm(x, self.cross_norm, cross)
        if positions is not None:  # the rest works on each position by itself
            x = x.flatten(0, 1)[positions]
        return self._add_and_norm(x, self.feed_forward_norm, self.feed_forward)

    def _add_and_norm(self, x, norm, sublayer) -> torch.Tensor:
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class Encoder(nn.Module):
    """A stack of blocks, whose options block holds, and a last normalization if wanted."""

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
        self.layers = nn.ModuleList(
            TransformerBlock(d_model, n_heads, d_ff, **block) for _ in range(n_layers)
        )
        eps = block.get("norm_eps", 1e-5)
        self.final_norm = nn.LayerNorm(d_model, eps=eps) if final_norm else nn.Identity()

    def forward(
        self,
        x: torch.Tensor,
        *,
        attn_mask: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model); attn_mask as in MultiHeadAttention.

        With positions (P,), indices into B * T, only those states are returned: (P, d_model).
        """
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, attn_mask=attn_mask, positions=positions if i == last else None)
        return self.final_norm(x)


class Decoder(Encoder):
    """A stack of blocks with cross-attention, in which no position attends to a later one."""

    def __init__(self, n_layers: int, d_model: int, n_heads: int, d_ff: int, **options):
        super().__init__(n_layers, d_model, n_heads, d_ff, cross_attention=True, **options)

    def forward(
        self,
        x: torch.Tensor,
        memory: torch.Tensor,
        *,
        attn_mask: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        cache: list[KeyValueCache] | None = None,
    ) -> torch.Tensor:
        """Return (B, T, d_model) for x (B, T, d_model) and memory (B, S, d_model).

        attn_mask and the causal mask act together. With a cache, x holds the new positions only.
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

    def new_cache(self) -> list[KeyValueCache]:
        """Return an empty cache for each layer."""
        return [KeyValueCache() for _ in self.layers]


class EncoderDecoder(nn.Module):
    """Encoder and decoder on vectors: what nn.Transformer is. Options as in Encoder.

    Source: Vaswani et al. 2017, figure 1.
    """

    def __init__(self, d_model=512, n_heads=8, d_ff=2048, n_layers=6, **options):
        super().__init__()
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, **options)
        self.decoder = Decoder(n_layers, d_model, n_heads, d_ff, **options)

    def forward(self, source, target, *, source_mask=None, target_mask=None) -> torch.Tensor:
        """Return (B, T, d_model) for source (B, S, d_model) and target (B, T, d_model).

        source_mask (B, 1, S) hides source positions from both encoder and decoder.
        """
        memory = self.encoder(source, attn_mask=source_mask)
        return self.decoder(target, memory, attn_mask=target_mask, memory_mask=source_mask)
