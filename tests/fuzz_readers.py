"""Fuzzing of all readers of files: broken copies of good files, which only clear errors refuse.

    python -m tests.fuzz_readers --runs 110000            # as in CI, or with another --seed
    python -m tests.fuzz_readers --atheris --runs 110000  # guided by coverage, with atheris

A reader may accept an input, if what it gives back is sound, or refuse it with a ValueError that
names the file, and no subclass of it, for such an error would come from the inside of a decoder.
Anything else is a fault: another exception, over a second of CPU time, or over 300 MB of memory.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType

import numpy as np

from support.data import datasets, readers
from support.text.wordpiece import SPECIALS, WordPieceTokenizer
from support.vectors.word_vectors import WordVectors

SECONDS, MEGABYTES = 1.0, 300
NUMBERS = (0, 1, -1, 2**7, 2**8 - 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64, 10**30)
EVERYWHERE = (
    *(b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b"  ", b"'", b'"', b"A" * 200),
    *(b"nan", b"-inf", b"1e999", b"1_0", b"0x1"),
    *(b"\xff\xfe", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),  # no UTF-8
    *(text.encode() for text in "\ufeff \x85 \u2028 \u200f \u0301 👩‍👩‍👧 שלום".split(" ")),
)


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Reader:
    """A way to read a file: check(path) reads it, and looks at what it got."""

    name: str
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...]
    check: Callable[[Path], object]
    share: int  # of 100
    file: str = "file.txt"  # the name of the broken file
    beside: tuple[tuple[str, bytes], ...] = ()  # good files in the same folder: name, content


@dataclass
class Outcome:
    """What became of the inputs of a run; faults with the input that made each."""

    reader: str
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0  # seconds of CPU time
    faults: list[tuple[str, bytes]] = field(default_factory=list)

    def __str__(self) -> str:
        total = self.accepted + self.refused + len(self.faults)
        return (
            f"{self.reader}: {total} inputs, {self.accepted} accepted, {self.refused} refused, "
            f"{len(self.faults)} faults, slowest {1000 * self.slowest:.0f} ms"
        )


def mutate(rng: random.Random, reader: Reader) -> bytes:
    """Return a seed of the reader with one to six changes, or, rarely, as it is."""
    data = bytearray(rng.choice(reader.seeds))
    for _ in range(min(rng.getrandbits(3), 6)):
        place = rng.randrange(len(data) + 1)
        end = min(len(data), place + min(rng.randrange(1, 9) ** 2, 40))
        kind = rng.randrange(9)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place:end]
        elif kind == 2:
            data[place:place] = data[place:end] * rng.choice((1, 1, 2, 50))
        elif kind == 3:
            del data[place:]
        elif kind == 4:
            other = rng.choice(reader.seeds)
            data[place:] = other[rng.randrange(len(other) + 1) :]
        elif kind == 5:
            data[place : rng.choice((place, end))] = rng.choice(reader.tokens + EVERYWHERE)
        elif kind == 6:
            number = rng.choice(NUMBERS)
            packed = (number % 2**32).to_bytes(4, rng.choice(("big", "little")))
            data[place : place + 4] = rng.choice((packed, str(number).encode()))
        elif kind == 7:
            data[place:end] = rng.randbytes(end - place)
        else:
            lines = bytes(data).split(b"\n")
            rng.shuffle(lines)
            data[:] = b"\n".join(lines)
    return bytes(data)


def fault_of(reader: Reader, path: Path, data: bytes) -> str | None:
    """Return what a reader does wrong with an input: "" if it refuses it, None if it accepts it."""
    path.write_bytes(data)
    try:
        reader.check(path)
    except ValueError as error:
        named = path.parent if reader.beside else path
        if type(error) is ValueError and str(named) in str(error):
            return ""
        return f"an error that is not clear: {error!r}"
    except (Exception, Hang) as error:
        return f"an undocumented error: {error!r}"


def run(reader: Reader, n: int, seed: int = 0) -> Outcome:
    """Give n broken files to a reader, the same for the same seed."""
    rng, outcome = random.Random(f"{seed} {reader.name}"), Outcome(reader.name)
    with tempfile.TemporaryDirectory() as folder, _limits() as alarm, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in reader.beside:
            (Path(folder) / name).write_bytes(content)
        path = Path(folder) / reader.file
        for _ in range(n):
            data = mutate(rng, reader)
            start = time.process_time()
            with alarm():
                fault = fault_of(reader, path, data)
            took = time.process_time() - start
            outcome.slowest = max(outcome.slowest, took)
            if fault is None:
                outcome.accepted += 1
            elif fault == "" and took <= SECONDS:
                outcome.refused += 1
            if fault or took > SECONDS:
                outcome.faults.append((fault or f"{took:.1f} seconds", data))
    return outcome


@contextmanager
def _limits() -> Iterator[Callable]:
    """Bound the memory (on Linux); yield a context that bounds the CPU time (where it can be)."""

    @contextmanager
    def alarm() -> Iterator[None]:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 2 * SECONDS)
        yield
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def ring(number, frame):
        raise Hang(f"more than {SECONDS} s")

    old = signal.signal(signal.SIGVTALRM, ring) if hasattr(signal, "setitimer") else None
    before = None
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        most = pages * os.sysconf("SC_PAGESIZE") + MEGABYTES * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield alarm
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, old)


# What a reader gives back is looked at: to accept nonsense is a fault as well.


def _vectors(format: str | None) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        vectors = WordVectors.load(path, format)
        assert np.isfinite(vectors.matrix).all() and vectors.matrix.shape[1] > 0
        assert len(vectors) == len(set(vectors.words)) > 0 and "" not in vectors

    return check


def _wordpiece(path: Path) -> None:
    tokenizer = WordPieceTokenizer.from_folder(path.parent)
    ids = tokenizer.encode("playing [MASK] chess, naïve").ids
    assert all(0 <= i < len(tokenizer) for i in ids)


def _text(path: Path) -> None:
    text = datasets.from_file(path).text
    assert text.strip() and not {"\r", "\0"} & set(text) and text.encode()


def _questions(path: Path) -> None:
    for section in readers.questions(path.read_bytes(), str(path), "file").values():
        assert section and all(len(question) == 4 and all(question) for question in section)


def _seeds() -> dict[str, tuple[bytes, ...]]:
    words = ["the", "a", "1990", "naïve", "-", "שלום", "…"]
    matrix = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v"
        for format in ("glove", "word2vec"):
            WordVectors(words, matrix).save(path, format)
            made[format] = path.read_bytes()
    return {
        "text": (
            made["glove"],
            made["word2vec"],
            b". . . 0.5 -1 2e-3\na 1 2 3\n",
            b"1 2\nb 0.5 1\n",
        ),
        "pieces": (
            "\n".join([*SPECIALS, "play", "##ing", "chess", ",", "naive"]).encode() + b"\n",
        ),
        "lines": ("\ufeffa line\r\nשורה\rlast 👩‍👩‍👧".encode(), b"one", b"\n\n x \n"),
        "questions": (b": capital\nAthens Greece Oslo Norway\n\n: family\na b c d\n", b"a b c d"),
    }


def _readers() -> list[Reader]:
    seeds = _seeds()
    headings = (b"3 2\n", b"999999999 300\n", b"7 999999999999\n", b"0 0\n", b" 5\n", b"1 1")
    lines = (b"[PAD]\n", b"[MASK]\n", b"##", b"##\n")
    return [
        Reader("vectors, any text", seeds["text"], headings, _vectors(None), 20),
        Reader("vectors, glove", seeds["text"], headings, _vectors("glove"), 14),
        Reader("vectors, word2vec", seeds["text"], headings, _vectors("word2vec"), 14),
        Reader("vocab.txt", seeds["pieces"], lines, _wordpiece, 16, "vocab.txt"),
        Reader("text", seeds["lines"], (b"a", b".\n"), _text, 18),
        Reader("questions", seeds["questions"], (b": ", b":", b"a b c d\n"), _questions, 18),
    ]


READERS = _readers()


def _with_atheris(runs: int) -> None:
    """Fuzz all readers guided by coverage; the first byte of an input chooses the reader."""
    import atheris

    ours = [module for name, module in sys.modules.items() if name.startswith("support.")]
    for scope in [*ours, *(kind for module in ours for kind in vars(module).values())]:
        for value in list(vars(scope).values()) if hasattr(scope, "__dict__") else ():
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType) and function.__module__.startswith("support."):
                atheris.instrument_func(function)
    folder = Path(tempfile.mkdtemp())
    corpus = Path(tempfile.mkdtemp())
    for i, reader in enumerate(READERS):
        for j, seed in enumerate(reader.seeds):
            (corpus / f"{i}-{j}").write_bytes(bytes([i]) + seed)

    def one(data: bytes) -> None:
        reader = READERS[data[0] % len(READERS)] if data else READERS[0]
        if fault := fault_of(reader, folder / reader.file, data[1:]):
            raise RuntimeError(f"{reader.name}: {fault} on {data[1:]!r}")

    limits = [f"-runs={runs}", "-timeout=2", f"-rss_limit_mb={4096}", "-max_len=8000"]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="be guided by coverage")
    given = parser.parse_args()
    if given.atheris:
        warnings.simplefilter("ignore")
        _with_atheris(given.runs)
    faults = 0
    for reader in READERS:
        outcome = run(reader, given.runs * reader.share // 100, given.seed)
        print(outcome, *(f"  {fault} on {data!r}" for fault, data in outcome.faults[:5]), sep="\n")
        faults += len(outcome.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
