"""The profile knob: which name, which value, which seed."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from support import profile


@pytest.mark.parametrize("wanted", ["smoke", "laptop", "gpu"])
def test_the_environment_decides(monkeypatch, wanted):
    monkeypatch.setenv("PRETRAIN_PROFILE", wanted)
    assert profile.name() == wanted
    assert profile.choose(smoke="smoke", laptop="laptop", gpu="gpu") == wanted
    assert profile.choose(smoke="smoke", laptop="laptop", gpu="gpu", real=False) == "smoke"
    assert profile.progress_enabled() == (wanted != "smoke")


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize(("cuda", "expected"), [(True, "gpu"), (False, "laptop")])
def test_without_it_the_device_decides(monkeypatch, value, cuda, expected):
    if value is None:
        monkeypatch.delenv("PRETRAIN_PROFILE", raising=False)
    else:
        monkeypatch.setenv("PRETRAIN_PROFILE", value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert profile.name() == expected
    assert profile.device().type == ("cuda" if cuda else "cpu")


def test_an_unknown_profile_is_refused(monkeypatch):
    monkeypatch.setenv("PRETRAIN_PROFILE", "Laptop")
    with pytest.raises(ValueError, match="'smoke', 'laptop', 'gpu'.*got 'Laptop'"):
        profile.name()


def test_every_profile_needs_a_value():
    with pytest.raises(TypeError):
        profile.choose(smoke=1, laptop=2)


def draws():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_seed_repeats_all_three_generators():
    profile.set_seed(7)
    first = draws()
    assert not any(a == b for a, b in zip(first, draws(), strict=True))
    profile.set_seed(7)
    assert draws() == first
    profile.set_seed(8)
    assert not any(a == b for a, b in zip(first, draws(), strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, "1", True, None])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be an integer"):
        profile.set_seed(seed)


def test_threads():
    before = torch.get_num_threads()
    try:
        assert profile.set_threads(1) == 1 == torch.get_num_threads()
        assert profile.set_threads() == 1, "without n PyTorch's own choice stays"
        torch.set_num_threads(4096)
        assert profile.set_threads() == torch.get_num_threads() < 4096
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_a_bad_number_of_threads_is_refused(n):
    with pytest.raises(ValueError, match="positive integer"):
        profile.set_threads(n)


def test_importing_it_is_cheap():
    code = (
        "import sys; import support.profile; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
