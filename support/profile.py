"""The one knob of the course: how much data, which device, which seed, how many threads."""

from __future__ import annotations

import math
import os
import random
import textwrap
import time
from dataclasses import make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

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


def settings(*, real: bool = True, **values: Any) -> Any:
    """Return the sizes and rates for the profile in force, and print what was chosen.

    Each value is a tuple (smoke, laptop, gpu), or anything else that holds in all three; a setting
    that is a sequence in itself is a list. A dictionary is a group of settings, with values of both
    kinds. `settings(epochs=(1, 5, 20), adam=dict(lr=0.1)).epochs` is 5 in laptop.
    Args: real: whether the real data are there. Where they are not, smoke's values are taken in
    every profile: they fit the embedded data.
    Returns: a frozen object with an attribute for each setting.
    Raises: ValueError if a tuple has not one value for each profile.
    """
    chosen = _chosen("settings", values, PROFILES.index(name() if real else "smoke"))
    origin = "" if real or name() == "smoke" else " (smoke's values, as the real data are missing)"
    items = [f"{setting} {_shown(value)}" for setting, value in chosen.items()]
    print(_wrapped(f"{name()}{origin}: ", items))
    return make_dataclass("Settings", chosen, frozen=True)(**chosen)


def _chosen(setting: str, value: Any, column: int) -> Any:
    """Return what a setting, or a group of them, is in the profile of that number."""
    if isinstance(value, dict):
        return {key: _chosen(str(key), item, column) for key, item in value.items()}
    if not isinstance(value, tuple):
        return value
    if len(value) != len(PROFILES):
        raise ValueError(
            f"{setting} must be one value or a tuple (smoke, laptop, gpu), "
            f"got a tuple of {len(value)}: {value!r}; write a sequence as a list"
        )
    return value[column]


def _shown(value: object) -> str:
    """Return a setting as a reader would write it: 8,192 for 8192, a dictionary by its keys."""
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_shown(item)}" for key, item in value.items()) + ")"
    if isinstance(value, (list, tuple)):
        return str(list(value))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1_000:
        return f"{value:,}"
    return str(value)


def _wrapped(head: str, items: list[str]) -> str:
    """Return the items behind the head, separated by commas, in lines of at most 80 characters."""
    whole = head + ", ".join(item.replace(" ", "\xa0") for item in items)  # no break in an item
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(whole, 80, subsequent_indent="  ", **options).replace("\xa0", " ")


def device() -> torch.device:
    """Return the device to compute on: CUDA where there is one, else the CPU."""
    import torch  # here, so that importing the profile alone costs nothing

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@cache
def bf16_is_faster() -> bool:
    """Return whether this machine trains faster with matrix products in bfloat16.

    Measured at the first call, by training steps of a feed-forward layer in turns, and remembered
    until the process ends. Always False in "smoke", whose outputs are compared between machines.
    """
    if name() == "smoke":
        return False
    import torch

    x = torch.randn(4096, 256, device=device(), requires_grad=True)
    layer = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
    layer.to(device())
    seconds: dict[bool, float] = {False: math.inf, True: math.inf}
    for on in [False, True] * 4:  # the first turn of each warms up
        start = time.perf_counter()
        with torch.autocast(device().type, torch.bfloat16, enabled=on):
            loss = layer(x).square().mean()
        loss.backward()
        loss.item()  # waits for a GPU
        seconds[on] = min(seconds[on], time.perf_counter() - start)
    return seconds[True] < 0.9 * seconds[False]


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

    Without n it is one in "smoke", whose matrices are too small to share; elsewhere PyTorch's own
    choice, but never more than the cores this process may run on.
    Raises: ValueError if n is not a positive integer.
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise ValueError(f"n must be a positive integer or None, got {n!r}")
    import torch

    if n is None and name() == "smoke":
        n = 1
    elif n is None:
        affinity = getattr(os, "sched_getaffinity", None)  # Linux only
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        n = min(torch.get_num_threads(), cores)
    torch.set_num_threads(n)
    return n


def progress_enabled() -> bool:
    """Return whether progress bars are drawn: not in "smoke", whose outputs are compared."""
    return name() != "smoke"
