"""GPT by hand: the decoder-only language model, its loss, and what it writes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from support import checks
from support.models.transformer import (
    Dropout,
    KeyValueCache,
    Positions,
    TransformerBlock,
    embed,
    linear_cross_entropy,
)


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT; the defaults are GPT-2's, 124 M parameters. d_ff None is 4 * d_model.

    Raises: ValueError for sizes that are no positive integers (n_layers may be 0).
    Source: Radford et al. 2019, section 2.3 and table 2.
    """

    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int | None = None
    max_length: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu_tanh"
    norm_eps: float = 1e-5

    def __post_init__(self):
        checks.integers(0, n_layers=self.n_layers)
        checks.integers(1, vocab_size=self.vocab_size, d_model=self.d_model, n_heads=self.n_heads)
        checks.integers(1, max_length=self.max_length)
        if self.d_ff is not None:
            checks.integers(1, d_ff=self.d_ff)
        checks.above(0, norm_eps=self.norm_eps)
        checks.rates(dropout=self.dropout, attention_dropout=self.attention_dropout)


class GPT(nn.Module):
    """Token and learned position embeddings, pre-norm blocks, and the token embedding again.

    Source: Radford et al. 2018, section 3.1; Radford et al. 2019, section 2.3 (pre-norm).
    """

    def __init__(self, config: GPTConfig):
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = Positions(c.max_length, c.d_model, learned=True)
        self.dropout = Dropout(c.dropout)
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

    def forward(
        self,
        ids: torch.Tensor,
        *,
        cache: list[KeyValueCache] | None = None,
    ) -> torch.Tensor:
        """Return hidden states (B, T, d_model); see logits for what comes next.

        Args: ids (B, T); with a cache (new_cache), those since the last call.
        Raises: ValueError for ids outside the vocabulary, or more positions than max_length.
        """
        x = embed(self.tokens, ids)  # (B, T, d_model)
        past = cache[0].length if cache else 0
        x = self.dropout(x + self.positions(ids.shape[1], past))  # which checks the length
        for i, layer in enumerate(self.layers):
            own = (cache[i], None) if cache else None
            x = layer(x, is_causal=True, cache=own)
        return self.final_norm(x)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits (…, vocab_size) of the token after each of states (…, d_model)."""
        return F.linear(states, self.tokens.weight)

    def new_cache(self, capacity: int | None = None) -> list[KeyValueCache]:
        """Return an empty cache for up to capacity positions, default max_length."""
        most = self.config.max_length if capacity is None else capacity
        return [KeyValueCache(most) for _ in self.layers]


def language_model_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the mean loss in nats of predicting targets (B, T) from ids (B, T), as GPT's batches.

    The loss_fn for training.fit. Source: Radford et al. 2018, eq. 1.
    """
    ids, targets = batch
    states = model(ids).flatten(0, 1)  # (B * T, d_model)
    weight = model.get_parameter("tokens.weight")
    return linear_cross_entropy(states, weight, None, targets.flatten())


COLDEST = 1e-6  # below, quotients of logits would leave float32; 0 is the limit


def next_token_probabilities(
    logits: torch.Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> torch.Tensor:
    """Return the distribution (B, V) that a next token is drawn from, of logits (B, V).

    First temperature divides the logits, and 0 keeps only the most likely token; then top_k keeps
    that many of the most likely, and top_p the fewest whose probabilities sum to it at least. Of
    equals, the token of the lower id comes first. A token whose logit is -inf never comes.
    Raises: ValueError for arguments out of range, and for logits that are NaN, inf, or all -inf.
    Source: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p).
    """
    _check_sampling(temperature, top_k, top_p)
    _check_logits(logits)
    if temperature == 0:
        top_k, temperature = 1, 1.0
    p = (logits.float() / temperature).softmax(-1)
    if top_k is None and top_p is None:
        return p
    ordered, ids = p.sort(dim=-1, descending=True, stable=True)
    kept = torch.ones_like(ordered, dtype=torch.bool)
    if top_k is not None:
        kept[:, top_k:] = False
    ordered = ordered * kept
    ordered /= ordered.sum(-1, keepdim=True)
    if top_p is not None and top_p < 1:  # a rounded sum reaches 1 too early
        # A token stays if those before it have not reached top_p yet; so the first always does.
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
    """Return what model writes after each prompt: new ids, of which a stop token is the last.

    Args: prompts (B, T), or B lists of T ids; new_tokens, the most for each;
    temperature (0 is greedy), top_k and top_p as in next_token_probabilities. The same seed draws
    the same text, with or without the cache (but for rounding).
    Raises: ValueError for prompts empty or of unlike lengths, arguments out of range, ids outside
    the vocabulary, logits that give no distribution, or if a prompt and new_tokens do not fit into
    the model's positions.
    """
    _check_sampling(temperature, top_k, top_p)
    ids = _prompts(prompts, next(model.parameters()).device)
    most = model.config.max_length
    checks.integers(1, new_tokens=new_tokens)
    if ids.shape[1] + new_tokens - 1 > most:
        raise ValueError(
            f"a prompt of {ids.shape[1]} and {new_tokens} new tokens do not fit into {most}"
        )
    generator = torch.Generator().manual_seed(seed)
    cache = model.new_cache(ids.shape[1] + new_tokens) if use_cache else None
    if isinstance(stop, str) or not isinstance(stop, Collection):
        raise ValueError(f"stop must be a list of ids, got {stop!r}")
    stops = torch.tensor(sorted(stop), dtype=torch.long, device=ids.device)
    done = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    written: list[torch.Tensor] = []
    fresh = ids
    rule = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    training = model.training
    model.eval()
    try:
        for _ in range(new_tokens):
            states = model(fresh if use_cache else ids, cache=cache)
            logits = model.logits(states[:, -1])  # (B, V)
            if temperature == 0:
                _check_logits(logits)
                chosen = logits.argmax(-1, keepdim=True)
            else:
                p = next_token_probabilities(logits, **rule)
                # Drawn on the CPU, where the same seed gives the same numbers everywhere.
                chosen = torch.multinomial(p.cpu(), 1, generator=generator).to(ids.device)
            written.append(chosen)
            fresh = chosen
            if not use_cache:
                ids = torch.cat((ids, chosen), dim=1)
            if len(stops):
                done |= torch.isin(chosen[:, 0], stops)
                if bool(done.all()):
                    break
    finally:
        model.train(training)
    rows = torch.cat(written, dim=1).tolist()
    return [_until(row, set(stop)) for row in rows]


def _prompts(prompts, device: torch.device) -> torch.Tensor:
    """Return prompts (B, T) on the device."""
    try:
        ids = torch.as_tensor(prompts, device=device)
    except (TypeError, ValueError) as error:
        raise ValueError(f"prompts must be lists of ids of one length, got {prompts!r}") from error
    if ids.dim() != 2 or not ids.numel():
        raise ValueError(f"prompts must be (B, T), not empty, got {tuple(ids.shape)}")
    return ids


def _until(row: list[int], stop: set[int]) -> list[int]:
    end = next((i for i, token in enumerate(row) if token in stop), len(row) - 1)
    return row[: end + 1]


def _check_logits(logits: torch.Tensor) -> None:
    """Raise ValueError unless each row (B, V) has a greatest logit, and that one is finite."""
    highest = logits.amax(-1)  # NaN where any logit of the row is
    if not highest.isfinite().all():
        given = highest[~highest.isfinite()][0].item()
        raise ValueError(
            f"the greatest logit of a row must be finite, got {given}: the weights or the training "
            "of the model failed, or -inf forbids every token"
        )


def _check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    checks.at_least(0, temperature=temperature)
    if 0 < temperature < COLDEST or temperature == math.inf:
        raise ValueError(f"temperature must be 0 or from {COLDEST} up, got {temperature!r}")
    if top_k is not None:
        checks.integers(1, top_k=top_k)
    if top_p is not None:
        checks.shares(top_p=top_p)
