"""Saving a run and going on with it: weights and state as safetensors, numbers as JSON, no pickle.

A checkpoint is a folder with checkpoint.json, which names a subfolder and the SHA-256 of what is
in it. Replacing that one file is what makes a new checkpoint count, so that a run which is killed
while it saves leaves the checkpoint before.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

if TYPE_CHECKING:
    from support.training import History

_MANIFEST = "checkpoint.json"


def save(
    folder: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: Any,
    history: History,
) -> None:
    """Make the folder a checkpoint of this moment; whatever it held before is removed after."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict() if scaler else None,
        "random": _random_state(),
        "history": asdict(history),
    }
    tensors: dict[str, torch.Tensor] = {}
    packed = _pack(state, tensors)
    part = Path(tempfile.mkdtemp(prefix=f"epoch-{len(history.epoch_losses):04d}-", dir=folder))
    try:
        save_model(getattr(model, "_orig_mod", model), str(part / "model.safetensors"))
        save_file(tensors, part / "state.safetensors")
        digests = {path.name: _sha256(path.read_bytes()) for path in part.iterdir()}
        body = json.dumps({"folder": part.name, "sha256": digests, "state": packed})
        (part / _MANIFEST).write_text(json.dumps({"sha256": _sha256(body.encode()), "body": body}))
        os.replace(part / _MANIFEST, folder / _MANIFEST)
    except BaseException:
        shutil.rmtree(part)
        raise
    for old in folder.glob("epoch-*"):
        if old != part:
            shutil.rmtree(old)


def restore(
    folder: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: Any,
    history: History,
) -> None:
    """Bring a run to the moment of the checkpoint in folder; do nothing if there is none.

    Raises: ValueError if the checkpoint is damaged or belongs to another model or optimizer.
    """
    manifest = Path(folder) / _MANIFEST
    if not manifest.exists():
        return
    try:
        outer = json.loads(manifest.read_bytes())
        _require(_sha256(outer["body"].encode()) == outer["sha256"], manifest)
        body = json.loads(outer["body"])
        files = {name: manifest.parent / body["folder"] / name for name in body["sha256"]}
        for name, path in files.items():
            _require(_sha256(path.read_bytes()) == body["sha256"][name], path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the checkpoint in {folder} is damaged ({error}); "
            "remove that folder, or pass resume=False to start anew"
        ) from error
    state = _unpack(body["state"], load_file(files["state.safetensors"]))
    try:
        load_model(getattr(model, "_orig_mod", model), files["model.safetensors"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"the checkpoint in {folder} is of another model or optimizer: {error}"
        ) from error
    if scaler and state["scaler"]:
        scaler.load_state_dict(state["scaler"])
    for name, value in state["history"].items():
        setattr(history, name, value)
    _set_random_state(state["random"])


def _require(right: bool, path: Path) -> None:
    if not right:
        raise ValueError(f"{path} is not as it was saved")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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


def _random_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and PyTorch's random numbers."""
    numpy = np.random.get_state(legacy=False)
    numpy["state"]["key"] = torch.from_numpy(numpy["state"]["key"].astype(np.int64))
    return {
        "python": random.getstate(),
        "numpy": numpy,
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    numpy = state["numpy"]
    numpy["state"]["key"] = numpy["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state(numpy)
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
