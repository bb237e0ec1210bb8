"""No step of the models waits for the GPU.

PyTorch's fake tensors run a step on a device named `cuda` where no card is: they know shapes and
devices, but no numbers. So they raise where the program reads a value, for which it would have to
wait for the GPU, even within a function of PyTorch.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._pytree import tree_map

from support.models import bert, transformer
from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
)
from support.models.gpt import GPT, GPTConfig
from support.models.seq2seq import Seq2Seq
from support.models.transformer import causal_mask, padding_mask
from support.text.masking import PretrainingBatch


def rehearse(build_model, batch, loss_fn):
    """Run a step on a GPU that is not there; the batch is made on the CPU, and moved."""
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        model = build_model()
        for module in model.modules():  # Module.to cannot move fake tensors
            for name, value in list(module._parameters.items()):
                module._parameters[name] = nn.Parameter(value.detach().to("cuda"))
            for name, value in module._buffers.items():
                module._buffers[name] = value.to("cuda")
        loss = loss_fn(model, tree_map(lambda x: mode.from_tensor(x).to("cuda"), batch))
        assert loss.device.type == "cuda" and loss.shape == ()


def small_bert():
    return Bert(BertConfig(40, 12, 2, 3, 20, max_length=32))


def small_gpt():
    return GPT(GPTConfig(40, 12, 2, 3, max_length=32))


def translator():
    return Seq2Seq(40, 30, d_model=12, n_heads=3, d_ff=20, n_layers=2)


def texts():
    """Return ids, segments and lengths of four texts."""
    return torch.ones(4, 9).long(), torch.zeros(4, 9).long(), torch.tensor([9, 5, 2, 1])


def pretraining_batch():
    ids, segments, lengths = texts()
    known = {"ids": ids, "segments": segments, "lengths": lengths}
    known |= {"positions": torch.tensor([1, 4, 9, 28]), "targets": torch.tensor([5, 6, 7, 8])}
    known |= {"is_next": torch.ones(4).long()}
    fields = PretrainingBatch._fields
    return PretrainingBatch(*(known.get(name, torch.zeros(4).long()) for name in fields))


def of_all(model, batch):
    out = model(*batch)
    return sum(x.square().mean() for x in (out if isinstance(out, tuple) else (out,)))


def next_token_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def cached_gpt(model, ids):
    """Read texts, and write two tokens with the cache."""
    cache, fresh = model.new_cache(), ids
    for _ in range(3):
        logits = model(fresh, cache=cache)[:, -1]
        fresh = logits.argmax(-1, keepdim=True)
    return logits.sum()


def cached_translation(model, batch):
    source, target, lengths = batch
    memory, mask = model.encode(source, lengths)
    cache = model.stack.decoder.new_cache()
    for column in target.split(1, dim=1):
        logits = model.decode(column, memory, mask, cache)
    return logits.sum()


SOURCE_AND_TARGET = texts()[0], torch.ones(4, 3).long(), texts()[2]
STEPS = {
    "BERT's pre-training": (
        lambda: BertForPretraining(small_bert()),
        pretraining_batch(),
        lambda model, batch: sum(model(batch)),
    ),
    "texts": (lambda: TextClassifier(small_bert(), 4), texts(), of_all),
    "tags": (lambda: TokenClassifier(small_bert(), 4), texts(), of_all),
    "spans": (lambda: SpanClassifier(small_bert()), texts(), of_all),
    "GPT": (small_gpt, torch.ones(3, 9).long(), next_token_loss),
    "GPT, with the cache": (small_gpt, torch.ones(3, 9).long(), cached_gpt),
    "translation": (translator, SOURCE_AND_TARGET, of_all),
    "translation, with the cache": (translator, SOURCE_AND_TARGET, cached_translation),
    "causal block with a mask": (
        lambda: transformer.TransformerBlock(12, 3, 20),
        torch.randn(2, 5, 12),
        lambda model, x: model(x, attn_mask=x[:, None, :, 0] > 9, is_causal=True).mean(),
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_stays_on_the_gpu_and_reads_nothing_from_it(step):
    rehearse(*STEPS[step])


def test_mistakes_within_our_models_are_seen(monkeypatch):
    monkeypatch.setattr(bert, "padding_mask", lambda n, size: padding_mask(n, int(n.max())))
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        rehearse(*STEPS["texts"])
    monkeypatch.setattr(transformer, "causal_mask", lambda n, past=0, device=None: causal_mask(n))
    with pytest.raises(RuntimeError, match="device"):
        rehearse(*STEPS["causal block with a mask"])
