"""One training loop: epochs, a schedule, clipping, bfloat16, a progress bar, a history."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from support import profile

Schedule = Callable[[int], float]  # from the step to a factor of the learning rate


@dataclass
class History:
    """What happened in a run: loss and learning rate of each step, seconds of each epoch."""

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def warmup_linear(warmup_steps: int, total_steps: int) -> Schedule:
    """Return a schedule: the factor rises to 1 in warmup_steps, then falls linearly to 0.

    The first step has the factor 1 / warmup_steps, not 0, so that it is not wasted.
    Raises: ValueError unless 0 <= warmup_steps < total_steps.
    Source: Devlin et al. 2019, A.2.
    """
    return _warmup(warmup_steps, total_steps, lambda progress: 1.0 - progress)


def warmup_cosine(warmup_steps: int, total_steps: int, floor: float = 0.0) -> Schedule:
    """Return a schedule: the factor rises to 1 in warmup_steps, then falls as a cosine to floor.

    Raises: ValueError unless 0 <= warmup_steps < total_steps.
    Source: Loshchilov and Hutter 2017, eq. 5.
    """
    half = (1.0 - floor) / 2
    return _warmup(warmup_steps, total_steps, lambda x: floor + half * (1 + math.cos(math.pi * x)))


def _warmup(warmup_steps: int, total_steps: int, decay: Callable[[float], float]) -> Schedule:
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(f"expected 0 <= warmup < total, got {warmup_steps} and {total_steps}")

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
    schedule: Schedule | None = None,
    clip_norm: float | None = None,
    bf16: bool = False,
    device: str | torch.device | None = None,
) -> History:
    """Train a model in place and return the losses, learning rates and times of the run.

    Args:
        model: moved to the device, and left in training mode.
        batches: a function from the epoch (0, 1, …) to its batches, or a DataLoader or list.
        loss_fn: from (model, batch) to the mean loss of the batch, a scalar. The batch is on the
            device if it is a tensor, a tuple or a list of tensors, or has a method `to`.
        schedule: from the step (0, 1, …) to a factor of the optimizer's learning rates.
        clip_norm: the largest norm that the gradient of all trained parameters may have.
        bf16: compute matrix products in bfloat16; see profile.bf16_is_faster().
        device: default profile.device().
    Raises:
        FloatingPointError: if a loss is not finite, before the step is taken.
        ValueError: if an epoch has no batches, as when a generator is used up.
    """
    device = torch.device(device or profile.device())
    model.to(device)
    model.train()
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]  # else LambdaLR would take that of an earlier run
    scheduler = LambdaLR(optimizer, schedule or (lambda step: 1.0))
    trained = [weight for group in optimizer.param_groups for weight in group["params"]]
    history = History()
    for epoch in range(epochs):
        start, steps_before = time.perf_counter(), len(history.losses)
        made = batches(epoch) if callable(batches) else batches
        hidden = not profile.progress_enabled()
        for batch in tqdm(made, f"epoch {epoch + 1}/{epochs}", leave=False, disable=hidden):
            step = len(history.losses)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = loss_fn(model, _moved(batch, device))
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"the loss of step {step} is {loss.item()}: try a smaller learning rate"
                )
            optimizer.zero_grad()
            loss.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(trained, clip_norm)
            optimizer.step()
            history.losses.append(loss.item())
            history.learning_rates.append(scheduler.get_last_lr()[0])
            scheduler.step()
        if len(history.losses) == steps_before:
            raise ValueError(f"epoch {epoch} has no batches: give a list or a function of it")
        history.seconds.append(time.perf_counter() - start)
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"]  # where a second run is to start
    return history


def _moved(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, tuple | list):
        parts = [part.to(device) for part in batch]
        return batch._make(parts) if hasattr(batch, "_make") else parts
    return batch.to(device)
