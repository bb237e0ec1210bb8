"""The lab on BERT."""

import math
from random import Random
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import expect
from support.models import bert as library

KEYS = "no token may attend to padding: mask the keys, real[:, None, None, :]"
REAL = torch.arange(5) < torch.tensor([[5], [3]])
TANH = "use the exact GELU, not its approximation with tanh"


class _Body(nn.Module):
    """In the place of a Bert: a state for each token and segment."""

    def __init__(self):
        super().__init__()
        self.tokens, self.other = nn.Embedding(9, 4), nn.Embedding(9, 4)

    def forward(self, ids, segments=None):
        return self.other(ids) + (0 if segments is None else segments[..., None].sin())


def _large(model, **shapes):
    """Make all weights large, after a look whether those that are named are there."""
    own = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    for name, shape in shapes.items():
        name = name.replace("__", ".")
        expect(own.get(name, "no such weight"), shape, f"the shape of {name}")
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model.eval()


def hide(hide):
    """24,000 tokens, special ones among them, with 50/30/20."""
    ids = torch.randint(5, 300, (400, 60))
    ids[:, 0], ids[:, 50], ids[:, 51:] = 2, 3, 0
    seen, chosen = hide(given := ids.clone(), mix=(0.5, 0.3, 0.2))
    assert given.equal(ids), "the ids that were given are changed: return new ones"
    assert not chosen[ids < 5].any(), "special tokens are chosen: choose only ids of 5 or more"
    assert seen[~chosen].equal(ids[~chosen]), "show a token that is not chosen as it is"
    masked, same = seen[chosen] == 4, seen[chosen] == ids[chosen]
    parts = [masked.double().mean().item(), (~masked & ~same).double().mean().item()]
    wrong = {
        "words shown unchanged are chosen too, and to be predicted": [0.625, 0.375],
        "mix is [MASK], random word, unchanged, in this order": [0.5, 0.2],
        "mix[1] is a part of all chosen words, not of those that [MASK] leaves": [0.5, 0.15],
        "show what mix says, not [MASK] alone": [1.0, 0.0],
    }
    expect(parts, [0.5, 0.3], "fractions shown as [MASK] and as others", wrong, atol=0.025)
    part, wrong = chosen[ids >= 5].double().mean().item(), {"choose 15 %, not 85 %": 0.85}
    expect(part, 0.15, "the fraction of words that are chosen", wrong, atol=0.02)
    random = seen[chosen][~masked & ~same]
    assert random.min() >= 5, "no special token replaces a word: draw from 5 on"
    assert len(random.unique()) > 100, "draw a random word for each position, not one for all"


def attention(SelfAttention):
    """Two heads, two sequences, one of them padded, and large weights."""
    x, every = torch.randn(2, 5, 8), torch.ones(5, 5, dtype=torch.bool)
    layer = _large(SelfAttention(8, 2), qkv__weight=(24, 8), out__weight=(8, 8))
    qkv, keys = layer.qkv(x).chunk(3, -1), REAL[:, None, None, :]

    def attend(parts=qkv, divisor=2.0, mask=keys, shape=(2, 5, 2, 4), out=layer.out):
        parts = [p.reshape(shape) for p in parts]
        q, k, v = (p.transpose(1, 2) if shape[1] == 5 else p for p in parts)
        weights = (q @ k.mT / divisor).masked_fill(~mask, -math.inf).softmax(-1)
        return out((weights @ v).transpose(1, 2).flatten(2))[REAL]

    wrong = {
        KEYS: attend(mask=every),
        "BERT attends to both sides: no causal mask": attend(mask=keys & every.tril()),
        "divide by the square root of d_head": attend(divisor=1.0),
        "divide by the square root of d_head, not of d_model": attend(divisor=math.sqrt(8)),
        "divide by the square root of d_head, not by d_head": attend(divisor=4.0),
        "a head is a stretch of dimensions, not of positions": attend(shape=(2, 2, 5, 4)),
        "apply the layer out at the end": attend(out=nn.Identity()),
        "queries come first, then keys, then values": attend([qkv[1], qkv[0], qkv[2]]),
    }
    expect(layer(x, REAL)[REAL], attend(), "two heads, the second sequence padded", wrong)
    shape = tuple(getattr(layer, "weights", torch.zeros(0)).shape)
    expect(shape, (2, 2, 5, 5), "the shape of the attribute weights")
    assert layer.weights[1, :, :, 3:].abs().max() < 1e-12, KEYS


def block(FeedForward, Block):
    """Large weights, and a dropout that drops everything."""
    f, x = _large(FeedForward(8), up__weight=(32, 8), down__weight=(8, 32)), torch.randn(2, 5, 8)
    wrong = {
        TANH: f.down(F.gelu(f.up(x), approximate="tanh")),
        "use GELU, not ReLU": f.down(f.up(x).relu()),
        "GELU comes between the two layers": f.down(f.up(x)),
    }
    expect(f(x), f.down(F.gelu(f.up(x))), "FeedForward", wrong)
    b = _large(Block(8, 2, 1.0), attention_norm__weight=(8,), feed_forward_norm__weight=(8,))
    f, n, m = b.feed_forward, b.attention_norm, b.feed_forward_norm

    def a(x):
        return b.attention(x, REAL)

    y, pre, inside = n(x + a(x)), x + a(n(x)), x + n(a(x))
    wrong = {
        "normalize after each addition (post-norm), not before the sublayer": pre + f(m(pre)),
        "normalize the sum, not the output of the sublayer alone": inside + m(f(inside)),
        "add the input of each sublayer to its output": m(f(n(a(x)))),
        "the feed-forward network reads the result of the first norm": m(y + f(x)),
        "add the input of the second sublayer, not of the first": m(x + f(y)),
        "each sublayer has a norm of its own": n(y + f(y)),
    }
    expect(b(x, REAL), m(y + f(y)), "Block", wrong)
    wrong = {
        "drop from the outputs of the sublayers, not from the sums": m(torch.zeros_like(x)),
        "apply dropout to the output of each sublayer": m(y + f(y)),
    }
    expect(b.train()(x, REAL), m(n(x)), "Block in training with a dropout of 1", wrong)


def body(Bert):
    """No layers, then two, with large weights, against the BERT in support."""
    ids, segments = torch.randint(5, 30, (2, 5)), torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    ids[~REAL] = 0
    model = _large(Bert(30, 8, 0, 2, 12), segments__weight=(2, 8), positions__weight=(12, 8))
    e, s, p = model.tokens(ids), model.segments(segments), model.positions.weight[:5]
    wrong = {
        "add the segment's vector": model.norm(e + p),
        "add the position's vector": model.norm(e + s),
        "normalize the sum of the three vectors": e + s + p,
        "BERT does not scale the embeddings": model.norm(e * math.sqrt(8) + s + p),
    }
    expect(model(ids, segments), model.norm(e + s + p), "no layers", wrong)
    model(ids, segments).square().sum().backward()
    assert model.segments.weight.grad[0].any(), (
        "the vector of segment 0 gets no gradient: no padding_idx in the embedding of segments"
    )
    expect(model(ids), model.norm(e + p + model.segments.weight[0]), "segments left out")
    model = _large(Bert(30, 8, 2, 2, 12))
    assert model.layers[0] is not model.layers[1], "each layer is a Block of its own"
    theirs = library.Bert(library.BertConfig(30, 8, 2, 2, 32, 12, norm_eps=1e-5)).eval()
    own = {name.replace("layers.", "encoder.layers."): w for name, w in model.state_dict().items()}
    theirs.load_state_dict(theirs.state_dict() | own)
    right, lengths = theirs(ids, segments, REAL.sum(1)), torch.tensor([5, 5])
    wrong = {"give each block real=ids != PAD": theirs(ids, segments, lengths)[REAL]}
    expect(model(ids, segments)[REAL], right[REAL], "two layers", wrong)


def head(MaskedLM):
    """Three chosen positions, large weights, and the gradient of the embeddings."""
    chosen = torch.tensor([[False, True, True], [True, False, False]])
    ids, model = torch.tensor([[5, 6, 7], [8, 4, 5]]), MaskedLM(_Body())
    more = [n for n, w in model.named_parameters() if "bert." not in n and w.shape == (9, 4)]
    assert not more, f"{more and more[0]}: multiply by the input's embedding matrix (weight tying)"
    _large(model, transform__weight=(4, 4), transform_norm__weight=(4,), token_bias=(9,))
    states, t, n = model.bert(ids)[chosen], model.transform, model.transform_norm
    E, bias = model.bert.tokens.weight, model.token_bias
    wrong = {
        "GELU comes after the layer transform": n(t(states)) @ E.T + bias,
        TANH: n(F.gelu(t(states), approximate="tanh")) @ E.T + bias,
        "LayerNorm comes after GELU, not before it": F.gelu(n(t(states))) @ E.T + bias,
        "normalize after GELU": F.gelu(t(states)) @ E.T + bias,
        "add the bias of each word": n(F.gelu(t(states))) @ E.T,
        "transform the states first": states @ E.T + bias,
    }
    got, right = model(ids, chosen), n(F.gelu(t(states))) @ E.T + bias
    assert got.dim() == 2, "return the logits (P, V) of the chosen positions, not of all"
    expect(got, right, "three chosen positions", wrong)
    got.square().sum().backward()
    assert E.grad is not None and E.grad.any(), "the embedding matrix gets no gradient as output"


def loss(initialize, masked_loss):
    """A model of nested layers, and a batch in which a random word is shown."""
    linear, table, norm = nn.Linear(200, 100), nn.Embedding(200, 100), nn.LayerNorm(100)
    for weight in (*linear.parameters(), *norm.parameters()):
        nn.init.constant_(weight, 3.0)
    model = initialize(nn.Sequential(nn.Sequential(linear), table, norm))
    assert isinstance(model, nn.Module), "initialize returns the model"
    wrong = {
        "0.02 is the standard deviation, not the variance": math.sqrt(0.02),
        "draw these weights too, and those inside of other modules": 0.0,
    }
    assert table.weight.std() < 0.9, "draw the embeddings too: their standard deviation is still 1"
    for name, layer in {"nn.Linear": linear, "nn.Embedding": table}.items():
        expect(layer.weight.std().item(), 0.02, f"standard deviation, {name}", wrong, atol=0.002)
    expect(linear.bias, torch.zeros(100), "biases")
    expect(norm.weight, torch.full((100,), 3.0), "LayerNorm, which keeps what it has")
    ids, seen = torch.tensor([[5, 6, 7], [8, 6, 5]]), torch.tensor([[4, 6, 7], [8, 7, 5]])
    chosen, table = torch.tensor([[1, 0, 1], [0, 1, 0]]).bool(), 3 * torch.randn(9, 9)

    def mean_of(shown, where, true, reduction="mean"):
        return F.cross_entropy(table[shown[where]], true[where], reduction=reduction)[None]

    right, every = mean_of(seen, chosen, ids), torch.ones_like(chosen)
    wrong = {
        "the targets are the true words, not those that are seen": mean_of(seen, chosen, seen),
        "show the model what is seen, not the true words": mean_of(ids, chosen, ids),
        "only chosen positions count": mean_of(seen, every, ids),
        "chosen positions count, not those that show [MASK]": mean_of(seen, seen == 4, ids),
        "average over the chosen positions": mean_of(seen, chosen, ids, "sum"),
        "return the loss with the shape (1,)": right[0],
    }
    got = masked_loss(lambda ids, chosen: table[ids[chosen]], (seen, chosen, ids))
    expect(got, right, "three chosen positions", wrong)


def pairs(draw_pairs):
    """Three paragraphs, 400 times."""
    texts = [["a1", "a2", "a3", "a4"], ["b1", "b2"], ["c1", "c2"]]
    drawn = [list(draw_pairs(texts, Random(seed))) for seed in range(400)]
    wrong = {"the last sentence of a paragraph opens no pair": [x for text in texts for x in text]}
    right = ["a1", "a2", "a3", "b1", "c1"]
    expect([a for a, _, _ in drawn[0]], right, "the first sentences of the pairs", wrong)
    false = [(a, b) for pairs in drawn for a, b, follows in pairs if not follows]
    for a, b in [(a, b) for pairs in drawn for a, b, follows in pairs if follows]:
        expect(b, f"{a[0]}{int(a[1]) + 1}", f"what follows {a}")
    for a, b in false:
        assert b[0] != a[0], f"a false partner comes from another paragraph: {a}, {b}"
        assert b[1] != "1", f"a false partner is never the first of its paragraph: {a}, {b}"
    wrong = {"draw a false partner too": 0.0, "draw the true partner too": 1.0}
    expect(len(false) / 2_000, 0.5, "the fraction of false partners", wrong, atol=0.05)
    partners = [b for a, b in false if a == "c1"]
    part, wrong = partners.count("b2") / len(partners), {"draw from all sentences alike": 0.5}
    expect(part, 0.25, "how often b2 is the false partner of c1", wrong, atol=0.1)


def both(BertForPretraining):
    """Three pairs, large weights, and both losses."""
    batch = SimpleNamespace(
        ids=torch.tensor([[2, 5, 3, 6, 3], [2, 7, 3, 4, 3], [2, 8, 3, 4, 3]]),
        segments=torch.tensor([[0, 0, 0, 1, 1]] * 3) + torch.tensor([[1], [0], [2]]),
        positions=torch.tensor([1, 8, 13]), targets=torch.tensor([6, 5, 7]),
        is_next=torch.tensor([1, 0, 0]),
    )  # fmt: skip
    m = _large(BertForPretraining(_Body()), pooler__weight=(4, 4), next_sentence__weight=(2, 4))

    def losses(pool=lambda states: m.pooler(states[:, 0]).tanh(), states=None, label=1):
        states = m.bert(batch.ids, batch.segments) if states is None else states
        words = m.predict_tokens(states.flatten(0, 1)[batch.positions])
        follows = m.next_sentence(pool(states))
        labels = 1 - batch.is_next if label else batch.is_next
        return F.cross_entropy(words, batch.targets), F.cross_entropy(follows, labels)

    wrong = {
        "the first logit means that it follows: the class is 1 - is_next": losses(label=0),
        "the pooler ends in tanh": losses(lambda states: m.pooler(states[:, 0])),
        "the pooler comes before the two logits": losses(lambda states: states[:, 0]),
        "read the state of [CLS], not the mean": losses(lambda s: m.pooler(s.mean(1)).tanh()),
        "read the state of [CLS], the first": losses(lambda s: m.pooler(s[:, -1]).tanh()),
        "give the segments to the body": losses(states=m.bert(batch.ids)),
        "return both losses, and do not add them": sum(losses()),
    }
    expect(m(batch), losses(), "three pairs", wrong, atol=1e-5)
