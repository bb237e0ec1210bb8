"""A run: transformers.Trainer around our models, on windows of a text, and what it reports."""

from __future__ import annotations

import math
import os
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import PartialState
from filelock import FileLock, Timeout
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.checkpoint import checkpoint as recompute
from torch.utils.data import Dataset, SequentialSampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from pretrain import plan, tokens
from pretrain.export import export
from support import profile
from support.models.gpt import GPT, generate
from support.text.masking import mask_tokens
from support.training import warmup_cosine

# Options that a run keeps to its end; the others may change when it goes on.
KEPT = "model vocab layers width heads context dropout steps batch lr warmup weight_decay valid"
KEPT = (*KEPT.split(), "save_every", "seed")
IGNORED = -100  # a label that is not predicted
VALIDATION = 128  # windows


class Windows(Dataset):
    """n windows of a text at random positions; in each, every token predicts the next one.

    Window i follows from the seed and i alone, so that neither the batch size nor the number of
    processes matters.
    """

    def __init__(self, values: np.ndarray, length: int, seed: int, n: int):
        if len(values) < length + 1:
            raise ValueError(
                f"a window needs {length + 1:,} tokens, of the training text and of the validation "
                f"text, and one of them has {len(values):,}: take a longer text, another --valid, "
                "or a shorter --context"
            )
        self.values, self.length, self.seed, self.n = values, length, seed, n

    def __len__(self) -> int:
        return self.n

    def window(self, rng: np.random.Generator) -> np.ndarray:
        """Return a window and the token that follows it, (length + 1,)."""
        start = rng.integers(len(self.values) - self.length)
        return self.values[start : start + self.length + 1].astype(np.int64)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        ids = self.window(np.random.default_rng((self.seed, i)))
        return {"input_ids": ids[:-1], "labels": ids[1:]}


class MaskedWindows(Windows):
    """The same for a BERT: 15 % of the tokens are masked as its authors do; no next sentences."""

    def __init__(self, *args, tokenizer):
        super().__init__(*args)
        special = [tokenizer.token_to_id(name) for name in tokens.SPECIALS["bert"]]
        self.cls, self.sep, self.mask = special[2:]
        self.words = np.setdiff1d([*tokenizer.get_vocab().values()], special)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((self.seed, i))
        ids = self.window(rng)[:-1]
        ids[0], ids[-1] = self.cls, self.sep
        labels, choosable = np.full_like(ids, IGNORED), np.isin(ids, self.words)
        if choosable.any():
            known = {"mask_id": self.mask, "random_ids": self.words}
            masked, positions, targets = mask_tokens(ids[None], choosable[None], rng, **known)
            ids, labels[positions] = masked[0], targets
        return {"input_ids": ids, "labels": labels}


class WithLoss(nn.Module):
    """A model whose forward pass returns its loss in nats, as Trainer expects it."""

    accepts_loss_kwargs = True  # Trainer then passes num_items_in_batch
    _no_split_modules = ["TransformerBlock"]  # what FSDP divides among the processes, one by one

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels, num_items_in_batch=None) -> dict[str, torch.Tensor]:
        """Return the mean loss of labels (B, T), those of -100 aside.

        num_items_in_batch is the number of targets in the whole step, of all micro-batches and
        processes: the sum is divided by it, so that how a step is divided does not matter.
        """
        if isinstance(self.model, GPT):
            logits, targets = self.model(input_ids).flatten(0, 1), labels.flatten()
        else:
            chosen = labels != IGNORED
            logits = self.model.predict_tokens(self.model.bert(input_ids)[chosen])
            targets = labels[chosen]
        total = F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
        n = (labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / max(n, 1)}


class WindowTrainer(Trainer):
    """Trainer with windows in their own order, our schedule, and validation over all targets."""

    options: Namespace

    def _get_train_sampler(self, *_) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def create_scheduler(self, num_training_steps: int, optimizer=None) -> LambdaLR:
        """Return the schedule: linear warm-up, then a cosine to a tenth."""
        steps, warmup = self.options.steps, self.options.warmup
        warmup = steps // 20 if warmup is None else min(warmup, steps - 1)
        self.lr_scheduler = LambdaLR(self.optimizer, warmup_cosine(warmup, steps, 0.1))
        return self.lr_scheduler

    def _inner_training_loop(self, batch_size=None, **given):
        # Version 4 would go on with the micro-batch of the checkpoint, and other batches with it.
        return super()._inner_training_loop(self.args.train_batch_size, **given)

    @torch.no_grad()
    def evaluate(self, *_, **__) -> dict[str, float]:
        """Return the mean loss of all targets of the validation windows."""
        self.model.eval()
        size, n = self.args.train_batch_size, len(self.eval_dataset)
        sums = torch.zeros(2, device=self.args.device)
        # With FSDP all processes must take as many batches: what is beyond the end has no targets.
        for first in range(0, n, size * self.args.world_size):
            begin = first + size * self.args.process_index
            items = [self.eval_dataset[i % n] for i in range(begin, begin + size)]
            batch = self._prepare_inputs(self.data_collator(items))
            batch["labels"][max(0, n - begin) :] = IGNORED
            loss = self.model(**batch, num_items_in_batch=1)["loss"]
            sums += torch.stack([loss, (batch["labels"] != IGNORED).sum()])
        total, targets = self.accelerator.reduce(sums).tolist()
        self.log({"eval_loss": total / max(targets, 1)})
        return {"eval_loss": total / max(targets, 1)}


class Report(TrainerCallback):
    """Seeds each step, marks checkpoints that are complete, and says how the run is going."""

    tokens, seconds = 0, 0.0

    def __init__(self, options: Namespace, costs: plan.Plan, peak: float, say: Callable):
        self.options, self.say = options, say
        self.tokens_of_step = options.batch * options.context
        self.flop, self.peak = costs.flop / costs.tokens, peak

    def on_train_begin(self, args, state, control, **_):
        self._start, self._step = time.perf_counter(), state.global_step

    def on_step_begin(self, args, state, control, **_):
        # With one seed for all, dropout would drop the same units in every process.
        seed = (self.options.seed, args.process_index, state.global_step)
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))

    def on_step_end(self, args, state, control, **_):
        control.should_log |= state.global_step == state.max_steps

    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs:
            if not math.isfinite(logs["loss"]):  # nothing of this has been saved yet
                raise FloatingPointError(
                    f"the loss is {logs['loss']} between steps {self._step} and "
                    f"{state.global_step}: try a smaller --lr"
                )
            self.seconds += time.perf_counter() - self._start
            self.tokens += (state.global_step - self._step) * self.tokens_of_step

    def on_save(self, args, state, control, model, **_):
        PartialState().wait_for_everyone()  # each process writes files of its own
        step, rate = state.global_step, self.tokens / self.seconds
        folder = Path(args.output_dir) / f"checkpoint-{step}"
        if state.is_world_process_zero:
            sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
            tokens.write_json(folder / "complete.json", sizes)
        point = curve(state.log_history)[step]
        share = rate * self.flop / (self.peak * args.world_size)
        left = (state.max_steps - step) * self.tokens_of_step / rate
        self.say(
            f"step {step:,} of {state.max_steps:,}: loss {point['train']:.3f}, validation "
            f"{point['valid']:.3f}; {rate:,.0f} tokens/s, {share:.0%} of the peak here; "
            f"{plan.duration(left)} left"
        )
        if state.is_world_process_zero and not self.options.fsdp and self.options.model == "gpt":
            self.say(f"    {self.sample(model.model)!r}", flush=True)
        self._start, self._step = time.perf_counter(), step

    def sample(self, model: GPT) -> str:
        """Return the beginning of the validation text and, after a bar, what a GPT writes on."""
        ids = torch.as_tensor(self.prompt, device=next(model.parameters()).device)[None]
        n = min(60, model.config.max_length - len(self.prompt))
        new = generate(model, ids, n, temperature=0.8, top_k=50)[0]
        return f"{self.decode(self.prompt)} | {self.decode(list(new))}"


def curve(log_history: list[dict]) -> dict[int, dict[str, float]]:
    """Return the losses of training and validation by step, from Trainer's log."""
    points: dict[int, dict[str, float]] = {}
    for entry in log_history:
        for theirs, ours in (("loss", "train"), ("eval_loss", "valid")):
            if theirs in entry:
                points.setdefault(entry["step"], {})[ours] = entry[theirs]
    return points


def newest_checkpoint(folder: Path, say: Callable = print) -> str | None:
    """Return the newest checkpoint that is complete, None if there is none."""
    notes = {int(path.parent.name[11:]): path for path in folder.glob("*/complete.json")}
    for _, note in sorted(notes.items(), reverse=True):
        try:
            sizes = tokens.read_json(note)
            if all((note.parent / name).stat().st_size == sizes[name] for name in sizes):
                return str(note.parent)
        except (ValueError, OSError):
            pass
        say(f"note: {note.parent} is damaged and is passed over")
    return None


def run(options: Namespace) -> dict[str, float]:
    """Train as the options say; return the last validation loss, and the tokens a second.

    A run that was stopped goes on from its newest checkpoint, with any number of processes.

    Raises:
        ValueError: for texts, sizes or a folder that do not fit.
        OSError: if the disk is full.
        FloatingPointError: if the loss is not finite.
    """
    # The other processes wait while the first one makes tokens of a large text.
    state = PartialState(cpu=profile.device().type == "cpu", timeout=timedelta(days=1))
    work = options.out / "run"
    work.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work / "lock")
    try:
        if state.is_main_process:
            lock.acquire(timeout=0)
        return _run(options, state, work)
    except Timeout:
        raise ValueError(f"another run is at work in {options.out}: give another --out") from None
    finally:
        lock.release()


def _run(options: Namespace, state: PartialState, work: Path) -> dict[str, float]:
    say = print if state.is_main_process else lambda *_, **__: None
    device, n = state.device, state.num_processes
    if options.precision == "fp16" and device.type == "cpu":
        raise ValueError("--precision fp16 needs a GPU: take bf16 or no")
    if options.fsdp and (device.type == "cpu" or not os.environ.get("ACCELERATE_USE_FSDP")):
        raise ValueError("--fsdp needs GPUs, and `accelerate launch --use_fsdp -m pretrain …`")
    size = plan.micro_batch(options, n)
    with state.main_process_first():
        _check_options(options, work / "options.json")
        paths = [tokens.text_file(name, work) for name in options.text]
        tokenizer = _tokenizer(options, paths, work)
        end = tokens.end_id(tokenizer, options.model)
        values, n_bytes = tokens.make_tokens(paths, tokenizer, end, work, options.field)
    say(f"{n_bytes:,} bytes of text, {len(values):,} tokens")
    at = len(values) - round(options.valid * len(values))
    kind = Windows if options.model == "gpt" else partial(MaskedWindows, tokenizer=tokenizer)
    data = kind(values[:at], options.context, options.seed, options.steps * options.batch)
    valid = kind(values[at:], options.context, options.seed, VALIDATION)

    config = plan.new_config(options, tokens.n_ids(tokenizer))
    peak = plan.measured_speed(device, options.precision)
    costs = plan.make_plan(config, options, at, n, peak * plan.USED)
    say(costs.text(math.inf, f"{n} x this {device.type}"))
    report = Report(options, costs, peak, say)
    report.prompt = valid.values[: min(20, options.context // 2)].tolist()
    report.decode = tokenizer.decode

    profile.set_seed(options.seed)
    model = plan.new_model(config)
    if options.recompute:
        for layer in plan.layers(model):
            layer.forward = partial(_recomputed, layer, layer.forward)
    arguments = _arguments(options, size, n)
    given = {"train_dataset": data, "eval_dataset": valid, "callbacks": [report]}
    trainer = WindowTrainer(WithLoss(model), arguments, **given)
    trainer.options = options
    trainer.remove_callback(PrinterCallback)
    trainer.train(newest_checkpoint(work / "checkpoints", say))

    weights = trainer.accelerator.get_state_dict(trainer.model)
    points = curve(trainer.state.log_history)
    loss = points[options.steps]["valid"]
    if state.is_main_process:
        whole = WithLoss(plan.new_model(config))
        whole.load_state_dict(weights)
        export(whole.model, tokenizer, options, points, n_bytes)
        say(f"validation loss {loss:.3f} nats a token; the model is in {options.out}")
    return {"valid": loss, "tokens/s": report.tokens / max(report.seconds, 1e-9)}


def _arguments(options: Namespace, size: int, processes: int) -> TrainingArguments:
    every = ("logging", "eval", "save")
    arguments = TrainingArguments(
        str(options.out / "run" / "checkpoints"),
        max_steps=options.steps,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=options.batch // (size * processes),
        average_tokens_across_devices=True,
        learning_rate=options.lr,
        weight_decay=options.weight_decay,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        bf16=options.precision == "bf16",
        fp16=options.precision == "fp16",
        seed=options.seed,
        use_cpu=PartialState().device.type == "cpu",
        **{f"{name}_strategy": "steps" for name in every},
        **{f"{name}_steps": options.save_every for name in every},
        save_total_limit=2,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        ddp_find_unused_parameters=options.model == "bert",  # its next-sentence head
        report_to=[name for name in ("tensorboard", "wandb") if find_spec(name)],
        disable_tqdm=True,
        log_level="error",
        log_level_replica="error",
    )
    # One process, one GPU, where Trainer would take all that it sees, with nn.DataParallel.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _check_options(options: Namespace, path: Path) -> None:
    """Raise ValueError if the run in a folder was begun with other options that a run keeps."""
    for name, was in tokens.read_json(path).items() if path.exists() else ():
        if was != (given := getattr(options, name)):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{options.out} holds a run with {option} {was}, not {given}: go on with that, or "
                "give another --out"
            )
    if not path.exists():
        tokens.write_json(path, {name: getattr(options, name) for name in KEPT})


def _tokenizer(options: Namespace, paths: list[Path], work: Path):
    """Return the tokenizer that is given, or was learned before, or is learned now."""
    path = options.tokenizer or work / "tokenizer.json"
    if not (options.tokenizer or path.exists()):
        texts = tokens.read_texts(paths, options.field)
        learned = tokens.train_tokenizer(texts, options.vocab, options.model)
        learned.save(str(path))
    return tokens.read_tokenizer(path, options.model)


def _recomputed(layer: nn.Module, forward: Callable, *args, **kwargs):
    if layer.training and torch.is_grad_enabled():
        return recompute(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)
