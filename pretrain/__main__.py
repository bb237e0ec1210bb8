"""A GPT or a BERT from a text of one's own: python -m pretrain --text FILE --out FOLDER

On one CPU or GPU; on many under torchrun or `accelerate launch`. The folder can be loaded by the
Transformers library. --plan says what a run will cost, and does not train.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError

from pretrain import plan, tokens
from support import profile

SAMPLE = 500  # pieces of text, 4 MB, in which --plan counts tokens


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command; exits with a message for values that make no sense."""
    parser = argparse.ArgumentParser(prog="python -m pretrain", description=__doc__)
    add = parser.add_argument
    kinds = "text or .jsonl, each also .gz; or shakespeare, wikitext2, ptb"
    add("--text", nargs="+", required=True, metavar="FILE", help=kinds)
    add("--out", type=Path, required=True, help="a folder for tokens, checkpoints and the model")
    add("--model", choices=tokens.SPECIALS, default="gpt")
    add("--field", default="text", help="the field of JSON lines that holds the text")
    add("--tokenizer", type=Path, help="a tokenizer.json; without it one is learned")
    add("--vocab", type=_from(1), default=1_024, help="size of a learned vocabulary")
    add("--layers", type=_from(1), default=4)
    add("--width", type=_from(1), default=128)
    add("--heads", type=_from(1), default=4)
    add("--context", type=_from(3), default=128, help="tokens of a window")
    add("--dropout", type=_from(0, float, below=1), default=0.0)
    add("--steps", type=_from(1), default=600)
    add("--batch", type=_from(1), default=32, help="windows of a step, of all processes together")
    add("--micro-batch", type=_from(1), help="windows that a device takes at once; default: all")
    add("--lr", type=_from(0, float), default=2e-3)
    add("--warmup", type=_from(0), help="steps; default: a twentieth")
    add("--weight-decay", type=_from(0, float), default=0.1)
    valid = "fraction of the text, its end, for validation"
    add("--valid", type=_from(0, float, below=1), default=0.05, help=valid)
    add("--save-every", type=_from(1), default=50, help="steps")
    add("--precision", choices=("no", "bf16", "fp16"), help="default: the best of the device")
    add("--recompute", action="store_true", help="keep fewer activations, compute them again")
    fsdp = "with --plan: divide the weights; a run does under `accelerate launch --use_fsdp`"
    add("--fsdp", action="store_true", help=fsdp)
    add("--seed", type=_from(0), default=0)
    add("--plan", action="store_true", help="say what the run costs, and do not train")
    add("--card", choices=plan.CARDS, help="with --plan: on this card, on paper")
    add("--devices", type=_from(1), default=1, help="with --plan: so many of them")
    options = parser.parse_args(arguments)
    if options.width % options.heads:
        parser.error(f"--width {options.width} is not a multiple of --heads {options.heads}")
    if options.precision is None and options.card:
        options.precision = "fp16" if options.card in ("t4", "v100") else "bf16"
    elif options.precision is None and profile.device().type == "cuda":
        # Older cards only imitate bfloat16, slowly, but have float16.
        new = torch.cuda.get_device_capability() >= (8, 0)
        options.precision = "bf16" if new else "fp16"
    options.precision = options.precision or "no"
    options.fsdp |= os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    return options


def _from(least: int, kind: type = int, below: float = math.inf) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not least <= value < below:
            end = "" if below == math.inf else f" and less than {below}"
            raise argparse.ArgumentTypeError(f"must be at least {least}{end}, got {text}")
        return value

    return number


def say_plan(options: argparse.Namespace) -> plan.Plan:
    """Print and return what a run will cost; reads 4 MB of the texts, and writes nothing.

    Raises:
        ValueError: for texts that cannot be read, or a precision that the device does not have.
    """
    device = profile.device()
    if options.precision == "fp16" and device.type == "cpu" and not options.card:
        raise ValueError("--precision fp16 needs a GPU: name one by --card")
    with TemporaryDirectory() as folder:
        paths = [tokens.text_file(name, Path(folder)) for name in options.text]
        texts = tokens.read_texts(paths, options.field)
        sample = list(islice(texts, SAMPLE))
        whole = next(texts, "the end") == "the end"
        # A packed text is about three times as large as its file.
        sizes = [path.stat().st_size * (3 if path.suffix == ".gz" else 1) for path in paths]
    if options.tokenizer:
        tokenizer = tokens.read_tokenizer(options.tokenizer, options.model)
    else:
        tokenizer = tokens.train_tokenizer(sample, options.vocab, options.model)
    ids, n_bytes = tokens.encode(sample, tokenizer, [tokens.end_id(tokenizer, options.model)])
    if not n_bytes:
        raise ValueError(f"there is no text in {', '.join(options.text)}")
    n_tokens = len(ids) if whole else round(len(ids) * sum(sizes) / n_bytes)
    about = "" if whole else "about "
    print(f"{about}{n_bytes if whole else sum(sizes):,} bytes of text, {about}{n_tokens:,} tokens")
    speed, memory = plan.CARDS.get(options.card, (None, math.inf))
    speed = speed or plan.measured_speed(device, options.precision)
    config, n = plan.new_config(options, tokens.n_ids(tokenizer)), options.devices
    n_tokens -= round(options.valid * n_tokens)
    costs = plan.make_plan(config, options, n_tokens, n, speed * plan.USED)
    print(costs.text(memory, f"{n} x {options.card or f'this {device.type}'}"))
    return costs


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a mistake by the caller gives a message, and no trace of the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack characters of a sample or a name
            stream.reconfigure(errors="replace")
    options = read_options(arguments)
    try:
        if options.plan:
            say_plan(options)
        else:
            from pretrain.train import run  # it loads the libraries, which takes seconds

            run(options)
    except (ValueError, FloatingPointError) as error:
        sys.exit(f"pretrain: {error}")
    except (OSError, SafetensorError) as error:
        sys.exit(f"pretrain: {error}; what {options.out} had saved before is still there")
    except torch.cuda.OutOfMemoryError as error:
        sys.exit(f"pretrain: {error}\nTake a smaller --micro-batch, or --recompute.")
    except KeyboardInterrupt:
        sys.exit("pretrain: stopped; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    main()
