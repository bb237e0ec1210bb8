"""A GPU that is not there: PyTorch stops where it would stop on a machine that has one.

    with pretended_gpu():
        x = torch.arange(3, device="cuda")  # computed on the CPU
        x + torch.arange(3)  # RuntimeError: Expected all tensors to be on the same device
        x.numpy()  # TypeError

A tensor is on the GPU if its memory is marked so; views and parameters share the memory and so the
mark. Seen is what Python asks of PyTorch, not what happens within one call (the backward pass, its
hooks, C++) or in other threads and processes. All numbers are the CPU's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch

import torch
from torch.overrides import TorchFunctionMode

from support import profile

GPU = torch.device("cuda", 0)
# These take tensors of several devices.
ANYWHERE = {"copy_", "data=", "to", "new_tensor", "_has_compatible_shallow_copy_type"}
# These copy what their first argument holds, and look at no other tensor.
COPIES = {"tensor", "as_tensor", "__deepcopy__"}
# A number on the CPU mixes with tensors on the GPU in element-wise functions, but not in these.
STRICT = {"stack", "embedding", "cross_entropy", "nll_loss", "gather", "index_select"}
# The second argument of these, the sizes of a packed batch, is on the CPU.
PACKING = {"_pack_padded_sequence", "_pad_packed_sequence"}
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


def memory(x: torch.Tensor) -> Any:
    """Return the storage of a tensor, or None where it has none of its own, as in torch.func."""
    if x.layout != torch.strided:
        x = x._values() if x.is_sparse else x.values()
    try:
        return x.untyped_storage()
    except NotImplementedError:
        return None


def on_gpu(x: torch.Tensor) -> bool:
    """Return whether a tensor is on the pretended GPU."""
    return hasattr(memory(x), "on_gpu")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [x for item in value for x in tensors_in(item)]


def misplaced(name: str, args: tuple, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return those tensors that keep a function from running, as they are on the wrong device."""
    if name in ("__getitem__", "__setitem__", "index_put_"):
        x, index, *value = args
        indices = tensors_in([index])
        copies = name == "__setitem__" and not indices
        wrong = [] if on_gpu(x) else [i for i in indices if on_gpu(i)]
        wrong += [] if copies else [v for v in tensors_in(value) if on_gpu(v) != on_gpu(x)]
        return [w for w in wrong if w.dim()]
    on_cpu = [x for x in tensors if not on_gpu(x)]
    if len(on_cpu) in (0, len(tensors)) or name in ANYWHERE:
        return []
    in_place = name.startswith("__i") or name.endswith("_") and not name.endswith("__")
    return [x for x in on_cpu if x.dim() or name in STRICT or in_place and x is args[0]]


def destination(name: str, args: tuple, kwargs: dict) -> tuple[bool | None, list, dict]:
    """Return whether a call asks for the GPU (None: it does not say), and its arguments here."""
    wanted, args, kwargs = None, list(args), dict(kwargs)
    if name in ("cuda", "cpu"):
        return name == "cuda", [args[0], "cpu"], {}
    places = [(kwargs, "device")] if "device" in kwargs else []
    places += [(args, i) for i in range(1, len(args))] if name == "to" else []
    for where, key in places:
        value = where[key]
        if isinstance(value, torch.Tensor):
            wanted = on_gpu(value)
        elif isinstance(value, (torch.device, str)) or type(value) is int:
            wanted = torch.device(value).type == "cuda"
            where[key] = "cpu" if wanted else value
    return wanted, args, kwargs


class PretendedGpu(TorchFunctionMode):
    """Checks each call of PyTorch, computes it on the CPU, and marks what is on the GPU."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name == "__get__":
            return self.attribute(func, *args)
        name = f"{func.__self__.__name__}=" if name == "__set__" else name
        if name in ("numpy", "__array__") and on_gpu(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

        tensors = tensors_in([args, kwargs])
        if name in COPIES:
            tensors = [x for x in tensors if x is args[0]]
        if name in PACKING | RECURRENT:
            sizes = [x for x in tensors_in(args[1]) if not x.is_floating_point()]
            if any(map(on_gpu, sizes)):
                raise RuntimeError(f"{name} takes the lengths on the CPU, got them on cuda:0")
            tensors = [x for x in tensors if not any(x is y for y in sizes)]
        shapes = [tuple(x.shape) for x in misplaced(name, args, tensors)]
        if shapes:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but not so in {name}: {shapes}"
            )
        wanted, args, kwargs = destination(name, args, kwargs)
        gpu = any(map(on_gpu, tensors)) if wanted is None else wanted
        for generator in [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Generator)]:
            if generator.on_gpu != gpu:
                raise RuntimeError(f"Expected the generator of {name} on the device of its result")

        result = (torch.Tensor.to if name in ("cuda", "cpu") else func)(*args, **kwargs)
        if isinstance(result, torch.Tensor) and wanted is not None and on_gpu(result) != wanted:
            if any(memory(result) is memory(x) for x in tensors):
                result = result.clone()
        if gpu:
            on_cpu = [memory(x) for x in tensors if not on_gpu(x)]
            for x in tensors_in(result[:1] if name in PACKING else result):
                if memory(x) is not None and not any(memory(x) is m for m in on_cpu):
                    memory(x).on_gpu = True
        return result

    def attribute(self, func: Any, x: Any, *rest: Any) -> Any:
        """Return an attribute of a tensor; a gradient is where its parameter is."""
        name = func.__self__.__name__
        if name in ("device", "is_cuda", "is_cpu") and on_gpu(x):
            return {"device": GPU, "is_cuda": True, "is_cpu": False}[name]
        value = func(x, *rest)
        if isinstance(value, torch.Tensor) and on_gpu(x):
            memory(value).on_gpu = True
        return value


class Generator(torch.Generator):
    """A generator that knows which device it was made for."""

    def __new__(cls, device: Any = "cpu"):
        self = super().__new__(cls, "cpu")
        self.on_gpu = torch.device(device).type == "cuda"
        return self


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Pretend that this machine has a GPU, and that the profile computes on it."""
    answers = {"get_device_name": "NVIDIA A100", "is_bf16_supported": True, "synchronize": None}
    with (
        patch.object(profile, "device", lambda: torch.device("cuda")),
        patch.object(torch, "Generator", Generator),
        patch.multiple(torch.cuda, **{k: Mock(return_value=v) for k, v in answers.items()}),
        torch.backends.cudnn.flags(enabled=False),
        PretendedGpu(),
    ):
        yield
