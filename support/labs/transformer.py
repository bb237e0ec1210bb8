"""The lab on the Transformer."""

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
    """Four words of two sequences, with large weights, and a mask of length 4."""
    layer, x = _large(SelfAttention_v2(4, 4)), torch.randn(2, 4, 4)
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    wrong = {"divide the scores by the square root of d": attend(q, k, v, scale=1.0)}
    wrong["apply the softmax over the keys, the last dimension"] = (q @ k.mT / 2).softmax(1) @ v
    expect(layer(x), attend(q, k, v), "SelfAttention_v2", wrong)
    wrong = {"hide the next position too": torch.ones(4, 4).tril(1), "rows attend": CAUSAL.mT}
    expect(causal_mask(4), CAUSAL, "causal_mask(4)", wrong)
    layer = _large(CausalAttention(4, 4))
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    wrong = {"a hidden score is minus infinity, not 0": (q @ k.mT / 2).tril().softmax(-1) @ v}
    wrong["mask the scores before the softmax"] = (q @ k.mT / 2).softmax(-1).tril() @ v
    expect(layer(x), attend(q, k, v, CAUSAL), "CausalAttention", wrong)


def multi_head(MultiHeadAttention):
    """Two heads, a memory, a mask for each sequence, and dropout."""
    layer, (x, memory) = _large(MultiHeadAttention(8, 2, 1.0)), torch.randn(2, 2, 4, 8)
    wrong = {"cut each vector into heads first, then swap positions and heads": x.view(2, 2, 4, 4)}
    expect(layer.split(x), torch.stack(x.chunk(2, -1), 1), "split", wrong)
    q, k, v = map(layer.split, (layer.query(x), layer.key(memory), layer.value(memory)))
    wrong = {
        "": attend(q, k, v, REAL),
        "divide by the square root of d_model / n_heads": attend(q, k, v, REAL, scale=8**-0.5),
        "hide what is false in the mask, not what is true": attend(q, k, v, ~REAL),
        "take values from the memory": attend(q, k, layer.split(layer.value(x)), REAL),
    }
    wrong = {name: layer.out(y.transpose(1, 2).flatten(2)) for name, y in wrong.items()}
    expect(layer(x, memory, REAL), wrong.pop(""), "a memory and a mask", wrong)
    expect(layer.train()(x), layer.out.bias.expand(2, 4, 8), "dropout of the weights, p = 1")


def block(norm, FeedForward, Block):
    """Vectors of large and small entries, large weights, a mask, and dropout."""
    x, gamma, beta = torch.tensor([[1.0, 2, 6], [1e-3, 2e-3, 6e-3]]), *torch.randn(2, 3)
    wrong = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()
    wrong = {"divide by d_model, not by d_model - 1": wrong * gamma + beta}
    expect(norm(x, gamma, beta), layer_norm(x, (3,), gamma, beta), "norm", wrong)
    block, x = _large(Block(8, 2, 5, 1.0)), torch.randn(2, 4, 8)
    a, n, f, m = block.attention, block.attention_norm, block.feed_forward, block.feed_forward_norm
    expect(f(x), f.down(f.up(x).relu()), "FeedForward: up, ReLU, down")
    y, z, post = x + a(n(x), mask=CAUSAL), x + a(n(x)), n(x + a(x, mask=CAUSAL))
    wrong = {"normalize before each layer, not after the addition": m(post + f(post))}
    wrong |= {"add the input of each layer": f(m(y)), "pass the mask": z + f(m(z))}
    expect(block(x, CAUSAL), y + f(m(y)), "Block", wrong)
    expect(block.train()(x), x, "dropout of both outputs, p = 1")


def positions(sinusoids, Embed):
    """Four positions in eight dimensions, and two sequences of three tokens."""
    right, more = sinusoidal_positions(4, 8), sinusoidal_positions(4, 16)
    expect(sinusoids(4, 8), right, "sinusoids", {"the exponent is -2i / d_model": more[:, :8]})
    embed, ids = Embed(4, 8, 1.0).eval(), torch.tensor([[3, 1, 1], [0, 2, 3]])
    expect(len([*embed.parameters()]), 1, "the number of parameters: only the tokens'")
    wrong = {"the row depends on the position, not on the token": embed.tokens(ids) + right[ids]}
    expect(embed(ids), embed.tokens(ids) + right[:3], "Embed", wrong)
    expect(embed.train()(ids), torch.zeros(2, 3, 8), "dropout of the sum, p = 1")


def decoder(Encoder, DecoderBlock, Decoder):
    """Two layers each, a memory with padding, and causality."""
    encoder, decoder = (_large(kind(7, 8, 2, 12, 2)) for kind in (Encoder, Decoder))
    ids = torch.randint(7, (2, 4))
    memory, x, b = encoder.embed(ids), decoder.embed(ids), _large(DecoderBlock(8, 2, 12))
    y = x + b.attention(b.attention_norm(x), mask=CAUSAL)
    z, w = (y + b.cross_attention(b.cross_norm(y), *read) for read in ([memory, REAL], []))
    right, wrong = (s + b.feed_forward(b.feed_forward_norm(s)) for s in (z, w))
    wrong = {"take keys and values of cross-attention from the memory": wrong}
    expect(b(x, memory, CAUSAL, REAL), right, "DecoderBlock", wrong)
    for one, other in zip(encoder.layers, decoder.layers, strict=True):
        memory, x = one(memory, REAL), other(x, y, CAUSAL, REAL)
    expect(encoder(ids, REAL), encoder.final_norm(memory), "Encoder: blocks, final norm")
    expect((got := decoder(ids, y, REAL))[:, :2], decoder(ids[:, :2], y, REAL), "causal attention")
    expect(got, decoder.logits(decoder.final_norm(x)), "Decoder: blocks, final norm, logits")


def whole(Transformer, loss_of):
    """A source with and without padding, greedy decoding, and known losses."""
    model = _large(Transformer(7, d_model=8, n_heads=2, d_ff=10, n_layers=1))
    source, target = torch.tensor([[3, 4, 2, 0]]), torch.tensor([[1, 5, 4, 2], [1, 6, 2, 0]])
    memory = model.encoder(source, REAL[:1])
    wrong = {"hide padding from cross-attention too": model.decoder(target[:1], memory)}
    expect(model(source, target[:1]), model(source[:, :3], target[:1]), "a padded source", wrong)
    read = torch.cat((target[:1, :1], got := model.generate(source, 5)), 1)[:, :5]
    expect(got, model(source, read).argmax(-1), "five tokens, START left out")
    logits = (table := torch.randn(7, 7))[target[:, :-1]].mT
    wrong = {"padding in the target has no loss": cross_entropy(logits, target[:, 1:])}
    wrong["the target is the next token"] = cross_entropy(logits, target[:, :-1])
    right = cross_entropy(logits, target[:, 1:], ignore_index=0)
    expect(loss_of(lambda _, ids: table[ids], source, target), right, "two targets", wrong)
