"""A GPT or a BERT from a text of one's own: python -m support.pretrain --text FILE --out FOLDER

On one CPU or GPU; on many under `accelerate launch` or torchrun. The folder can be loaded by the
Transformers library. --plan says what a run will cost, and does not train.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint as recompute

from support import checkpoints, profile, training
from support.data import datasets, tokens
from support.data.files import read_json, whole_file
from support.models import gpt, pretrained
from support.models.bert import Bert, BertConfig, BertForPretraining
from support.text.masking import mask_tokens
from support.text.wordpiece import SPECIALS

NAMES = {"shakespeare": datasets.shakespeare, "wikitext2": datasets.wikitext2, "ptb": datasets.ptb}
# Products of matrices in 16 bits, in FLOP a second, and bytes of memory, as the makers say.
CARDS = {
    "t4": (65e12, 16e9),
    "l4": (121e12, 24e9),
    "v100": (125e12, 32e9),
    "a100": (312e12, 80e9),
    "h100": (989e12, 80e9),
}
USED = 0.4  # the share of its peak that a card reaches in training, as a rule of thumb
# Options that a run keeps to its end; the others may change when it goes on.
KEPT = "model vocab layers width heads context dropout steps batch lr warmup weight_decay valid"
KEPT = (*KEPT.split(), "save_every", "seed")


@dataclass(frozen=True)
class Plan:
    """What a run costs, on paper: memory in bytes of each device, work in FLOP, time in seconds.

    Sources: 16 bytes a parameter (weights, gradients, Adam's two averages in float32), Rajbhandari
    et al. 2020, section 3.1; activations, Korthikanti et al. 2022, eq. 2 without the scores, which
    are not stored; 6 FLOP a parameter and token, Kaplan et al. 2020, section 2.1; 20 tokens a
    parameter, Hoffmann et al. 2022; four passes over a text, Muennighoff et al. 2023.
    """

    parameters: int
    tokens: int
    passes: float
    state_bytes: float
    activation_bytes: float
    flop: float
    seconds: float
    chinchilla_tokens: int

    def warnings(self, memory: float) -> list[str]:
        """Return what speaks against the run, on devices with so many bytes."""
        found = []
        needed = self.state_bytes + self.activation_bytes
        if needed > memory:
            found.append(
                f"needs {_bytes(needed)} of a device's {_bytes(memory)}: take a smaller "
                "--micro-batch, --recompute or --fsdp"
            )
        if self.passes > 4:
            found.append(f"reads the text {self.passes:.1f} times: beyond about 4 it learns little")
        if self.tokens < self.chinchilla_tokens / 2:
            found.append(
                f"reads {self.tokens / self.parameters:.1f} tokens a parameter: by Chinchilla's "
                "rule of 20 a smaller model would become better in the same time"
            )
        return found


def make_plan(config, options, n_tokens: int, devices: int, speed: float) -> Plan:
    """Return the plan of a run: n_tokens in the text, speed in FLOP a second of each device."""
    d, depth, context = config.d_model, config.n_layers, config.max_length
    with torch.device("meta"):
        model = _model(config)
    parameters = sum(p.numel() for p in model.parameters())
    seen = options.steps * options.batch * context
    # The positions' table is looked up, and so is the tokens', but that is the last matrix as well.
    flop = seen * (6 * (parameters - context * d) + 12 * depth * d * context)
    flop *= 4 / 3 if options.recompute else 1
    number = 4 if options.precision == "no" else 2  # bytes of an activation
    kept = 17 * d * number * depth if not options.recompute else d * number * depth
    return Plan(
        parameters=parameters,
        tokens=seen,
        passes=seen / n_tokens,
        state_bytes=16 * parameters / (devices if options.fsdp else 1),
        activation_bytes=options.micro_batch * context * (kept + 8 * d * number),
        flop=flop,
        seconds=flop / (speed * devices),
        chinchilla_tokens=20 * parameters,
    )


def measured_speed(device: torch.device, precision: str) -> float:
    """Return what a device reaches in products of large matrices here, in FLOP a second."""
    n = 4096 if device.type == "cuda" else 1024
    kind = training.PRECISIONS[precision] or torch.float32
    a = torch.randn(n, n, device=device, dtype=kind)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


class GPTTask:
    """The next token: windows of a text, and GPT's loss."""

    specials = (tokens.END,)

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def loss(self, windows: tokens.Windows, model, batch: tuple[int, list[int]]) -> torch.Tensor:
        """Return the mean loss in nats of a batch: its first window's number, and their starts."""
        ids = torch.from_numpy(windows.at(batch[1])).to(_device(model))
        logits = model(ids[:, :-1]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:].flatten())

    def sample(self, model, prompt: np.ndarray) -> str:
        """Return what the model writes after some tokens."""
        ids = torch.as_tensor(prompt.astype(np.int64), device=_device(model))[None]
        n = min(60, model.config.max_length - ids.shape[1])
        new = gpt.generate(model, ids, n, temperature=0.8, top_k=50, use_cache=False)
        return self.tokenizer.decode(prompt.tolist()) + " | " + self.tokenizer.decode(new[0])


class BertTask:
    """The hidden tokens: 15 % of a window, masked as BERT's authors do; no next sentences."""

    specials = (*SPECIALS, tokens.END)

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        ids = [tokenizer.token_to_id(name) for name in (*SPECIALS, tokens.END)]
        if None in ids:
            raise ValueError(f"a tokenizer for BERT needs the tokens {', '.join(self.specials)}")
        _, _, self.cls, self.sep, self.mask = ids[:5]
        self.words = np.setdiff1d(np.arange(tokenizer.get_vocab_size()), ids)

    def loss(self, windows: tokens.Windows, model, batch: tuple[int, list[int]]) -> torch.Tensor:
        """Return the mean loss in nats of a batch: its first window's number, and their starts."""
        ids = windows.at(batch[1])[:, :-1]  # (B, T)
        ids[:, 0], ids[:, -1] = self.cls, self.sep
        choosable, masked = np.isin(ids, self.words), []
        for i, row in enumerate(ids):  # each from its own number, so that no batch size matters
            rng = np.random.default_rng(batch[0] + i)
            known = {"mask_id": self.mask, "random_ids": self.words}
            masked.append(mask_tokens(row[None], choosable[i, None], rng, **known))
            masked[-1][1][:] += i * len(row)
        device, parts = _device(model), map(np.concatenate, zip(*masked, strict=True))
        seen, places, targets = (torch.from_numpy(part).to(device) for part in parts)
        states = model.bert(seen).flatten(0, 1)[places]
        logits = model.predict_tokens(states)
        return torch.nn.functional.cross_entropy(logits.float(), targets)

    def sample(self, model, prompt: np.ndarray) -> str:
        """Return some tokens, of which every fifth is replaced by the model's guess."""
        ids = torch.as_tensor(prompt.astype(np.int64))[None]
        seen = ids.clone()
        seen[:, 2::5] = self.mask
        with torch.no_grad():
            states = model.bert(seen.to(_device(model)))
            guess = model.predict_tokens(states).argmax(-1).cpu()
        filled = torch.where(seen == self.mask, guess, ids)[0]
        shown = [self.tokenizer.decode(row.tolist()) for row in (ids[0], filled)]
        return " | ".join(shown)


TASKS = {"gpt": GPTTask, "bert": BertTask}


def _model(config):
    return (
        gpt.GPT(config) if isinstance(config, gpt.GPTConfig) else BertForPretraining(Bert(config))
    )


def _layers(model):
    return model.layers if isinstance(model, gpt.GPT) else model.bert.encoder.layers


def _device(model) -> torch.device:
    return next(model.parameters()).device


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def _hours(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 1e6 else f"{seconds / 86400:.0f} days"


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command, checked; exits with a message for what cannot be meant."""
    parser = argparse.ArgumentParser(prog="python -m support.pretrain", description=__doc__)
    add = parser.add_argument
    names = ", ".join(NAMES)
    kinds = f"text, .gz, .zst, .jsonl; or {names}"
    add("--text", nargs="+", required=True, metavar="FILE", help=kinds)
    add("--out", type=Path, required=True, help="a folder for tokens, checkpoints and the model")
    add("--model", choices=TASKS, default="gpt")
    add("--field", default="text", help="the field of JSON lines that holds the text")
    add("--tokenizer", type=Path, help="a tokenizer.json; without it one is learned")
    add("--vocab", type=int, default=1_024, help="size of a learned vocabulary")
    add("--layers", type=int, default=4)
    add("--width", type=int, default=128)
    add("--heads", type=int, default=4)
    add("--context", type=int, default=128, help="tokens of a window")
    add("--dropout", type=float, default=0.0)
    add("--steps", type=int, default=600)
    add("--batch", type=int, default=32, help="windows of a step, of all processes together")
    add("--micro-batch", type=int, help="windows that a device takes at once; default: its share")
    add("--lr", type=float, default=2e-3)
    add("--warmup", type=int, help="steps; default: a twentieth")
    add("--weight-decay", type=float, default=0.1)
    add("--valid", type=float, default=0.05, help="share of the text, its end, for validation")
    add("--save-every", type=int, default=50, help="steps")
    add("--precision", choices=training.PRECISIONS, help="default: the best of the device")
    add("--recompute", action="store_true", help="keep fewer activations, compute them again")
    add("--fsdp", action="store_true", help="divide the weights among the processes")
    add("--seed", type=int, default=0)
    add("--plan", action="store_true", help="say what the run costs, and do not train")
    add("--card", choices=CARDS, help="with --plan: on this card, on paper")
    add("--devices", type=int, help="with --plan: so many of them")
    options = parser.parse_args(arguments)
    positive = "vocab layers width heads steps batch save_every micro_batch devices".split()
    least = dict.fromkeys(positive, 1) | {"context": 2, "warmup": 0, "weight_decay": 0, "seed": 0}
    for name, bound in least.items():
        if (given := getattr(options, name)) is not None and not given >= bound:
            parser.error(f"--{name.replace('_', '-')} must be at least {bound}, got {given}")
    for name, end in (("valid", 1), ("lr", math.inf)):
        if not 0 < (given := getattr(options, name)) < end:
            parser.error(f"--{name} must lie between 0 and {end}, got {given}")
    on_paper = ("fp16" if options.card in ("t4", "v100") else "bf16") if options.card else None
    options.precision = options.precision or on_paper or training.best_precision()
    # accelerate launch --use_fsdp says so in this way.
    options.fsdp |= os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    processes = options.devices or training.launched()
    if options.micro_batch is None:
        options.micro_batch = max(1, options.batch // processes)
    rest = options.batch % (options.micro_batch * processes)
    if rest:
        parser.error(
            f"--batch {options.batch} is not a multiple of --micro-batch {options.micro_batch} "
            f"times {processes} processes"
        )
    return options


def run(options: argparse.Namespace) -> dict[str, float] | Plan:
    """Train as the options say, or plan; return the last loss and the speed, or the plan.

    Raises: ValueError for texts, sizes or a folder that do not fit; OSError if the disk is full.
    A run that was stopped goes on from its newest checkpoint, with any number of processes.
    """
    workers = training.workers(precision=options.precision)
    first = workers.own == 0
    say = print if first else lambda *_, **__: None
    work = options.out / "run"
    _check_run(options, work / "options.json")
    with workers.first_before_others():
        paths = [_file(name, work) for name in options.text]
        tokenizer = _tokenizer(options, paths, work)
        task = TASKS[options.model](tokenizer)
        data = tokens.make_tokens(paths, tokenizer, work, options.field)
    train_part, valid_part = data.split(options.valid, options.context + 1)
    windows = tokens.Windows(train_part, options.context, options.seed)
    valid = tokens.Windows(valid_part, options.context, options.seed)
    config = _config(options, tokenizer.get_vocab_size())
    say(f"{data.n_bytes:,} bytes of text, {len(data.values):,} tokens")

    device = workers.device
    speed, memory = CARDS.get(options.card, (None, math.inf))
    peak = speed or measured_speed(device, options.precision)
    n = options.devices or workers.n
    plan = make_plan(config, options, len(train_part), n, (speed or peak) * USED)
    _say_plan(plan, memory, n, options.card or f"this {device.type}", say)
    if options.plan:
        return plan
    if first:
        kept = {name: getattr(options, name) for name in KEPT}
        with whole_file(work / "options.json") as file:
            file.write(json.dumps(kept, indent=1).encode())

    profile.set_seed(options.seed)
    model = _model(config)
    if options.recompute:
        for layer in _layers(model):
            layer.forward = partial(_recomputed, layer, layer.forward)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": options.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, options.lr, betas=(0.9, 0.95))
    curve = _Curve(work / "curve.json")

    def batches(epoch: int) -> list[tuple[int, list[int]]]:
        """Return the batches of the steps up to the next checkpoint."""
        begin = epoch * options.save_every * options.batch
        end = min(options.steps * options.batch, begin + options.save_every * options.batch)
        size = options.micro_batch
        return [(i, windows.starts(i, size)) for i in range(begin, end, size)]

    def on_epoch(epoch: int, history: training.History) -> None:
        model.eval()
        valid_loss = _valid_loss(task, model, valid, options)
        done, rate = len(history.losses), history.items[-1] / history.seconds[-1]
        rate *= options.context  # tokens a second
        share = rate * plan.flop / plan.tokens / (peak * workers.n)
        left = (options.steps - done) * options.batch * options.context / rate
        if first:
            curve.add(done, history.epoch_losses[-1], valid_loss)
        text = task.sample(model, valid_part[: min(20, options.context // 2)])
        say(
            f"step {done:,} of {options.steps:,}: loss {history.epoch_losses[-1]:.3f}, validation "
            f"{valid_loss:.3f}; {rate:,.0f} tokens/s, {share:.0%} of the peak here; "
            f"{_hours(left)} left\n    {text!r}",
            flush=True,
        )

    history = training.fit(
        model,
        batches,
        partial(task.loss, windows),
        epochs=math.ceil(options.steps / options.save_every),
        optimizer=optimizer,
        schedule=training.warmup_cosine(
            min(options.steps - 1, options.warmup or options.steps // 20), options.steps, 0.1
        ),
        clip_norm=1.0,
        precision=options.precision,
        accumulate=options.batch // (options.micro_batch * workers.n),
        checkpoint=work / "checkpoints",
        on_epoch=on_epoch,
        seed=options.seed,
        shard=_layers(model) if options.fsdp else None,
    )
    weights = checkpoints.whole_weights(model)
    model.eval()
    last = _valid_loss(task, model, valid, options)
    if first:
        whole = _model(config)
        whole.load_state_dict(weights)
        _export(whole, tokenizer, options, curve, f"{data.n_bytes:,} bytes", last)
        say(f"validation loss {last:.3f} nats a token; the model is in {options.out}")
    return {"valid": last, "tokens/s": history.items_per_second * options.context}


class _Curve:
    """The losses at each checkpoint, in a file, so that a run that goes on keeps them."""

    def __init__(self, path: Path):
        self.path = path
        self.points = read_json(path) if path.exists() else {}

    def add(self, step: int, train: float, valid: float) -> None:
        self.points[str(step)] = {"train": train, "valid": valid}
        with whole_file(self.path) as file:
            file.write(json.dumps(self.points, indent=1).encode())

    def draw(self, path: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        ax = figure.subplots()
        for part in ("train", "valid"):
            steps = sorted(map(int, self.points))
            ax.plot(steps, [self.points[str(step)][part] for step in steps], label=part)
        ax.set(xlabel="steps", ylabel="loss (nats a token)")
        ax.legend()
        figure.savefig(path, dpi=120)


def _file(name: str, work: Path) -> Path:
    """Return the file of a text: a path, or a data set by its name, put into work."""
    if name not in NAMES:
        return Path(name)
    path = work / f"{name}.txt"
    if not path.exists():
        text = NAMES[name]().text
        work.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(text.encode())
    return path


def _check_run(options, path: Path) -> None:
    """Raise ValueError if the run in a folder was begun with other options that a run keeps."""
    for name, was in read_json(path).items() if path.exists() else ():
        if was != getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{options.out} holds a run with {option} {was}, not {getattr(options, name)}: "
                "go on with that, or give another --out"
            )


def _tokenizer(options, paths: list[Path], work: Path):
    """Return the tokenizer that is given, or was learned before, or is learned now."""
    path = options.tokenizer or work / f"tokenizer-{options.model}-{options.vocab}.json"
    if path.exists():
        return tokens.read_tokenizer(path)
    if options.tokenizer:
        raise ValueError(f"there is no file {path}")
    texts = tokens.read_texts(paths, options.field)
    specials, bert = TASKS[options.model].specials, options.model == "bert"
    tokenizer = tokens.train_tokenizer(texts, options.vocab, specials, bert=bert)
    work.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(tokenizer.to_str().encode())
    return tokenizer


def _config(options, vocab_size: int):
    sizes = {"d_model": options.width, "n_layers": options.layers, "n_heads": options.heads}
    sizes |= {"max_length": options.context, "dropout": options.dropout}
    sizes["attention_dropout"] = options.dropout
    if options.model == "gpt":
        return gpt.GPTConfig(vocab_size, **sizes)
    return BertConfig(vocab_size, **sizes, d_ff=4 * options.width)


def _recomputed(layer, forward, *args, **kwargs):
    if layer.training and torch.is_grad_enabled():
        return recompute(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)


@torch.no_grad()
def _valid_loss(task, model, valid: tokens.Windows, options) -> float:
    """Return the mean loss of 128 windows at most, the same ones every time."""
    size = options.micro_batch
    n = max(1, min(valid.n, 128) // size)
    kind = training.PRECISIONS[options.precision]
    losses = []
    for i in range(n):
        with torch.autocast(_device(model).type, kind, enabled=kind is not None):
            batch = i * size, valid.starts(i * size, size)
            losses.append(task.loss(valid, model, batch).float())
    return torch.stack(losses).mean().item()


def _say_plan(plan: Plan, memory: float, n: int, where: str, say) -> None:
    say(
        f"{plan.parameters:,} parameters; {plan.tokens:,} tokens to read, {plan.passes:.1f} passes "
        f"over the text ({plan.chinchilla_tokens:,} by Chinchilla's rule)\n"
        f"memory of each device: {_bytes(plan.state_bytes)} for weights, gradients and optimizer, "
        f"about {_bytes(plan.activation_bytes)} for activations\n"
        f"work: {plan.flop:.2e} FLOP, about {_hours(plan.seconds)} on {n} x {where}"
    )
    for warning in plan.warnings(memory):
        say(f"note: this run {warning}")


def _export(model, tokenizer, options, curve: _Curve, text: str, loss: float) -> None:
    """Write model, tokenizer, README and curve, as the library's from_pretrained reads them."""
    from transformers import PreTrainedTokenizerFast

    out, bert = options.out, options.model == "bert"
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIALS, strict=True)) if bert else {}
    names = {f"{name}_token": token for name, token in names.items()}
    names |= {} if bert else {"eos_token": tokens.END, "bos_token": tokens.END}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=options.context, **names
    )
    fast.save_pretrained(out)
    pretrained.save(model, out)
    curve.draw(out / "curve.png")
    kind = "AutoModelForMaskedLM" if bert else "AutoModelForCausalLM"
    given = " ".join(options.text)
    (out / "README.md").write_text(
        f"""# {options.model.upper()} from {given}

Trained by `python -m support.pretrain` of *Pretraining by Hand* on {text} of text: {options.layers}
layers, width {options.width}, {options.heads} heads, {options.context} tokens of context,
{options.steps:,} steps of {options.batch} windows. Validation loss {loss:.4f} nats a token.

```python
from transformers import {kind}, AutoTokenizer

model = {kind}.from_pretrained("{out}")
tokenizer = AutoTokenizer.from_pretrained("{out}")
```

![Loss of training and validation](curve.png)
""",
        "utf-8",
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a mistake by the caller gives a message, and no trace of the program."""
    options = read_options(arguments)
    try:
        run(options)
    except (ValueError, FloatingPointError) as error:
        sys.exit(f"support.pretrain: {error}")
    except OSError as error:
        sys.exit(f"support.pretrain: {error}; mend this: what {options.out} had saved is there yet")
    except KeyboardInterrupt:
        sys.exit("support.pretrain: stopped; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    main()
