"""Positions, blocks, encoder and decoder: the paper's formulas, causality, cache and errors."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from support.models.transformer import (
    Decoder,
    Dropout,
    Encoder,
    EncoderDecoder,
    FeedForward,
    KeyValueCache,
    MultiHeadAttention,
    Positions,
    TransformerBlock,
    causal_mask,
    embed,
    padding_mask,
    record_weights,
    sinusoidal_positions,
    take_rows,
)
from tests.exactness import EXACT_TYPES, close

quick = settings(max_examples=14, derandomize=True, database=None, deadline=None)
exact_types = st.sampled_from(EXACT_TYPES)
seeds = st.integers(0, 2**32)
D, HEADS, FF = 12, 3, 20
SIZES = D, HEADS, FF


def drawn(module, dtype=torch.float32):
    """Return the module with random biases and norms, which start as zeros and ones."""
    with torch.no_grad():
        for value in module.to(dtype).parameters():
            if value.dim() == 1:
                value.add_(torch.randn_like(value) * 0.3)
    return module


def norm(layer, x):
    """Return the layer normalization written out."""
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    return centered / (variance + layer.eps).sqrt() * layer.weight + layer.bias


# ---------------------------------------------------------------------------------- positions
@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (7, 10), (50, 4), (3, 64)])
def test_the_sinusoids_are_the_papers(length, d_model):
    table = sinusoidal_positions(length, d_model)
    assert table.shape == (length, d_model) and table.dtype == torch.float32
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_late_positions_are_as_exact_as_early_ones():
    late = sinusoidal_positions(100_001, 2)[100_000]
    assert late.tolist() == pytest.approx([math.sin(100_000), math.cos(100_000)], abs=1e-7)


@pytest.mark.parametrize("learned", [False, True])
def test_positions_are_rows_of_one_table_from_start_on(learned):
    positions = Positions(9, 6, learned=learned)
    assert positions.weight.shape == (9, 6)
    for start, length in itertools.product(range(9), range(1, 9)):
        if start + length <= 9:
            rows = positions(length, start)
            assert torch.equal(rows, positions.weight[list(range(start, start + length))])
        else:
            message = f"the model has 9 positions, the sequence needs {start + length}"
            with pytest.raises(ValueError, match=message):
                positions(length, start)


def test_learned_positions_get_a_gradient_and_sinusoids_are_no_parameter():
    learned, fixed = Positions(5, 4, learned=True), Positions(5, 4, learned=False)
    learned(3, 1).sum().backward()
    assert learned.weight.grad.sum(-1).tolist() == [0, 4, 4, 4, 0]
    assert not list(fixed.parameters()) and not fixed.state_dict()
    assert torch.equal(fixed.weight, sinusoidal_positions(5, 4))


@pytest.mark.parametrize("d_model", [0, 1, 7, -2])
def test_sinusoids_of_an_odd_width_are_refused(d_model):
    with pytest.raises(ValueError, match=f"d_model must be .*(got|given) {d_model}"):
        sinusoidal_positions(3, d_model)


def test_no_positions_are_refused():
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        Positions(0, 4, learned=True)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[0, 7]]), "ids must be from 0 to 6, got 0 to 7"),
        (torch.tensor([[-1, 3]]), "ids must be from 0 to 6, got -1 to 3"),
        (torch.tensor([0, 1]), r"integers \(B, T\), got torch.int64 \(2,\)"),
        (torch.tensor([[0.0]]), r"integers \(B, T\), got torch.float32 \(1, 1\)"),
        (torch.tensor([[True]]), r"integers \(B, T\), got torch.bool \(1, 1\)"),
        (torch.tensor([[[1]]]), r"got torch.int64 \(1, 1, 1\)"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(ids, message):
    table = nn.Embedding(7, 4)
    with pytest.raises(ValueError, match=message):
        embed(table, ids)
    assert torch.equal(embed(table, torch.tensor([[6, 0]]))[0], table.weight[[6, 0]])


# --------------------------------------------------------------------------------- the block
ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_is_two_linear_maps_around_the_activation(activation):
    layer = FeedForward(6, 10, activation).double()
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    inner = ACTIVATIONS[activation](x @ layer.up.weight.T + layer.up.bias)
    assert inner.shape == (2, 3, 10)
    close(layer(x), inner @ layer.down.weight.T + layer.down.bias)


def test_an_unknown_activation_is_refused():
    message = r"one of \['relu', 'gelu', 'gelu_tanh'\], got 'tanh'"
    with pytest.raises(ValueError, match=message):
        FeedForward(4, 4, "tanh")
    with pytest.raises(ValueError, match=message):
        TransformerBlock(4, 2, 4, activation="tanh")


@given(seed=seeds, norm_first=st.booleans(), cross=st.booleans(), dtype=exact_types)
@quick
def test_add_and_norm_stand_where_the_papers_have_them(seed, norm_first, cross, dtype):
    torch.manual_seed(seed)
    options = {"norm_first": norm_first, "cross_attention": cross, "norm_eps": 1e-3}
    block = drawn(TransformerBlock(*SIZES, **options), dtype)
    x, memory = torch.randn(2, 4, D, dtype=dtype), torch.randn(2, 5, D, dtype=dtype)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    steps = [(block.attention_norm, lambda y: block.attention(y, is_causal=True))]
    if cross:
        look = lambda y: block.cross_attention(y, memory, attn_mask=mask)  # noqa: E731
        steps.append((block.cross_norm, look))
    steps.append((block.feed_forward_norm, block.feed_forward))
    assert {layer.eps for layer, _ in steps} == {1e-3}
    expected = x
    for layer, sublayer in steps:
        if norm_first:
            expected = expected + sublayer(norm(layer, expected))
        else:
            expected = norm(layer, expected + sublayer(expected))
    more = {"memory": memory, "memory_mask": mask} if cross else {}
    close(block(x, is_causal=True, **more), expected)


def test_memory_goes_with_cross_attention():
    x = torch.randn(2, 4, D)
    with pytest.raises(ValueError, match="memory is needed by this block"):
        TransformerBlock(*SIZES, cross_attention=True)(x)
    with pytest.raises(ValueError, match="memory is not used by this block"):
        TransformerBlock(*SIZES)(x, x)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_is_on_the_weights_and_on_every_sublayers_output(cross, norm_first, monkeypatch):
    dropped = []

    def forward(self, x):
        dropped.append((self.p, tuple(x.shape)))
        return x

    options = {"norm_first": norm_first, "cross_attention": cross}
    block = TransformerBlock(*SIZES, dropout=0.2, attention_dropout=0.3, **options)
    monkeypatch.setattr(Dropout, "forward", forward)
    x, memory = torch.randn(2, 4, D), torch.randn(2, 5, D)
    block(x, *([memory] if cross else []))
    out = (0.2, (2, 4, D))
    expected = [(0.3, (2, HEADS, 4, 4)), out]
    if cross:
        expected += [(0.3, (2, HEADS, 4, 5)), out]
    assert dropped == [*expected, out]


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_dropped_sublayer_leaves_the_residual(norm_first, monkeypatch):
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x * 0)
    block = TransformerBlock(*SIZES, dropout=0.5, norm_first=norm_first)
    x = torch.randn(2, 4, D)
    twice = block.feed_forward_norm(block.attention_norm(x))
    close(block(x), x if norm_first else twice)


def test_the_rates_of_a_block():
    assert TransformerBlock(*SIZES, dropout=0.2).attention.dropout.p == 0.2
    assert TransformerBlock(*SIZES, dropout=0.2, attention_dropout=0.0).attention.dropout.p == 0.0
    assert TransformerBlock(*SIZES).dropout.p == TransformerBlock(*SIZES).attention.dropout.p == 0
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got 1.0"):
        TransformerBlock(*SIZES, dropout=1.0)


# -------------------------------------------------------------------------------- the encoder
@given(seed=seeds, n_layers=st.integers(1, 3), options=st.booleans(), masked=st.booleans())
@quick
def test_chosen_rows_are_those_of_the_whole(seed, n_layers, options, masked):
    torch.manual_seed(seed)
    options = {"norm_first": options, "final_norm": options}
    encoder = drawn(Encoder(n_layers, *SIZES, **options))
    x, rows = torch.randn(3, 6, D), torch.randint(6, (3, int(torch.randint(1, 9, ()))))
    mask = padding_mask(torch.tensor([6, 4, 1]), 6) if masked else None
    whole, part = encoder(x, attn_mask=mask), encoder(x, attn_mask=mask, rows=rows)
    assert part.shape == (3, rows.shape[1], D)
    close(part, torch.stack([whole[i, rows[i]] for i in range(3)]))
    close(take_rows(whole, rows), part)
    gradients = []
    for out in (take_rows(whole, rows), part):
        encoder.zero_grad()
        out.square().sum().backward()
        gradients.append([value.grad.clone() for value in encoder.parameters()])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_rows_that_would_change_what_a_mask_means_are_refused():
    block, x = TransformerBlock(*SIZES), torch.randn(2, 4, D)
    rows = torch.tensor([[3, 2, 1, 0]] * 2)
    cache = KeyValueCache(4), KeyValueCache(4)
    full = torch.ones(2, 4, 4, dtype=torch.bool)
    for options in (
        {"is_causal": True},
        {"cache": cache},
        {"attn_mask": causal_mask(4)},
        {"attn_mask": full},
        {"attn_mask": full[:, None]},
        {"attn_mask": full[0, 0]},
    ):
        with pytest.raises(ValueError, match=r"rows goes with attn_mask \(B, 1, S\) only"):
            block(x, rows=rows, **options)


def test_rows_of_another_shape_are_refused():
    encoder, x = Encoder(1, *SIZES), torch.randn(2, 4, D)
    for shape in [(1, 3), (3, 3), (2,), (2, 3, 1)]:
        rows = torch.zeros(shape, dtype=torch.int64)
        with pytest.raises(ValueError, match=r"rows must be \(2, P\), got \("):
            encoder(x, rows=rows)
        with pytest.raises(ValueError, match=r"rows must be \(2, P\), got \("):
            take_rows(x, rows)


@given(seed=seeds, dtype=exact_types, norm_first=st.booleans())
@quick
def test_padding_reaches_no_real_position(seed, dtype, norm_first):
    torch.manual_seed(seed)
    encoder = drawn(Encoder(2, *SIZES, norm_first=norm_first), dtype)
    x, lengths = torch.randn(3, 6, D, dtype=dtype), torch.randint(1, 7, (3,))
    mask = padding_mask(lengths, 6)
    longer = torch.cat((x, torch.randn(3, 2, D, dtype=dtype)), 1)
    longer = torch.where(torch.arange(8)[:, None] < lengths[:, None, None], longer, 9.0)
    out, again = encoder(x, attn_mask=mask), encoder(longer, attn_mask=padding_mask(lengths, 8))
    for i, n in enumerate(lengths):
        close(out[i, :n], again[i, :n])
        close(out[i, :n], encoder(x[i : i + 1, :n])[0])


def test_without_positions_an_encoder_does_not_see_the_order():
    encoder, x = drawn(Encoder(2, *SIZES)), torch.randn(2, 5, D)
    order = torch.randperm(5)
    close(encoder(x[:, order]), encoder(x)[:, order])


def test_the_final_norm_and_its_epsilon():
    x = torch.randn(2, 4, D)
    with_norm = drawn(Encoder(2, *SIZES, final_norm=True, norm_eps=0.5, norm_first=True))
    assert with_norm.final_norm.eps == with_norm.layers[1].attention_norm.eps == 0.5
    y = x
    for layer in with_norm.layers:
        y = layer(y)
    close(with_norm(x), norm(with_norm.final_norm, y))
    with_norm.final_norm = nn.Identity()
    close(with_norm(x), y)
    assert isinstance(Encoder(1, *SIZES).final_norm, nn.Identity)
    assert Encoder(1, *SIZES, final_norm=True).final_norm.eps == 1e-5


# -------------------------------------------------------------------------------- the decoder
@given(seed=seeds, norm_first=st.booleans(), t=st.integers(2, 6))
@quick
def test_a_later_target_changes_no_earlier_output_and_the_memory_changes_all(seed, norm_first, t):
    torch.manual_seed(seed)
    model = drawn(EncoderDecoder(*SIZES, 2, norm_first=norm_first, final_norm=norm_first))
    source, target = torch.randn(2, 5, D), torch.randn(2, t, D)
    at = int(torch.randint(1, t, ()))
    changed = target.clone()
    changed[:, at:] = torch.randn_like(changed[:, at:])
    before, after = model(source, target), model(source, changed)
    close(after[:, :at], before[:, :at])
    assert not torch.isclose(after[:, at:], before[:, at:], atol=1e-4).all()
    other = model(torch.randn_like(source), target)
    assert not torch.isclose(other, before, atol=1e-4).all(-1).any()
    target.requires_grad_()
    model(source, target)[:, at - 1].sum().backward()
    assert not target.grad[:, at:].any() and target.grad[:, :at].any()


def test_the_source_mask_hides_the_source_from_encoder_and_decoder():
    model = drawn(EncoderDecoder(*SIZES, 2))
    source, target = torch.randn(2, 5, D), torch.randn(2, 4, D)
    mask = padding_mask(torch.tensor([5, 3]), 5)
    changed = source.clone()
    changed[1, 3:] = torch.randn(2, D)
    out = model(source, target, source_mask=mask)
    assert torch.equal(model(changed, target, source_mask=mask), out)
    close(model(source[1:, :3], target[1:]), out[1:])
    kept = torch.tensor([[[True] * 4], [[True, False, True, True]]])
    hidden = model(source, target, target_mask=kept)
    changed = target.clone()
    changed[1, 1] = torch.randn(D)
    close(model(source, changed, target_mask=kept)[1, 2:], hidden[1, 2:])


chunks = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(seed=seeds, chunks=chunks, dtype=exact_types, norm_first=st.booleans(), masked=st.booleans())
@quick
def test_decoding_in_steps_gives_what_one_pass_gives(seed, chunks, dtype, norm_first, masked):
    torch.manual_seed(seed)
    t = sum(chunks)
    decoder = drawn(Decoder(2, *SIZES, norm_first=norm_first, final_norm=norm_first), dtype)
    x, memory = torch.randn(3, t, D, dtype=dtype), torch.randn(3, 5, D, dtype=dtype)
    mask = padding_mask(torch.tensor([5, 3, 1]), 5) if masked else None
    capacity, spare = t + int(torch.randint(3, ())), int(torch.randint(3, ()))
    cache = decoder.new_cache(capacity, 5 + spare)
    with torch.no_grad():
        pieces = [
            decoder(piece, memory, memory_mask=mask, cache=cache) for piece in x.split(chunks, 1)
        ]
        close(torch.cat(pieces, 1), decoder(x, memory, memory_mask=mask))
    assert [(own.length, cross.length) for own, cross in cache] == [(t, 5)] * 2


def test_a_cache_does_not_take_another_batch_or_more_than_its_capacity():
    decoder, cache = Decoder(2, *SIZES), Decoder(2, *SIZES).new_cache(3, 5)
    x, memory = torch.randn(2, 3, D), torch.randn(2, 5, D)
    decoder(x[:, :2], memory, cache=cache)
    with pytest.raises(ValueError, match=r"the cache holds \(2, 3, 3, 4\), got \(1, 3, 1, 4\)"):
        decoder(x[:1, 2:], memory[:1], cache=cache)
    with pytest.raises(ValueError, match="the cache takes 3 positions, asked for 4"):
        decoder(x[:, :2], memory, cache=cache)
    with pytest.raises(ValueError, match="the cache takes 4 positions, asked for 5"):
        decoder(x, memory, cache=decoder.new_cache(3, 4))


def test_recorded_weights_come_in_the_order_of_the_layers():
    model = EncoderDecoder(*SIZES, 2)
    with record_weights(model) as weights:
        model(torch.randn(2, 5, D), torch.randn(2, 4, D))
    shapes = [tuple(w.shape[2:]) for [w] in weights]
    assert shapes == [(5, 5), (5, 5), (4, 4), (4, 5), (4, 4), (4, 5)]
    assert not weights[2][0].triu(1).any() and weights[3][0].triu(1).any()


# ---------------------------------------------------------------------------------- the whole
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_texts_without_a_token_give_finite_values_and_gradients(norm_first, dtype):
    torch.manual_seed(0)
    model = EncoderDecoder(*SIZES, 2, norm_first=norm_first, final_norm=norm_first, dropout=0.2)
    model = drawn(model, dtype)
    source = torch.randn(2, 5, D, dtype=dtype, requires_grad=True)
    target = torch.randn(2, 4, D, dtype=dtype, requires_grad=True)
    for training in (True, False):
        mask = padding_mask(torch.tensor([3, 0]), 5)
        out = model.train(training)(source, target, source_mask=mask)
        assert out.isfinite().all()
        model.zero_grad()
        out.float().square().mean().backward()
        for value in (source, target, *model.parameters()):
            assert value.grad.isfinite().all()


def test_every_parameter_gets_a_gradient():
    model = drawn(EncoderDecoder(*SIZES, 2, norm_first=True, final_norm=True, dropout=0.1))
    model(torch.randn(2, 5, D), torch.randn(2, 4, D)).pow(3).sum().backward()
    assert not [name for name, value in model.named_parameters() if not value.grad.any()]


def test_the_number_of_parameters_is_the_papers():
    attention, feed_forward = 4 * D * D + 4 * D, 2 * D * FF + D + FF
    encoder, decoder = Encoder(2, *SIZES), Decoder(3, *SIZES, final_norm=True)
    count = lambda module: sum(value.numel() for value in module.parameters())  # noqa: E731
    assert count(encoder) == 2 * (attention + feed_forward + 2 * 2 * D)
    assert count(decoder) == 3 * (2 * attention + feed_forward + 3 * 2 * D) + 2 * D


def test_the_parts_do_not_share_weights():
    model = EncoderDecoder(*SIZES, 2)
    weights = [m.qkv.weight for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert len(weights) == 6
    for one, other in itertools.combinations(weights, 2):
        assert not torch.equal(one, other)


def test_shapes_that_do_not_fit_are_refused():
    model, x = EncoderDecoder(*SIZES, 1), torch.randn(2, 5, D)
    for source, target, message in [
        (x[0], x, r"x must be \(B, T, 12\), got \(5, 12\)"),
        (x[..., :6], x, r"x must be \(B, T, 12\), got \(2, 5, 6\)"),
        (x, x[..., :1], r"x must be \(B, T, 12\), got \(2, 5, 1\)"),
        (x[:1], x, r"memory must be \(2, T, 12\), got \(1, 5, 12\)"),
        (x, x[:1], r"memory must be \(1, T, 12\), got \(2, 5, 12\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            model(source, target)
    with pytest.raises(ValueError, match=r"attn_mask must be .* got \(2, 5\)"):
        model(x, x, source_mask=torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"attn_mask must be .* got \(1, 1, 5\)"):
        model(x, x, source_mask=torch.ones(1, 1, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="attn_mask must be boolean"):
        model(x, x, target_mask=torch.zeros(5, 5))
    with pytest.raises(ValueError, match="d_model 12 must be a multiple of n_heads 5"):
        Encoder(1, D, 5, FF)


def test_a_negative_number_of_layers_is_refused():
    with pytest.raises(ValueError, match="n_layers must be at least 0, got -1"):
        Encoder(-1, 8, 2, 16)


@pytest.mark.filterwarnings("ignore")
def test_the_encoder_compiles_to_one_graph_that_gives_the_same():
    """The graph is run as it was traced: to generate code for it takes half a minute."""
    encoder = drawn(Encoder(1, *SIZES, norm_first=True, final_norm=True)).eval()
    try:
        compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    except RuntimeError as error:
        pytest.skip(f"torch.compile does not work here: {error}")
    x, mask = torch.randn(2, 5, D), padding_mask(torch.tensor([5, 0]), 5)
    with torch.no_grad():
        close(compiled(x, attn_mask=mask), encoder(x, attn_mask=mask))
