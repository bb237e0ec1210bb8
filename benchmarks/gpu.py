"""GPT-2 and BERT-base shapes on a GPU: tokens a second and share of the card's own peak.

    python -m benchmarks.gpu [--repeats N] [--small]

Training steps in bfloat16 with torch.compile, on random tokens; kept as results/gpu.json with the
machine named. --small runs a tiny shape on any device and keeps nothing: a check of this program.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import date
from pathlib import Path
from statistics import median

import torch
from torch.utils._pytree import tree_map

from support import profile
from support.models.bert import Bert, BertConfig, BertForPretraining
from support.models.gpt import GPT, GPTConfig
from support.text.masking import PretrainingBatch

STEPS = 10
MASKED = 0.15


def main() -> None:
    """Measure both models and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    device = profile.device()
    if device.type != "cuda" and not options.small:
        raise SystemExit("no CUDA device here; --small runs a tiny shape on the CPU")
    peak = peak_flops(device, 512 if options.small else 8192)
    rows = []
    for name, model, batch, loss_fn, tokens in (gpt2(options.small), bert_base(options.small)):
        model, batch = model.to(device), tree_map(lambda x: x.to(device), batch)
        getattr(model, "bert", model).compile()  # in place: the names of the weights stay
        rates = measure(model, lambda m=model, b=batch, f=loss_fn: f(m, b), tokens, options.repeats)
        n_weights = sum(weight.numel() for weight in model.parameters())
        share = 6 * n_weights * median(rates) / peak
        rows.append({"work": name, "tokens/s": rates, "parameters": n_weights, "share": share})
        print(f"{name}: {median(rates):,.0f} tokens/s, {share:.1%} of the measured peak")
    if not options.small:
        machine = {
            "gpu": torch.cuda.get_device_name(),
            "bfloat16 TFLOP/s": round(peak / 1e12),
            "torch": torch.__version__,
        }
        report = {"machine": machine, "date": date.today().isoformat(), "rows": rows}
        path = Path(__file__).parent / "results" / "gpu.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def gpt2(small: bool):
    """Return name, model, batch, loss and tokens of GPT-2's smallest shape, 124 M parameters."""
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_length": 64} if small else {}
    config = GPTConfig(50_257, **sizes, dropout=0.0, attention_dropout=0.0)
    batch_size = 2 if small else 16
    ids = torch.randint(config.vocab_size, (batch_size, config.max_length + 1))
    tokens = batch_size * config.max_length

    def loss_fn(model, ids):
        logits = model(ids[:, :-1]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())

    return "GPT-2", GPT(config), ids, loss_fn, tokens


def bert_base(small: bool):
    """Return the same for BERT-base, 15 % of the tokens masked, no padding."""
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 128} if small else {}
    config = BertConfig(30_522, **sizes)
    rows, length = (2, 64) if small else (64, 512)
    ids = torch.randint(1000, config.vocab_size, (rows, length))
    n_masked = int(MASKED * length)
    columns = torch.stack([torch.randperm(length)[:n_masked].sort().values for _ in range(rows)])
    positions = (columns + length * torch.arange(rows)[:, None]).flatten()
    batch = PretrainingBatch(
        ids=ids,
        segments=(torch.arange(length) >= length // 2).long().expand(rows, -1).contiguous(),
        lengths=torch.full((rows,), length),
        positions=positions,
        targets=ids.flatten()[positions],
        is_next=torch.randint(2, (rows,)),
    )
    model = BertForPretraining(Bert(config))
    return "BERT-base", model, batch, lambda model, batch: sum(model(batch)), rows * length


def measure(model, loss, tokens: int, repeats: int) -> list[float]:
    """Return tokens a second of repeats times STEPS training steps, after as many to warm up."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    device = next(model.parameters()).device.type
    rates = []
    for _ in range(repeats + 1):
        wait()
        start = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                value = loss()
            value.backward()
            optimizer.step()
        wait()
        rates.append(STEPS * tokens / (time.perf_counter() - start))
    return rates[1:]


def peak_flops(device: torch.device, size: int) -> float:
    """Return the best bfloat16 matrix-product speed of the device, FLOP/s."""
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(20):
        wait()
        start = time.perf_counter()
        a @ a
        wait()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def wait() -> None:
    """Wait until the GPU has done what was asked of it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
