"""Saving a run and going on with it: one file in safetensors' format for a moment, no pickle.

A folder keeps the two newest, such as epoch-0002.safetensors and epoch-0003.safetensors. A file
gets its name when it is complete, so a run that is killed while it saves leaves those before. On
the same machine, with the same versions and as many threads (torch.set_num_threads), a resumed run
equals one never stopped bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as tensor_files
from torch import nn

_KEPT = 2


@dataclass
class Run:
    """What determines how a run goes on; batches is what fit was given."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None = None
    batches: Any = None

    def save(
        self,
        folder: str | Path,
        epochs: int,
        history: dict[str, list[float]],
        *,
        write: bool = True,
    ) -> None:
        """Add a checkpoint of this moment, so many epochs after the start; keep the one before.

        Of several processes all must call this, as weights may be divided among them; one writes.
        Raises: OSError if it cannot be written; the checkpoints before are then as they were.
        """
        from support.data.files import whole_file  # here, as it loads all that downloads need

        tensors = {f"model.{name}": value for name, value in self._weights().items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            known = {name: value for name, value in state.items() if value is not None}
            tensors |= {f"optimizer.{i}.{name}": torch.as_tensor(known[name]) for name in known}
        for name, numbers in history.items():
            tensors[f"history.{name}"] = torch.from_numpy(np.array(numbers))
        tensors = {name: _whole(value).cpu().contiguous() for name, value in tensors.items()}
        if not write:
            return
        state = {
            "form": self._form(),
            "random": _random_state(self._device, self.batches),
            "scaler": self.scaler.state_dict() if self.scaler else None,
        }
        header = {"state": json.dumps(state)}
        header["sha256"] = _sha256(header["state"], tensors)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".epoch-*.safetensors.*.tmp"):  # of a run that was killed
            leftover.unlink()
        with whole_file(folder / f"epoch-{epochs:04d}.safetensors") as file:
            file.write(tensor_files.save(tensors, header))
        for path in _found(folder)[_KEPT:]:
            path.unlink()

    def restore(self, folder: str | Path) -> dict[str, list[float]] | None:
        """Bring the run to its newest checkpoint; return the history, or None if there is none.

        A damaged one is passed over with a warning. The optimizer keeps the learning rates and
        other settings that it has.
        Raises: ValueError, before anything is changed, if all are damaged, or if the newest is of
        another model or optimizer; it names the first difference.
        """
        paths = _found(Path(folder))
        for path in paths:
            try:
                state, tensors = _read(path)
            except ValueError as error:
                warnings.warn(f"{error}; it is passed over", stacklevel=3)
                continue
            here, there = self._form(), state["form"]
            for name in [*here, *there]:
                a, b = there.get(name, "missing"), here.get(name, "missing")
                if a != b:
                    reason = f"{name} is {a} there and {b} here"
                    raise ValueError(f"{path} is of another model or optimizer: {reason}")
            # Not strict, because a weight with two names comes once; the names have been compared.
            own, weights = self._weights(), _under("model.", tensors)
            weights = {name: _divided(weights[name], own[name]) for name in weights}
            self._core.load_state_dict(weights, strict=False)
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            gathered: dict[int, dict[str, torch.Tensor]] = {}
            for name, value in _under("optimizer.", tensors).items():
                i, _, name = name.partition(".")
                gathered.setdefault(int(i), {})[name] = _divided(value, parameters[int(i)])
            self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": gathered})
            if self.scaler and state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
            _set_random_state(state["random"], self._device, self.batches)
            return {name: value.tolist() for name, value in _under("history.", tensors).items()}
        if paths:
            raise ValueError(f"no checkpoint in {folder} is whole: remove them to start anew")
        return None

    @property
    def _core(self) -> nn.Module:
        return getattr(self.model, "_orig_mod", self.model)  # the model itself if it is compiled

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _weights(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name; one that has several names comes once."""
        first = {*dict(self._core.named_parameters()), *dict(self._core.named_buffers())}
        return {name: value for name, value in self._core.state_dict().items() if name in first}

    def _form(self) -> dict[str, str]:
        """Return what must be the same when the run goes on."""
        form = {name: f"{v.dtype} {tuple(v.shape)}" for name, v in self._weights().items()}
        form["the optimizer"] = type(self.optimizer).__qualname__
        names = {id(value): name for name, value in self._core.named_parameters()}
        for i, group in enumerate(self.optimizer.param_groups):
            form[f"its group {i}"] = ", ".join(names.get(id(p), "?") for p in group["params"])
        form["the number of the DataLoader's generators"] = str(len(_generators(self.batches)))
        return form


def is_sharded(model: nn.Module) -> bool:
    """Return whether several processes have divided the model's weights among themselves."""
    return any(hasattr(value, "full_tensor") for value in model.parameters())


def whole_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the state of a model with whole tensors, on the CPU; all processes must call this."""
    return {name: _whole(value).cpu() for name, value in model.state_dict().items()}


def _whole(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor whole, if it is divided among processes; all of them must call this."""
    value = value.detach()
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _divided(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor divided among the processes as another of its shape is."""
    if not hasattr(like, "full_tensor") or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def _found(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, good or damaged, the newest first."""
    inside = folder.iterdir() if folder.exists() else ()
    paths = [path for path in inside if re.fullmatch(r"epoch-\d{4,}\.safetensors", path.name)]
    return sorted(paths, key=lambda path: int(path.stem[6:]), reverse=True)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the state and the tensors of a checkpoint; ValueError if it is not as written."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    except SafetensorError as error:
        raise ValueError(f"the checkpoint {path} is damaged: {error}") from error
    state = header.get("state", "")
    if header.get("sha256") != _sha256(state, tensors):
        raise ValueError(f"the checkpoint {path} is damaged: it has another SHA-256")
    return json.loads(state), tensors


def _sha256(state: str, tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(state.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with prefix, without it."""
    return {name[len(prefix) :]: v for name, v in tensors.items() if name.startswith(prefix)}


def _random_state(device: torch.device, batches: Any) -> dict[str, Any]:
    """Return the states of all random numbers that a run draws, as JSON can hold them."""
    _, key, *numpy = np.random.get_state()
    cuda = device.type == "cuda"
    return {
        "python": random.getstate(),
        "numpy": [key.tolist(), *numpy],
        "torch": torch.get_rng_state().tolist(),
        "cuda": torch.cuda.get_rng_state(device).tolist() if cuda else None,
        "batches": [generator.get_state().tolist() for generator in _generators(batches)],
    }


def _set_random_state(state: dict[str, Any], device: torch.device, batches: Any) -> None:
    version, key, gauss = state["python"]
    random.setstate((version, tuple(key), gauss))
    key, *numpy = state["numpy"]
    np.random.set_state(("MT19937", np.array(key, np.uint32), *numpy))
    torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
    if state["cuda"] and device.type == "cuda":
        torch.cuda.set_rng_state(torch.tensor(state["cuda"], dtype=torch.uint8), device)
    for generator, saved in zip(_generators(batches), state["batches"], strict=True):
        generator.set_state(torch.tensor(saved, dtype=torch.uint8))


def _generators(batches: Any) -> list[torch.Generator]:
    """Return the generators of a DataLoader's own, which shuffle its data."""
    sampler = getattr(batches, "sampler", None)
    inner = getattr(getattr(batches, "batch_sampler", None), "sampler", None)
    owned = [getattr(owner, "generator", None) for owner in (batches, sampler, inner)]
    return list({id(g): g for g in owned if isinstance(g, torch.Generator)}.values())
