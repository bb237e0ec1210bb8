"""Checks of arguments: each error names the argument, what it may be, and what was given."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def integers(least: int, **given: Any) -> None:
    """Raise ValueError unless each argument is an integer, no bool, of at least `least`."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ValueError(f"{name} must be an integer, got {value!r}")
    at_least(least, **given)


def at_least(least: float, **given: Any) -> None:
    """Raise ValueError unless each argument is a number, no bool or NaN, of at least `least`."""
    for name, value in given.items():
        if not (_is_number(value) and value >= least):
            raise ValueError(f"{name} must be at least {least}, got {value!r}")


def above(limit: float, **given: Any) -> None:
    """Raise ValueError unless each argument is a number, no bool or NaN, above `limit`."""
    for name, value in given.items():
        if not (_is_number(value) and value > limit):
            raise ValueError(f"{name} must be above {limit}, got {value!r}")


def rates(**given: Any) -> None:
    """Raise ValueError unless each argument is a number from 0 and below 1."""
    for name, value in given.items():
        if not (_is_number(value) and 0 <= value < 1):
            raise ValueError(f"{name} must be in [0, 1), got {value!r}")


def shares(**given: Any) -> None:
    """Raise ValueError unless each argument is a number above 0 and at most 1."""
    for name, value in given.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise ValueError(f"{name} must be above 0 and at most 1, got {value!r}")


def chances(size: int, **given: Any) -> None:
    """Raise ValueError unless each argument is as many numbers, from 0, that add up to 1."""
    for name, value in given.items():
        right = len(value) == size and all(_is_number(x) and x >= 0 for x in value)
        if not (right and math.isclose(sum(value), 1)):
            raise ValueError(f"{name} must be {size} chances that add up to 1, got {value!r}")


def strings(**given: Any) -> None:
    """Raise ValueError unless each argument is a sequence of str, and not one str itself."""
    for name, value in given.items():
        if isinstance(value, str) or any(not isinstance(item, str) for item in value):
            raise ValueError(f"{name} must be a list of str, got {_shown(value)}")


def text(**given: Any) -> None:
    """Raise ValueError unless each argument is a str."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} must be a str, got {_shown(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return the type and the beginning of a value that can be long."""
    written = repr(value)
    return f"{type(value).__name__} {written[:60]}{'…' * (len(written) > 60)}"
