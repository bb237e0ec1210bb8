"""Mistakes in the lab on word2vec: check, code, its wrong form, words of the message."""

MISTAKES = [
    (
        "windows",
        "sentence[max(0, i - size) : i]\n        yield",
        "sentence[i - size : i]\n        yield",
        "a negative index",
    ),
    (
        "windows",
        "sentence[i + 1 : i + 1 + size]\n",
        "sentence[i + 1 : i + size]\n",
        "up to i + 1 + size",
    ),
    (
        "windows",
        "yield center, before + sentence[i + 1 : i + 1 + size]",
        "yield center, [w for w in sentence[max(0, i - size) : i + 1 + size] if w != center]",
        "not every word that equals it",
    ),
    (
        "subsampling",
        "np.minimum(1, np.sqrt(threshold / fraction))",
        "np.sqrt(threshold / fraction)",
        "at most 1",
    ),
    (
        "subsampling",
        "np.sqrt(threshold / fraction)",
        "threshold / fraction",
        "take the square root",
    ),
    (
        "subsampling",
        "            if context:\n                rows",
        "            if 1:\n                rows",
        "no context word",
    ),
    (
        "subsampling",
        "random.random() < keep[word]]",
        "random.random() >= keep[word]]",
        "not to drop it",
    ),
    (
        "subsampling",
        "reach = random.randint(1, size)",
        "reach = size",
        "draw the reach of each window",
    ),
    (
        "subsampling",
        "context = kept[max(0, i - reach) : i] + kept[i + 1 : i + 1 + reach]",
        "j = sentence.index(center)\n"
        "            near = sentence[max(0, j - reach) : j] + sentence[j + 1 : j + 1 + reach]\n"
        "            context = [w for w in near if w in kept]",
        "before the windows are formed",
    ),
    (
        "skip_gram",
        "nn.init.normal_(self.center.weight, std=0.01)",
        "nn.init.zeros_(self.center.weight)",
        "all gradients are 0",
    ),
    (
        "skip_gram",
        "        nn.init.zeros_(self.context.weight)\n",
        "",
        "the context vectors start at 0",
    ),
    (
        "skip_gram",
        "v @ self.context.weight.T",
        "v @ self.center.weight.T",
        "by the context vectors, not",
    ),
    ("noise", "counts**0.75", "counts", "to the power of 0.75"),
    ("noise", "cum_weights=cumulative", "weights=cumulative", "not as weights"),
    ("noise", "if word not in true_words", "if True", "words of the window are no noise"),
    ("noise", "k=2 * n)", "k=n)", "draw 2 * n words"),
    ("pad", "noise_words * len(near))", "noise_words)", "for each context word"),
    ("pad", "(position < n_real).float()", "(candidates != 0).float()", "from the lengths"),
    (
        "pad",
        "(position < n_true).float(), (p",
        "(position < n_real).float(), (p",
        "the label of a noise word",
    ),
    ("pad", "[near + extra for", "[near.extend(extra) or near for", "make new lists"),
    (
        "negative_sampling",
        "(each * mask).sum() / labels.sum()",
        "each.sum() / labels.sum()",
        "padding has no loss",
    ),
    (
        "negative_sampling",
        "(each * mask).sum() / labels.sum()",
        "(each * mask).sum() / mask.sum()",
        "not of real entries",
    ),
    (
        "negative_sampling",
        "(each * mask).sum() / labels.sum()",
        "(each * mask).sum(1).mean()",
        "not by that of centers",
    ),
    (
        "negative_sampling",
        "u = self.context(candidates)",
        "u = self.center(candidates)",
        "looked up in self.context",
    ),
    (
        "negative_sampling",
        'F.binary_cross_entropy_with_logits(scores, labels, reduction="none")',
        "-torch.where(labels > 0, scores.sigmoid(), 1 - scores.sigmoid()).log()",
        "scores of 1000",
    ),
    ("analogy", "    similar[[a, b, c]] = -torch.inf\n", "", "no answer"),
    (
        "analogy",
        "unit = F.normalize(table.detach(), dim=1)\n    a, b",
        "unit = table.detach()\n    a, b",
        "length 1",
    ),
    ("analogy", "(unit[b] - unit[a] + unit[c])", "(unit[a] - unit[b] + unit[c])", "b minus a"),
]
