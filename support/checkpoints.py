"""Saving a run and going on with it: weights and state as safetensors, numbers as JSON, no pickle.

A checkpoint is a folder: model.safetensors (the weights), state.safetensors (the tensors of the
optimizer and of the random numbers' states) and checkpoint.json (all else, and checksums). The two
newest are kept; see support.generations. On the same machine, with the same versions and as many
threads (torch.set_num_threads), a resumed run equals one never stopped bit for bit.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as tensor_files
from torch import nn

from support import generations

if TYPE_CHECKING:
    from support.training import History

_WEIGHTS, _STATE = generations.FILES
# What comes of reading a file that has the right checksums and yet is none of ours.
_FOREIGN = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, RuntimeError)
_FOREIGN += (SafetensorError, TypeError, ValueError)


@dataclass
class Run:
    """All that determines how a run goes on; batches is what fit was given."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: Any
    history: History
    batches: Any = None

    def save(self, folder: str | Path) -> None:
        """Add a checkpoint of this moment to the folder; keep the one before, remove older ones.

        Raises: OSError if it cannot be written; the checkpoints before are then as they were.
        """
        state = {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "random": _random_state(self.batches),
            "history": asdict(self.history),
        }
        tensors: dict[str, torch.Tensor] = {}
        about = {"run": self._parts(), "state": _pack(state, tensors)}
        files = {_WEIGHTS: tensor_files.save(self._weights()), _STATE: tensor_files.save(tensors)}
        generations.write(Path(folder), len(self.history.epoch_losses), files, about)

    def restore(self, folder: str | Path) -> None:
        """Bring the run to the moment of the newest checkpoint in folder; nothing if none is there.

        Raises: ValueError if that checkpoint is damaged, naming the file and the last good one, or
        belongs to another model or optimizer.
        """
        folder = Path(folder)
        if not (found := generations.found(folder)):
            return
        path = found[0][1]
        try:
            about, files = generations.read(*found[0])
        except ValueError as error:
            reason = f"the checkpoint {path} is damaged: {error}"
            raise ValueError(f"{reason}; {generations.last_good(folder)}") from error
        try:
            weights = tensor_files.load(files[_WEIGHTS])
            state = _unpack(about["state"], tensor_files.load(files[_STATE]))
            self._check(about["run"] | _forms(weights))
            self._take(weights, state)
        except _FOREIGN as error:
            reason = error if isinstance(error, ValueError) else repr(error)
            raise ValueError(
                f"the checkpoint {path} is of another model or optimizer: {reason}"
            ) from error

    def _take(self, weights: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        history = {field.name: state["history"][field.name] for field in fields(self.history)}
        # Not strict, because a weight with two names comes once; _check has compared the names.
        self._core.load_state_dict(weights, strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        vars(self.history).update(history)
        _set_random_state(state["random"], self.batches)

    def _check(self, there: dict[str, str]) -> None:
        """Raise ValueError naming the first difference to what a checkpoint holds."""
        here = self._parts() | _forms(self._weights())
        for name in [*here, *sorted(there)]:
            a, b = there.get(name, "missing"), here.get(name, "missing")
            if a != b:
                raise ValueError(f"{name} is {a} there and {b} here")

    @property
    def _core(self) -> nn.Module:
        return getattr(self.model, "_orig_mod", self.model)  # the model itself if it is compiled

    def _weights(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name; one that has several names comes once."""
        first = {*dict(self._core.named_parameters()), *dict(self._core.named_buffers())}
        state = self._core.state_dict()
        return {name: state[name].cpu().contiguous() for name in state if name in first}

    def _parts(self) -> dict[str, str]:
        """Return what must be the same when the run goes on, besides the weights' shapes."""
        names = {id(value): name for name, value in self._core.named_parameters()}
        parts = {"the optimizer": type(self.optimizer).__qualname__}
        for i, group in enumerate(self.optimizer.param_groups):
            parts[f"its group {i}"] = ", ".join(names.get(id(p), "?") for p in group["params"])
        parts["the number of the DataLoader's generators"] = str(len(_generators(self.batches)))
        return parts


def _forms(weights: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: f"{value.dtype} {tuple(value.shape)}" for name, value in weights.items()}


def _pack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return value as JSON can hold it; its tensors go to the dictionary, under a number."""
    if isinstance(value, torch.Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().cpu().clone().contiguous()
        return {"tensor": key}
    if isinstance(value, dict):
        pairs = [[_pack(k, tensors), _pack(v, tensors)] for k, v in value.items()]
        return {"dict": pairs}  # as pairs, because JSON's keys are all strings
    if isinstance(value, list | tuple):
        items = [_pack(item, tensors) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a checkpoint cannot hold a {type(value).__name__}")


def _unpack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return what _pack was given."""
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "tuple" in value:
        return tuple(_unpack(item, tensors) for item in value["tuple"])
    return {_unpack(k, tensors): _unpack(v, tensors) for k, v in value["dict"]}


def _generators(batches: Any) -> list[torch.Generator]:
    """Return the generators of a DataLoader's own, which shuffle its data."""
    sampler = getattr(batches, "sampler", None)
    inner = getattr(getattr(batches, "batch_sampler", None), "sampler", None)
    owned = [getattr(owner, "generator", None) for owner in (batches, sampler, inner)]
    return list({id(g): g for g in owned if isinstance(g, torch.Generator)}.values())


def _random_state(batches: Any) -> dict[str, Any]:
    """Return the states of Python's, NumPy's, PyTorch's and the DataLoader's random numbers."""
    version, key, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)
    numpy["state"]["key"] = torch.from_numpy(numpy["state"]["key"].astype(np.int64))
    return {
        "python": [version, torch.tensor(key), gauss],
        "numpy": numpy,
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "batches": [generator.get_state() for generator in _generators(batches)],
    }


def _set_random_state(state: dict[str, Any], batches: Any) -> None:
    version, key, gauss = state["python"]
    random.setstate((version, tuple(key.tolist()), gauss))
    numpy = state["numpy"]
    numpy["state"]["key"] = numpy["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state(numpy)
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    for generator, saved in zip(_generators(batches), state["batches"], strict=True):
        generator.set_state(saved)
