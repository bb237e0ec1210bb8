"""Mistakes in the lab on GPT: check, code, its wrong form, words of the message."""

APPEND = """    if cache:
        k, v = torch.cat([cache["k"], k], dim=2), torch.cat([cache["v"], v], dim=2)"""
RAW = """    cache["x"] = torch.cat([cache["x"], x], dim=1) if cache else x
    _, k, v = attention.heads(cache["x"])"""
MISTAKES = [
    ("attention", " / math.sqrt(q.shape[-1])  # (B, H, T, T)", "", "square root of d_head"),
    ("attention", "scores.masked_fill(~allowed, -math.inf)", "scores", "hide later positions"),
    (
        "attention",
        "self.out((weights @ v).transpose(1, 2).flatten(2))",
        "self.out((weights @ v).reshape(x.shape))",
        "swap heads and positions back",
    ),
    ("attention", ".transpose(1, 2) for p in parts", " for p in parts", "H before T"),
    ("model", ', approximate="tanh"', "", "use GELU's approximation"),
    (
        "model",
        "self.final_norm = nn.LayerNorm(d_model)",
        "self.final_norm, self.output = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)",
        "no output.bias: the output layer is tokens",
    ),
    ("model", "math.sqrt(2 * n_layers)", "math.sqrt(n_layers)", "two additions a layer"),
    ("model", "math.sqrt(768 / d_model)", "1", "scale the token embeddings"),
    ("model", 'if name.endswith("bias")', "if weight.dim() == 1", "gains of the norms"),
    ("model", "elif weight.dim() == 2", 'elif "up" not in name and weight.dim() == 2', "up.weight"),
    ("model", "d_model, n_layers = ", "model.layers[0].attention.qkv; d_model, n_layers = ", "qkv"),
    ("model", "self.dropout(self.tokens(ids) + self", "(self.tokens(ids) + self", "is dropout"),
    ("model", "for _ in range(n_layers)]", "] * n_layers", "the same tensor as another"),
    ("model", "Block(d_model, n_heads, dropout)", "Block(d_model, n_layers, dropout)", "unflatten"),
    ("model", "nn.Dropout(dropout)", "nn.Dropout()", "dropout, as given"),
    ("sampling", "    if top_p", "    elif top_p", "if, not elif"),
    ("sampling", "(logits / t", "logits.div_(t", "logits stay as they are"),
    ("sampling", "logits / temperature", "logits * temperature", "divide the logits"),
    ("sampling", "p[order].cumsum(0) - p[order]", "p[order].cumsum(0)", "the sum reaches"),
    ("sampling", "        p = p / p.sum()\n", "", "after top_k, before top_p"),
    ("cache", "if cache:\n", "if False:\n", "append the new key and value"),
    ("cache", 'past = caches[0]["k"].shape[2] if caches[0] else 0', "past = 0", "not 0"),
    ("cache", "block.attention_norm(x), cache)", "block.attention_norm(x), caches[0])", "its own"),
    ("cache", APPEND, RAW, "cache k and v, not x"),
    ("norm_and_gate", "torch.ones(d_model)", "torch.ones(1)", "torch.ones(d_model)"),
    ("norm_and_gate", "x * torch.rsqrt(", "x.mul_(1) * torch.rsqrt(", "x stays as it is"),
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
    ("rotary_groups", "T, d = x.shape[-2:]", "x *= 1; T, d = x.shape[-2:]", "in a new tensor"),
    ("rotary_groups", "angles.cos(), angles.sin()", "angles.cos(), -angles.sin()", "other way"),
    ("rotary_groups", "(rotate(k), v)", "(rotate(k), rotate(v))", "do not rotate the values"),
    (
        "rotary_groups",
        "y.repeat_interleave(self.group, dim=1)",
        "y.repeat(1, self.group, 1, 1)",
        "share",
    ),
]
