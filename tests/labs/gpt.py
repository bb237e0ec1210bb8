"""Mistakes in the lab on GPT: check, code, its wrong form, words of the message."""

MISTAKES = [
    ("attention", " / math.sqrt(q.shape[-1])  # (B, H, T, T)", "", "square root of d_head"),
    ("attention", "scores.masked_fill(~allowed, -math.inf)", "scores", "hide later positions"),
    (
        "attention",
        "self.out((weights @ v).transpose(1, 2).flatten(2))",
        "self.out((weights @ v).reshape(x.shape))",
        "swap heads and positions back",
    ),
    ("model", ', approximate="tanh"', "", "use GELU's approximation"),
    (
        "model",
        "self.final_norm = nn.LayerNorm(d_model)",
        "self.final_norm, self.output = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)",
        "the token embeddings are the output layer",
    ),
    ("model", "math.sqrt(2 * n_layers)", "math.sqrt(n_layers)", "two additions a layer"),
    ("model", "math.sqrt(768 / d_model)", "1", "scale the token embeddings"),
    ("model", 'if name.endswith("bias")', "if weight.dim() == 1", "gains of the norms"),
    ("sampling", "logits / temperature", "logits * temperature", "divide the logits"),
    ("sampling", "p[order].cumsum(0) - p[order]", "p[order].cumsum(0)", "the sum reaches"),
    ("sampling", "        p = p / p.sum()\n", "", "after top_k, before top_p"),
    ("cache", "if cache:\n", "if False:\n", "append the new key and value"),
    ("cache", 'past = caches[0]["k"].shape[2] if caches[0] else 0', "past = 0", "not 0"),
    ("cache", "block.attention_norm(x), cache)", "block.attention_norm(x), caches[0])", "its own"),
    ("norm_and_gate", "x.square().mean(", "x.square().sum(", "not of the sum"),
    (
        "norm_and_gate",
        "mean_square = x.square()",
        "x = x - x.mean(-1, True)\n        mean_square = x.square()",
        "do not subtract the mean",
    ),
    (
        "norm_and_gate",
        "F.silu(self.gate(x)) * self.up(x)",
        "self.gate(x) * F.silu(self.up(x))",
        "to gate",
    ),
    ("rotary_groups", "angles.cos(), angles.sin()", "angles.cos(), -angles.sin()", "other way"),
    ("rotary_groups", "(rotate(k), v)", "(rotate(k), rotate(v))", "do not rotate the values"),
    (
        "rotary_groups",
        "y.repeat_interleave(self.group, dim=1)",
        "y.repeat(1, self.group, 1, 1)",
        "share",
    ),
]
