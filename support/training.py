"""The training loop that all chapters share: one call, reproducible, resumable."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from support import checkpoints, profile

PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}
# After how many steps their losses are read: a GPU must finish all its work before it gives one.
READ_EVERY = {"cpu": 1, "cuda": 50}
# Where torchrun and the kinds of mpirun, which Accelerate calls, say how many processes there are.
LAUNCHED = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


@dataclass
class History:
    """What happened in a run: per optimizer step the first two lists, per epoch the others.

    losses and epoch_losses (means over the epoch's steps) are in the loss's own unit; seconds
    exclude on_epoch and saving; items counts examples, by the first dimension of a batch.
    """

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    epoch_losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    items: list[int] = field(default_factory=list)

    @property
    def items_per_second(self) -> float:
        """The speed over the whole run, 0 before the first epoch is over."""
        return sum(self.items) / sum(self.seconds) if self.seconds else 0.0


def warmup_linear(warmup_steps: int, total_steps: int) -> Callable[[int], float]:
    """Return a schedule: the factor rises to 1 in warmup_steps, then falls to 0 in a line.

    The first step has the factor 1 / warmup_steps, not 0, so that it is not wasted.
    Raises: ValueError unless 0 <= warmup_steps < total_steps. Source: Devlin et al. 2019, A.2.
    """
    return _warmup(warmup_steps, total_steps, lambda progress: 1.0 - progress)


def warmup_cosine(
    warmup_steps: int, total_steps: int, floor: float = 0.0
) -> Callable[[int], float]:
    """Return a schedule: the factor rises to 1 in warmup_steps, then falls to floor in a cosine.

    Raises: ValueError as warmup_linear, or if floor is not in [0, 1).
    Source: Loshchilov and Hutter 2017, eq. 5.
    """
    if not 0.0 <= floor < 1.0:
        raise ValueError(f"floor must be in [0, 1), got {floor!r}")
    half = (1.0 - floor) / 2
    return _warmup(
        warmup_steps,
        total_steps,
        lambda progress: floor + half * (1 + math.cos(math.pi * progress)),
    )


def _warmup(
    warmup_steps: int, total_steps: int, decay: Callable[[float], float]
) -> Callable[[int], float]:
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(f"need 0 <= warmup_steps < total_steps, got {warmup_steps}, {total_steps}")

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return decay(min(1.0, (step - warmup_steps) / (total_steps - warmup_steps)))

    return factor


def best_precision(device: str | torch.device | None = None) -> str:
    """Return the precision to train in on a device: "bf16" or "fp16" on CUDA, elsewhere "no".

    From compute capability 8.0 on, a card multiplies in bfloat16. Older ones, such as the T4, only
    imitate that, slowly, but have float16. device: default profile.device().
    """
    device = torch.device(device or profile.device())
    if device.type != "cuda":
        return "no"
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"


def fit(
    model: nn.Module,
    batches: Callable[[int], Iterable[Any]] | Iterable[Any],
    loss_fn: Callable[[nn.Module, Any], torch.Tensor],
    *,
    epochs: int,
    optimizer: torch.optim.Optimizer,
    schedule: Callable[[int], float] | None = None,
    clip_norm: float | None = None,
    precision: str = "no",
    accumulate: int = 1,
    checkpoint: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[int, History], object] | None = None,
    seed: int | None = None,
    shard: Iterable[nn.Module] | None = None,
) -> History:
    """Train a model in place and return the History of the run.

    The model stays on the device and comes back in the mode, train or eval, in which it was given;
    the optimizer comes back with the learning rates with which it was given.

    Args:
        batches: a function from the epoch (0, 1, …) to its batches, or a DataLoader. loss_fn gets
            each batch with its tensors on the device, also those in lists, tuples, dictionaries and
            dataclasses; NumPy arrays of numbers arrive as tensors.
        loss_fn: from (model, batch) to the mean loss of the batch, a scalar.
        schedule: from the step (0, 1, …) to a factor of the optimizer's learning rates.
        clip_norm: the largest norm that the gradient of all trained parameters together may have.
        precision: "no" (float32), "bf16" or "fp16", for all products that loss_fn computes; the
            weights stay float32. See best_precision.
        accumulate: batches whose gradients are averaged for one step.
        checkpoint: a folder. Weights, optimizer, random numbers and history are saved there after
            each epoch, the two newest are kept, and a run that finds one there goes on as if it had
            never stopped, with the learning rates that the optimizer has now. For that the epoch,
            a DataLoader and the random numbers of Python, NumPy and PyTorch must determine the
            batches: a function's own generator is not saved.
        device: default profile.device(). progress: default profile.progress_enabled().
        on_epoch: called after each epoch with its number and the history, before saving.
        seed: for all random numbers, set at the start.
        shard: parts of the model, such as its layers, whose weights, gradients and optimizer states
            the processes divide among themselves (FSDP), as they do those of the rest. Needs
            several processes and PyTorch 2.6. Default: each process holds all of them (DDP).
    Under torchrun or `accelerate launch`, process i of n trains on batches i, n + i, 2n + i, … of
    each epoch, and every step follows the mean gradient: n processes do what one does with an
    accumulate n times as large. A last round of fewer than n batches is left out. All processes
    must make the same batches, so give a seed.
    Raises: ValueError for arguments that do not fit, an epoch without batches, or a checkpoint
    of another model or all damaged; FloatingPointError that names the first step whose loss is not
    finite: on the CPU before that step is taken, on a GPU up to 50 steps later.
    """
    _check(batches, epochs, optimizer, model, clip_norm, precision, accumulate)
    together = workers(device, precision)
    if seed is not None:
        profile.set_seed(seed)
    with _given_back(model, optimizer, schedule) as rates:
        model.to(together.device)
        if shard is not None:
            if precision == "fp16":
                raise ValueError(
                    'shard goes with "bf16" or "no", since each part scales "fp16" alone'
                )
            _shard(model, shard, optimizer, together)
        if optimizer.state:  # it may be of a run on another device, and this moves it
            optimizer.load_state_dict(optimizer.state_dict())
        steps = _Steps(model, loss_fn, optimizer, together, precision)
        run = checkpoints.Run(model, optimizer, steps.scaler, batches)
        saved = run.restore(checkpoint) if checkpoint else None
        history = steps.history = History(**saved) if saved else History()
        for epoch in range(len(history.epoch_losses), epochs):
            model.train()
            together.share_random_numbers()
            start, first, items = time.perf_counter(), len(history.losses), 0
            made = batches(epoch) if callable(batches) else batches
            with _bar(made, f"epoch {epoch + 1}/{epochs}", progress, together) as bar:
                for group in together.groups(made, accumulate):
                    if schedule:
                        factor = float(schedule(len(history.learning_rates)))
                        _set_rates(optimizer, [rate * factor for rate in rates])
                    steps.take(group, clip_norm)
                    items += sum(map(_size, group))
                    bar.update(len(group) * together.n)
                    if history.losses and not bar.disable:
                        bar.set_postfix(loss=f"{history.losses[-1]:.4f}", refresh=False)
            steps.read_losses()
            if len(history.losses) == first:
                raise ValueError(f"epoch {epoch} has no batches")
            history.epoch_losses.append(sum(history.losses[first:]) / len(history.losses[first:]))
            history.seconds.append(time.perf_counter() - start)
            history.items.append(int(together.sum(items)))
            if on_epoch:
                on_epoch(epoch, history)
            if checkpoint:
                run.save(checkpoint, epoch + 1, asdict(history), write=together.own == 0)
            together.wait()
    return history


def _check(batches, epochs, optimizer, model, clip_norm, precision, accumulate) -> None:
    """Raise ValueError for arguments of fit that cannot be meant."""
    for name, value in (("epochs", epochs), ("accumulate", accumulate)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {list(PRECISIONS)}, got {precision!r}")
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive or None, got {clip_norm!r}")
    if not callable(batches) and (not hasattr(batches, "__iter__") or hasattr(batches, "__next__")):
        raise ValueError(
            "batches must be a function of the epoch or something that can be gone through in "
            f"each epoch anew, such as a DataLoader, got {type(batches).__name__}"
        )
    if not _trained(model, optimizer):
        raise ValueError("the optimizer updates none of the model's parameters")


def _trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return the parameters of the model that the optimizer updates."""
    updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [p for p in model.parameters() if id(p) in updated]


@contextmanager
def _given_back(model: nn.Module, optimizer: torch.optim.Optimizer, schedule) -> Iterator[list]:
    """Yield the learning rates; at the end set them again, and the mode of each module."""
    rates = [group["lr"] for group in optimizer.param_groups]
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield rates
    finally:
        for module, mode in modes:
            module.training = mode
        if schedule:
            _set_rates(optimizer, rates)


def _set_rates(optimizer: torch.optim.Optimizer, rates: list[float]) -> None:
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


@dataclass(frozen=True)
class Workers:
    """The processes that train together: how many, which one this is, and its device."""

    device: torch.device
    n: int = 1
    own: int = 0

    def groups(self, batches: Iterable[Any], accumulate: int) -> Iterator[list[Any]]:
        """Yield lists of the batches of one step each: this process's share of them."""
        shares = iter(batches)
        if self.n > 1:
            # A last round that is not full is left out, or the processes would wait for each other.
            rounds = zip(*[shares] * self.n, strict=False)
            shares = (each[self.own] for each in rounds)
        while group := list(islice(shares, accumulate)):
            yield group

    def sum(self, value: torch.Tensor | float) -> torch.Tensor | float:
        """Return the sum of the values of all processes."""
        if self.n == 1:
            return value
        total = torch.as_tensor(value, device=self.device).clone()
        torch.distributed.all_reduce(total)
        return total

    def share_random_numbers(self) -> None:
        """Give all the first one's random numbers: drawing unlike dropout has made them differ."""
        if self.n > 1:
            state = torch.get_rng_state().to(self.device)
            torch.distributed.broadcast(state, 0)
            torch.set_rng_state(state.cpu())

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Let the first process go through the block, and then the others."""
        if self.own:
            self.wait()
        yield
        if not self.own:
            self.wait()

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.n > 1:
            torch.distributed.barrier()


def launched() -> int:
    """Return how many processes torchrun or Accelerate has launched together; 1 without them."""
    return max(int(os.environ.get(name, "1")) for name in LAUNCHED)


def workers(device: str | torch.device | None = None, precision: str = "no") -> Workers:
    """Return the processes that were launched together, each with its device; else this one.

    Raises: ValueError for a device (default profile.device()) that is not there.
    """
    device = device or profile.device()
    try:
        device = torch.empty(0, device=device).device
    except (AssertionError, RuntimeError) as error:
        raise ValueError(f"device {device} is not there: {error}") from error
    if precision == "fp16" and device.type == "cpu":
        raise ValueError('precision="fp16" needs a GPU; on the CPU use "bf16" or "no"')
    if launched() == 1:
        return Workers(device)
    from accelerate import PartialState  # here, since one process does without

    # The others wait while the first makes tokens of a large text.
    state = PartialState(cpu=device.type == "cpu", timeout=timedelta(days=1))
    if state.device.type != device.type:
        raise ValueError(f"device {device} is not there, Accelerate offers {state.device}")
    return Workers(state.device, state.num_processes, state.process_index)


def _shard(model, parts, optimizer, workers: Workers) -> None:
    """Divide the weights of a model among the processes; the optimizer then holds their parts."""
    if workers.n == 1:
        raise ValueError("shard needs several processes, under torchrun or accelerate launch")
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise ValueError(f"shard needs PyTorch 2.6, this is {torch.__version__}") from error
    names = {id(value): name for name, value in model.named_parameters()}
    for part in (*parts, model):
        fully_shard(part)
    own = dict(model.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [own[names[id(value)]] for value in group["params"]]


class _WholeLoss(nn.Module):
    """A model and its loss as one module, so that nothing that the loss calls is left out."""

    def __init__(self, model: nn.Module, loss_fn: Callable):
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn

    def forward(self, batch: Any) -> torch.Tensor:
        loss = self.loss_fn(self.model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise ValueError("loss_fn must return a scalar tensor that depends on the model")
        return loss.reshape(())


class _Steps:
    """Takes steps of the optimizer, and notes their losses and learning rates in the history."""

    def __init__(self, model, loss_fn, optimizer, workers: Workers, precision: str):
        self.optimizer, self.workers, self.device = optimizer, workers, workers.device
        self.history = History()
        self.unread: list[torch.Tensor] = []
        self.read_every = READ_EVERY.get(self.device.type, 50)
        self.trained = _trained(model, optimizer)
        kind = PRECISIONS[precision]
        self.precision = partial(torch.autocast, self.device.type, kind) if kind else nullcontext
        self.scaler = torch.amp.GradScaler(self.device.type) if precision == "fp16" else None
        self.loss = _WholeLoss(model, loss_fn)
        self.sharded = checkpoints.is_sharded(model)
        if workers.n > 1 and not self.sharded:
            # As in one process, a parameter may have no part in the loss.
            parallel = nn.parallel.DistributedDataParallel
            self.loss = parallel(self.loss, find_unused_parameters=True)

    def take(self, group: list[Any], clip_norm: float | None) -> None:
        """Take one step, along the mean gradient of a group of batches."""
        self.optimizer.zero_grad()
        self.unread.append(self._backward(group))
        self.history.learning_rates.append(self.optimizer.param_groups[0]["lr"])
        if len(self.unread) == self.read_every:
            self.read_losses()
        if self.scaler and clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(self.trained, clip_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def _backward(self, group: list[Any]) -> torch.Tensor:
        """Add the gradient of the mean loss of a group of batches; return that loss."""
        total = 0.0
        for i, batch in enumerate(group):
            last = i == len(group) - 1
            if self.sharded:
                self.loss.model.set_requires_gradient_sync(last)
            alone = last or self.workers.n == 1 or self.sharded
            with nullcontext() if alone else self.loss.no_sync():
                with self.precision():
                    loss = self.loss(_moved(batch, self.device))
                part = loss / len(group)
                (self.scaler.scale(part) if self.scaler else part).backward()
            total = total + loss.detach().float() / len(group)
        return total

    def read_losses(self) -> None:
        """Move the losses that have not been read into the history: the GPU is waited for.

        Raises: FloatingPointError that names the first step whose loss is not finite.
        """
        if not self.unread:
            return
        first = len(self.history.losses)
        losses = self.workers.sum(torch.stack(self.unread)) / self.workers.n
        self.history.losses += losses.tolist()
        self.unread.clear()
        for step, loss in enumerate(self.history.losses[first:], first):
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss of step {step} is {loss}: try a smaller rate")


def _moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors, and NumPy arrays of numbers as tensors, on the device."""
    if isinstance(batch, np.ndarray) and batch.dtype.kind in "biufc":
        batch = torch.from_numpy(batch)
    if isinstance(batch, torch.Tensor) and (batch.device.type, device.type) == ("cpu", "cuda"):
        # From pinned memory a GPU takes a batch without having to finish its work before.
        return batch.pin_memory().to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        new = copy.copy(batch)
        new.update({key: _moved(value, device) for key, value in batch.items()})
        return new
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, list | tuple):
        parts = [_moved(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if is_dataclass(batch):
        new = copy.copy(batch)
        for part in fields(batch):  # set in this way also if it is frozen
            object.__setattr__(new, part.name, _moved(getattr(batch, part.name), device))
        return new
    return batch


def _size(batch: Any) -> int:
    """Return the number of examples in a batch.

    That is the first dimension of its first tensor or array; if it has none, the length of its
    first list, such as one of texts; else 1.
    """
    for kinds in ((torch.Tensor, np.ndarray), list):
        for part in _parts(batch):
            if isinstance(part, kinds) and getattr(part, "ndim", 1):
                return len(part)
    return 1


def _parts(batch: Any) -> Iterator[Any]:
    """Yield a batch and all that it is made of, from the outside to the inside."""
    yield batch
    inside = batch if isinstance(batch, list | tuple) else ()
    if isinstance(batch, Mapping):
        inside = batch.values()
    elif is_dataclass(batch):
        inside = [getattr(batch, part.name) for part in fields(batch)]
    for part in inside:
        yield from _parts(part)


def _bar(batches: Iterable[Any], title: str, progress: bool | None, workers: Workers) -> tqdm:
    shown = profile.progress_enabled() if progress is None else progress
    total = len(batches) if hasattr(batches, "__len__") else None
    hidden = not (shown and workers.own == 0)
    return tqdm(total=total, desc=title, unit="batch", leave=False, disable=hidden)
