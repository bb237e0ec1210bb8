"""The models that the notebooks train, each for a step on a rehearsed GPU at its `gpu` sizes.

Run as `python -m tests.test_gpu_rehearsal` to print what they need.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    pretraining_loss,
)
from support.models.gpt import GPT, GPTConfig, language_model_loss
from support.models.seq2seq import Seq2Seq
from tests.rehearsal import (
    LossFunction,
    Need,
    classes_loss,
    fasttext_step,
    glove_step,
    pretraining_batch_of,
    rehearse,
    rehearse_masked,
    texts,
    token_batch,
    translation_loss,
    word2vec_step,
)

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("chapters", "solutions")
T4 = 14 * 10**9  # bytes of a T4's 16 GB that a step may take; the rest is PyTorch's own
SAFE_CALLS = ("profile.settings", "dict", "range", "best_precision", "training.best_precision")


def names_of(notebook: str) -> dict[str, Any]:
    """Return what a notebook imports and defines, with the settings of the profile in force.

    Run are imports, functions, classes, and those assignments that call nothing but SAFE_CALLS;
    what needs something else, such as data, is passed over, and so is a second assignment to the
    same name. `real` is True: the sizes are those for the real data.
    """
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"real": True}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        for statement in ast.parse("".join(cell["source"])).body:
            if _is_wanted(statement, names):
                code = compile(ast.Module([statement], []), notebook, "exec")
                with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                    exec(code, names)
    return names


def _is_wanted(statement: ast.stmt, names: dict[str, Any]) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
        return True
    if not isinstance(statement, ast.Assign):
        return False
    targets = (node for each in statement.targets for node in ast.walk(each))
    if any(node.id in names for node in targets if isinstance(node, ast.Name)):
        return False
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return all(ast.unparse(call.func) in SAFE_CALLS for call in calls)


Needs = Iterator[tuple[str, Need]]


def pretraining(config: BertConfig, batch_size: int, length: int) -> Need:
    return rehearse(
        lambda: BertForPretraining(Bert(config)),
        lambda: pretraining_batch_of(config.vocab_size, batch_size, length),
        pretraining_loss,
    )


def language_modeling(config: GPTConfig, batch_size: int, length: int) -> Need:
    return rehearse(
        lambda: GPT(config),
        lambda: token_batch(config.vocab_size, batch_size, length),
        language_model_loss,
    )


def translating(model: Callable[[], Seq2Seq], b: int, t: int) -> Need:
    batch = torch.ones(b, t).long(), torch.ones(b, t + 1).long(), torch.full((b,), t)
    return rehearse(model, lambda: batch, translation_loss)


def of_images(model: Callable[[], nn.Module], batch_size: int, loss_fn: LossFunction) -> Need:
    return rehearse(model, lambda: torch.rand(batch_size, 1, 28, 28), loss_fn)


def labeled_texts(vocab_size: int, b: int, t: int) -> tuple[torch.Tensor, ...]:
    """Return ids (B, T), lengths (B,) and classes (B,)."""
    return torch.randint(vocab_size, (b, t)), torch.full((b,), t), torch.zeros(b).long()


def bert_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    ids = torch.randint(5, 400, (settings.batch_size, 14))
    sizes = 400, settings.d_model, settings.n_layers, settings.n_heads, 32
    yield (
        "ToyWorld",
        rehearse_masked(
            lambda: names["MaskedLM"](names["Bert"](*sizes)),
            lambda: (ids, ids > 200, ids),
            lambda model, batch: names["masked_loss"](model, batch).sum(),
        ),
    )
    config = BertConfig(34_000, **settings.wiki_shape)
    yield "WikiText-2", pretraining(config, settings.pairs, config.max_length)


def next_token_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    ids, targets = batch
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def gpt_needs(names: dict[str, Any]) -> Needs:
    settings, model = names["settings"], names["GPT"]
    b, heads = settings.batch_size, settings.n_heads
    toy = 970, settings.d_model, settings.n_layers, heads, settings.length, settings.dropout
    plays = (settings.play_vocab, settings.play_width, settings.play_layers, 4)
    plays = (*plays, settings.play_length, settings.play_dropout)
    for label, sizes in {"ToyWorld": toy, "plays": plays}.items():
        build = lambda sizes=sizes: names["initialize"](model(*sizes))  # noqa: E731
        batch = token_batch(sizes[0], b, sizes[4])
        yield label, rehearse(build, lambda batch=batch: batch, next_token_loss)
    batch = token_batch(970, b, settings.length)
    bigram = lambda: names["Bigram"](970)  # noqa: E731
    yield "pairs", rehearse(bigram, lambda: batch, next_token_loss)


def seq2seq_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    d, width, heads = settings.d_model, settings.width, (settings.n_heads, settings.n_layers)
    ids = torch.ones(settings.batch_size, 24).long()
    for label, model in {
        "one code": lambda: names["OneCode"](200, d, width),
        "looks back": lambda: names["LookBack"](200, d, width),
        "Transformer": lambda: names["Seq2Seq"](200, d, *heads),
        "one averaged code": lambda: names["Averaged"](200, d, *heads),
    }.items():
        yield label, rehearse(model, lambda: (ids, ids), lambda m, b: names["loss_of"](m, *b))


def transformer_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    words = torch.ones(settings.batch_size, settings.longest + 2).long()
    loss_fn = lambda model, batch: names["loss_of"](model, *batch)  # noqa: E731
    models = {
        "reversed words": lambda: names["Transformer"](29, **settings.shape),
        "GRUs": lambda: names["GRUPair"](29, 2 * settings.shape["d_model"]),
    }
    for label, model in models.items():
        yield label, rehearse(model, lambda: (words[:, :-1], words), loss_fn)


def finetuning_needs(names: dict[str, Any]) -> Needs:
    minilm = BertConfig(30_522, 384, 6, 12, 1_536)
    ids, lengths, labels = labeled_texts(minilm.vocab_size, 16, 40)
    two_classes = lambda model, batch: F.cross_entropy(model(*batch[:2]), batch[2])  # noqa: E731
    model = lambda: names["Classifier"](Bert(minilm), 2)  # noqa: E731
    yield "MiniLM", rehearse(model, lambda: (ids, lengths, labels), two_classes)
    with_lora = lambda: names["add_lora"](model())  # noqa: E731
    yield "MiniLM, LoRA", rehearse(with_lora, lambda: (ids, lengths, labels), two_classes)


def chinese_needs(names: dict[str, Any]) -> Needs:
    settings, model = names["settings"], names["Transformer"]
    ids = torch.randint(5, 4_000, (settings.batch_size, settings.length))
    reader = lambda: model(4_000, settings.length, causal=False)  # noqa: E731
    states = lambda model, ids: model.scores(model(ids)).mean()  # noqa: E731
    yield "reader of titles", rehearse(reader, lambda: ids, states)
    classes = lambda: names["TitleClassifier"](reader(), 10)  # noqa: E731
    yield "subjects", rehearse(classes, lambda: ids, lambda model, ids: model(ids).mean())
    tags = lambda: names["Tagger"](reader(), 30)  # noqa: E731
    yield "tags", rehearse(tags, lambda: ids, lambda model, ids: model(ids).mean())
    songs = torch.randint(5, 5_000, (settings.batch_size // 2, settings.song_length))
    writer = lambda: model(5_000, settings.song_length, causal=True)  # noqa: E731
    yield "writer of songs", rehearse(writer, lambda: songs, states)


def pairs_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    config = BertConfig(30_522, 384, 6, 12, 1_536)  # MiniLM's
    bert = lambda: Bert(config)  # noqa: E731
    read = texts(30_522, settings.batch_size, settings.longest)
    pair_loss = lambda model, text: classes_loss(model, [text])  # noqa: E731
    yield "pairs", rehearse(lambda: names["PairClassifier"](bert(), 3), lambda: read, pair_loss)
    two = lambda: (read, read)  # noqa: E731
    yield "two vectors", rehearse(lambda: names["TwoVectors"](bert(), 3), two, classes_loss)
    span_loss = lambda model, batch: sum(x.square().mean() for x in model(*batch))  # noqa: E731
    yield "spans", rehearse(lambda: names["SpanReader"](bert()), lambda: read, span_loss)


def tags_needs(names: dict[str, Any]) -> Needs:
    settings, minilm = names["settings"], BertConfig(30_522, 384, 6, 12, 1_536)
    names["device"] = torch.device("cuda")
    ids, _, lengths = texts(minilm.vocab_size, settings.batch_size, 200)  # the longest has 191
    first = tags = torch.zeros(settings.batch_size, 105, dtype=torch.long)  # words
    for label in ("Head", "CRFHead"):
        tagger = lambda label=label: names["Tagger"](Bert(minilm), names[label](384, 13))  # noqa: E731
        batch = lambda: (ids, lengths, first, tags)  # noqa: E731
        yield label, rehearse(tagger, batch, lambda model, batch: model.loss(*batch))


def text_encoders_needs(names: dict[str, Any]) -> Needs:
    settings, n_words = names["settings"], 40_000  # of AG News seen five times
    d, hidden = settings.d, settings.hidden
    yield "word2vec", word2vec_step(d)
    last = names["LastState"]
    look_back = lambda: names["LookBack"](nn.LSTM(d, hidden, batch_first=True), hidden)  # noqa: E731
    encoders = {
        "bag": lambda: names["Mean"](d),
        "TextCNN": lambda: names["TextCNN"](d, settings.n_filters),
        "RNN": lambda: last(nn.RNN(d, hidden, batch_first=True), hidden),
        "LSTM": lambda: last(nn.LSTM(d, hidden, batch_first=True), hidden),
        "GRU": lambda: last(nn.GRU(d, hidden, batch_first=True), hidden),
        "LSTM, looks back": lambda: last(look_back(), 2 * hidden),
    }
    ids, _, labels = labeled_texts(n_words, settings.batch_size, settings.longest)
    topics_loss = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
    for label, encoder in encoders.items():
        model = lambda encoder=encoder: names["TextClassifier"](encoder(), n_words, d)  # noqa: E731
        yield label, rehearse(model, lambda: (ids, labels), topics_loss)
    piece = torch.ones(settings.writer_batch, settings.length + 1).long()
    for kind, width in settings.writer.items():
        reader = lambda kind=kind, width=width: names[kind](settings.d_char, width)  # noqa: E731
        model = lambda reader=reader, width=width: names["Writer"](  # noqa: E731
            reader(), 65, settings.d_char, width
        )
        yield f"writer, {kind}", rehearse(model, lambda: piece, names["loss_of"])


def training_needs(names: dict[str, Any]) -> Needs:
    """The networks on digits are trained on the CPU, and so are left out."""
    strings = torch.randint(8, (16, 8))
    yield (
        "reversed strings",
        rehearse(
            lambda: names["Reverser"](norm_first=True), lambda: strings, names["reversal_loss"]
        ),
    )


def autoencoders_needs(names: dict[str, Any]) -> Needs:
    """The examples of two numbers are trained on the CPU, and so are left out."""
    settings = names["settings"]

    def step(model: Callable[[], nn.Module], loss_fn: LossFunction) -> Need:
        def loss_of_all(network: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            names["x"] = batch  # the notebook's losses take rows of all pictures, `x`
            return loss_fn(network, slice(None))

        return rehearse(model, lambda: torch.rand(settings.batch_size, 784), loss_of_all)

    plain, shape = names["Autoencoder"], (784, 256, 64)
    yield "code of 3", step(lambda: plain(784, 128, 64, 12, 3), names["pixel_loss"])
    yield "code of 64", step(lambda: plain(*shape), names["pixel_loss"])
    yield "squared error", step(lambda: plain(*shape), names["squared_loss"])
    yield "convolutions", step(lambda: names["ConvAutoencoder"](32), names["pixel_loss"])
    wide = lambda: names["WideAutoencoder"](settings.n_units)  # noqa: E731
    yield "denoising", step(wide, names["denoising_loss"])
    yield "sparse", step(wide, names["sparse_loss"])


def vae_needs(names: dict[str, Any]) -> Needs:
    """The linear VAE is trained on the CPU, and so is left out."""
    settings = names["settings"]
    b, wide = settings.batch_size, (settings.wide_code, settings.hidden)
    pictures = torch.rand(b, 784)
    for label, model, loss in (
        ("autoencoder", lambda: names["Autoencoder"](2, settings.hidden), "ae_loss"),
        ("VAE", lambda: names["VAE"](2, settings.hidden), "vae_loss"),
        ("VAE, wide code", lambda: names["VAE"](*wide), "vae_loss"),
        ("reader of pixels", lambda: names["Reader"](*wide), "free_bits_loss"),
    ):
        yield label, rehearse(model, lambda: pictures, names[loss])
    digits = pictures, torch.zeros(b).long()
    loss = names["judge_loss"]
    yield "judge", rehearse(names["Judge"], lambda: digits, lambda m, batch: loss(m, *batch))


def word2vec_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    yield "PTB", word2vec_step(settings.ptb_dim, settings.window)
    pairs = torch.randint(900, (2, settings.batch_size)).unbind()
    model = names["SoftmaxSkipGram"]
    yield (
        "ToyWorld",
        rehearse(lambda: model(900, settings.dim), lambda: pairs, lambda m, batch: m.loss(*batch)),
    )


def glove_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    yield "PTB", glove_step(settings.ptb["dim"], settings.ptb["blocks"])
    yield "PTB, skip-gram", word2vec_step(settings.ptb["dim"], settings.ptb_window)
    n = settings.filled_batch_size
    batch = *torch.randint(900, (2, n)).unbind(), torch.ones(n)
    yield (
        "ToyWorld",
        rehearse(
            lambda: names["GloVe"](900, settings.dim),
            lambda: batch,
            lambda model, batch: (model(*batch[:2]) - batch[2]).square().mean(),
        ),
    )


def fasttext_needs(names: dict[str, Any]) -> Needs:
    """The model of the page is trained on the CPU, and so is left out."""
    ptb = names["settings"].ptb
    yield "PTB, by word", word2vec_step(ptb["dim"])
    yield "PTB, by piece", fasttext_step(ptb["dim"])


def similarity_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    yield "PTB, by word", word2vec_step(settings.dim, settings.window)
    yield "PTB, by piece", fasttext_step(settings.dim, settings.window)
    yield "PTB, from counts", glove_step(settings.dim, 64)


def bias_needs(names: dict[str, Any]) -> Needs:
    yield "ToyWorld", word2vec_step(names["settings"].dim)


def exercise_27_1_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    shape = settings.vocab_size, settings.width, settings.hidden
    ids, lengths, topics = labeled_texts(settings.vocab_size, settings.pre_batch, settings.longest)
    yield (
        "pre-training",
        rehearse_masked(
            lambda: names["BiLSTMLanguageModel"](*shape),
            lambda: (ids, lengths),
            lambda model, batch: names["language_loss"](model, *batch, settings.asked),
        ),
    )
    few = ids[: settings.batch_size], lengths[: settings.batch_size], topics[: settings.batch_size]
    yield (
        "topics",
        rehearse(
            lambda: names["TextClassifier"](names["BiLSTM"](*shape), 4),
            lambda: few,
            lambda model, batch: F.cross_entropy(model(*batch[:2]), batch[2]),
        ),
    )


def exercise_27_2_needs(names: dict[str, Any]) -> Needs:
    settings = names["settings"]
    config = GPTConfig(1_000, settings.width, settings.layers, settings.heads, max_length=64)
    yield "pre-training", language_modeling(config, settings.pre_batch, 64)


def exercise_27_3_needs(names: dict[str, Any]) -> Needs:
    b = names["settings"].batch_size
    for channels in (32, 4):
        model = lambda channels=channels: names["Autoencoder"](channels)  # noqa: E731
        loss_fn = lambda model, x: F.mse_loss(model(x), x)  # noqa: E731
        yield f"code of {49 * channels:,}", of_images(model, b, loss_fn)


def exercise_27_5_needs(names: dict[str, Any]) -> Needs:
    settings, denoising_loss = names["settings"], names["denoising_loss"]
    names.update(PAD=0, MASK=4)
    yield (
        "pictures",
        of_images(
            names["denoiser"],
            settings.image_batch,
            lambda model, x: denoising_loss(x, names["add_noise"], model, names["squared"]),
        ),
    )
    ids = torch.randint(400, (settings.sentence_batch, 14))
    yield (
        "sentences",
        rehearse(
            lambda: names["Reader"](400),
            lambda: ids,
            lambda model, ids: denoising_loss(ids, names["hide"], model, names["cross_entropy"]),
        ),
    )


# What the models need that a notebook trains on the device; None where it trains none there.
NOTEBOOKS: dict[str, Callable[[dict[str, Any]], Needs] | None] = {
    "chapters/autoencoders.ipynb": autoencoders_needs,
    "chapters/bert.ipynb": bert_needs,
    "chapters/bias.ipynb": bias_needs,
    "chapters/bpe.ipynb": None,  # merges of bytes, and a table of 1,000 tokens on the CPU
    "chapters/chinese.ipynb": chinese_needs,
    "chapters/compression.ipynb": None,  # trains nothing
    "chapters/exercises.ipynb": None,  # only says what is to be done
    "chapters/fasttext.ipynb": fasttext_needs,
    "chapters/finetuning.ipynb": finetuning_needs,
    "chapters/glove.ipynb": glove_needs,
    "chapters/gpt.ipynb": gpt_needs,
    "chapters/pretrained_models.ipynb": None,  # many small models, on the CPU
    "chapters/questions.ipynb": None,  # games of a few thousand weights, on the CPU
    "chapters/pairs_and_spans.ipynb": pairs_needs,
    "chapters/scaling_out.ipynb": None,  # two processes on the CPU; the command chooses its device
    "chapters/seq2seq.ipynb": seq2seq_needs,
    "chapters/silent_bugs.ipynb": None,  # a table of 900 words and smaller models, on the CPU
    "chapters/similarity_and_analogy.ipynb": similarity_needs,
    "chapters/tags.ipynb": tags_needs,
    "chapters/text_encoders.ipynb": text_encoders_needs,
    "chapters/training.ipynb": training_needs,
    "chapters/transformer.ipynb": transformer_needs,
    "chapters/vae.ipynb": vae_needs,
    "chapters/word2vec.ipynb": word2vec_needs,
    "solutions/exercise_27_1.ipynb": exercise_27_1_needs,
    "solutions/exercise_27_2.ipynb": exercise_27_2_needs,
    "solutions/exercise_27_3.ipynb": exercise_27_3_needs,
    "solutions/exercise_27_4.ipynb": None,  # two layers of six numbers, on the CPU
    "solutions/exercise_27_5.ipynb": exercise_27_5_needs,
    "solutions/exercise_27_6.ipynb": None,  # a layer on random tokens, on the CPU
}
TRAINING = [notebook for notebook, needs in NOTEBOOKS.items() if needs]


def needs_of(notebook: str) -> dict[str, Need]:
    """Return what each model of a notebook needs for a step, at the sizes of the `gpu` profile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRETRAIN_PROFILE", "gpu")
        return dict(NOTEBOOKS[notebook](names_of(notebook)))


def line(notebook: str, label: str, need: Need) -> str:
    columns = "".join(f"{x / 1e9:14.3f}" for x in (need.state, need.activations, need.total))
    return f"{Path(notebook).stem:24}{label:24}{need.parameters:>14,}{columns}"


HEADING = f"{'':48}{'parameters':>14}{'weights etc.':>14}{'activations':>14}{'total, GB':>14}"


def test_every_notebook_is_in_the_table():
    found = {f"{p.parent.name}/{p.name}" for d in FOLDERS for p in (ROOT / d).glob("*.ipynb")}
    assert found == set(NOTEBOOKS)


@pytest.mark.parametrize("notebook", [name for name, needs in NOTEBOOKS.items() if not needs])
def test_a_notebook_that_trains_nothing_on_the_device_does_not_name_it(notebook):
    text = (ROOT / notebook).read_text(encoding="utf-8")
    for name in ("profile.device", "support.training", "word2vec.train", "glove.train"):
        assert name not in text, f"{name}: say in NOTEBOOKS what the training needs"


@pytest.mark.parametrize("notebook", TRAINING)
def test_every_model_of_a_notebook_fits_a_t4(notebook):
    found = needs_of(notebook)
    for label, need in found.items():
        assert need.total < T4, f"{label}: {need.total / 1e9:.1f} GB"
    assert found


if __name__ == "__main__":
    print(HEADING)
    for each in TRAINING:
        for label, need in needs_of(each).items():
            print(line(each, label, need))
