"""A rehearsal of the GPU without one: devices, values read, and memory of a training step.

PyTorch's fake tensors run a forward pass on a device named `cuda` where no card is: they know
shapes and devices, but no numbers. So they raise where a tensor is made on the wrong device, and
where the program reads a value, for which it would have to wait for a GPU. The backward pass runs
on `meta` tensors, which know shapes alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from support.text.masking import Documents, PretrainingBatch, pretraining_batches
from support.text.vocab import Corpus, Vocab
from support.vectors import fasttext, glove, word2vec

READS = (DataDependentOutputException, DynamicOutputShapeException)

LossFunction = Callable[[nn.Module, Any], torch.Tensor]

# The one kernel used here of which PyTorch does not know the shapes: a GRU's step on a GPU, which
# keeps five numbers a unit for the backward pass.
SHAPES = torch.library.Library("aten", "IMPL")
SHAPES.impl(
    "_thnn_fused_gru_cell",
    lambda x, h, state, *biases: (
        torch.empty_like(state),
        state.new_empty(len(x), 5 * state[0].numel()),
    ),
    "Meta",
)


@dataclass(frozen=True)
class Need:
    """What a training step in float32 needs: numbers that are trained, and bytes.

    state: weights, gradients, and the two averages of AdamW, or what else lives from step to step.
    activations: the tensors kept for the backward pass. Attention counts as if its weights were
    stored, which the fused kernels of a GPU avoid: an upper bound.
    """

    parameters: int
    state: int
    activations: int

    @property
    def total(self) -> int:
        """The bytes of all."""
        return self.state + self.activations


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
    with FakeTensorMode() as mode, torch.set_grad_enabled(learns), without_cudnn():
        model = on_fake_gpu(build_model())
        loss, kept = keeping(model, lambda: loss_fn(model, to_fake_gpu(batch, mode)))
        assert loss.device.type == "cuda" and loss.shape == ()
        parameters = list(model.parameters())
        need = Need(
            sum(value.numel() for value in parameters),
            4 * sum(value.nbytes for value in parameters),
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


def without_cudnn() -> Any:
    """Return a context in which recurrent layers are made of PyTorch's own kernels.

    cuDNN asks the driver before it says what shapes come out.
    """
    return torch.backends.cudnn.flags(enabled=False)


def on_fake_gpu(model: nn.Module) -> nn.Module:
    """Return the model with parameters and buffers moved, as model.to("cuda") would.

    Any other tensor that a module holds stays where it is. Module.to itself cannot move fake ones.
    """
    for module in model.modules():
        for name, value in list(module._parameters.items()):
            if value is not None:
                moved = nn.Parameter(value.detach().to("cuda"), value.requires_grad)
                setattr(module, name, moved)  # a recurrent layer notes them elsewhere, too
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


class EveryPlace(TorchFunctionMode):
    """Takes all places of x where x[mask] would take some."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__ and getattr(args[1], "dtype", None) == torch.bool:
            return args[0].flatten(0, args[1].dim() - 1)
        return func(*args, **(kwargs or {}))


def rehearse_masked(*step: Any) -> Need:
    """Rehearse a loss that picks places by a mask: a GPU is waited for, to know how many they are.

    That is the one read the notebooks' losses have, and it is checked to be there. What the step
    needs is counted as if all places were picked, which is an upper bound.
    """
    with pytest.raises(READS):
        rehearse(*step)
    with EveryPlace():
        return rehearse(*step)


class Made(TorchDispatchMode):
    """Counts the bytes of all tensors that are made, views apart."""

    def __init__(self):
        super().__init__()
        self.seen: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {x.untyped_storage()._cdata for x in filter(_has_bytes, tree_leaves(args))}
        out = func(*args, **(kwargs or {}))
        for x in filter(_has_bytes, tree_leaves(out)):
            if x.untyped_storage()._cdata not in given:
                self.seen[x.untyped_storage()._cdata] = x
        return out

    @property
    def bytes(self) -> int:
        return sum(x.untyped_storage().nbytes() for x in self.seen.values())


def _has_bytes(x: Any) -> bool:
    """Return whether x is a tensor with numbers of its own: a sparse one is made of such."""
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


HOLDERS = (word2vec.Table, fasttext.SubwordTable, glove._Side)


def tensors_of(thing: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that an object holds, and those that its tables hold."""
    for value in vars(thing).values():
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, HOLDERS):
            yield from tensors_of(value)


def held_on_gpu(thing: Any, mode: FakeTensorMode) -> Any:
    """Return a copy of an object of which all tensors are on the fake GPU."""
    new = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, torch.Tensor):
            setattr(new, name, to_fake_gpu(value, mode))
        elif isinstance(value, HOLDERS):
            setattr(new, name, held_on_gpu(value, mode))
    return new


def some_corpus(n_words: int = 7_000, n_tokens: int = 20_000) -> Corpus:
    """Return random words in sentences of twenty, with about as many words as PTB has for us."""
    ids = np.random.default_rng(0).integers(n_words, size=n_tokens, dtype=np.int32)
    letters = np.random.default_rng(1).choice(list("etaoinshrdlu"), (n_words, 5))
    words = [f"{''.join(row)}{i:x}" for i, row in enumerate(letters)]
    return Corpus(ids, np.arange(0, n_tokens + 1, 20), Vocab(words))


def trainer_of(dim: int, window: int, batch: int):
    """Return a trainer on the CPU, and the first batch of its text."""
    trainer = word2vec.Trainer(some_corpus(), dim, window, 5, 0, torch.device("cpu"))
    return trainer, next(trainer.subsample(0.0).batches(batch // word2vec.BLOCK))


def word2vec_step(dim: int, window: int = 5, batch: int = 1024) -> Need:
    """Rehearse a step of word2vec.

    Its generator stays on the CPU, as there is no other; subsampling, once an epoch, is left out.
    """
    trainer, batch = trainer_of(dim, window, batch)
    with FakeTensorMode() as mode:
        there, batch = held_on_gpu(trainer, mode), to_fake_gpu(batch, mode)
        with Made() as made:
            loss = there.step(*batch, 0.1, True)
    assert loss.device.type == "cuda"
    return Need(
        2 * len(trainer.counts) * dim, sum(x.nbytes for x in tensors_of(trainer)), made.bytes
    )


def fasttext_step(dim: int, window: int = 5, batch: int = 2048) -> Need:
    """Take a step of fastText on the CPU, and count what it makes.

    On a GPU it reads how many different words a batch has, so no fake one can take it.
    """
    trainer, batch = trainer_of(dim, window, batch)
    subwords = fasttext.Subwords(some_corpus().vocab.get_itos(), 3, 6, fasttext.BUCKETS)
    trainer.inputs = fasttext.SubwordTable(subwords, trainer.small_random(subwords.rows, dim))
    with FakeTensorMode() as mode, pytest.raises(READS):
        held_on_gpu(trainer, mode).step(*to_fake_gpu(batch, mode), 0.1, True)
    with Made() as made:
        trainer.step(*batch, 0.1, True)
    parameters = (subwords.rows + len(trainer.counts)) * dim
    return Need(parameters, sum(x.nbytes for x in tensors_of(trainer)), made.bytes)


def glove_step(dim: int, blocks: int = 64, n_words: int = 7_000) -> Need:
    """Rehearse what a step of GloVe does with its gradients; make these on the CPU, and count them.

    Without a card PyTorch has no sparse tensors on a GPU, so no fake one can multiply by them.
    """
    device = torch.device("cpu")
    counts, rows = glove.count(some_corpus(n_words)).matrix, np.arange(n_words // blocks)
    block = glove._Block(counts, rows, 100.0, 0.75, device)
    side = glove._Side(n_words, dim, dim, torch.Generator(), device)
    with Made() as made:
        _, for_rows, for_columns = block.gradients(side.table, side.table.clone())
    with FakeTensorMode() as mode:
        center, context = held_on_gpu(side, mode), held_on_gpu(side, mode)
        center.descend(to_fake_gpu(for_rows, mode), 0.1, to_fake_gpu(block.rows, mode))
        context.descend(to_fake_gpu(for_columns, mode), 0.1)
    assert center.table.device.type == context.table.device.type == "cuda"
    sides = 2 * sum(x.nbytes for x in tensors_of(side))
    tables = blocks * sum(x.nbytes for x in tensors_of(block))
    return Need(2 * n_words * (dim + 1), sides + tables, made.bytes)


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


def token_batch(vocab_size: int, b: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    windows = torch.randint(vocab_size, (b, t + 1))
    return windows[:, :-1], windows[:, 1:]


def classes_loss(model, batch):
    logits = model(*batch)
    return F.cross_entropy(logits.flatten(0, -2), torch.zeros_like(logits[..., 0].flatten()).long())


def translation_loss(model, batch):
    source, target, lengths = batch
    logits = model(source, target[:, :-1], lengths)
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
