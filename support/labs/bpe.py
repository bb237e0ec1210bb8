"""The lab on byte-pair encoding."""

from random import Random
from types import SimpleNamespace

from support.labs import expect
from support.text.bpe import BPETokenizer

FREQUENCIES = {"fast_": 4, "faster_": 3, "tall_": 5, "taller_": 4}
MERGES = [*map(tuple, map(str.split, "t a,ta l,tal l,f a,fa s,fas t,e r,er _,tall _".split(",")))]


def count_pairs(count_pairs):
    """Words whose symbols are merged in part, one with the same pair twice.

    the symbols in the list words[word], not the letters of the word; a tuple (symbol, symbol) as
    the key, not the joined string; each count added to the one of the words before, not put in
    its place
    """
    words, times = {"anan": ["an", "an"], "nana": ["n", "an", "an", "an"]}, {"anan": 2, "nana": 3}
    wrong = {
        "each word is counted once: add its frequency": {("an", "an"): 3, ("n", "an"): 1},
        "a pair that occurs twice in a word is counted once": {("an", "an"): 5, ("n", "an"): 3},
    }
    right = {("an", "an"): 8, ("n", "an"): 3}
    expect(dict(count_pairs(words, times)), right, f"{words}, {times}", wrong)


def merge(merge):
    """Overlapping pairs, several occurrences, symbols that spell the same.

    the second symbol of a joined pair, which is skipped; the last symbol, which is kept where it
    is in no pair; symbols compared with ==, one by one; + to join them, which works for bytes,
    too
    """
    for symbols, pair, right, wrong in (
        ("a a a b", "a a", "aa a b", {"read from left to right": "a aa b"}),
        ("a a a b", "a a", "aa a b", {"each symbol is used once": "aa aa b"}),
        ("a b c a b", "a b", "ab c ab", {"join every occurrence, not the first alone": "ab c a b"}),
        ("a bc", "ab c", "a bc", {"compare both symbols, not how they are spelled": "abc"}),
    ):
        wrong = {name: what.split() for name, what in wrong.items()}
        got = merge(given := symbols.split(), tuple(pair.split()))
        assert given == symbols.split(), "the list that was given is changed: return a new one"
        expect(got, right.split(), f"{symbols} with ({pair})", wrong)
    expect(merge([b"a", b"b"], (b"a", b"b")), [b"ab"], "two bytes")


def learn(learn):
    """The four words of the chapter: nine merges, then all that there are.

    choose, the argument, called before each merge on the words as merged so far; a pair of two
    symbols from it, without the count, or None where no pair is left, which ends it; of equal
    counts the pair that is first in counts
    """
    words = {word: list(word) for word in FREQUENCIES}
    got, state = learn(words, FREQUENCIES, 9)
    assert words["fast_"] == list("fast_"), "words is changed: make a new dictionary"
    calls, once = [], "call choose once for each merge, and not once more"
    chosen = learn(words, FREQUENCIES, 1, lambda *_: calls.append(1) or ("f", "a"))[0]
    where, twice = "the merges where choose returns (f, a), and its calls", ([("f", "a")], 2)
    expect((chosen, len(calls)), ([("f", "a")], 1), where, {once: twice})
    stale = {"count again after each merge": got} if all(len(a + b) == 2 for a, b in got) else {}
    last = {"of pairs with equal counts take the first": got} if got[0] == ("l", "l") else {}
    expect(got, MERGES, "nine merges of the four words", stale | last)
    expect(state["taller_"], ["tall", "er_"], "taller_ after nine merges")
    expect(len(learn(words, FREQUENCIES, 99)[0]), 12, "merges until no pair is left")


def apply_merges(apply_merges):
    """Merges whose order matters, and many.

    symbols set to the list that merge returns, which is a new one; each merge once, in the order
    of the list merges, not by its length or its place in the word
    """
    wrong = {"apply the merges in the order of learning, not of the word": ["ab", "c"]}
    got = apply_merges(list("abc"), [("b", "c"), ("a", "b")])
    expect(got, ["a", "bc"], "abc with (b, c), (a, b)", wrong)
    wrong = {"apply all merges, not only the first": list("fastfaster_")}
    wrong["join every occurrence of a pair, not the first alone"] = ["fast", *"fast", "er_"]
    expect(apply_merges([*"fastfaster_"], MERGES), ["fast", "fast", "er_"], "fastfaster_", wrong)


def byte_bpe(ByteBPE):
    """A text of 300 tokens against a library's ids, and halves of characters.

    to_bytes: a list of bytes of length 1, not numbers; choose: the pair added, once; ties by
    smaller self.ids, first left; None without pairs; train: the frequencies of
    PATTERN.findall(text), vocab_size - len(self.tokens) merges, self.choose, which learn must call
    once for each; encode: PATTERN, too; decode: errors="replace"
    """
    text = (
        "Cafés, cafès; naïve 词元化 词元 🙂 don't 1234\n\n" * 3 + "the thin thing then thinks; " * 4
    )
    library = BPETokenizer.train(text, 300)
    alphabet = [library.decode_bytes([i]) for i in range(256)]
    tokenizer = ByteBPE(alphabet)
    tokenizer.train(text, 300)
    across = [token for token in tokenizer.tokens[256:] if b" " in token[1:]]
    assert not across, f"merge only inside the parts that PATTERN cuts, and not to {across[0]!r}"
    tokenizer.train("a", 301)  # no pair is left
    expect(len(tokenizer.tokens), 300, "the number of tokens after train(text, 300)")
    for new in text, "'three then, thin\n🙂":
        expect(tokenizer.encode(new), library.encode(new), "the ids of a text; mind bytes and ties")
    halves = [alphabet.index(byte) for byte in (b"\xc3", b"\xa9")]
    wrong = {"join the bytes of all tokens before you decode them": "\ufffd\ufffd"}
    expect(tokenizer.decode(halves), "é", "é as two tokens of a byte", wrong)
    expect(tokenizer.decode(halves[:1]), "\ufffd", "half a character")


def merge_some(merge_some):
    """p = 0, draws of 0.1 alone, and 4,000 draws with p = 0.3 for each of two words.

    symbols = list(word); before each merge a draw for every place of a pair in merges, dropped
    where rng.random() < p (rng, not random); of the others the pair that is first in merges, joined
    at its first place alone; the end when all are dropped, without new draws: 99 are enough
    """
    rng, low = Random(0), SimpleNamespace(random=([0.1] * 99).pop)
    wrong = {"p is the probability to drop a merge, not to keep it": list("faster_")}
    expect(merge_some("faster_", MERGES, 0.0, rng), ["fast", "er_"], "faster_, p = 0", wrong)
    expect(merge_some("faster_" * 5, MERGES, 0.3, low), [*"faster_" * 5], "p = 0.3, draws of 0.1")
    wrong = {"take the merge learned earliest, not the first in the word": ["ab", "c", "dd", "d"]}
    got = merge_some("abcddd", [("b", "c"), ("a", "b"), ("d", "d")], 0.0, rng)
    expect(got, ["a", "bc", "dd", "d"], "abcddd with (b, c), (a, b), (d, d), p = 0", wrong)
    wrong = {"before each merge draw anew for every pair of the word that is in merges": 0.17}
    wrong |= {"join one place, not all of a pair": 0.91, "draw for each place of a pair": 0.49}
    an = ["an", "an"], [("a", "n")], 0.64
    for result, merges, right in ((["fast", "er_"], MERGES, 0.41), an):
        drawn = [merge_some("".join(result), merges, 0.3, rng) for _ in range(4_000)]
        part = round(drawn.count(result) / 4_000, 2)
        expect(part, right, f"the fraction of {' '.join(result)} with p = 0.3", wrong, atol=0.03)
