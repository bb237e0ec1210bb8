"""Byte-level BPE on the Penn Treebank against `tokenizers` (Rust): training and encoding.

Both sides get the same lines, in one process, by turns. Before anything is timed, merges, ids and
vocabulary are compared: a fast wrong answer is not a result. `tokenizers` trains and encodes a
batch on all cores, ours on one; both encode a single text on one. Each encoding starts from a
tokenizer just built, so that no cache is warm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers import __version__ as peer_version

from support.text.bpe import BPETokenizer

VOCAB_SIZE = 8192


def train_peer(lines: list[str]) -> Tokenizer:
    """Return what `tokenizers` learns from the lines, set up as GPT-2's tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run(data_dir: Path, repeats: int = 5) -> list[dict[str, Any]]:
    """Return one row a kind of work, with a value a repeat for each side.

    `target` is how many times as fast as the peer ours is to be; 1/1.3 allows 1.3 times its time.
    Raises: AssertionError if the two sides differ in merges, vocabulary or ids.
    """
    text = (data_dir / "ptb" / "ptb.train.txt").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    megabytes = len(text.encode()) / 1e6
    ours, peer = BPETokenizer.train(lines, VOCAB_SIZE), train_peer(lines)
    peer_json = peer.to_str()
    merges = [tuple(merge) for merge in json.loads(peer_json)["model"]["merges"]]
    assert ours.vocab == peer.get_vocab(), "vocabulary differs from that of tokenizers"
    assert ours.merges == merges, "merges differ from those of tokenizers"
    assert ours.encode(text) == peer.encode(text).ids, "ids differ from tokenizers"

    names = ("train", "text", "lines", "batch")
    values: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}

    def keep(name: str, ours_work: Callable[[], object], peer_work: Callable[[], object]) -> None:
        for results, work in zip(values[name], (ours_work, peer_work), strict=True):
            taken = seconds(work)
            results.append(taken if name == "train" else megabytes / taken)

    for _ in range(repeats):
        keep("train", lambda: BPETokenizer.train(lines, VOCAB_SIZE), lambda: train_peer(lines))
        for name in names[1:]:
            a, b = BPETokenizer(ours.vocab, ours.merges), Tokenizer.from_str(peer_json)
            ours_work, peer_work = {
                "text": (lambda a=a: a.encode(text), lambda b=b: b.encode(text).ids),
                "lines": (
                    lambda a=a: [a.encode(line) for line in lines],
                    lambda b=b: [b.encode(line).ids for line in lines],
                ),
                "batch": (
                    lambda a=a: [a.encode(line) for line in lines],
                    lambda b=b: [encoding.ids for encoding in b.encode_batch(lines)],
                ),
            }[name]
            keep(name, ours_work, peer_work)

    works = {
        "train": f"BPE, train to {VOCAB_SIZE:,} on PTB train ({len(lines):,} lines)",
        "text": f"BPE, encode PTB train as one text ({megabytes:.1f} MB)",
        "lines": "BPE, encode PTB train line by line, one call each",
        "batch": "BPE, encode PTB train in one batch of lines (peer on all cores)",
    }
    return [
        {
            "work": works[name],
            "unit": "s" if name == "train" else "MB/s",
            "ours": values[name][0],
            "peer_name": f"tokenizers {peer_version}",
            "peer": values[name][1],
            "higher_is_better": name != "train",
            "target": 1 / 1.3 if name == "train" else 2.0,
        }
        for name in names
    ]
