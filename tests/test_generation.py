"""Generation: the distribution by brute force, the text with and without the cache, frequencies."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.models.gpt import GPT, GPTConfig, generate, next_token_probabilities

quick = settings(max_examples=60, derandomize=True, database=None, deadline=None)
temperatures = st.sampled_from([0.0, 0.3, 1.0, 1.7, 5.0])
# Far enough apart, or equal, in the eyes of a softmax in float32.
one_logit = st.integers(-400, 400).map(lambda i: i / 64)


def small_gpt(vocab_size=17, max_length=24, dtype=torch.float64, seed=0, **options):
    """Return a model with random weights of unit scale, so that it prefers some tokens."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab_size, 16, 2, 2, max_length=max_length, **options)).to(dtype)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn_like(value) / value.shape[-1] ** 0.5 + (value == 1))
    return model.eval()


MODEL = small_gpt()
RULES = [
    {"temperature": 0},
    {},
    {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 5},
    {"top_p": 0.8},
    {"temperature": 1.5, "top_k": 8, "top_p": 0.7},
]
PROMPTS = [[1, 2, 3, 4, 5], [16, 0, 16, 0, 16], [7, 7, 7, 7, 7], [5, 4, 3, 2, 1]]
every_rule = pytest.mark.parametrize("rule", RULES, ids=str)


# ------------------------------------------------------------------------------ the distribution
def slow_probabilities(logits, temperature, top_k, top_p):
    """Return the distribution of one row, in float64 and step by step."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return [float(i == order[0]) for i in range(len(logits))]
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    kept = order[:top_k]
    total = sum(weights[i] for i in kept)
    if top_p is not None:
        n = 1
        while n < len(kept) and sum(weights[i] for i in kept[:n]) < top_p * total:
            n += 1
        # Where a sum and top_p are equal but for rounding, both answers would be right.
        sums = [sum(weights[i] for i in kept[:m]) / total for m in range(1, len(kept))]
        assume(all(abs(x - top_p) > 1e-5 for x in sums))
        kept = kept[:n]
        total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(logits))]


@given(
    rows=st.integers(1, 7).flatmap(
        lambda v: st.lists(st.lists(one_logit, min_size=v, max_size=v), min_size=1, max_size=3)
    ),
    temperature=temperatures,
    top_k=st.none() | st.integers(1, 9),
    top_p=st.none() | st.floats(0.01, 0.999),
)
@quick
def test_probabilities_are_those_of_the_rules_step_by_step(rows, temperature, top_k, top_p):
    expected = [slow_probabilities(row, temperature, top_k, top_p) for row in rows]
    logits = torch.tensor(rows)
    before = logits.clone()
    p = next_token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert torch.equal(logits, before)
    torch.testing.assert_close(p, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(p.sum(-1), torch.ones(len(rows)))
    kept = (p > 0).sum(-1)
    assert (kept >= 1).all() and (top_k is None or (kept <= top_k).all())


@given(logits=st.lists(one_logit, min_size=1, max_size=7), top_p=st.floats(0.01, 0.999))
@quick
def test_top_p_keeps_the_smallest_set_that_reaches_it(logits, top_p):
    plain = torch.tensor(logits).double().softmax(-1).tolist()
    masses = [
        [sum(part) for part in itertools.combinations(plain, n)] for n in range(1, len(plain) + 1)
    ]
    assume(all(abs(mass - top_p) > 1e-5 for part in masses for mass in part))
    p = next_token_probabilities(torch.tensor([logits]), top_p=top_p)[0]
    kept = (p > 0).nonzero()[:, 0].tolist()
    smallest = next(n for n, part in enumerate(masses, 1) if max(part) >= top_p)
    assert len(kept) == smallest
    assert sum(plain[i] for i in kept) == pytest.approx(max(masses[smallest - 1]))


@pytest.mark.parametrize(("top_p", "n"), [(1e-9, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3)])
def test_a_sum_that_just_reaches_top_p_is_enough(top_p, n):
    p = next_token_probabilities(torch.zeros(1, 4), top_p=top_p)
    assert torch.equal(p[0], (torch.arange(4) < n) / n)


def test_of_equals_the_lower_id_stays():
    logits = torch.tensor([[0.0, 2.0, 2.0, 0.0, 2.0, 0.0]]).repeat(1, 40)
    first = [i for i in range(240) if i % 6 in (1, 2, 4)]
    kept = next_token_probabilities(logits, top_k=50)[0].nonzero()[:, 0]
    assert kept.tolist() == first[:50]
    kept = next_token_probabilities(logits, top_k=125)[0].nonzero()[:, 0]
    assert kept.tolist() == sorted(first + [0, 3, 5, 6, 9])
    assert next_token_probabilities(logits, temperature=0)[0].argmax() == 1


def test_top_p_counts_what_top_k_has_left():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    both = next_token_probabilities(logits, top_k=2, top_p=0.57)
    assert both.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert (next_token_probabilities(logits, top_p=0.57) > 0).sum() == 2


def test_temperature_divides_differences_of_logits():
    logits = torch.randn(3, 9)
    for temperature in (0.2, 1.0, 3.0):
        log_p = next_token_probabilities(logits, temperature=temperature).log()
        expected = (logits - logits[:, :1]) / temperature
        torch.testing.assert_close(log_p - log_p[:, :1], expected, rtol=1e-4, atol=1e-4)


def test_the_limits_of_temperature_are_greedy_and_uniform():
    logits = torch.randn(3, 9)
    one = torch.nn.functional.one_hot(logits.argmax(-1), 9).float()
    assert torch.equal(next_token_probabilities(logits, temperature=0), one)
    torch.testing.assert_close(next_token_probabilities(logits, temperature=1e-6), one)
    uniform = torch.full((3, 9), 1 / 9)
    torch.testing.assert_close(next_token_probabilities(logits, temperature=1e6), uniform)


def test_rules_that_leave_all_leave_all():
    torch.manual_seed(0)
    logits = torch.randn(2, 5000) * 3
    plain = next_token_probabilities(logits)
    torch.testing.assert_close(plain, logits.softmax(-1))
    for rule in ({"top_k": 5000}, {"top_k": 9999}, {"top_p": 1.0}, {"top_k": 5000, "top_p": 1.0}):
        torch.testing.assert_close(next_token_probabilities(logits, **rule), plain)
        assert (next_token_probabilities(logits, **rule) > 0).all(), rule


def test_logits_in_half_precision_give_full_probabilities():
    p = next_token_probabilities(torch.randn(2, 300).bfloat16(), top_p=0.9)
    assert p.dtype == torch.float32
    torch.testing.assert_close(p.sum(-1), torch.ones(2))


WRONG = [
    ({"temperature": -0.1}, "temperature must be at least 0, got -0.1"),
    ({"temperature": math.nan}, "got nan"),
    ({"temperature": math.inf}, "got inf"),
    ({"top_k": 0}, "top_k must be at least 1, got 0"),
    ({"top_k": -3}, "got -3"),
    ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
    ({"top_p": 1.01}, "got 1.01"),
    ({"top_p": math.nan}, "got nan"),
]


@pytest.mark.parametrize(("rule", "message"), WRONG)
def test_rules_out_of_range_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        next_token_probabilities(torch.zeros(1, 4), **rule)
    with pytest.raises(ValueError, match=message):
        generate(MODEL, [[1]], 2, **rule)


# -------------------------------------------------------------------------------------- generate
def slow_generate(model, prompts, new_tokens, seed=0, **rule):
    """Return the new ids of prompts of one length: the whole text anew for each token."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor(prompts)
    with torch.no_grad():
        for _ in range(new_tokens):
            logits = model.logits(model(ids))[:, -1]
            if rule.get("temperature") == 0:
                fresh = logits.argmax(-1, keepdim=True)
            else:
                p = next_token_probabilities(logits, **rule)
                fresh = torch.multinomial(p, 1, generator=generator)
            ids = torch.cat((ids, fresh), dim=1)
    return ids[:, len(prompts[0]) :].tolist()


@every_rule
@pytest.mark.parametrize("seed", [0, 1])
def test_the_text_is_that_of_a_loop_over_the_whole_model(rule, seed):
    prompts = [[1, 2, 3], [3, 2, 1]]
    expected = slow_generate(MODEL, prompts, 12, seed, **rule)
    for given_prompts in (prompts, torch.tensor(prompts)):
        assert generate(MODEL, given_prompts, 12, seed=seed, **rule) == expected
    assert len({tuple(row) for row in expected}) == 2


@every_rule
@pytest.mark.parametrize("prompts", [PROMPTS, [[3]], [[1, 2], [2, 1]]], ids=["four", "one", "two"])
def test_the_cache_changes_nothing(rule, prompts):
    for seed in range(2):
        cached = generate(MODEL, prompts, 10, seed=seed, **rule)
        assert cached == generate(MODEL, prompts, 10, seed=seed, use_cache=False, **rule)
        assert [len(row) for row in cached] == [10] * len(prompts)
        assert all(0 <= token < 17 for row in cached for token in row)


@pytest.mark.parametrize("rule", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-6}], ids=str)
def test_rules_that_leave_one_token_are_greedy(rule):
    greedy = generate(MODEL, PROMPTS, 12, temperature=0)
    assert generate(MODEL, PROMPTS, 12, seed=3, **rule) == greedy


def test_a_seed_gives_one_text_and_touches_no_other_randomness():
    before = torch.get_rng_state()
    first = generate(MODEL, PROMPTS, 12, seed=1, temperature=2.0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert generate(MODEL, PROMPTS, 12, seed=1, temperature=2.0) == first
    assert generate(MODEL, PROMPTS, 12, seed=2, temperature=2.0) != first
    assert generate(MODEL, PROMPTS, 12, temperature=2.0) == generate(
        MODEL, PROMPTS, 12, seed=0, temperature=2.0
    )


@every_rule
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_text_ends_with_its_first_stop_token(rule, use_cache):
    whole = generate(MODEL, PROMPTS, 9, **rule)
    for stop in ([whole[0][2]], [whole[1][0], whole[2][5]], {3, 4, 16}, (99,)):
        ended = generate(MODEL, PROMPTS, 9, stop=stop, use_cache=use_cache, **rule)
        for row, full in zip(ended, whole, strict=True):
            ends = [i for i, token in enumerate(full) if token in stop]
            assert row == full[: ends[0] + 1] if ends else row == full


def test_a_stop_token_in_the_prompt_does_not_count():
    whole = generate(MODEL, [[1, 2, 3]], 6, temperature=0)
    stop = next(token for token in (1, 2, 3) if token not in whole[0])
    assert generate(MODEL, [[1, 2, 3]], 6, temperature=0, stop=[stop]) == whole


@pytest.fixture
def calls():
    """Return the list to which the shape of the ids of each call of the model is added."""
    seen = []
    handle = MODEL.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape)))
    yield seen
    handle.remove()


def test_nothing_more_is_computed_when_all_texts_have_ended(calls):
    whole = generate(MODEL, PROMPTS, 16, temperature=0)
    assert calls == [(4, 5)] + [(4, 1)] * 15, "with the cache, each call takes what is new"
    stop = {row[n] for n, row in enumerate(whole)}
    last = max(next(i for i, token in enumerate(row) if token in stop) for row in whole)
    calls.clear()
    generate(MODEL, PROMPTS, 16, temperature=0, stop=stop)
    assert len(calls) == last + 1 < 16
    calls.clear()
    generate(MODEL, PROMPTS, 3, temperature=0, use_cache=False)
    assert calls == [(4, 5), (4, 6), (4, 7)]


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_while_it_writes_and_as_before_afterwards(training):
    model = small_gpt(dropout=0.5, attention_dropout=0.5)
    expected = generate(model, PROMPTS, 8, temperature=0)
    model.train(training)
    assert generate(model, PROMPTS, 8, temperature=0) == expected
    assert {m.training for m in model.modules()} == {training}
    with pytest.raises(ValueError, match="ids must be from 0 to 16, got 0 to 17"):
        generate(model, [[1, 17], [0, 1]], 2)
    assert {m.training for m in model.modules()} == {training}


def test_no_gradients_are_kept():
    model = small_gpt()
    kept = []
    model.final_norm.register_forward_hook(lambda _, args, out: kept.append(out.requires_grad))
    generate(model, [[1]], 2)
    assert kept == [False, False]


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_last_token_needs_no_position(use_cache):
    for length in (1, 20, 24):
        prompt, room = [list(range(1, 17)) * 2][0][:length], 25 - length
        assert len(generate(MODEL, [prompt], room, use_cache=use_cache)[0]) == room
        message = f"a prompt of {length} and {room + 1} new tokens do not fit into 24"
        with pytest.raises(ValueError, match=message):
            generate(MODEL, [prompt, prompt], room + 1, use_cache=use_cache)


@pytest.mark.parametrize(
    ("prompts", "new_tokens", "message"),
    [
        ([], 2, r"prompts must be \(B, T\), not empty, got \(0,\)"),
        ([[1], []], 2, r"lists of ids of one length, got \[\[1\], \[\]\]"),
        ([[1], [1, 2]], 2, r"lists of ids of one length, got \[\[1\], \[1, 2\]\]"),
        ([1, 2], 2, r"prompts must be \(B, T\), not empty, got \(2,\)"),
        (["a"], 2, "lists of ids of one length, got"),
        (torch.tensor([1, 2]), 2, r"prompts must be \(B, T\), not empty, got \(2,\)"),
        (torch.zeros(2, 0, dtype=torch.long), 2, r"got \(2, 0\)"),
        ([[1]], 0, "new_tokens must be at least 1, got 0"),
        ([[1, 17]], 2, "ids must be from 0 to 16, got 1 to 17"),
        ([[-1]], 2, "got -1 to -1"),
        ([[0.5]], 2, "ids must be integers"),
        (torch.zeros(1, 2), 2, "ids must be integers"),
    ],
)
def test_prompts_that_cannot_be_continued_are_refused(prompts, new_tokens, message):
    with pytest.raises(ValueError, match=message):
        generate(MODEL, prompts, new_tokens)


# ----------------------------------------------------------------------------------- frequencies
@pytest.mark.parametrize(
    "rule", [{}, {"temperature": 0.6}, {"top_k": 3}, {"top_p": 0.75, "temperature": 1.4}], ids=str
)
def test_pairs_of_tokens_come_as_often_as_their_probability_says(rule):
    n, v = 6_000, 5
    model = small_gpt(vocab_size=v, max_length=4, dtype=torch.float32, seed=1)
    prompt = [2, 0]
    pairs = torch.tensor(generate(model, torch.tensor([prompt]).expand(n, 2), 2, seed=5, **rule))
    with torch.no_grad():
        texts = torch.tensor([[*prompt, first] for first in range(v)])
        logits = model.logits(model(texts))
        first = next_token_probabilities(logits[:1, 1], **rule)[0]  # (v,)
        second = next_token_probabilities(logits[:, 2], **rule)  # (v, v)
    p = (first[:, None] * second).flatten()
    counts = torch.bincount(pairs[:, 0] * v + pairs[:, 1], minlength=v * v)
    assert not counts[p == 0].any(), "a token that the rule leaves out was drawn"
    # Five standard deviations of a binomial count, of at most 25 counts.
    assert ((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt() + 1e-3).all()
    assert (p > 0.02).sum() >= 3, "the model prefers too few tokens for the test to tell"


def test_rows_of_a_batch_are_drawn_independently():
    n = 4000
    model = small_gpt(vocab_size=5, max_length=4, dtype=torch.float32, seed=1)
    tokens = torch.tensor(generate(model, [[2, 0]] * n, 1, temperature=2.0))[:, 0]
    same = (tokens[::2] == tokens[1::2]).float().mean()
    share = torch.bincount(tokens) / n
    expected = share.square().sum()
    assert abs(same - expected) < 5 * (expected * (1 - expected) / (n / 2)).sqrt()


def test_the_model_is_not_a_trivial_one():
    """The tests above need texts that depend on all that came before."""
    rows = {tuple(row) for row in generate(MODEL, [[i] for i in range(17)], 8, temperature=0)}
    assert len(rows) > 8


# ------------------------------------------------------------------ logits that are no distribution
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_logits_that_give_no_distribution_are_refused(bad):
    logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, bad, 2.0]])
    for rule in RULES:
        with pytest.raises(ValueError, match=f"must be finite, got {bad}"):
            next_token_probabilities(logits, **rule)


def test_a_token_may_be_forbidden_but_not_all_of_them():
    nothing = -math.inf
    for rule in RULES:
        p = next_token_probabilities(torch.tensor([[0.0, nothing, nothing]]), **rule)
        assert p.tolist() == [[1.0, 0.0, 0.0]]
        with pytest.raises(ValueError, match="must be finite, got -inf"):
            next_token_probabilities(torch.full((1, 3), nothing), **rule)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_broken_model_writes_nothing(bad, temperature):
    broken = small_gpt()
    with torch.no_grad():
        broken.final_norm.weight.fill_(bad)
    with pytest.raises(ValueError, match="the greatest logit of a row must be finite"):
        generate(broken, [[1]], 2, temperature=temperature)
