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
    assert profile.settings(level=("smoke", "laptop", "gpu")).level == wanted
    assert profile.progress_enabled() == (wanted != "smoke")


@pytest.mark.parametrize(("cuda", "expected"), [(True, "gpu"), (False, "laptop")])
def test_without_it_the_device_decides(monkeypatch, cuda, expected):
    monkeypatch.setenv("PRETRAIN_PROFILE", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert profile.name() == expected
    assert profile.device().type == ("cuda" if cuda else "cpu")
    monkeypatch.setenv("PRETRAIN_PROFILE", "Laptop")
    with pytest.raises(ValueError, match="'smoke', 'laptop', 'gpu'.*got 'Laptop'"):
        profile.name()


def test_settings_are_the_profile_s_and_are_printed(monkeypatch, capsys):
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    chosen = profile.settings(epochs=(1, 5, 20), rate=0.1, sizes=([1], [2, 30_000], []), run=None)
    assert (chosen.epochs, chosen.rate, chosen.sizes, chosen.run) == (5, 0.1, [2, 30_000], None)
    assert capsys.readouterr().out == "laptop: epochs 5, rate 0.1, sizes [2, 30000], run None\n"
    group = profile.settings(run=dict(epochs=(1, 5, 20), rate=0.1, widths=[1, 2]))
    assert group.run == dict(epochs=5, rate=0.1, widths=[1, 2])
    profile.settings(shape=dict(width=64, deep=True), images=20_000, text="valid")
    shown = capsys.readouterr().out.splitlines()[-1]
    assert shown == "laptop: shape (width 64, deep True), images 20,000, text valid"


def test_without_the_real_data_settings_are_those_of_smoke(monkeypatch, capsys):
    monkeypatch.setenv("PRETRAIN_PROFILE", "gpu")
    assert profile.settings(epochs=(1, 5, 20), real=False).epochs == 1
    said = capsys.readouterr().out
    assert said == "gpu (smoke's values, as the real data are missing): epochs 1\n"
    assert profile.settings(epochs=(1, 5, 20), real=True).epochs == 20


def test_settings_cannot_be_changed_or_misspelled():
    chosen = profile.settings(epochs=3)
    with pytest.raises(AttributeError, match="epochs"):
        chosen.epochs = 4
    with pytest.raises(AttributeError, match="epoch"):
        chosen.epoch  # noqa: B018


@pytest.mark.parametrize("value", [(1,), (1, 2, 3, 4)])
def test_a_tuple_has_one_value_for_each_profile(value):
    with pytest.raises(ValueError, match=r"expected rates .*\(smoke, laptop, gpu\)"):
        profile.settings(run=dict(epochs=(1, 2, 3), rates=value))


def draws():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_seed_repeats_all_three_generators():
    profile.set_seed(7)
    first = draws()
    assert not any(a == b for a, b in zip(first, draws(), strict=True))
    profile.set_seed(7)
    assert draws() == first
    profile.set_seed(np.int64(7))
    assert draws() == first
    profile.set_seed(8)
    assert not any(a == b for a, b in zip(first, draws(), strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "1", None])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises((ValueError, TypeError)):
        profile.set_seed(seed)


def test_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    try:
        assert profile.set_threads(1) == 1 == torch.get_num_threads()
        torch.set_num_threads(2)
        assert profile.set_threads() == 2, "without n PyTorch's own choice stays"
        monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
        assert profile.set_threads() == torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("ticks", "faster"), [((2, 1), True), ((1, 1), False), ((1, 2), False)])
def test_bf16_is_faster_if_the_clock_says_so(monkeypatch, ticks, faster):
    """A clock that goes on by so much at each float32 and each bfloat16 step."""
    steps = iter([tick for pair in [ticks] * 4 for one in pair for tick in (0, one)])
    monkeypatch.setattr(profile.time, "perf_counter", lambda: next(steps))
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    profile.bf16_is_faster.cache_clear()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert profile.bf16_is_faster() is faster is profile.bf16_is_faster()
    assert before.equal(torch.get_rng_state()), "a notebook's random numbers stay what they were"
    assert next(steps, None) is None
    profile.bf16_is_faster.cache_clear()
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    assert profile.bf16_is_faster() is False
    profile.bf16_is_faster.cache_clear()


def test_importing_it_is_cheap():
    code = (
        "import sys; import support.profile; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_report_says_what_an_issue_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    code = [sys.executable, "-m", "support.profile"]
    lines = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    said = {line[:13].strip(): line[13:] for line in lines}
    assert len(said) == len(lines) == 11
    assert torch.__version__.startswith(said["torch"])
    assert said["profile"] == "smoke, PRETRAIN_PROFILE=smoke"
    assert said["data"] == str(tmp_path) and said["numpy"] == np.__version__
