"""Positions, blocks, encoder and decoder: PyTorch's own modules, the papers' formulas, cache."""

import itertools
import math
import re

import pytest
import torch
from torch import nn

from support.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    FeedForward,
    MultiHeadAttention,
    TransformerBlock,
    causal_mask,
    padding_mask,
    sinusoidal_positions,
)
from tests.exactness import EXACT_TYPES, close, rounded_anew

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)
both_orders = pytest.mark.parametrize("norm_first", [False, True])
D, HEADS, FF = 12, 3, 20
SIZES = D, HEADS, FF
LENGTHS = torch.tensor([5, 2, 4])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# ---------------------------------------------------------------------------------- positions
@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (7, 10), (3, 64)])
def test_the_sinusoids_are_the_papers(length, d_model):
    table = sinusoidal_positions(length, d_model)
    assert table.shape == (length, d_model) and table.dtype == torch.float32
    for position, i in itertools.product(range(length), range(d_model // 2)):
        angle = position / 10_000 ** (2 * i / d_model)
        assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
        assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_late_positions_are_as_exact_as_early_ones():
    late = sinusoidal_positions(100_001, 2)[100_000]
    assert late.tolist() == pytest.approx([math.sin(100_000), math.cos(100_000)], abs=1e-7)


# --------------------------------------------------------------------------------- the block
ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_is_two_linear_maps_around_the_activation(activation):
    layer = FeedForward(6, 10, activation).double()
    x = 3 * torch.randn(2, 3, 6, dtype=torch.float64)
    inner = ACTIVATIONS[activation](x @ layer.up.weight.T + layer.up.bias)
    close(layer(x), inner @ layer.down.weight.T + layer.down.bias)


def test_an_unknown_activation_is_refused():
    with pytest.raises(KeyError, match="tanh"):
        TransformerBlock(4, 2, 4, activation="tanh")(torch.zeros(1, 2, 4))


@both_orders
@pytest.mark.parametrize("cross", [False, True])
def test_dropout_is_on_the_weights_and_on_every_sublayers_output(cross, norm_first):
    options = {"norm_first": norm_first, "cross_attention": cross}
    block = TransformerBlock(*SIZES, dropout=0.2, attention_dropout=0.3, **options)
    attentions = [m for m in block.modules() if isinstance(m, MultiHeadAttention)]
    assert [m.dropout for m in attentions] == [0.3] * (1 + cross)
    assert TransformerBlock(*SIZES, dropout=0.2).attention.dropout == 0.2
    seen = []
    block.dropout.register_forward_hook(lambda module, x, out: seen.append(out.shape) or x[0] * 0)
    x, memory = torch.randn(2, 4, D), torch.randn(2, 5, D) if cross else None
    expected = x
    if not norm_first:  # the residual alone goes through the norms
        norms = [block.attention_norm, *([block.cross_norm] if cross else [])]
        for norm in (*norms, block.feed_forward_norm):
            expected = norm(expected)
    close(block(x, memory), expected)
    assert seen == [(2, 4, D)] * (2 + cross) and block.dropout.p == 0.2


# ------------------------------------------------------------------------- PyTorch's own modules
PYTORCH_NAMES = {
    r"\bcross_attention\b": "multihead_attn",
    r"\battention\b": "self_attn",
    r"qkv\.": "in_proj_",
    r"\bout\.": "out_proj.",
    "attention_norm": "norm1",
    "cross_norm": "norm2",
    r"feed_forward\.up": "linear1",
    r"feed_forward\.down": "linear2",
    "final_norm": "norm",
}


def pytorch_weights(ours):
    """Return the weights of our EncoderDecoder by the names of nn.Transformer."""
    renamed = {}
    for name, weight in ours.state_dict().items():
        last = "norm3" if name.startswith("decoder") else "norm2"
        for pattern, theirs in (PYTORCH_NAMES | {"feed_forward_norm": last}).items():
            name = re.sub(pattern, theirs, name)
        renamed[name] = weight
    return renamed


def both_transformers(dtype=torch.float32, norm_first=True, activation="relu"):
    """Return our EncoderDecoder with random weights, and PyTorch's with the same."""
    options = {"norm_first": norm_first, "activation": activation}
    ours = rounded_anew(EncoderDecoder(*SIZES, 2, final_norm=True, norm_eps=1e-3, **options))
    theirs = nn.Transformer(
        D, HEADS, 2, 2, FF, 0.0, batch_first=True, layer_norm_eps=1e-3, **options
    )
    theirs.load_state_dict(pytorch_weights(ours))
    return ours.to(dtype), theirs.to(dtype)


@exact_types
@both_orders
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_output_and_gradients_are_those_of_nn_transformer(dtype, norm_first, activation):
    ours, theirs = both_transformers(dtype, norm_first, activation)
    source = torch.randn(3, 5, D, dtype=dtype, requires_grad=True)
    target = torch.randn(3, 4, D, dtype=dtype, requires_grad=True)
    mask, target_mask = padding_mask(LENGTHS, 5), padding_mask(torch.tensor([4, 4, 1]), 4)
    out = ours(source, target, source_mask=mask, target_mask=target_mask)
    expected = theirs(
        source,
        target,
        tgt_mask=~causal_mask(4),
        src_key_padding_mask=~mask[:, 0],
        tgt_key_padding_mask=~target_mask[:, 0],
        memory_key_padding_mask=~mask[:, 0],
    )
    close(out, expected)
    close(ours(source, target), theirs(source, target, tgt_mask=~causal_mask(4)))
    direction = torch.randn_like(out)
    named = dict(theirs.named_parameters())
    pairs = zip(
        torch.autograd.grad((out * direction).sum(), [source, target, *ours.parameters()]),
        torch.autograd.grad(
            (expected * direction).sum(),
            [source, target, *(named[name] for name in pytorch_weights(ours))],
        ),
        strict=True,
    )
    for own, other in pairs:
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_a_mask_for_pairs_of_positions_is_pytorchs():
    ours, theirs = both_transformers()
    x = torch.randn(3, 5, D)
    mask = (torch.rand(5, 5) < 0.5) | (torch.arange(5) == 0)
    close(ours.encoder(x, attn_mask=mask), theirs.encoder(x, mask=~mask))


def test_no_final_norm_leaves_the_last_block_as_it_is():
    encoder = rounded_anew(Encoder(2, *SIZES, final_norm=True, norm_eps=0.5))
    x = torch.randn(2, 4, D)
    last = encoder.layers[1](encoder.layers[0](x))
    close(encoder(x), encoder.final_norm(last))
    assert encoder.final_norm.eps == 0.5
    encoder.final_norm = Encoder(1, *SIZES).final_norm
    close(encoder(x), last)


# ----------------------------------------------------------------------------- what may be seen
@both_orders
def test_padding_reaches_no_real_position(norm_first):
    encoder = rounded_anew(Encoder(2, *SIZES, norm_first=norm_first))
    x = torch.randn(3, 5, D)
    out = encoder(x, attn_mask=padding_mask(LENGTHS, 5))
    for i, n in enumerate(LENGTHS):
        close(out[i, :n], encoder(x[i : i + 1, :n])[0])


@both_orders
def test_the_decoder_sees_no_later_target_and_all_of_the_memory(norm_first):
    model = rounded_anew(EncoderDecoder(*SIZES, 2, norm_first=norm_first))
    source, target = torch.randn(2, 5, D), torch.randn(2, 6, D)
    changed = target.clone()
    changed[:, 3:] = torch.randn(2, 3, D)
    before, after = model(source, target), model(source, changed)
    close(after[:, :3], before[:, :3])
    assert ((after - before)[:, 3:].abs().amax(-1) > 1e-3).all()
    for s in range(5):
        other = source.clone()
        other[:, s] = torch.randn(2, D)
        assert ((model(other, target) - before).abs().amax(-1) > 1e-5).all()


@exact_types
@both_orders
@pytest.mark.parametrize("parts", [[1] * 6, [2, 1, 3], [6]], ids=str)
def test_decoding_in_steps_gives_what_one_pass_gives(dtype, norm_first, parts):
    decoder = rounded_anew(Decoder(2, *SIZES, norm_first=norm_first)).to(dtype)
    x, memory = torch.randn(3, 6, D, dtype=dtype), torch.randn(3, 5, D, dtype=dtype)
    mask, cache = padding_mask(LENGTHS, 5), decoder.new_cache()
    pieces = [decoder(part, memory, memory_mask=mask, cache=cache) for part in x.split(parts, 1)]
    close(torch.cat(pieces, 1), decoder(x, memory, memory_mask=mask))
    assert [layer.length for layer in cache] == [6, 6]


# ------------------------------------------------------------------------------------ parameters
def test_every_parameter_gets_a_gradient_and_none_is_shared():
    model = rounded_anew(EncoderDecoder(*SIZES, 2, norm_first=True, final_norm=True, dropout=0.1))
    model(torch.randn(2, 5, D), torch.randn(2, 4, D)).pow(3).sum().backward()
    assert not [name for name, value in model.named_parameters() if not value.grad.any()]
    attention, feed_forward = 4 * D * D + 4 * D, 2 * D * FF + D + FF
    encoder = 2 * (attention + feed_forward + 2 * 2 * D) + 2 * D
    decoder = 2 * (2 * attention + feed_forward + 3 * 2 * D) + 2 * D
    assert sum(value.numel() for value in model.parameters()) == encoder + decoder


@pytest.mark.filterwarnings("ignore")
def test_the_encoder_compiles_to_one_graph_that_gives_the_same():
    """The graph is run as it was traced: to generate code for it takes half a minute."""
    encoder = rounded_anew(Encoder(1, *SIZES, norm_first=True, final_norm=True)).eval()
    try:
        compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    except RuntimeError as error:
        pytest.skip(f"torch.compile does not work here: {error}")
    x, mask = torch.randn(3, 5, D), padding_mask(LENGTHS, 5)
    with torch.no_grad():
        close(compiled(x, attn_mask=mask), encoder(x, attn_mask=mask))
