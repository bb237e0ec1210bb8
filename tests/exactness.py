"""How close to equal results must be, and modules no part of which could be missing unnoticed."""

from __future__ import annotations

import torch
from torch import nn

EXACT_TYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def close(ours, theirs):
    """Assert that both are equal to within what their type can hold."""
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def rounded_anew(module: nn.Module) -> nn.Module:
    """Give all parameters random values: biases are zero and norms one at the start."""
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn_like(value) / value.shape[-1] ** 0.5 + (value == 1))
    return module
