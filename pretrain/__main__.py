"""A GPT or a BERT from a text of one's own: python -m pretrain --text FILE --out FOLDER

On one CPU or GPU; on many under torchrun or `accelerate launch`. The folder can be loaded by the
Transformers library. --plan says what a run will cost, and does not train.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

import torch
from safetensors import SafetensorError

from pretrain import plan, tokens
from support import profile


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command; exits with a message for values that make no sense."""
    parser = argparse.ArgumentParser(prog="python -m pretrain", description=__doc__)
    add = parser.add_argument
    add("--text", nargs="+", required=True, metavar="FILE", help="text or .jsonl, each also .gz")
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
    add("--valid", type=_from(0, float, below=1), default=0.05, help="fraction for validation")
    add("--save-every", type=_from(1), default=50, help="steps")
    add("--precision", choices=("no", "bf16", "fp16"), help="default: the best of the device")
    add("--seed", type=_from(0), default=0)
    add("--plan", action="store_true", help="say what the run costs, and do not train")
    add("--card", choices=plan.CARDS, help="with --plan: on this card, on paper")
    add("--devices", type=_from(1), default=1, help="with --plan: so many of them")
    add("--fsdp", action="store_true", help="with --plan: as `accelerate launch --use_fsdp` does")
    options = parser.parse_args(arguments)
    if options.width % options.heads:
        parser.error(f"--width {options.width} is not a multiple of --heads {options.heads}")
    gpu = options.card or (profile.device().type == "cuda" and torch.cuda.get_device_name().lower())
    if options.precision is None:  # older cards only imitate bfloat16, slowly
        old = gpu and ("t4" in gpu or "v100" in gpu)
        options.precision = "fp16" if old else "bf16" if gpu else "no"
    options.fsdp |= os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    return options


def _from(least: int, kind: type = int, below: float = math.inf):
    def number(text: str) -> float:
        value = kind(text)
        if not least <= value < below:
            end = "" if below == math.inf else f" and less than {below}"
            raise argparse.ArgumentTypeError(f"must be at least {least}{end}, got {text}")
        return value

    return number


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a mistake by the caller gives a message, and no trace of the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may lack characters of a sample or a name
            stream.reconfigure(errors="replace")
    options = read_options(arguments)
    try:
        if options.plan:
            plan.say_plan(options)
        else:
            from pretrain.train import run  # it loads the libraries, which takes seconds

            run(options)
    except (ValueError, FloatingPointError) as error:
        sys.exit(f"pretrain: {error}")
    except (OSError, SafetensorError) as error:
        sys.exit(f"pretrain: {error}; what {options.out} had saved before is still there")
    except torch.cuda.OutOfMemoryError as error:
        sys.exit(f"pretrain: {error}\nTake a smaller --micro-batch.")
    except KeyboardInterrupt:
        sys.exit("pretrain: stopped; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    main()
