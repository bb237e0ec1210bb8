"""Mistakes in the lab on byte-pair encoding: check, code, its wrong form, words of the message."""

MISTAKES = [
    ("count_pairs", "+= frequencies[word]", "+= 1", "each word is counted once"),
    ("count_pairs", "in pairwise(symbols)", "in set(pairwise(symbols))", "is counted once"),
    (
        "merge",
        "(merged[-1], symbol) == pair",
        "merged[-1] + symbol == pair[0] + pair[1]",
        "spelled",
    ),
    ("merge", "== pair:", "== pair and pair[0] + pair[1] not in merged:", "every occurrence"),
    ("learn", "        words = {word: merge", "        after = {word: merge", "count again"),
    ("learn", "max(counts, key", "max(reversed(counts), key", "take the first"),
    (
        "apply_merges",
        "for pair in merges:",
        "for pair in merges[::-1]:",
        "in the order of learning",
    ),
    (
        "byte_bpe",
        'return joined.decode("utf-8", "replace")',
        'return "".join(self.tokens[i].decode("utf-8", "replace") for i in ids)',
        "join the bytes",
    ),
    ("byte_bpe", "PATTERN.findall(text)", "[text]", "inside the parts that PATTERN cuts"),
    ("byte_bpe", "PATTERN.findall(text):", "[text]:", "Look at: to_bytes"),
    ("merge_some", "min(possible)", "possible[0]", "learned earliest"),
    (
        "merge_some",
        "symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]",
        "symbols = merge(symbols, (symbols[i], symbols[i + 1]))",
        "not all of a pair",
    ),
    ("merge_some", "rng.random() >= p", "__import__('random').random() >= p", "draws of 0.1"),
    ("merge_some", "rng.random() >= p", "rng.random() < p", "not to keep it"),
]
