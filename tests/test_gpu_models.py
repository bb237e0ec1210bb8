"""The models of support/ on a rehearsed GPU, and the mistakes that a rehearsal sees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.models import bert, transformer
from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
    pretraining_loss,
)
from support.models.gpt import GPT, GPTConfig, language_model_loss
from support.models.seq2seq import Seq2Seq
from support.models.transformer import (
    Encoder,
    EncoderDecoder,
    causal_mask,
    padding_mask,
    record_weights,
)
from support.vectors import word2vec
from tests.rehearsal import (
    READS,
    LossFunction,
    Need,
    classes_loss,
    pretraining_batch_of,
    rehearse,
    texts,
    token_batch,
    translation_loss,
    word2vec_step,
)

DEVICES = "two different devices|on the same device"  # a test of what PyTorch says


def linear_step(loss_fn: LossFunction) -> Need:
    return rehearse(lambda: nn.Linear(3, 5), lambda: torch.randn(7, 3), loss_fn)


def test_a_plain_step_passes_and_its_bytes_are_known():
    need = linear_step(lambda model, x: model(x).square().mean())
    assert need.parameters == 20 and need.state == 4 * 80
    assert need.activations == 4 * (7 * 3 + 7 * 5), "the input, and what is squared"
    assert need.total == need.state + need.activations


def test_a_tensor_made_on_the_cpu_is_seen():
    good = lambda model, x: (model(x) * torch.arange(5, device=x.device)).sum()  # noqa: E731
    linear_step(good)
    with pytest.raises(RuntimeError, match=DEVICES):
        linear_step(lambda model, x: (model(x) * torch.arange(5)).sum())


class HoldsATensor(nn.Module):
    """A model that keeps a tensor as a plain attribute, which no `to` moves."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 5), torch.ones(5)

    def forward(self, x):
        return self.linear(x) * self.scale


def test_a_tensor_that_does_not_move_with_the_model_is_seen():
    with pytest.raises(RuntimeError, match=DEVICES):
        rehearse(HoldsATensor, lambda: torch.randn(7, 3), lambda model, x: model(x).sum())


@pytest.mark.parametrize(
    "read",
    [
        lambda out: out.mean().item(),
        lambda out: int(out.argmax()),
        lambda out: float(out.sum() if (out > 0).any() else 0),
        lambda out: len(out.nonzero()),
        lambda out: out.tolist()[0][0],
        lambda out: len(out[out > 0]),
    ],
    ids=["item", "int", "if", "nonzero", "tolist", "mask"],
)
def test_a_value_that_is_read_is_seen(read):
    def loss_fn(model, x):
        out = model(x)
        return out.mean() * read(out)

    with pytest.raises(READS):
        linear_step(loss_fn)


def test_mistakes_within_our_models_are_seen():
    def reading(check):
        return lambda lengths, size: check(lengths.clamp(max=int(lengths.max())), size)

    def on_the_cpu(make):
        return lambda length, past=0, device=None: make(length, past)

    with faulty(bert, "padding_mask", reading), pytest.raises(READS):
        rehearse(*PRETRAINING)
    with faulty(transformer, "causal_mask", on_the_cpu), pytest.raises(RuntimeError, match=DEVICES):
        rehearse(*STEPS["recorded weights"])


@contextlib.contextmanager
def faulty(module: Any, name: str, replace: Callable) -> Iterator[None]:
    """Put a mistake into a function of support/ for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, replace(getattr(module, name)))
        yield


def small_bert() -> Bert:
    return Bert(BertConfig(40, 12, 2, 3, 20, max_length=32))


def small_gpt() -> GPT:
    return GPT(GPTConfig(40, 12, 2, 3, max_length=32))


def spans_loss(model, batch):
    start, end = model(*batch)
    where = torch.zeros_like(batch[2])
    return F.cross_entropy(start, where) + F.cross_entropy(end, where)


def chosen_rows_loss(model, batch):
    x, lengths, rows = batch
    return model(x, attn_mask=padding_mask(lengths, x.shape[1]), rows=rows).square().mean()


def cached_gpt_loss(model, ids):
    """Read texts, and write two tokens with the cache."""
    cache, fresh = model.new_cache(), ids
    for _ in range(3):
        logits = model.logits(model(fresh, cache=cache)[:, -1])
        fresh = logits.argmax(-1, keepdim=True)
    return logits.sum()


def cached_translation_loss(model, batch):
    source, target, lengths = batch
    memory, mask = model.encode(source, lengths)
    cache = model.stack.decoder.new_cache(8, source.shape[1])
    for column in target[:, :3].split(1, dim=1):
        logits = model.decode(column, memory, mask, cache)
    return logits.sum()


def recorded_loss(model, x):
    with record_weights(model) as weights:
        out = model(x, x[:, :3])
    return out.mean() + sum(each.mean() for layer in weights for each in layer)


PRETRAINING = (
    lambda: BertForPretraining(small_bert()),
    lambda: pretraining_batch_of(40, 16, 20),
    pretraining_loss,
)
CACHED_GPT = (
    small_gpt,
    lambda: torch.randint(40, (3, 5)),
    cached_gpt_loss,
)
SOURCE_AND_TARGET = (torch.ones(4, 9).long(), torch.ones(4, 7).long(), torch.tensor([9, 5, 2, 1]))
VECTORS = torch.randn(2, 5, 12)
STEPS = {
    "BERT's pre-training": PRETRAINING,
    "texts": (lambda: TextClassifier(small_bert(), 4), texts, classes_loss),
    "tags": (lambda: TokenClassifier(small_bert(), 4), texts, classes_loss),
    "spans": (lambda: SpanClassifier(small_bert()), texts, spans_loss),
    "GPT": (small_gpt, lambda: token_batch(40, 4, 16), language_model_loss),
    "translation": (
        lambda: Seq2Seq(40, 30, d_model=12, n_heads=3, d_ff=20, n_layers=2),
        lambda: SOURCE_AND_TARGET,
        translation_loss,
    ),
    "translation, one embedding": (
        lambda: Seq2Seq(40, d_model=12, n_heads=3, d_ff=20, n_layers=1),
        lambda: SOURCE_AND_TARGET,
        translation_loss,
    ),
    "the encoder's chosen rows": (
        lambda: Encoder(2, 12, 3, 20, dropout=0.1, norm_first=True, final_norm=True),
        lambda: (VECTORS, torch.tensor([5, 2]), torch.tensor([[0, 4], [0, 1]])),
        chosen_rows_loss,
    ),
    "the encoder, causal": (
        lambda: Encoder(2, 12, 3, 20),
        lambda: VECTORS,
        lambda model, x: model(x, attn_mask=causal_mask(5, device=x.device)).mean(),
    ),
    "recorded weights": (lambda: EncoderDecoder(12, 3, 20, 2), lambda: VECTORS, recorded_loss),
}


WRITING = {
    "GPT": CACHED_GPT,
    "translation": (
        lambda: Seq2Seq(40, 30, d_model=12, n_heads=3, d_ff=20, n_layers=2),
        lambda: SOURCE_AND_TARGET,
        cached_translation_loss,
    ),
}


@pytest.mark.parametrize("model", WRITING)
def test_writing_with_the_cache_stays_on_the_gpu_and_reads_nothing_from_it(model):
    rehearse(*WRITING[model], learns=False)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_a_step_stays_on_the_gpu_and_reads_nothing_from_it(step, training):
    build_model, make_batch, loss_fn = STEPS[step]
    need = rehearse(lambda: build_model().train(training), make_batch, loss_fn)
    assert need.state == 16 * need.parameters > 0 and need.activations > 0


def test_gpt_2_needs_what_is_known_of_it():
    need = rehearse(
        lambda: GPT(GPTConfig(50_257)), lambda: token_batch(50_257, 2, 64), language_model_loss
    )
    assert need.parameters == 124_439_808
    assert need.state == 16 * need.parameters


def test_word2vec_stays_on_the_gpu_and_reads_nothing_from_it():
    assert word2vec_step(8).activations > 0


def test_a_step_of_word2vec_that_reads_or_makes_a_tensor_elsewhere_is_seen():
    def reading(look_up):
        return lambda table, rows: look_up(table, rows.clamp(max=int(rows.max())))

    def on_the_cpu(look_up):
        return lambda table, rows: look_up(table, rows + torch.arange(rows.shape[1]))

    with faulty(word2vec.Table, "look_up", reading), pytest.raises(READS):
        word2vec_step(8)
    with faulty(word2vec.Table, "look_up", on_the_cpu), pytest.raises(RuntimeError, match=DEVICES):
        word2vec_step(8)
