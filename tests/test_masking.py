"""BERT's data: sentences, partners that are never the true next, shortening, masks, batches."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data import datasets, toyworld
from support.text.masking import (
    SPECIALS,
    Documents,
    SentencePairs,
    SpecialIds,
    mask_tokens,
    pretraining_batches,
    shorten_pairs,
    split_sentences,
)
from support.text.vocab import Vocab
from support.training import fit

quick = settings(max_examples=100, derandomize=True, database=None, deadline=None)
PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = 12  # 5 … 11 are ordinary tokens

# Few tokens and short sentences, so that copies of a sentence are common.
sentence = st.lists(st.sampled_from([UNK, 5, 6]), min_size=1, max_size=4)
small_texts = st.lists(st.lists(sentence, min_size=1, max_size=4), min_size=1, max_size=6)


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


def test_headings_and_empty_lines_are_no_paragraphs():
    text = " \n = Lobster = \n \n a . b . \n = = Size = = \n c . \n\n"
    assert split_sentences(text) == [["a .", "b ."], ["c ."]]


def test_the_embedded_wikitext2_splits_into_toyworlds_sentences():
    text = datasets.wikitext2("valid", source="embedded").text
    made = toyworld.paragraphs(seed=1, n=400)
    assert split_sentences(text) == [list(paragraph.sentences) for paragraph in made]


# --------------------------------------------------------------------------------- documents
def test_documents_of_a_text_are_flat_arrays():
    text = "= T =\nthe cat . the dog .\n<unk> the cat <unk> .\n"
    documents = Documents.from_text(text, min_freq=2)
    assert documents.vocab.get_itos() == [*SPECIALS, ".", "the", "cat"]
    assert documents.special == (PAD, UNK, CLS, SEP, MASK) and documents.vocab_size == 8
    assert documents.ids.tolist() == [6, 7, 5, 6, UNK, 5, UNK, 6, 7, UNK, 5]
    assert documents.sentences.tolist() == [0, 3, 6, 11]
    assert documents.paragraphs.tolist() == [0, 2, 3]
    assert documents.ids.dtype == np.int32
    assert documents.sentences.dtype == documents.paragraphs.dtype == np.int64


def test_a_given_vocabulary_keeps_its_special_ids():
    vocab = Vocab(["the", *reversed(SPECIALS), "."])
    documents = Documents.from_text("the cat . the <unk> .", vocab=vocab)
    assert documents.special == SpecialIds(pad=5, unk=4, cls=3, sep=2, mask=1)
    assert documents.ids.tolist() == [0, 4, 6, 0, 4, 6] and documents.vocab is vocab


def test_documents_of_ids_are_the_same_as_of_their_text(toy):
    listed = sentences_of(toy)
    paragraphs = [listed[i:j] for i, j in pairwise(toy.paragraphs)]
    again = Documents.from_ids(iter(paragraphs), toy.vocab_size)
    for name in ("ids", "sentences", "paragraphs"):
        array, other = getattr(toy, name), getattr(again, name)
        assert array.dtype == other.dtype and array.tolist() == other.tolist()
    assert again.vocab is None and again.special == toy.special


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Documents.from_text(" = T = \n"), "no token left"),
        (lambda: Documents.from_text("a", vocab=Vocab(["[PAD]", "[UNK]"])), "CLS.*SEP.*MASK"),
        (lambda: Documents.from_ids([], 9), "sentences must rise from 0 to 0"),
        (lambda: Documents.from_ids([[[5], []]], 9), "sentences must rise from 0 to 1"),
        (lambda: Documents.from_ids([[[5]], []], 9), "paragraphs must rise from 0 to 1"),
        (lambda: Documents.from_ids([[[5, 9]]], 9), "0 … 8, got 0 … 9"),
        (lambda: Documents.from_ids([[[5, -1]]], 9), "0 … 8, got -1 … 5"),
        (lambda: Documents.from_ids([[[5]]], 9, SpecialIds(mask=103)), "0 … 8, got 0 … 103"),
    ],
)
def test_documents_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ----------------------------------------------------------------------------- next sentence
def shortened(a, b, room):
    """Return two lists of ids shortened one token at a time, as the authors' code does."""
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    return a, b


def possible_partners(paragraphs, room):
    """Return for each pair (p, i), sentences i and i + 1 of paragraph p, its random partners."""
    seconds = [(p, i) for p, parts in enumerate(paragraphs) for i in range(1, len(parts))]
    text = {(p, i): paragraphs[p][i][: room // 2] for p, i in seconds}
    return {s: [o for o in seconds if o[0] != s[0] and text[o] != text[s]] for s in seconds}


@given(small_texts, st.integers(2, 9), st.integers(0, 99))
@quick
def test_a_random_partner_is_never_the_true_next(paragraphs, room, seed):
    documents = Documents.from_ids(paragraphs, VOCAB)
    possible = possible_partners(paragraphs, room)
    if not possible or not all(possible.values()):
        with pytest.raises(ValueError, match="two sentences|nothing can take the place"):
            SentencePairs(documents, room)
        return
    pairs = SentencePairs(documents, room)
    place = [(p, i) for p, parts in enumerate(paragraphs) for i in range(len(parts))]
    assert [place[second] for second in pairs.second] == list(possible)
    assert (pairs.first + 1).tolist() == pairs.second.tolist()
    drawn, is_next = pairs.draw(rng_of(seed))
    for a, true, b, follows in zip(pairs.first, pairs.second, drawn, is_next, strict=True):
        assert (b == true) if follows else (place[b] in possible[place[true]])
        one, two = (paragraphs[p][i] for p, i in (place[true], place[b]))
        first = paragraphs[place[a][0]][place[a][1]]
        if not follows:
            assert one != two and shortened(first, one, room)[1] != shortened(first, two, room)[1]


def test_half_are_true_and_the_others_are_any_allowed_sentence_equally_often():
    paragraphs = [[[5], [6]], [[7], [8], [9]], [[5], [6], [10]]]
    pairs = SentencePairs(Documents.from_ids(paragraphs, VOCAB), 10)
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


def test_a_partner_alone_does_not_tell_whether_it_is_the_true_next(toy):
    pairs = SentencePairs(toy, 61)
    begins = set(toy.paragraphs.tolist())
    second, is_next = pairs.draw(rng_of())
    assert not begins & set(second[~is_next].tolist()) and not begins & set(second[is_next])


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


@st.composite
def token_arrays(draw):
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 24))
    rng = rng_of(draw(st.integers(0, 10**6)))
    density = draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    return rng.integers(5, VOCAB, shape), rng.random(shape) < density, rng.random(shape) < 0.5, rng


@given(token_arrays(), st.sampled_from([0.01, 0.15, 0.5, 1.0]))
@quick
def test_each_row_has_its_share_of_predictions_and_nothing_else_changes(arrays, share):
    ids, choosable, _, rng = arrays
    before = ids.copy()
    noisy, places, targets = hide(ids, choosable, rng, share=share)
    assert (ids == before).all() and noisy is not ids
    chosen = np.zeros(ids.size, bool)
    chosen[places] = True
    chosen = chosen.reshape(ids.shape)
    assert (np.diff(places) > 0).all() and not (chosen & ~choosable).any()
    n = choosable.sum(1)
    assert (
        chosen.sum(1).tolist()
        == np.minimum(n, np.maximum(1, np.floor(share * n + 0.5))).astype(int).tolist()
    )
    assert (targets == ids[chosen]).all() and (noisy[~chosen] == ids[~chosen]).all()
    assert np.isin(noisy[chosen], [MASK, *range(5, VOCAB)]).all()


@given(token_arrays())
@quick
def test_whole_words_are_chosen_or_left_whole(arrays):
    ids, choosable, starts, rng = arrays
    before = starts.copy()
    options = {"share": 0.4, "word_starts": starts, "fractions": (1, 0, 0)}
    noisy, _, _ = hide(ids, choosable, rng, **options)
    assert (starts == before).all()
    for i, row in enumerate(choosable):
        words = []
        for j in np.flatnonzero(row):
            if starts[i, j] or j == 0 or not row[j - 1]:
                words.append([])
            words[-1].append(j)
        hidden = [[noisy[i, j] == MASK for j in word] for word in words]
        assert all(all(word) or not any(word) for word in hidden)
        total = sum(map(sum, hidden))
        # The last word chosen has its middle within the share: the rest of it can be beyond.
        longest = max(map(len, words), default=0)
        assert abs(total - 0.4 * row.sum()) <= longest / 2 or sum(map(all, hidden)) == 1
        assert total > 0 or not row.any()


def test_every_token_is_as_likely_to_be_chosen_as_any_other():
    rows, columns = 20_000, 22
    ids = np.full((rows, columns), 5)
    starts = np.tile(np.arange(columns) % 4 != 1, (rows, 1))  # every third word has two pieces
    for word_starts in (None, starts):
        _, places, _ = hide(ids, ids > 0, rng_of(), word_starts=word_starts)
        share = np.bincount(places % columns, minlength=columns) / rows
        np.testing.assert_allclose(share, share.mean(), atol=0.015)
        assert abs(share.mean() - (3 / 22 if word_starts is None else 0.15)) < 0.003


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0}, "share must be above 0 and at most 1, got 0"),
        ({"share": 15}, "got 15"),
        ({"fractions": (0.8, 0.1)}, "fractions must be 3 chances"),
        ({"fractions": (0.8, 0.1, 0.2)}, "add up to 1, got"),
        ({"fractions": (1.2, -0.1, -0.1)}, "add up to 1, got"),
    ],
)
def test_chances_that_are_none_are_refused(toy, options, message):
    with pytest.raises(ValueError, match=message):
        hide([[5]], [[True]], rng_of(), **options)
    with pytest.raises(ValueError, match=message):
        pretraining_batches(toy, 4, **options)


def test_arrays_of_other_shapes_are_refused(toy):
    with pytest.raises(ValueError, match=r"one shape, got \(\(1, 2\), \(1, 1\), \(1, 1\)\)"):
        hide([[5, 6]], [[True]], rng_of())
    with pytest.raises(ValueError, match=r"one shape, got"):
        hide([[5]], [[True]], rng_of(), word_starts=np.ones((1, 2), bool))
    with pytest.raises(ValueError, match="word_starts must have shape"):
        pretraining_batches(toy, 4, word_starts=np.ones(toy.vocab_size, bool))
    for options in ({"batch_size": 0}, {"max_length": 4}, {"seed": -1}):
        with pytest.raises(ValueError, match=f"at least [150], got {[*options.values()][0]}"):
            pretraining_batches(toy, **{"batch_size": 4, **options})


# ----------------------------------------------------------------------------------- batches
def unmasked(batch):
    """Return the ids (B, T) as they were before tokens were hidden."""
    return batch.ids.flatten().index_put((batch.positions,), batch.targets).view_as(batch.ids)


def check_epoch(documents, batches, batch_size, max_length):
    """Assert all that the batches of an epoch promise; where no pair is shortened, labels too."""
    special, listed = documents.special, list(map(tuple, sentences_of(documents)))
    begins = set(documents.paragraphs.tolist())
    firsts = [i for i in range(len(listed) - 1) if i + 1 not in begins]
    seen, n_predicted = [], 0
    for batch in batches:
        T, lengths = batch.ids.shape[1], batch.lengths.tolist()
        assert all(part.dtype == torch.int64 for part in batch) and len(batch.ids) <= batch_size
        assert lengths == sorted(lengths) and lengths[-1] == T <= max_length
        rows = unmasked(batch).tolist()
        for row, segment, n in zip(rows, batch.segments.tolist(), lengths, strict=True):
            sep = row.index(special.sep)
            assert row[0] == special.cls and row[n - 1] == special.sep
            assert row[n:] == [special.pad] * (T - n)
            assert segment == [0] * (sep + 1) + [1] * (n - sep - 1) + [0] * (T - n)
            seen.append((tuple(row[1:sep]), tuple(row[sep + 1 : n - 1])))
            known = sum(token not in special for token in row)
            n_predicted += min(known, max(1, int(0.15 * known + 0.5)))
        shown = batch.ids.flatten()[batch.positions]
        assert not set(batch.targets.tolist()) & set(special)
        assert not set(shown.tolist()) & (set(special) - {special.mask})
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
    made = list(batches(0))
    assert len(made) == len(batches(0)) and {len(b.ids) for b in made[:-1]} <= {batch_size}
    check_epoch(toy, made, batch_size, max_length)


def test_the_labels_are_right_where_every_sentence_is_another():
    numbers = iter(range(5, 10_000))
    paragraphs = [[[next(numbers) for _ in range(6)] for _ in range(4)] for _ in range(50)]
    documents = Documents.from_ids(paragraphs, 10_000)
    for batch in pretraining_batches(documents, 16, 9)(0):  # each half keeps 3 of its 6 tokens
        a, b = unmasked(batch)[:, 1] - 5, unmasked(batch)[:, 5] - 5
        assert (a % 6 == 0).all() and (b % 6 == 0).all() and (a // 6 % 4 < 3).all()
        assert ((b == a + 6) == batch.is_next.bool()).all()
        assert ((a // 24 == b // 24) == batch.is_next.bool()).all()


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_an_epoch_is_the_same_again_and_the_next_one_is_another(toy):
    batches = pretraining_batches(toy, 64, seed=4)
    epoch = batches(1)
    first, again, other = list(epoch), list(epoch), list(pretraining_batches(toy, 64, seed=4)(1))
    assert all(map(same, first, again)) and all(map(same, first, other))
    for different in (batches(0), pretraining_batches(toy, 64, seed=5)(1)):
        assert not any(map(same, first, different))


def test_masks_and_partners_are_drawn_afresh_in_each_epoch():
    numbers = iter(range(5, 10_000))
    paragraphs = [[[next(numbers) for _ in range(10)] for _ in range(2)] for _ in range(200)]
    batches = pretraining_batches(Documents.from_ids(paragraphs, 10_000), 200)
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
    documents = Documents.from_ids(paragraphs, VOCAB)
    (batch,) = pretraining_batches(documents, 8, 9, seed=1, share=0.3)(5)
    assert batch.ids.tolist() == [
        [CLS, MASK, 6, 7, SEP, 8, 10, SEP, PAD],
        [CLS, 10, MASK, SEP, 10, 5, MASK, 8, SEP],
        [CLS, MASK, 9, SEP, 10, 5, 11, 8, SEP],
        [CLS, MASK, 5, 5, SEP, 10, 5, 11, SEP],
    ]
    assert batch.segments[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert batch.lengths.tolist() == [8, 9, 9, 9]
    assert batch.positions.tolist() == [1, 6, 11, 15, 19, 20, 28, 34]
    assert batch.targets.tolist() == [5, 9, 11, 11, 9, 9, 5, 11]
    assert batch.is_next.tolist() == [1, 0, 1, 0]


def test_unknown_words_are_never_predicted():
    paragraphs = [[[UNK], [UNK, UNK]], [[UNK, 5], [6]], [[7, UNK], [8, 9]]] * 10
    documents = Documents.from_ids(paragraphs, VOCAB)
    batches = [batch for epoch in range(20) for batch in pretraining_batches(documents, 3)(epoch)]
    assert min(torch.cat([batch.targets for batch in batches])) >= 5
    nothing = Documents.from_ids([[[UNK], [UNK]], [[UNK], [UNK, UNK]]], VOCAB)
    (batch,) = pretraining_batches(nothing, 8)(0)
    assert len(batch.ids) == 2 and len(batch.positions) == len(batch.targets) == 0


def test_special_ids_can_stand_anywhere(toy):
    # As in BERT's own vocabulary, where [PAD] is 0, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103.
    size, special = toy.vocab_size + 200, SpecialIds(0, 100, 101, 102, 103)
    ids = np.where(toy.ids == UNK, 100, toy.ids + 200).astype(np.int32)
    documents = Documents(ids, toy.sentences, toy.paragraphs, None, size, special)
    batches = list(pretraining_batches(documents, 50)(0))
    check_epoch(documents, batches, 50, 64)
    shown = torch.cat([batch.ids.flatten()[batch.positions] for batch in batches])
    drawn = shown[(shown < 200) & (shown != 103)]
    assert len(drawn) > 50 and not set(drawn.tolist()) & set(special)


def test_words_are_hidden_whole_in_batches(toy):
    table = rng_of().random(toy.vocab_size) < 0.5
    starts = table[toy.ids]
    batches = pretraining_batches(toy, 64, word_starts=starts, fractions=(1, 0, 0))
    share = []
    for batch in batches(0):
        clean = unmasked(batch).flatten()
        hidden = (batch.ids.flatten() == MASK).numpy()
        ordinary = (clean > 4).numpy()
        goes_on = ~table[clean[1:]] & ordinary[1:] & ordinary[:-1]
        assert goes_on.sum() > 100 and (hidden[1:] == hidden[:-1])[goes_on].all()
        share.append(hidden.sum() / ordinary.sum())
    assert abs(np.mean(share) - 0.15) < 0.02


@pytest.mark.parametrize(
    ("paragraphs", "message"),
    [
        ([[[5]], [[6]]], "none of the 2 paragraphs has two sentences"),
        ([[[5], [6], [7]]], "nothing can take the place of sentence 1"),
        ([[[5], [6]], [[7], [6]], [[5]]], "nothing can take the place of sentence 1"),
        ([[[5], [6]], [[7], [8]], [[5], [6]], [[9], [6]]], None),
    ],
)
def test_text_without_a_possible_partner_is_refused(paragraphs, message):
    documents = Documents.from_ids(paragraphs, VOCAB)
    if message is None:
        assert len(pretraining_batches(documents, 3)(0)) == 2
        return
    with pytest.raises(ValueError, match=message):
        pretraining_batches(documents, 3)


def test_the_training_loop_takes_the_batches(toy):
    model = torch.nn.Embedding(toy.vocab_size, toy.vocab_size)
    batches = pretraining_batches(toy, 128)

    def loss(model, batch):
        logits = model(batch.ids.flatten()[batch.positions])
        return torch.nn.functional.cross_entropy(logits, batch.targets)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    history = fit(model, batches, loss, epochs=2, optimizer=optimizer, device="cpu")
    assert history.losses[-1] < history.losses[0]


# --------------------------------------------------------------------------------- real text
def test_wikitext2_gives_the_batches_promised():
    folder = os.environ.get("PRETRAIN_DATA_DIR")
    path = Path(folder or ".") / "wikitext-2/wiki.valid.tokens"
    if not folder or not path.is_file():
        pytest.skip("PRETRAIN_DATA_DIR holds no WikiText-2")
    documents = Documents.from_text(path.read_text(encoding="utf-8").lower(), min_freq=5)
    sizes = np.diff(documents.sentences)
    assert len(documents.paragraphs) == 1 + 1841 and len(sizes) == 8032
    batches = list(pretraining_batches(documents, 256)(0))
    check_epoch(documents, batches, 256, 64)
    is_next = torch.cat([batch.is_next for batch in batches]).float()
    assert len(is_next) == len(sizes) - 1841 and abs(is_next.mean() - 0.5) < 0.03
    assert sum(int((batch.ids == UNK).sum()) for batch in batches) > 1000
