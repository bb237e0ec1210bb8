"""ToyWorld: its probabilities, its entropy, the text it makes, and what can be learned from it."""

import hashlib
import itertools
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict

import numpy as np
import pytest

from support.data import toyworld
from support.data.toyworld import Choice, Kind, Paragraph, Pattern, ToyWorld, zipf

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


def all_sentences(patterns: Choice):
    for pattern, weight in zip(patterns.items, patterns.probs, strict=True):
        for sentence, records, prob in makings(pattern):
            yield sentence, records, weight * prob


# Choices and tables


def test_weights_are_zipfs():
    choice = zipf("abc")
    assert choice.probs == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert zipf("ab", shift=6).probs == pytest.approx([8 / 15, 7 / 15])
    assert choice.entropy == pytest.approx(-sum(p * math.log(p) for p in choice.probs))


def test_drawing_follows_the_weights_up_to_their_very_edges():
    choice = Choice("abc", [1, 2, 1])
    step = 2.0**-53
    edges = {0.0: "a", 0.25 - step: "a", 0.25: "b", 0.75 - step: "b", 0.75: "c", 1 - step: "c"}
    assert {at: choice.draw(lambda at=at: at) for at in edges} == edges


def test_a_choice_of_one_uses_no_random_number():
    assert Choice(["only"], [3]).draw(lambda: pytest.fail("asked for a number")) == "only"


def test_fields_that_come_of_themselves():
    jobs = Kind("job", "name he \n artist he | doctor she")
    assert jobs.words("a") == ["an", "a"]
    assert jobs.words("him") == ["him", "her"] and jobs.words("his") == ["his", "her"]


@pytest.mark.parametrize("table", ["name age\n mary", "name\n mary old", "name pet\n mary cat,cat"])
def test_a_bad_table_is_refused(table):
    with pytest.raises(ValueError, match="mary"):
        Kind("person", table)


@pytest.mark.parametrize(
    "pattern",
    [
        "1 {city} is big .",
        "1 {country.river} is long .",
        "1 {country}s are big .",
        "1 {country} is big",
        "1 hello . {country} .",
        "0 {country} is big .",
        "-1 {country} is big .",
    ],
)
def test_a_bad_pattern_is_refused(pattern):
    with pytest.raises(ValueError):
        ToyWorld(TABLES, pattern)


# Probability, on a language small enough to list


def test_probabilities_of_all_sentences_sum_to_one(small):
    listed = list(all_sentences(small.patterns))
    assert len(listed) > 50
    assert math.fsum(math.exp(small.log_prob(s)) for s, _, _ in listed) == pytest.approx(
        1, abs=1e-12
    )
    for sentence, _, prob in listed:
        assert small.log_prob(sentence) == pytest.approx(math.log(prob), abs=1e-12)


def test_each_sentence_has_one_derivation_and_it_is_the_right_one(small):
    listed = list(all_sentences(small.patterns))
    assert len({s for s, _, _ in listed}) == len(listed)
    for sentence, records, _ in listed:
        [(_, shown)] = small.derivations(sentence)
        names = {kind: small.kinds[kind].words("name")[n] for kind, n in records.items()}
        assert shown == names


def test_entropy_is_that_of_the_list(small):
    listed = [(sentence, prob) for sentence, _, prob in all_sentences(small.patterns)]
    entropy = -math.fsum(p * math.log(p) for _, p in listed)
    length = math.fsum(p * len(s.split()) for s, p in listed)
    assert small.entropy_per_token() == pytest.approx(entropy / length, rel=1e-12)
    assert small.entropy_per_token(end_tokens=1) == pytest.approx(entropy / (length + 1))


def test_next_tokens_agree_with_the_list(small):
    listed = [(s.split(), p) for s, _, p in all_sentences(small.patterns)]
    for prefix in {tuple(s[:n]) for s, _ in listed for n in range(len(s))}:
        follow = defaultdict(float)
        for sentence, prob in listed:
            if tuple(sentence[: len(prefix)]) == prefix:
                follow[sentence[len(prefix)]] += prob
        total = sum(follow.values())
        expected = {word: math.log(p / total) for word, p in follow.items()}
        assert small.next_token_log_probs(prefix) == pytest.approx(expected, abs=1e-9)


AMBIGUOUS = {
    "the same sentence from two patterns": "1 that is all .",
    "a word of one is in a slot of the other": "1 lima is the capital of {country} .",
    "two countries with one language": "1 they speak {country.language} here .",
}


@pytest.mark.parametrize("pattern", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_an_ambiguous_grammar_is_refused(pattern):
    with pytest.raises(ValueError, match="could make the same sentence|does not show which"):
        ToyWorld(TABLES, SENTENCES + pattern)


# Probability, on the whole language


def test_every_sentence_made_has_one_derivation(default_sentences):
    assert all(len(toyworld.derivations(s)) == 1 for s in default_sentences[:2000])


def test_chain_rule_over_next_tokens_gives_the_probability_of_the_sentence(default_sentences):
    # Each step's probabilities sum to one, so those of all sentences do too.
    for sentence in default_sentences[:150]:
        tokens = sentence.split()
        steps = [toyworld.next_token_log_probs(tokens[:n]) for n in range(len(tokens))]
        assert all(math.fsum(map(math.exp, step.values())) == pytest.approx(1) for step in steps)
        total = math.fsum(step[token] for step, token in zip(steps, tokens, strict=True))
        assert total == pytest.approx(toyworld.log_prob(sentence), abs=1e-9)


def test_what_precedes_the_last_full_stop_has_no_influence():
    stream = "the king left . paris is the capital of france . the king".split()
    assert toyworld.next_token_log_probs(stream) == toyworld.next_token_log_probs(["the", "king"])
    assert toyworld.next_token_log_probs(stream[:11]) == toyworld.next_token_log_probs([])


def assert_close_to_the_floor(losses: np.ndarray, lengths: np.ndarray, floor: float) -> None:
    """Assert that total loss / total length is within four standard errors of the floor."""
    error = np.std(losses - floor * lengths, ddof=1) / math.sqrt(len(losses)) / lengths.mean()
    assert error < 0.005 * floor
    assert abs(losses.sum() / lengths.sum() - floor) < 4 * error


def test_mean_log_probability_converges_to_the_entropy(default_sentences):
    losses = -np.array([toyworld.log_prob(s) for s in default_sentences])
    lengths = np.array([len(s.split()) for s in default_sentences])
    assert_close_to_the_floor(losses, lengths, toyworld.entropy_per_token())


class KneserNey:
    """An interpolated Kneser-Ney model; a sentence is preceded by full stops."""

    def __init__(self, order: int, sentences: list[str], vocabulary: list[str], discount=0.75):
        self.order, self.discount, self.uniform = order, discount, 1 / len(vocabulary)
        grams = Counter(gram for s in sentences for gram in self.grams(s))
        self.levels = []
        for _ in range(order):
            totals, kinds = Counter(), Counter()
            for gram, count in grams.items():
                totals[gram[:-1]] += count
                kinds[gram[:-1]] += 1
            self.levels.insert(0, (grams, totals, kinds))
            grams = Counter(gram[1:] for gram in grams)  # how many words precede it

    def grams(self, sentence: str):
        tokens = ["."] * (self.order - 1) + sentence.split()
        return [tuple(tokens[n : n + self.order]) for n in range(len(tokens) - self.order + 1)]

    def prob(self, gram: tuple[str, ...]) -> float:
        prob = self.uniform
        for size, (grams, totals, kinds) in enumerate(self.levels, start=1):
            part = gram[self.order - size :]
            if total := totals[part[:-1]]:
                rest = self.discount * kinds[part[:-1]] / total
                prob = max(grams[part] - self.discount, 0) / total + rest * prob
        return prob

    def loss(self, sentences: list[str]) -> float:
        return -np.mean([math.log(self.prob(gram)) for s in sentences for gram in self.grams(s)])


@pytest.mark.exhaustive
def test_no_n_gram_model_beats_the_floor(default_sentences):
    held_out, vocabulary = toyworld.sentences(seed=1, n=2000), toyworld.vocabulary()
    truth = -sum(map(toyworld.log_prob, held_out)) / len(tokens_of(held_out))
    losses = []
    for order in range(1, 6):
        model = KneserNey(order, default_sentences, vocabulary)
        context = ("the", "king", "lost", "his")[5 - order :]
        assert math.fsum(model.prob((*context, w)) for w in vocabulary) == pytest.approx(1)
        losses.append(model.loss(held_out))
    assert min(losses) > truth and min(losses) > toyworld.entropy_per_token()
    assert losses[0] > 4 * truth, "words alone are far from the floor"
    assert min(losses) < 1.5 * truth, "a good n-gram model comes near it"


def test_impossible_sentences_name_the_token_that_cannot_be():
    cases = {
        "paris is the capital of spain .": "'paris is the capital of' with 'spain'",
        "the king lost her black crown in the palace .": "'the king lost' with 'her'",
        "xylophone": "'' with 'xylophone'",
        "paris is the capital": "ends after 'paris is the capital'",
        "paris is the capital of france . paris": "'paris is the capital of france .' with 'paris'",
        "": "ends after ''",
    }
    for sentence, message in cases.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            toyworld.log_prob(sentence)
    with pytest.raises(ValueError, match="'paris' with 'lost'"):
        toyworld.next_token_log_probs(["paris", "lost"])


# The text


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_seed_gives_the_recorded_bytes(default_paragraphs):
    # A change to the words or patterns changes these on purpose; nothing else may.
    assert sha256(toyworld.text()) == TEXT_SHA256
    lines = "\n".join(f"{p.topic} {' '.join(p.sentences)}" for p in default_paragraphs)
    assert sha256(lines) == PARAGRAPHS_SHA256


def test_the_bytes_do_not_depend_on_the_hash_seed_of_python():
    code = "import support.data.toyworld as t; print(t.text(n=200), t.vocabulary(), t.analogies())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": s},
            capture_output=True,
            check=True,
        ).stdout
        for s in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_text_is_the_sentences_and_the_first_n_do_not_depend_on_n(default_sentences):
    assert toyworld.text() == "\n".join(default_sentences) + "\n"
    assert toyworld.sentences(n=50) == default_sentences[:50]
    assert toyworld.sentences(seed=1, n=50) != default_sentences[:50]
    assert toyworld.sentences(np.int64(1), n=5) == toyworld.sentences(1, n=5)
    assert toyworld.paragraphs(n=9) == toyworld.paragraphs(n=20)[:9]
    assert toyworld.sentences(n=0) == [] and toyworld.text(n=0) == ""


@pytest.mark.parametrize("make", [toyworld.sentences, toyworld.paragraphs, toyworld.text])
def test_negative_seeds_and_numbers_are_refused(make):
    with pytest.raises(ValueError, match="-1"):
        make(seed=-1, n=1)
    with pytest.raises(ValueError, match="-2"):
        make(seed=0, n=-2)


def test_two_hundred_thousand_tokens_in_under_a_second():
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        made = toyworld.sentences()
        seconds.append(time.perf_counter() - start)
    assert 180_000 < len(tokens_of(made)) < 220_000
    assert min(seconds) < 1


def test_vocabulary(default_sentences, default_paragraphs):
    vocabulary = toyworld.vocabulary()
    assert 500 <= len(vocabulary) <= 1000
    assert vocabulary == sorted(set(vocabulary))
    seen = set(tokens_of(default_sentences))
    assert len(seen) > 800
    assert seen | set(tokens_of(s for p in default_paragraphs for s in p.sentences)) == set(
        vocabulary
    )
    assert all(re.fullmatch(r"[a-z]+|[.,]", word) for word in vocabulary)


def test_form_of_sentences(default_sentences):
    patterns = toyworld.SENTENCES.strip().splitlines()
    assert len(patterns) >= 40
    lengths = Counter(len(s.split()) for s in default_sentences)
    assert min(lengths) == 4 and 16 <= max(lengths) <= 20 and len(lengths) >= 10
    assert all(s.endswith(" .") and s.count(".") == 1 for s in default_sentences)
    made = {pattern for s in default_sentences[:3000] for pattern, _ in toyworld.derivations(s)}
    assert len(made) == len(patterns)


def test_word_frequencies_are_zipf_like(default_sentences):
    counts = sorted(Counter(tokens_of(default_sentences)).values(), reverse=True)[9:600]
    ranks, counts = np.log(np.arange(10, 10 + len(counts))), np.log(counts)
    assert -1.1 < np.polyfit(ranks, counts, 1)[0] < -0.8
    assert np.corrcoef(ranks, counts)[0, 1] < -0.97


MALE = set("man king boy actor prince waiter landlord groom wizard duke monk father son".split())
MALE |= set("brother uncle grandson grandfather nephew".split())
FEMALE = set("woman queen girl actress princess waitress landlady bride witch duchess nun".split())
FEMALE |= set("mother daughter sister aunt granddaughter grandmother niece".split())
GENDER = dict.fromkeys(MALE, "he") | dict.fromkeys(FEMALE, "she")
_, PERSONS = toyworld.TABLES["person"].strip().split("\n", 1)
PEOPLE = {name: he for name, he in re.findall(r"(\w+) (he|she)\b", PERSONS)}
CASES = {"he": {"he", "him", "his"}, "she": {"she", "her"}}


def test_pronouns_agree_with_people(default_sentences):
    pronouns = set().union(*CASES.values())
    checked = Counter()
    for sentence in default_sentences:
        tokens = sentence.split()
        for at, token in enumerate(tokens):
            if token in pronouns:
                named = [w for w in tokens[:at] if w in GENDER] or [
                    w for w in tokens if w in PEOPLE
                ]
                word = named[-1]
                assert token in CASES[(GENDER | PEOPLE)[word]], sentence
                checked[word] += 1
    assert set(checked) == set(GENDER) | set(PEOPLE)


def test_articles_agree_with_the_next_word(default_sentences, default_paragraphs):
    text = " ".join([*default_sentences, *(s for p in default_paragraphs for s in p.sentences)])
    assert not re.findall(r"\ba [aeio]\w*", text) and not re.findall(r"\ban [^aeio]\w*", text)
    assert " an " in text


# Paragraphs


def test_topics_are_those_of_ag_news_and_balanced(default_paragraphs):
    assert toyworld.TOPICS == ("World", "Sports", "Business", "Sci/Tech")
    counts = Counter(p.topic for p in default_paragraphs)
    assert set(counts) == {0, 1, 2, 3} and all(900 < n < 1100 for n in counts.values())
    assert {len(p.sentences) for p in default_paragraphs} == {2, 3, 4, 5}


def record_of(kind: str) -> dict[str, str]:
    """Return the record to which each word of a kind belongs, for words of a single record."""
    fields, *rows = [r.split() for r in re.split(r"[\n|]", toyworld.TABLES[kind].strip())]
    owners = defaultdict(set)
    for row in rows:
        for field, options in zip(fields, row, strict=True):
            if field not in {"partner", "rival", "language", "food"}:
                for word in options.split(","):
                    owners[word].add(row[0])
    return {word: next(iter(names)) for word, names in owners.items() if len(names) == 1}


def test_paragraphs_stay_on_their_entities(default_paragraphs):
    entity = [record_of(kind) for kind in ("country", "team", "company", "science")]
    for paragraph in default_paragraphs:
        words = [set(s.split()) for s in paragraph.sentences]
        owner = entity[paragraph.topic]
        [person] = set(PEOPLE) & words[0]
        about = {owner[w] for w in words[0] if w in owner}
        if paragraph.topic in (0, 3):
            assert len(about) == 1
        for later in words[1:]:
            assert set(PEOPLE) & later <= {person}
            assert (later & set().union(*CASES.values())) <= CASES[PEOPLE[person]]
            on_person = later & ({person} | CASES[PEOPLE[person]])
            on_entity = about & {owner[w] for w in later if w in owner}
            assert on_person or on_entity, paragraph
            if paragraph.topic in (0, 3):
                assert {owner[w] for w in later if w in owner} <= about, paragraph


def test_topics_take_more_than_one_word_to_tell_and_are_told_well(default_paragraphs):
    bags = [(p.topic, set(tokens_of(p.sentences))) for p in default_paragraphs]
    train, test = bags[:3000], bags[3000:]
    sizes = Counter(topic for topic, _ in train)
    counts = [Counter(w for t, bag in train if t == topic for w in bag) for topic in range(4)]
    words = set().union(*counts)
    for word in words:
        inside = [counts[topic][word] for topic in range(4)]
        outside = [sizes[topic] - n for topic, n in enumerate(inside)]
        assert max(inside) + max(outside) < 0.5 * len(train), f"{word!r} alone tells the topic"

    def score(topic, bag):
        return sum(math.log((counts[topic][w] + 0.5) / (sizes[topic] + 1)) for w in bag & words)

    right = [max(range(4), key=lambda t: score(t, bag)) == topic for topic, bag in test]
    assert 0.9 < np.mean(right) < 0.99, "naive Bayes: good, but word order would help"


# What can be learned


def test_analogies(default_sentences):
    sections = toyworld.analogies()
    assert ("paris", "france", "tokyo", "japan") in sections["capital-country"]
    assert ("king", "queen", "uncle", "aunt") in sections["family"]
    assert ("good", "better", "bad", "worse") in sections["comparative"]
    assert ("old", "oldest", "good", "best") in sections["superlative"]
    assert ("walk", "walked", "go", "went") in sections["past-tense"]
    assert ("play", "playing", "run", "running") in sections["present-participle"]
    assert ("france", "french", "egypt", "egyptian") in sections["nationality"]
    assert ("cat", "cats", "mouse", "mice") in sections["plural"]
    counts = Counter(tokens_of(default_sentences))
    for section, questions in sections.items():
        assert len(questions) == len(set(questions)) >= 300, section
        for question in questions:
            assert len(set(question)) == 4
            assert all(counts[word] >= 17 for word in question), question


@pytest.mark.exhaustive
def test_word2vec_solves_the_analogies(default_sentences):
    models = pytest.importorskip("gensim.models")
    model = models.Word2Vec(
        [s.split() for s in default_sentences],
        sg=1,
        vector_size=64,
        window=5,
        negative=5,
        sample=1e-3,
        min_count=1,
        epochs=10,
        workers=1,
        seed=1,
    )
    vectors, index = model.wv.get_normed_vectors(), model.wv.key_to_index
    right = []
    for questions in toyworld.analogies().values():
        a, b, c, d = np.array([[index[w] for w in question] for question in questions]).T
        scores = (vectors[b] - vectors[a] + vectors[c]) @ vectors.T
        for given in (a, b, c):
            scores[np.arange(len(a)), given] = -np.inf
        right.append(scores.argmax(1) == d)
        assert right[-1].mean() > 0.5
    assert np.concatenate(right).mean() > 0.75
