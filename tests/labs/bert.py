"""Mistakes in the lab on BERT: check, code, its wrong form, words of the message."""

CHOSEN = "return torch.where(chosen, seen, ids), chosen"
CHANGED = "x = torch.where(chosen, seen, ids); return x, x != ids"
ONCE = "chance, drawn = torch.rand(len(ids), 1)"
HEADS = "p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)"
FIRST = "x = self.attention_norm(x + self.dropout(self.attention(x, real)))"
SECOND = "return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))"
PRE_NORM = """x = x + self.attention(self.attention_norm(x), real)
        return x + self.feed_forward(self.feed_forward_norm(x))"""
BLOCKS = "[Block(d_model, n_heads, dropout) for _ in range(n_layers)]"
LAYERS = "x = layer(x, real=ids != PAD)\n        return x"
TIED = "self.bert.tokens.weight.T"
LOSS = "F.cross_entropy(model(seen, chosen), ids[chosen])"
MISTAKES = [
    ("hide", "(ids >= 5) & ", "", "special tokens are chosen"),
    ("hide", "mix[0] + mix[1]", "mix[0] + mix[2]", "in this order"),
    ("hide", CHOSEN, CHANGED, "unchanged are chosen"),
    ("hide", "torch.randint(5, len", "torch.randint(0, len", "from 5 to len(vocab) - 1"),
    ("hide", "(ids >= 5)", "(ids > 5)", "choose if ids >= 5"),
    ("hide", CHOSEN, "ids[chosen] = seen[chosen]; return ids, chosen", "change a copy"),
    ("hide", "chance, drawn = torch.rand(ids.shape)", ONCE, "show each chosen word by a draw"),
    ("attention", HEADS, HEADS.removesuffix(".transpose(1, 2)"), "H before T"),
    ("attention", "[:, None, None, :]", "[:, None, :, None]", "mask the keys"),
    ("attention", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])", "not of d_model"),
    ("attention", HEADS, "p.reshape(len(x), self.n_heads, x.shape[1], -1)", "not of positions"),
    ("body", "gelu(self.up(x))", "gelu(self.up(x), approximate='tanh')", "the exact GELU"),
    ("body", "norm(x + self.dropout(", "norm(self.dropout(", "add the input of each"),
    ("body", f"{FIRST}\n        {SECOND}", PRE_NORM, "not before the sublayer"),
    ("body", BLOCKS, "[Block(d_model, n_heads, dropout)] * n_layers", "each of its own"),
    ("body", BLOCKS, BLOCKS.replace("n_heads", "n_layers"), "unflatten"),
    ("body", LAYERS, LAYERS.replace("x =", "y =").replace("n x", "n y"), "before returned"),
    ("body", "self.segments(segments) +", "", "add the segment's vector"),
    ("body", "real=ids != PAD", "real=ids >= 0", "real=ids != PAD"),
    ("loss", "F.gelu(self.transform(states))", "self.transform(states)", "use GELU"),
    ("loss", TIED, "self.bert.tokens.weight.detach().T", "no gradient as output"),
    ("loss", "std=0.02", "std=0.02**0.5", "not the variance"),
    (
        "loss",
        "(nn.Linear, nn.Embedding)",
        "(nn.Linear, nn.Embedding, nn.LayerNorm)",
        "LayerNorm (w, b): expected",
    ),
    ("loss", LOSS, "F.cross_entropy(model(seen, chosen), seen[chosen])", "the true words"),
    ("loss", LOSS, "F.cross_entropy(model(seen, ids > 4), ids[ids > 4])", "only chosen positions"),
    ("loss", f"{LOSS}[None]", f"torch.tensor([{LOSS}.item()])", "no .item()"),
    ("both", "for here in", "rng.shuffle(paragraphs)\n    for here in", "stay as they are"),
    ("both", "return loss_of_words, F", "return loss_of_words.detach(), F", "lost its gradient"),
    ("both", "for sentence in p[1:]]", "for sentence in p]", "never the first"),
    ("both", "follows, 1 - batch.is_next", "follows, batch.is_next", "the class is 1 - is_next"),
    ("both", "(states[:, 0]).tanh()", "(states[:, 0])", "ends in tanh"),
    ("both", "states[:, 0]", "states.mean(1)", "not the mean"),
]
