"""The Transformer by hand: feed-forward, block, encoder, decoder.

Attention is in support.attention and positions are in support.embeddings; both are to be had from
here too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from support import checks
from support.attention import (
    Dropout,
    KeyValueCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    fused_attention,
    padding_mask,
    record_weights,
)
from support.embeddings import Positions, embed, sinusoidal_positions

__all__ = [
    "Decoder",
    "Dropout",
    "Encoder",
    "EncoderDecoder",
    "FeedForward",
    "KeyValueCache",
    "MultiHeadAttention",
    "Positions",
    "TransformerBlock",
    "attention",
    "causal_mask",
    "embed",
    "fused_attention",
    "padding_mask",
    "record_weights",
    "sinusoidal_positions",
    "take_rows",
]

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

    Raises: ValueError for rows of another shape, or outside of 0 … T - 1. Under torch.compile the
    second is not looked at.
    """
    if rows.dim() != 2 or len(rows) != len(x) or rows.dtype != torch.int64:
        raise ValueError(f"rows must be ({len(x)}, P), got {tuple(rows.shape)} {rows.dtype}")
    if not torch.compiler.is_compiling() and rows.numel():
        low, high = (int(bound) for bound in rows.aminmax())
        if low < 0 or high >= x.shape[1]:
            raise ValueError(f"rows must be from 0 to {x.shape[1] - 1}, got {low} to {high}")
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
