"""The lab on the Transformer."""

from functools import reduce

import torch
from torch.nn.functional import cross_entropy, layer_norm
from torch.nn.functional import scaled_dot_product_attention as attend

from support.labs import expect
from support.models.transformer import sinusoidal_positions

CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()
REAL = (torch.arange(4) < torch.tensor([[3], [2]]))[:, None, None]  # (B, 1, 1, S)


def _large(module):
    for weight in module.parameters():
        weight.data.normal_()
    return module.eval()


def causal(SelfAttention_v2, causal_mask, CausalAttention):
    """Three words of two sequences, with large weights, and a mask of length 4.

    q k^T, a row for each query; the square root of d, the size of queries, not of d_in or of T, and
    not d itself; the mask, true on the diagonal and below; masked_fill where it is false, ~mask, of
    the scores, not of weights after a softmax; the weights kept as self.weights
    """
    layer, x = _large(SelfAttention_v2(6, 4)), torch.randn(2, 3, 6)
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    wrong = {"divide the scores by the square root of d": attend(q, k, v, scale=1.0)}
    wrong["apply the softmax over the keys, the last dimension"] = (q @ k.mT / 2).softmax(1) @ v
    expect(layer(x), attend(q, k, v), "SelfAttention_v2, d_in = 6, d = 4", wrong)
    expect(layer.weights, (q @ k.mT / 2).softmax(-1), "self.weights")
    expect(len([*layer.parameters()]), 3, "how many parameters: three matrices, no biases")
    wrong = {"hide the next position too": torch.ones(4, 4).tril(1), "rows attend": CAUSAL.mT}
    expect(mask := causal_mask(4), CAUSAL, "causal_mask(4), true where one may attend", wrong)
    assert mask.dtype is torch.bool, "a mask is boolean"
    layer = _large(CausalAttention(6, 4))
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    wrong = {"a hidden score is minus infinity, not 0": (q @ k.mT / 2).tril().softmax(-1) @ v}
    wrong["mask the scores before the softmax"] = (q @ k.mT / 2).softmax(-1).tril() @ v
    expect(layer(x), attend(q, k, v, CAUSAL[:3, :3]), "CausalAttention", wrong)
    expect(layer.weights @ v, layer(x), "self.weights of CausalAttention, times v")


def multi_head(MultiHeadAttention):
    """Two heads, a memory, masks of two and of four dimensions, and dropout.

    split: the last dimension into (n_heads, d), then transpose(1, 2); memory = x where it is None;
    queries of x, keys and values of memory; the mask as it is given, or none; the softmax over the
    keys, dim=-1; dropout of the weights alone; transpose(1, 2) back and flattened to x's length;
    out at the end
    """
    layer, (x, memory) = _large(MultiHeadAttention(8, 2, 1.0)), torch.randn(2, 2, 4, 8)
    wrong = {"cut each vector into heads first, then swap positions and heads": x.view(2, 2, 4, 4)}
    expect(layer.split(x), torch.stack(x.chunk(2, -1), 1), "split", wrong)
    q, k, v = map(layer.split, (layer.query(x), layer.key(memory), layer.value(memory)))
    wrong = {"": attend(q, k, v, REAL), "hide what is false in the mask": attend(q, k, v, ~REAL)}
    wrong["divide by the square root of d_model / n_heads"] = attend(q, k, v, REAL, scale=8**-0.5)
    wrong["take values from the memory"] = attend(q, k, layer.split(layer.value(x)), REAL)
    wrong = {name: layer.out(y.transpose(1, 2).flatten(2)) for name, y in wrong.items()}
    expect(layer(x, memory, REAL), right := wrong.pop(""), "a memory and a mask", wrong)
    expect(layer(x[:, :3], memory, REAL), right[:, :3], "three queries, four vectors of memory")
    expect(layer(x), layer(x, x, CAUSAL | True), "no memory and no mask: all of x")
    expect(len([*layer.parameters()]), 8, "how many parameters: four matrices, four biases")
    expect(layer.train()(x), layer.out.bias.expand(2, 4, 8), "dropout of the weights, p = 1")
    expect(layer.weights.sum(-1), torch.ones(2, 2, 4), "sums of a head's weights, before dropout")


def block(norm, FeedForward, Block):
    """Vectors of large and small entries, large weights, a mask, and dropout.

    x stays: no x -= or x +=. norm: the mean and the mean squared distance from it of each vector,
    dimension -1, keepdim=True; the root of (variance + epsilon); beta added last.
    FeedForward(d_model, d_ff), with biases. Block: the norm of the same name before each layer;
    mask=mask; the second reads the sum of the first and x, and adds to it
    """
    x = torch.tensor([[[1.0, 2, 6], [1e-3, 2e-3, 6e-3]]], requires_grad=True)
    gamma, beta = torch.randn(2, 3)
    z, squares = x - x.mean(-1, keepdim=True), x.var(-1, keepdim=True)
    wrong = {"divide by d_model, not by d_model - 1": gamma * z / (squares + 1e-5).sqrt() + beta}
    expect(norm(x, gamma, beta), layer_norm(x, (3,), gamma, beta), "norm", wrong)
    block, x = _large(Block(8, 2, 5, 1.0)), torch.randn(2, 4, 8, requires_grad=True)
    a, n, f, m = block.attention, block.attention_norm, block.feed_forward, block.feed_forward_norm
    expect(f(x), f.down(f.up(x).relu()), "FeedForward: up, ReLU, down")
    y, z, post = x + a(n(x), mask=CAUSAL), x + a(n(x)), n(x + a(x, mask=CAUSAL))
    wrong = {"normalize before each layer, not after the addition": m(post + f(post))}
    wrong |= {"add the input of each layer": f(m(y)), "pass the mask": z + f(m(z))}
    wrong["add to x, not to norm(x)"] = (s := m(y - x + n(x))) + f(s)
    expect(block(x, CAUSAL), y + f(m(y)), "Block", wrong)
    expect(block.train()(x), x, "dropout of both outputs, p = 1")
    where = "p of attention's dropout, one norm for both, FeedForward's matrices and biases"
    expect([a.dropout.p, n is m, len([*f.parameters()])], [1.0, False, 4], where)


def positions(sinusoids, Embed):
    """Four positions in eight dimensions, and two sequences of three tokens.

    sinusoids: positions from 0; one frequency for a sine and the cosine beside it; arange(0,
    d_model, 2), which is 2i already; 10_000 to a negative power. Embed: nn.Embedding(vocab_size,
    d_model), as it is; register_buffer, its first ids.shape[1] rows; dropout of the sum
    """
    right, more = sinusoidal_positions(4, 8), sinusoidal_positions(4, 16)
    expect(sinusoids(4, 8), right, "sinusoids", {"the exponent is -2i / d_model": more[:, :8]})
    embed, ids = Embed(4, 8, 1.0).eval(), torch.tensor([[3, 1, 1], [0, 2, 3]])
    expect([*dict(embed.named_buffers())], ["positions"], "the only buffer, no parameter")
    wrong = {"the row depends on the position, not on the token": embed.tokens(ids) + right[ids]}
    expect(embed(ids), embed.tokens(ids) + right[:3], "Embed", wrong)
    expect(embed.train()(ids), torch.zeros(2, 3, 8), "dropout of the sum, p = 1")


def _through(model, ids, *given):
    return model.final_norm(reduce(lambda x, f: f(x, *given), model.layers, model.embed(ids)))


def decoder(Encoder, DecoderBlock, Decoder):
    """Two layers each, a memory with padding, and causality.

    Encoder: each layer reads the result of the one before; mask, no causal one; final_norm once.
    DecoderBlock: cross-attention between the two others, of cross_norm(x) to memory, with
    memory_mask, added to x. Decoder: layer(x, memory, mask, memory_mask), the same memory in each;
    causal_mask of ids' length; logits of all positions
    """
    encoder, decoder = (_large(kind(7, 8, 2, 12, 2)) for kind in (Encoder, Decoder))
    ids, (x, memory) = torch.randint(7, (2, 3)), torch.randn(2, 2, 4, 8, requires_grad=True)
    b, few, three = _large(DecoderBlock(8, 2, 12, 1.0)), REAL[..., :3], CAUSAL[:3, :3]
    y, n = x + b.attention(b.attention_norm(x), mask=CAUSAL), b.cross_norm
    reads = {"": (memory, REAL), "take keys and values of cross-attention from the memory": ()}
    reads |= {"norm x, not the memory": (n(memory), REAL), "pass memory_mask": (memory,)}
    wrong = {name: y + b.cross_attention(n(y), *read) for name, read in reads.items()}
    wrong = {name: z + b.feed_forward(b.feed_forward_norm(z)) for name, z in wrong.items()}
    expect(b(x, memory, CAUSAL, REAL), wrong.pop(""), "DecoderBlock", wrong)
    expect(b.train()(x, memory), x, "dropout of all three outputs, p = 1")
    expect(encoder(ids, few), _through(encoder, ids, few), "Encoder: blocks with mask, final norm")
    masks = {"": (three, REAL), "pass causal_mask": (None, REAL), "pass memory_mask": (three,)}
    wrong = {s: decoder.logits(_through(decoder, ids, memory, *m)) for s, m in masks.items()}
    expect(decoder(ids, memory, REAL), wrong.pop(""), "Decoder: final norm, logits", wrong)
    decoder.causal = False
    expect(decoder(ids, memory, REAL), wrong["pass causal_mask"], "causal = False")


def whole(Transformer, loss_of):
    """A source with and without padding, greedy decoding, and known losses.

    mask (B, 1, 1, S); all of target decoded; generate: START (B, 1); length times argmax at the
    last token written, appended, without a stop; loss_of: the model reads target[:, :-1];
    F.cross_entropy of its logits, which takes log-softmax itself, flattened to (B T, V), and of
    the next tokens, flattened, too; ignore_index=PAD; one mean over all sequences' tokens
    """
    model = _large(Transformer(7, d_model=8, n_heads=2, d_ff=10, n_layers=1))
    source, target = torch.tensor([[[3, 4, 2, 0], [5, 2, 0, 0]], [[1, 5, 4, 2], [1, 6, 2, 0]]])
    masks = {"": (REAL, REAL), "the mask is true where not PAD": (~REAL, ~REAL)}
    masks["hide padding from cross-attention"] = REAL, None
    masks["hide padding from the encoder"] = None, REAL
    wrong = {s: model.decoder(target, model.encoder(source, m), n) for s, (m, n) in masks.items()}
    expect(model(source, target), wrong.pop(""), "padded sources", wrong)
    rows = torch.tensor([[0], [2]])  # the next token depends on the row and on all tokens before
    model.decoder.forward = lambda ids, *_, **__: torch.eye(7)[((ids + 1).cumsum(1) + rows) % 7]
    right = torch.tensor([[2, 5, 4, 2, 5], [4, 2, 5, 4, 2]])
    wrong = {"feed all that is written": torch.tensor([[2, 3, 4, 5, 6], [4, 0, 3, 6, 2]])}
    expect(model.generate(source, 5), right, "five tokens, START left out, END or not", wrong)
    table, after = torch.randn(7, 7), target[:, 1:]
    logits = table[target[:, :-1]].mT
    each = cross_entropy(logits, after, ignore_index=0, reduction="none")
    wrong = {"padding has no loss": cross_entropy(logits, after)}
    wrong["divide by the number of real tokens"] = each.mean()
    wrong["the target is the next token"] = cross_entropy(logits, target[:, :-1])
    got = loss_of(lambda _, ids: table[ids], source, target)
    expect(got, each.sum() / 5, "two targets", wrong)
    assert isinstance(got, torch.Tensor), "return a tensor, which has a gradient, not a number"
