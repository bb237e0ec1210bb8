"""The lab on BERT."""

from collections import Counter
from itertools import product
from random import Random
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu
from torch.nn.functional import scaled_dot_product_attention as attend

from support.labs import equal, expect
from support.labs.transformer import _large
from support.models import bert as library

SMALL = library.BertConfig(9, d_model=4, n_layers=1, n_heads=1, d_ff=8)
REAL = torch.arange(5) < torch.tensor([[5], [3]])


def hide(hide):
    """120,000 tokens, special ones among them, with 50/30/20.

    a draw for each position; then, again for each position, a second draw, whose stretches mix[0],
    mix[1] and the rest decide among MASK, a random word and the word itself; return first what the
    model sees, then `chosen`, boolean (B, T)
    """
    ids = torch.randint(n := len(hide.__globals__["vocab"]), (2000, 60))
    seen, chosen = hide(given := ids.clone(), mix=(0.5, 0.3, 0.2))
    assert equal(given, ids), "ids must stay as they are: change a copy, ids.clone()"
    expect(seen[~chosen], ids[~chosen], "words not chosen; one shown unchanged can be chosen")
    assert ids[chosen].min() == 5, "special tokens are chosen, or id 5 is not: choose if ids >= 5"
    got = chosen[ids >= 5], (seen == 4)[chosen], (seen == ids)[chosen]
    wrong = {"words shown unchanged are chosen too, and to be predicted": [0.12, 0.625, 0.0]}
    wrong["mix is [MASK], random word, unchanged, in this order"] = [0.15, 0.5, 0.3]
    got = [round(part.double().mean().item(), 3) for part in got]
    expect(got, [0.15, 0.5, 0.2], "parts chosen, and of these masked and unchanged", wrong, 0.025)
    assert 2.5 < chosen.sum(1).double().std() < 3, "choose each word by a draw of its own"
    assert (seen == 4).sum(1).double().std() < 3, "show each chosen word by a draw of its own"
    other = seen[(seen != ids) & (seen != 4)].unique().tolist()
    assert other == [*range(5, n)], "draw each word anew, from 5 to len(vocab) - 1, both included"


def attention(SelfAttention):
    """Two heads, two sequences, one of them padded, and large weights.

    q, k, v: thirds of qkv(x), split into (B, T, H, d_head), then transpose(1, 2); scores q @ k.mT
    over the square root of d_head, -inf where not real[:, None, None, :], then softmax(dim=-1),
    which is self.weights (B, H, T, T); not causal; weights @ v, transposed back before joining
    heads; then out
    """
    layer, x, keys = _large(SelfAttention(8, 2)), torch.randn(2, 5, 8), REAL[:, None, None, :]
    q, k, v = parts = layer.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    wrong = {"heads returns (B, H, T, d_head), H before T": parts.transpose(2, 3)}
    flat = parts.transpose(2, 3).reshape(parts.shape)
    wrong["a head is a stretch of dimensions, not of positions"] = flat
    expect(torch.stack([*layer.heads(x)]), parts, "queries, keys and values, by heads(x)", wrong)
    wrong = {
        "": attend(q, k, v, keys),
        "no token may attend to padding: mask the keys, real[:, None, None, :]": attend(q, k, v),
        "divide by the square root of d_head, not of d_model": attend(q, k, v, keys, scale=8**-0.5),
    }
    wrong = {name: layer.out(y.transpose(1, 2).flatten(2))[REAL] for name, y in wrong.items()}
    expect(layer(x, REAL)[REAL], wrong.pop(""), "two heads, the second sequence padded", wrong)
    right = (q @ k.mT / 2).masked_fill(~keys, -torch.inf).softmax(-1)
    expect(layer.weights, right, "self.weights after the softmax; mask keys alone, no queries")


def body(FeedForward, Block, Bert):
    """Large weights, a dropout that drops everything, and a padded sequence.

    GELU between up and down, no dropout there; in Block, dropout, as given, of a sublayer's output,
    plus its input, its own norm last; Bert: three vectors as they are (segments None: 0; positions
    from 0), norm, dropout, blocks with dropout, each on the one before's output; real is ids != PAD
    """
    b, x = _large(Block(8, 2, 1.0)), torch.randn(2, 5, 8)
    a, f, n, m = b.attention, b.feed_forward, b.attention_norm, b.feed_forward_norm
    wrong = {"use the exact GELU, without tanh": f.down(gelu(f.up(x), approximate="tanh"))}
    expect(f.train()(x), f.down(gelu(f.up(x))), "FeedForward", wrong)
    y, pre = n(x + a(x, REAL)), x + a(n(x), REAL)
    wrong = {"normalize after each addition, not before the sublayer": pre + f(m(pre))}
    wrong["add the input of each sublayer to its output"] = m(f(n(a(x, REAL))))
    expect(b(x, REAL), m(y + f(y)), "Block", wrong)
    expect(b.train()(x, REAL), m(n(x)), "dropout of both outputs, p = 1")
    models = library.Bert(library.BertConfig(30, 9, 2, 3, 36, 12)).named_parameters()
    models = models, (model := Bert(30, 9, 2, 3, 12, 1.0)).named_parameters()
    pairs = [sorted(f"{n.removeprefix('encoder.')} {tuple(p.shape)}" for n, p in m) for m in models]
    right = [s for s in pairs[0] if "pooler" not in s]
    wrong = {"layers holds n_layers Blocks, each of its own": [s for s in right if "s.1" not in s]}
    wrong["layers is an nn.ModuleList"] = [s for s in right if "layers" not in s]
    expect(pairs[1], right, "parameters and shapes", wrong)
    ids, (a, b) = torch.arange(1, 11).view(2, 5) * REAL, _large(model).layers
    assert model.segments.padding_idx is None, "segment 0 is learned as well: no padding_idx"
    x = model.tokens(ids) + model.positions.weight[:5]
    wrong = {"add the segment's vector": b(a(model.norm(x), REAL), REAL)[REAL]}
    x = model.norm(x + model.segments(REAL.long()))
    wrong["give each block real=ids != PAD"] = b(a(x, REAL | True), REAL | True)[REAL]
    wrong["each block reads what the one before returned"] = b(x, REAL)[REAL]
    expect(model(ids, REAL.long())[REAL], b(a(x, REAL), REAL)[REAL], "Bert", wrong)
    expect(model(ids)[REAL], model(ids, ids * 0)[REAL], "Bert with segments=None")
    n, m, y = b.attention_norm, b.feed_forward_norm, a.feed_forward_norm(a.attention_norm(x[0] * 0))
    expect(model.train()(ids)[0], m(n(y)), "dropout, p = 1")


def loss(MaskedLM, initialize, masked_loss):
    """Two sentences, two and one of their words chosen, large weights, and nested layers.

    states[chosen], then transform, exact GELU, transform_norm; times bert.tokens.weight itself,
    transposed, plus token_bias (vocab_size,): no softmax; a batch is (seen, chosen, ids), the model
    reads seen; one mean over all chosen, natural logarithm; initialize goes over model.modules(),
    nested too, leaves norms as they are and returns the model
    """
    m, chosen = _large(MaskedLM(library.Bert(SMALL))), torch.tensor([[1, 0, 1], [0, 1, 0]]) > 0
    ids, seen = torch.tensor([[[5, 6, 7], [8, 7, 6]], [[4, 6, 8], [8, 4, 6]]])
    y, E, norm = m.transform(m.bert(seen)), m.bert.tokens.weight, m.transform_norm
    logits, linear = (norm(y) @ E.T + m.get_parameter("token_bias") for y in (gelu(y), y))
    wrong = {"only chosen positions count": cross_entropy(logits.mT, ids)[None]}
    wrong["predict the true words"] = cross_entropy(logits[chosen], seen[chosen])[None]
    wrong["use GELU after transform"] = cross_entropy(linear[chosen], ids[chosen])[None]
    right, got = cross_entropy(logits[chosen], ids[chosen]), masked_loss(m, (seen, chosen, ids))
    expect(got, right[None], "three chosen positions", wrong)
    assert got.requires_grad, "the loss has lost its gradient: no .item(), no torch.tensor(...)"
    m.predict_tokens(torch.randn(3, 4)).sum().backward()
    assert E.grad is not None, "the embedding matrix gets no gradient as output"
    parts = nn.Sequential(nn.Linear(99, 99)), nn.Embedding(99, 99), nn.LayerNorm(99)
    got = [p.square().mean().sqrt().item() for p in initialize(nn.Sequential(*parts)).parameters()]
    wrong = {"0.02 is the standard deviation, not the variance": [0.1414, 0.0, 0.1414, 1.0, 0.0]}
    where = "root mean squares, by normal draws, of Linear (w, b), Embedding, LayerNorm (w, b)"
    expect(got, [0.02, 0, 0.02, 1, 0], where, wrong, 0.005)


def both(draw_pairs, BertForPretraining):
    """The paragraphs a1 a2, b1 b2 and c1 c2 c3, 800 times, and the losses of two pairs of texts.

    a draw of rng for each pair; paragraphs stay as they are, in order; follows is a bool, True if b
    is the next sentence; false partners: all sentences elsewhere but first ones, in one list; bert
    reads ids and segments; positions in states.flatten(0, 1); batch.targets; pooler on
    states[:, 0], tanh; two logits; mean cross_entropy; a tuple (words, next)
    """
    texts = [["a1", "a2"], ["b1", "b2"], ["c1", "c2", "c3"]]
    drawn, again = ([[*draw_pairs(texts, Random(i))] for i in range(800)] for _ in "12")
    starts = {tuple(a for a, *_ in pairs) for pairs in drawn}
    expect(starts, {("a1", "b1", "c1", "c2")}, "sentences a of a text, none last in its paragraph")
    assert drawn == again, "draw from rng alone: other pairs come from a Random of the same seed"
    true = Counter("".join(a + b for a, b, follows in pairs if follows is True) for pairs in drawn)
    each = map("".join, product(("", "a1a2"), ("", "b1b2"), ("", "c1c2"), ("", "c2c3")))
    where = "800 texts, the pairs with follows = True, half of all, joined"
    expect(true, dict.fromkeys(each, 50.0), where, None, 28)
    false = Counter(a + b for pairs in drawn for a, b, follows in pairs if follows is False)
    first = {a + b: 90.0 for a in starts.pop() for p in texts for b in p if a[0] != b[0]}
    right = {ab: 200.0 if ab[0] == "c" else 133.0 for ab in first if ab[3] != "1"}
    expect(false, right, "counts of false pairs, joined", {"never the first sentence": first}, 45)
    m, ids = _large(BertForPretraining(library.Bert(SMALL))), torch.randint(9, (2, 5))
    assert {"pooler.bias", "next_sentence.bias"} <= {*m.state_dict()}, "both layers have a bias"
    segments, at, is_next = 1 - REAL.long(), torch.tensor([8, 1]), torch.tensor([1, 0])
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
    assert all(loss.requires_grad for loss in m(batch)), "a loss has lost its gradient"
