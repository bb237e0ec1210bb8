"""Attention against its formula and PyTorch's kernel; masks, dropout and cache by their laws."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from support.models import transformer as module
from support.models.transformer import (
    Dropout,
    KeyValueCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    fused_attention,
    padding_mask,
    record_weights,
)
from tests.exactness import EXACT_TYPES, TOLERANCE, close

quick = settings(max_examples=30, derandomize=True, database=None, deadline=None)
exact_types = st.sampled_from(EXACT_TYPES)
seeds = st.integers(0, 2**32)


def some_mask(kind, b, h, t, s):
    """Return a random mask of the kind in which every row may attend to something."""
    if kind == "none":
        return None
    if kind == "causal":
        return torch.ones(t, s, dtype=torch.bool).tril(s - t) | (torch.arange(s) == 0)
    if kind == "padding":
        return padding_mask(torch.randint(1, s + 1, (b,)), s)[:, None]
    shape = {"pairs": (t, s), "rows": (b, 1, t, s), "heads": (b, h, t, s)}[kind]
    return (torch.rand(shape) < 0.5) | (torch.arange(s) == torch.randint(s, (t, 1)))


kinds = st.sampled_from(["none", "causal", "padding", "pairs", "rows", "heads"])
sizes = st.tuples(*[st.integers(1, 4)] * 2, *[st.integers(1, 9)] * 3)  # B, H, T, S, d


def qkv(b, h, t, s, d, dtype=torch.float32):
    shapes = (b, h, t, d), (b, h, s, d), (b, h, s, d)
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def layer_and_inputs(b=2, t=5, s=7, d_model=12, n_heads=3, dtype=torch.float32, **options):
    layer = MultiHeadAttention(d_model, n_heads, **options).to(dtype)
    for bias in (layer.qkv.bias, layer.out.bias):  # zero at the start, where no test could see them
        nn.init.normal_(bias)
    return layer, torch.randn(b, t, d_model, dtype=dtype), torch.randn(b, s, d_model, dtype=dtype)


# ---------------------------------------------------------------------------------- the formula
def slow_attention(q, k, v, attn_mask):
    """Return output and weights, each query for itself and in Python's own numbers."""
    (b, h, t, d), s = q.shape, k.shape[2]
    attn_mask = torch.ones(1, dtype=torch.bool) if attn_mask is None else attn_mask
    seen_by = attn_mask.expand(b, h, t, s).tolist()
    out, weights = torch.zeros(b, h, t, v.shape[-1]).to(v), torch.zeros(b, h, t, s).to(v)
    q, k, v = q.tolist(), k.tolist(), v.tolist()
    for i, j, n in itertools.product(range(b), range(h), range(t)):
        seen = [m for m in range(s) if seen_by[i][j][n][m]]
        products = [sum(x * y for x, y in zip(q[i][j][n], k[i][j][m], strict=True)) for m in seen]
        scores = [math.exp(product / math.sqrt(d)) for product in products]
        for m, score in zip(seen, scores, strict=True):
            weights[i, j, n, m] = score / sum(scores)
        for c in range(out.shape[-1]):
            out[i, j, n, c] = sum(float(weights[i, j, n, m]) * v[i][j][m][c] for m in seen)
    return out, weights


@given(size=sizes, kind=kinds, seed=seeds, dtype=exact_types, empty=st.booleans())
@settings(quick, max_examples=20)
def test_attention_is_equation_1_query_by_query(size, kind, seed, dtype, empty):
    torch.manual_seed(seed)
    mask = some_mask(kind, *size[:4])
    if mask is not None and empty:
        mask = mask & (torch.rand(*mask.shape[:-1], 1) < 0.7)
    with torch.no_grad():
        q, k, v = qkv(*size, dtype)
        out, weights = attention(q, k, v, mask)
        expected_out, expected_weights = slow_attention(q, k, v, mask)
    close(out, expected_out)
    close(weights, expected_weights)


@given(size=sizes, kind=kinds, seed=seeds, dtype=exact_types)
@quick
def test_explicit_fused_and_pytorchs_own_agree_and_so_do_their_gradients(size, kind, seed, dtype):
    torch.manual_seed(seed)
    mask = some_mask(kind, *size[:4])
    inputs = qkv(*size, dtype)
    outputs = [
        attention(*inputs, mask)[0],
        fused_attention(*inputs, mask),
        F.scaled_dot_product_attention(*inputs, mask),
    ]
    direction = torch.randn_like(outputs[0])
    gradients = [torch.autograd.grad((out * direction).sum(), inputs) for out in outputs]
    for out, gradient in zip(outputs[:2], gradients[:2], strict=True):
        close(out, outputs[2])
        for ours, theirs in zip(gradient, gradients[2], strict=True):
            close(ours, theirs)


@given(size=sizes, kind=kinds, seed=seeds)
@quick
def test_weights_are_a_distribution_over_what_the_mask_allows(size, kind, seed):
    torch.manual_seed(seed)
    mask = some_mask(kind, *size[:4])
    _, weights = attention(*qkv(*size), mask)
    close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    if mask is not None:
        assert not weights[~mask.expand_as(weights)].any()
        assert (weights[mask.expand_as(weights)] > 0).all()


def test_values_may_be_wider_than_keys():
    q, k, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 9)
    close(attention(q, k, v)[0], fused_attention(q, k, v))
    assert attention(q, k, v)[0].shape == (2, 3, 4, 9)


# ------------------------------------------------------------------------------------- no row
every_type = pytest.mark.parametrize("dtype", list(TOLERANCE))
how_empty = pytest.mark.parametrize("empty", ["one row", "one text", "all"])


def with_empty_rows(empty, b, t, s):
    mask = torch.rand(b, 1, t, s) < 0.7
    mask[..., 0] = True
    if empty == "one row":
        mask[0, :, t // 2] = False
    elif empty == "one text":
        mask[0] = False
    else:
        mask[:] = False
    return mask, ~mask.any(-1)[:, 0]  # (B, T), True where a row attends to nothing


@every_type
@how_empty
@pytest.mark.parametrize("path", ["explicit", "fused"])
def test_a_row_that_may_attend_to_nothing_gives_zeros_forward_and_backward(dtype, empty, path):
    torch.manual_seed(1)
    b, h, t, s = 2, 3, 5, 7
    mask, nothing = with_empty_rows(empty, b, t, s)
    inputs = qkv(b, h, t, s, 4, dtype)
    out = attention(*inputs, mask)[0] if path == "explicit" else fused_attention(*inputs, mask)
    assert not out.transpose(1, 2)[nothing].any()
    assert out.isfinite().all() and out.dtype == dtype
    q, k, v = (x.detach().double().requires_grad_() for x in inputs)
    direction = torch.randn_like(out)
    ours = torch.autograd.grad((out * direction).sum(), inputs)
    assert not ours[0].transpose(1, 2)[nothing].any()
    reached = mask.any(-2)[:, 0]  # (B, S)
    for gradient in ours:
        assert gradient.isfinite().all()
    for gradient in ours[1:]:
        assert not gradient.transpose(1, 2)[~reached].any()
    if empty != "all":  # and the other rows are what they are by themselves
        weights = (q @ k.mT / 2).masked_fill(~mask, -math.inf).softmax(-1).nan_to_num(0.0)
        close(out, (weights @ v).to(dtype))


@how_empty
def test_a_kernel_that_gives_nan_for_such_rows_does_no_harm(empty, monkeypatch):
    """PyTorch's kernels disagree about them, by version and device; this is the strictest."""

    def strict(q, k, v, attn_mask, dropout_p):
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~attn_mask, -math.inf)
        return scores.softmax(-1) @ v

    monkeypatch.setattr(F, "scaled_dot_product_attention", strict)
    mask, nothing = with_empty_rows(empty, 2, 5, 7)
    inputs = qkv(2, 3, 5, 7, 4)
    out = fused_attention(*inputs, mask)
    close(out, attention(*inputs, mask)[0])
    for gradient in torch.autograd.grad(out.square().sum(), inputs):
        assert gradient.isfinite().all()


def test_very_low_scores_do_not_let_the_hidden_through():
    v = torch.eye(3)[None, None]
    q, k = torch.full((1, 1, 1, 3), -1e3), torch.full((1, 1, 3, 3), 1e3)
    mask = torch.tensor([True, False, True])
    out, weights = attention(q, k, v, mask)
    assert weights.flatten().tolist() == out.flatten().tolist() == [0.5, 0.0, 0.5]


def test_large_scores_stay_finite_in_half_precision():
    for dtype in (torch.float16, torch.bfloat16):
        q = torch.full((1, 1, 2, 4), 60.0, dtype=dtype)
        mask = torch.tensor([[True, False], [False, False]])
        for out in (attention(q, q, q, mask)[0], fused_attention(q, q, q, mask)):
            assert out[0, 0].tolist() == [[60.0] * 4, [0.0] * 4]


@every_type
@how_empty
@pytest.mark.parametrize("path", ["fused", "recorded", "training", "causal", "cached", "memory"])
def test_every_path_of_the_layer_copes_with_rows_without_any(dtype, empty, path):
    torch.manual_seed(2)
    layer, x, memory = layer_and_inputs(t=5, s=7, dtype=dtype, attention_dropout=0.2)
    layer.train(path == "training")
    memory = memory if path == "memory" else None
    mask, nothing = with_empty_rows(empty, 2, 5, 5 if memory is None else 7)
    x.requires_grad_()
    options = {"attn_mask": mask, "is_causal": path == "causal"}
    if path == "cached":
        with torch.no_grad():
            out = layer(x, cache=KeyValueCache(5), **options)
    elif path == "recorded":
        with record_weights(layer) as [[]]:
            out = layer(x, **options)
    else:
        out = layer(x, memory, **options)
    assert out.isfinite().all()
    close(out[nothing], layer.out.bias.expand_as(out[nothing]))
    if path != "cached":
        out.float().square().sum().backward()
        for value in (x, *layer.parameters()):
            assert value.grad is not None and value.grad.isfinite().all()


# -------------------------------------------------------------------------------------- masks
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5))
@quick
def test_the_padding_mask_is_true_up_to_each_length(lengths):
    mask = padding_mask(torch.tensor(lengths), 9)
    assert mask.dtype == torch.bool and mask.shape == (len(lengths), 1, 9)
    assert mask[:, 0].tolist() == [[i < n for i in range(9)] for n in lengths]


@given(length=st.integers(0, 7), past=st.integers(0, 7))
@quick
def test_the_causal_mask_shows_a_position_itself_and_what_was_before(length, past):
    mask = causal_mask(length, past)
    assert mask.dtype == torch.bool and mask.shape == (length, past + length)
    assert mask.tolist() == [[j <= past + i for j in range(past + length)] for i in range(length)]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([3, 8]), "lengths must be from 0 to 7, got 3 to 8"),
        (torch.tensor([-1, 2]), "lengths must be from 0 to 7, got -1 to 2"),
        (torch.tensor([1.0, 2.0]), r"must be integers \(B,\), got torch.float32 \(2,\)"),
        (torch.tensor([True]), r"got torch.bool \(1,\)"),
        (torch.tensor([[1], [2]]), r"got torch.int64 \(2, 1\)"),
        (torch.tensor(3), r"got torch.int64 \(\)"),
    ],
)
def test_lengths_that_are_none_are_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        padding_mask(lengths, 7)


@given(b=st.integers(1, 3), t=st.integers(1, 6), s=st.integers(1, 6), seed=seeds)
@quick
def test_a_mask_of_any_shape_allowed_means_the_same_written_out(b, t, s, seed):
    torch.manual_seed(seed)
    layer, x, memory = layer_and_inputs(b, t, s)
    for shape in [(t, s), (b, 1, s), (b, t, s), (b, 1, 1, s), (b, 3, 1, s), (b, 1, t, s)]:
        mask = torch.rand(shape) < 0.6
        full = mask[:, None] if mask.dim() == 3 else mask
        full = full.expand(b, 3, t, s).contiguous()
        close(layer(x, memory, attn_mask=mask), layer(x, memory, attn_mask=full))


@given(t=st.integers(1, 8), seed=seeds, dtype=exact_types, masked=st.booleans())
@quick
def test_is_causal_is_the_causal_mask_on_every_path(t, seed, dtype, masked):
    torch.manual_seed(seed)
    layer, x, _ = layer_and_inputs(3, t, dtype=dtype)
    mask = padding_mask(torch.randint(1, t + 1, (3,)), t) if masked else None
    both = causal_mask(t) if mask is None else mask & causal_mask(t)
    expected = layer(x, attn_mask=both)
    close(layer(x, attn_mask=mask, is_causal=True), expected)
    with record_weights(layer) as [weights]:
        close(layer(x, attn_mask=mask, is_causal=True), expected)
    assert not weights[0].triu(1).any()


@given(b=st.integers(1, 3), t=st.integers(2, 8), seed=seeds)
@quick
def test_a_later_token_changes_no_earlier_output(b, t, seed):
    torch.manual_seed(seed)
    layer, x, _ = layer_and_inputs(b, t)
    at = int(torch.randint(1, t, ()))
    changed = x.clone()
    changed[:, at:] = torch.randn_like(changed[:, at:])
    for recorded in (False, True):
        layer.recorded = [] if recorded else None
        before, after = layer(x, is_causal=True), layer(changed, is_causal=True)
        close(after[:, :at], before[:, :at])
        assert not torch.isclose(after[:, at:], before[:, at:]).all()


def test_what_is_masked_out_does_not_matter_and_what_is_not_does():
    layer, x, memory = layer_and_inputs(b=3, t=4, s=6)
    mask = padding_mask(torch.tensor([6, 3, 1]), 6)
    changed = torch.where(mask[:, 0, :, None], memory, torch.randn_like(memory))
    assert torch.equal(layer(x, memory, attn_mask=mask), layer(x, changed, attn_mask=mask))
    assert not torch.allclose(layer(x, memory), layer(x, changed))


# ------------------------------------------------------------------------------------ dropout
@pytest.mark.parametrize("p", [0.02, 0.1, 1 / 3, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1_000_001,), (251, 63, 67), (4, 262_144)])
def test_dropout_zeroes_its_share_and_keeps_the_mean(p, shape):
    torch.manual_seed(3)
    out = Dropout(p)(torch.ones(shape))
    assert out.shape == shape
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
    n = out.numel()
    deviation = math.sqrt(p * (1 - p) / n)
    assert (~kept).double().mean().item() == pytest.approx(p, abs=5 * deviation)
    assert out.double().mean().item() == pytest.approx(1, abs=5 * deviation / (1 - p))
    flat = kept.flatten()[: n // 4 * 4].double()
    lanes = flat.view(-1, 4)  # the four elements that one number decides about
    assert (1 - lanes.mean(0) - p).abs().max() < 5 * deviation * 2
    correlation = torch.corrcoef(torch.cat((lanes.T[:, 1:], lanes.T[:, :-1])))
    assert correlation.fill_diagonal_(0).abs().max() < 5 / math.sqrt(n / 4)


class EveryNumber:
    """In place of SFC64: each number of 16 bits once."""

    def __init__(self, seed):
        pass

    def random_raw(self, n):
        assert n == 2**14
        return np.arange(2**16, dtype=np.uint16).view(np.uint64)


@pytest.mark.parametrize("p", [1e-6, 2**-16, 0.1, 1 / 3, 0.5, 0.75, 0.999, 1 - 2**-16, 1 - 1e-6])
def test_the_rate_is_met_within_what_16_bits_allow(p, monkeypatch):
    monkeypatch.setattr(np.random, "SFC64", EveryNumber)
    out = Dropout(p)(torch.ones(2**16, dtype=torch.float64))
    assert abs((out == 0).double().mean().item() - p) <= 2**-16


@given(shape=st.lists(st.integers(0, 5), max_size=4), p=st.floats(0, 0.95), seed=seeds)
@quick
def test_dropout_takes_any_shape_and_keeps_or_zeroes(shape, p, seed):
    torch.manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64)
    for given_x in (x, x.mT if len(shape) > 1 else x, x.float(), x.bfloat16()):
        out = Dropout(p)(given_x)
        assert out.shape == given_x.shape and out.dtype == given_x.dtype
        kept = given_x / (1 - p)
        tolerance = {torch.bfloat16: 1e-2}.get(out.dtype, 1e-6)
        assert ((out == 0) | torch.isclose(out, kept, rtol=tolerance)).all()


def test_each_element_of_an_odd_size_meets_both_fates():
    torch.manual_seed(0)
    dropout = Dropout(0.5)
    for n in (1, 2, 3, 5, 6, 7, 9):
        kept = torch.stack([dropout(torch.ones(n)) for _ in range(60)]) > 0
        assert (kept.any(0) & ~kept.all(0)).all()


def test_dropout_follows_pytorchs_seed():
    x, dropout = torch.ones(99), Dropout(0.5)

    def two(seed):
        torch.manual_seed(seed)
        return torch.stack((dropout(x), dropout(x)))

    assert torch.equal(two(0), two(0))
    assert not torch.equal(two(0), two(1))
    assert not torch.equal(*two(0))


def test_dropout_does_nothing_outside_training_or_at_rate_zero():
    x = torch.randn(5, 7)
    state = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x and Dropout()(x) is x
    assert torch.equal(torch.get_rng_state(), state)
    assert "p=0.25" in repr(Dropout(0.25))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_gradient_passes_where_the_value_did(dtype):
    x = torch.ones(7, 11, 13, dtype=dtype, requires_grad=True)
    out = Dropout(0.4)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out)
    assert 0 < (out == 0).sum() < out.numel()


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, math.nan])
def test_a_rate_that_is_none_is_refused(p):
    with pytest.raises(ValueError, match=rf"dropout must be in \[0, 1\), got {p}"):
        Dropout(p)
    with pytest.raises(ValueError, match="dropout must be in"):
        MultiHeadAttention(4, 2, p)


def test_dropout_acts_on_the_weights_and_both_kernels_do_it():
    torch.manual_seed(4)
    shape = (2, 3, 40, 50)
    q, v = torch.randn(2, 3, 40, 8), torch.eye(50).expand(2, 3, 50, 50)
    k = torch.randn(2, 3, 50, 8)
    plain = attention(q, k, v)[0]  # with these values, the weights themselves
    explicit, weights = attention(q, k, v, dropout=Dropout(0.25))
    fused = fused_attention(q, k, v, dropout=0.25)
    close(weights, plain)
    for out in (explicit, fused):
        kept = out > 0
        close(out[kept], plain[kept] / 0.75)
        assert (~kept).double().mean().item() == pytest.approx(0.25, abs=5 * 0.43 / 110)
        assert out.shape == shape


def test_the_layer_drops_weights_in_training_only(monkeypatch):
    layer, x, memory = layer_and_inputs(attention_dropout=0.5)
    calls = []

    def forward(self, x):
        calls.append((tuple(x.shape), self.training))
        return x * 0.0

    monkeypatch.setattr(Dropout, "forward", forward)
    close(layer(x, memory), layer.out.bias.expand(2, 5, 12))
    assert calls == [((2, 3, 5, 7), True)]
    calls.clear()
    layer.eval()(x, memory)
    assert calls == []


def test_the_kernel_gets_the_rate_in_training_only(monkeypatch):
    """On a GPU the fused kernel drops; here its place is taken to see what it is given."""
    rates = []

    def fused(q, k, v, attn_mask, is_causal, dropout):
        rates.append(dropout)
        return v

    monkeypatch.setattr(module, "fused_attention", fused)
    layer, x, _ = layer_and_inputs(attention_dropout=0.5)
    q = torch.empty(2, 3, 5, 4, device="meta")
    layer._attend(q, q, q, None, False)
    layer.eval()._attend(q, q, q, None, False)
    assert rates == [0.5, 0.0]


# -------------------------------------------------------------------------------------- cache
chunks = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(chunks=chunks, b=st.integers(1, 3), seed=seeds, dtype=exact_types, masked=st.booleans())
@quick
def test_a_cache_filled_in_chunks_gives_what_one_pass_gives(chunks, b, seed, dtype, masked):
    torch.manual_seed(seed)
    t = sum(chunks)
    layer, x, _ = layer_and_inputs(b, t, dtype=dtype)
    mask = padding_mask(torch.randint(1, t + 1, (b,)), t) if masked else None
    cache = KeyValueCache(t + int(torch.randint(0, 3, ())))
    pieces, start = [], 0
    with torch.no_grad():
        for n in chunks:
            end = start + n
            now = None if mask is None else mask[..., :end]
            piece = layer(x[:, start:end], attn_mask=now, is_causal=True, cache=cache)
            pieces.append(piece)
            start = end
            assert cache.length == end
        close(torch.cat(pieces, 1), layer(x, attn_mask=mask, is_causal=True))


@given(seed=seeds, steps=st.integers(1, 4), spare=st.integers(0, 3), dtype=exact_types)
@quick
def test_in_cross_attention_the_memory_is_projected_once(seed, steps, spare, dtype):
    torch.manual_seed(seed)
    layer, x, memory = layer_and_inputs(t=steps, dtype=dtype)
    mask = padding_mask(torch.tensor([7, 4]), 7)
    cache = KeyValueCache(7 + spare)
    with torch.no_grad():
        expected = layer(x, memory, attn_mask=mask)
        for i in range(steps):
            now = memory if i == 0 else torch.full_like(memory, math.nan)  # no longer looked at
            out = layer(x[:, i : i + 1], now, attn_mask=mask, cache=cache)
            close(out, expected[:, i : i + 1])
            assert cache.length == 7


def test_a_cache_hands_out_all_that_it_was_given():
    cache = KeyValueCache(5)
    k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    for end in (1, 4, 5):
        keys, values = cache.append(k[:, :, cache.length : end], v[:, :, cache.length : end])
        assert torch.equal(keys, k[:, :, :end]) and torch.equal(values, v[:, :, :end])


def test_a_full_cache_refuses_more_and_keeps_what_it_has():
    layer, x, _ = layer_and_inputs(t=5)
    cache = KeyValueCache(4)
    with pytest.raises(ValueError, match="the cache takes 4 positions, asked for 5"):
        layer(x, cache=cache)
    layer(x[:, :3], cache=cache)
    keys = cache.keys[:, :, :3].clone()
    with pytest.raises(ValueError, match="the cache takes 4 positions, asked for 5"):
        layer(x[:, 3:], cache=cache)
    assert cache.length == 3 and torch.equal(cache.keys[:, :, :3], keys)


def test_a_cache_of_another_batch_heads_or_width_is_refused():
    cache = KeyValueCache(4)
    cache.append(torch.zeros(2, 3, 1, 4), torch.zeros(2, 3, 1, 4))
    for shape in [(1, 3, 1, 4), (3, 3, 1, 4), (2, 1, 1, 4), (2, 3, 1, 1), (2, 3, 1, 5)]:
        with pytest.raises(ValueError, match=r"the cache holds \(2, 3, 4, 4\), got \("):
            cache.append(torch.zeros(shape), torch.zeros(shape))
    with pytest.raises(ValueError, match=r"got \(2, 3, 2, 4\) and \(2, 3, 1, 4\)"):
        cache.append(torch.zeros(2, 3, 2, 4), torch.zeros(2, 3, 1, 4))
    assert cache.length == 1


def test_a_cache_of_another_memory_is_refused():
    layer, x, memory = layer_and_inputs()
    cache = KeyValueCache(9)
    layer(x[:1], memory[:1], cache=cache)
    with pytest.raises(ValueError, match=r"q, k, v must be .* got \(2, 3, 5, 4\), \(1, 3, 7, 4\)"):
        layer(x, memory, cache=cache)
    with pytest.raises(ValueError, match="memory has 6 positions, the cache 7"):
        layer(x[:1], memory[:1, :6], cache=cache)


# ----------------------------------------------------------------------------- recorded weights
def test_recorded_weights_are_those_of_each_call_and_change_nothing():
    torch.manual_seed(5)
    layer, x, memory = layer_and_inputs()
    model = nn.ModuleList([nn.Identity(), layer, MultiHeadAttention(12, 4)])
    mask = padding_mask(torch.tensor([7, 2]), 7)
    plain = layer(x), layer(x, memory, attn_mask=mask)
    with record_weights(model) as weights:
        close(layer(x), plain[0])
        close(layer(x, memory, attn_mask=mask), plain[1])
        model[2](x)
        assert [len(calls) for calls in weights] == [2, 1]
    layer(x)
    assert [[tuple(w.shape) for w in calls] for calls in weights] == [
        [(2, 3, 5, 5), (2, 3, 5, 7)],
        [(2, 4, 5, 5)],
    ]
    assert not any(w.requires_grad for calls in weights for w in calls)
    assert not weights[0][1].masked_select(~mask[:, None]).any()
    for w in itertools.chain(*weights):
        close(w.sum(-1), torch.ones(w.shape[:-1]))


def test_recording_ends_with_the_block_also_after_an_error():
    layer, x, _ = layer_and_inputs()
    with pytest.raises(ZeroDivisionError), record_weights(layer):
        assert layer.recorded == []
        raise ZeroDivisionError
    assert layer.recorded is None
    with record_weights(nn.Linear(2, 2)) as weights:
        assert weights == []


def test_recorded_weights_are_from_before_dropout():
    layer, x, _ = layer_and_inputs(attention_dropout=0.5)
    with record_weights(layer) as [weights]:
        layer(x)
    close(weights[0].sum(-1), torch.ones(2, 3, 5))


# ------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(("d_model", "n_heads"), [(8, 3), (4, 8)])
def test_heads_that_do_not_divide_the_width_are_refused(d_model, n_heads):
    message = f"d_model {d_model} must be a multiple of n_heads {n_heads}"
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(d_model, n_heads)


@pytest.mark.parametrize(("d_model", "n_heads"), [(8, 0), (8, -2), (0, 1)])
def test_a_layer_needs_a_width_and_a_head(d_model, n_heads):
    with pytest.raises(ValueError, match="must be at least 1, got "):
        MultiHeadAttention(d_model, n_heads)


both = pytest.mark.parametrize("function", [attention, fused_attention])


@both
@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3, 5, 4), (2, 3, 7, 6), (2, 3, 7, 4)],
        [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 6, 4)],
        [(2, 3, 5, 4), (1, 3, 7, 4), (1, 3, 7, 4)],
        [(2, 3, 5, 4), (2, 1, 7, 4), (2, 1, 7, 4)],
        [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 1, 4)],
        [(1, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)],
    ],
)
def test_heads_that_do_not_fit_are_refused_not_broadcast(function, shapes):
    with pytest.raises(ValueError, match="q, k, v must be") as error:
        function(*map(torch.zeros, shapes))
    assert all(str(shape) in str(error.value) for shape in shapes)


@both
@pytest.mark.parametrize("shape", [(5, 6), (4, 7), (2, 5, 7), (4, 3, 5, 7), (1, 2, 3, 5, 7), (2,)])
def test_a_mask_wider_than_the_weights_is_refused(function, shape):
    q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    with pytest.raises(ValueError, match=r"broadcastable to \(2, 3, 5, 7\), got \(") as error:
        function(q, k, k, torch.ones(shape, dtype=torch.bool))
    assert str(shape) in str(error.value)


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_that_is_not_boolean_is_refused(function, dtype):
    q = torch.zeros(2, 3, 5, 4)
    with pytest.raises(ValueError, match=f"attn_mask must be boolean.* got {dtype}"):
        function(q, q, q, torch.ones(5, 5, dtype=dtype))


def test_is_causal_needs_as_many_queries_as_keys_and_no_mask():
    q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    with pytest.raises(ValueError, match="is_causal needs T = S, got 5 and 7"):
        fused_attention(q, k, k, is_causal=True)
    with pytest.raises(ValueError, match="give attn_mask or is_causal, not both"):
        fused_attention(q, q, q, causal_mask(5), is_causal=True)


@pytest.mark.parametrize(
    "shape",
    [
        *[(5,), (5, 5), (7, 7), (2, 7), (7, 5)],  # two dimensions are (T, S)
        *[(1, 5, 7), (3, 5, 7), (6, 5, 7), (2, 4, 7), (2, 1, 6)],  # three are (B, T, S)
        *[(1, 1, 5, 7), (2, 2, 5, 7), (2, 3, 4, 7), (2, 3, 5, 8), (1, 2, 3, 5, 7)],
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_layer_refuses_a_mask_that_does_not_fit(shape, is_causal):
    layer, x, memory = layer_and_inputs()
    with pytest.raises(ValueError, match=r"attn_mask must be .*, got \("):
        mask = torch.ones(shape, dtype=torch.bool)
        layer(x, memory, attn_mask=mask, is_causal=is_causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_layer_refuses_a_mask_that_is_not_boolean(dtype, is_causal):
    layer, x, _ = layer_and_inputs()
    with pytest.raises(ValueError, match=f"attn_mask must be boolean.* got {dtype}"):
        layer(x, attn_mask=torch.ones(5, 5, dtype=dtype), is_causal=is_causal)


def test_vectors_of_another_shape_are_refused():
    layer, x, memory = layer_and_inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bad in (x[0], x[..., :11], x[None], torch.zeros(2, 5, 1)):
            with pytest.raises(ValueError, match=r"x must be \(B, T, 12\), got \("):
                layer(bad)
        for bad in (memory[:1], memory[0], memory[..., :6], torch.zeros(3, 7, 12)):
            with pytest.raises(ValueError, match=r"memory must be \(2, T, 12\), got \("):
                layer(x, bad)


@pytest.mark.parametrize(("length", "past"), [(-1, 0), (3, -1)])
def test_the_causal_mask_of_negative_sizes_is_refused(length, past):
    with pytest.raises(ValueError, match=f"must be at least 0, got {min(length, past)}"):
        causal_mask(length, past)
