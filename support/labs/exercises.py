"""Self-checks for exercises 27.1 to 27.6: each takes an answer and says what is wrong with it.

Each check raises AssertionError with a reason, or what the answer itself raises. None holds a
solution: they ask what must be true of every correct one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import log
from typing import Any

import torch
from torch import nn

from support.data import datasets
from support.data.images import to_unit
from support.models.bert import Bert, BertConfig
from support.models.gpt import GPT, GPTConfig
from support.models.transformer import Encoder


def exercise_27_1(answer: Any) -> None:
    """Check a bidirectional language model: model_class(vocab_size, d_embedding, d_hidden).

    Its forward takes ids (B, T) and lengths (B,) and returns logits (B, T, vocab_size), at position
    t for the token there, from all others of its sequence. An answer to part 3 is the pair of
    model_class and classifier_of(language_model, n_classes), which returns a classifier that
    starts with the weights of the language model; its logits are (B, n_classes).
    """
    model_class, classifier_of = answer if isinstance(answer, tuple) else (answer, None)
    model = model_class(20, 8, 6).eval()
    for weight in model.parameters():  # an output layer may begin at zero, where nothing moves
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.5)
    classifier = classifier_of(model, 3) if classifier_of else None
    if classifier is not None:
        _starts_with(classifier, model)
    model = model.double()
    lengths = torch.tensor([7, 5, 2])
    ids = torch.randint(1, 19, (3, 7))
    ids[0] = torch.arange(1, 8)
    ids[torch.arange(7) >= lengths[:, None]] = 0
    logits = model(ids, lengths)
    assert logits is not None and logits.shape == (3, 7, 20), (
        f"the logits must be (B, T, vocab_size) = (3, 7, 20), got {_shape(logits)}"
    )
    for t in range(7):
        changed = ids.clone()
        changed[0, t] += 1
        moved = (model(changed, lengths) - logits).abs().amax(-1)  # (3, 7)
        assert moved[0, t] < 1e-12, (
            f"the prediction of token {t} depends on token {t} itself{_how_it_got_there(model)}"
        )
        others = [s for s in range(7) if s != t]
        assert moved[0, others].min() > 1e-12, f"not every other prediction depends on token {t}"
        assert moved[1:].max() < 1e-12, "the predictions of one sequence depend on another"
    for side, pair, behind in (("left", [0, 1], range(2, 7)), ("right", [6, 5], range(5))):
        swapped = ids.clone()
        swapped[0, pair] = ids[0, pair[::-1]]
        moved = (model(swapped, lengths) - logits)[0].abs().amax(-1)
        assert moved[behind].min() > 1e-12, (
            f"the order of the words on the {side} does not matter: that is a bag of words, and "
            "an LSTM reads them one after another"
        )
    turned = model(ids.flip(0), lengths.flip(0)).flip(0)
    assert _close(turned, logits, lengths), "the predictions depend on the order of the batch"
    padded = ids.clone()
    padded[torch.arange(7) >= lengths[:, None]] = 3
    assert _close(model(padded, lengths), logits, lengths), "the predictions depend on padding"
    if classifier_of:
        _classifies(classifier, ids, padded, lengths)


def _layers_of_words(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    kinds = nn.Embedding, nn.RNNBase, nn.RNNCellBase
    return ((name, layer) for name, layer in model.named_modules() if isinstance(layer, kinds))


def _how_it_got_there(model: nn.Module) -> str:
    """Return a reason why a prediction depends on its own token, if the layers show one."""
    layers = (m for m in model.modules() if isinstance(m, nn.RNNBase) and m.bidirectional)
    if sum(layer.num_layers for layer in layers) < 2:
        return ""
    return (
        ": bidirectional layers are stacked, and the second layer reads it in the first layer's "
        "states; stack each direction by itself"
    )


def _starts_with(classifier: nn.Module, model: nn.Module) -> None:
    """Check that embeddings and LSTMs of the classifier have the language model's weights."""
    assert isinstance(classifier, nn.Module), (
        f"classifier_of must return a classifier, got {classifier!r}"
    )
    own = list(classifier.parameters())
    for name, layer in _layers_of_words(model):
        for part, weight in layer.named_parameters():
            assert any(w.shape == weight.shape and w.equal(weight) for w in own), (
                f"the classifier does not start with the language model's {name}.{part}"
            )


def _classifies(
    classifier: nn.Module, ids: torch.Tensor, padded: torch.Tensor, lengths: torch.Tensor
) -> None:
    """Check that the classifier reads every word, no padding, and that all of it is trained."""
    classifier = classifier.double().eval()
    for weight in classifier.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.5)
    logits = classifier(ids, lengths)
    assert logits is not None and logits.shape == (3, 3), (
        f"the classifier's logits must be (B, n_classes) = (3, 3), got {_shape(logits)}"
    )
    assert (classifier(padded, lengths) - logits).abs().max() < 1e-12, (
        "the classifier depends on padding"
    )
    turned = classifier(ids.flip(0), lengths.flip(0)).flip(0)
    assert (turned - logits).abs().max() < 1e-12, "the classifier depends on the order of the batch"
    nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    for name, layer in _layers_of_words(classifier):
        for part, weight in layer.named_parameters():
            assert weight.grad is not None and weight.grad.any(), (
                f"fine-tuning does not change {name}.{part}"
            )


def exercise_27_2(matching_loss: Callable[..., torch.Tensor]) -> None:
    """Check matching_loss(model, head, first, second, labels, lm_weight).

    model is a GPT whose ids 0, 1 and 2 are start, separator and end; head is a linear layer from
    d_model to the classes; first and second are lists of N texts, each a list of ids; labels (N,).
    Returned is the mean of -log P(label) over the pairs plus lm_weight times the mean of
    -log P(token) over the predicted tokens. Both ways to read a pair pass: in the order first,
    second alone, or in both orders, put together in any way that gives swapped texts the same loss.
    """
    model = GPT(GPTConfig(30, 16, n_layers=1, n_heads=2, max_length=32)).double().eval()
    head = nn.Linear(16, 3).double()
    for weight in [*model.parameters(), *head.parameters()]:
        nn.init.normal_(weight, std=0.5)
    first, second = [[5, 6, 7], [8], [9, 10]], [[11], [12, 13, 14, 15], [16, 17]]
    labels = torch.tensor([0, 2, 1])

    def loss(a: list, b: list, rows: slice = slice(None), lm_weight: float = 0.0) -> float:
        value = matching_loss(model, head, a[rows], b[rows], labels[rows], lm_weight)
        assert isinstance(value, torch.Tensor), f"the loss must be a tensor, got {value!r}"
        assert value.shape == (), f"the loss must be one number, got a tensor {_shape(value)}"
        return value.item()

    matching, half, whole = (loss(first, second, lm_weight=w) for w in (0.0, 0.5, 1.0))
    assert abs(whole - matching - 2 * (half - matching)) < 1e-9, "lm_weight is not a factor"
    ones = [slice(i, i + 1) for i in range(3)]
    single = [loss(first, second, rows) for rows in ones]
    assert abs(sum(single) / 3 - matching) < 1e-9, (
        "the loss of the labels must be the mean over the pairs, each as if it were alone"
    )
    with _only_the_ends(model):
        assert abs(loss(first, second) - matching) < 1e-9, (
            "the class is predicted from states without access to the whole pair"
        )
    for name, a, b in (("first", [[5, 18, 7]], [[11]]), ("second", [[5, 6, 7]], [[18]])):
        assert abs(loss(a, b, ones[0]) - single[0]) > 1e-9, f"the {name} text is not read"
    pair = [torch.tensor([0, 5, 6, 7, 1, 11, 2]), torch.tensor([0, 11, 1, 5, 6, 7, 2])]
    states = [model.states(row[None])[0] for row in pair]
    if abs(loss(second, first) - matching) > 1e-9:  # one order: that of the arguments
        right = nn.functional.cross_entropy(head(states[0][-1]), labels[0]).item()
        assert abs(single[0] - right) < 1e-9, (
            "swapping the texts changes the loss of the labels, but it is not that of the sequence "
            "start, first, separator, second, end"
        )
    text = [loss(first, second, rows, 1.0) - one for rows, one in zip(ones, single, strict=True)]
    by_token = (6 * text[0] + 7 * text[1] + 6 * text[2]) / 19
    assert min(abs(whole - matching - mean) for mean in (by_token, sum(text) / 3)) < 1e-9, (
        "the language model's loss depends on the length of the pairs beside it"
    )
    right = [
        nn.functional.cross_entropy(x[:-1] @ model.tokens.weight.T, row[1:]).item()
        for x, row in zip(states, pair, strict=True)
    ]
    assert min(abs(text[0] - r) for r in (*right, sum(right) / 2)) < 1e-9, (
        f"the language model's loss of a pair is {text[0]:.4f}, and not {right[0]:.4f}, the mean "
        "of -log P(token) over all tokens but the first of start, first, separator, second, end"
    )
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    assert abs(loss(first, second) - log(3)) < 1e-9, (
        f"the loss of three equally likely labels is log 3, not {loss(first, second):.4f}"
    )


@contextmanager
def _only_the_ends(model: GPT) -> Iterator[None]:
    """Make every state of the model random but those at the first end token (id 2)."""

    def states(ids: torch.Tensor, cache: None = None) -> torch.Tensor:
        end = (ids == 2) & ((ids == 2).cumsum(1) == 1)
        return torch.where(end[..., None], own(ids), torch.randn(*ids.shape, 16).double())

    own, model.states = model.states, states
    yield
    model.states = own


def exercise_27_3(model_class: Callable[[], nn.Module]) -> None:
    """Check a convolutional autoencoder of 28 × 28 images: encoder and decoder, two layers each.

    The output must be decoder(encoder(images)), and the code have fewer numbers than there are
    pixels, and not more bytes.
    """
    model = model_class()
    for part, kind in (("encoder", nn.Conv2d), ("decoder", nn.ConvTranspose2d)):
        assert isinstance(getattr(model, part, None), nn.Module), f"the model has no {part}"
        layers = [
            m
            for m in getattr(model, part).modules()
            if any(weight.dim() > 1 for weight in m.parameters(False))
        ]
        assert len(layers) == 2 and all(isinstance(layer, kind) for layer in layers), (
            f"the {part} must have two layers {kind.__name__}, got {len(layers)} with weights"
        )
    images = to_unit(datasets.mnist(source="embedded").images[:64])
    model.eval()
    with torch.no_grad():
        code, output = model.encoder(images), model(images)
    assert output.shape == images.shape, f"from (64, 1, 28, 28) came {_shape(output)}"
    assert output.min() >= 0 and output.max() <= 1, "the output must be gray values from 0 to 1"
    numbers = code[0].numel()
    assert numbers < 784, f"nothing is compressed: {numbers:,} numbers for 784 pixels"
    size = numbers * code.element_size()
    assert size <= 784, (
        f"the code is larger than the image: {numbers:,} numbers of {code.element_size()} bytes "
        f"are {size:,} bytes, and the 784 pixels are 784"
    )
    with torch.no_grad():
        decoded = model.decoder(code)
    assert decoded.shape == output.shape and torch.allclose(decoded, output, atol=1e-5), (
        "the output is not decoder(encoder(images)): something goes around the code"
    )
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        error = nn.functional.mse_loss(model(images), images)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    mean = (images - images.mean(0)).square().mean().item()
    assert error.item() < 0.7 * mean, (
        f"it does not learn: error {error:.4f} after 60 steps, and {mean:.4f} for the mean image"
    )


def exercise_27_4(linear_autoencoder: Callable[[torch.Tensor, int], tuple]) -> None:
    """Check linear_autoencoder(x, k), which fits data x (N, D) with a code of k dimensions.

    Returned are W_E (k, D), b_E (k,), W_D (D, k), b_D (D,): the output is W_D (W_E x + b_E) + b_D.
    """
    spread = torch.linspace(3.0, 0.3, 12, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))[0]
    x = torch.randn(300, 12, dtype=torch.float64) * spread @ turn.T + 5.0
    answer = linear_autoencoder(x, 3)
    assert answer is not None and len(answer) == 4, "returned must be W_E, b_E, W_D, b_D"
    encode, shift, decode, mean = (torch.as_tensor(part).detach().double() for part in answer)
    assert (encode.shape, decode.shape) == ((3, 12), (12, 3)), (
        f"W_E must be (3, 12) and W_D (12, 3), got {_shape(encode)} and {_shape(decode)}"
    )
    error = (x - ((x @ encode.T + shift) @ decode.T + mean)).square().sum(1).mean().item()
    values, vectors = torch.linalg.eigh(torch.cov(x.T, correction=0))
    least = values[:-3].sum().item()
    assert error < 1.001 * least, f"squared error {error:.4f} an example; PCA reaches {least:.4f}"
    cosines = torch.linalg.svdvals(torch.linalg.qr(decode)[0].T @ vectors[:, -3:])
    angle = torch.rad2deg(torch.acos(cosines.min().clamp(max=1))).item()
    assert angle < 1, f"the largest angle to the principal subspace is {angle:.1f}°, not below 1°"


def exercise_27_5(denoising_loss: Callable[..., torch.Tensor]) -> None:
    """Check denoising_loss(x, corrupt, predict, compare), which is either of two objectives.

    corrupt(x) returns x with noise and a mask of the elements that count; predict takes what has
    noise; compare(prediction, x) returns a loss an element. Returned is the mean of those that
    count, 0 if none does.
    """
    x = torch.randn(40, 3)
    noisy, seen = x + torch.randn(40, 3), []
    everything = torch.ones(40, 3, dtype=torch.bool)
    value = denoising_loss(
        x,
        lambda x: (noisy, everything),
        lambda z: seen.append(z) or 0.5 * z,
        lambda p, t: (p - t) ** 2,
    )
    assert isinstance(value, torch.Tensor) and value.shape == (), (
        f"the loss must be one number, got {value!r}"
    )
    assert seen and seen[0].equal(noisy), "what is predicted from must have the noise"
    right = (0.5 * noisy - x).square().mean()
    assert torch.isclose(value, right), (
        f"continuous: {value:.4f}, not {right:.4f}; the target is x without noise"
    )
    ids = torch.randint(0, 9, (4, 10))
    chosen = torch.arange(40).view(4, 10) % 7 == 0
    logits = torch.randn(4, 10, 9, requires_grad=True)

    def compare(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(prediction.transpose(1, 2), target, reduction="none")

    value = denoising_loss(
        ids, lambda x: (x.masked_fill(chosen, 9), chosen), lambda z: logits, compare
    )
    right = compare(logits, ids)[chosen].mean()
    assert torch.isclose(value, right), (
        f"tokens: {value:.4f}, not {right:.4f}; only chosen positions count"
    )
    value = denoising_loss(ids, lambda x: (x, torch.zeros_like(chosen)), lambda z: logits, compare)
    assert value == 0, f"when nothing is chosen the loss must be 0, got {value}"


def exercise_27_6(parameter_table: Callable[..., dict[str, tuple[int, int]]]) -> None:
    """Check parameter_table(vocab_size, d_model, d_ff, n_layers, max_length).

    Returned is a dictionary from each part to the number of its parameters in BERT and in the
    Transformer's encoder: tokens, positions, segments, embedding norm, attention, feed-forward,
    layer norms, pooler.
    """
    for v, d, f, n, longest in ((30_522, 768, 3_072, 12, 512), (101, 12, 20, 3, 17)):
        table = parameter_table(v, d, f, n, longest)
        assert isinstance(table, dict), f"a dictionary must be returned, got {table!r}"
        with torch.device("meta"):
            bert = Bert(BertConfig(v, d, n, 2, f, longest))
            encoder = nn.ModuleDict({"tokens": nn.Embedding(v, d), "encoder": Encoder(n, d, 2, f)})
        right = {part: (_count(bert, name), _count(encoder, name)) for part, name in PARTS.items()}
        missing = right.keys() ^ table.keys()
        assert not missing, f"missing or extra parts: {', '.join(sorted(missing))}"
        for part, numbers in table.items():
            assert isinstance(numbers, (tuple, list)) and len(numbers) == 2, (
                f"{part} needs two numbers, (in BERT, in the encoder), got {numbers!r}"
            )
        wrong = [
            part + _slip(part, tuple(table[part]), right[part], (v, d, f, n, longest))
            for part in right
            if tuple(table[part]) != right[part]
        ]
        assert not wrong, f"wrong numbers with d_model = {d}: {', '.join(wrong)}"


def _slip(part: str, got: tuple, right: tuple[int, int], sizes: tuple[int, ...]) -> str:
    """Return the name of the mistake in brackets, if it is one that is often made."""
    v, d, f, n, longest = sizes
    both = {  # what each of the two numbers is by mistake
        "attention": {
            n * 4 * d * d: "the biases are missing",
            n * 3 * (d * d + d): "the output projection is missing",
        },
        "feed-forward": {
            n * 2 * d * f: "the biases are missing",
            n * (8 * d * d + 5 * d): "d_ff need not be 4 * d_model",
        },
        "layer norms": {n * 2 * d: "a layer has two norms, and a norm has two vectors"},
    }
    encoder = {  # what the encoder has by mistake
        "positions": "sinusoids are computed, not learned",
        "segments": "the encoder has none",
        "embedding norm": "the encoder has none",
        "pooler": "the encoder has none",
    }
    bert = {"embedding norm": {d: "a norm has two vectors"}, "pooler": {d * d: "no bias"}}
    name = both.get(part, bert.get(part, {})).get(got[0], "")
    if not name and n > 1 and got[0] * n == right[0]:
        name = "that is one layer"
    if not name and got[0] == right[0] and got[1]:
        name = encoder.get(part, "")
    return f" ({name})" if name else ""


PARTS = {  # as the table calls them, and a pattern of the names of their weights
    "tokens": r"^tokens\.",
    "positions": r"^positions\.",
    "segments": r"^segments\.",
    "embedding norm": r"^norm\.",
    "attention": r"\.attention\.",
    "feed-forward": r"\.feed_forward\.",
    "layer norms": r"_norm\.",
    "pooler": r"^pooler\.",
}


def _count(model: nn.Module, pattern: str) -> int:
    return sum(w.numel() for name, w in model.named_parameters() if re.search(pattern, name))


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _close(a: torch.Tensor, b: torch.Tensor, lengths: torch.Tensor) -> bool:
    real = torch.arange(a.shape[1]) < lengths[:, None]
    return bool((a - b)[real].abs().max() < 1e-12)


CHECKS: dict[str, Callable[[Any], None]] = {
    "27.1": exercise_27_1,
    "27.2": exercise_27_2,
    "27.3": exercise_27_3,
    "27.4": exercise_27_4,
    "27.5": exercise_27_5,
    "27.6": exercise_27_6,
}
