"""The Transformer of the paper, from token ids to logits, for tasks from sequence to sequence."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from support.models.transformer import (
    EncoderDecoder,
    KeyValueCache,
    padding_mask,
    sinusoidal_positions,
)


class Seq2Seq(nn.Module):
    """Embeddings with positions, EncoderDecoder, and a projection tied to the target embedding.

    Without target_vocab_size, source and target share one embedding; block holds more options of
    TransformerBlock. Source: Vaswani et al. 2017, section 3.
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        *,
        d_model: int = 512,
        n_heads: int = 8,
        d_ff: int = 2048,
        n_layers: int = 6,
        max_length: int = 512,
        dropout: float = 0.1,
        norm_first: bool = False,
        **block,
    ):
        super().__init__()
        self.source_embedding = nn.Embedding(source_vocab_size, d_model)
        nn.init.normal_(self.source_embedding.weight, std=d_model**-0.5)
        self.target_embedding = self.source_embedding
        if target_vocab_size is not None:
            self.target_embedding = nn.Embedding(target_vocab_size, d_model)
            nn.init.normal_(self.target_embedding.weight, std=d_model**-0.5)
        positions = sinusoidal_positions(max_length, d_model)
        self.register_buffer("positions", positions, persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.stack = EncoderDecoder(
            d_model,
            n_heads,
            d_ff,
            n_layers,
            dropout=dropout,
            norm_first=norm_first,
            final_norm=norm_first,
            **block,
        )

    def _embed(self, embedding: nn.Embedding, ids: torch.Tensor, past: int = 0) -> torch.Tensor:
        end, n = past + ids.shape[1], len(self.positions)
        if end > n:
            raise ValueError(f"the model has {n} positions, the sequence needs {end}")
        vectors = embedding(ids) * math.sqrt(embedding.embedding_dim)
        return self.dropout(vectors + self.positions[past:end])

    def encode(
        self, source: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the memory (B, S, d_model) and its mask (B, 1, S) for source ids (B, S).

        lengths (B,) are the tokens of each sequence that are not padding, by default all.
        """
        mask = None if lengths is None else padding_mask(lengths, source.shape[1])
        vectors = self._embed(self.source_embedding, source)
        return self.stack.encoder(vectors, attn_mask=mask), mask

    def decode(
        self,
        target: torch.Tensor,
        memory: torch.Tensor,
        memory_mask: torch.Tensor | None = None,
        cache: list[KeyValueCache] | None = None,
    ) -> torch.Tensor:
        """Return logits (B, T, target_vocab_size) of the token after each of target (B, T).

        With a cache (stack.decoder.new_cache), target holds the tokens since the last call.
        """
        past = cache[0].length if cache else 0
        vectors = self._embed(self.target_embedding, target, past)
        states = self.stack.decoder(vectors, memory, memory_mask=memory_mask, cache=cache)
        return F.linear(states, self.target_embedding.weight)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, lengths: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the logits of decode for source ids (B, S) and target ids (B, T)."""
        memory, mask = self.encode(source, lengths)
        return self.decode(target, memory, mask)
