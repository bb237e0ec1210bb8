"""The training loop that all chapters share, on Accelerate: one call, reproducible, resumable."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from tqdm import tqdm

from support import checkpoints, profile

if TYPE_CHECKING:
    from accelerate import Accelerator

PRECISIONS = ("no", "bf16", "fp16")


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
    resume: bool = True,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[int, History], object] | None = None,
    seed: int | None = None,
) -> History:
    """Train a model in place and return the History of the run.

    Args:
        batches: a function from the epoch (0, 1, …) to its batches, or a DataLoader.
        loss_fn: from (model, batch) to the mean loss of the batch, a scalar.
        schedule: from the step (0, 1, …) to a factor of the optimizer's learning rates.
        clip_norm: the largest norm that the gradient of all parameters together may have.
        precision: "no" (float32), "bf16" or "fp16"; the weights stay float32.
        accumulate: batches whose gradients are averaged for one step.
        checkpoint: a folder. Weights, optimizer, random numbers and history are saved there after
            each epoch, and the save before is kept; with resume a saved run goes on as if it had
            never stopped. For that the epoch, a DataLoader and the random numbers of Python, NumPy
            and PyTorch must determine the batches: a function's own generator is not saved.
        device: default profile.device(). progress: default profile.progress_enabled().
        on_epoch: called after each epoch with its number and the history, before saving.
        seed: for all random numbers, set at the start.
    Under `accelerate launch` every process takes its share of the batches: give a seed, so that
    all see the same order.
    Raises: ValueError for arguments that do not fit, an epoch without batches, or a checkpoint
    that is damaged or another model's; FloatingPointError that names the step if the loss is not
    finite, before the step is taken.
    """
    _check(batches, epochs, optimizer, model, clip_norm, precision, accumulate)
    accelerator = _accelerator(torch.device(device or profile.device()), precision)
    if seed is not None:
        profile.set_seed(seed)
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    history = History()
    with _own_forward(model):
        wrapped, stepper = accelerator.prepare(model, optimizer)
        if accelerator.scaler is None:
            stepper = optimizer  # the same steps, without half a millisecond of checks for each
        run = checkpoints.Run(model, optimizer, accelerator.scaler, history, batches)
        if checkpoint and resume:
            run.restore(checkpoint)
        for epoch in range(len(history.epoch_losses), epochs):
            wrapped.train()
            start, first, items = time.perf_counter(), len(history.losses), 0
            made = batches(epoch) if callable(batches) else batches
            with _bar(made, f"epoch {epoch + 1}/{epochs}", progress, accelerator) as bar:
                for group in _groups(made, accumulate, accelerator):
                    step = len(history.losses)
                    _set_rates(optimizer, schedule, step)
                    stepper.zero_grad()
                    loss = _backward(wrapped, group, loss_fn, accelerator)
                    if not math.isfinite(loss):
                        raise FloatingPointError(f"the loss of step {step} is {loss}")
                    if clip_norm is not None:
                        accelerator.clip_grad_norm_(wrapped.parameters(), clip_norm)
                    stepper.step()
                    history.losses.append(loss)
                    history.learning_rates.append(optimizer.param_groups[0]["lr"])
                    items += sum(map(_size, group)) * accelerator.num_processes
                    bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
                    bar.update(len(group))
            losses = history.losses[first:]
            if not losses:
                raise ValueError(f"epoch {epoch} has no batches")
            history.epoch_losses.append(sum(losses) / len(losses))
            history.seconds.append(time.perf_counter() - start)
            history.items.append(items)
            if on_epoch:
                on_epoch(epoch, history)
            if checkpoint and accelerator.is_main_process:
                run.save(checkpoint)
            accelerator.wait_for_everyone()
    return history


def _check(batches, epochs, optimizer, model, clip_norm, precision, accumulate) -> None:
    """Raise ValueError for arguments of fit that cannot be meant."""
    for name, value in (("epochs", epochs), ("accumulate", accumulate)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {PRECISIONS}, got {precision!r}")
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive or None, got {clip_norm!r}")
    if not callable(batches) and (not hasattr(batches, "__iter__") or hasattr(batches, "__next__")):
        raise ValueError(
            "batches must be a function of the epoch or something that can be gone through in "
            f"each epoch anew, such as a DataLoader, got {type(batches).__name__}"
        )
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not trained & {id(p) for p in model.parameters()}:
        raise ValueError("the optimizer updates none of the model's parameters")


def _accelerator(device: torch.device, precision: str) -> Accelerator:
    """Return an Accelerator for a device and a precision."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # bars here need no widgets
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

    if precision == "fp16" and device.type == "cpu":
        raise ValueError('precision="fp16" needs a GPU; on the CPU use "bf16" or "no"')
    # Accelerate has one state in a process, set by the first run; a notebook has many runs, in
    # several precisions. What several processes have agreed on stays.
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    AcceleratorState._reset_state(reset_partial_state=not distributed)
    accelerator = Accelerator(mixed_precision=precision, cpu=device.type == "cpu")
    if accelerator.device.type != device.type:
        raise ValueError(f"device {device} is not there, Accelerate offers {accelerator.device}")
    return accelerator


@contextmanager
def _own_forward(model: nn.Module) -> Iterator[None]:
    """Give the model back with its own forward, which mixed precision replaces."""
    names = ("forward", "_original_forward")
    owners = (model, getattr(model, "_orig_mod", model))  # the second if it is compiled
    kept = [{name: m.__dict__[name] for name in names if name in m.__dict__} for m in owners]
    try:
        yield
    finally:
        for owner, own in zip(owners, kept, strict=True):
            for name in names:
                owner.__dict__.pop(name, None)
            owner.__dict__.update(own)


def _groups(batches: Iterable[Any], accumulate: int, accelerator: Accelerator) -> Iterator[list]:
    """Yield lists of the batches of one step each; of several processes, this one's share."""
    own = iter(batches)
    if accelerator.num_processes > 1:
        # A last round that is not full is left out, or the processes would wait for each other.
        rounds = zip(*[own] * accelerator.num_processes, strict=False)
        own = (share[accelerator.process_index] for share in rounds)
    while group := list(islice(own, accumulate)):
        yield group


def _set_rates(optimizer: torch.optim.Optimizer, schedule, step: int) -> None:
    for group in optimizer.param_groups if schedule else ():
        group["lr"] = group["initial_lr"] * float(schedule(step))


def _backward(model: nn.Module, group: list, loss_fn, accelerator: Accelerator) -> float:
    """Add the gradient of the mean loss of a group of batches; return that loss."""
    from accelerate.utils import send_to_device

    total = torch.zeros((), device=accelerator.device)
    for i, batch in enumerate(group):
        last = i == len(group) - 1
        with nullcontext() if last else accelerator.no_sync(model):
            loss = loss_fn(model, send_to_device(batch, accelerator.device))
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
                raise ValueError("loss_fn must return a scalar tensor that depends on the model")
            part = loss.reshape(()) / len(group)
            accelerator.backward(part) if accelerator.scaler else part.backward()
        total += loss.detach().reshape(()).float() / len(group)
    return float(accelerator.reduce(total, reduction="mean"))


def _size(batch: Any) -> int:
    """Return the number of examples in a batch: the first dimension of its first tensor."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    parts = batch.values() if isinstance(batch, dict) else batch
    return _size(next(iter(parts))) if isinstance(parts, Iterable) and parts else 1


def _bar(batches: Iterable[Any], title: str, progress: bool | None, accelerator) -> tqdm:
    shown = profile.progress_enabled() if progress is None else progress
    total = len(batches) if hasattr(batches, "__len__") else None
    hidden = not (shown and accelerator.is_main_process)
    return tqdm(total=total, desc=title, unit="batch", leave=False, disable=hidden)
