"""What a run will cost: memory, operations, time."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from dataclasses import dataclass

import torch
from torch import nn

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


@dataclass(frozen=True)
class Plan:
    """What a run costs, on paper: memory in bytes of each device, work in FLOP, time in seconds.

    Sources: 16 bytes a parameter (weights, gradients, Adam's two averages in float32), Rajbhandari
    et al. 2020, section 3.1; activations, after Korthikanti et al. 2022, eq. 2, without the
    attention scores, which are not stored; 6 FLOP a parameter and token, Kaplan et al. 2020,
    section 2.1; 20 tokens a parameter, Hoffmann et al. 2022; four passes over a text, Muennighoff
    et al. 2023.
    """

    parameters: int
    tokens: int
    passes: float
    state_bytes: float
    activation_bytes: float
    flop: float
    seconds: float
    chinchilla_tokens: int

    def text(self, memory: float, where: str) -> str:
        """Return the plan in lines, with what speaks against it on devices with so many bytes."""
        needed = self.state_bytes + self.activation_bytes
        lines = [
            f"{self.parameters:,} parameters; {self.tokens:,} tokens to read, {self.passes:.1f} "
            f"passes over the text ({self.chinchilla_tokens:,} by Chinchilla's rule)",
            f"memory of each device: {_bytes(self.state_bytes)} for weights, gradients and "
            f"optimizer, about {_bytes(self.activation_bytes)} for activations",
            f"work: {self.flop:.2e} FLOP, about {duration(self.seconds)} on {where}",
        ]
        if needed > memory:
            lines.append(
                f"note: this run needs {_bytes(needed)} of a device's {_bytes(memory)}: take a "
                "smaller --micro-batch, --recompute or --fsdp"
            )
        if self.passes > 4:
            lines.append(
                f"note: this run reads the text {self.passes:.1f} times: beyond about 4 it learns "
                "little"
            )
        if self.tokens < self.chinchilla_tokens / 2:
            lines.append(
                f"note: this run reads {self.tokens / self.parameters:.1f} tokens a parameter: by "
                "Chinchilla's rule of 20 a smaller model would become better in the same time"
            )
        return "\n".join(lines)


def make_plan(
    config: GPTConfig | BertConfig, options: Namespace, n_tokens: int, devices: int, speed: float
) -> Plan:
    """Return the plan of a run: n_tokens in the text, speed in FLOP a second of each device."""
    d, depth, context = config.d_model, config.n_layers, config.max_length
    with torch.device("meta"):
        parameters = sum(p.numel() for p in new_model(config).parameters())
    seen = options.steps * options.batch * context
    # The positions' table is looked up, and so is the tokens', but that is the last matrix as well.
    flop = seen * (6 * (parameters - context * d) + 12 * depth * d * context)
    flop *= 4 / 3 if options.recompute else 1
    half = options.precision != "no"
    # The residual stream and what the norms keep stay in float32; the matrices' inputs do not.
    layer = d * (2 * 4 + 15 * 2 if half else 17 * 4)
    kept = depth * layer if not options.recompute else depth * 4 * d + layer
    predicted = 0.15 if isinstance(config, BertConfig) else 1
    logits = predicted * config.vocab_size * (2 + 4 + 4 if half else 4 + 4)
    copies = 2 * parameters if half and not options.fsdp else 0  # of the weights in 16 bits
    return Plan(
        parameters=parameters,
        tokens=seen,
        passes=seen / n_tokens,
        state_bytes=16 * parameters / (devices if options.fsdp else 1),
        activation_bytes=micro_batch(options, devices) * context * (kept + logits) + copies,
        flop=flop,
        seconds=flop / (speed * devices),
        chinchilla_tokens=20 * parameters,
    )


def micro_batch(options: Namespace, devices: int) -> int:
    """Return how many windows a device takes at once; ValueError if the batch does not divide."""
    size = options.micro_batch or max(1, options.batch // devices)
    if options.batch % (size * devices):
        raise ValueError(
            f"--batch {options.batch} is not a multiple of --micro-batch {size} "
            f"times {devices} processes"
        )
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


def layers(model: nn.Module) -> nn.ModuleList:
    """Return the Transformer blocks of a model."""
    return model.layers if isinstance(model, GPT) else model.bert.encoder.layers


def measured_speed(device: torch.device, precision: str) -> float:
    """Return what a device reaches in products of large matrices here, in FLOP a second."""
    n = 4096 if device.type == "cuda" else 1024
    kind = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    a = torch.randn(n, n, device=device, dtype=kind)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 1e6 else f"{seconds / 86400:.0f} days"
