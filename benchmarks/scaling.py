"""The command of support/pretrain.py: runs killed at random, a text of 5 GB, tokens a second.

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
import resource
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

from benchmarks.measure import matmul_gflops, seconds
from benchmarks.run import machine
from support import pretrain
from support.data import datasets, tokens
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


# Runs that are killed.

PLANS = [
    (1, 1),
    (1, 1, 1),
    (2, 2),
    (2, 2, 2),
    (1, 1),
    (1, 2, 1),
    (1, 2, 1),
    (1, 2, 1),
    (2, 1),
    (2, 2),
]


def kills(folder: Path, options) -> dict:
    """Kill ten runs at random moments; compare their ends with runs that were left alone.

    A plan such as (1, 2, 1) is a run in one process, killed, that goes on in two, is killed, and
    ends in one.
    """
    text = folder / "text.txt"
    text.write_text(datasets.shakespeare().text, "utf-8")
    whole, lasted = {}, {}
    for n in (1, 2):
        whole[n] = folder / f"whole{n}"
        lasted[n] = seconds(lambda n=n: _end(_start(n, text, whole[n])))
    rng, runs = random.Random(0), []
    for i, plan in enumerate(PLANS):
        out, at = folder / f"killed{i}", []
        for n in plan[:-1]:
            # The later of two kills falls into what the earlier one has left to do.
            moment = rng.uniform(0, lasted[n] * (1 if not at else 0.5))
            at.append(_kill(_start(n, text, out), moment, out) | {"processes": n})
        written = _end(_start(plan[-1], text, out))
        first = re.search(r"step ([\d,]+) of", written)  # none if it had ended before the kill
        before = int(first[1].replace(",", "")) - 10 if first else 300  # from where it went on
        saved = at[-1]["saved"]
        run = {"processes": plan, "kills": at, "went on from": before}
        run["bit for bit"] = len(set(plan)) == 1 and _same(out, whole[plan[0]])
        run["largest difference of a loss"] = _farthest(out, whole[1])
        run["as it should"] = before == saved and (len(set(plan)) > 1 or run["bit for bit"])
        run["as it should"] &= run["largest difference of a loss"] < 1e-4
        runs.append(run)
        print(run, flush=True)
        shutil.rmtree(out)
    good = sum(run["as it should"] for run in runs)
    found = {"went on as they should": good, "of": len(runs), "runs": runs}
    found["two processes against one, largest difference of a loss"] = _farthest(whole[2], whole[1])
    if good < len(runs):
        raise SystemExit(json.dumps(found, indent=1))
    return found


def _start(n: int, text: Path, out: Path, *more: str, threads: int = 1) -> subprocess.Popen:
    program = [sys.executable]
    if n > 1:
        program += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    program += ["-m", "support.pretrain", "--text", str(text), "--out", str(out), *(more or SMALL)]
    return subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip


def _end(run: subprocess.Popen) -> str:
    written = run.communicate()[0]
    if run.returncode:
        raise SystemExit(written)
    return written


def _kill(run: subprocess.Popen, moment: float, out: Path) -> dict:
    """Kill all processes of a run after so many seconds; return what it had done and saved."""
    time.sleep(moment)
    first = psutil.Process(run.pid)
    # Those of torchrun have sessions of their own, so killing a group would not reach them.
    for process in (*first.children(recursive=True), first):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    written = run.communicate()[0]
    done = [int(step.replace(",", "")) for step in re.findall(r"step ([\d,]+) of", written)]
    epochs = [int(path.stem[6:]) for path in out.glob("run/checkpoints/epoch-*.safetensors")]
    saved = 10 * max(epochs, default=0)
    return {"seconds": round(moment, 2), "reported": max(done, default=0), "saved": saved}


def _same(out: Path, other: Path) -> bool:
    a, b = ((folder / "model.safetensors").read_bytes() for folder in (out, other))
    return a == b


def _farthest(out: Path, other: Path) -> float:
    a, b = (json.loads((folder / "run/curve.json").read_text()) for folder in (out, other))
    if a.keys() != b.keys():
        return float("inf")
    return max(abs(a[step][part] - b[step][part]) for step in a for part in ("train", "valid"))


# A text that is larger than memory should have to be.


def shards(folder: Path, options) -> dict:
    """Make tokens of a large text; return the memory it took and the rate, beside datasets' own."""
    text, size = folder / "large.txt", options.megabytes * 10**6
    sample = folder / "sample.txt"
    parts = [datasets.shakespeare().text, datasets.wikitext2(source="real").text]
    parts.append(datasets.ptb(source="real").text)
    block = "\n".join(parts).encode()
    with text.open("wb") as file:
        for _ in range(-(-size // len(block))):
            file.write(block)
    sample.write_bytes(block)
    tokenizer = tokens.train_tokenizer(tokens.read_texts([sample]), 8_192)
    rates = {"ours": [], "datasets": []}
    for i in range(3):
        for name, make in (("ours", tokens.make_tokens), ("datasets", _by_datasets)):
            out = folder / f"{name}{i}"
            taken = seconds(lambda make=make, out=out: make([sample], tokenizer, out))
            rates[name].append(len(block) / taken / 1e6)
            shutil.rmtree(out)
    before = _resident()
    with _Highest() as highest:
        taken = seconds(lambda: tokens.make_tokens([text], tokenizer, folder / "tokens"))
    made = tokens.make_tokens([text], tokenizer, folder / "tokens")
    ends = tokenizer.encode(block[:10_000].decode("utf-8", "ignore")).ids[:1_000]
    assert made.n_bytes == text.stat().st_size and made.values[:1_000].tolist() == ends
    return {
        "bytes of text": made.n_bytes,
        "tokens": len(made.values),
        "seconds": round(taken),
        "MB/s, the large text": made.n_bytes / taken / 1e6,
        "megabytes above the start": (highest.bytes - before) / 1e6,
        "highest, as the system says, megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / 1e3,
        "MB/s, a text of a few megabytes": {name: median(rates[name]) for name in rates},
        "bytes of that text": len(block),
        "turns": rates,
        "threads of tokenizers": os.environ.get("RAYON_NUM_THREADS", "all"),
    }


def _by_datasets(paths: list[Path], tokenizer, out: Path) -> None:
    """Do the same with the library's own way: map over lines, and its files of tokens."""
    from datasets import load_dataset

    data = load_dataset(
        "text", data_files=[str(path) for path in paths], split="train",
        keep_linebreaks=True, cache_dir=str(out / "cache"),
    )  # fmt: skip

    def ids(batch):
        found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"ids": [np.asarray(each.ids, np.uint16) for each in found]}

    made = data.map(ids, batched=True, remove_columns=["text"])
    made.save_to_disk(str(out / "saved"))


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


# Tokens a second.


def speed(folder: Path, options) -> dict:
    """Compare the command with a plain loop, and two processes with one."""
    text = folder / "text.txt"
    text.write_text(datasets.shakespeare().text, "utf-8")
    sizes = [f"--{name} {value}" for name, value in NANOGPT.items()]
    more = f"{' '.join(sizes)} --steps {STEPS} --save-every {STEPS} --lr 1e-3".split()
    pretrain.main(["--text", str(text), "--out", str(folder / "plan"), *more, "--plan"])
    values = np.memmap(folder / "plan/run/tokens.bin", np.uint16, "r")
    rates = {"command": [], "plain loop": [], "1 process": [], "2 processes": []}
    peaks = []
    torch.set_num_threads(1)
    for i in range(options.repeats):
        out = folder / f"command{i}"
        shutil.copytree(folder / "plan", out)
        arguments = ["--text", str(text), "--out", str(out), *more]
        rates["command"].append(pretrain.run(pretrain.read_options(arguments))["tokens/s"])
        rates["plain loop"].append(_plain_loop(values))
        peaks.append(matmul_gflops())
    for i in range(options.repeats):
        for n, name in ((1, "1 process"), (2, "2 processes")):
            out = folder / f"in{n}_{i}"
            shutil.copytree(folder / "plan", out)
            given = "--steps 40 --save-every 40".split()  # the command's own sizes
            written = _end(_start(n, text, out, *given))
            rates[name].append(float(re.search(r"([\d,]+) tokens/s", written)[1].replace(",", "")))
            shutil.rmtree(out)
    config = GPTConfig(1_024, NANOGPT["width"], NANOGPT["layers"], 4, max_length=NANOGPT["context"])
    work = 6 * sum(w.numel() for w in GPT(config).parameters())
    middle = {name: median(found) for name, found in rates.items()}
    return {
        "tokens/s": middle,
        "command against plain loop": _ratio(rates["command"], rates["plain loop"]),
        "share of the peak of one core, command": median(
            rate * work / peak / 1e9 for rate, peak in zip(rates["command"], peaks, strict=True)
        ),
        "2 processes against 1": _ratio(rates["2 processes"], rates["1 process"]),
        "sizes of the first two": NANOGPT,
        "turns": rates,
    }


def _plain_loop(values: np.ndarray) -> float:
    """Return the tokens a second of a loop as nanoGPT's: random places, AdamW, a clipped norm."""
    context, batch = NANOGPT["context"], NANOGPT["batch"]
    sizes = {
        "d_model": NANOGPT["width"],
        "n_layers": NANOGPT["layers"],
        "n_heads": NANOGPT["heads"],
    }
    config = GPTConfig(1_024, **sizes, max_length=context, dropout=0.0, attention_dropout=0.0)
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), **LEARNING)
    start = time.perf_counter()
    for _ in range(STEPS):
        places = torch.randint(len(values) - context, (batch,))
        rows = np.stack([values[i : i + context + 1] for i in places]).astype(np.int64)
        ids = torch.from_numpy(rows)
        logits = model(ids[:, :-1]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return STEPS * batch * context / (time.perf_counter() - start)


def _ratio(ours: list[float], peer: list[float]) -> dict:
    single = [a / b for a, b in zip(ours, peer, strict=True)]
    spread = [round(float(q), 3) for q in np.quantile(single, [0.25, 0.75])]
    return {"of the medians": round(median(ours) / median(peer), 3), "middle half": spread}


if __name__ == "__main__":
    main()
