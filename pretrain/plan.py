"""What a run will cost: memory, operations, and the time that they take on a card."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from pretrain import tokens
from support.models.bert import Bert, BertConfig, BertForPretraining
from support.models.gpt import GPT, GPTConfig

# Products of matrices in 16 bits, in FLOP a second, and bytes of memory, as the makers say.
CARDS = {
    "t4": (65e12, 16e9),
    "l4": (121e12, 24e9),
    "v100": (125e12, 32e9),
    "a100": (312e12, 80e9),
    "h100": (989e12, 80e9),
}
USED = 0.4  # the fraction of its peak that a card reaches in training, as a rule of thumb
SAMPLE = 500  # pieces of text, 4 MB, in which --plan counts tokens


@dataclass(frozen=True)
class Plan:
    """What a run costs, on paper: memory in bytes of each device, and work in FLOP.

    Sources: 16 bytes a parameter (weights, gradients, Adam's two averages in float32), Rajbhandari
    et al. 2020, 3.1; activations, Korthikanti et al. 2022, eq. 2, without the attention scores,
    which are not stored; 6 FLOP a parameter and token, Kaplan et al. 2020, 2.1; 20 tokens a
    parameter, Hoffmann et al. 2022.
    """

    parameters: int
    tokens: int
    state_bytes: float
    activation_bytes: float
    flop: float

    def text(self, n_tokens: int, card: str | None = None, devices: int = 1) -> str:
        """Return the plan in lines, for n_tokens in the text; on a card, with time and a note."""
        state, activations = self.state_bytes / 1e9, self.activation_bytes / 1e9  # in GB
        text = (
            f"{self.parameters:,} parameters; {self.tokens:,} tokens to read, "
            f"{self.tokens / n_tokens:.1f} passes over the text, and {20 * self.parameters:,} by "
            f"Chinchilla's rule\nmemory of each device: {state:.2f} GB for weights, gradients and "
            f"optimizer, about {activations:.2f} GB for activations\nwork: {self.flop:.2e} FLOP"
        )
        if card:
            speed, memory = CARDS[card]
            seconds = round(self.flop / (speed * USED * devices))
            text += f", about {timedelta(seconds=seconds)} (h:min:s) on {devices} x {card}"
            if state + activations > memory / 1e9:
                text += "\nnote: that does not fit: take a smaller --micro-batch, or --fsdp"
        return text


def make_plan(config: GPTConfig | BertConfig, options: Namespace, devices: int) -> Plan:
    """Return the plan of a run on so many devices."""
    d, depth, context = config.d_model, config.n_layers, config.max_length
    with torch.device("meta"):
        parameters = sum(p.numel() for p in new_model(config).parameters())
    seen = options.steps * options.batch * context
    half = options.precision != "no"
    # The residual stream and what the norms keep stay in float32; the matrices' inputs do not.
    layer = d * (2 * 4 + 15 * 2 if half else 17 * 4)
    predicted = 0.15 if isinstance(config, BertConfig) else 1
    logits = predicted * config.vocab_size * (2 + 4 + 4 if half else 4 + 4)
    activations = micro_batch(options, devices) * context * (depth * layer + logits)
    copies = 2 * parameters if half and not options.fsdp else 0  # of the weights in 16 bits
    return Plan(
        parameters=parameters,
        tokens=seen,
        state_bytes=16 * parameters / (devices if options.fsdp else 1),
        activation_bytes=activations + copies,
        # Position embeddings are looked up; so are the tokens', but they are the last matrix, too.
        flop=seen * (6 * (parameters - context * d) + 12 * depth * d * context),
    )


def say_plan(options: Namespace) -> Plan:
    """Print and return what a run will cost; reads the beginning of the texts, writes nothing."""
    paths = [Path(name) for name in options.text]
    sample = list(islice(tokens.read_texts(paths, options.field), SAMPLE))
    if options.tokenizer:
        tokenizer = tokens.read_tokenizer(options.tokenizer, options.model)
    else:
        tokenizer = tokens.train_tokenizer(sample, options.vocab, options.model)
    read = sum(len((piece or "").encode()) for piece in sample)
    if not read:
        raise ValueError(f"there is no text in {', '.join(options.text)}")
    # A packed text is about three times as large as its file.
    size = sum(path.stat().st_size * (3 if path.suffix == ".gz" else 1) for path in paths)
    n_tokens = round(len(tokens.encode(sample, tokenizer, [0])) * size / read)
    plan = make_plan(new_config(options, tokens.n_ids(tokenizer)), options, options.devices)
    print(f"{size:,} bytes of text, about {n_tokens:,} tokens")
    print(plan.text(round((1 - options.valid) * n_tokens), options.card, options.devices))
    return plan


def micro_batch(options: Namespace, devices: int) -> int:
    """Return how many windows a device takes at once; ValueError if the batch does not divide."""
    size = options.micro_batch or max(1, options.batch // devices)
    if options.batch % (size * devices):
        given = f"--batch {options.batch}, --micro-batch {size} and {devices} processes"
        raise ValueError(f"the batch is not a multiple of the rest: {given}")
    return size


def new_config(options: Namespace, vocab_size: int) -> GPTConfig | BertConfig:
    """Return the sizes of the model that the options ask for."""
    sizes = {"d_model": options.width, "n_layers": options.layers, "n_heads": options.heads}
    sizes |= {"max_length": options.context, "d_ff": 4 * options.width}
    sizes |= {"dropout": options.dropout, "attention_dropout": options.dropout}
    return (GPTConfig if options.model == "gpt" else BertConfig)(vocab_size, **sizes)


def new_model(config: GPTConfig | BertConfig) -> nn.Module:
    """Return a GPT or a BERT with initial weights."""
    return GPT(config) if isinstance(config, GPTConfig) else BertForPretraining(Bert(config))
