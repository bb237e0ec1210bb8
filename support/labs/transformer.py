"""The lab on the Transformer."""

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import expect
from support.models.transformer import sinusoidal_positions


def _large(module, std=0.6):
    """Return a module in evaluation mode whose parameters, norms included, are large."""
    for weight in module.parameters():
        nn.init.normal_(weight, std=std)
    return module.eval()


def _attend(q, k, v, allowed=None, scale=None, dim=-1):
    """Return attention; what is not allowed is hidden."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(dim) @ v


def self_attention(SelfAttention_v2):
    """Three words of two sequences, with large weights."""
    layer, x = _large(SelfAttention_v2(4, 4)), torch.randn(2, 3, 4)
    biased = [name for name, _ in layer.named_parameters() if name.endswith("bias")]
    assert not biased, f"the layers have no biases here, but there is {biased[0]}"
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    wrong = {
        "divide the scores by the square root of d": _attend(q, k, v, scale=1.0),
        "apply the softmax over the keys, the last dimension": _attend(q, k, v, dim=1),
        "multiply queries by keys: row t has the scores of query t": _attend(k, q, v),
        "average the values, not the inputs": _attend(q, k, x),
    }
    expect(layer(x), _attend(q, k, v), "large weights", wrong)
    expect(layer.weights.sum(-1), torch.ones(2, 3), "each row of self.weights in sum")


def causal(causal_mask, CausalAttention):
    """A mask of length 3, and attention that must not see what comes later."""
    got, allowed = causal_mask(3), torch.ones(3, 3, dtype=torch.bool).tril()
    wrong = {
        "the mask is true where a position may attend, not where it is hidden": ~allowed,
        "a row is the position that attends, a column one attended to": allowed.mT,
        "hide the next position too": torch.ones(3, 3).tril(1),
        "a position may attend to itself": torch.ones(3, 3).tril(-1),
    }
    expect(got, allowed, "causal_mask(3)", wrong)
    assert got.dtype == torch.bool, f"make the mask boolean, not {got.dtype}"
    layer, x = _large(CausalAttention(4, 4)), torch.randn(2, 3, 4)
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    scores = q @ k.mT / 2
    wrong = {
        "mask the scores before the softmax, or the rows do not sum to 1": (
            scores.softmax(-1) * allowed @ v
        ),
        "set a hidden score to minus infinity: the exponential of 0 is 1": (
            scores.masked_fill(~allowed, 0).softmax(-1) @ v
        ),
        "use the mask: later positions are visible": _attend(q, k, v),
        "divide the scores by the square root of d": _attend(q, k, v, allowed, 1.0),
    }
    expect(layer(x), _attend(q, k, v, allowed), "large weights", wrong)


def multi_head(MultiHeadAttention):
    """Two heads, a memory, a mask for each sequence, and dropout."""
    layer, x, memory = _large(MultiHeadAttention(8, 2, 1.0)), torch.randn(2, 3, 8), None

    def split(y):
        return torch.stack(y.chunk(2, -1), 1)

    def merge(heads):
        return layer.out(torch.cat(heads.unbind(1), -1))

    wrong = {
        "cut each vector into heads first, then swap positions and heads": x.view(2, 2, 3, 4),
        "head 1 has the first half of each vector": x.view(2, 3, 4, 2).permute(0, 3, 1, 2),
    }
    expect(layer.split(x), split(x), "split", wrong)
    some = (torch.arange(3) < torch.tensor([[2], [3]]))[:, None, None]  # (B, 1, 1, S)
    for memory, mask in ((None, None), (torch.randn(2, 3, 8), some)):
        source = x if memory is None else memory
        q, k, v = map(split, (layer.query(x), layer.key(source), layer.value(source)))
        heads = F.scaled_dot_product_attention(q, k, v, mask)
        wrong = {
            "d is d_model / n_heads: divide by its root": _attend(q, k, v, mask, 8**-0.5),
            "divide the scores by the square root of d": _attend(q, k, v, mask, 1.0),
            "use the mask": _attend(q, k, v),
            "take keys from the memory": _attend(q, split(layer.key(x)), v, mask),
            "take values from the memory": _attend(q, k, split(layer.value(x)), mask),
        }
        if mask is not None:
            wrong["hide what is false in the mask, not what is true"] = _attend(q, k, v, ~mask)
        wrong = {name: merge(y) for name, y in wrong.items()} | {
            "mix the heads with the layer out": torch.cat(heads.unbind(1), -1),
            "swap heads and positions back before flattening": layer.out(heads.reshape(2, 3, 8)),
            "take keys and values from the memory": layer(x, x, mask),
        }
        expect(layer(x, memory, mask), merge(heads), f"memory and mask: {mask is not None}", wrong)
    expect(layer.weights.shape, (2, 2, 3, 3), "the shape of self.weights")
    wrong = {"apply dropout to the attention weights": layer(x)}
    expect(layer.train()(x), layer.out.bias.expand(2, 3, 8), "dropout of probability 1", wrong)


def norm(norm):
    """Vectors of large, small and equal entries, gamma and beta."""
    x, gamma, beta = torch.tensor([[1.0, 2, 6], [1e-3, 2e-3, 6e-3], [4, 4, 4]]), *torch.randn(2, 3)
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    wrong = {
        "divide the variance by d_model, not by d_model - 1": F.layer_norm(x, (3,))
        * ((variance + 1e-5) / (variance * 1.5 + 1e-5)).sqrt(),
        "add epsilon to the variance, under the root": (x - mean) / (variance.sqrt() + 1e-5),
        "divide by the root of the variance": (x - mean) / (variance + 1e-5),
        "subtract the mean": x / (variance + 1e-5).sqrt(),
        "normalize each vector by itself": F.layer_norm(x, (3, 3)),
    }
    expect(norm(x), F.layer_norm(x, (3,)), "three vectors", wrong)
    right, wrong = F.layer_norm(x, (3,), gamma, beta), {"use gamma and beta": norm(x)}
    wrong["add beta after you multiply by gamma"] = gamma * (norm(x) + beta)
    expect(norm(x, gamma, beta), right, "gamma and beta", wrong)


def block(FeedForward, Block):
    """Large weights, where the norm comes, a mask, and dropout."""
    f, x = _large(FeedForward(6, 5)), 2 * torch.randn(2, 3, 6)
    wrong = {
        "apply the ReLU between the two layers": f.down(f.up(x)),
    }
    expect(f(x), f.down(f.up(x).relu()), "FeedForward", wrong)
    block, mask = _large(Block(6, 2, 5, 1.0)), torch.ones(3, 3, dtype=torch.bool).tril()
    a, n, f, m = block.attention, block.attention_norm, block.feed_forward, block.feed_forward_norm
    y = x + a(n(x), mask=mask)
    z = x + a(n(x))
    wrong = {
        "normalize before each layer, not after the addition": m(
            (p := n(x + a(x, mask=mask))) + f(p)
        ),
        "add the input of the attention to its output": (y - x) + f(m(y - x)),
        "add the input of the feed-forward network to its output": f(m(y)),
        "add the input itself, not the normalized one": (q := n(x) + y - x) + f(m(q)),
        "normalize the sum for the feed-forward network, not the input": y + f(m(x)),
        "apply feed_forward_norm to the sum, after the attention": y + f(n(x)),
        "the feed-forward network has its own norm": y + f(n(y)),
        "normalize before the feed-forward network too": y + f(y),
        "pass the mask to the attention": z + f(m(z)),
    }  # fmt: skip
    expect(block(x, mask), y + f(m(y)), "Block", wrong)
    wrong = {"apply dropout to the output of attention and of feed_forward": block(x)}
    expect(block.train()(x), x, "Block, dropout of probability 1", wrong)


def positions(sinusoids, Embed):
    """Four positions in eight dimensions, and two sequences of three tokens."""
    right, p = sinusoidal_positions(4, 8), torch.arange(4.0)[:, None]
    slow = p * 10_000 ** (-torch.arange(0, 8, 2) / 4)
    wrong = {
        "alternate sines and cosines": torch.cat((right[:, ::2], right[:, 1::2]), 1),
        "sines are in the even columns, cosines in the odd ones": right.view(4, 4, 2).flip(-1),
        "the exponent is -2i / d_model, and arange(0, d_model, 2) is 2i": torch.stack(
            (slow.sin(), slow.cos()), -1
        ),
    }
    wrong = {name: value.flatten(1) for name, value in wrong.items()}
    expect(sinusoids(4, 8), right, "sinusoids(4, 8)", wrong)
    embed, ids = Embed(5, 8, 1.0).eval(), torch.tensor([[3, 1, 1], [0, 2, 4]])
    names = [name for name, _ in embed.named_parameters()]
    assert names == ["tokens.weight"], f"only the tokens are parameters, but there are {names}"
    tokens, right = embed.tokens(ids), sinusoidal_positions(512, 8)
    wrong = {
        "add the sinusoids to the token embeddings": tokens,
        "the row depends on the position, not on the token": tokens + right[ids],
        "the token embeddings are not scaled here": 8**0.5 * tokens + right[:3],
    }
    expect(embed(ids), tokens + right[:3], "Embed", wrong)
    wrong = {"apply dropout to the sum": embed(ids), "drop the sum, not one part": tokens}
    expect(embed.train()(ids), torch.zeros(2, 3, 8), "Embed, dropout of probability 1", wrong)


def decoder(Encoder, DecoderBlock, Decoder):
    """Two layers each, a memory with padding, causality, and dropout."""
    encoder, decoder = (_large(kind(7, 8, 2, 12, 2)) for kind in (Encoder, Decoder))
    ids, mask = (
        torch.randint(7, (2, 4)),
        (torch.arange(4) < torch.tensor([[3], [4]]))[:, None, None],
    )
    first, second = encoder.layers
    out = second(first(encoder.embed(ids), mask), mask)
    wrong = {
        "end with the final norm": out,
        "pass the mask to each block": encoder(ids),
    }
    memory = encoder.final_norm(out)
    expect(encoder(ids, mask), memory, "Encoder", wrong)

    block, x, allowed = (
        _large(DecoderBlock(8, 2, 12, 1.0)),
        torch.randn(2, 3, 8),
        torch.ones(3, 3) > 0,
    )
    a, c, f = block.attention, block.cross_attention, block.feed_forward
    n, m, o, allowed = (
        block.attention_norm,
        block.cross_norm,
        block.feed_forward_norm,
        allowed.tril(),
    )

    def follow(y):
        return y + f(o(y))

    y = x + a(n(x), mask=allowed)
    z = x + c(m(x), memory, mask)
    wrong = {
        "take keys and values of cross-attention from the memory": follow(y + c(m(y))),
        "pass memory_mask to cross-attention": follow(y + c(m(y), memory)),
        "cross-attention has its own norm": follow(y + c(n(y), memory, mask)),
        "cross-attention reads the sum, after self-attention": follow(y + z - x),
        "pass the mask to self-attention": follow((w := x + a(n(x))) + c(m(w), memory, mask)),
    }
    right = follow(y + c(m(y), memory, mask))
    expect(block(x, memory, allowed, mask), right, "DecoderBlock", wrong)
    wrong = {"apply dropout to the output of each of the three layers": right}
    expect(block.train()(x, memory, allowed, mask), x, "DecoderBlock, dropout of 1", wrong)

    causal = torch.ones(4, 4, dtype=torch.bool).tril()

    def decode(mask=mask, self_mask=causal, norm=True):
        x = decoder.embed(ids)
        for layer in decoder.layers:
            x = layer(x, memory, self_mask, mask)
        return decoder.logits(decoder.final_norm(x) if norm else x)

    wrong = {
        "the decoder's self-attention is causal: later tokens are visible": decode(self_mask=None),
        "pass memory_mask to each block": decode(None),
        "apply the final norm before the logits": decode(norm=False),
    }
    expect(decoder(ids, memory, mask), decode(), "Decoder", wrong)
    decoder.causal = False
    wrong = {"hide later tokens only where self.causal is true": decode()}
    expect(decoder(ids, memory, mask), decode(self_mask=None), "Decoder, causal = False", wrong)


def whole(Transformer, loss_of):
    """A source with and without padding, greedy decoding by hand, and known losses."""
    model = _large(Transformer(7, d_model=8, n_heads=2, d_ff=12, n_layers=1), 1.5)
    source, target = torch.tensor([[3, 4, 5, 2, 0, 0]]), torch.tensor([[1, 5, 4]])
    alone, real = source[:, :4], (source != 0)[:, None, None]
    right = model.decoder(target, model.encoder(alone))
    wrong = {
        "hide the source's padding": model.decoder(target, model.encoder(source)),
        "hide padding from cross-attention too": model.decoder(target, model.encoder(source, real)),
        "hide padding in the encoder too": model.decoder(target, model.encoder(source), real),
    }
    expect(model(source, target), right, "logits with padding and without", wrong, 1e-10)
    for bias in (model.decoder.final_norm.bias, model.decoder.logits.bias):
        nn.init.zeros_(bias)  # or one token would always win
    written = [1]
    for _ in range(5):
        written.append(int(model(alone, torch.tensor([written]))[0, -1].argmax()))
    wrong = {
        "leave out START": written,
        "read the logits of the last position": [int(model(alone, target[:, :1])[0, 0].argmax())]
        * 5,
    }
    wrong = {name: torch.tensor([ids]) for name, ids in wrong.items()}
    expect(model.generate(source, 5), torch.tensor([written[1:]]), "five tokens", wrong)
    target = torch.tensor([[1, 5, 4, 2], [1, 6, 2, 0]])
    logits, read = torch.randn(2, 3, 7), []

    def known(source, inputs):
        read.append(inputs)
        return torch.cat((logits, logits[:, :1]), 1)[:, : inputs.shape[1]]

    loss = loss_of(known, source, target)
    wrong = {"leave out the last token of what the decoder reads": target}
    expect(read[0], target[:, :-1], "what the decoder reads", wrong)
    each = F.cross_entropy(logits.mT, target[:, 1:], reduction="none")  # (B, T)
    shifted = F.cross_entropy(logits.mT, target[:, :-1], reduction="none")
    wrong = {
        "padding in the target has no loss": each.mean(),
        "divide by the number of real tokens": each.flatten()[:5].sum() / 6,
        "take the mean over the tokens, not the sum": each.flatten()[:5].sum(),
        "take the mean over all tokens, not over each sequence first": (
            each[0].mean() + each[1, :2].mean()
        ) / 2,
        "the target is the next token, not the one that is read": shifted.mean(),
    }  # fmt: skip
    expect(loss, each.flatten()[:5].mean(), "the loss of two targets", wrong)
