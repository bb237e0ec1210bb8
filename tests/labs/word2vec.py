"""Mistakes in the lab on word2vec: check, code, its wrong form, words of the message."""

EMBEDDING = "self.context = nn.Embedding(vocab_size, dim)"
START, END = "sentence[max(0, i - size) : i]", "sentence[i + 1 : i + 1 + size]"
ALIKE = "[w for w in sentence[max(0, i - size) : i + 1 + size] if w != center]"
KEPT = "context = kept[max(0, i - reach) : i] + kept[i + 1 : i + 1 + reach]"
AFTER = """j = sentence.index(center)
            context = sentence[max(0, j - reach) : j] + sentence[j + 1 : j + 1 + reach]
            context = [w for w in context if w in kept]"""
ROOT = "np.sqrt(threshold / fraction)"
ZERO = "        nn.init.zeros_(self.context.weight)\n"
LOSS = "(each * mask).sum() / labels.sum()"
KINDS = (
    "(each * labels).sum() / labels.sum() + (each * (mask - labels)).sum() / (mask - labels).sum()"
)
BCE = 'F.binary_cross_entropy_with_logits(scores, labels, reduction="none")'
TWICE = "length = max(len(near + draw_noise(near, noise_words * len(near))) for _, near in rows)"
SCALED = "unit = table.detach()\n    unit /= unit.norm(dim=1, keepdim=True)"
NUMBER = "for word in sentence if random.random() < keep[word]]"
LEFT = "i for i in range(len(vocab)) if i not in true_words"
OTHERS = f"""words = [{LEFT}]
    drawn = random.choices(words, cum_weights=[cumulative[i] for i in words], k=2 * n)"""
DRAWN = "drawn = random.choices(range(len(vocab)), cum_weights=cumulative, k=2 * n)"
NAIVE = "-torch.where(labels > 0, scores.sigmoid(), 1 - scores.sigmoid()).log()"

MISTAKES = [
    (
        "windows",
        START + "\n        yield",
        "sentence[i - size : i]\n        yield",
        "max(0, i - size)",
    ),
    ("windows", END + "\n", "sentence[i + 1 : i + size]\n", "up to i + 1 + size"),
    ("windows", "before + " + END, ALIKE, "leave out the center's position"),
    ("windows", "before + " + END, "before", "expected 'a:bca"),
    ("subsampling", f"np.minimum(1, {ROOT})", ROOT, "at most 1"),
    ("subsampling", ROOT, "threshold / fraction", "take the square root"),
    ("subsampling", "            if context:\n", "            if 1:\n", "no context word"),
    ("subsampling", "< keep[word]]", ">= keep[word]]", "and 1, 5, …: expected"),
    ("subsampling", "reach = random.randint(1, size)", "reach = size", "draw the reach"),
    ("subsampling", KEPT, AFTER, "before the windows are formed"),
    (
        "subsampling",
        "            if context:\n",
        "            if len(context) > 1:\n",
        "keep short rows",
    ),
    (
        "subsampling",
        NUMBER,
        "for r in [random.random()] " + NUMBER.replace("random.random()", "r"),
        "[(0, [1]),",
    ),
    ("subsampling", "kept = [word", "sentence[:] = kept = [word", "sentences must stay"),
    ("subsampling", "randint(1, size)", "randrange(1, size)", "Look at: f is counts"),
    (
        "skip_gram",
        "nn.init.normal_(self.center.weight, std=0.01)",
        ZERO.replace("context", "center").strip(),
        "all gradients are 0",
    ),
    ("skip_gram", ZERO, "", "the context vectors start at 0"),
    (
        "skip_gram",
        "v @ self.context.weight.T",
        "v @ self.center.weight.T",
        "by the context vectors",
    ),
    ("skip_gram", "self.context.weight.T", "self.context.weight.data.T", "no .data or detach()"),
    ("skip_gram", EMBEDDING, "self.context = self.center", "make two nn.Embedding"),
    ("noise", "counts**0.75", "counts", "power of 0.75"),
    ("noise", "cum_weights=cumulative", "weights=cumulative", "not weights"),
    ("noise", "if word not in true_words", "if True", "drop all words in true_words"),
    ("noise", "k=2 * n)", "k=n)", "draw 2 * n words"),
    ("noise", "k=2 * n)", "k=2 * len(true_words))", "whatever true_words holds"),
    ("noise", DRAWN, OTHERS, "of what is left without 0, 3"),
    ("pad", "length = max(map(len, words))", TWICE, "just one call a row"),
    ("pad", "noise_words * len(near))", "noise_words)", "for each context word"),
    ("pad", "(position < n_real).float()", "(candidates != 0).float()", "from the lengths"),
    ("pad", "(position < n_real).float()", "(position < n_true).float()", "noise words are real"),
    ("pad", "[near + extra for", "[near.extend(extra) or near for", "the label of noise is 0"),
    ("negative_sampling", LOSS, "each.sum() / labels.sum()", "padding has no loss"),
    ("negative_sampling", LOSS, "(each * mask).sum() / mask.sum()", "divide by the true pairs"),
    ("negative_sampling", LOSS, "(each * mask).sum(1).mean()", "four noise words: expected"),
    ("negative_sampling", "v[:, None]).sum(2)", "v[:, None]).sum(2).squeeze()", "of one center"),
    ("negative_sampling", LOSS, KINDS, "divided once by labels.sum()"),
    ("negative_sampling", "self.context(candidates)", "self.center(candidates)", "in self.context"),
    (
        "negative_sampling",
        "(u * v[:, None])",
        "(u * v.detach()[:, None])",
        "no detach() in forward",
    ),
    ("negative_sampling", LOSS, f"({LOSS}).detach()", "the loss has no gradient"),
    ("negative_sampling", BCE, NAIVE, "large scores: use logsigmoid"),
    ("analogy", "    similar[[a, b, c]] = -torch.inf\n", "", "no answer"),
    ("analogy", "F.normalize(table.detach(), dim=1)", "table.detach()", "each row to length 1"),
    ("analogy", "unit[b] - unit[a] + unit[c]", "unit[b] + unit[a] - unit[c]", "take a away"),
    ("analogy", "unit[b] - unit[a]", "unit[b] + unit[a]", "take a away (a : b"),
    ("analogy", "unit = F.normalize(table.detach(), dim=1)", SCALED, "into a new tensor"),
    ("analogy", "(unit[b] - unit[a] + unit[c])", "(unit[a] - unit[b] + unit[c])", "b minus a"),
]
