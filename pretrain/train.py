"""A run: transformers.Trainer around our models, on windows of a text, and what it reports."""

from __future__ import annotations

import hashlib
import json
import math
from argparse import Namespace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from accelerate import PartialState
from filelock import FileLock, Timeout
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

from pretrain import plan, tokens
from support import profile
from support.models import pretrained
from support.models.gpt import GPT, generate
from support.text.masking import mask_tokens

# Options that a run keeps to its end; the others may change when it goes on.
KEPT = "model vocab layers width heads context dropout steps batch lr warmup weight_decay valid"
KEPT = (*KEPT.split(), "save_every", "seed")
IGNORED = -100  # a label that is not predicted
VALIDATION = 128  # windows


class Windows(Dataset):
    """n windows of a text, in a new random order in each pass; every token predicts the next one.

    Window i follows from the seed and i alone: no batch size or number of processes matters. With a
    tokenizer, 15 % of the tokens are masked instead, as BERT's authors do.
    """

    def __init__(self, rows: datasets.Dataset, seed: int, n: int, tokenizer: Tokenizer | None):
        self.rows, self.seed, self.n, self.tokenizer, self.turn = rows, seed, n, tokenizer, -1
        if tokenizer:
            special = [tokenizer.token_to_id(name) for name in tokens.SPECIALS["bert"]]
            self.ends, self.mask = special[2:4], special[4]
            self.words = np.setdiff1d([*tokenizer.get_vocab().values()], special)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        turn, at = divmod(i, len(self.rows))
        if turn != self.turn:
            rng = np.random.default_rng((self.seed, turn))
            self.turn, self.order = turn, rng.permutation(len(self.rows))
        ids = self.rows[int(self.order[at])]["ids"].astype(np.int64)
        if not self.tokenizer:
            return {"input_ids": ids[:-1], "labels": ids[1:]}
        ids = ids[:-1]
        ids[[0, -1]] = self.ends
        labels, choosable = np.full_like(ids, IGNORED), np.isin(ids, self.words)
        if choosable.any():
            known = {"mask_id": self.mask, "random_ids": self.words}
            rng = np.random.default_rng((self.seed, i, 1))
            masked, positions, targets = mask_tokens(ids[None], choosable[None], rng, **known)
            ids, labels[positions] = masked[0], targets
        return {"input_ids": ids, "labels": labels}


class WithLoss(nn.Module):
    """A model whose forward pass returns its loss in nats, as Trainer expects it."""

    accepts_loss_kwargs = True  # Trainer then passes num_items_in_batch

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels, num_items_in_batch=None) -> dict[str, torch.Tensor]:
        """Return the mean loss of labels (B, T), those of -100 aside.

        The sum is divided by num_items_in_batch, the number of targets in the whole step, so that
        how a step is divided into micro-batches and processes does not matter.
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
    """Trainer with windows in their own order, and validation over all targets."""

    def _get_train_sampler(self, *_) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    @torch.no_grad()
    def evaluate(self, *_, **__) -> dict[str, float]:
        """Return the mean loss of all targets; each process reads all windows, as FSDP needs."""
        self.model.eval()
        total, targets, size = 0.0, 0, self.args.train_batch_size
        for start in range(0, VALIDATION, size):
            windows = [self.eval_dataset[i] for i in range(start, min(start + size, VALIDATION))]
            batch = self._prepare_inputs(self.data_collator(windows))
            total += self.model(**batch, num_items_in_batch=1)["loss"].item()
            targets += int((batch["labels"] != IGNORED).sum())
        self.log({"eval_loss": total / max(targets, 1)})
        return {"eval_loss": total / max(targets, 1)}


class Report(TrainerCallback):
    """Seeds each step, stops at a loss that is not finite, and shows what the model writes."""

    def __init__(self, seed: int, prompt: np.ndarray | None, tokenizer: Tokenizer):
        self.seed, self.prompt, self.tokenizer = seed, prompt, tokenizer

    def on_step_begin(self, args, state, control, **_):
        # With one seed for all, dropout would drop the same units in every process.
        seed = (self.seed, args.process_index, state.global_step)
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))

    def on_log(self, args, state, control, logs, **_):
        if not math.isfinite(logs.get("loss", 0)):  # nothing of this has been saved yet
            raise FloatingPointError(f"the loss is {logs['loss']}: try a smaller --lr")

    def on_save(self, args, state, control, model, **_):
        if state.is_world_process_zero and self.prompt is not None:
            ids = torch.as_tensor(self.prompt, device=args.device)
            n = min(60, model.model.config.max_length - len(ids))
            new = generate(model.model, ids[None], n, temperature=0.8, top_k=50)[0]
            texts = self.tokenizer.decode(ids.tolist()), self.tokenizer.decode(new)
            print(f"step {state.global_step:,}: {' | '.join(texts)!r}", flush=True)


def newest_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is complete, None if there is none."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: -int(path.name[11:])):
        try:
            json.loads((path / "trainer_state.json").read_text("utf-8"))  # Trainer's last file
            return str(path)
        except (OSError, ValueError):
            continue
    return None


def run(options: Namespace) -> float:
    """Train as the options say; return the validation loss.

    A run that was stopped goes on from its newest checkpoint, with any number of processes.
    Raises: ValueError for texts, sizes or a folder that do not fit; OSError if the disk is full;
        FloatingPointError if the loss is not finite.
    """
    # The other processes wait while the first one makes tokens of a large text.
    state = PartialState(cpu=profile.device().type == "cpu", timeout=timedelta(days=1))
    (options.out / "run").mkdir(parents=True, exist_ok=True)
    if not state.is_main_process:
        return _run(options, state, options.out / "run")
    try:
        with FileLock(options.out / "run" / "lock", timeout=0):
            return _run(options, state, options.out / "run")
    except Timeout:
        raise ValueError(f"another run is at work in {options.out}: give another --out") from None


def _run(options: Namespace, state: PartialState, work: Path) -> float:
    n = state.num_processes
    if state.device.type == "cpu" and (options.fsdp or options.precision == "fp16"):
        raise ValueError("--fsdp and --precision fp16 need GPUs")
    size = plan.micro_batch(options, n)
    with state.main_process_first():
        paths, length = [Path(name) for name in options.text], options.context + 1
        learned = work / "tokenizer.json"
        if not options.tokenizer and not learned.exists():
            texts = tokens.read_texts(paths, options.field)
            tokens.train_tokenizer(texts, options.vocab, options.model).save(str(learned))
        tokenizer = tokens.read_tokenizer(options.tokenizer or learned, options.model)
        _check_options(options, work / "options.json", tokenizer.to_str())
        end, folder = tokens.end_id(tokenizer, options.model), work / "tokens"
        rows = tokens.make_windows(paths, options.field, tokenizer, end, length, folder)
    at = min(max(1, round((1 - options.valid) * len(rows))), len(rows) - 1)
    masked = tokenizer if options.model == "bert" else None
    train = Windows(rows.select(range(at)), options.seed, options.steps * options.batch, masked)
    valid = Windows(rows.select(range(at, len(rows))), options.seed, VALIDATION, masked)

    config = plan.new_config(options, tokens.n_ids(tokenizer))
    state.print(plan.make_plan(config, options, n).text(at * length))
    profile.set_seed(options.seed)
    model = WithLoss(plan.new_model(config))
    given = {"train_dataset": train, "eval_dataset": valid}
    trainer = WindowTrainer(model, _arguments(options, size, n), **given)
    writes = options.model == "gpt" and not options.fsdp
    prompt = valid[0]["input_ids"][: min(20, options.context // 2)] if writes else None
    trainer.add_callback(Report(options.seed, prompt, tokenizer))
    trainer.train(newest_checkpoint(work / "checkpoints"))

    weights = trainer.accelerator.get_state_dict(trainer.model)
    loss = trainer.evaluate()["eval_loss"]
    if state.is_main_process:
        whole = WithLoss(plan.new_model(config))
        whole.load_state_dict(weights)
        export(whole.model, tokenizer, options, loss)
        print(f"validation loss {loss:.3f} nats a token; the model is in {options.out}")
    return loss


def _arguments(options: Namespace, size: int, processes: int) -> TrainingArguments:
    steps = {f"{name}_strategy": "steps" for name in ("logging", "eval", "save")}
    steps |= {f"{name}_steps": options.save_every for name in ("logging", "eval", "save")}
    arguments = TrainingArguments(
        str(options.out / "run" / "checkpoints"),
        max_steps=options.steps,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=options.batch // (size * processes),
        average_tokens_across_devices=True,
        learning_rate=options.lr,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_steps=options.steps // 20 if options.warmup is None else options.warmup,
        weight_decay=options.weight_decay,
        adam_beta2=0.95,
        bf16=options.precision == "bf16",
        fp16=options.precision == "fp16",
        seed=options.seed,
        use_cpu=PartialState().device.type == "cpu",
        **steps,
        save_total_limit=2,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        ddp_find_unused_parameters=options.model == "bert",  # its next-sentence head
        report_to=[name for name in ("tensorboard", "wandb") if find_spec(name)],
        disable_tqdm=True,
        log_level="error",
    )
    # One process, one GPU, where Trainer would take all that it sees, with nn.DataParallel.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _check_options(options: Namespace, path: Path, tokenizer: str) -> None:
    """Note the options of a run; ValueError if the run in the folder was begun with others."""
    now = {name: getattr(options, name) for name in KEPT}
    now["text"] = [f"{name} of {Path(name).stat().st_size:,} bytes" for name in options.text]
    now["tokenizer"] = hashlib.sha256(tokenizer.encode()).hexdigest()[:8]
    try:
        begun = json.loads(path.read_text("utf-8")) if path.exists() else now
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): remove it") from error
    if other := [name for name in now if begun.get(name) != now[name]]:
        named = ", ".join(f"--{n.replace('_', '-')} {begun.get(n)}, not {now[n]}" for n in other)
        raise ValueError(f"{options.out} holds a run with {named}: give another --out")
    path.write_text(json.dumps(now, indent=1), "utf-8")


def export(model: nn.Module, tokenizer: Tokenizer, options: Namespace, loss: float) -> None:
    """Write model, tokenizer and README, as Transformers reads them in versions 4 and 5."""
    out, bert = options.out, options.model == "bert"
    if bert:
        special = dict(
            zip(("pad", "unk", "cls", "sep", "mask"), tokens.SPECIALS["bert"], strict=True)
        )
        ids = {"pad_token_id": tokenizer.token_to_id("[PAD]")}
        around = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        pair = "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0"
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", pair, around)
    else:
        end = tokens.end_id(tokenizer, options.model)
        special = dict.fromkeys(("bos", "eos", "pad"), tokenizer.id_to_token(end))
        ids = {f"{name}_token_id": end for name in special}
    pretrained.save(model, out, **ids)
    tokenizer.save(str(out / "tokenizer.json"))
    about = {f"{name}_token": token for name, token in special.items()}
    about["clean_up_tokenization_spaces"] = False
    # No segments: BERT has seen only the first one, and GPT-2 would take them for tokens.
    about["model_input_names"] = ["input_ids", "attention_mask"]
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": options.context}
    (out / "tokenizer_config.json").write_text(json.dumps(about, indent=2), "utf-8")
    readme = f"A {options.model.upper()}, trained by `python -m pretrain` on {options.text}, "
    readme += f"validation loss {loss:.4f} nats a token; for `from_pretrained` of Transformers.\n"
    (out / "README.md").write_text(readme, "utf-8", "replace")
