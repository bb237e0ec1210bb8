"""Generation: the distribution by brute force, the text with and without the cache, frequencies."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.models.gpt import GPT, GPTConfig, generate, next_token_probabilities
from tests.exactness import rounded_anew

quick = settings(max_examples=60, derandomize=True, database=None, deadline=None)
# Far enough apart, or equal, in the eyes of a softmax in float32.
one_logit = st.integers(-400, 400).map(lambda i: i / 64)


def small_gpt(vocab_size=17, max_length=24, dtype=torch.float64, seed=0, **options):
    """Return a model with random weights of unit scale, so that it prefers some tokens."""
    torch.manual_seed(seed)
    config = GPTConfig(vocab_size, 16, 2, 2, max_length=max_length, **options)
    return rounded_anew(GPT(config).to(dtype)).eval()


MODEL = small_gpt()
RULES = [
    {"temperature": 0},
    {},
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
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7, 5.0]),
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
def test_a_sum_that_just_reaches_top_p_is_enough_and_of_equals_the_lower_id_stays(top_p, n):
    p = next_token_probabilities(torch.zeros(1, 4), top_p=top_p)
    assert torch.equal(p[0], (torch.arange(4) < n) / n)


def test_top_p_counts_what_top_k_leaves():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    both = next_token_probabilities(logits, top_k=2, top_p=0.57)
    assert both.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert (next_token_probabilities(logits, top_p=0.57) > 0).sum() == 2


def test_rules_that_keep_everything_keep_everything():
    torch.manual_seed(0)
    logits = torch.randn(2, 5000) * 3
    for rule in ({}, {"top_k": 5000}, {"top_k": 9999}, {"top_p": 1.0}):
        p = next_token_probabilities(logits, **rule)
        torch.testing.assert_close(p, logits.softmax(-1))
        assert (p > 0).all(), rule
    half = next_token_probabilities(logits.bfloat16(), top_p=0.9)
    torch.testing.assert_close(half.sum(-1), torch.ones(2))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"temperature": -0.1}, "a temperature of at least 0, got -0.1"),
        ({"temperature": math.nan}, "got nan"),
        ({"top_k": 0}, "top_k of at least 1, got 0"),
        ({"top_k": -3}, "got -3"),
        ({"top_p": 0.0}, "top_p above 0 and at most 1, got 0.0"),
        ({"top_p": 90}, "got 90"),
        ({"top_p": math.nan}, "got nan"),
    ],
)
def test_rules_that_would_change_the_distribution_in_silence_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        next_token_probabilities(torch.zeros(1, 4), **rule)
    with pytest.raises(ValueError, match=message):
        generate(MODEL, [[1]], 2, **rule)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_broken_model_writes_nothing(temperature):
    broken = small_gpt()
    broken.final_norm.weight.data.fill_(math.nan)
    with pytest.raises(ValueError, match="the logits are NaN"):
        generate(broken, [[1]], 2, temperature=temperature)


def test_a_forbidden_token_never_comes():
    logits = torch.tensor([[0.0, -math.inf, -math.inf]])
    for rule in RULES:
        assert next_token_probabilities(logits, **rule).tolist() == [[1.0, 0.0, 0.0]]


# -------------------------------------------------------------------------------------- generate
def slow_generate(model, prompts, new_tokens, seed=0, **rule):
    """Return the new ids of prompts of one length: the whole text again for each token."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor(prompts)
    with torch.no_grad():
        for _ in range(new_tokens):
            p = next_token_probabilities(model(ids)[:, -1], **rule)
            fresh = torch.multinomial(p, 1, generator=generator)
            if rule.get("temperature") == 0:
                assert torch.equal(fresh, model(ids)[:, -1].argmax(-1, keepdim=True))
            ids = torch.cat((ids, fresh), dim=1)
    return ids[:, len(prompts[0]) :].tolist()


@every_rule
@pytest.mark.parametrize("prompts", [PROMPTS, [[3]], torch.tensor([[1, 2], [2, 1]])], ids=len)
def test_the_text_is_that_of_a_loop_over_the_whole_model_with_and_without_the_cache(rule, prompts):
    for seed in range(2):
        expected = slow_generate(MODEL, torch.as_tensor(prompts).tolist(), 12, seed, **rule)
        for use_cache in (True, False):
            assert generate(MODEL, prompts, 12, seed=seed, use_cache=use_cache, **rule) == expected


def test_the_model_is_not_a_trivial_one():
    """The tests here need texts that depend on all that came before."""
    rows = {tuple(row) for row in generate(MODEL, [[i] for i in range(17)], 8, temperature=0)}
    assert len(rows) > 8


def test_a_seed_gives_one_text_and_touches_no_other_randomness():
    before = torch.get_rng_state()
    first = generate(MODEL, PROMPTS, 12, seed=1, temperature=2.0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert generate(MODEL, PROMPTS, 12, seed=1, temperature=2.0) == first
    assert generate(MODEL, PROMPTS, 12, seed=2, temperature=2.0) != first


@every_rule
def test_a_text_ends_with_its_first_stop_token(rule):
    whole = generate(MODEL, PROMPTS, 9, **rule)
    for stop in ([whole[0][2]], [whole[1][0], whole[2][5]], {3, 4, 16}, (99,)):
        for row, full in zip(generate(MODEL, PROMPTS, 9, stop=stop, **rule), whole, strict=True):
            ends = [i for i, token in enumerate(full) if token in stop]
            assert row == (full[: ends[0] + 1] if ends else full)


def test_nothing_is_computed_twice_or_after_all_texts_have_ended():
    read = []
    handle = MODEL.tokens.register_forward_pre_hook(lambda _, args: read.append(args[0].shape))
    whole = generate(MODEL, PROMPTS, 16, temperature=0)
    assert read == [(4, 5)] + [(4, 1)] * 15, "with the cache, each call takes what is new"
    stop = {row[n] for n, row in enumerate(whole)}
    last = max(next(i for i, token in enumerate(row) if token in stop) for row in whole)
    read.clear()
    generate(MODEL, PROMPTS, 16, temperature=0, stop=stop)
    assert len(read) == last + 1 < 16
    read.clear()
    generate(MODEL, PROMPTS, 3, temperature=0, use_cache=False)
    assert read == [(4, 5), (4, 6), (4, 7)]
    handle.remove()


def test_dropout_is_off_and_every_module_is_in_the_mode_it_was_in_afterwards():
    model = small_gpt(dropout=0.5, attention_dropout=0.5)
    expected = generate(model, PROMPTS, 8, temperature=0)
    model.train()
    model.layers[0].eval()  # frozen
    modes = [module.training for module in model.modules()]
    assert generate(model, PROMPTS, 8, temperature=0) == expected
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(IndexError):
        generate(model, [[1, 17]], 2)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_last_token_needs_no_position(use_cache):
    for length in (1, 20, 24):
        prompt, room = [list(range(1, 17)) * 2][0][:length], 25 - length
        assert len(generate(MODEL, [prompt], room, use_cache=use_cache)[0]) == room
        with pytest.raises(ValueError, match="do not fit into 24 positions"):
            generate(MODEL, [prompt], room + 1, use_cache=use_cache)


@pytest.mark.parametrize("prompts", [[[1], [1, 2]], [1, 2], [[0.5]], [[]], [[-1]]], ids=str)
def test_prompts_that_cannot_be_continued_are_refused(prompts):
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        generate(MODEL, prompts, 2)


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
        logits = model(torch.tensor([[*prompt, first] for first in range(v)]))
        first = next_token_probabilities(logits[:1, 1], **rule)[0]  # (v,)
        second = next_token_probabilities(logits[:, 2], **rule)  # (v, v)
    p = (first[:, None] * second).flatten()
    counts = torch.bincount(pairs[:, 0] * v + pairs[:, 1], minlength=v * v)
    assert not counts[p == 0].any(), "a token that the rule leaves out was drawn"
    # Five standard deviations of a binomial count, of at most 25 counts.
    assert ((counts - n * p).abs() <= 5 * (n * p * (1 - p)).sqrt() + 1e-3).all()
    assert (p > 0.02).sum() >= 3, "the model prefers too few tokens for the test to tell"
