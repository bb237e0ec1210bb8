"""The GPT of the chapter with its settings, and as many steps as fit."""

from __future__ import annotations

import math
import time
from itertools import islice

import torch
from torch import nn
from torch.nn import functional as F

from support.models.gpt import GPT, GPTConfig
from support.text.vocab import Vocab
from support.training import warmup_cosine

LENGTH, WINDOWS, LR = 24, 20, 0.0025


def train(sentences, seconds):
    """Return the log-probability, in nats, of a GPT trained for that many processor seconds."""
    end = time.process_time() + 0.99 * seconds - 0.2  # what is left is for the last step
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first = " ".join(islice(sentences, 50_000)).split()
    vocab = Vocab(["<unk>", *sorted({*first})])
    vocab.set_default_index(0)
    text = torch.tensor(vocab(first))
    sizes = {"d_model": 128, "n_layers": 2, "n_heads": 4, "max_length": LENGTH}
    model = GPT(GPTConfig(len(vocab), dropout=0.0, attention_dropout=0.0, **sizes))
    nn.init.normal_(model.tokens.weight, std=0.02 * math.sqrt(768 / 128))
    optimizer = torch.optim.AdamW(model.parameters(), LR, (0.9, 0.99))
    schedule = warmup_cosine(50, 1000)  # in thousandths of the time
    start, position = time.process_time(), 0
    while (now := time.process_time()) < end:
        if position + WINDOWS * LENGTH >= len(text):  # the next sentences
            more = torch.tensor(vocab(" ".join(islice(sentences, 10_000)).split()))
            text, position = torch.cat([text[position:], more]), 0
        ids = text[position : position + WINDOWS * LENGTH + 1]
        position += WINDOWS * LENGTH
        logits = model(ids[:-1].view(WINDOWS, LENGTH))
        loss = F.cross_entropy(logits.flatten(0, 1), ids[1:])
        optimizer.param_groups[0]["lr"] = LR * schedule(int(1000 * (now - start) / (end - start)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()

    @torch.no_grad()
    def log_probability(sentence):
        words = sentence.split()
        ids = torch.tensor([vocab([".", *words])])  # (1, T + 1)
        log_p = model(ids[:, :-1]).double().log_softmax(-1)  # (1, T, V)
        # An unknown word has the probability of "<unk>", times that of its letters and its end.
        letters = sum(len(word) + 1 for word in words if word not in vocab)
        return log_p.gather(-1, ids[:, 1:, None]).sum().item() - letters * math.log(27)

    return log_probability
