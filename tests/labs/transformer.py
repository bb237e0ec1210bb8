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
CROSS = "self.cross_attention(y, memory, memory_mask)"
MISTAKES = [
    ("causal", " / math.sqrt(q.shape[-1])", "", "by the square root of d"),
    ("causal", "scores.softmax(dim=-1)", "scores.softmax(dim=1)", "over the keys"),
    ("causal", "device=device).tril()", "device=device).tril(1)", "hide the next position"),
    ("causal", "device=device).tril()", "device=device).triu()", "rows attend"),
    ("causal", HIDDEN, "scores = scores.tril()", "minus infinity"),
    ("causal", WEIGHTS, "self.weights = scores.softmax(-1).tril()", "before the softmax"),
    ("multi_head", SPLIT, "x.reshape(len(x), self.n_heads, x.shape[1], -1)", "heads first"),
    ("multi_head", "math.sqrt(d_model // n_heads)", "math.sqrt(d_model)", "d_model / n_heads"),
    ("multi_head", "masked_fill(~mask", "masked_fill(mask", "what is false in the mask"),
    ("multi_head", "self.value(memory)", "self.value(x)", "take values from the memory"),
    ("block", "correction=0", "correction=1", "not by d_model - 1"),
    (
        "block",
        "return x + self.dropout(self.feed",
        "return self.dropout(self.feed",
        "add the input",
    ),
    ("block", "self.attention(y, mask=mask)", "self.attention(y)", "pass the mask"),
    ("block", BLOCK, POST, "not after the addition"),
    ("positions", "-torch.arange(0, d_model, 2)", "-torch.arange(d_model // 2)", "the exponent"),
    ("positions", "self.positions[: ids.shape[1]]", "self.positions[ids]", "not on the token"),
    ("positions", 'self.register_buffer("positions", ', "self.positions = nn.Parameter(", "only"),
    ("decoder", CROSS, "self.cross_attention(y)", "from the memory"),
    ("decoder", "causal_mask(ids.shape[1], ids.device) if self.causal else None", "None", "causal"),
    ("decoder", "return self.final_norm(x)\n", "return x\n", "final norm"),
    ("whole", "self.decoder(target, memory, mask)", "self.decoder(target, memory)", "cross-att"),
    ("whole", "return written[:, 1:]", "return written", "START left out"),
    ("whole", ", ignore_index=PAD", "", "padding in the target"),
    ("whole", "(logits, target[:, 1:]", "(logits, target[:, :-1]", "the next token"),
]
