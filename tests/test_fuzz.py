"""The fuzz run of the readers, and proof that it would find a fault."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import fuzz_readers
import pytest
import torch
from fuzz_readers import READERS, Reader, run

from support.models import pretrained
from support.models.gpt import GPT, GPTConfig

RUNS = 1_100  # a hundredth of the inputs
by_name = {reader.name: reader for reader in READERS}


@pytest.mark.parametrize("name", by_name)
def test_only_clear_errors_come_out_of_a_reader_in_short(name):
    outcome = run(by_name[name], 300)
    assert not outcome.faults, outcome.faults[:3]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", by_name)
def test_only_clear_errors_come_out_of_a_reader(name, tally):
    outcome = run(by_name[name], RUNS * by_name[name].share)
    tally(f"fuzz, {outcome}")
    assert not outcome.faults, outcome.faults[:3]
    # Neither is rare: the broken files are neither all nonsense nor all whole.
    assert min(outcome.accepted, outcome.refused) > 0.05 * (outcome.accepted + outcome.refused)


def test_there_are_a_hundred_thousand_inputs():
    assert sum(reader.share for reader in READERS) == 100 and 100 * RUNS >= 100_000


def test_the_same_seed_gives_the_same_inputs():
    seen = []
    watched = replace(by_name["text"], check=lambda path: seen.append(path.read_bytes()))
    for seed in (1, 1, 2):
        run(watched, 200, seed)
    assert seen[:200] == seen[200:400] != seen[400:]
    assert len(set(seen[:200])) > 150


# Faults that are planted are found.


def _planted(fault) -> Reader:
    """Return a reader with a fault on one input in some dozens."""
    good = by_name["questions"]

    def check(path):
        if b"\xff" in path.read_bytes():
            fault(path)
        good.check(path)

    return replace(good, check=check)


def _key_error(path):
    return {}["missing"]


def _decoder(path):
    return path.read_bytes().decode("utf-8")


def _nameless(path):
    raise ValueError("something is wrong")


def _nonsense(path):
    raise AssertionError("what was read is unsound")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_key_error, "undocumented error: KeyError"),
        (_nonsense, "undocumented error: AssertionError"),
        (_decoder, "not clear: UnicodeDecodeError"),
        (_nameless, "not clear: ValueError"),
    ],
)
def test_a_planted_fault_is_found(fault, message):
    outcome = run(_planted(fault), 600)
    assert 5 < len(outcome.faults) < 300 and outcome.accepted and outcome.refused
    assert all(message in found and b"\xff" in data for found, data in outcome.faults)


@pytest.mark.exhaustive
def test_a_hang_is_found(monkeypatch):
    monkeypatch.setattr(fuzz_readers, "SECONDS", 0.02)

    def busy(path):
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass

    outcome = run(_planted(busy), 100)
    assert outcome.faults and all(b"\xff" in data for _, data in outcome.faults)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
def test_a_waste_of_memory_is_found():
    outcome = run(_planted(lambda path: bytearray(400_000_000)), 100)
    assert outcome.faults and all("MemoryError" in found for found, _ in outcome.faults)
    assert bytearray(400_000_000), "after the run there is no bound"


@pytest.mark.exhaustive
def test_the_command_says_what_it_found_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fuzz_readers", "--runs", "500"])
    monkeypatch.setattr(fuzz_readers, "READERS", [by_name["text"]])
    assert fuzz_readers.main() == 0
    assert "text: 90 inputs" in capsys.readouterr().out
    monkeypatch.setattr(fuzz_readers, "READERS", [replace(_planted(_key_error), share=100)])
    assert fuzz_readers.main() == 1
    assert "KeyError('missing')" in capsys.readouterr().out


# Readers of more than one file, with fewer inputs because each takes longer.


def _gpt_folder(tmp_path):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=5, d_model=4, n_layers=1, n_heads=2, max_length=4))
    pretrained.save(model, tmp_path)
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.exhaustive
def test_only_clear_errors_come_out_of_the_librarys_weights(tmp_path, tally):
    files = _gpt_folder(tmp_path)
    broken = "model.safetensors"

    def check(path):
        pretrained.load_gpt(path.parent)

    reader = Reader(
        "weights of the library",
        (files.pop(broken),),
        (b"null", b"[]", b'"F32"', b"[4,4]", b"1e9"),
        check,
        0,
        broken,
        tuple(files.items()),
    )
    outcome = run(reader, 600)
    tally(f"fuzz, {outcome}")
    assert not outcome.faults, outcome.faults[:3]
    assert min(outcome.accepted, outcome.refused) > 20


# The log says how many inputs there were, also when all is well.

COUNTED = """
from hypothesis import given, settings, strategies as st

@given(st.integers())
@settings(max_examples=37, database=None, derandomize=True)
def test_any(n):
    pass

def test_told(tally):
    tally("a line of the test's own")
"""


@pytest.mark.exhaustive
def test_the_log_of_the_tests_says_how_many_inputs_there_were(tmp_path):
    (tmp_path / "conftest.py").write_bytes(Path(__file__).with_name("conftest.py").read_bytes())
    (tmp_path / "test_counted.py").write_text(COUNTED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    options = {"capture_output": True, "text": True, "timeout": 120}
    log = subprocess.run(command, cwd=tmp_path, env=environment, **options).stdout
    assert "hypothesis: 1 tests, examples: 37 passing, 0 failing" in log, log
    assert "a line of the test's own" in log and "2 passed" in log
