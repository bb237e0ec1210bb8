"""GPT against the Transformers library's GPT-2, and by its own laws: causality, cache, batches."""

import math
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.models.gpt import GPT, GPTConfig, language_model_loss
from support.models.pretrained import load_gpt
from tests.exactness import EXACT_TYPES, close, rounded_anew

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)


def seeds(n):
    return pytest.mark.parametrize("seed", range(n))


def some(low, high):
    """Return a random integer from low to high, both included, by torch's generator."""
    return int(torch.randint(low, high + 1, ()))


def small_gpt(vocab_size=19, n_layers=2, dtype=torch.float32, max_length=16, **options):
    config = GPTConfig(vocab_size, 12, n_layers, 3, max_length=max_length, **options)
    return rounded_anew(GPT(config)).to(dtype).eval()


def hidden_states(model, *args, **kwargs):
    """Return what enters each block, and what leaves the last norm, as the library lists them."""
    states = []
    handles = [
        layer.register_forward_pre_hook(lambda _, given: states.append(given[0]))
        for layer in model.layers
    ]
    out = model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return [*states, out]


# ---------------------------------------------------------------------------------- the library
def random_config(seed):
    """Return the arguments of a random GPT2Config; seeds go through the options."""
    rng = random.Random(seed)
    heads = rng.randint(1, 4)
    return {
        "vocab_size": rng.randint(2, 40),
        "n_embd": heads * rng.randint(2, 6),
        "n_layer": rng.randint(1, 3),
        "n_head": heads,
        "n_inner": [None, rng.randint(1, 20)][seed % 2],
        "n_positions": rng.randint(9, 14),
        "activation_function": ["relu", "gelu", "gelu_new"][seed % 3],
        "layer_norm_epsilon": [1e-5, 1e-2][seed // 2 % 2],
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def both_models(library, folder, seed, dtype=torch.float32):
    """Return the library's model with random weights, and ours read from its checkpoint."""
    torch.manual_seed(seed)
    config = library.GPT2Config(**random_config(seed))
    theirs = rounded_anew(library.GPT2LMHeadModel(config)).eval()
    theirs.save_pretrained(folder)
    return theirs.to(dtype), load_gpt(folder).to(dtype)


@exact_types
@seeds(12)
def test_all_states_and_logits_are_the_librarys(library, tmp_path, seed, dtype):
    theirs, ours = both_models(library, tmp_path, seed, dtype)
    ids = torch.randint(ours.config.vocab_size, (some(1, 3), some(1, 9)))
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True)
        states = hidden_states(ours, ids)
    assert len(states) == len(expected.hidden_states) == ours.config.n_layers + 1
    for own, other in zip(states, expected.hidden_states, strict=True):
        close(own, other)
    close(ours.logits(states[-1]), expected.logits)


@exact_types
@seeds(6)
def test_the_loss_and_its_gradients_are_the_librarys(library, tmp_path, seed, dtype):
    theirs, ours = both_models(library, tmp_path, seed, dtype)
    ids = torch.randint(ours.config.vocab_size, (some(1, 3), some(2, 9)))
    loss = language_model_loss(ours, (ids[:, :-1], ids[:, 1:]))
    expected = theirs(ids, labels=ids)
    close(loss.float(), expected.loss.float())  # theirs is in float32 whatever the model is in
    exact = F.cross_entropy(expected.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    exact.backward()
    for own, other in {"tokens": "wte", "positions": "wpe", "final_norm": "ln_f"}.items():
        their_weight = theirs.transformer.get_parameter(f"{other}.weight")
        close(ours.get_parameter(f"{own}.weight").grad, their_weight.grad)


# ----------------------------------------------------------------------------------- causality
@exact_types
@seeds(10)
def test_a_later_token_moves_no_earlier_state(seed, dtype):
    torch.manual_seed(seed)
    model = small_gpt(dtype=dtype)
    ids = torch.randint(19, (2, some(2, 10)))
    at = some(0, ids.shape[1] - 1)
    other = ids.clone()
    other[:, at] = (ids[:, at] + 1) % 19
    with torch.no_grad():
        before, after = model(ids), model(other)
    close(before[:, :at], after[:, :at])
    moved = (before[:, at:] - after[:, at:]).abs().amax(-1)
    assert (moved > 1e-6).all(), "a token moves its own state and every later one"


def test_the_loss_of_a_place_has_no_gradient_from_later_tokens():
    model = small_gpt()
    seen = []

    def keep(_, args, out):
        out.retain_grad()
        seen.append(out)

    model.tokens.register_forward_hook(keep)
    model(torch.randint(19, (1, 8)))[0, 3].square().sum().backward()
    assert [bool(row.any()) for row in seen[0].grad[0]] == [True] * 4 + [False] * 4


def test_positions_count_from_zero_and_each_has_its_own_vector():
    model = small_gpt()
    ids = torch.zeros(1, 6, dtype=torch.long)
    first = hidden_states(model, ids)[0][0]  # (T, d_model)
    close(first, model.tokens.weight[0] + model.positions.weight[:6])
    model(ids).sum().backward()
    used = model.positions.weight.grad.abs().sum(-1) > 0
    assert used.tolist() == [True] * 6 + [False] * 10


# --------------------------------------------------------------------------------------- cache
@exact_types
@seeds(8)
def test_with_the_cache_in_pieces_is_as_the_whole(seed, dtype):
    torch.manual_seed(seed)
    model = small_gpt(dtype=dtype, max_length=20)
    parts = [some(1, 5) for _ in range(some(1, 4))]
    ids = torch.randint(19, (3, sum(parts)))
    cache = model.new_cache(sum(parts))
    with torch.no_grad():
        pieces = [model(piece, cache=cache) for piece in ids.split(parts, dim=1)]
        close(torch.cat(pieces, dim=1), model(ids))
    assert [part.length for part in cache] == [sum(parts)] * 2


def test_a_cache_takes_as_much_as_it_was_made_for():
    model = small_gpt()
    assert [part.capacity for part in model.new_cache()] == [16, 16]
    cache = model.new_cache(3)
    model(torch.zeros(1, 3, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="the cache takes 3 positions, asked for 4"):
        model(torch.zeros(1, 1, dtype=torch.long), cache=cache)
    full = model.new_cache(99)
    model(torch.zeros(1, 16, dtype=torch.long), cache=full)
    with pytest.raises(ValueError, match="the model has 16 positions, the sequence needs 17"):
        model(torch.zeros(1, 1, dtype=torch.long), cache=full)


# ---------------------------------------------------------------------- sizes, start and dropout
def test_the_default_is_gpt_2_with_its_124_million_parameters():
    with torch.device("meta"):
        model = GPT(GPTConfig(50_257))
    assert sum(value.numel() for value in model.parameters()) == 124_439_808
    config = model.config
    assert (config.max_length, config.dropout, config.attention_dropout) == (1024, 0.1, 0.1)
    assert (config.norm_eps, config.activation) == (1e-5, "gelu_tanh")


def test_the_embedding_is_used_at_both_ends():
    model = small_gpt()
    states = model(torch.tensor([[1, 2, 3]]))
    close(model.logits(states), states @ model.tokens.weight.T)
    model.logits(states)[..., 7].sum().backward()
    used = model.tokens.weight.grad.abs().sum(-1) > 0
    assert used.nonzero()[:, 0].tolist() == [1, 2, 3, 7]


def test_weights_start_small_and_what_adds_to_the_stream_smaller():
    torch.manual_seed(0)
    model = GPT(GPTConfig(300, 96, 8, 4, max_length=100))
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            assert not value.any(), name
        elif value.dim() == 1:
            assert (value == 1).all(), name
        else:
            expected = 0.02 / 4 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert value.std().item() == pytest.approx(expected, rel=0.05), name
            assert abs(value.mean().item()) < 0.05 * expected, name
    ids = torch.randint(300, (4, 50))
    loss = language_model_loss(model, (ids[:, :-1], ids[:, 1:]))
    assert loss.item() == pytest.approx(math.log(300), abs=0.1)


def test_dropout_reaches_the_embedding_the_weights_and_both_sublayers():
    torch.manual_seed(1)
    ids = torch.randint(19, (4, 16))
    model = small_gpt(dropout=0.75).train()
    first = hidden_states(model, ids)[0]
    assert (first == 0).float().mean().item() == pytest.approx(0.75, abs=0.05)
    for layer in model.layers:
        assert (layer.dropout.p, layer.attention.dropout.p) == (0.75, 0.1)
    assert small_gpt(attention_dropout=0.3).layers[0].attention.dropout.p == 0.3
    model.eval()
    assert torch.equal(model(ids), model(ids))


# ------------------------------------------------------------------------------------- the loss
@exact_types
@seeds(8)
def test_the_loss_is_the_mean_cross_entropy_and_so_are_its_gradients(seed, dtype):
    torch.manual_seed(seed)
    model = small_gpt(dtype=dtype)
    ids, targets = torch.randint(19, (2, some(1, 3), some(1, 7)))
    ours = language_model_loss(model, (ids, targets))
    logits = model.logits(model(ids))
    theirs = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    close(ours, theirs)
    parameters = list(model.parameters())
    pairs = zip(
        torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True
    )
    for own, other in pairs:
        close(own, other)


@pytest.mark.parametrize(
    ("ids", "targets", "message"),
    [
        ((2, 3), (2, 4), r"\(6, 12\), \(19, 12\), None, \(8,\)"),
        ((2, 17), (2, 17), "the model has 16 positions, the sequence needs 17"),
    ],
)
def test_ids_and_targets_of_different_shapes_are_refused(ids, targets, message):
    batch = torch.zeros(ids, dtype=torch.long), torch.zeros(targets, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        language_model_loss(small_gpt(), batch)
    with pytest.raises(ValueError, match="targets must be from 0 to 18, got 0 to 19"):
        language_model_loss(small_gpt(), (torch.zeros(1, 2).long(), torch.tensor([[0, 19]])))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[0, 19]]), "ids must be from 0 to 18, got 0 to 19"),
        (torch.tensor([[-1, 0]]), "got -1 to 0"),
        (torch.tensor([1, 2]), r"ids must be integers \(B, T\), got torch.int64 \(2,\)"),
        (torch.zeros(1, 2), "got torch.float32"),
        (torch.zeros(1, 17, dtype=torch.long), "has 16 positions, the sequence needs 17"),
    ],
)
def test_ids_that_the_model_does_not_know_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        small_gpt()(ids)


def test_sizes_that_make_no_model_are_refused():
    with pytest.raises(ValueError, match="d_model 10 must be a multiple of n_heads 4"):
        GPT(GPTConfig(9, 10, 1, 4))
    with pytest.raises(ValueError, match="activation must be one of .*got 'swish'"):
        GPT(GPTConfig(9, 8, 1, 4, activation="swish"))
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        GPT(GPTConfig(9, 8, 1, 4, max_length=0))


# --------------------------------------------------------------------------------- the training
def test_a_model_learns_a_text_that_repeats_itself():
    torch.manual_seed(0)
    model = GPT(GPTConfig(5, 16, 1, 2, max_length=8, dropout=0.0, attention_dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    windows = torch.tensor([0, 1, 2, 1, 3, 4] * 60).unfold(0, 9, 8)  # (44, 9)
    losses = []
    for _ in range(12):
        for rows in torch.randperm(len(windows)).split(8):
            loss = language_model_loss(model, (windows[rows, :-1], windows[rows, 1:]))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    assert losses[0] > 1.5
    assert losses[-1] < 0.4
