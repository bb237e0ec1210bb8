"""BERT and GPT: training against d2l and Transformers, share of the peak, generation, data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
from torch import nn

from benchmarks.measure import alone, alternate, matmul_gflops, row, seconds
from support.models.bert import Bert, BertConfig, BertForPretraining
from support.models.gpt import GPT, GPTConfig, generate
from support.text.masking import Documents, PretrainingBatch, pretraining_batches

BATCH, LENGTH, MOST_MASKED = 512, 64, 10
WIKITEXT2_WORDS = 20_256  # the vocabulary of WikiText-2's train split, words seen five times
BERT_SIZES = {"d_model": 128, "n_layers": 2, "n_heads": 2, "d_ff": 256, "dropout": 0.2}
GPT_VOCABULARY = 2048
# The share of the peak that nanoGPT's code reaches on two cores of a machine like this one.
GPTS = [
    ({"n_layers": 4, "d_model": 128, "n_heads": 4}, 128, 32, 0.53),
    ({"n_layers": 6, "d_model": 384, "n_heads": 6}, 256, 8, 0.75),
]
NEW_TOKENS = 256


def run(data_dir: Path, repeats: int = 5) -> list[dict]:
    """Return one row of measurements for each kind of work; see benchmarks/run.py for the keys."""
    text = (data_dir / "wiki.valid.tokens").read_text(encoding="utf-8")
    return [
        *bert_training(text, repeats),
        bert_data(text, repeats),
        *gpt_training(repeats),
        *generation(repeats),
    ]


def bert_training(text: str, repeats: int) -> Iterator[dict]:
    """Pairs a second of whole training steps: the same pairs, sizes and dropout on both sides."""
    documents = Documents.from_text(text.lower(), min_freq=5)
    batch = next(iter(pretraining_batches(documents, BATCH, LENGTH)(0)))
    precise, fast = ours(batch, torch.float32), ours(batch, torch.bfloat16)
    what = "BERT training, 2 layers x 128, 64 tokens"
    slow = d2l_bert(batch)
    for work, kind, target in (precise, "float32", 1.4), (fast, "bfloat16", 2.0):
        values = alternate(work, slow, repeats)
        yield row(f"{what}, {kind}", "pairs/s", values, "d2l 1.0.3, float32", True, target)
    library = library_bert(batch)
    values = alternate(precise, library, repeats)
    yield row(f"{what}, float32", "pairs/s", values, "Transformers, float32", True, 1.4)


def rate(step: Callable[[], None], items: int) -> Callable[[], float]:
    """Return a function that takes a step and returns the items a second, warmed up once."""
    step()
    return lambda: items / seconds(step)


def ours(batch: PretrainingBatch, kind: torch.dtype) -> Callable[[], float]:
    """Return a measurement of our training step."""
    config = BertConfig(WIKITEXT2_WORDS, **BERT_SIZES, max_length=LENGTH, attention_dropout=0.2)
    model = BertForPretraining(Bert(config))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", kind, enabled=kind != torch.float32):
            loss = sum(model(batch))
        loss.backward()
        optimizer.step()

    return rate(step, BATCH)


def d2l_bert(batch: PretrainingBatch) -> Callable[[], float]:
    """Return a measurement of the training step of d2l's chapter, on the same pairs."""
    from d2l import torch as d2l

    ids, segments, positions, weights, labels = padded(batch)
    net = d2l.BERTModel(WIKITEXT2_WORDS, 128, 256, 2, 2, 0.2, max_len=LENGTH)
    loss = nn.CrossEntropyLoss(reduction="none")
    net(ids, segments, batch.lengths, positions)  # its layers take their sizes from data
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        total = d2l._get_batch_loss_bert(
            net, loss, WIKITEXT2_WORDS, ids, segments, batch.lengths, positions, weights, labels,
            batch.is_next,
        )[2]  # fmt: skip
        total.mean().backward()
        optimizer.step()

    return rate(step, BATCH)


def library_bert(batch: PretrainingBatch) -> Callable[[], float]:
    """Return a measurement of a training step of the Transformers library, on the same pairs."""
    from transformers import BertConfig as LibraryConfig
    from transformers import BertForPreTraining

    ids, segments, positions, weights, labels = padded(batch)
    config = LibraryConfig(
        vocab_size=WIKITEXT2_WORDS,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2,
    )
    model = BertForPreTraining(config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    mask = (torch.arange(LENGTH) < batch.lengths[:, None]).long()
    wanted = torch.full((len(ids), LENGTH), -100)
    real = weights > 0
    wanted[torch.nonzero(real)[:, 0], positions[real]] = labels[real]

    def step() -> None:
        optimizer.zero_grad()
        following = 1 - batch.is_next
        model(ids, mask, segments, labels=wanted, next_sentence_label=following).loss.backward()
        optimizer.step()

    return rate(step, BATCH)


def padded(batch: PretrainingBatch) -> tuple[torch.Tensor, ...]:
    """Return a batch in d2l's form: LENGTH tokens and MOST_MASKED predictions in every row."""
    extra = LENGTH - batch.ids.shape[1]
    ids = nn.functional.pad(batch.ids, (0, extra))
    segments = nn.functional.pad(batch.segments, (0, extra))
    row_, column = batch.positions // batch.ids.shape[1], batch.positions % batch.ids.shape[1]
    counts = torch.bincount(row_, minlength=len(ids))
    place = torch.arange(len(row_)) - (counts.cumsum(0) - counts)[row_]
    shape = len(ids), MOST_MASKED
    positions, labels = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
    weights = torch.zeros(shape)
    positions[row_, place], labels[row_, place], weights[row_, place] = column, batch.targets, 1.0
    return ids, segments, positions, weights, labels


def bert_data(text: str, repeats: int) -> dict:
    """Pairs a second from text to tensors: an epoch of ours, and d2l's data set, made once."""
    from d2l import torch as d2l

    def our_rate() -> float:
        pairs = 0

        def work() -> None:
            nonlocal pairs
            documents = Documents.from_text(text.lower(), min_freq=5)
            pairs = sum(len(b.ids) for b in pretraining_batches(documents, BATCH, LENGTH)(0))

        return 1 / (seconds(work) / pairs)

    def d2l_rate() -> float:
        made = []

        def work() -> None:
            lines = text.split("\n")
            paragraphs = [x.strip().lower().split(" . ") for x in lines if x.count(" . ") >= 1]
            random.shuffle(paragraphs)
            made.append(d2l._WikiTextDataset(paragraphs, LENGTH))

        taken = seconds(work)
        return len(made[0]) / taken

    values = alternate(our_rate, d2l_rate, repeats)
    what = "masked-LM data from text, WikiText-2 valid"
    return row(what, "pairs/s", values, "d2l 1.0.3", True, 1.0)


def gpt_training(repeats: int) -> Iterator[dict]:
    """The share of the machine's matrix-product speed that training reaches, 6 N a token."""
    for sizes, length, batch_size, share in GPTS:
        config = GPTConfig(
            GPT_VOCABULARY, **sizes, max_length=length, dropout=0.0, attention_dropout=0.0
        )
        model = GPT(config)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        ids = torch.randint(GPT_VOCABULARY, (batch_size, length + 1))
        tokens = batch_size * length

        def step(model=model, optimizer=optimizer, ids=ids) -> None:
            optimizer.zero_grad()
            logits = model(ids[:, :-1]).flatten(0, 1)
            nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
            optimizer.step()

        measure = rate(step, tokens)
        flops = 6 * sum(weight.numel() for weight in model.parameters())
        # The peak is of the same moment: the better of one measured before and one after.
        rates, shares = [], []
        for _ in range(repeats):
            before = matmul_gflops()
            rates.append(median(measure() for _ in range(3)))
            shares.append(rates[-1] * flops / 1e9 / max(before, matmul_gflops()))
        name = f"GPT training, {sizes['n_layers']} layers x {sizes['d_model']}, {length} tokens"
        speed = f"{median(rates):,.0f} tokens/s at {flops / 6e6:.2f} M parameters, float32"
        beside = f"{speed}; nanoGPT's code reached {share} on another day, on a machine like this"
        yield alone(name, "of the peak", shares, beside)


def generation(repeats: int) -> Iterator[dict]:
    """Tokens a second of greedy generation with the cache, and without."""
    sizes, length, _, _ = GPTS[1]
    config = GPTConfig(GPT_VOCABULARY, **sizes, max_length=length + 1)
    model = GPT(config).eval()
    for batch_size in (1, 8):
        prompts = torch.zeros(batch_size, 1, dtype=torch.long)

        def speed(use_cache: bool, prompts=prompts) -> float:
            def work() -> None:
                generate(model, prompts, NEW_TOKENS, temperature=0, use_cache=use_cache)

            return prompts.shape[0] * NEW_TOKENS / seconds(work)

        values = alternate(lambda f=speed: f(True), lambda f=speed: f(False), repeats)
        what = f"generate {NEW_TOKENS} tokens, 6 layers x 384, {batch_size} at once"
        yield row(what, "tokens/s", values, "without the cache", True, 5.0)
