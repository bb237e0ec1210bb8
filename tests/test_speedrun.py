"""The speedrun: honest entries are scored, leaks convicted, and what breaks a rule is refused."""

from __future__ import annotations

import json
import math
import runpy
from itertools import count

import pytest

from support.data import toyworld
from tools import course_map, speedrun
from tools.speedrun import Refused, judged, main, verdict

ENTRIES = sorted(speedrun.RECORD.parent.glob("*.py"))
BIGRAMS = """
from collections import Counter
from itertools import islice
from math import log

def train(sentences, seconds):
    pairs, firsts = Counter(), Counter()
    for sentence in islice(sentences, 20_000):
        words = [".", *sentence.split()]
        pairs.update(zip(words, words[1:]))
        firsts.update(words[:-1])

    def log_probability(sentence):
        words = [".", *sentence.split()]
        chances = ((pairs[a, b] + 1e-4) / (firsts[a] + 0.1) for a, b in zip(words, words[1:]))
        return sum(map(log, chances))

    return log_probability
"""
BUSY = "import time\nwhile time.process_time() < {}: pass\n"
BROKEN = {
    "over the budget of 1 processor seconds, and stopped": BUSY.format(60),
    "over the budget of 1 processor seconds: 1": BUSY.format(1.1) + BIGRAMS,
    "over the budget of 1 processor seconds: 1.*": "import subprocess, sys\n"
    f"subprocess.run([sys.executable, '-c', {BUSY.format(1)!r}])\n{BIGRAMS}",
    "ended with status 1": "from support.data import toyworld",
    "not the logarithm": "def train(*given): return lambda sentence: float('nan')",
    "probability above 0": "def train(*given): return lambda sentence: 0.1",
}


@pytest.fixture
def entry(tmp_path):
    path = tmp_path / "x.py"
    return lambda text: path.write_text(text, encoding="utf-8") and path  # where it is written


def test_an_honest_entry_has_about_the_same_score_on_two_sets(entry, monkeypatch, tmp_path):
    monkeypatch.setattr(speedrun, "RECORD", tmp_path / "record.json")
    arguments = [str(entry(BIGRAMS)), "--seconds", "5", "--record", "--seed"]
    assert main([*arguments, "3", "4"]) == main([*arguments, "5", "6"]) == 0
    [row] = json.loads(speedrun.RECORD.read_text(encoding="utf-8"))  # the second replaces the first
    one, two = row["excess"]
    assert 1.2 < one < 1.5 and abs(one - two) < 3 * math.hypot(*row["standard_error"]) < 0.05
    assert row["seed"] == [5, 6] and row["budget"] == 5 > row["processor_seconds"]


def test_a_leak_is_convicted(entry, capsys):
    assert main([str(entry("def train(*given): return lambda sentence: -5.0"))]) == 1
    assert "Convicted" in capsys.readouterr().out


def test_bets_against_an_entry():
    honest, steady = (verdict(0, [-9] * 4_000, x * 2_000, [9] * 4_000) for x in (
        [-9 + math.log(0.5), -9 + math.log(1.5)],  # the mean ratio is 1
        [-8.5, -9.52],  # the mean ratio is 1.12, and yet the sum is above the truth
    ))  # fmt: skip
    assert not honest.leak and steady.leak and steady.won[1] == pytest.approx(-40)
    assert (steady.excess, steady.error) == pytest.approx((0.01 / 9, 0.51 / 9 / 4_000**0.5))


@pytest.mark.parametrize("reason", BROKEN)
def test_what_breaks_a_rule_is_refused(reason, entry):
    with pytest.raises(Refused, match=reason):
        judged(entry(BROKEN[reason]), seconds=1, seeds=[1], n=100)


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_entries_train(path):
    sentences = (s for seed in count(speedrun.SEEDS) for s in toyworld.sentences(seed, 10_000))
    log_probability = runpy.run_path(str(path))["train"](sentences, 3)
    above = [toyworld.log_prob(s) - log_probability(s) for s in toyworld.sentences(1, 200)]
    assert 0 < sum(above) / 200 < 45 and log_probability("xylophones .") < -20
    assert path.stem in course_map.speedrun_table()
