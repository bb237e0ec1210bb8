"""Text from a language model: greedy, temperature, top-k and top-p sampling."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch

from support import checks
from support.gpt import GPT

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
    equals, the token of the lower id comes first.
    Raises: ValueError for arguments out of range.
    Source: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p).
    """
    _check_sampling(temperature, top_k, top_p)
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

    Args: prompts (B, T), or B lists of ids of any lengths from 1; new_tokens, the most for each;
    temperature (0 is greedy), top_k and top_p as in next_token_probabilities. The same seed draws
    the same text, with or without the cache (but for rounding).
    Raises: ValueError for an empty prompt, arguments out of range, ids outside the vocabulary, or
    if the longest prompt and new_tokens do not fit into the model's positions.
    """
    _check_sampling(temperature, top_k, top_p)
    ids, padding = _align(prompts, next(model.parameters()).device)
    most = model.config.max_length
    checks.integers(-math.inf, new_tokens=new_tokens)
    if new_tokens < 1 or ids.shape[1] + new_tokens - 1 > most:
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
            states = model(fresh if use_cache else ids, cache=cache, padding=padding)
            logits = model.logits(states[:, -1])  # (B, V)
            if logits.isnan().any():
                raise ValueError("the model's logits are NaN: its weights or its training failed")
            if temperature == 0:
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


def _align(prompts, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return prompts (B, T) with the last tokens in line, and how much is padding at the left."""
    if isinstance(prompts, torch.Tensor):
        if prompts.dim() != 2 or not prompts.numel():
            raise ValueError(f"prompts must be (B, T), not empty, got {tuple(prompts.shape)}")
        return prompts.to(device), None
    if isinstance(prompts, str) or any(isinstance(prompt, int | str) for prompt in prompts):
        raise ValueError(f"prompts must be lists of ids, one for each text, got ids: {prompts}")
    lengths = [len(prompt) for prompt in prompts]
    if not lengths or min(lengths) == 0:
        raise ValueError(f"prompts must not be empty, got lengths {lengths}")
    longest = max(lengths)
    rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    padding = torch.tensor([longest - n for n in lengths], device=device)
    return torch.tensor(rows, device=device), padding if bool(padding.any()) else None


def _until(row: list[int], stop: set[int]) -> list[int]:
    end = next((i for i, token in enumerate(row) if token in stop), len(row) - 1)
    return row[: end + 1]


def _check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    checks.at_least(0, temperature=temperature)
    if 0 < temperature < COLDEST or temperature == math.inf:
        raise ValueError(f"temperature must be 0 or from {COLDEST} up, got {temperature!r}")
    if top_k is not None:
        checks.integers(1, top_k=top_k)
    if top_p is not None:
        checks.shares(top_p=top_p)
