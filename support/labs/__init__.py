"""Is an answer right? If not, what is wrong with it, and which mistake is it?

    from support import labs
    labs.check("bpe.merge", merge)

Each lab has a module here, with one function a check: its parameters are named as the functions
and classes that it checks, the first line of its docstring says on what they are tried, and the
rest what to look at in an answer whose mistake has no name.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

_results: dict[str, Result] = {}


class Unnamed(AssertionError):
    """A wrong answer that is no mistake with a name."""


class Result(str):
    """What a check says, shown as it is; true where the answer has passed."""

    def __bool__(self) -> bool:
        return self.partition(": ")[2].startswith("passed")

    def __repr__(self) -> str:
        return str(self)


def checks(lab: str) -> dict[str, Callable[..., None]]:
    """Return the checks of a lab by name, in their order."""
    if not re.fullmatch(r"\w+", lab) or not Path(__file__).with_name(f"{lab}.py").exists():
        known = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem[0] != "_")
        raise ValueError(f"no lab {lab!r}: there are {', '.join(known)}")
    module = importlib.import_module(f"support.labs.{lab}")
    if lab == "exercises":
        return module.CHECKS
    own = inspect.getmembers(module, inspect.isfunction)
    own = [(n, f) for n, f in own if f.__module__ == module.__name__ and n[0] != "_"]
    own.sort(key=lambda pair: pair[1].__code__.co_firstlineno)
    return {f"{lab}.{name}": function for name, function in own}


def check(name: str, *answers: Any) -> Result:
    """Return "passed", "not written yet", or what is wrong with the answers.

    Where an answer raises an error, its line is named. Models are made in float64. Each check draws
    the same random numbers in each call, and leaves PyTorch's generator as it was.
    """
    lab = "exercises" if name.startswith("27.") else name.partition(".")[0]
    if name not in (known := checks(lab)):
        raise ValueError(f"no check {name!r}: there are {', '.join(known)}")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if lab == "exercises" else torch.float64)
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(0)
            known[name](*answers)
        tried = known[name].__doc__.splitlines()[0].rstrip(".")
        said = "passed" if lab == "exercises" else f"passed. Tried: {tried}"
    except NotImplementedError as error:
        said = f"not written yet{_where(error)}"
    except Exception as error:  # an unfinished answer may fail in any way
        kind = "" if isinstance(error, AssertionError) and str(error) else type(error).__name__
        reason = ": ".join(part for part in (kind, str(error).strip()) if part)
        said = f"not yet. {' '.join(reason.split())[:400]}{_where(error)}"
        hint = " ".join(known[name].__doc__.partition("\n")[2].split())
        if hint and lab != "exercises" and (kind or isinstance(error, Unnamed)):
            said = f"{said.rstrip('.:')}. Look at: {hint}"
    finally:
        torch.set_default_dtype(before)
    _results[name] = Result(f"{name}: {said}")
    return _results[name]


def progress(lab: str) -> Result:
    """Return how many checks of a lab have passed, and write what each said to LAB.json.

    Of a check that is not tried in this session, it keeps what LAB.json says.
    """
    said = {name: f"{name}: not tried yet" for name in checks(lab)}
    if (file := Path(f"{lab}.json")).exists():
        said |= {n: s for n, s in json.loads(file.read_text("utf-8")).items() if n in said}
    said = {name: _results.get(name, Result(old)) for name, old in said.items()}
    file.write_text(json.dumps(said, indent=1), encoding="utf-8")
    passed, missing = sum(map(bool, said.values())), [n for n, result in said.items() if not result]
    rest = f"; to be done: {', '.join(missing)}" if missing else f": passed. See {lab}.json"
    return Result(f"{passed} of {len(said)}{rest}")


def expect(
    got: Any, right: Any, where: str, mistakes: Mapping[str, Any] | None = None, atol: float = 1e-6
) -> None:
    """Raise AssertionError unless an answer is right.

    Where it equals what a known mistake gives, the error names the mistake. mistakes: from its
    name, in words, to what it gives. Tensors may differ by atol, and in their dtype.
    """
    if equal(got, right, atol):
        return
    named = next((name for name, wrong in (mistakes or {}).items() if equal(got, wrong, atol)), "")
    try:
        while brief(got) == brief(right):  # go to the first entry that differs
            i = next(i for i in range(len(right)) if not equal(got[i], right[i], atol))
            got, right, where = got[i], right[i], f"{where} [{i}]"
    except (LookupError, StopIteration, TypeError):  # other lengths, or no list
        pass
    digits = 9 if brief(got) == brief(right) else 4
    compared = f"{where}: expected {brief(right, digits)}, got {brief(got, digits)}"
    if named:
        raise AssertionError(f"{named} ({compared})")
    raise Unnamed(compared)


@torch.no_grad()  # so that tensors in a tuple can be compared without a warning
def equal(a: Any, b: Any, atol: float = 1e-6) -> bool:
    """Return whether two answers are equal, numbers and tensors within atol."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        try:
            a, b = torch.as_tensor(a), torch.as_tensor(b)
        except (TypeError, ValueError, RuntimeError):
            return False
        same = a.shape == b.shape
        return same and torch.allclose(a.double(), b.double(), 0, atol, equal_nan=True)
    if isinstance(b, Mapping) and isinstance(a, Mapping):
        return a.keys() == b.keys() and all(equal(a[key], b[key], atol) for key in b)
    if isinstance(b, (list, tuple)) and isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y, atol) for x, y in zip(a, b, strict=True))
    if isinstance(b, float) and isinstance(a, (int, float)):
        return abs(a - b) <= atol
    return type(a) is not bool and bool(a == b) if type(b) is not bool else a is b


def brief(value: Any, digits: int = 4) -> str:
    """Return a value in at most 90 characters; a tensor's shape first, its numbers rounded."""
    if isinstance(value, torch.Tensor):
        numbers = torch.round(value.detach().double(), decimals=digits).flatten().tolist()
        text = f"{numbers[0]:.{digits + 2}g}" if value.dim() == 0 else str(numbers)
        text = text if value.dim() < 2 else f"{tuple(value.shape)}: {text}"
    else:
        text = f"{value:.{digits + 1}g}" if isinstance(value, float) else repr(value)
        text = " ".join(re.sub(r",\s+grad_fn=<\w+>", "", text).split())
    return text if len(text) <= 90 else f"{text[:87]}…"


def _where(error: Exception) -> str:
    """Return the innermost line of the answer that the error passed through, or nothing."""
    ours = str(Path(__file__).parents[1]), sysconfig.get_path("stdlib")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = frame.filename
        if not file.startswith(ours) and not re.search("(site|dist)-packages", file):
            return f" (in {frame.name}, line {frame.lineno}: {frame.line})".replace(": )", ")")
    return ""
