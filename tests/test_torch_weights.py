"""Our modules against PyTorch's with the same weights: outputs, gradients, masks, both ways."""

import copy
import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from support.models.pretrained import from_torch, to_torch
from support.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MultiHeadAttention,
    TransformerBlock,
    causal_mask,
    padding_mask,
    record_weights,
)
from tests.exactness import EXACT_TYPES, close, rounded_anew

quick = settings(max_examples=12, derandomize=True, database=None, deadline=None)
D, HEADS, FF = 12, 3, 20

# PyTorch warns that its fast path for inference is not taken.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")


@st.composite
def cases(draw):
    """Return sizes, masks and options of a random case; torch's generator is seeded by it."""
    b, t, s = (draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    torch.manual_seed(draw(st.integers(0, 2**32)))
    lengths, target_lengths = (torch.randint(1, n + 1, (b,)) for n in (s, t))
    kind = draw(st.sampled_from(["none", "padding", "pairs", "both"]))
    return {
        "b": b,
        "t": t,
        "s": s,
        "dtype": draw(st.sampled_from(EXACT_TYPES)),
        "batch_first": draw(st.booleans()),
        "padding": padding_mask(lengths, s) if kind in ("padding", "both") else None,
        "target_padding": padding_mask(target_lengths, t) if kind in ("padding", "both") else None,
        "pairs": kind in ("pairs", "both"),
        "options": {
            "activation": draw(st.sampled_from(["relu", "gelu"])),
            "norm_first": draw(st.booleans()),
            "layer_norm_eps": draw(st.sampled_from([1e-5, 1e-2])),
        },
    }


def pairs(t, s):
    """Return a random (t, s) in which every row may attend to the first, which is no padding."""
    return (torch.rand(t, s) < 0.5) | (torch.arange(s) == 0)


def hidden(mask):
    """Return the mask for PyTorch, where True hides; a padding mask as (B, S)."""
    return None if mask is None else ~(mask[:, 0] if mask.dim() == 3 else mask)


def joined(mask, padding):
    """Return what ours takes instead of PyTorch's two masks."""
    return padding if mask is None else mask if padding is None else mask & padding


def check_equal(theirs, their_out, ours, our_out, their_inputs, our_inputs, batch_first):
    """Hold outputs and the gradients of all parameters and inputs against each other."""
    turn = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    close(our_out, turn(their_out))
    direction = torch.randn_like(our_out)
    (our_out * direction).sum().backward()
    (turn(their_out) * direction).sum().backward()
    for mine, other in zip(our_inputs, their_inputs, strict=True):
        close(mine.grad, turn(other.grad))
    gradients = copy.deepcopy(theirs)
    with torch.no_grad():
        for of, value in zip(gradients.parameters(), theirs.parameters(), strict=True):
            of.copy_(value.grad)
    expected = from_torch(gradients).state_dict()
    assert [*expected] == [name for name, _ in ours.named_parameters()]
    for name, value in ours.named_parameters():
        close(value.grad, expected[name])


def inputs_for_both(case, *lengths):
    """Return random inputs (B, T, D) for ours, and the same for PyTorch's."""
    ours = [torch.randn(case["b"], n, D, dtype=case["dtype"]).requires_grad_() for n in lengths]
    turned = [x.detach() if case["batch_first"] else x.detach().transpose(0, 1) for x in ours]
    return ours, [x.clone().requires_grad_() for x in turned]


def both(make, case, *args, **options):
    kwargs = {"batch_first": case["batch_first"], "dtype": case["dtype"], "dropout": 0.0}
    theirs = rounded_anew(make(*args, **(kwargs | options)))
    return theirs, from_torch(theirs)


# ------------------------------------------------------------------------------- the same output
@given(case=cases(), cross=st.booleans())
@settings(quick, max_examples=30)
def test_multi_head_attention_is_pytorchs(case, cross):
    theirs, ours = both(nn.MultiheadAttention, case, D, HEADS)
    assert isinstance(ours, MultiHeadAttention)
    s = case["s"]
    t = case["t"] if cross else s
    mine, others = inputs_for_both(case, t, *([s] if cross else []))
    mask = pairs(t, s) if case["pairs"] else None
    with record_weights(ours) as [recorded]:
        explicit = ours(*mine, attn_mask=joined(mask, case["padding"]))
    out, weights = theirs(
        others[0],
        others[-1],
        others[-1],
        key_padding_mask=hidden(case["padding"]),
        attn_mask=hidden(mask),
        average_attn_weights=False,
    )
    close(recorded[0], weights)
    fused = ours(*mine, attn_mask=joined(mask, case["padding"]))
    close(explicit, fused)
    check_equal(theirs, out, ours, fused, others, mine, case["batch_first"])


@given(case=cases())
@quick
def test_a_mask_of_its_own_for_each_head_is_pytorchs(case):
    theirs, ours = both(nn.MultiheadAttention, case, D, HEADS, batch_first=True)
    b, t, s = case["b"], case["t"], case["s"]
    mine, others = inputs_for_both(case | {"batch_first": True}, t, s)
    mask = (torch.rand(b, HEADS, t, s) < 0.5) | (torch.arange(s) == 0)
    out, _ = theirs(others[0], others[1], others[1], attn_mask=~mask.flatten(0, 1))
    check_equal(theirs, out, ours, ours(*mine, attn_mask=mask), others, mine, True)


@given(case=cases(), is_causal=st.booleans())
@quick
def test_the_encoder_layer_is_pytorchs(case, is_causal):
    theirs, ours = both(nn.TransformerEncoderLayer, case, D, HEADS, FF, **case["options"])
    assert isinstance(ours, TransformerBlock)
    s = case["s"]
    mine, others = inputs_for_both(case, s)
    mask = causal_mask(s) if is_causal else pairs(s, s) if case["pairs"] else None
    out = theirs(*others, src_mask=hidden(mask), src_key_padding_mask=hidden(case["padding"]))
    if is_causal:
        our_out = ours(*mine, attn_mask=case["padding"], is_causal=True)
    else:
        our_out = ours(*mine, attn_mask=joined(mask, case["padding"]))
    check_equal(theirs, out, ours, our_out, others, mine, case["batch_first"])


@given(case=cases())
@quick
def test_the_decoder_layer_is_pytorchs(case):
    theirs, ours = both(nn.TransformerDecoderLayer, case, D, HEADS, FF, **case["options"])
    t, s = case["t"], case["s"]
    mine, others = inputs_for_both(case, t, s)
    memory_mask = pairs(t, s) if case["pairs"] else None
    out = theirs(
        *others,
        tgt_mask=~causal_mask(t),
        memory_mask=hidden(memory_mask),
        tgt_key_padding_mask=hidden(case["target_padding"]),
        memory_key_padding_mask=hidden(case["padding"]),
    )
    our_out = ours(
        *mine,
        attn_mask=case["target_padding"],
        is_causal=True,
        memory_mask=joined(memory_mask, case["padding"]),
    )
    check_equal(theirs, out, ours, our_out, others, mine, case["batch_first"])


@given(case=cases(), n_layers=st.integers(1, 3), final=st.booleans())
@quick
def test_the_encoder_is_pytorchs(case, n_layers, final):
    layer, _ = both(nn.TransformerEncoderLayer, case, D, HEADS, FF, **case["options"])
    norm = nn.LayerNorm(D, eps=0.1, dtype=case["dtype"]) if final else None
    theirs = rounded_anew(nn.TransformerEncoder(layer, n_layers, norm, enable_nested_tensor=False))
    ours = from_torch(theirs)
    assert type(ours) is Encoder and len(ours.layers) == n_layers
    mine, others = inputs_for_both(case, case["s"])
    mask = pairs(case["s"], case["s"]) if case["pairs"] else None
    out = theirs(*others, mask=hidden(mask), src_key_padding_mask=hidden(case["padding"]))
    our_out = ours(*mine, attn_mask=joined(mask, case["padding"]))
    check_equal(theirs, out, ours, our_out, others, mine, case["batch_first"])


@given(case=cases(), n_layers=st.integers(1, 3), final=st.booleans())
@quick
def test_the_decoder_is_pytorchs(case, n_layers, final):
    layer, _ = both(nn.TransformerDecoderLayer, case, D, HEADS, FF, **case["options"])
    norm = nn.LayerNorm(D, eps=0.1, dtype=case["dtype"]) if final else None
    theirs = rounded_anew(nn.TransformerDecoder(layer, n_layers, norm))
    ours = from_torch(theirs)
    assert type(ours) is Decoder
    mine, others = inputs_for_both(case, case["t"], case["s"])
    out = theirs(
        *others,
        tgt_mask=~causal_mask(case["t"]),
        tgt_key_padding_mask=hidden(case["target_padding"]),
        memory_key_padding_mask=hidden(case["padding"]),
    )
    our_out = ours(*mine, attn_mask=case["target_padding"], memory_mask=case["padding"])
    check_equal(theirs, out, ours, our_out, others, mine, case["batch_first"])


@given(case=cases(), n_layers=st.integers(1, 2))
@settings(quick, max_examples=9)
def test_the_whole_transformer_is_pytorchs(case, n_layers):
    sizes = D, HEADS, n_layers, n_layers + 1, FF
    theirs, ours = both(nn.Transformer, case, *sizes, **case["options"])
    assert type(ours) is EncoderDecoder
    mine, others = inputs_for_both(case, case["s"], case["t"])
    out = theirs(
        *others,
        tgt_mask=~causal_mask(case["t"]),
        src_key_padding_mask=hidden(case["padding"]),
        tgt_key_padding_mask=hidden(case["target_padding"]),
        memory_key_padding_mask=hidden(case["padding"]),
    )
    our_out = ours(*mine, source_mask=case["padding"], target_mask=case["target_padding"])
    check_equal(theirs, out, ours, our_out, others, mine, case["batch_first"])


@given(case=cases())
@quick
def test_pytorchs_fast_path_gives_the_same_at_all_that_is_no_padding(case):
    options = {**case["options"], "batch_first": True}
    layer, _ = both(nn.TransformerEncoderLayer, case, D, HEADS, FF, **options)
    theirs = rounded_anew(nn.TransformerEncoder(layer, 2)).eval()
    x = torch.randn(case["b"], case["s"], D, dtype=case["dtype"])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        out = theirs(x, src_key_padding_mask=hidden(case["padding"]))
        ours = from_torch(theirs)(x, attn_mask=case["padding"])
    real = slice(None) if case["padding"] is None else case["padding"][:, 0, : out.shape[1]]
    close(ours[:, : out.shape[1]][real], out[real])


# --------------------------------------------------------------------------- there and back
def our_modules():
    sizes = D, HEADS, FF
    for activation, norm_first in itertools.product(["relu", "gelu"], [False, True]):
        options = {
            "activation": activation,
            "norm_first": norm_first,
            "norm_eps": 1e-3,
            "dropout": 0.25,
            "attention_dropout": 0.5,
        }
        yield TransformerBlock(*sizes, **options)
        yield TransformerBlock(*sizes, cross_attention=True, **options)
        yield Encoder(2, *sizes, final_norm=norm_first, **options)
        yield Decoder(2, *sizes, final_norm=True, **options)
        yield EncoderDecoder(*sizes, 2, final_norm=norm_first, **options)
    yield MultiHeadAttention(D, HEADS, 0.5)


OUR_MODULES = list(our_modules())


def options_of(module):
    """Return what the modules within were made with, but for their weights."""
    seen = []
    for name, part in module.named_modules():
        if isinstance(part, TransformerBlock):
            seen.append((name, part.norm_first, part.has_cross_attention, part.dropout.p))
            seen.append((part.feed_forward.activation, part.training))
        elif isinstance(part, MultiHeadAttention):
            seen.append((name, part.d_model, part.n_heads, part.dropout.p))
        elif isinstance(part, nn.LayerNorm):
            seen.append((name, part.eps))
    return seen


@pytest.mark.parametrize(("dtype", "training"), [(torch.float64, False), (torch.bfloat16, True)])
@pytest.mark.parametrize("module", OUR_MODULES, ids=lambda module: type(module).__name__)
def test_weights_and_options_go_there_and_back_unchanged(module, training, dtype):
    ours = rounded_anew(copy.deepcopy(module).to(dtype)).train(training)
    theirs = to_torch(ours)
    back = from_torch(theirs)
    assert type(back) is type(ours)
    assert back.training is theirs.training is training
    assert options_of(back) == options_of(ours)
    before, after = ours.state_dict(), back.state_dict()
    assert [*before] == [*after]
    for name, value in before.items():
        assert after[name].dtype == dtype and torch.equal(after[name], value), name
        assert after[name].data_ptr() != value.data_ptr(), "a conversion must copy"
    attentions = [m for m in theirs.modules() if isinstance(m, nn.MultiheadAttention)]
    assert all((m.dropout, m.batch_first) == (0.5, True) for m in attentions) and attentions


@pytest.mark.parametrize("make", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
@pytest.mark.parametrize("batch_first", [False, True])
def test_pytorchs_weights_go_here_and_back_unchanged(make, batch_first):
    stack = nn.TransformerEncoder if "Encoder" in make.__name__ else nn.TransformerDecoder
    layer = make(D, HEADS, FF, 0.3, batch_first=batch_first)
    whole = nn.Transformer(D, HEADS, 1, 2, FF, batch_first=batch_first)
    for theirs in (layer, stack(layer, 2), stack(layer, 2, nn.LayerNorm(D)), whole):
        before = rounded_anew(theirs).state_dict()
        again = to_torch(from_torch(theirs))
        assert type(again) is type(theirs)
        after = again.state_dict()
        assert [*before] == [*after]
        assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("module", OUR_MODULES, ids=lambda module: type(module).__name__)
def test_to_torch_gives_the_same_output(module):
    ours = rounded_anew(copy.deepcopy(module)).eval()
    theirs = to_torch(ours)
    x, y = torch.randn(2, 4, D), torch.randn(2, 5, D)
    causal = ~causal_mask(5)
    if isinstance(ours, MultiHeadAttention):
        close(ours(y, x), theirs(y, x, x)[0])
    elif isinstance(ours, EncoderDecoder):
        close(ours(x, y), theirs(x, y, tgt_mask=causal))
    elif isinstance(ours, Decoder):
        close(ours(y, x), theirs(y, x, tgt_mask=causal))
    elif isinstance(ours, TransformerBlock) and ours.has_cross_attention:
        close(ours(y, x), theirs(y, x))
    else:
        close(ours(y), theirs(y))


def test_rates_come_over_and_act_in_training():
    theirs = nn.TransformerDecoderLayer(D, HEADS, FF, 0.3)
    ours = from_torch(theirs)
    assert ours.dropout.p == ours.attention.dropout.p == ours.cross_attention.dropout.p == 0.3
    x = torch.randn(2, 4, D)
    assert not torch.equal(ours(x, x), ours(x, x))
    ours = from_torch(theirs.eval())
    assert torch.equal(ours(x, x), ours(x, x))


# ------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(2, 2), "no counterpart of Linear here"),
        (lambda: nn.ReLU(), "no counterpart of ReLU here"),
        (lambda: nn.MultiheadAttention(D, HEADS, bias=False), "bias=False"),
        (lambda: nn.MultiheadAttention(D, HEADS, kdim=7), "kdim"),
        (lambda: nn.MultiheadAttention(D, HEADS, vdim=7), "vdim"),
        (lambda: nn.MultiheadAttention(D, HEADS, add_bias_kv=True), "add_bias_kv"),
        (lambda: nn.MultiheadAttention(D, HEADS, add_zero_attn=True), "add_zero_attn"),
        (lambda: nn.TransformerEncoderLayer(D, HEADS, FF, activation=F.silu), "only ReLU and GELU"),
        (lambda: nn.TransformerDecoderLayer(D, HEADS, FF, bias=False), "with biases"),
        (lambda: nn.Transformer(D, HEADS, 1, 1, FF, activation=torch.tanh), "only ReLU and GELU"),
    ],
)
def test_what_we_have_no_counterpart_of_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        from_torch(make())


def test_what_pytorch_has_no_counterpart_of_is_refused():
    block = TransformerBlock(D, HEADS, FF, activation="gelu_tanh")
    with pytest.raises(ValueError, match="no gelu_tanh"):
        to_torch(block)
    with pytest.raises(ValueError, match="no gelu_tanh"):
        to_torch(Encoder(1, D, HEADS, FF, activation="gelu_tanh"))
    with pytest.raises(ValueError, match="PyTorch has no counterpart of FeedForward"):
        to_torch(block.feed_forward)
