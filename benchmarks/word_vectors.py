"""Word vectors against d2l and gensim: examples, training speed, and quality on the same text."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.measure import alone, alternate, row, seconds
from support.data import toyworld
from support.text.vocab import Corpus
from support.vectors import fasttext, glove, word2vec
from support.vectors.word_vectors import WordVectors

DIM, WINDOW, NEGATIVES, EPOCHS = 100, 5, 5, 5
GENSIM_SAMPLE = 1e-4
GENSIM_RATES = {"default": 0.025, "best": 0.1}  # the best of 0.025, 0.05, 0.1, 0.2 on ToyWorld
D2L_BATCHES = 40
GLOVE_COST = 0.0126  # where Stanford's C program stands after ten epochs of the same text
GLOVE_SECONDS = 5.4  # its time for them on two threads of a machine like this one


def run(data_dir: Path, repeats: int = 5) -> list[dict]:
    """Return one row of measurements for each kind of work; see benchmarks/run.py for the keys."""
    text = (data_dir / "ptb" / "ptb.train.txt").read_text(encoding="utf-8")
    corpus = Corpus.from_text(text, min_freq=10)
    return [
        examples(text, repeats),
        skipgram_against_d2l(text, corpus, repeats),
        *skipgram_against_gensim(corpus, data_dir, repeats),
        *toyworld_against_gensim(),
        *glove_on_ptb(corpus, repeats),
    ]


def run_subwords(data_dir: Path, repeats: int = 5) -> list[dict]:
    """Return the row of sub-word skip-gram against plain skip-gram, both ours, one epoch of PTB."""
    text = (data_dir / "ptb" / "ptb.train.txt").read_text(encoding="utf-8")
    corpus = Corpus.from_text(text, min_freq=10)

    def subwords() -> float:
        return fasttext.train(
            corpus, dim=DIM, epochs=1, window=WINDOW, progress=False
        ).centers_per_second

    values = alternate(subwords, lambda: _train(corpus, epochs=1).centers_per_second, repeats)
    what = "sub-word skip-gram (fastText), d=100"
    return [row(what, "centers/s", values, "our skip-gram", True, 0.5)]


def d2l_with(text: str, folder: str):
    """Return d2l's module, its download replaced by the text in a folder."""
    from d2l import torch as d2l

    Path(folder, "ptb.train.txt").write_text(text, encoding="utf-8")
    d2l.download_extract = lambda name, **_: folder
    d2l.get_dataloader_workers = lambda: 0  # worker processes cost more than they save on two cores
    return d2l


def examples(text: str, repeats: int) -> dict:
    """Time from text to skip-gram examples with their noise words, ours and d2l's."""
    with TemporaryDirectory() as folder:
        d2l = d2l_with(text, folder)
        path = Path(folder, "ptb.train.txt")

        def ours():
            read = path.read_text(encoding="utf-8")
            corpus = Corpus.from_text(read, min_freq=10)
            word2vec.skipgram_examples(corpus, WINDOW, NEGATIVES, subsample=1e-4)

        values = alternate(
            lambda: seconds(ours),
            lambda: seconds(lambda: d2l.load_data_ptb(512, WINDOW, NEGATIVES)),
            repeats,
        )
    return row("read PTB, make skip-gram examples", "s", values, "d2l 1.0.3", False, 20)


def skipgram_against_d2l(text: str, corpus: Corpus, repeats: int) -> dict:
    """Center words a second: ours, and d2l's batches through the model of its chapter."""
    with TemporaryDirectory() as folder:
        d2l = d2l_with(text, folder)
        batches, vocab = d2l.load_data_ptb(512, WINDOW, NEGATIVES)
        center, context = nn.Embedding(len(vocab), DIM), nn.Embedding(len(vocab), DIM)
        parameters = [*center.parameters(), *context.parameters()]
        adam = torch.optim.Adam(parameters, lr=0.002)

        def peer() -> float:
            start, count = time.perf_counter(), 0
            for words, others, mask, label in batches:
                scores = (center(words) @ context(others).mT).squeeze(1)
                loss = F.binary_cross_entropy_with_logits(
                    scores, label.float(), weight=mask.float(), reduction="none"
                )
                adam.zero_grad()
                (loss.sum(1) / mask.sum(1)).sum().backward()
                adam.step()
                count += len(words)
                if count >= 512 * D2L_BATCHES:
                    break
            return count / (time.perf_counter() - start)

        def ours() -> float:
            return _train(corpus, epochs=1).centers_per_second

        values = alternate(ours, peer, repeats)
    return row("skip-gram training, d=100", "centers/s", values, "d2l 1.0.3", True, 15)


def skipgram_against_gensim(corpus: Corpus, data_dir: Path, repeats: int) -> list[dict]:
    """Raw words a second with as many words kept, and how well held-out neighbors are told."""
    threshold = _same_share_kept(corpus.counts)
    sentences = [corpus.tokens(i) for i in range(len(corpus))]
    held_out = Corpus.from_text(
        (data_dir / "ptb" / "ptb.valid.txt").read_text(encoding="utf-8"), vocab=corpus.vocab
    )
    quality: dict[str, list[float]] = {"ours": [], "default": [], "best": []}

    def score_of(model) -> float:
        order = [model.wv.key_to_index[word] for word in corpus.vocab.get_itos()]
        pair = (model.wv.vectors[order], model.syn1neg[order])
        return held_out_score(*pair, held_out, corpus.counts)

    def ours() -> float:
        seed = len(quality["ours"])
        result = _train(corpus, epochs=EPOCHS, subsample=threshold, seed=seed)
        pair = (result.vectors.matrix, result.context.matrix)
        quality["ours"].append(held_out_score(*pair, held_out, corpus.counts))
        return result.words_per_second

    def peer() -> float:
        seed = len(quality["default"]) + 1
        tuned, _ = _gensim(sentences, DIM, GENSIM_SAMPLE, seed, GENSIM_RATES["best"])
        quality["best"].append(score_of(tuned))
        model, speed = _gensim(sentences, DIM, GENSIM_SAMPLE, seed, GENSIM_RATES["default"])
        quality["default"].append(score_of(model))
        return speed * len(corpus.ids) * EPOCHS

    values = alternate(ours, peer, repeats)
    name = "gensim, 2 workers"
    note = "share of held-out pairs (ptb.valid) whose true context outscores a noise word"
    rows = [row("skip-gram training, d=100, 5 epochs", "raw words/s", values, name, True, 0.7)]
    for which, rate in GENSIM_RATES.items():
        scores, peer_name = (quality["ours"], quality[which]), f"gensim, rate {rate}"
        work = "the same vectors on held-out text"
        rows.append(row(work, "share", scores, peer_name, True, 1.0, note))
        note = ""
    return rows


def held_out_score(v, u, corpus: Corpus, counts: np.ndarray, window: int = WINDOW) -> float:
    """Return the share of (center, context) pairs that score above (center, noise word).

    It is the question that negative sampling trains for, asked about text that nobody trained on;
    0.5 is guessing. Noise is unigram^0.75 as in training, so frequent contexts are no free hits.
    """
    pairs = word2vec.skipgram_examples(corpus, window, negatives=5, subsample=0, seed=0)
    noise = word2vec.noise_table(counts)
    drawn = noise[np.random.default_rng(0).integers(0, len(noise), pairs.negatives.shape)]
    right = np.einsum("nd,nd->n", v[pairs.centers], u[pairs.contexts])
    wins = [right > np.einsum("nd,nd->n", v[pairs.centers], u[k]) for k in drawn.T]
    return float(np.mean(wins))


def toyworld_against_gensim(seeds: int = 3) -> list[dict]:
    """Analogies whose answers are known, same text, epochs and sizes."""
    corpus = Corpus.from_text(toyworld.text())
    sentences = [corpus.tokens(i) for i in range(len(corpus))]
    questions = toyworld.analogies()
    ours = []
    theirs: dict[str, list[float]] = {which: [] for which in GENSIM_RATES}
    for seed in range(seeds):
        result = _train(corpus, dim=64, subsample=1e-3, seed=seed)
        ours.append(result.vectors.evaluate_analogies(questions).accuracy)
        for which, rate in GENSIM_RATES.items():
            model, _ = _gensim(sentences, 64, 1e-3, seed + 1, rate)
            vectors = WordVectors(model.wv.index_to_key, model.wv.vectors)
            theirs[which].append(vectors.evaluate_analogies(questions).accuracy)
    work = "ToyWorld analogies, d=64, 5 epochs"
    return [
        row(work, "share", (ours, theirs[which]), f"gensim, rate {rate}", True, 1.0)
        for which, rate in GENSIM_RATES.items()
    ]


def glove_on_ptb(corpus: Corpus, repeats: int) -> list[dict]:
    """Pairs a second, and the time to the C program's cost, a footnote since that did not run."""
    counts = glove.count(corpus, window=5)
    enough = next(n for n in range(4, 40) if _glove(counts, n).losses[-1] <= GLOVE_COST)
    speeds, times = [], []
    for _ in range(repeats):
        times.append(seconds(lambda: speeds.append(_glove(counts, enough).pairs_per_second)))
    speed = f"{enough} epochs, {median(speeds):,.0f} pairs/s at d=50"
    beside = (
        f"{speed}; Stanford's C program took {GLOVE_SECONDS} s on two threads, on another day, on a"
        " machine like this"
    )
    return [alone(f"GloVe on PTB to a cost of {GLOVE_COST}", "s", times, beside)]


def _train(corpus: Corpus, **settings) -> word2vec.Word2Vec:
    given = {"dim": DIM, "window": WINDOW, "negatives": NEGATIVES, "epochs": EPOCHS}
    return word2vec.train(corpus, progress=False, **given | settings)


def _glove(counts: glove.Cooccurrences, epochs: int) -> glove.GloVe:
    return glove.train(counts, dim=50, epochs=epochs, progress=False)


def _gensim(sentences: list[list[str]], dim: int, sample: float, seed: int, rate: float):
    """Return gensim's trained model, and passes over one word a second (times words and epochs)."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=dim,
        window=WINDOW,
        negative=NEGATIVES,
        sample=sample,
        alpha=rate,
        min_count=1,
        sg=1,
        workers=2,
        seed=seed,
    )
    model.build_vocab(sentences)
    taken = seconds(lambda: model.train(sentences, total_examples=len(sentences), epochs=EPOCHS))
    return model, 1 / taken


def _same_share_kept(counts: np.ndarray) -> float:
    """Return the threshold at which the paper's subsampling keeps as many words as gensim's does.

    gensim follows the C program, which keeps sqrt(t / f) + t / f where the paper has sqrt(t / f).
    """
    ratio = GENSIM_SAMPLE / (counts / counts.sum())
    goal = (counts * np.minimum(np.sqrt(ratio) + ratio, 1)).sum()
    low, high = GENSIM_SAMPLE, 100 * GENSIM_SAMPLE
    for _ in range(60):
        middle = (low + high) / 2
        kept = (counts * word2vec.keep_probability(counts, middle)).sum()
        low, high = (middle, high) if kept < goal else (low, middle)
    return high
