"""Train an entry of the speedrun in its budget, and judge it on sentences that nobody has seen.

    python -m tools.speedrun labs/speedrun/x.py [--seconds 1200] [--seed N …] [--record]

An entry is a Python file with `train(sentences, seconds)`. It gets an endless iterator of training
sentences of ToyWorld and the processor seconds that it may use, and returns a function, or an
object with a method, `log_probability(sentence)`: the log-probability in nats of the whole sentence
up to its period. Over all sentences, the probabilities sum to at most 1. --seed repeats a judging.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import runpy
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tools.address import ROOT

RECORD = ROOT / "labs" / "speedrun" / "record.json"
SECONDS = 1200  # processor seconds: ten minutes of two cores
ANSWERING = 300  # the processor seconds that the answers may take, which are not training
HELD_OUT, BATCH, CHUNK = 10_000, 100, 10_000  # sentences
SEEDS = 2**32  # a held-out set has a seed below this, and training sentences have those from here
LIMIT = 20  # nats: against an honest entry, a bet wins as much with a probability of e^-20 at most
STAKE = 0.25


class Refused(Exception):
    """The entry has no score: it broke a rule, or broke down."""


class Verdict(NamedTuple):
    """What was found on one held-out set."""

    seed: int
    excess: float  # nats per token above the entropy floor
    error: float  # the excess's standard error
    won: dict[float, float]  # by stake, the log of what the bet came to; see verdict()

    @property
    def leak(self) -> bool:
        """Whether no honest entry would have such luck."""
        return max(self.won.values()) >= LIMIT


def verdict(
    seed: int, truth: Sequence[float], answers: Sequence[float], lengths: Sequence[int]
) -> Verdict:
    """Return the excess of an entry, and what one would have won by betting that it cheats.

    The judge starts with 1 and bets a share of what he has on each sentence s, which multiplies the
    share by r = q(s) / p(s), the entry's probability over the true one. As the mean of r is at most
    1 for sentences drawn from p, what he has at the end has a mean of at most 1, and by Markov's
    inequality exceeds e^20 with a probability of at most e^-20. With all at stake, he ends with the
    likelihood ratio of the set, and the log of it is how many nats the entry is below the truth in
    sum; with a quarter, he also wins against small but steady overstatements.

    Args:
        truth, answers: log-probabilities of the sentences in nats, true and the entry's.
        lengths: how many tokens they have.
    Raises: Refused if an answer is not finite, or above 0.
    """
    if not all(-math.inf < answer <= 1e-6 for answer in answers):
        raise Refused("an answer is not the logarithm of a probability above 0")
    above = [p - q for p, q in zip(truth, answers, strict=True)]
    excess = sum(above) / sum(lengths)
    rest = [a - excess * n for a, n in zip(above, lengths, strict=True)]
    error = math.sqrt(fmean(r * r for r in rest) / len(rest)) / fmean(lengths)
    small = sum(math.log1p(STAKE * math.expm1(-a)) for a in above)
    return Verdict(seed, excess, error, {1: -sum(above), STAKE: small})


def judged(
    entry: Path, seconds: float = SECONDS, seeds: Sequence[int] = (), n: int = HELD_OUT
) -> tuple[list[Verdict], float]:
    """Train an entry in a process of its own, and return verdicts and the seconds of training.

    The process gets the training sentences when it asks for them, and the held-out sentences, a
    batch at a time, after it has said that the training is over.

    Args:
        seconds: the budget, in processor seconds of all threads and child processes.
        seeds: of the held-out sets of n sentences each, below 2**32; by default, two are drawn.
    Raises:
        Refused: the entry is over its budget, fails, or gives what is no log-probability.
        ValueError: a seed is out of range.
    """
    from support.data import toyworld  # here, so that an entry's process does not have it

    if not all(0 <= seed < SEEDS for seed in seeds):
        raise ValueError(f"expected seeds from 0 to {SEEDS - 1}, got {seeds}")
    serving = f"from tools.speedrun import serve; serve({str(entry.resolve())!r}, {seconds})"
    child = subprocess.Popen(
        [sys.executable, "-c", serving], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        encoding="utf-8", cwd=ROOT, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip

    def said(message: Any = None) -> Any:
        """Send a message, if there is one, and return the next one from the entry's process."""
        try:
            if message is not None:
                print(json.dumps(message), file=child.stdin, flush=True)
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line and child.wait() == -signal.SIGXCPU:
            raise Refused(f"over the budget of {seconds:g} processor seconds, and stopped")
        if not line:
            raise Refused(f"the entry's process ended with status {child.returncode}")
        return json.loads(line)

    try:
        training, answer = count(SEEDS), said()
        while answer == "more":
            answer = said(toyworld.sentences(next(training), CHUNK))
        if answer > seconds:
            raise Refused(f"over the budget of {seconds:g} processor seconds: {answer:.1f}")
        verdicts = []
        for seed in seeds or [secrets.randbelow(SEEDS) for _ in range(2)]:
            held_out = toyworld.sentences(seed, n)
            answers = [q for i in range(0, n, BATCH) for q in said(held_out[i : i + BATCH])]
            lengths = [len(sentence.split()) for sentence in held_out]
            verdicts.append(verdict(seed, [*map(toyworld.log_prob, held_out)], answers, lengths))
        return verdicts, answer
    finally:
        child.kill()
        child.communicate()


def used() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def serve(entry: str, seconds: float) -> None:
    """Be the entry's process: train it, say how long that took, and answer what is asked."""
    judge = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the entry prints goes elsewhere
    sys.modules["support.data.toyworld"] = None  # importing it fails
    training = True

    say = partial(print, file=judge, flush=True)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)

    def sentences() -> Iterator[str]:
        while training:
            say(json.dumps("more"))
            yield from json.loads(sys.stdin.readline())

    # Only a brake: the kernel counts by ticks, on a busy machine a tenth too much.
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(2 * seconds), hard))
    model = runpy.run_path(entry)["train"](sentences(), seconds - used())
    say(used())
    training = False
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(2 * seconds + ANSWERING), hard))
    log_probability = getattr(model, "log_probability", model)
    for line in sys.stdin:
        say(json.dumps([float(log_probability(sentence)) for sentence in json.loads(line)]))


def record(entry: Path, seconds: float, verdicts: Sequence[Verdict], spent: float) -> None:
    """Write an entry's verdicts to the record, in the place of older ones of the same budget."""
    row = {
        "entry": entry.stem,
        "excess": [round(v.excess, 5) for v in verdicts],
        "standard_error": [round(v.error, 5) for v in verdicts],
        "seed": [v.seed for v in verdicts],
        "processor_seconds": round(spent),
        "budget": seconds,
        "date": date.today().isoformat(),
    }
    rows = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    rows = [r for r in rows if (r["entry"], r["budget"]) != (row["entry"], seconds)] + [row]
    rows.sort(key=lambda r: (-r["budget"], fmean(r["excess"])))
    RECORD.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Judge an entry; the exit status is 1 if it is refused or convicted."""
    parser = argparse.ArgumentParser(prog="tools.speedrun", description=__doc__.splitlines()[0])
    parser.add_argument("entry", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="processor seconds")
    parser.add_argument("--seed", type=int, nargs="+", default=[], help="of the held-out sets")
    parser.add_argument("--record", action="store_true", help="write it to record.json")
    options = parser.parse_args(arguments)
    try:
        verdicts, spent = judged(options.entry, options.seconds, options.seed)
    except Refused as reason:
        print(f"{options.entry}: refused: {reason}")
        return 1
    print(f"{options.entry}: trained for {spent:.1f} of {options.seconds:g} processor seconds")
    for v in verdicts:
        print(f"seed {v.seed}: excess {v.excess:.5f} ± {v.error:.5f} nats per token", end="; ")
        print(f"{abs(v.won[1]):.1f} nats {'below' if v.won[1] > 0 else 'above'} the truth in sum")
    if any(v.leak for v in verdicts):
        print(f"Convicted: an honest model has such luck with a probability of at most e^-{LIMIT}.")
        print("It saw what it was to predict, or its probabilities sum to more than 1.")
        return 1
    if options.record:
        record(options.entry, options.seconds, verdicts, spent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
