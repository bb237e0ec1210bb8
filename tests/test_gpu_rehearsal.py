"""A rehearsal of the GPU without one: devices, values read, and memory of a training step.

PyTorch's fake tensors run a forward pass on a device named `cuda` where no card is: they know
shapes and devices, but no numbers. So they raise where a tensor is made on the wrong device, and
where the program reads a value, for which it would have to wait for a GPU. The backward pass runs
on `meta` tensors, which know shapes alone.

Run as `python -m tests.test_gpu_rehearsal` to print what the notebooks need at their `gpu` sizes.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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

from support.models import bert, gpt
from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
    pretraining_loss,
)
from support.models.gpt import GPT, GPTConfig, language_model_loss, token_batches
from support.models.masking import Documents, PretrainingBatch, pretraining_batches
from support.models.seq2seq import Seq2Seq
from support.models.transformer import (
    Encoder,
    EncoderDecoder,
    causal_mask,
    padding_mask,
    record_weights,
)

ROOT = Path(__file__).resolve().parent.parent
T4 = 14 * 10**9  # bytes of a T4's 16 GB that a step may take; the rest is PyTorch's own
DEVICES = "two different devices|on the same device"  # a test of what PyTorch says
READS = (DataDependentOutputException, DynamicOutputShapeException)

LossFunction = Callable[[nn.Module, Any], torch.Tensor]


# ------------------------------------------------------------------------------- the machinery
@dataclass(frozen=True)
class Need:
    """What a training step in float32 keeps: weights and activations, in bytes.

    activations are the tensors kept for the backward pass. Attention counts as if its weights were
    stored, which the fused kernels of a GPU avoid: an upper bound.
    """

    parameters: int
    weights: int
    activations: int

    @property
    def total(self) -> int:
        """The bytes of weights, gradients, AdamW's two averages, and activations."""
        return 4 * self.weights + self.activations


def rehearse(
    build_model: Callable[[], nn.Module],
    make_batch: Callable[[], Any],
    loss_fn: LossFunction,
    *,
    learns: bool = True,
) -> Need:
    """Run a training step of a model on a GPU that is not there; return what it would need.

    The batch is made on the CPU, with real numbers, and moved. With learns=False nothing is kept
    for a backward pass, and there is none.
    Raises: RuntimeError for tensors on different devices; READS where a value is read.
    """
    batch = make_batch()
    with FakeTensorMode() as mode, torch.set_grad_enabled(learns):
        model = on_fake_gpu(build_model())
        loss, kept = keeping(model, lambda: loss_fn(model, to_fake_gpu(batch, mode)))
        assert loss.device.type == "cuda" and loss.shape == ()
        parameters = list(model.parameters())
        need = Need(
            sum(value.numel() for value in parameters),
            sum(value.nbytes for value in parameters),
            kept,
        )
    if not learns:
        return need
    with torch.device("meta"):
        model = build_model()
    loss_fn(model, tree_map(lambda x: x.to("meta"), batch)).backward()
    for name, value in model.named_parameters():
        assert value.grad is None or value.grad.shape == value.shape, name
    return need


def on_fake_gpu(model: nn.Module) -> nn.Module:
    """Return the model with parameters and buffers moved, as model.to("cuda") would.

    Any other tensor that a module holds stays where it is. Module.to itself cannot move fake ones.
    """
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                module._parameters[name] = nn.Parameter(
                    value.detach().to("cuda"), requires_grad=value.requires_grad
                )
        for name, value in module._buffers.items():
            module._buffers[name] = None if value is None else value.to("cuda")
    return model


def to_fake_gpu(batch: Any, mode: FakeTensorMode) -> Any:
    """Return a batch of real tensors, in tuples, lists and dicts, as fake ones on a GPU."""
    return tree_map(lambda x: mode.from_tensor(x).to("cuda"), batch)


def keeping(model: nn.Module, step: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
    """Return the result of a step, and the bytes kept for its backward pass beside the weights."""
    own = {value.untyped_storage()._cdata for value in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        # Holding the tensor keeps its storage's number from being given to another.
        kept[x.untyped_storage()._cdata] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = step()
    sizes = {key: x.untyped_storage().nbytes() for key, x in kept.items() if key not in own}
    return result, sum(sizes.values())


# ------------------------------------------------------------------- the rehearsal sees mistakes
def linear_step(loss_fn: LossFunction) -> Need:
    return rehearse(lambda: nn.Linear(3, 5), lambda: torch.randn(7, 3), loss_fn)


def test_a_plain_step_passes_and_its_bytes_are_known():
    need = linear_step(lambda model, x: model(x).square().mean())
    assert need.parameters == 20 and need.weights == 80
    assert need.activations == 4 * (7 * 3 + 7 * 5), "the input, and what is squared"
    assert need.total == 4 * 80 + need.activations


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


@contextlib.contextmanager
def faulty(module: Any, name: str, replace: Callable) -> Iterator[None]:
    """Put a mistake into a function of support/ for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, replace(getattr(module, name)))
        yield


def test_mistakes_within_our_models_are_seen():
    def reading(check):
        return lambda lengths, size: check(lengths.clamp(max=int(lengths.max())), size)

    def on_the_cpu(make):
        return lambda length, past=0, device=None: make(length, past)

    with faulty(bert, "padding_mask", reading), pytest.raises(READS):
        rehearse(*PRETRAINING)
    with faulty(gpt, "causal_mask", on_the_cpu), pytest.raises(RuntimeError, match=DEVICES):
        rehearse(*CACHED_GPT, learns=False)


# ------------------------------------------------------------------------ the models of support/
def documents(vocab_size: int = 40, n: int = 60) -> Documents:
    """Return paragraphs of random sentences of four to nine tokens."""
    rng = np.random.default_rng(0)
    draw = lambda: rng.integers(5, vocab_size, rng.integers(4, 10)).tolist()  # noqa: E731
    return Documents.from_ids([[draw() for _ in range(4)] for _ in range(n)], vocab_size)


def pretraining_batch_of(vocab_size: int, batch_size: int, max_length: int) -> PretrainingBatch:
    """Return the first batch of random documents, as large as asked for."""
    n = batch_size // 3 + 2
    return next(iter(pretraining_batches(documents(vocab_size, n), batch_size, max_length)(0)))


def texts(vocab_size: int = 40, b: int = 6, t: int = 11) -> tuple[torch.Tensor, ...]:
    """Return ids and segments (B, T) and lengths (B,)."""
    lengths = torch.arange(b) % t + 1
    return torch.randint(vocab_size, (b, t)), torch.randint(2, (b, t)), lengths


def small_bert() -> Bert:
    return Bert(BertConfig(40, 12, 2, 3, 20, max_length=32))


def small_gpt() -> GPT:
    return GPT(GPTConfig(40, 12, 2, 3, max_length=32))


def token_batch(vocab_size: int, b: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = np.random.default_rng(0).integers(vocab_size, size=b * t + 1)
    return next(token_batches(ids, b, t)(0))


def classes_loss(model, batch):
    logits = model(*batch)
    return F.cross_entropy(logits.flatten(0, -2), torch.zeros_like(logits[..., 0].flatten()).long())


def spans_loss(model, batch):
    start, end = model(*batch)
    where = torch.zeros_like(batch[2])
    return F.cross_entropy(start, where) + F.cross_entropy(end, where)


def translation_loss(model, batch):
    source, target, lengths = batch
    logits = model(source, target[:, :-1], lengths)
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


def chosen_rows_loss(model, batch):
    x, lengths, rows = batch
    return model(x, attn_mask=padding_mask(lengths, x.shape[1]), rows=rows).square().mean()


def cached_gpt_loss(model, batch):
    """Read texts that are padded at the left, and write two tokens with the cache."""
    ids, padding = batch
    cache, fresh = model.new_cache(), ids
    for _ in range(3):
        logits = model.logits(model(fresh, cache=cache, padding=padding)[:, -1])
        fresh = logits.argmax(-1, keepdim=True)
    return logits.sum()


def cached_translation_loss(model, batch):
    source, target, lengths = batch
    memory, mask = model.encode(source, lengths)
    cache = model.stack.decoder.new_cache(8, source.shape[1])
    for column in target[:, :3].split(1, dim=1):
        logits = model.decode(column, memory, mask, cache)
    for layer in cache:
        for part in layer:
            part.select(lengths.argsort())
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
    lambda: (torch.randint(40, (3, 5)), torch.tensor([0, 2, 4])),
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
    "translation, one embedding, learned positions": (
        lambda: Seq2Seq(40, d_model=12, n_heads=3, d_ff=20, n_layers=1, learned=True),
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
    assert need.weights == 4 * need.parameters > 0 and need.activations > 0


def test_gpt_2_needs_what_is_known_of_it():
    need = rehearse(
        lambda: GPT(GPTConfig(50_257)), lambda: token_batch(50_257, 2, 64), language_model_loss
    )
    assert need.parameters == 124_439_808
    assert 4 * need.weights == 16 * need.parameters


# ----------------------------------------------------------- the notebooks at their `gpu` sizes
SAFE_CALLS = ("profile.choose", "profile.settings", "pick", "dict", "range", "max", "min")


def names_of(notebook: str) -> dict[str, Any]:
    """Return what the settings of a notebook define in the profile in force, and its imports.

    Run are imports, functions, classes, and those assignments that call nothing but SAFE_CALLS;
    an assignment that needs something else, such as data, is passed over, and so is a second one
    to the same name. The fields of an object `settings` count as names, too. Names are in lower
    case.
    """
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"real": True}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        for statement in ast.parse("".join(cell["source"])).body:
            if _is_wanted(statement, names):
                code = compile(ast.Module([statement], []), notebook, "exec")
                with contextlib.suppress(Exception):
                    exec(code, names)
    settings = names.get("settings")
    fields = vars(settings) if hasattr(settings, "__dict__") else {}
    return {key.lower(): value for key, value in (names | fields).items()}


def _is_wanted(statement: ast.stmt, names: dict[str, Any]) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
        return True
    if not isinstance(statement, ast.Assign):
        return False
    targets = (node for each in statement.targets for node in ast.walk(each))
    if all(node.id in names for node in targets if isinstance(node, ast.Name)):
        return False
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return all(ast.unparse(call.func) in SAFE_CALLS for call in calls)


def first(names: dict[str, Any], *wanted: str) -> Any:
    """Return the value of the first of the wanted names that the notebook defines."""
    return next(names[name] for name in wanted if name in names)


Step = tuple[Callable[[], nn.Module], Callable[[], Any], LossFunction]


def bert_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    shape = names["shape"] if "shape" in names else names["size"]
    rates = {"dropout": names["dropout"], "attention_dropout": names["dropout"]}
    for text, vocab_size in {"ToyWorld": 700, "WikiText-2": 34_000}.items():
        config = BertConfig(vocab_size, n_layers=names["n_layers"], **shape, **rates)
        size = vocab_size, names["batch_size"][text], names["max_length"]
        yield (
            text,
            (
                lambda config=config: BertForPretraining(Bert(config)),
                lambda size=size: pretraining_batch_of(*size),
                pretraining_loss,
            ),
        )


def gpt_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    rates = {"dropout": names["dropout"], "attention_dropout": names["dropout"]}
    toy = GPTConfig(700, names["toy_width"], 2, 4, max_length=names["length"])
    play = GPTConfig(
        names["play_vocab"],
        names["play_width"],
        names["play_layers"],
        4,
        max_length=names["play_length"],
        **rates,
    )
    for label, config in {"ToyWorld": toy, "plays": play}.items():
        size = config.vocab_size, names["batch"], config.max_length
        yield (
            label,
            (
                lambda config=config: GPT(config),
                lambda size=size: token_batch(*size),
                language_model_loss,
            ),
        )


def seq2seq_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    for label in ("number_run", "german_run"):
        b = names[label]["batch_size"]
        yield (
            label,
            (
                lambda: Seq2Seq(200, 200, **names["shape"], max_length=64, norm_first=True),
                lambda b=b: (
                    torch.ones(b, 64).long(),
                    torch.ones(b, 65).long(),
                    torch.full((b,), 60),
                ),
                translation_loss,
            ),
        )


def transformer_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    b, t = names["batch_size"], names["longest"] + 2
    shape = first(names, "shape", "size")
    batch = torch.ones(b, t).long(), torch.ones(b, t).long(), torch.full((b,), t)
    yield (
        "reversed strings",
        (lambda: Seq2Seq(names["letters"] + 3, **shape), lambda: batch, translation_loss),
    )


def finetuning_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    config = BertConfig(10_000, **names["shape"], max_length=max(128, names["long_length"]))
    for label in ("toy_run", "news_run"):
        b = names[label]["batch_size"]
        yield (
            f"pre-training, {label}",
            (
                lambda: BertForPretraining(Bert(config)),
                lambda b=b: pretraining_batch_of(10_000, b, 64),
                pretraining_loss,
            ),
        )
    size = names["classify"]["batch_size"], names["long_length"]
    yield (
        "long texts",
        (
            lambda: TextClassifier(Bert(config), 4),
            lambda: texts(10_000, *size),
            classes_loss,
        ),
    )


def pretrained_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    shape = first(names, "shape", "sizes")
    yield (
        "facts",
        (
            lambda: BertForPretraining(Bert(BertConfig(700, **shape))),
            lambda: pretraining_batch_of(700, names["batch_size"], shape["max_length"]),
            pretraining_loss,
        ),
    )


def exercise_27_2_steps(names: dict[str, Any]) -> Iterator[tuple[str, Step]]:
    config = GPTConfig(700, names["width"], names["layers"], names["heads"], max_length=64)
    yield (
        "pre-training",
        (
            lambda: GPT(config),
            lambda: token_batch(700, names["pre_batch"], 64),
            language_model_loss,
        ),
    )


# How the models that a notebook trains follow from its settings.
NOTEBOOKS = {
    "chapters/transformer.ipynb": transformer_steps,
    "chapters/bert.ipynb": bert_steps,
    "chapters/gpt.ipynb": gpt_steps,
    "chapters/seq2seq.ipynb": seq2seq_steps,
    "chapters/finetuning.ipynb": finetuning_steps,
    "chapters/pretrained_models.ipynb": pretrained_steps,
    "solutions/exercise_27_2.ipynb": exercise_27_2_steps,
}


def needs(notebook: str) -> dict[str, Need]:
    """Return what each model of a notebook needs for a step, at the sizes of the `gpu` profile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRETRAIN_PROFILE", "gpu")
        names = names_of(notebook)
        return {label: rehearse(*step) for label, step in NOTEBOOKS[notebook](names)}


def line(notebook: str, label: str, need: Need) -> str:
    sizes = [4 * need.weights, need.activations, need.total]
    columns = "".join(f"{size / 1e9:14.3f}" for size in sizes)
    return f"{Path(notebook).stem:20}{label:24}{need.parameters:>14,}{columns}"


HEADING = f"{'':44}{'parameters':>14}{'weights etc.':>14}{'activations':>14}{'total, GB':>14}"


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_model_of_a_notebook_fits_a_t4(notebook):
    found = needs(notebook)
    for label, need in found.items():
        print(line(notebook, label, need))
        assert need.total < T4, f"{label}: {need.total / 1e9:.1f} GB"
    assert found


if __name__ == "__main__":
    print(HEADING)
    for each in NOTEBOOKS:
        for label, need in needs(each).items():
            print(line(each, label, need))
