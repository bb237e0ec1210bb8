"""Mistakes in the lab on BERT: check, code, its wrong form, words of the message."""

SHOWN = "return torch.where(chosen, seen, ids), chosen"
HEADS = "p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)"
SUM = "self.tokens(ids) + self.segments(segments) + self.positions(positions)"
FIRST = "x = self.attention_norm(x + self.dropout(self.attention(x, real)))"
SECOND = "return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))"
PRE_NORM = """x = x + self.attention(self.attention_norm(x), real)
        return x + self.feed_forward(self.feed_forward_norm(x))"""
BLOCKS = "[Block(d_model, n_heads, dropout) for _ in range(n_layers)]"
TOKENS = "y @ self.bert.tokens.weight.T"
LOSS = "F.cross_entropy(model(seen, chosen), ids[chosen])"
MISTAKES = [
    ("hide", "(ids >= 5) & ", "", "special tokens are chosen"),
    ("hide", "mix[0] + mix[1]", "mix[0] + mix[2]", "in this order"),
    ("hide", "chance < mix[0] + mix[1]", "torch.rand(ids.shape) < mix[1]", "that [MASK] leaves"),
    (
        "hide",
        SHOWN,
        "x = torch.where(chosen, seen, ids); return x, x != ids",
        "unchanged are chosen",
    ),
    ("hide", "torch.randint(5, len", "torch.randint(0, len", "draw from 5 on"),
    ("hide", "torch.rand(ids.shape) < 0.15", "torch.rand(ids.shape) > 0.15", "not 85 %"),
    ("attention", "[:, None, None, :]", "[:, None, :, None]", "mask the keys"),
    ("attention", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])", "not of d_model"),
    ("attention", " / math.sqrt(q.shape[-1])", "", "the square root of d_head ("),
    ("attention", HEADS, "p.reshape(len(x), self.n_heads, x.shape[1], -1)", "not of positions"),
    ("attention", "scores.masked_fill(", "scores.masked_fill(~scores.bool().tril() |", "no causal"),
    ("block", "gelu(self.up(x))", "gelu(self.up(x), approximate='tanh')", "the exact GELU"),
    ("block", "gelu(self.up", "relu(self.up", "not ReLU"),
    ("block", "norm(x + self.dropout(", "norm(self.dropout(", "add the input of each"),
    ("block", "norm(x + self", "norm(self.dropout(x) + self", "not from the sums"),
    ("block", f"{FIRST}\n        {SECOND}", PRE_NORM, "not before the sublayer"),
    ("body", SUM, SUM.replace(" + self.segments(segments)", ""), "add the segment's vector"),
    (
        "body",
        "nn.Embedding(2, d_model)",
        "nn.Embedding(2, d_model, padding_idx=0)",
        "no padding_idx",
    ),
    ("body", BLOCKS, "[Block(d_model, n_heads, dropout)] * n_layers", "a Block of its own"),
    ("body", "real=ids != PAD", "real=ids >= 0", "real=ids != PAD"),
    ("head", "F.gelu(self.transform(states))", "self.transform(states)", "GELU comes after"),
    ("head", TOKENS, "y @ self.bert.tokens.weight.detach().T", "no gradient as output"),
    ("head", "self.bert(ids)[chosen]", "self.bert(ids)", "not of all"),
    ("loss", "(nn.Linear, nn.Embedding)", "nn.Linear", "draw the embeddings too"),
    ("loss", "std=0.02", "std=0.02**0.5", "not the variance"),
    ("loss", "model.modules()", "model.children()", "inside of other modules"),
    ("loss", LOSS, "F.cross_entropy(model(seen, chosen), seen[chosen])", "the true words, not"),
    ("loss", LOSS, "F.cross_entropy(model(seen, ids > 4), ids[ids > 4])", "only chosen positions"),
    ("pairs", "if p is not here]", "]", "from another paragraph"),
    ("pairs", "for sentence in p[1:]]", "for sentence in p]", "never the first"),
    (
        "pairs",
        "sentence for p in elsewhere for",
        "sentence for p in [rng.choice(elsewhere)] for",
        "all sentences alike",
    ),
    ("both", "follows, 1 - batch.is_next", "follows, batch.is_next", "the class is 1 - is_next"),
    ("both", "(states[:, 0]).tanh()", "(states[:, 0])", "ends in tanh"),
    ("both", "self.bert(batch.ids, batch.segments)", "self.bert(batch.ids)", "give the segments"),
    ("both", "states[:, 0]", "states.mean(1)", "not the mean"),
]
