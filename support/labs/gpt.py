"""The lab on GPT."""

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import expect
from support.models import gpt


def _large(module):
    for weight in module.parameters():  # those of the norms, too
        nn.init.normal_(weight, std=0.6)
    return module.eval()


def _attend(q, k, v, is_causal=True, scale=None):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)
    return y.transpose(1, 2).flatten(2)


def attention(CausalSelfAttention):
    """Two heads and three positions, with large weights.

    the order (qkv in thirds first, then heads: split the last dimension, then transpose), the
    square root of d_head, -inf above the diagonal before the softmax, the softmax over keys, out
    """
    layer, x = _large(CausalSelfAttention(8, 2)), torch.randn(2, 3, 8)
    q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in layer.qkv(x).chunk(3, -1))
    y = _attend(q, k, v)
    mixed = y.unflatten(-1, (2, 4)).transpose(1, 2).reshape(x.shape)
    wrong = {"divide by the square root of d_head": layer.out(_attend(q, k, v, scale=1.0))}
    wrong["hide later positions"] = layer.out(_attend(q, k, v, False))
    wrong["swap heads and positions back before flattening"] = layer.out(mixed)
    expect(layer(x), layer.out(y), "two heads", wrong)


def model(GPT, initialize):
    """The logits of GPT-2 with the same large weights; the initial weights of eight layers."""
    ours, ids = _large(GPT(11, 8, 2, 2, 6, 0.0)), torch.randint(11, (2, 5))
    theirs = gpt.GPT(gpt.GPTConfig(11, 8, 2, 2, max_length=6)).eval()
    odd = ours.state_dict().keys() ^ theirs.state_dict().keys()
    assert not odd, f"GPT-2 differs in {min(odd)}: the token embeddings are the output layer"
    theirs.load_state_dict(ours.state_dict())
    right = theirs(ids)
    for layer in theirs.layers:
        layer.feed_forward.activation = "gelu"
    wrong = {"use GELU's approximation, approximate='tanh'": theirs(ids)}
    expect(ours(ids), right, "logits of GPT-2", wrong)
    model = initialize(GPT(400, 192, 8, 4, 60, 0.0))
    for name, right, mistake, wrong in (
        ("layers.3.attention.out.weight", 0.005, "two additions a layer: 2 * n_layers", 0.0071),
        ("tokens.weight", 0.04, "scale the token embeddings", 0.02),
        ("final_norm.weight", 1.0, "the gains of the norms stay 1", 0.0),
        ("layers.3.attention.qkv.bias", 0.0, "", None),
    ):
        size = model.get_parameter(name).square().mean().sqrt().item()
        expect(size, right, f"root mean square of {name}", {mistake: wrong}, 0.1 * right)


def sampling(next_distribution):
    """Four tokens, out of order, with each rule and with two at a time."""
    p = torch.tensor([0.15, 0.5, 0.05, 0.3])
    for rule, mistake, kept in (
        ({"temperature": 0.5}, "divide the logits by the temperature", p.sqrt()),
        ({"top_p": 0.7}, "keep the token with which the sum reaches top_p", p * (p > 0.3)),
        ({"top_k": 3, "top_p": 0.82}, "sum to 1 after top_k, before top_p", p * (p > 0.1)),
    ):
        right = gpt.next_token_probabilities(p.log()[None], **rule)[0]
        expect(next_distribution(p.log(), **rule), right, f"{rule}", {mistake: kept / kept.sum()})


def cache(GPT, step):
    """The logits of eight tokens, one by one."""
    model, ids, caches = _large(GPT(11, 8, 2, 2, 20, 0.0)), torch.randint(11, (2, 8)), [{}, {}]
    logits, right = [step(model, ids[:, t : t + 1], caches) for t in range(8)], model(ids)
    lengths = [cache["k"].shape[2] if cache else 0 for cache in caches]
    wrong = {"append the new key and value": [1, 1], "each layer has a cache of its own": [16, 0]}
    expect(lengths, [8, 8], "the positions in the caches", wrong)
    model.positions.weight.data[:] = model.positions.weight[0].clone()
    wrong = {"the position is the number of positions in the cache, not 0": model(ids)}
    expect(torch.stack(logits, 1), right, "logits of eight tokens", wrong)


def norm_and_gate(RMSNorm, SwiGLU):
    """Two vectors, an own weight, and a gate with large weights."""
    layer, x = RMSNorm(2), torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    layer.weight.data *= 2
    right = 2 * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    wrong = {"divide by the root of the mean square, not of the sum": right / 2**0.5}
    wrong["do not subtract the mean"] = 2 * F.layer_norm(x, (2,), eps=1e-6)
    expect(layer(x), right, "(3, 4) and (0, 0), with weights 2", wrong)
    layer, x = _large(SwiGLU(6)), torch.randn(2, 3, 6)
    gate, up = layer.gate(x), layer.up(x)
    wrong = {"apply SiLU to gate, not to up": layer.down(gate * F.silu(up))}
    expect(gate.shape[2], 16, "d_ff with d_model = 6")
    expect(layer(x), layer.down(F.silu(gate) * up), "SwiGLU with large weights", wrong)


def rotary_groups(rotate, GroupedQueryAttention):
    """Three positions with base 100; four query heads, two of keys and values."""
    x, angles = torch.randn(2, 4, 3, 4), torch.arange(3)[:, None] * torch.tensor([1, 0.1])
    a, b, c, s = *x.chunk(2, -1), angles.cos(), angles.sin()
    right = torch.cat((a * c - b * s, a * s + b * c), -1)
    wrong = {"rotate the other way": torch.cat((a * c + b * s, b * c - a * s), -1)}
    expect(rotate(x, 100.0), right, "three positions, base 100", wrong)
    layer, x = _large(GroupedQueryAttention(16, 4, 2)), torch.randn(2, 3, 16)
    parts = layer.query(x), layer.key(x), layer.value(x)
    q, k, v = (y.unflatten(-1, (-1, 4)).transpose(1, 2) for y in parts)
    q, k, turns = rotate(q), rotate(k).repeat_interleave(2, 1), [0, 2, 1, 3]
    v, turned = (y.repeat_interleave(2, 1) for y in (v, rotate(v)))
    wrong = {"query heads 1 and 2 share a head": layer.out(_attend(q, k[:, turns], v[:, turns]))}
    wrong["do not rotate the values"] = layer.out(_attend(q, k, turned))
    expect(layer(x), layer.out(_attend(q, k, v)), "four query heads", wrong)
