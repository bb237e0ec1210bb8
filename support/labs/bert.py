"""The lab on BERT."""

from random import Random
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torch.nn.functional import scaled_dot_product_attention as attend

from support.labs import expect
from support.labs.transformer import _large
from support.models import bert as library

SMALL = library.BertConfig(9, d_model=4, n_layers=1, n_heads=1, d_ff=8)
REAL = torch.arange(5) < torch.tensor([[5], [3]])


def hide(hide):
    """24,000 tokens, special ones among them, with 50/30/20."""
    ids = torch.randint(300, (400, 60))
    seen, chosen = hide(ids.clone(), mix=(0.5, 0.3, 0.2))
    assert not chosen[ids < 5].any(), "special tokens are chosen: choose only ids of 5 or more"
    other = seen[(seen != ids) & (seen != 4)].unique()
    assert other.min() >= 5 and len(other) > 99, "draw from 5 on, a word for each position"
    expect(seen[~chosen], ids[~chosen], "words that are not chosen")
    got = chosen[ids >= 5], (seen == 4)[chosen], (seen == ids)[chosen]
    wrong = {"words shown unchanged are chosen too, and to be predicted": [0.12, 0.625, 0.0]}
    wrong["mix is [MASK], random word, unchanged, in this order"] = [0.15, 0.5, 0.3]
    got = [part.double().mean().item() for part in got]
    expect(got, [0.15, 0.5, 0.2], "parts chosen, and of these masked and unchanged", wrong, 0.025)


def attention(SelfAttention):
    """Two heads, two sequences, one of them padded, and large weights."""
    layer, x, keys = _large(SelfAttention(8, 2)), torch.randn(2, 5, 8), REAL[:, None, None, :]
    q, k, v = (p.unflatten(-1, (2, 4)).transpose(1, 2) for p in layer.qkv(x).chunk(3, -1))
    flat = (p.reshape(2, 2, 5, 4) for p in layer.qkv(x).chunk(3, -1))
    wrong = {
        "": attend(q, k, v, keys),
        "a head is a stretch of dimensions, not of positions": attend(*flat, keys),
        "no token may attend to padding: mask the keys, real[:, None, None, :]": attend(q, k, v),
        "divide by the square root of d_head, not of d_model": attend(q, k, v, keys, scale=8**-0.5),
    }
    wrong = {name: layer.out(y.transpose(1, 2).flatten(2))[REAL] for name, y in wrong.items()}
    expect(layer(x, REAL)[REAL], wrong.pop(""), "two heads, the second sequence padded", wrong)


def body(FeedForward, Block, Bert):
    """Large weights, a dropout that drops everything, and a padded sequence."""
    b, x = _large(Block(8, 2, 1.0)), torch.randn(2, 5, 8)
    a, f, n, m = b.attention, b.feed_forward, b.attention_norm, b.feed_forward_norm
    wrong = {"use the exact GELU, without tanh": f.down(gelu(f.up(x), approximate="tanh"))}
    expect(f(x), f.down(gelu(f.up(x))), "FeedForward", wrong)
    y, pre = n(x + a(x, REAL)), x + a(n(x), REAL)
    wrong = {"normalize after each addition, not before the sublayer": pre + f(m(pre))}
    wrong["add the input of each sublayer to its output"] = m(f(n(a(x, REAL))))
    expect(b(x, REAL), m(y + f(y)), "Block", wrong)
    expect(b.train()(x, REAL), m(n(x)), "dropout of both outputs, p = 1")
    assert len({*Bert(30, 8, 2, 2, 12).layers}) == 2, "each layer is a Block of its own"
    model, ids = _large(Bert(30, 8, 1, 2, 12)), torch.randint(5, 30, (2, 5)) * REAL
    x, segments = model.tokens(ids) + model.positions.weight[:5], REAL.long()
    wrong = {"add the segment's vector": model.layers[0](model.norm(x), REAL)[REAL]}
    x = model.norm(x + model.segments(segments))
    wrong["give each block real=ids != PAD"] = model.layers[0](x, REAL | True)[REAL]
    expect(model(ids, segments)[REAL], model.layers[0](x, REAL)[REAL], "Bert", wrong)


def loss(MaskedLM, initialize, masked_loss):
    """Four words, three of them chosen, large weights, and nested layers."""
    m, chosen = _large(MaskedLM(library.Bert(SMALL))), torch.tensor([[True, False, True, True]])
    ids, seen = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[4, 6, 5, 8]])
    y, E = m.transform(m.bert(seen)), m.bert.tokens.weight
    logits, linear = (m.transform_norm(y) @ E.T + m.token_bias for y in (gelu(y), y))
    wrong = {"only chosen positions count": cross_entropy(logits.mT, ids)[None]}
    wrong["predict the true words"] = cross_entropy(logits[chosen], seen[chosen])[None]
    wrong["use GELU after transform"] = cross_entropy(linear[chosen], ids[chosen])[None]
    right = cross_entropy(logits[chosen], ids[chosen])[None]
    expect(masked_loss(m, (seen, chosen, ids)), right, "three chosen positions", wrong)
    m.predict_tokens(torch.randn(3, 4)).sum().backward()
    assert E.grad is not None, "the embedding matrix gets no gradient as output"
    m = initialize(nn.Sequential(nn.Sequential(nn.Linear(200, 100)), nn.Embedding(200, 100)))
    got = [weight.std().item() for weight in (m[0][0].weight, m[1].weight, m[0][0].bias)]
    wrong = {"0.02 is the standard deviation, not the variance": [0.02**0.5, 0.02**0.5, 0.0]}
    expect(got, [0.02, 0.02, 0.0], "deviations: nested layers, embeddings, biases", wrong, 0.005)


def both(draw_pairs, BertForPretraining):
    """The paragraphs a1 a2 a3 and b1 b2, 400 times, and the losses of two pairs of texts."""
    texts = [["a1", "a2", "a3"], ["b1", "b2"]]
    drawn = [pair for seed in range(400) for pair in draw_pairs(texts, Random(seed))]
    false = sorted({a + b for a, b, follows in drawn if not follows})
    wrong = {"never the first sentence": ["a1b1", "a1b2", "a2b1", "a2b2", "b1a1", "b1a2", "b1a3"]}
    expect(false, ["a1b2", "a2b2", "b1a2", "b1a3"], "false pairs, joined", wrong)
    true = [a + b for a, b, follows in drawn if follows]
    got, right = {pair: true.count(pair) / 400 for pair in true}, ("a1a2", "a2a3", "b1b2")
    expect(got, dict.fromkeys(right, 0.5), "how often true pairs are drawn", None, 0.1)
    m, ids = _large(BertForPretraining(library.Bert(SMALL))), torch.randint(9, (2, 5))
    segments, at, is_next = 1 - REAL.long(), torch.tensor([1, 8]), torch.tensor([1, 0])
    batch = SimpleNamespace(ids=ids, segments=segments, positions=at, targets=at, is_next=is_next)
    words = cross_entropy(m.predict_tokens((states := m.bert(ids, segments)).flatten(0, 1)[at]), at)
    cls, mean = m.pooler(states[:, 0]), m.pooler(states.mean(1)).tanh()
    wrong = {
        "": (cls.tanh(), 1 - is_next),
        "the first logit means that it follows: the class is 1 - is_next": (cls.tanh(), is_next),
        "the pooler ends in tanh": (cls, 1 - is_next),
        "read the state of [CLS], not the mean": (mean, 1 - is_next),
    }
    wrong = {k: (words, cross_entropy(m.next_sentence(x), y)) for k, (x, y) in wrong.items()}
    expect(m(batch), wrong.pop(""), "two pairs", wrong)
