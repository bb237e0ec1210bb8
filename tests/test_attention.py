"""Attention against its formula and PyTorch's own; masks, dropout and cache by their laws."""

import itertools
import math

import pytest
import torch
from torch import nn

from support.models.transformer import (
    KeyValueCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    padding_mask,
)
from tests.exactness import EXACT_TYPES, close

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)
B, T, S, HEADS, D = 2, 5, 7, 3, 12


def layer_and_inputs(dtype=torch.float32, dropout=0.0):
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, HEADS, dropout).to(dtype)
    for bias in (layer.qkv.bias, layer.out.bias):  # zero at the start, where no test sees them
        nn.init.normal_(bias)
    return layer, torch.randn(B, T, D, dtype=dtype), torch.randn(B, S, D, dtype=dtype)


def masks(t, s):
    """Return boolean masks of every shape that the layer takes, each row with something in it."""
    torch.manual_seed(1)
    shapes = [(t, s), (B, 1, s), (B, t, s), (B, 1, 1, s), (B, HEADS, t, s)]
    return [(torch.rand(shape) < 0.5) | (torch.arange(s) == 0) for shape in shapes]


def by_definition(q, k, v, mask):
    """Return output and weights for every query by itself, in Python's own numbers."""
    (b, h, t, d), s = q.shape, k.shape[2]
    allowed = torch.ones(b, h, t, s, dtype=torch.bool) if mask is None else mask.expand(b, h, t, s)
    out, weights = torch.zeros(b, h, t, v.shape[-1]).to(v), torch.zeros(b, h, t, s).to(v)
    for i, j, n in itertools.product(range(b), range(h), range(t)):
        seen = [m for m in range(s) if allowed[i, j, n, m]]
        exps = [math.exp(float(q[i, j, n] @ k[i, j, m]) / math.sqrt(d)) for m in seen]
        for m, e in zip(seen, exps, strict=True):
            weights[i, j, n, m] = e / sum(exps)
            out[i, j, n] += e / sum(exps) * v[i, j, m]
    return out, weights


@exact_types
@pytest.mark.parametrize("kind", ["none", "pairs", "padding", "heads", "an empty row"])
def test_attention_is_equation_1_query_by_query(dtype, kind):
    torch.manual_seed(2)
    q, k, v = (2 * torch.randn(B, HEADS, n, d, dtype=dtype) for n, d in ((T, 4), (S, 4), (S, 6)))
    mask = {
        "none": None,
        "pairs": torch.rand(T, S) < 0.5,
        "heads": torch.rand(B, HEADS, T, S) < 0.5,
    }
    mask |= {"padding": padding_mask(torch.tensor([7, 3]), S)[:, None]}
    mask |= {"an empty row": (torch.arange(T) != 2)[:, None].expand(T, S)}
    out, weights = attention(q, k, v, mask[kind])
    expected_out, expected_weights = by_definition(q, k, v, mask[kind])
    close(out, expected_out)
    close(weights, expected_weights)


def test_very_low_scores_do_not_let_hidden_positions_through():
    q, k = torch.full((1, 1, 1, 3), -1e3), torch.full((1, 1, 3, 3), 1e3)
    out, weights = attention(q, k, torch.eye(3)[None, None], torch.tensor([True, False, True]))
    assert weights.flatten().tolist() == out.flatten().tolist() == [0.5, 0.0, 0.5]


def test_dropout_acts_on_the_weights_that_are_used_not_on_those_returned():
    q, k, v = torch.randn(1, 1, 4, 3), torch.randn(1, 1, 5, 3), torch.randn(1, 1, 5, 3)
    out, weights = attention(q, k, v, dropout=lambda weights: 2 * weights)
    close(weights.sum(-1), torch.ones(1, 1, 4))
    close(out, 2 * weights @ v)


# -------------------------------------------------------------------------------------- masks
def test_masks_are_true_where_a_position_may_attend():
    assert padding_mask(torch.tensor([0, 2, 3]), 3)[:, 0].tolist() == [
        [False, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert causal_mask(2).tolist() == [[True, False], [True, True]]
    assert causal_mask(2, past=1).tolist() == [[True, True, False], [True, True, True]]


def by_the_teaching_function(layer, x, memory, mask):
    """Return the layer's output from `attention`, with the projections written out."""
    memory = x if memory is None else memory
    weights, biases = layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3)
    parts = zip((x, memory, memory), weights, biases, strict=True)
    q, k, v = ((y @ w.T + b).view(B, -1, HEADS, 4).transpose(1, 2) for y, w, b in parts)
    mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask
    out = attention(q, k, v, mask)[0]
    return layer.out(out.transpose(1, 2).flatten(2))


@exact_types
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("which", range(6))
def test_the_layer_computes_what_attention_computes_and_so_do_its_gradients(dtype, cross, which):
    layer, x, memory = layer_and_inputs(dtype)
    memory = memory if cross else None
    mask = [None, *masks(T, S if cross else T)][which]
    parameters, results = list(layer.parameters()), []
    for out in (layer(x, memory, attn_mask=mask), by_the_teaching_function(layer, x, memory, mask)):
        results.append([out, *torch.autograd.grad(out.square().sum(), parameters)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    close(*(result[0] for result in results))


@exact_types
@pytest.mark.parametrize("masked", [False, True])
def test_is_causal_adds_the_causal_mask(dtype, masked):
    layer, x, _ = layer_and_inputs(dtype)
    mask = padding_mask(torch.tensor([5, 2]), T) if masked else None
    both = causal_mask(T) if mask is None else mask & causal_mask(T)
    close(layer(x, attn_mask=mask, is_causal=True), layer(x, attn_mask=both))
    changed = torch.cat((x[:, :3], torch.randn(B, 2, D, dtype=dtype)), 1)
    close(layer(changed, is_causal=True)[:, :3], layer(x, is_causal=True)[:, :3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_mask_of_numbers_is_refused_since_they_would_be_added_to_the_scores(dtype):
    layer, x, _ = layer_and_inputs()
    with pytest.raises(ValueError, match=f"expected a boolean attn_mask, got {dtype}"):
        layer(x, attn_mask=torch.ones(T, T, dtype=dtype))


def test_inputs_of_the_wrong_shape_are_refused():
    layer, x, memory = layer_and_inputs()
    for call in (
        lambda: layer(x[0]),
        lambda: layer(x, memory, attn_mask=torch.ones(T, T, dtype=torch.bool)),
        lambda: layer(x, memory, attn_mask=torch.ones(3, 1, S, dtype=torch.bool)),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            call()
    with pytest.raises(ValueError, match="d_model 8 must be a multiple of n_heads 3"):
        MultiHeadAttention(8, 3)


def test_the_initial_projections_are_xaviers_of_one_matrix_and_the_biases_zero():
    layer, bound = MultiHeadAttention(64, 4), math.sqrt(6 / (64 + 3 * 64))
    assert 0.99 * bound < layer.qkv.weight.abs().max() <= bound
    assert not layer.qkv.bias.any() and not layer.out.bias.any()


def test_dropout_acts_on_the_attention_weights_in_training_only():
    layer, x, _ = layer_and_inputs(dropout=0.5)
    with torch.no_grad():  # with these values the output is the sum of what is left of the weights
        layer.qkv.weight.zero_()
        layer.qkv.bias.zero_()
        layer.qkv.bias[2 * D :] = 1.0
        layer.out.weight.copy_(torch.eye(D))
        layer.out.bias.zero_()
        left = torch.cat([layer(x) for _ in range(300)])  # (600, T, D)
        close(layer.eval()(x), torch.ones(B, T, D))
    assert left.mean().item() == pytest.approx(1.0, abs=0.05)
    # Of five weights of 1/5 each is kept with chance 1/2 and doubled.
    assert set((left * 5 / 2).round().unique().tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    close(left, (left * 5 / 2).round() * 2 / 5)


# -------------------------------------------------------------------------------------- cache
@exact_types
@pytest.mark.parametrize("parts", [[5], [1, 1, 1, 1, 1], [2, 3], [1, 3, 1]], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_a_cache_filled_in_parts_gives_what_one_pass_gives(dtype, parts, masked):
    layer, x, _ = layer_and_inputs(dtype)
    mask = padding_mask(torch.tensor([5, 3]), T) if masked else None
    cache, outputs = KeyValueCache(), []
    assert cache.length == 0
    for part in x.split(parts, dim=1):
        end = cache.length + part.shape[1]
        now = None if mask is None else mask[..., :end]
        outputs.append(layer(part, attn_mask=now, is_causal=True, cache=cache))
        assert cache.length == end
    close(torch.cat(outputs, 1), layer(x, attn_mask=mask, is_causal=True))
