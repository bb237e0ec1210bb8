"""The one knob of the course: how much data, which device, which seed, how many threads."""

from __future__ import annotations

import math
import os
import platform
import random
import time
from dataclasses import make_dataclass
from functools import cache
from importlib import metadata
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PROFILES = ("smoke", "laptop", "gpu")


def name() -> str:
    """Return the profile in force: "smoke", "laptop" or "gpu".

    PRETRAIN_PROFILE decides; where it is unset or empty, "gpu" if CUDA is there, else "laptop".
    """
    wanted = os.environ.get("PRETRAIN_PROFILE", "")
    if wanted and wanted not in PROFILES:
        raise ValueError(f"PRETRAIN_PROFILE must be one of {PROFILES}, got {wanted!r}")
    return wanted or ("gpu" if device().type == "cuda" else "laptop")


def settings(*, real: bool = True, **values: Any) -> Any:
    """Return the sizes and learning rates for the profile in force, and print what was chosen.

    `settings(epochs=(1, 5, 20), adam=dict(lr=0.1)).epochs` is 5 in laptop.
    Args:
        real: whether the real data are there. Where they are not, smoke's values are taken in every
            profile: they fit the embedded data.
        values: each a tuple (smoke, laptop, gpu), a dictionary of such, or anything else, which
            holds in all three; a setting that is a sequence itself is a list.
    Returns:
        A frozen object with an attribute for each setting.
    """
    chosen = _chosen("settings", values, PROFILES.index(name() if real else "smoke"))
    origin = "" if real or name() == "smoke" else " (smoke's values, as the real data are missing)"
    # No line ends within a setting.
    items = [f"{key} {_shown(value)}".replace(" ", "\xa0") for key, value in chosen.items()]
    lines = fill(
        f"{name()}{origin}: {', '.join(items)}", 80, subsequent_indent="  ", break_on_hyphens=False
    )
    print(lines.replace("\xa0", " "))
    return make_dataclass("Settings", chosen, frozen=True)(**chosen)


def _chosen(setting: str, value: Any, column: int) -> Any:
    """Return what a setting, or a group of them, is in the profile of that number."""
    if isinstance(value, dict):
        return {key: _chosen(str(key), item, column) for key, item in value.items()}
    if not isinstance(value, tuple):
        return value
    if len(value) != len(PROFILES):
        raise ValueError(
            f"expected {setting} as one value or a tuple (smoke, laptop, gpu), got a tuple of "
            f"{len(value)}: {value!r}; write a sequence as a list"
        )
    return value[column]


def _shown(value: Any) -> str:
    """Return a setting as a reader would write it: 8,192 for 8192, a dictionary by its keys."""
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_shown(item)}" for key, item in value.items()) + ")"
    return f"{value:,}" if type(value) is int and abs(value) >= 1_000 else str(value)


def device() -> torch.device:
    """Return the device to compute on: CUDA where there is one, else the CPU."""
    import torch  # here, so that importing the profile alone costs nothing

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@cache
def bf16_is_faster() -> bool:
    """Return whether this machine trains faster with matrix products in bfloat16.

    Measured at the first call, by turns of a feed-forward layer in both, and remembered until the
    process ends. Always False in "smoke", whose outputs are compared between machines.
    """
    import torch

    old_card = device().type == "cuda" and not torch.cuda.is_bf16_supported()
    if name() == "smoke" or old_card:
        return False

    # No random numbers: those that a notebook draws must not depend on this measurement.
    x = torch.full((1024, 256), 0.1, device=device())
    weight = torch.full((256, 1024), 0.1, device=device(), requires_grad=True)
    seconds: dict[bool, float] = {False: math.inf, True: math.inf}
    for on in [False, True] * 4:  # the first turn of each warms up
        start = time.perf_counter()
        with torch.autocast(device().type, torch.bfloat16, enabled=on):
            loss = (torch.relu(x @ weight) @ weight.T).mean()
        loss.backward()
        weight.grad.sum().item()  # waits for a GPU
        seconds[on] = min(seconds[on], time.perf_counter() - start)
    return seconds[True] < 0.9 * seconds[False]


def set_seed(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's generators, on every device."""
    import numpy as np
    import torch

    np.random.seed(seed)  # refuses what is no integer from 0 to 2**32 - 1
    random.seed(int(seed))
    torch.manual_seed(seed)


def set_threads(n: int | None = None) -> int:
    """Return the number of threads PyTorch computes with from now on, after setting it to n.

    Without n it is one in "smoke", whose matrices are too small to share; elsewhere it stays.
    """
    import torch

    torch.set_num_threads(n or (1 if name() == "smoke" else torch.get_num_threads()))
    return torch.get_num_threads()


def progress_enabled() -> bool:
    """Return whether progress bars are drawn: not in "smoke", whose outputs are compared."""
    return name() != "smoke"


def report() -> str:
    """Return what an issue should say: versions, processor, devices, profile and folders."""
    import pooch
    import torch

    versions = {package.name.lower(): package.version for package in metadata.distributions()}
    lines = {
        "system": f"{platform.platform()}, Python {platform.python_version()}",
        **{x: versions.get(x, "none") for x in ("torch", "torchvision", "numpy", "transformers")},
        "CPU": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "CUDA": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "MPS": "there, but not used" if torch.backends.mps.is_available() else "none",
        "profile": f"{name()}, PRETRAIN_PROFILE={os.environ.get('PRETRAIN_PROFILE', '')}",
        "data": os.environ.get("PRETRAIN_DATA_DIR", "PRETRAIN_DATA_DIR is not set"),
        "cache": os.environ.get("PRETRAIN_CACHE_DIR") or pooch.os_cache("pretraining-by-hand"),
    }
    return "\n".join(f"{key:13}{value}" for key, value in lines.items())


if __name__ == "__main__":
    print(report())
