"""Properties that hold for any input: tokenizers, vocabularies, masks, padding, batches, texts."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from test_bpe import naive_encode, naive_merges

from support.data import images
from support.models import gpt
from support.models.gpt import generate
from support.models.transformer import padding_mask
from support.text import bpe
from support.text.bpe import BPETokenizer
from support.text.masking import SPECIALS, Documents, pretraining_batches
from support.text.vocab import Corpus, vocab_from_counts
from support.text.wordpiece import WordPieceTokenizer
from support.vectors import word2vec
from tests.library_bpe import library_twin

quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**20)
# Few letters, so that pairs come again and tie; and what is hard to cut.
letters = st.sampled_from([*"aab  \n", "'s", "é", "e\u0301", "👩‍👧", "ש", "\u200f", "\0", "1"])
texts = st.lists(letters, max_size=60).map("".join)
any_text = st.text(max_size=30) | texts


# Byte pairs.


@given(texts, st.integers(0, 30))
@quick
def test_merges_are_those_of_counting_anew(text, n):
    tokenizer = BPETokenizer.train(text, 256 + n)
    assert len(tokenizer.merges) <= n
    counts = Counter(bpe.pre_tokenize(text))
    assert tokenizer.merges == naive_merges(counts, len(tokenizer.merges))
    if len(tokenizer.merges) < n:
        longest = max(map(len, map(tokenizer.encode, counts)), default=0)
        assert longest <= 1, "it stopped although a pair was left"


@given(texts, st.lists(any_text, max_size=4))
@quick
def test_any_text_comes_back_from_its_ids(text, others):
    tokenizer = BPETokenizer.train(text, 290, ["<|end|>"])
    for other in (text, *others, "<|end|>".join(others)):
        ids = tokenizer.encode(other)
        assert tokenizer.decode(ids, errors="surrogatepass") == other
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        assert ids.count(tokenizer.special_tokens["<|end|>"]) == other.count("<|end|>")
        if "<|end|>" not in other:
            assert ids == naive_encode(tokenizer, other)


@given(texts, st.lists(any_text, max_size=4))
@quick
def test_ids_are_the_librarys(text, others):
    ours = BPETokenizer.train(text, 290, ["<|end|>"])
    theirs = library_twin(ours)
    for other in (text, *others, "<|end|>".join(others)):
        assume(not any("\ud800" <= c <= "\udfff" for c in other))
        assert ours.encode(other) == theirs.encode(other, add_special_tokens=False).ids


# Vocabularies.


@given(
    st.lists(st.text("abcé ש", max_size=2), max_size=40),
    st.integers(1, 4),
    st.lists(st.text("abc<>", min_size=1, max_size=2), max_size=3, unique=True),
    st.none() | st.integers(1, 8),
)
@quick
def test_a_vocabulary_is_what_its_definition_says(tokens, min_freq, specials, most):
    assume(most is None or most > len(specials))
    counts = Counter(tokens)
    made = vocab_from_counts(counts, min_freq, specials, most)
    ordered = sorted(counts, key=lambda token: (-counts[token], token))
    ordered = ordered if most is None else ordered[: most - len(specials)]
    kept = [t for t in ordered if counts[t] >= min_freq and t not in specials]
    assert made.get_itos() == specials + kept
    assert made.lookup_tokens(range(len(made))) == made.get_itos()
    assert made.lookup_indices(made.get_itos()) == [*range(len(made))]
    assert most is None or len(made) <= most
    made.set_default_index(0 if len(made) else None)
    assert all((t in made) == (made.get_itos()[made[t]] == t) for t in counts if len(made))


# Masks and pairs.

sentence = st.lists(st.integers(5, 40), min_size=1, max_size=6)
paragraph = st.lists(sentence, min_size=1, max_size=4)


@given(
    st.lists(paragraph, min_size=4, max_size=8),
    st.integers(1, 9),
    st.integers(5, 20),
    st.sampled_from([0.15, 0.5, 1.0]),
    seeds,
)
@quick
def test_an_epoch_of_pretraining_is_what_it_promises(paragraphs, size, length, share, seed):
    unk = [[[1 if i == 5 else i for i in s] for s in p] for p in paragraphs]  # 5 is unknown
    documents = Documents.from_ids(unk, 41)
    try:
        batches = pretraining_batches(documents, size, length, share=share, seed=seed)
    except ValueError as error:
        assert "paragraphs has two sentences" in str(error) or "give more text" in str(error)
        assume(False)
    epoch = list(batches(0))
    n_pairs = sum(len(p) - 1 for p in unk)
    assert sum(len(batch.ids) for batch in epoch) == n_pairs, "each pair once"
    assert [len(batch.ids) for batch in epoch[:-1]] == [size] * (len(epoch) - 1)
    assert len(epoch) == len(batches(0)) and len(epoch[-1].ids) <= size
    firsts = Counter()
    for batch in epoch:
        assert batch.ids.shape[1] == batch.lengths.max() <= length
        assert (batch.lengths.diff() >= 0).all()
        before = batch.ids.flatten().clone()
        before[batch.positions] = batch.targets  # what stood there comes back
        before = before.view(batch.ids.shape)
        real = padding_mask(batch.lengths, batch.ids.shape[1])[:, 0]
        assert (before[~real] == 0).all() and (before[real] != 0).all(), "0 is the padding alone"
        assert (batch.targets >= 5).all(), "a special token, or an unknown one, is never hidden"
        # Where nothing is to be predicted, nothing has changed; nothing special is put in.
        assert ((batch.ids[real] >= 5) | (before[real] < 5) | (batch.ids[real] == 4)).all()
        for row, segments, n in zip(
            before.tolist(), batch.segments.tolist(), batch.lengths, strict=True
        ):
            row, segments = row[:n], segments[:n]
            ends = [i for i, token in enumerate(row) if token == 3]
            assert row[0] == 2 and len(ends) == 2 and ends[1] == n - 1
            assert segments == [0] * (ends[0] + 1) + [1] * (n - ends[0] - 1)
            firsts[tuple(row[1 : ends[0]])] += 1
    if length >= 15:  # nothing is shortened
        assert firsts == Counter(tuple(s) for p in unk for s in p[:-1])
    again = [part for batch in batches(0) for part in batch]
    assert all(torch.equal(a, b) for a, b in zip(again, (x for b in epoch for x in b), strict=True))


def test_eight_ninths_of_ten_are_masked_within_what_chance_allows():
    text = "\n".join(f"w{i} x{i} y{i} z{i} . a{i} b{i} c{i} d{i} ." for i in range(400))
    documents = Documents.from_text(text)
    hidden = masked = kept = choosable = right = pairs = 0
    for epoch in range(5):
        for batch in pretraining_batches(documents, 64, 32, seed=3)(epoch):
            shown = batch.ids.flatten()[batch.positions]
            hidden += len(shown)
            masked += int((shown == 4).sum())
            kept += int((shown == batch.targets).sum())
            choosable += int((batch.lengths - 3).sum())
            right, pairs = right + int(batch.is_next.sum()), pairs + len(batch.is_next)
    n_ordinary = documents.vocab_size - len(SPECIALS)
    for count, n, p in (
        (masked, hidden, 0.8),
        (kept, hidden, 0.1 + 0.1 / n_ordinary),  # a random token can be the one that stood there
        (right, pairs, 0.5),
    ):
        assert n >= 2000 and binomtest(count, n, p).pvalue > 1e-3, (count, n, p)
    assert hidden == 2 * pairs and choosable == 10 * pairs  # of 10 tokens 15 % is 1.5, rounded up


# Padding.

PIECES = WordPieceTokenizer([*SPECIALS, *"abc", "##a", "##b", "ab"])


@given(st.lists(st.text("abc x", max_size=12), min_size=1, max_size=6), st.data())
@quick
def test_a_padded_batch_holds_each_text_and_nothing_else(rows, data):
    pairs = data.draw(st.none() | st.lists(st.text("ab ", max_size=9), min_size=len(rows),
                                           max_size=len(rows)))  # fmt: skip
    room = data.draw(st.none() | st.integers(5, 12))
    batch = PIECES.batch(rows, pairs, room)
    mask = padding_mask(batch.lengths, batch.ids.shape[1])[:, 0]
    assert batch.ids.shape == batch.segments.shape == (len(rows), int(batch.lengths.max()))
    assert torch.equal(mask, batch.ids != PIECES.pad_id) and not batch.segments[~mask].any()
    for i, text in enumerate(rows):
        alone = PIECES.encode(text, None if pairs is None else pairs[i], room)
        n = int(batch.lengths[i])
        assert batch.ids[i, :n].tolist() == alone.ids and len(alone.ids) == n
        assert batch.segments[i, :n].tolist() == alone.segments
        assert room is None or n <= room


# Batches.


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 9))
@quick
def test_each_image_comes_once_in_an_epoch(n, size, epoch):
    pictures = torch.arange(n, dtype=torch.uint8)[:, None, None].expand(n, 2, 2)
    batches = images.image_batches(pictures, size, device="cpu")
    shown = list(batches(epoch))
    seen = [(x[:, 0, 0, 0] * 255).round().long().tolist() for x in shown]
    flat = [i for part in seen for i in part]
    assert sorted(flat) == list(range(n))
    assert [len(part) for part in seen[:-1]] == [size] * (len(seen) - 1) and len(seen[-1]) <= size
    assert all(torch.equal(a, b) for a, b in zip(shown, batches(epoch), strict=True))
    assert n < 8 or flat != list(range(n)), "they are shuffled"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 6), seeds)
@quick
def test_a_center_sees_all_words_within_one_reach_of_its_sentence(lengths, window, seed):
    names = iter(f"w{i}" for i in range(100))
    lines = [[next(names) for _ in range(n)] for n in lengths]  # each word stands in one place
    corpus = Corpus.from_text("\n".join(map(" ".join, lines)))
    made = word2vec.skipgram_examples(corpus, window, negatives=3, subsample=0, seed=seed)
    assert made.n_centers == sum(lengths)
    seen: dict[str, set[str]] = {}
    for pair in zip(made.centers, made.contexts, strict=True):
        center, context = corpus.vocab.lookup_tokens(pair)
        assert context not in seen.setdefault(center, set()), "a pair comes once"
        seen[center].add(context)
    for line in lines:
        for i, center in enumerate(line):
            near = [set(line[max(0, i - r) : i + r + 1]) - {center} for r in range(1, window + 1)]
            assert seen.get(center, set()) in near
    if len(corpus.vocab) > 1:
        assert not (made.negatives == made.contexts[:, None]).any()
    assert made.negatives.shape == (len(made.centers), 3)


# Texts from a model.


@given(
    st.sampled_from([(4, 1), (4, 2), (6, 3), (8, 2)]),
    st.integers(1, 3),
    st.integers(2, 12),
    st.integers(1, 4).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=3
        )
    ),
    st.sampled_from([{}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.7, "temperature": 1.3}]),
    seeds,
)
@settings(quick, max_examples=25)
def test_the_cache_changes_no_text_of_any_model(width, layers, vocab_size, prompts, rule, seed):
    torch.manual_seed(seed)
    d_model, n_heads = width
    config = gpt.GPTConfig(vocab_size, d_model, layers, n_heads, 2 * d_model, max_length=10)
    model = gpt.GPT(config).double()  # so that rounding decides no draw
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    found = [generate(model, prompts, 6, seed=seed, use_cache=use, **rule) for use in (True, False)]
    assert found[0] == found[1] and len(found[0]) == len(prompts)
    assert all(len(row) == 6 and set(row) <= set(range(vocab_size)) for row in found[0])
