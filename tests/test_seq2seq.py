"""Sequence to sequence: scale, tying, every place of dropout, causality, decoding in steps."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.seq2seq import Seq2Seq
from support.models.transformer import (
    Dropout,
    MultiHeadAttention,
    padding_mask,
    sinusoidal_positions,
)
from tests.exactness import EXACT_TYPES, close

quick = settings(max_examples=12, derandomize=True, database=None, deadline=None)
SOURCE, TARGET, D, HEADS, FF = 17, 19, 12, 3, 20
SIZES = {"d_model": D, "n_heads": HEADS, "d_ff": FF, "n_layers": 2, "max_length": 9}
LENGTHS = torch.tensor([5, 2, 4])


def small(*vocab_sizes, **options):
    torch.manual_seed(0)
    return Seq2Seq(*(vocab_sizes or (SOURCE, TARGET)), **(SIZES | options))


def ids(b=3, s=5, t=4, seed=1):
    draw = torch.Generator().manual_seed(seed)
    source = torch.randint(SOURCE, (b, s), generator=draw)
    return source, torch.randint(TARGET, (b, t), generator=draw)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_logits_are_the_papers_written_out(norm_first):
    model = small(norm_first=norm_first).eval()
    source, target = ids()
    positions = sinusoidal_positions(9, D)

    def vectors(table, tokens):
        return table.weight[tokens] * math.sqrt(D) + positions[: tokens.shape[1]]

    mask = padding_mask(LENGTHS, 5)
    states = model.stack(
        vectors(model.source_embedding, source),
        vectors(model.target_embedding, target),
        source_mask=mask,
    )
    logits = model(source, target, LENGTHS)
    assert logits.shape == (3, 4, TARGET)
    close(logits, states @ model.target_embedding.weight.T)


def test_one_embedding_serves_all_where_there_is_one_vocabulary():
    shared, two = small(SOURCE), small(SOURCE, TARGET)
    assert shared.source_embedding is shared.target_embedding
    assert two.source_embedding.weight.shape == (SOURCE, D)
    assert two.target_embedding.weight.shape == (TARGET, D)
    source, target = ids()
    assert shared(source, target % SOURCE).shape == (3, 4, SOURCE)
    same = small(SOURCE, SOURCE)
    assert not torch.equal(same.source_embedding.weight, same.target_embedding.weight)


def test_the_scaled_embeddings_start_with_variance_one():
    model = small(5000, 4000, d_model=64, n_heads=2)
    for table in (model.source_embedding, model.target_embedding):
        assert (table.weight.std() * 8).item() == pytest.approx(1, abs=0.01)


def test_the_same_seed_gives_the_same_model():
    kept = [small() for _ in range(12)]  # all alive, so that each stands elsewhere in memory
    for model in kept[1:]:
        for ours, first in zip(model.parameters(), kept[0].parameters(), strict=True):
            assert torch.equal(ours, first)


def test_norm_first_ends_with_a_norm_and_options_reach_the_blocks():
    model = small(norm_first=True, activation="gelu", dropout=0.2, attention_dropout=0.3)
    assert {type(s.final_norm).__name__ for s in (model.stack.encoder, model.stack.decoder)} == {
        "LayerNorm"
    }
    for layer in (*model.stack.encoder.layers, *model.stack.decoder.layers):
        assert layer.norm_first and layer.feed_forward.activation == "gelu"
        assert (layer.dropout.p, layer.attention.dropout.p) == (0.2, 0.3)
    assert type(small().stack.encoder.final_norm).__name__ == "Identity"
    assert small().dropout.p == small().stack.decoder.layers[0].dropout.p == 0.1


# ------------------------------------------------------------------------------------ dropout
@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_reaches_every_place_the_paper_has_it(norm_first, monkeypatch):
    dropped = []

    def forward(self, x):
        dropped.append((self.p, tuple(x.shape)))
        return x

    monkeypatch.setattr(Dropout, "forward", forward)
    model = small(dropout=0.2, attention_dropout=0.3, norm_first=norm_first)
    model(*ids(), LENGTHS)
    source, target = (0.2, (3, 5, D)), (0.2, (3, 4, D))
    encoder = [(0.3, (3, HEADS, 5, 5)), source, source]
    decoder = [(0.3, (3, HEADS, 4, 4)), target, (0.3, (3, HEADS, 4, 5)), target, target]
    assert dropped == [source, *encoder * 2, target, *decoder * 2]


def test_dropout_is_seeded_in_training_and_off_in_evaluation():
    model, (source, target) = small(dropout=0.3), ids()

    def out(seed):
        torch.manual_seed(seed)
        return model(source, target, LENGTHS)

    assert torch.equal(out(0), out(0)) and not torch.equal(out(0), out(1))
    model.eval()
    assert torch.equal(out(0), out(1))
    plain = small(dropout=0.0)
    assert torch.equal(plain(source, target, LENGTHS), out(0))


def test_dropout_of_the_embeddings_alone_changes_the_output():
    model, (source, target) = small(dropout=0.0), ids()
    plain = model(source, target)
    model.dropout.p = 0.5
    assert not torch.isclose(model(source, target), plain).all()


# ---------------------------------------------------------------------------------- the masks
@given(seed=st.integers(0, 99), t=st.integers(2, 6))
@quick
def test_a_later_token_changes_no_earlier_logits(seed, t):
    model, (source, target) = small().eval(), ids(t=t, seed=seed)
    at = seed % (t - 1) + 1
    changed = target.clone()
    changed[:, at:] = (target[:, at:] + 1) % TARGET
    before, after = model(source, target), model(source, changed)
    close(after[:, :at], before[:, :at])
    assert not torch.isclose(after[:, at:], before[:, at:]).all()


@given(seed=st.integers(0, 99), extra=st.integers(0, 4), dtype=st.sampled_from(EXACT_TYPES))
@quick
def test_padding_changes_nothing_whatever_is_in_it_and_however_long(seed, extra, dtype):
    model = small().to(dtype).eval()
    source, target = ids(seed=seed)
    padded = F.pad(source, (0, extra), value=3)
    other = torch.where(torch.arange(5 + extra) < LENGTHS[:, None], padded, (padded + 7) % SOURCE)
    logits = model(source, target, LENGTHS)
    close(model(other, target, LENGTHS), logits)
    for i, n in enumerate(LENGTHS):
        close(model(source[i : i + 1, :n], target[i : i + 1]), logits[i : i + 1])
    close(model(source, target), model(source, target, torch.tensor([5, 5, 5])))


def test_a_source_without_a_token_gives_finite_logits_and_gradients():
    model, (source, target) = small(), ids()
    for training in (False, True):
        model.train(training)
        logits = model(source, target, torch.tensor([5, 0, 1]))
        model.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        assert logits.isfinite().all()
        assert all(value.grad.isfinite().all() for value in model.parameters())


# --------------------------------------------------------------------------- decoding in steps
chunks = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@given(
    chunks=chunks,
    norm_first=st.booleans(),
    dtype=st.sampled_from(EXACT_TYPES),
    spare=st.integers(0, 2),
)
@quick
def test_decoding_in_steps_gives_the_logits_of_one_pass(chunks, norm_first, dtype, spare):
    model = small(norm_first=norm_first).to(dtype).eval()
    t = sum(chunks)
    source, target = ids(t=t, seed=t)
    with torch.no_grad():
        memory, mask = model.encode(source, LENGTHS)
        cache = model.stack.decoder.new_cache(t + spare, 5 + spare)
        pieces = [model.decode(part, memory, mask, cache) for part in target.split(chunks, 1)]
        close(torch.cat(pieces, 1), model(source, target, LENGTHS))


# ------------------------------------------------------------------------------------ learning
def test_it_learns_a_few_pairs_by_heart():
    model, (source, target) = small(dropout=0.0), ids(b=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    fed = F.pad(target, (1, -1))  # id 0 starts
    for _ in range(40):
        loss = F.cross_entropy(model(source, fed).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3, f"uniform guessing has a loss of {math.log(TARGET):.2f}"


# -------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, s, t: m(s + SOURCE, t), f"ids must be from 0 to {SOURCE - 1}"),
        (lambda m, s, t: m(s, t - TARGET), f"ids must be from 0 to {TARGET - 1}, got -"),
        (lambda m, s, t: m(s, t + TARGET), f"ids must be from 0 to {TARGET - 1}"),
        (lambda m, s, t: m(s[0], t), r"integers \(B, T\), got torch.int64 \(5,\)"),
        (lambda m, s, t: m(s, t.float()), r"integers \(B, T\), got torch.float32 \(3, 4\)"),
        (lambda m, s, t: m(s.repeat(1, 2), t), "has 9 positions, the sequence needs 10"),
        (lambda m, s, t: m(s, t.repeat(1, 3)), "has 9 positions, the sequence needs 12"),
        (lambda m, s, t: m(s[:1], t), r"memory must be \(3, T, 12\), got \(1, 5, 12\)"),
        (lambda m, s, t: m(s, t[:1]), r"memory must be \(1, T, 12\), got \(3, 5, 12\)"),
        (lambda m, s, t: m(s, t, LENGTHS + 1), "lengths must be from 0 to 5, got 3 to 6"),
        (lambda m, s, t: m(s, t, LENGTHS[:1]), r"attn_mask must be .* got \(1, 1, 5\)"),
        (lambda m, s, t: m(s, t, LENGTHS[:2]), r"attn_mask must be .* got \(2, 1, 5\)"),
        (lambda m, s, t: m(s, t, LENGTHS[:, None]), r"lengths must be integers \(B,\)"),
        (lambda m, s, t: m.decode(t, m.encode(s)[0], s > 0), r"must be .* got \(3, 5\)"),
        (
            lambda m, s, t: m.decode(t, m.encode(s)[0], torch.zeros(3, 1, 5)),
            "attn_mask must be boolean.* got torch.float32",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_a_message_that_names_it(call, message):
    model, (source, target) = small(), ids()
    with pytest.raises(ValueError, match=message):
        call(model, source, target)


def test_steps_beyond_the_positions_are_refused():
    model, (source, target) = small().eval(), ids(t=9)
    memory, _ = model.encode(source)
    cache = model.stack.decoder.new_cache(20, 5)
    model.decode(target, memory, cache=cache)
    with pytest.raises(ValueError, match="has 9 positions, the sequence needs 10"):
        model.decode(target[:, :1], memory, cache=cache)


def test_a_model_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="d_model 12 must be a multiple of n_heads 5"):
        small(n_heads=5)
    with pytest.raises(ValueError, match="d_model must be even, got 9"):
        small(d_model=9)
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got -0.1"):
        small(dropout=-0.1)
    with pytest.raises(ValueError, match="got 'swish'"):
        small(activation="swish")
    assert sum(isinstance(m, MultiHeadAttention) for m in small().modules()) == 6
