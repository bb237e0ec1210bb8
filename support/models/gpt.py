"""GPT by hand: the decoder-only language model, and generation."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from support.models.transformer import KeyValueCache, TransformerBlock

Cache = list[KeyValueCache]  # one for each layer


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT, by default GPT-2's: Radford et al. 2019, section 2.3 and table 2."""

    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int | None = None  # which is 4 * d_model
    max_length: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu_tanh"
    norm_eps: float = 1e-5

    def __post_init__(self):
        if self.n_layers < 1:
            raise ValueError(f"expected n_layers of at least 1, got {self.n_layers}")


class GPT(nn.Module):
    """Token and learned position embeddings, pre-norm blocks, and the token embedding again.

    Source: Radford et al. 2018, section 3.1; Radford et al. 2019, section 2.3 (pre-norm).
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = nn.Embedding(c.max_length, c.d_model)
        self.dropout = nn.Dropout(c.dropout)
        self.layers = nn.ModuleList(
            TransformerBlock(
                c.d_model,
                c.n_heads,
                c.d_ff or 4 * c.d_model,
                dropout=c.dropout,
                attention_dropout=c.attention_dropout,
                activation=c.activation,
                norm_first=True,
                norm_eps=c.norm_eps,
            )
            for _ in range(c.n_layers)
        )
        self.final_norm = nn.LayerNorm(c.d_model, eps=c.norm_eps)
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif weight.dim() == 2:
                # Every block adds twice to the residual stream, which must not grow with depth.
                adds = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.n_layers) if adds else 0.02)

    def forward(self, ids: torch.Tensor, *, cache: Cache | None = None) -> torch.Tensor:
        """Return logits (B, T, V) of the token after each of ids (B, T), the new ones if cached."""
        return F.linear(self.states(ids, cache=cache), self.tokens.weight)

    def states(self, ids: torch.Tensor, *, cache: Cache | None = None) -> torch.Tensor:
        """Return the hidden states (B, T, d_model) that the logits are computed from."""
        past, n = cache[0].length if cache else 0, len(self.positions.weight)
        end = past + ids.shape[1]
        if end > n:
            raise ValueError(f"the model has {n} positions, the sequence needs {end}")
        x = self.dropout(self.tokens(ids) + self.positions.weight[past:end])  # (B, T, d_model)
        for i, layer in enumerate(self.layers):
            x = layer(x, is_causal=True, cache=cache[i] if cache else None)
        return self.final_norm(x)

    def new_cache(self) -> Cache:
        """Return an empty cache for each layer."""
        return [KeyValueCache() for _ in self.layers]


def next_token_probabilities(
    logits: torch.Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> torch.Tensor:
    """Return the distribution (B, V) that the next token is sampled from, for logits (B, V).

    Temperature divides the logits, and 0 keeps only the most likely token. Then top_k keeps that
    many of the most likely tokens, and top_p the fewest whose probabilities sum to at least top_p.
    Raises: ValueError for arguments out of range, or logits that are NaN.
    Source: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p).
    """
    if not temperature >= 0:
        raise ValueError(f"expected a temperature of at least 0, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"expected top_k of at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"expected top_p above 0 and at most 1, got {top_p}")
    if logits.isnan().any():
        raise ValueError("the logits are NaN: check the model's weights and its training loss")
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    p = (logits.float() / temperature).softmax(-1)
    if top_k is None and top_p is None:
        return p
    ordered, ids = p.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[:, top_k:] = 0
        ordered /= ordered.sum(-1, keepdim=True)
    if top_p is not None and top_p < 1:  # a rounded sum reaches 1 too early
        # A token stays if those before it do not reach top_p; so the first one always stays.
        ordered *= ordered.cumsum(-1) - ordered < top_p
        ordered /= ordered.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter_(-1, ids, ordered)


@torch.no_grad()
def generate(
    model: GPT,
    prompts: torch.Tensor | Sequence[Sequence[int]],
    new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Collection[int] = (),
    seed: int = 0,
    use_cache: bool = True,
) -> list[list[int]]:
    """Return the new token ids that model writes after each prompt.

    Args:
        prompts: token ids (B, T), or B lists of equal length.
        new_tokens: the most tokens to write for each prompt.
        temperature, top_k, top_p: as in next_token_probabilities; temperature 0 is greedy.
        stop: ids that end a text, of which the first that is written is its last.
        seed: the same seed gives the same text.
        use_cache: whether to keep keys and values instead of computing them again.
    """
    device = model.tokens.weight.device
    ids = torch.as_tensor(prompts, device=device)
    start, room = ids.shape[1], model.config.max_length
    if start + new_tokens - 1 > room:  # said before minutes are spent on it
        raise ValueError(f"{start} and {new_tokens} new tokens do not fit into {room} positions")
    stops = torch.tensor(sorted(stop), dtype=torch.long, device=device)
    done = torch.zeros(len(ids), dtype=torch.bool, device=device)
    generator = torch.Generator().manual_seed(seed)
    cache = model.new_cache() if use_cache else None
    training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for _ in range(new_tokens):
            unread = ids[:, cache[0].length :] if use_cache else ids
            logits = F.linear(model.states(unread, cache=cache)[:, -1], model.tokens.weight)
            p = next_token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
            # Sampled on the CPU, where a seed gives the same numbers on every machine.
            chosen = torch.multinomial(p.cpu(), 1, generator=generator).to(device)
            ids = torch.cat((ids, chosen), dim=1)
            done |= torch.isin(chosen[:, 0], stops)
            if done.all():
                break
    finally:
        for module, mode in training:
            module.training = mode
    texts = ids[:, start:].tolist()
    ends = [next((i for i, x in enumerate(text) if x in stop), len(text)) for text in texts]
    return [text[: end + 1] for text, end in zip(texts, ends, strict=True)]
