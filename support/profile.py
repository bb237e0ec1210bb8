"""The one knob of the course: how much data, which device, which seed, how many threads."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

PROFILES = ("smoke", "laptop", "gpu")


def name() -> str:
    """Return the profile in force: "smoke", "laptop" or "gpu".

    PRETRAIN_PROFILE decides; where it is unset or empty, "gpu" if CUDA is there, else "laptop".
    Raises: ValueError if PRETRAIN_PROFILE holds another name.
    """
    wanted = os.environ.get("PRETRAIN_PROFILE", "")
    if wanted in PROFILES:
        return wanted
    if wanted:
        raise ValueError(f"PRETRAIN_PROFILE must be one of {PROFILES}, got {wanted!r}")
    return "gpu" if device().type == "cuda" else "laptop"


def choose(*, smoke: T, laptop: T, gpu: T, real: bool = True) -> T:
    """Return the value given for the profile in force.

    Args: real: whether the real data are there. Where they are not, it is smoke's value in every
    profile: that fits the embedded data.
    """
    return {"smoke": smoke, "laptop": laptop, "gpu": gpu}[name() if real else "smoke"]


def device() -> torch.device:
    """Return the device to compute on: CUDA where there is one, else the CPU."""
    import torch  # here, so that importing the profile alone costs nothing

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_seed(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's generators, on every device.

    Raises: ValueError unless seed is an integer from 0 to 2**32 - 1, which is what NumPy takes.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to 2**32 - 1, got {seed!r}")
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def set_threads(n: int | None = None) -> int:
    """Return the number of threads PyTorch computes with from now on, after setting it to n.

    Without n it is PyTorch's own choice, but never more than the cores this process may run on.
    Raises: ValueError if n is not a positive integer.
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise ValueError(f"n must be a positive integer or None, got {n!r}")
    import torch

    if n is None:
        affinity = getattr(os, "sched_getaffinity", None)  # Linux only
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        n = min(torch.get_num_threads(), cores)
    torch.set_num_threads(n)
    return n


def progress_enabled() -> bool:
    """Return whether progress bars are drawn: not in "smoke", whose outputs are compared."""
    return name() != "smoke"
