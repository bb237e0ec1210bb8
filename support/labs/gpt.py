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

    qkv in thirds (queries, keys, values), then heads: the last dimension split into (H, d_head),
    head h the h-th stretch, then transposed; the square root of d_head; -inf above the diagonal
    before the softmax; the softmax over keys; then out
    """
    layer, x = _large(CausalSelfAttention(8, 2)), torch.randn(2, 3, 8)
    assert {"qkv.bias", "out.bias"} <= {*layer.state_dict()}, "qkv and out have a bias"
    q, k, v = parts = layer.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    wrong = {"heads returns (B, H, T, d_head), H before T": parts.transpose(2, 3)}
    expect(torch.stack([*layer.heads(x)]), parts, "queries, keys and values, by heads(x)", wrong)
    y = _attend(q, k, v)
    mixed = y.unflatten(-1, (2, 4)).transpose(1, 2).reshape(x.shape)
    wrong = {"divide by the square root of d_head": layer.out(_attend(q, k, v, scale=1.0))}
    wrong["hide later positions"] = layer.out(_attend(q, k, v, False))
    wrong["swap heads and positions back before flattening"] = layer.out(mixed)
    expect(layer(x), layer.out(y), "two heads", wrong)


def model(GPT, initialize):
    """GPT-2's logits with the same large weights and with dropout; initial weights of eight layers.

    tokens + positions from 0, as they are; an nn.ModuleList of blocks, each on the one before's
    output: x + f(norm(x)) twice, two norms, the second with the sum after the first; GELU between
    up and down; final_norm; dropout, as given, on the embeddings' sum and on f alone. initialize:
    by name, in place (nn.init, not weight = ...); out, down 0.02 / sqrt(2 * n_layers); return model
    """
    ours, ids = _large(GPT(11, 8, 3, 2, 6, 0.3)), torch.randint(11, (2, 5))
    theirs = gpt.GPT(gpt.GPTConfig(11, 8, 3, 2, max_length=6, dropout=0.3, attention_dropout=0.0))
    own, names = {name for name, _ in ours.named_parameters()}, theirs.state_dict().keys()
    expect(sorted(names - own), [], "what is missing, or the same tensor as another")
    assert not (odd := {*ours.state_dict()} - names), f"no {min(odd)}: the output layer is tokens"
    theirs.load_state_dict(ours.state_dict())
    with torch.random.fork_rng([]):
        dropped = theirs(ids)
    right = theirs.eval()(ids)
    for layer in theirs.layers:
        layer.feed_forward.activation = "gelu"
    wrong = {"use GELU's approximation, approximate='tanh'": theirs(ids)}
    expect(ours(ids), right, "logits of GPT-2", wrong)
    expect(ours.train()(ids), dropped, "logits in training: where there is dropout")
    plain, gain = (0.02, "", None), (1.0, "the gains of the norms stay 1", 0.0)
    adds = (0.005, "two additions a layer: 2 * n_layers", 0.0071)
    known = {"out": adds, "down": adds, "tokens": (0.04, "scale the token embeddings", 0.02)}
    known["positions"] = (0.02, "do not scale the positions", 0.04)
    model = GPT(400, 192, 8, 4, 60, 0.0)
    model.layers[0].attention = nn.ModuleDict({"out": nn.Linear(192, 192, bias=False)})  # as in 9
    for name, weight in initialize(model).named_parameters():
        right, mistake, wrong = known.get(name.split(".")[-2], plain if weight.dim() > 1 else gain)
        right, size = 0.0 if name.endswith("bias") else right, weight.square().mean().sqrt().item()
        expect(size, right, f"root mean square of {name}", {mistake: wrong}, 0.1 * right)


def sampling(next_distribution):
    """Four tokens, out of order, with each rule and with two at a time.

    first divide the logits by the temperature, before the softmax (of logits, never of p); then
    top_k; then top_p (if, not elif), most likely first, the token where the sum reaches top_p
    included; a token that is cut has probability 0, not logit 0; divide by the sum after each; back
    in the order of the tokens; logits stay as they are (no /= or logits[...] =)
    """
    logits = (p := torch.tensor([0.2, 0.4, 0.1, 0.3])).log()
    for rule, mistake, kept in (
        ({"temperature": 0.5}, "divide the logits by the temperature", p.sqrt()),
        ({"top_k": 2}, "keep k tokens, not k + 1", p * (p > 0.15)),
        ({"temperature": 0.5, "top_p": 0.8}, "keep the token where the sum reaches top_p", p > 0.3),
        ({"top_k": 3, "top_p": 0.42}, "sum to 1 after top_k, before top_p", p * (p > 0.25)),
    ):
        right = gpt.next_token_probabilities(p.log()[None], **rule)[0]
        expect(next_distribution(logits, **rule), right, f"{rule}", {mistake: kept / kept.sum()})


def cache(GPT, step):
    """The logits of eight tokens, one by one.

    attend_step: k and v appended along dim=2, stored in cache itself; then scores, the new token's
    own, too; no mask; the root of d_head, softmax over dim=-1, attention.out. step: positions
    from 0, by the length before this token, caches[0]["k"].shape[2]; the rest as in Block and GPT
    """
    model, ids, caches, n = _large(GPT(9, 8, 2, 2, 16, 0)), torch.randint(9, (2, 8)), [{}, {}], []
    model.layers[1].attention.qkv.register_forward_pre_hook(lambda _, x: n.append(x[0].shape[1]))
    logits, right = [step(model, ids[:, t : t + 1], caches) for t in range(8)], model(ids)
    assert max(n[:-1], default=1) == 1, "qkv reads the new position alone: cache k and v, not x"
    lengths = [cache["k"].shape[2] if cache else 0 for cache in caches]
    wrong = {"append the new key and value": [1, 1], "each layer has a cache of its own": [16, 0]}
    expect(lengths, [8, 8], "the positions in the caches", wrong)
    model.positions.weight.data[:] = model.positions.weight[0].clone()
    wrong = {"the position is the number of positions in the cache, not 0": model(ids)}
    expect(torch.stack(logits, 1), right, "logits of eight tokens", wrong)


def norm_and_gate(RMSNorm, SwiGLU):
    """Two vectors, own weights and eps, and a gate with large weights.

    RMSNorm: the mean of the squares over the last dimension (keepdim=True), nothing subtracted,
    plus eps, the root; x stays as it is (no x /= ...); weight is nn.Parameter(torch.ones(d_model)).
    SwiGLU: d_ff, else 8 * d_model // 3; no biases; SiLU (x times its sigmoid) of gate alone
    """
    layer, x = RMSNorm(2, 0.5), torch.tensor([[[3.0, 4.0], [0.0, 0.0]]], requires_grad=True)
    layer.get_parameter("weight").data *= (w := torch.tensor([2.0, 3.0]))
    right, total = (w * x / torch.tensor([[s + 0.5], [0.5]]).sqrt() for s in (12.5, 25.0))
    wrong = {"divide by the root of the mean square, not of the sum": total}
    wrong["do not subtract the mean"] = w * F.layer_norm(x, (2,), eps=0.5)
    expect(layer(x), right, "(3, 4) and (0, 0), with weights (2, 3) and eps 0.5", wrong)
    layer, x = _large(SwiGLU(7)), torch.randn(2, 3, 7)
    gate, up, down = x @ layer.gate.weight.T, x @ layer.up.weight.T, layer.down.weight.T
    wrong = {"apply SiLU to gate, not to up": (gate * F.silu(up)) @ down}
    widths = [gate.shape[2], SwiGLU(7, 5).down.in_features]
    expect(widths, [18, 5], "d_ff with d_model = 7, where none is given and where 5 is")
    expect(layer(x), (F.silu(gate) * up) @ down, "SwiGLU with large weights", wrong)


def rotary_groups(rotate, GroupedQueryAttention):
    """Three positions with base 100; six query heads, three of keys and values.

    rotate: pairs i and i + d_head/2, i and positions from 0, exponent -2i/d_head, the argument
    base, radians, a cos - b sin, a sin + b cos, both of the old a and b, in a new tensor (x stays
    as it is: no x[...] = ...). Attention: no biases; d_head = d_model // n_heads; key and
    value n_kv_heads * d_head wide; heads split, transposed, then q and k rotated, k and v repeated
    by repeat_interleave(n_heads // n_kv_heads); is_causal, no scaling of yours; heads back; out
    """
    x, angles = torch.randn(2, 5, 3, 4).requires_grad_(), torch.tensor([[0, 0], [1, 0.1], [2, 0.2]])
    a, b, c, s = *x.chunk(2, -1), angles.cos(), angles.sin()
    right = torch.cat((a * c - b * s, a * s + b * c), -1)
    wrong = {"rotate the other way": torch.cat((a * c + b * s, b * c - a * s), -1)}
    expect(rotate(x, 100.0), right, "three positions, base 100", wrong)
    layer, x = _large(GroupedQueryAttention(24, 6, 3)), torch.randn(2, 5, 24)
    out, parts = layer.out.weight.T, (layer.query, layer.key, layer.value)
    q, k, v = ((x @ p.weight.T).unflatten(-1, (-1, 4)).transpose(1, 2) for p in parts)
    q, k, turns = rotate(q), rotate(k).repeat_interleave(2, 1), [0, 2, 4] * 2
    v, turned = (y.repeat_interleave(2, 1) for y in (v, rotate(v)))
    wrong = {"query heads 1 and 2 share a head": _attend(q, k[:, turns], v[:, turns]) @ out}
    wrong["do not rotate the values"] = _attend(q, k, turned) @ out
    expect(layer(x), _attend(q, k, v) @ out, "six query heads", wrong)
