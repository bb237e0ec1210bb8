"""Mistakes in the lab on GPT: check, code, its wrong form, words of the message."""

MISTAKES = [
    ("attention", " / math.sqrt(q.shape[-1])  # (B, H, T, T)", "", "square root of d_head"),
    ("attention", "dtype=torch.bool).tril()", "dtype=torch.bool).tril(1)", "the next position too"),
    (
        "attention",
        "self.out((weights @ v).transpose(1, 2).flatten(2))",
        "self.out((weights @ v).reshape(x.shape))",
        "swap heads and positions back",
    ),
    ("model", ', approximate="tanh"', "", "use GELU's approximation"),
    (
        "model",
        "self.tokens(ids) + self.positions(positions)",
        "self.tokens(ids)",
        "add the position",
    ),
    (
        "model",
        "self.final_norm(x) @ self.tokens.weight.T  # (B, T, V) logits",
        "x @ self.tokens.weight.T",
        "end with the final norm",
    ),
    ("initial_weights", "math.sqrt(2 * n_layers)", "math.sqrt(n_layers)", "two additions a layer"),
    ("initial_weights", "math.sqrt(768 / d_model)", "1", "scale the token embeddings"),
    ("initial_weights", 'if name.endswith("bias")', "if weight.dim() == 1", "gains of the norms"),
    ("sampling", "logits / temperature", "logits * temperature", "divide the logits"),
    (
        "sampling",
        "p[order].cumsum(0) - p[order]",
        "p[order].cumsum(0)",
        "with which the sum reaches",
    ),
    ("sampling", "        p = p / p.sum()\n", "", "after top_k, before top_p"),
    (
        "cache",
        "if cache:\n",
        "if False:\n",
        "append the new key and value",
    ),
    ("cache", 'past = caches[0]["k"].shape[2] if caches[0] else 0', "past = 0", "not 0"),
    (
        "cache",
        "block.attention_norm(x), cache)",
        "block.attention_norm(x), caches[0])",
        "of its own",
    ),
    ("norm_and_gate", "x.square().mean(", "x.square().sum(", "not of the sum"),
    (
        "norm_and_gate",
        "F.silu(self.gate(x)) * self.up(x)",
        "self.gate(x) * F.silu(self.up(x))",
        "to gate",
    ),
    (
        "rotary",
        "a * cos - b * sin, a * sin + b * cos",
        "a * cos + b * sin, b * cos - a * sin",
        "other way",
    ),
    (
        "rotary",
        "torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)",
        "(lambda a, b: torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2))("
        "x[..., ::2], x[..., 1::2])",
        "not two neighbors",
    ),
    ("grouped_queries", "(rotate(k), v)", "(rotate(k), rotate(v))", "do not rotate the values"),
    ("grouped_queries", "is_causal=True)", "is_causal=False)", "hide later positions"),
]
