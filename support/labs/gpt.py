"""The lab on GPT."""

import copy
import warnings
from math import log, sqrt

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import expect


def _large(module, std=0.6):
    """Return a module in evaluation mode whose parameters, norms included, are large."""
    for weight in module.parameters():
        nn.init.normal_(weight, std=std)
    return module.eval()


def _heads(y, d):
    return torch.stack(y.split(d, -1), 1)  # (B, H, T, d)


def _attend(q, k, v, allowed=None, scale=None):
    """Return the heads side by side; what is not allowed is hidden."""
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
    return torch.cat((scores.softmax(-1) @ v).unbind(1), -1)


def attention(CausalSelfAttention):
    """Two heads and three positions, with large weights."""
    layer, x = _large(CausalSelfAttention(8, 2)), torch.randn(2, 3, 8)
    q, k, v = (_heads(y, 4) for y in layer.qkv(x).chunk(3, -1))
    expect(torch.stack(list(layer.heads(x))), torch.stack((q, k, v)), "queries, keys and values", {
        "the order is queries, keys, values": torch.stack((k, q, v)),
        "cut each vector into heads first, then swap positions and heads": torch.stack(
            [y.reshape(2, 2, 3, 4) for y in layer.qkv(x).chunk(3, -1)]
        ),
        "cut qkv into three first, then each part into heads": torch.stack(
            _heads(layer.qkv(x), 12).chunk(3, -1)
        ),
    })  # fmt: skip
    allowed = torch.ones(3, 3, dtype=torch.bool).tril()
    weights = (q @ k.mT / 2).softmax(-1) * allowed
    wrong = {
        "divide by the square root of d_head": _attend(q, k, v, allowed, 1.0),
        "divide by the square root of d_head, not of d_model": _attend(q, k, v, allowed, 8**-0.5),
        "hide later positions": _attend(q, k, v),
        "hide the next position too": _attend(q, k, v, torch.ones(3, 3).tril(1) > 0),
        "mask the scores before the softmax": torch.cat((weights @ v).unbind(1), -1),
        "swap heads and positions back before flattening": (
            (q @ k.mT / 2).masked_fill(~allowed, -torch.inf).softmax(-1) @ v
        ).reshape(2, 3, 8),
    }
    wrong = {name: layer.out(y) for name, y in wrong.items()}
    wrong["mix the heads with the layer out"] = _attend(q, k, v, allowed)
    expect(layer(x), layer.out(_attend(q, k, v, allowed)), "large weights", wrong)


NAMES = """transformer.= wte=tokens wpe=positions h.=layers. ln_f=final_norm
ln_1=attention_norm attn.c_attn=attention.qkv attn.c_proj=attention.out
ln_2=feed_forward_norm mlp.c_fc=feed_forward.up mlp.c_proj=feed_forward.down"""


def model(GPT):
    """The logits of the library's GPT-2 with the same large weights; parameters; dropout."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 11, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 6}
    config = GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    theirs = _large(GPT2LMHeadModel(config).double(), 0.8)
    theirs.transformer.ln_f.weight.data *= 50  # so that both forms of GELU differ by more than 0.01
    ours, state = GPT(11, 8, 2, 2, 6, 0.0).eval(), {}
    for name, weight in theirs.state_dict().items():
        for pair in NAMES.split():
            name = name.replace(*pair.split("="))
        linear = ".attention." in name or ".feed_forward." in name
        state[name] = weight.mT if linear and weight.dim() == 2 else weight
    known, ids = ours.state_dict(), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    missing = known.keys() - state.keys()
    assert not missing, f"GPT-2 has no {min(missing)}: the token embeddings are the output layer"
    ours.load_state_dict({name: state[name] for name in known})

    def changed(change):
        other = copy.deepcopy(theirs)
        change(other.transformer)
        return other(ids).logits

    def without_positions(m):
        nn.init.zeros_(m.wpe.weight)

    def exact(m):
        for block in m.h:
            block.mlp.act = nn.GELU()

    def relu(m):
        for block in m.h:
            block.mlp.act = nn.ReLU()

    def no_norm(m):
        m.ln_f = nn.Identity()

    x = ours.tokens(ids) + ours.positions.weight[:5]
    for b in ours.layers:
        a, f = b.attention, b.feed_forward
        x = b.feed_forward_norm((y := b.attention_norm(x + a(x))) + f(y))
    wrong = {
        "use GELU's approximation, approximate='tanh'": changed(exact),
        "the activation is GELU": changed(relu),
        "add the position embeddings": changed(without_positions),
        "end with the final norm": changed(no_norm),
        "normalize before each layer, not after": ours.final_norm(x) @ ours.tokens.weight.T,
    }
    expect(ours(ids), theirs(ids).logits, "logits of GPT-2", wrong)
    before = ours(ids)
    ids[:, 4] = 0
    late = (ours(ids) - before)[:, :4].abs().max().item()
    assert late < 1e-12, f"a later token changes earlier logits by {late:.2g}: hide it"
    n = sum(weight.numel() for weight in GPT(970, 128, 2, 4, 24, 0.0).parameters())
    expect(n, 524_032, "parameters with V = 970, d_model 128, 2 layers, 24 positions")
    dropped = _large(GPT(11, 8, 2, 2, 6, 1.0)).train()
    right = (dropped.final_norm.bias @ dropped.tokens.weight.T).expand(2, 5, 11)
    wrong = {"apply dropout to embeddings and to each layer's output": dropped.eval()(ids)}
    expect(dropped.train()(ids), right, "logits with dropout of probability 1", wrong)


def initial_weights(GPT, initialize):
    """A GPT of eight layers and 192 dimensions."""
    model = GPT(400, 192, 8, 4, 60, 0.0)
    got = initialize(model)
    assert got is model, "return the model"
    block = model.layers[3]
    for weight, right, name, wrong in (
        (block.attention.qkv, 0.02, "qkv", {"PyTorch's initial weights are kept": 0.0417}),
        (block.attention.out, 0.005, "out", {
            "divide by the square root of 2 * n_layers, two additions a layer": 0.02 / sqrt(8),
            "divide by the square root of 2 * n_layers, not by 2 * n_layers": 0.02 / 16,
            "divide the standard deviation of out and down": 0.02,
        }),
        (block.feed_forward.up, 0.02, "up", {"up does not write to the residual stream": 0.005}),
        (block.feed_forward.down, 0.005, "down", {
            "divide the standard deviation of out and down": 0.02
        }),
        (model.positions, 0.02, "positions", {"only token embeddings are scaled": 0.04}),
        (model.tokens, 0.04, "tokens", {
            "scale the token embeddings by the root of 768 / d_model": 0.02,
            "take the root of 768 / d_model": 0.08,
            "draw the token embeddings too": 1.0,
        }),
    ):  # fmt: skip
        std = weight.weight.std().item()
        expect(std, right, f"standard deviation of {name}", wrong, 0.03 * std)
    biases = [w for name, w in model.named_parameters() if name.endswith("bias")]
    expect(max(w.abs().max().item() for w in biases), 0.0, "the largest bias: set biases to 0")
    gains = model.final_norm.weight, torch.ones(192)
    expect(*gains, "the gains of a norm", {"the gains of the norms stay 1": 0 * gains[1]})
    ids = torch.randint(400, (8, 30))
    first = F.cross_entropy(model.eval()(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()
    assert abs(first - log(400)) < 0.8, f"first loss {first:.2f}, far from log V = {log(400):.2f}"


def sampling(next_distribution):
    """Four tokens, out of order, with each rule and with all three."""
    p, order = torch.tensor([0.15, 0.5, 0.05, 0.3]), torch.tensor([1, 3, 0, 2])

    def put(*values):
        values = torch.tensor(values + (0.0,) * (4 - len(values)))
        return torch.zeros(4).scatter(0, order, values / values.sum())

    raw = (0.5, 0.3, 0.15)
    square = [x * x for x in (0.5, 0.3, 0.15, 0.05)]
    for rule, right, wrong in (
        ({}, p, {}),
        ({"temperature": 0.5}, put(*square), {
            "divide the logits by the temperature": p.sqrt() / p.sqrt().sum(),
            "divide the logits before the softmax, not the probabilities": p,
        }),
        ({"top_k": 2}, put(*raw[:2]), {
            "make the probabilities sum to 1 again": put(*raw[:2]) * 0.8,
            "keep the likeliest, not the first ids": p * torch.tensor([1, 1, 0, 0]) / 0.65,
            "keep the likeliest, not the least likely": p * torch.tensor([1, 0, 1, 0]) / 0.2,
        }),
        ({"top_p": 0.7}, put(*raw[:2]), {
            "keep the token with which the sum reaches top_p": put(1),
            "make the probabilities sum to 1 again": put(*raw[:2]) * 0.8,
            "sort the tokens by probability before you sum": p * torch.tensor([1, 1, 1, 0]) / 0.7,
        }),
        ({"top_p": 0.3}, put(1), {
            "the most likely token always remains": put(1) * torch.nan,
            "keep the fewest tokens that reach top_p": put(*raw[:2]),
        }),
        ({"top_k": 3, "top_p": 0.82}, put(*raw[:2]), {
            "make the probabilities sum to 1 after top_k, before top_p": put(*raw),
        }),
        ({"temperature": 0.5, "top_p": 0.6}, put(1), {
            "apply the temperature before top_p": put(*square[:2]),
        }),
    ):  # fmt: skip
        expect(next_distribution(3 + p.log(), **rule), right, f"{rule}", wrong)


def cache(GPT, attend_step, step):
    """Eight tokens one by one: the logits of the whole text, and 8 positions computed."""
    model, ids, seen = _large(GPT(11, 8, 2, 2, 20, 0.0)), torch.randint(11, (2, 8)), []
    layer, x, kept = model.layers[0].attention, torch.randn(2, 3, 8), {}
    outputs = torch.cat([attend_step(layer, x[:, t : t + 1], kept) for t in range(3)], 1)
    assert kept.keys() == {"k", "v"}, f'the cache holds "k" and "v", not {sorted(kept)}'
    last = {t: layer(x[:, t : t + 1])[:, 0] for t in range(3)}
    wrong = {"append the new key and value to those in the cache": torch.stack([*last.values()], 1)}
    q, k, v = layer.heads(x)
    first = torch.cat([layer(x)[:, :1], *[_out(layer, v[:, :, :1])] * 2], 1)
    wrong["the new position may attend to all: no mask is needed"] = first
    expect(outputs, layer(x), "attend_step at three positions", wrong)
    expect(kept["k"], k, "the keys in the cache")
    layer.qkv.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    caches, full = [{}, {}], model(ids)
    seen.clear()
    got = torch.stack([step(model, ids[:, t : t + 1], caches) for t in range(8)], 1)
    lengths = [c["k"].shape[2] if c else 0 for c in caches]
    assert lengths == [8, 8], f"each layer has a cache of its own, but their lengths are {lengths}"
    other, count = copy.deepcopy(model), sum(seen)
    nn.init.zeros_(other.positions.weight)
    none, third = other(ids), copy.deepcopy(model)
    other.positions.weight.data += model.positions.weight[0]
    third.positions.weight.data = model.positions.weight.roll(-1, 0)
    wrong = {
        "the position is the number of positions in the cache, not 0": other(ids),
        "add the position embedding": none,
        "the first position is 0": third(ids),
    }
    expect(got, full, "logits of eight tokens", wrong)
    expect(count, 8, "positions computed in a layer", {"pass the new token alone": 36})


def _out(layer, heads):
    return layer.out(torch.cat(heads.unbind(1), -1))


def norm_and_gate(RMSNorm, SwiGLU):
    """Large and small vectors, an own weight, and a gate with large weights."""
    layer, x = RMSNorm(2), torch.tensor([[3.0, 4.0], [1e-3, 2e-3]])
    expect(dict(layer.named_parameters())["weight"], torch.ones(2), "the initial weight")
    layer.weight.data, w = torch.tensor([2.0, -1.0]), torch.tensor([2.0, -1.0])
    mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    right = w * x / (square + 1e-6).sqrt()
    wrong = {
        "do not subtract the mean": w * (x - mean) / (square - mean**2 + 1e-6).sqrt(),
        "divide by the root of the mean square, not of the sum": w * x / (2 * square + 1e-6).sqrt(),
        "add eps under the root": w * x / (square.sqrt() + 1e-6),
        "divide by the root of the mean square": w * x / (square + 1e-6),
        "multiply by weight": right / w,
    }  # fmt: skip
    expect(layer(x), right, "(3, 4) and (0.001, 0.002)", wrong)
    expect(SwiGLU(6).up.weight.shape, (16, 6), "the shape of up with d_model = 6", {
        "d_ff is 8 / 3 of d_model, not four times as many": (24, 6)
    })  # fmt: skip
    layer, x = _large(SwiGLU(6, 5)), torch.randn(2, 3, 6)
    names = sorted(name for name, _ in layer.named_parameters())
    expect(names, ["down.weight", "gate.weight", "up.weight"], "the parameters of SwiGLU")
    gate, up = layer.gate(x), layer.up(x)
    wrong = {
        "apply SiLU to gate, not to up": gate * F.silu(up),
        "SiLU is x times its sigmoid, not the sigmoid alone": gate.sigmoid() * up,
        "the activation is SiLU": F.gelu(gate) * up,
        "multiply by up": F.silu(gate),
        "multiply gate and up, do not add them": F.silu(gate) + up,
        "apply SiLU to gate": gate * up,
    }
    wrong = {name: layer.down(y) for name, y in wrong.items()}
    expect(layer(x), layer.down(F.silu(gate) * up), "SwiGLU with large weights", wrong)


def _rotated(x, base=10_000.0, first=0, turn=1, exponent=1.0, neighbors=False):
    d = x.shape[-1]
    angles = torch.arange(x.shape[-2])[:, None] + first
    angles = turn * angles * base ** (-torch.arange(0, d, 2) * exponent / d)
    a, b = (x[..., ::2], x[..., 1::2]) if neighbors else x.chunk(2, -1)
    parts = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return torch.stack(parts, -1).flatten(-2) if neighbors else torch.cat(parts, -1)


def rotary(rotate):
    """Four positions of six components, another base, and scores of equal distances."""
    x = torch.randn(2, 2, 4, 6)
    wrong = {
        "a pair is i and i + d_head / 2, not two neighbors": _rotated(x, neighbors=True),
        "the first position is 0": _rotated(x, first=1),
        "rotate the other way: a cos - b sin and a sin + b cos": _rotated(x, turn=-1),
        "the exponent is -2i / d_head, and arange(0, d, 2) is 2i": _rotated(x, exponent=2.0),
        "the exponent has 2i, not i": _rotated(x, exponent=0.5),
        "each pair has its own speed": _rotated(x, exponent=0.0),
        "T is the last dimension but one": _rotated(x.mT.reshape(x.shape)),
        "positions count along T, not along the heads": _rotated(x.transpose(1, 2)).transpose(1, 2),
    }
    expect(rotate(x), _rotated(x), "four positions", wrong)
    expect(rotate(x, 100.0), _rotated(x, 100.0), "base 100", {"use base": _rotated(x)})
    q, k = (rotate(torch.randn(6).expand(1, 1, 4, 6)) for _ in "qk")
    scores = (q @ k.mT)[0, 0]
    expect(scores[3, 1], scores[2, 0], "scores of equal distances")


def grouped_queries(GroupedQueryAttention):
    """Four query heads, two of keys and values, with large weights, against full attention."""
    layer, x = _large(GroupedQueryAttention(16, 4, 2)), torch.randn(2, 3, 16)
    for name, size in (("query", 16), ("key", 8), ("value", 8), ("out", 16)):
        wrong = {"d_head is d_model / n_heads, the number of query heads": (16, 16)}
        expect(getattr(layer, name).weight.shape, (size, 16), f"the weight of {name}", wrong)
        assert getattr(layer, name).bias is None, f"the layer {name} has no bias"
    q, k, v = (_heads(y, 4) for y in (layer.query(x), layer.key(x), layer.value(x)))
    allowed, r = torch.ones(3, 3, dtype=torch.bool).tril(), _rotated

    def twice(y):
        return y[:, [0, 0, 1, 1]]

    def turns(y):
        return y[:, [0, 1, 0, 1]]

    wrong = {
        "query heads 1 and 2 share a head: repeat_interleave": (
            r(q),
            turns(r(k)),
            turns(v),
            allowed,
        ),
        "rotate the queries": (q, twice(r(k)), twice(v), allowed),
        "rotate the keys": (r(q), twice(k), twice(v), allowed),
        "rotate queries and keys": (q, twice(k), twice(v), allowed),
        "do not rotate the values": (r(q), twice(r(k)), twice(r(v)), allowed),
        "hide later positions": (r(q), twice(r(k)), twice(v)),
        "divide by the square root of d_head": (r(q), twice(r(k)), twice(v), allowed, 1.0),
    }
    wrong = {name: layer.out(_attend(*parts)) for name, parts in wrong.items()}
    right = _attend(r(q), twice(r(k)), twice(v), allowed)
    wrong["mix the heads with the layer out"] = right
    expect(layer(x), layer.out(right), "four query heads", wrong)
