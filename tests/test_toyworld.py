"""ToyWorld: its probabilities, its entropy, the text it makes, and what can be learned from it."""

import hashlib
import itertools
import math
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest

from support.data import toyworld
from support.data.toyworld import Choice, Paragraph, Pattern, ToyWorld, zipf

TEXT_SHA256 = "38b47926f167156072cc1008245db04c7c756002bdfb05a19ade61962efd1349"
PARAGRAPHS_SHA256 = "5d87ea0148233662a3dfb6acdb12ea1dafa76d4ac7947f8a8199cf7dd1e35c4e"

TABLES = {
    "country": """name capital language food
        france paris french cheese,onions | spain madrid spanish olives
        peru lima spanish corn,potatoes,beans""",
    "person": "name he\n mary she | john he",
    "verb": "name s past object\n eat eats ate soup,corn | grow grows grew corn,roses",
}
SENTENCES = """
    3 {country.capital} is the capital of {country} .
    2 in {country} {person} {verb.s} {verb.object} .
    1 {person} {verb.past} {country.food} and {country.food} in {country.capital} .
    2 {person} wants to {verb} {verb.object} and so {person.he} will .
    1 {person} and {person.his} friends eat .
    1 {person} and so on .
    1 that is all .
"""


@pytest.fixture(scope="module")
def small() -> ToyWorld:
    return ToyWorld(TABLES, SENTENCES)


@pytest.fixture(scope="module")
def default_sentences() -> list[str]:
    return toyworld.sentences()


@pytest.fixture(scope="module")
def default_paragraphs() -> list[Paragraph]:
    return toyworld.paragraphs()


def tokens_of(sentences) -> list[str]:
    return " ".join(sentences).split()


def makings(pattern: Pattern):
    """Yield (sentence, records, probability) for every way to fill a pattern, by brute force."""
    kinds = pattern.kinds.values()
    for drawn in itertools.product(*(range(len(kind.records)) for kind in kinds)):
        records = {kind.name: n for kind, n in zip(kinds, drawn, strict=True)}
        chance = math.prod(kind.prior.probs[records[kind.name]] for kind in kinds)
        choices = [
            Choice([token], [1])
            if isinstance(token, str)
            else token.kind.records[records[token.kind.name]][token.field]
            for token in pattern.tokens
        ]
        for picks in itertools.product(*(range(len(choice.items)) for choice in choices)):
            words = [choice.items[n] for choice, n in zip(choices, picks, strict=True)]
            probs = [choice.probs[n] for choice, n in zip(choices, picks, strict=True)]
            yield " ".join(words), records, chance * math.prod(probs)


@pytest.fixture(scope="module")
def listed(small) -> list[tuple[str, dict[str, int], float]]:
    """Return every sentence of the small language, what it is about, and its probability."""
    weighted = zip(small.patterns.items, small.patterns.probs, strict=True)
    return [(s, records, w * p) for pattern, w in weighted for s, records, p in makings(pattern)]


# Probability, on a language small enough to list.


def test_weights_are_zipfs_and_draws_follow_them_up_to_their_very_edges():
    assert zipf("abc").probs == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert zipf("ab", shift=6).probs == pytest.approx([8 / 15, 7 / 15])
    choice, step = Choice("abc", [1, 2, 1]), 2.0**-53
    assert choice.entropy == pytest.approx(1.5 * math.log(2))
    edges = {0.0: "a", 0.25 - step: "a", 0.25: "b", 0.75 - step: "b", 0.75: "c", 1 - step: "c"}
    assert {at: choice.draw(lambda at=at: at) for at in edges} == edges
    assert Choice(["only"], [3]).draw(lambda: pytest.fail("asked for a number")) == "only"


def test_probabilities_of_all_sentences_sum_to_one(small, listed):
    assert len({s for s, _, _ in listed}) == len(listed) > 50
    assert math.fsum(math.exp(small.log_prob(s)) for s, _, _ in listed) == pytest.approx(1)
    for sentence, records, prob in listed:
        assert small.log_prob(sentence) == pytest.approx(math.log(prob), abs=1e-12)
        [(_, shown)] = small.derivations(sentence)
        assert shown == {kind: small.kinds[kind].words("name")[n] for kind, n in records.items()}


def test_entropy_is_that_of_the_list(small, listed):
    entropy = -math.fsum(p * math.log(p) for _, _, p in listed)
    length = math.fsum(p * len(s.split()) for s, _, p in listed)
    assert small.entropy_per_token() == pytest.approx(entropy / length, rel=1e-12)
    assert small.entropy_per_token(end_tokens=1) == pytest.approx(entropy / (length + 1))


def test_next_tokens_agree_with_the_list(small, listed):
    pairs = [(s.split(), p) for s, _, p in listed]
    for prefix in {tuple(s[:n]) for s, _ in pairs for n in range(len(s))}:
        follow = defaultdict(float)
        for sentence, prob in pairs:
            if tuple(sentence[: len(prefix)]) == prefix:
                follow[sentence[len(prefix)]] += prob
        total = sum(follow.values())
        expected = {word: math.log(p / total) for word, p in follow.items()}
        found = small.next_token_log_probs([*"all that .".split(), *prefix])
        assert found == pytest.approx(expected, abs=1e-9), "only what follows the full stop counts"


@pytest.mark.parametrize(
    "pattern",
    [
        "1 that is all .",  # the same sentence from two patterns
        "1 lima is the capital of {country} .",  # a word of one is in a slot of the other
        "1 they speak {country.language} here .",  # two countries with one language
        "1 {country} is big",
        "1 hello . {country} .",
        "-1 {country} is big .",
    ],
)
def test_a_grammar_whose_probabilities_would_be_wrong_is_refused(pattern):
    with pytest.raises(ValueError, match="same sentence|does not show|one '.'|weights above 0"):
        ToyWorld(TABLES, SENTENCES + pattern)


def test_an_option_given_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        ToyWorld({"person": "name pet\n mary cat,cat"}, "1 {person} .")


# Probability, on the whole language.


def test_chain_rule_over_next_tokens_gives_the_probability_of_the_sentence(default_sentences):
    # Each step's probabilities sum to one, so those of all sentences do too.
    for sentence in default_sentences[:100]:
        tokens = sentence.split()
        assert len(toyworld.derivations(sentence)) == 1
        steps = [toyworld.next_token_log_probs(tokens[:n]) for n in range(len(tokens))]
        assert all(math.fsum(map(math.exp, step.values())) == pytest.approx(1) for step in steps)
        total = math.fsum(step[token] for step, token in zip(steps, tokens, strict=True))
        assert total == pytest.approx(toyworld.log_prob(sentence), abs=1e-9)


def test_mean_log_probability_converges_to_the_entropy(default_sentences):
    losses = -np.array([toyworld.log_prob(s) for s in default_sentences])
    lengths = np.array([len(s.split()) for s in default_sentences])
    floor = toyworld.entropy_per_token()
    error = np.std(losses - floor * lengths, ddof=1) / math.sqrt(len(losses)) / lengths.mean()
    assert error < 0.005 * floor
    assert abs(losses.sum() / lengths.sum() - floor) < 4 * error


@pytest.mark.parametrize(
    "sentence",
    ["paris is the capital of spain .", "the king lost her black crown .", "paris is", ""],
)
def test_a_sentence_that_cannot_be(sentence):
    assert toyworld.derivations(sentence) == []
    with pytest.raises(ValueError, match=re.escape(f"has no sentence {sentence!r}")):
        toyworld.log_prob(sentence)
    with pytest.raises(ValueError, match="no sentence that begins 'paris lost'"):
        toyworld.next_token_log_probs(["paris", "lost"])


# The text.


def test_a_seed_gives_the_recorded_bytes(default_sentences, default_paragraphs):
    # A change to the words or patterns changes these on purpose; nothing else may.
    text = toyworld.text()
    assert text == "\n".join(default_sentences) + "\n"
    assert hashlib.sha256(text.encode()).hexdigest() == TEXT_SHA256
    lines = "\n".join(f"{p.topic} {' '.join(p.sentences)}" for p in default_paragraphs)
    assert hashlib.sha256(lines.encode()).hexdigest() == PARAGRAPHS_SHA256
    assert toyworld.sentences(n=50) == default_sentences[:50]
    assert toyworld.sentences(seed=1, n=50) != default_sentences[:50]
    assert toyworld.sentences(np.int64(1), n=5) == toyworld.sentences(1, n=5)
    assert toyworld.paragraphs(n=9) == default_paragraphs[:9]


def test_the_bytes_do_not_depend_on_the_hash_seed_of_python():
    code = "import support.data.toyworld as t; print(t.text(n=200), t.vocabulary(), t.analogies())"
    environments = ({**os.environ, "PYTHONHASHSEED": seed} for seed in "12")
    runs = [subprocess.check_output([sys.executable, "-c", code], env=e) for e in environments]
    assert runs[0] == runs[1]


def test_vocabulary_and_form_of_sentences(default_sentences, default_paragraphs):
    vocabulary = toyworld.vocabulary()
    said = default_sentences + [s for p in default_paragraphs for s in p.sentences]
    assert vocabulary == sorted(set(tokens_of(said))) and len(vocabulary) == 970
    assert all(re.fullmatch(r"[a-z]+|[.,]", word) for word in vocabulary)
    assert all(s.endswith(" .") and s.count(".") == 1 for s in default_sentences)
    assert not re.findall(r"\ba [aeio]\w*|\ban [^aeio]\w*", " ".join(said))
    counts = sorted(Counter(tokens_of(default_sentences)).values(), reverse=True)[9:600]
    ranks, counts = np.log(np.arange(10, 10 + len(counts))), np.log(counts)
    assert -1.1 < np.polyfit(ranks, counts, 1)[0] < -0.8, "Zipf's law"


def test_paragraphs_keep_their_person_and_topics_are_balanced(default_paragraphs):
    assert toyworld.TOPICS == ("World", "Sports", "Business", "Sci/Tech")
    counts = Counter(p.topic for p in default_paragraphs)
    assert set(counts) == {0, 1, 2, 3} and all(900 < n < 1100 for n in counts.values())
    people = set(re.findall(r"(\w+) (?:he|she)\b", toyworld.TABLES["person"].split("\n", 1)[1]))
    for paragraph in default_paragraphs:
        first, *rest = (set(s.split()) & people for s in paragraph.sentences)
        assert len(first) == 1 <= len(rest) <= 4 and all(named <= first for named in rest)


def test_analogies(default_sentences):
    sections = toyworld.analogies()
    assert ("paris", "france", "tokyo", "japan") in sections["capital-country"]
    assert ("old", "oldest", "good", "best") in sections["superlative"]
    assert ("cat", "cats", "mouse", "mice") in sections["plural"]
    counts = Counter(tokens_of(default_sentences))
    for section, questions in sections.items():
        assert len(questions) == len(set(questions)) >= 300, section
        for question in questions:
            assert len(set(question)) == 4
            assert all(counts[word] >= 17 for word in question), question
