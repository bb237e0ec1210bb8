"""The command that pre-trains: runs killed at random, a text of 5 GB, tokens a second.

    python -m benchmarks.scaling kills|shards|speed [--megabytes N] [--repeats N]

Each part is kept in results/scaling.json, with the machine and how busy it was. `kills` ends with
an error if a run did not go on as it should; `shards` writes its text and tokens to the folder for
temporary files and removes them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import torch

from benchmarks.measure import seconds
from benchmarks.run import machine
from pretrain import tokens
from pretrain.__main__ import read_options
from pretrain.train import newest_checkpoint
from support.data import datasets
from support.models.gpt import GPT, GPTConfig

FILE = Path(__file__).parent / "results" / "scaling.json"
SMALL = "--layers 2 --width 64 --heads 2 --context 64 --batch 16 --micro-batch 8".split()
SMALL += "--vocab 512 --steps 300 --save-every 10".split()
# What nanoGPT's README gives for a CPU: its sizes, and the hyperparameters of its training.
NANOGPT = {"layers": 4, "width": 128, "heads": 4, "context": 64, "batch": 12}
LEARNING = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}
STEPS = 100


def main() -> None:
    """Measure the part that is asked for, and write it beside the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("kills", "shards", "speed"))
    parser.add_argument("--megabytes", type=int, default=5_000, help="size of the text of shards")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    known = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    with TemporaryDirectory() as folder:
        found = globals()[options.part](Path(folder), options)
    found |= {"machine": machine(), "date": date.today().isoformat()}
    found["processes running, mean of 1, 5, 15 minutes"] = os.getloadavg()
    known[options.part] = found
    FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


# The numbers of processes in which a run begins, is killed, and goes on.
PLANS = [(1, 1), (1, 1, 1), (2, 2), (2, 2, 2), (1, 2, 1), (1, 2, 1), (2, 1), (2, 2)]


def kills(folder: Path, options) -> dict:
    """Kill runs at random moments; compare their ends with runs that were left alone."""
    text = folder / "text.txt"
    text.write_text(datasets.shakespeare().text, "utf-8")
    whole, lasted = {}, {}
    for n in (1, 2):
        whole[n] = folder / f"whole{n}"
        lasted[n] = seconds(lambda n=n: _end(_start(n, text, whole[n])))
    rng, runs = random.Random(0), []
    for i, plan in enumerate(PLANS):
        out, saved = folder / f"killed{i}", []
        for n in plan[:-1]:
            # The later of two kills falls into what the earlier one has left to do.
            moment = rng.uniform(0, lasted[n] * (1 if not saved else 0.5))
            saved.append(_kill(_start(n, text, out), moment, out))
        first = re.search(r"step ([\d,]+): ", _end(_start(plan[-1], text, out)))
        # A run that had ended before it was killed has nothing to report.
        before = int(first[1].replace(",", "")) - 10 if first else 300
        run = {"processes": plan, "saved when killed": saved, "went on from": before}
        run["bit for bit"] = len(set(plan)) == 1 and _same(out, whole[plan[0]])
        run["largest difference of a loss"] = _farthest(out, whole[1])
        run["as it should"] = before == saved[-1] and run["largest difference of a loss"] < 1e-4
        run["as it should"] &= len(set(plan)) > 1 or run["bit for bit"]
        runs.append(run)
        print(run, flush=True)
        shutil.rmtree(out)
    good = sum(run["as it should"] for run in runs)
    found = {"went on as they should": good, "runs": runs}
    found["two processes against one, largest difference of a loss"] = _farthest(whole[2], whole[1])
    if good < len(runs):
        raise SystemExit(json.dumps(found, indent=1))
    return found


def _start(n: int, text: Path, out: Path, *more: str) -> subprocess.Popen:
    program = [sys.executable]
    if n > 1:
        program += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    program += ["-m", "pretrain", "--text", str(text), "--out", str(out), *(more or SMALL)]
    return subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _end(run: subprocess.Popen) -> str:
    written = run.communicate()[0]
    if run.returncode:
        raise SystemExit(written)
    return written


def _kill(run: subprocess.Popen, moment: float, out: Path) -> int:
    """Kill all processes of a run after so many seconds; return the last step that it saved."""
    time.sleep(moment)
    first = psutil.Process(run.pid)
    # Those of torchrun have sessions of their own, so killing a group would not reach them.
    for process in (*first.children(recursive=True), first):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    run.communicate()
    newest = newest_checkpoint(out / "run/checkpoints")
    return int(newest.rpartition("-")[2]) if newest else 0


def _same(out: Path, other: Path) -> bool:
    return len({(folder / "model.safetensors").read_bytes() for folder in (out, other)}) == 1


def _farthest(out: Path, other: Path) -> float:
    a, b = map(_losses, (out, other))
    return max(abs(a[at] - b[at]) for at in a) if a.keys() == b.keys() else float("inf")


def _losses(out: Path) -> dict[tuple[int, str], float]:
    """Return the losses in Trainer's log, by step and kind."""
    state = Path(newest_checkpoint(out / "run/checkpoints"), "trainer_state.json").read_text()
    kinds, log = ("loss", "eval_loss"), json.loads(state)["log_history"]
    return {(entry["step"], kind): entry[kind] for entry in log for kind in kinds if kind in entry}


def shards(folder: Path, options) -> dict:
    """Learn a tokenizer from a large text and make its tokens; return the memory and the rate."""
    text, size = folder / "large.txt", options.megabytes * 10**6
    parts = [datasets.shakespeare().text, datasets.wikitext2(source="real").text]
    block = "\n".join([*parts, datasets.ptb(source="real").text]).encode()
    with text.open("wb") as file:
        for _ in range(-(-size // len(block))):
            file.write(block)
    before = _resident()
    with _Highest() as highest:
        start = time.perf_counter()
        tokenizer = tokens.train_tokenizer(tokens.read_texts([text]), 8_192)
        learned = time.perf_counter() - start
        rows = tokens.make_windows([text], "text", tokenizer, 0, 129, folder / "tokens")
        taken = time.perf_counter() - start - learned
    begin = tokenizer.encode(block[:10_000].decode("utf-8", "ignore")).ids[:129]
    n_bytes = text.stat().st_size
    assert rows[0]["ids"].tolist() == begin
    return {
        "bytes of text": n_bytes,
        "tokens": 129 * len(rows),
        "seconds of learning the tokenizer": round(learned),
        "seconds of making tokens": round(taken),
        "MB/s": n_bytes / taken / 1e6,
        "megabytes above the start": (highest.bytes - before) / 1e6,
    }


def _resident() -> int:
    """Return the bytes of memory that this process holds, without pages of mapped files."""
    fields = Path("/proc/self/status").read_text().splitlines()
    held = next(line for line in fields if line.startswith("RssAnon"))
    return int(held.split()[1]) * 1024


class _Highest:
    """Watches the memory of this process while a block runs."""

    def __enter__(self):
        self.bytes, self._over = _resident(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, _resident())

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def speed(folder: Path, options) -> dict:
    """Compare the command with a plain loop, and two processes with one, in tokens a second."""
    text = folder / "text.txt"
    text.write_text(datasets.shakespeare().text, "utf-8")
    sizes = " ".join(f"--{name} {value}" for name, value in NANOGPT.items())
    more = f"{sizes} --steps {STEPS} --save-every {STEPS} --lr 1e-3".split()
    _end(_start(1, text, folder / "first", *more))
    learned = tokens.read_tokenizer(folder / "first/run/tokenizer.json")
    values = np.array(tokens.encode([text.read_text("utf-8")], learned, []))
    rates = {"command": [], "plain loop": [], "1 process": [], "2 processes": []}
    torch.set_num_threads(1)
    for i in range(options.repeats):
        rates["command"].append(_rate(1, text, folder / f"command{i}", *more))
        rates["plain loop"].append(_plain_loop(values))
        for n, name in ((1, "1 process"), (2, "2 processes")):  # in the command's own sizes
            given = "--steps 40 --save-every 40".split()
            rates[name].append(_rate(n, text, folder / f"in{n}_{i}", *given))
    return {
        "tokens/s": {name: median(found) for name, found in rates.items()},
        "command against plain loop": _ratio(rates["command"], rates["plain loop"]),
        "2 processes against 1": _ratio(rates["2 processes"], rates["1 process"]),
        "turns": rates,
    }


def _rate(n: int, text: Path, out: Path, *more: str) -> float:
    written = _end(_start(n, text, out, *more))
    windows = float(re.search(r"'train_samples_per_second': '?([\d.]+)", written)[1])
    return windows * read_options(["--text", str(text), "--out", str(out), *more]).context


def _plain_loop(values: np.ndarray) -> float:
    """Return the tokens a second of a loop as nanoGPT's: random windows, AdamW, a clipped norm."""
    context, batch = NANOGPT["context"], NANOGPT["batch"]
    sizes = {"d_model": NANOGPT["width"], "n_layers": 4, "n_heads": 4, "max_length": context}
    model = GPT(GPTConfig(1_024, **sizes, dropout=0.0, attention_dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), **LEARNING)
    start = time.perf_counter()
    for _ in range(STEPS):
        starts = torch.randint(len(values) - context, (batch,))
        rows = np.stack([values[i : i + context + 1] for i in starts]).astype(np.int64)
        ids = torch.from_numpy(rows)
        logits = model(ids[:, :-1]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return STEPS * batch * context / (time.perf_counter() - start)


def _ratio(ours: list[float], peer: list[float]) -> dict:
    spread = np.quantile(np.divide(ours, peer), [0.25, 0.75]).tolist()
    return {"of the medians": median(ours) / median(peer), "middle half": spread}


if __name__ == "__main__":
    main()
