"""The loss over a large vocabulary, without ever holding all of its logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from support import checks

# Logits at a time: 16 MB in float32, much of which stays in the caches of a CPU; a GPU wants more.
CHUNK_CPU, CHUNK_GPU = 2**22, 2**27


def linear_cross_entropy(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    chunk: int | None = None,
) -> torch.Tensor:
    """Return the mean cross-entropy in nats of the logits states @ weight.T + bias.

    Same value and gradients as F.cross_entropy(F.linear(states, weight, bias), targets), but the
    logits of chunk rows are made at a time and their gradient at once, so that N x V numbers are
    never stored. It can be differentiated once.

    Args: states (N, d); weight (V, d); bias (V,); targets (N,) from 0 to V - 1; chunk: rows.
    Raises: ValueError for shapes that do not fit, for N = 0, and for targets outside.
    """
    n, vocab_size = len(states), len(weight)
    fits = (
        states.dim() == weight.dim() == 2
        and states.shape[1:] == weight.shape[1:]
        and targets.shape == (n,)
    )
    if not fits or (bias is not None and bias.shape != (vocab_size,)):
        given = [None if x is None else tuple(x.shape) for x in (states, weight, bias, targets)]
        raise ValueError(f"states (N, d), weight (V, d), bias (V,), targets (N,), got {given}")
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64, got {targets.dtype}")
    if chunk is not None:
        checks.integers(1, chunk=chunk)
    if n == 0:
        raise ValueError("there is nothing to predict")
    if not torch.compiler.is_compiling():
        low, high = (int(bound) for bound in targets.aminmax())
        if low < 0 or high >= vocab_size:
            raise ValueError(f"targets must be from 0 to {vocab_size - 1}, got {low} to {high}")
    at_once = CHUNK_CPU if states.device.type == "cpu" else CHUNK_GPU
    rows = chunk or max(1, at_once // vocab_size)
    # Inside a Function gradients are always off: only here is it known whether any are wanted.
    return _LinearCrossEntropy.apply(states, weight, bias, targets, rows, torch.is_grad_enabled())


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss and, in the same pass over the logits, its gradients."""

    @staticmethod
    def forward(ctx, states, weight, bias, targets, chunk, grad_enabled):
        # What autocast would compute in: the type of a product here.
        kind = F.linear(states[:1], weight[:1]).dtype
        x, w = states.to(kind), weight.to(kind)
        b = None if bias is None else bias.to(kind)
        exact = torch.promote_types(kind, torch.float32)  # half precision is too short for sums
        wants = grad_enabled and any(ctx.needs_input_grad)
        dx = torch.empty_like(x)
        dw = torch.zeros_like(weight)
        db = None if bias is None else torch.zeros_like(bias)
        total = states.new_zeros((), dtype=exact)
        for start in range(0, len(x), chunk):
            part, wanted = x[start : start + chunk], targets[start : start + chunk, None]
            logits = F.linear(part, w, b)
            log_p = logits.to(exact).log_softmax(-1)  # (chunk, V)
            total -= log_p.gather(1, wanted).sum()
            if not wants:
                continue
            # The gradient with respect to the logits is p minus one at the target.
            error = log_p.exp_()
            error.scatter_add_(1, wanted, error.new_full(wanted.shape, -1.0))
            error = error.to(kind)
            torch.mm(error, w, out=dx[start : start + chunk])
            if kind == dw.dtype:
                dw.addmm_(error.T, part)
            else:
                dw += error.T @ part
            if db is not None:
                db += error.sum(0)
        ctx.save_for_backward(dx, dw, db)
        ctx.kind, ctx.n = states.dtype, len(x)
        return total / len(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        dx, dw, db = ctx.saved_tensors
        scale = gradient / ctx.n  # only here, where half precision cannot lose it
        db = None if db is None else db * scale
        return dx.to(ctx.kind) * scale, dw * scale, db, None, None, None
