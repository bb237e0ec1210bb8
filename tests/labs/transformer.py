"""Mistakes in the lab on the Transformer: check, code, its wrong form, words of the message."""

SPLIT = "x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)"
HIDDEN = "scores = scores.masked_fill(~causal_mask(x.shape[1]), -torch.inf)"
WEIGHTS = f"{HIDDEN}\n        self.weights = scores.softmax(dim=-1)"
BLOCK = """        y = self.attention_norm(x)
        x = x + self.dropout(self.attention(y, mask=mask))
        y = self.feed_forward_norm(x)
        return x + self.dropout(self.feed_forward(y))
        ### END SOLUTION"""
POST = """        x = self.attention_norm(x + self.attention(x, mask=mask))
        return self.feed_forward_norm(x + self.feed_forward(x))"""
NORMED = """        x = self.attention_norm(x)
        x = self.feed_forward_norm(x + self.attention(x, mask=mask))
        return x + self.feed_forward(x)"""
CROSS = "self.cross_attention(y, memory, memory_mask)"
PAD = "mask = (source != PAD)"
LEFT = "self(source, written)[:, -1]"
DROP = "    x = x + self.dropout(self.cross_attention(y, memory, memory_mask))"

MISTAKES = [
    ("causal", " / math.sqrt(q.shape[-1])", "", "by the square root of d"),
    ("causal", "scores.softmax(dim=-1)", "scores.softmax(dim=1)", "over the keys"),
    ("causal", "device=device).tril()", "device=device).tril(1)", "hide the next position"),
    ("causal", "device=device).tril()", "device=device).triu()", "rows attend"),
    ("causal", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])", "d_in = 6, d = 4: expected"),
    ("causal", "math.sqrt(q.shape[-1])", "math.sqrt(x.shape[1])", "not of d_in or of T"),
    ("causal", "d, bias=False)", "d)", "no biases"),
    ("causal", "self.weights = scores", "self.kept = weights = scores", "'weights'"),
    ("causal", "(length, length, dtype=torch.bool", "(length, length", "a mask is boolean"),
    ("causal", HIDDEN, "scores = scores.tril()", "minus infinity"),
    ("causal", WEIGHTS, "self.weights = scores.softmax(-1).tril()", "before the softmax"),
    (
        "causal",
        WEIGHTS,
        WEIGHTS.replace("self.weights", "weights = self.kept"),
        "'CausalAttention' object has no attribute 'weights'",
    ),
    ("multi_head", SPLIT, "x.reshape(len(x), self.n_heads, x.shape[1], -1)", "heads first"),
    ("multi_head", "math.sqrt(d_model // n_heads)", "math.sqrt(d_model)", "d_model / n_heads"),
    ("multi_head", "masked_fill(~mask", "masked_fill(mask", "what is false in the mask"),
    ("multi_head", "self.value(memory)", "self.value(x)", "take values from the memory"),
    (
        "multi_head",
        "self.dropout(self.weights) @ v",
        "(w := self.dropout(self.weights)) @ v\n        self.weights = w",
        "before dropout",
    ),
    (
        "multi_head",
        "nn.Linear(d_model, d_model)",
        "nn.Linear(d_model, d_model, bias=False)",
        "four biases",
    ),
    ("block", "correction=0", "correction=1", "not by d_model - 1"),
    (
        "block",
        "return x + self.dropout(self.feed",
        "return self.dropout(self.feed",
        "add the input",
    ),
    ("block", "self.attention(y, mask=mask)", "self.attention(y)", "pass the mask"),
    ("block", "y = self.attention_norm(x)\n        x = x +", "y = x\n        x +=", "no x -="),
    ("block", BLOCK, POST, "not after the addition"),
    ("block", BLOCK, NORMED, "not to norm(x)"),
    (
        "block",
        "feed_forward_norm = nn.LayerNorm(d_model)",
        "feed_forward_norm = self.attention_norm",
        "one norm",
    ),
    ("positions", "-torch.arange(0, d_model, 2)", "-torch.arange(d_model // 2)", "the exponent"),
    ("positions", "self.positions[: ids.shape[1]]", "self.positions[ids]", "not on the token"),
    ("positions", "self.dropout(self.tokens(ids)", "(self.tokens(ids)", "dropout of the sum"),
    ("positions", 'self.register_buffer("positions", ', "self.positions = nn.Parameter(", "only"),
    ("decoder", CROSS, "self.cross_attention(y)", "from the memory"),
    ("decoder", "causal_mask(ids.shape[1], ids.device) if self.causal else None", "None", "causal"),
    ("decoder", "if self.causal else None", "", "causal = False: expected"),
    ("decoder", CROSS, "self.cross_attention(y, memory)", "pass memory_mask"),
    (
        "decoder",
        CROSS,
        CROSS.replace("y, memory", "y, self.cross_norm(memory)", 1),
        "not the memory",
    ),
    ("decoder", DROP, DROP.replace("self.dropout", ""), "dropout of all three outputs"),
    ("decoder", "            x = layer(x, mask)", "            x = layer(x)", "blocks with mask"),
    ("decoder", "return self.final_norm(x)\n", "return x\n", "final norm"),
    (
        "whole",
        "self.decoder(target, memory, mask)",
        "self.decoder(target, memory)",
        "cross-attention",
    ),
    ("whole", "self.encoder(source, mask)", "self.encoder(source)", "from the encoder"),
    ("whole", f"{PAD}[:, None, None]", f"{PAD}[:, None]", "padded sources: expected"),
    ("whole", PAD, "mask = (source == PAD)", "true where not PAD"),
    ("whole", LEFT, "self(source, written[:, -1:])[:, -1]", "feed all that is written"),
    ("whole", LEFT, "self(source, written[:, :1])[:, -1]", "five tokens"),
    (
        "whole",
        ".flatten(), ignore_index=PAD)",
        ".flatten(), ignore_index=PAD).item()",
        "a gradient",
    ),
    ("whole", "return written[:, 1:]", "return written", "START left out"),
    ("whole", ", ignore_index=PAD", "", "padding has no loss"),
    ("whole", "(logits, target[:, 1:]", "(logits, target[:, :-1]", "the next token"),
]
