"""BERT's data: sentences, partners that are never the true next, shortening, masks, batches."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data import toyworld
from support.text.masking import (
    SPECIALS,
    Documents,
    SentencePairs,
    mask_tokens,
    pretraining_batches,
    shorten_pairs,
    split_sentences,
)
from support.text.vocab import Vocab

quick = settings(max_examples=100, derandomize=True, database=None, deadline=None)
PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = 12  # 5 … 11 are ordinary tokens

# Few tokens and short sentences, so that copies of a sentence are common.
sentence = st.lists(st.sampled_from([UNK, 5, 6]), min_size=1, max_size=4)
small_texts = st.lists(st.lists(sentence, min_size=1, max_size=4), min_size=1, max_size=6)


def documents_of(paragraphs, size=VOCAB):
    """Return the documents of paragraphs of sentences of ids; the special ids are 0 … 4."""
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    ids = np.array([i for sentence in sentences for i in sentence], np.int32)
    bounds = [np.cumsum([0, *map(len, part)]) for part in (sentences, paragraphs)]
    return Documents(ids, *bounds, Vocab([*SPECIALS, *map(str, range(5, size))]))


def rng_of(seed=0):
    return np.random.default_rng(seed)


def sentences_of(documents):
    return [documents.ids[i:j].tolist() for i, j in pairwise(documents.sentences)]


@pytest.fixture(scope="module")
def toy():
    text = "\n".join(" ".join(p.sentences) for p in toyworld.paragraphs(seed=3, n=400))
    return Documents.from_text(text, min_freq=5)


# --------------------------------------------------------------------------------- sentences
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b . c d . ", ["a b .", "c d ."]),
        ("why ? go ! now", ["why ?", "go !", "now"]),
        ("h. americanus is 0 @.@ 5 m .", ["h. americanus is 0 @.@ 5 m ."]),
        ("well . . . yes .", ["well . . .", "yes ."]),
        ("what ? ! no .", ["what ? !", "no ."]),
        ('he said " yes . " then left .', ['he said " yes . "', "then left ."]),
        ('he said " yes . "', ['he said " yes . "']),
        ('no . " . end', ['no . " .', "end"]),
        ("one.two .three", ["one.two .three"]),
        ("e = m c .", ["e = m c ."]),
    ],
)
def test_a_sentence_ends_after_its_marks(line, expected):
    assert split_sentences(line) == [expected]


# --------------------------------------------------------------------------------- documents
def test_documents_of_a_text_are_flat_arrays():
    text = "= T =\nthe cat . the dog .\n<unk> the cat <unk> .\n"
    documents = Documents.from_text(text, min_freq=2)
    assert documents.vocab.get_itos() == [*SPECIALS, ".", "the", "cat"]
    assert documents.special_ids == [PAD, UNK, CLS, SEP, MASK] and documents.vocab_size == 8
    assert documents.ids.tolist() == [6, 7, 5, 6, UNK, 5, UNK, 6, 7, UNK, 5]
    assert documents.sentences.tolist() == [0, 3, 6, 11]
    assert documents.paragraphs.tolist() == [0, 2, 3]
    assert documents.ids.dtype == np.int32
    assert documents.sentences.dtype == documents.paragraphs.dtype == np.int64


def test_a_given_vocabulary_keeps_its_special_ids():
    vocab = Vocab(["the", *reversed(SPECIALS), "."])
    documents = Documents.from_text("the cat . the <unk> .", vocab=vocab)
    assert documents.special_ids == [5, 4, 3, 2, 1]
    assert documents.ids.tolist() == [0, 4, 6, 0, 4, 6] and documents.vocab is vocab


@pytest.mark.parametrize("end", ["\r\n", "\n\n", " \n\t\n"])
def test_line_ends_do_not_change_the_sentences(end):
    lines = ["The cat sat . It slept .", "שלום . עולם !", "A 👩‍👩‍👧 came . cafe\u0301 ?"]
    found, whole = Documents.from_text(end.join(lines)), Documents.from_text("\n".join(lines))
    for name in ("ids", "sentences", "paragraphs"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()
    assert found.paragraphs.tolist() == [0, 2, 4, 6]


def test_documents_without_text_or_special_tokens_are_refused():
    with pytest.raises(ValueError, match="no token is left"):
        Documents.from_text(" = Only a heading = \n")
    with pytest.raises(ValueError, match="without .*CLS.*SEP.*MASK"):
        Documents.from_text("a", vocab=Vocab(["[PAD]", "[UNK]"]))


# ----------------------------------------------------------------------------- next sentence
def shortened(a, b, room):
    """Return two lists of ids shortened one token at a time, as the authors' code does."""
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    return a, b


def possible_partners(paragraphs, room):
    """Return for each pair (p, i), sentences i and i + 1 of paragraph p, its random partners."""
    known = {(p, i): set(s[: (room + 1) // 2]) - {UNK} for p, x in enumerate(paragraphs)
             for i, s in enumerate(x)}  # fmt: skip
    seconds = [
        (p, i) for p, x in enumerate(paragraphs) for i in range(1, len(x)) if known[p, i - 1]
    ]
    text = {(p, i): paragraphs[p][i][: room // 2] for p, i in seconds}
    return {s: [o for o in seconds if o[0] != s[0] and text[o] != text[s]] for s in seconds}


@given(small_texts, st.integers(2, 9), st.integers(0, 99))
@quick
def test_a_random_partner_is_never_the_true_next(paragraphs, room, seed):
    possible = possible_partners(paragraphs, room)
    pairs = SentencePairs(documents_of(paragraphs), room)
    position = [(p, i) for p, parts in enumerate(paragraphs) for i in range(len(parts))]
    assert [position[second] for second in pairs.second] == list(possible)
    assert (pairs.first + 1).tolist() == pairs.second.tolist()
    if not all(possible.values()):
        return
    drawn, is_next = pairs.draw(rng_of(seed))
    for a, true, b, follows in zip(pairs.first, pairs.second, drawn, is_next, strict=True):
        assert (b == true) if follows else (position[b] in possible[position[true]])
        one, two = (paragraphs[p][i] for p, i in (position[true], position[b]))
        first = paragraphs[position[a][0]][position[a][1]]
        if not follows:
            assert one != two and shortened(first, one, room)[1] != shortened(first, two, room)[1]


def test_half_are_true_and_the_others_are_any_allowed_sentence_equally_often():
    paragraphs = [[[5], [6]], [[7], [8], [9]], [[5], [6], [10]]]
    pairs = SentencePairs(documents_of(paragraphs), 10)
    rng, n = rng_of(), 8000
    counts = np.zeros((5, 8))
    true = 0
    for _ in range(n):
        second, is_next = pairs.draw(rng)
        true += is_next.sum()
        np.add.at(counts, (np.flatnonzero(~is_next), second[~is_next]), 1)
    assert abs(true / (5 * n) - 0.5) < 0.015
    # Sentences by number: 1 and 6 are copies; 0, 2 and 5 begin a paragraph.
    allowed = {1: [3, 4, 7], 3: [1, 6, 7], 4: [1, 6, 7], 6: [3, 4], 7: [1, 3, 4]}
    for row, partners in zip(counts, allowed.values(), strict=True):
        assert np.flatnonzero(row).tolist() == partners
        np.testing.assert_allclose(row[partners] / row.sum(), 1 / len(partners), atol=0.03)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1), st.integers(2, 40))
@quick
def test_pairs_are_shortened_longest_first(lengths, room):
    a, b = np.array(lengths).T
    short = np.array(shorten_pairs(a, b, room)).T
    for old, new in zip(lengths, short.tolist(), strict=True):
        assert list(map(len, shortened(range(old[0]), range(old[1]), room))) == new
        assert min(new) >= min(min(old), room // 2) and sum(new) == min(sum(old), room)


# ------------------------------------------------------------------------------------- masks
def hide(ids, choosable, rng, **options):
    options = {"mask_id": MASK, "random_ids": np.arange(5, VOCAB), **options}
    return mask_tokens(np.asarray(ids), np.asarray(choosable), rng, **options)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.01, 0.15, 1.0]))
@quick
def test_each_row_has_its_share_of_predictions_and_nothing_else_changes(seed, density, share):
    rng = rng_of(seed)
    shape = rng.integers(1, 7), rng.integers(1, 25)
    ids, choosable = rng.integers(5, VOCAB, shape), rng.random(shape) < density
    before = ids.copy()
    masked, positions, targets = hide(ids, choosable, rng, share=share)
    assert (ids == before).all() and masked is not ids
    chosen = np.zeros(ids.size, bool)
    chosen[positions] = True
    chosen = chosen.reshape(ids.shape)
    assert (np.diff(positions) > 0).all() and not (chosen & ~choosable).any()
    n = choosable.sum(1)
    wanted = np.minimum(n, np.maximum(1, np.floor(share * n + 0.5))).astype(int)
    assert chosen.sum(1).tolist() == wanted.tolist()
    assert (targets == ids[chosen]).all() and (masked[~chosen] == ids[~chosen]).all()
    assert np.isin(masked[chosen], [MASK, *range(5, VOCAB)]).all()


def test_every_token_is_as_likely_to_be_chosen_as_any_other():
    rows, columns = 20_000, 22
    ids = np.full((rows, columns), 5)
    _, positions, _ = hide(ids, ids > 0, rng_of())
    found = np.bincount(positions % columns, minlength=columns) / rows
    np.testing.assert_allclose(found, 3 / 22, atol=0.015)


@pytest.mark.parametrize(
    "fractions", [(0.8, 0.1, 0.1), (1, 0, 0), (0, 0, 1), (0, 1, 0), (0.5, 0.3, 0.2)]
)
def test_hidden_tokens_are_masked_random_or_kept_in_their_fractions(fractions):
    ids = np.full((4000, 40), 7)
    noisy, places, targets = hide(ids, ids > 0, rng_of(1), fractions=fractions)
    shown = noisy.reshape(-1)[places]
    assert len(places) == 4000 * 6 and (targets == 7).all()
    masked, random, kept = fractions
    counts = np.bincount(shown, minlength=VOCAB) / len(places)
    expected = np.zeros(VOCAB)
    expected[MASK] = masked
    expected[5:] = random / 7  # a random token can be the one that stood there
    expected[7] += kept
    np.testing.assert_allclose(counts, expected, atol=0.01)
    assert (counts[expected == 0] == 0).all()


@pytest.mark.parametrize("options", [{"share": 15}, {"share": 0}, {"fractions": (80, 10, 10)}])
def test_percentages_are_refused(options):
    with pytest.raises(ValueError, match="fractions, not percentages"):
        hide([[5]], [[True]], rng_of(), **options)


def test_what_would_pass_in_silence_is_refused(toy):
    with pytest.raises(ValueError, match=r"choosable of shape \(1, 2\), got \(1, 1\)"):
        hide([[5, 6]], [[True]], rng_of())
    with pytest.raises(ValueError, match="max_length of at least 5, .* got 4"):
        pretraining_batches(toy, 4, 4)


# ----------------------------------------------------------------------------------- batches
def unmasked(batch):
    """Return the ids (B, T) as they were before tokens were hidden."""
    return batch.ids.flatten().index_put((batch.positions,), batch.targets).view_as(batch.ids)


def check_epoch(documents, batches, batch_size, max_length):
    """Assert all that the batches of an epoch promise; where no pair is shortened, labels too."""
    special, listed = documents.special_ids, list(map(tuple, sentences_of(documents)))
    pad, unk, cls, sep_id, mask = special
    begins = set(documents.paragraphs.tolist())
    kept = (max_length - 2) // 2  # of a first sentence, at least
    firsts = [i for i in range(len(listed) - 1) if i + 1 not in begins]
    firsts = [i for i in firsts if set(listed[i][:kept]) - {unk}]
    seen, n_predicted = [], 0
    for batch in batches:
        assert len(batch.targets) >= len(batch.ids), "each pair has something to predict"
        T, lengths = batch.ids.shape[1], batch.lengths.tolist()
        assert all(part.dtype == torch.int64 for part in batch) and len(batch.ids) <= batch_size
        assert lengths == sorted(lengths) and lengths[-1] == T <= max_length
        rows = unmasked(batch).tolist()
        for row, segment, n in zip(rows, batch.segments.tolist(), lengths, strict=True):
            sep = row.index(sep_id)
            assert row[0] == cls and row[n - 1] == sep_id
            assert row[n:] == [pad] * (T - n)
            assert segment == [0] * (sep + 1) + [1] * (n - sep - 1) + [0] * (T - n)
            seen.append((tuple(row[1:sep]), tuple(row[sep + 1 : n - 1])))
            known = sum(token not in special for token in row)
            n_predicted += min(known, max(1, int(0.15 * known + 0.5)))
        shown = batch.ids.flatten()[batch.positions]
        assert not set(batch.targets.tolist()) & set(special)
        assert not set(shown.tolist()) & (set(special) - {mask})
    assert sum(len(batch.positions) for batch in batches) == n_predicted
    assert len(seen) == len(firsts)
    if max_length - 3 >= 2 * max(map(len, listed)):
        assert sorted(a for a, _ in seen) == sorted(listed[i] for i in firsts)
        true = {(listed[i], listed[i + 1]) for i in firsts}
        labels = torch.cat([batch.is_next for batch in batches]).tolist()
        assert all(pair in true for pair, label in zip(seen, labels, strict=True) if label)
        assert {b for _, b in seen} <= {listed[i + 1] for i in firsts}


@pytest.mark.parametrize(("batch_size", "max_length"), [(32, 64), (7, 17), (1000, 12), (5000, 5)])
def test_a_batch_is_what_it_promises(toy, batch_size, max_length):
    batches = pretraining_batches(toy, batch_size, max_length)
    made = batches(0)
    assert {len(b.ids) for b in made[:-1]} <= {batch_size}
    check_epoch(toy, made, batch_size, max_length)


def test_the_labels_are_right_where_every_sentence_is_another():
    numbers = iter(range(5, 10_000))
    paragraphs = [[[next(numbers) for _ in range(6)] for _ in range(4)] for _ in range(50)]
    documents = documents_of(paragraphs, 10_000)
    for batch in pretraining_batches(documents, 16, 9)(0):  # each half keeps 3 of its 6 tokens
        a, b = unmasked(batch)[:, 1] - 5, unmasked(batch)[:, 5] - 5
        assert (a % 6 == 0).all() and (b % 6 == 0).all() and (a // 6 % 4 < 3).all()
        assert ((b == a + 6) == batch.is_next.bool()).all()
        assert ((a // 24 == b // 24) == batch.is_next.bool()).all()


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_an_epoch_is_the_same_again_and_the_next_one_is_another(toy):
    batches = pretraining_batches(toy, 64, seed=4)
    first, again, other = batches(1), batches(1), pretraining_batches(toy, 64, seed=4)(1)
    assert all(map(same, first, again)) and all(map(same, first, other))
    for different in (batches(0), pretraining_batches(toy, 64, seed=5)(1)):
        assert not any(map(same, first, different))


def test_masks_and_partners_are_drawn_afresh_in_each_epoch():
    numbers = iter(range(5, 10_000))
    paragraphs = [[[next(numbers) for _ in range(10)] for _ in range(2)] for _ in range(200)]
    batches = pretraining_batches(documents_of(paragraphs, 10_000), 200)
    rows = []
    for epoch in range(2):
        (batch,) = batches(epoch)
        clean = unmasked(batch)
        hidden = torch.zeros(200 * 23)
        hidden[batch.positions] = 1
        order = clean[:, 1].argsort()
        assert not torch.equal(order, torch.arange(200))
        rows.append((order, clean[order], hidden.view(200, 23)[order], batch.is_next[order]))
    (order, clean, hidden, label), (order2, clean2, hidden2, label2) = rows
    assert torch.equal(clean[:, 1:11], clean2[:, 1:11]) and not torch.equal(order, order2)
    assert 0.35 < (label == label2).float().mean() < 0.65
    both_random = (label == 0) & (label2 == 0)
    assert (clean[both_random, 12] != clean2[both_random, 12]).float().mean() > 0.9
    # Masks that are drawn independently share 15 % of their places.
    assert (hidden.sum(1) == 3).all() and (hidden * hidden2).sum() / hidden.sum() < 0.25


def test_the_same_seed_gives_these_very_batches_on_every_machine():
    paragraphs = [[[5, 6, 7], [8, 9]], [[10, 11], [5, 5, 5, 6], [7]], [[9, 9], [10, 5, 11, 8]]]
    (batch,) = pretraining_batches(documents_of(paragraphs), 8, 9, seed=1)(5)
    assert batch.ids.tolist() == [
        [CLS, MASK, 6, 7, SEP, 8, 9, SEP, PAD],
        [CLS, 10, 11, SEP, 10, 5, 9, 8, SEP],
        [CLS, MASK, 9, SEP, 10, 5, 11, 8, SEP],
        [CLS, 5, 5, 5, SEP, 10, 5, MASK, SEP],
    ]
    assert batch.segments[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert batch.lengths.tolist() == [8, 9, 9, 9]
    assert batch.positions.tolist() == [1, 15, 19, 34]
    assert batch.targets.tolist() == [5, 11, 9, 11]
    assert batch.is_next.tolist() == [1, 0, 1, 0]


def test_a_batch_of_one_always_has_something_to_predict():
    """Once a batch whose only pair was all [UNK] ended the training of an epoch."""
    paragraphs = [[[UNK], [UNK]], [[5, UNK], [UNK]], [[UNK, UNK], [6]], [[7], [8]]]
    batches = pretraining_batches(documents_of(paragraphs), 1)
    for epoch in range(20):
        made = batches(epoch)
        assert len(made) == 2 and all(len(batch.targets) > 0 for batch in made)


def test_special_ids_can_be_anywhere(toy):
    # As in BERT's own vocabulary, where [PAD] is 0, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103.
    words = toy.vocab.get_itos()[5:]
    names = ["[PAD]", *(f"x{i}" for i in range(99)), *SPECIALS[1:], *words]
    table = Vocab(names).lookup_indices(toy.vocab.get_itos())
    ids = np.array(table, np.int32)[toy.ids]
    documents = Documents(ids, toy.sentences, toy.paragraphs, Vocab(names))
    batches = pretraining_batches(documents, 50)(0)
    check_epoch(documents, batches, 50, 64)
    shown = torch.cat([batch.ids.flatten()[batch.positions] for batch in batches])
    drawn = shown[(shown < 100) & (shown != 103)]
    assert len(drawn) > 20 and not set(drawn.tolist()) & set(documents.special_ids)


@pytest.mark.parametrize(
    ("paragraphs", "message"),
    [
        ([[[5]], [[6]]], "no paragraph has two sentences"),
        ([[[UNK], [6]], [[UNK], [5]]], "of which the first holds a known word"),
        ([[[5], [6], [7]]], "has no random partner"),
        ([[[5], [6]], [[7], [6]], [[5]]], "has no random partner"),
    ],
)
def test_text_without_a_possible_partner_is_refused(paragraphs, message):
    with pytest.raises(ValueError, match=message):
        for epoch in range(20):  # a pair that is drawn as a true one needs no partner
            pretraining_batches(documents_of(paragraphs), 3)(epoch)
