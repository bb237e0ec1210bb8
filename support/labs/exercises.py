"""Exercises 27.1 to 27.6: no check holds a solution, each asks what is true of every correct one.

Each raises AssertionError with a reason, or what the answer itself raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.data import datasets
from support.data.images import to_unit
from support.labs import expect
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
    model = _large(model_class(20, 8, 6))
    if classifier_of:
        classifier = classifier_of(model, 3)
        assert isinstance(classifier, nn.Module), f"classifier_of returned {classifier!r}"
        own = list(classifier.parameters())
        for name, weight in _weights_of_words(model):
            kept = any(w.shape == weight.shape and w.equal(weight) for w in own)
            assert kept, f"the classifier does not start with the language model's {name}"
    model.double()
    ids, lengths = torch.randint(1, 19, (3, 7)), torch.tensor([7, 5, 2])
    ids[0], padding = torch.arange(1, 8), torch.arange(7) >= lengths[:, None]
    ids[padding] = 0
    logits = model(ids, lengths)
    expect(_shape(logits), (3, 7, 20), "the shape of the logits, (B, T, vocab_size)")

    def moved(changed: torch.Tensor) -> torch.Tensor:
        return (model(changed, lengths) - logits).abs().amax(-1)  # (3, 7)

    n = sum(m.num_layers for m in model.modules() if isinstance(m, nn.RNNBase) and m.bidirectional)
    stacked = ": bidirectional layers are stacked, and the second layer reads it in the first"
    reason = f"{stacked} layer's states; stack each direction by itself" * (n > 1)
    for t in range(7):
        row, *rest = moved(torch.cat((ids[:1] + torch.eye(7, dtype=torch.long)[t], ids[1:])))
        assert row[t] < 1e-12, f"the prediction of token {t} depends on token {t} itself{reason}"
        others = torch.cat((row[:t], row[t + 1 :]))
        assert others.min() > 1e-12, f"not every other prediction depends on token {t}"
        assert max(map(torch.max, rest)) < 1e-12, "predictions of one sequence depend on another"
    for side, order, behind in (("left", "1023456", range(2, 7)), ("right", "0123465", range(5))):
        swapped = torch.cat((ids[:1, [*map(int, order)]], ids[1:]))
        bag = f"the order of the words on the {side} does not matter: that is a bag of words"
        assert moved(swapped)[0, behind].min() > 1e-12, f"{bag}, and an LSTM reads one by one"
    turned = (model(ids.flip(0), lengths.flip(0)).flip(0) - logits)[~padding].abs()
    assert turned.max() < 1e-12, "the predictions depend on the order of the batch"
    padded = ids.masked_fill(padding, 3)
    assert moved(padded)[~padding].max() < 1e-12, "the predictions depend on padding"
    if classifier_of:
        _classifies(_large(classifier).double(), ids, padded, lengths)


def _large(model: nn.Module) -> nn.Module:
    """Enlarge weights: an output layer may begin at zero, where nothing moves."""
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.5)
    return model.eval()


def _weights_of_words(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    kinds = nn.Embedding, nn.RNNBase, nn.RNNCellBase
    for name, layer in model.named_modules():
        if isinstance(layer, kinds):
            yield from layer.named_parameters(name)


def _classifies(model: nn.Module, ids: torch.Tensor, padded: torch.Tensor, n: torch.Tensor) -> None:
    """Check that the classifier reads every word, no padding, and that all of it is trained."""
    logits = model(ids, n)
    expect(_shape(logits), (3, 3), "the shape of the classifier's logits, (B, n_classes)")
    same = {"the order of the batch": model(ids.flip(0), n.flip(0)).flip(0)}
    for what, other in (same | {"padding": model(padded, n)}).items():
        assert (other - logits).abs().max() < 1e-12, f"the classifier depends on {what}"
    F.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    for name, weight in _weights_of_words(model):
        trained = weight.grad is not None and weight.grad.any()
        assert trained, f"fine-tuning does not change {name}"


def exercise_27_2(matching_loss: Callable[..., torch.Tensor]) -> None:
    """Check matching_loss(model, head, first, second, labels, lm_weight).

    model is a GPT whose ids 0, 1 and 2 are start, separator and end; head is a linear layer from
    d_model to the classes; first and second are lists of N texts, each a list of ids; labels (N,).
    Returned is the mean of -log P(label) over the pairs plus lm_weight times the mean of
    -log P(token) over the predicted tokens. Both ways to read a pair pass: in the order first,
    second alone, or in both orders, put together in any way that gives swapped texts the same loss.
    """
    model = _large(GPT(GPTConfig(30, 16, n_layers=1, n_heads=2, max_length=32))).double()
    head = _large(nn.Linear(16, 3)).double()
    first, second = [[5, 6, 7], [8], [9, 10]], [[11], [12, 13, 14, 15], [16, 17]]
    labels = torch.tensor([0, 2, 1])

    def loss(a: list, b: list, rows: slice = slice(None), lm_weight: float = 0.0) -> float:
        value = matching_loss(model, head, a[rows], b[rows], labels[rows], lm_weight)
        expect(_shape(value), (), "the shape of the loss, one number")
        return value.item()

    matching, half, whole = (loss(first, second, lm_weight=w) for w in (0.0, 0.5, 1.0))
    assert abs(whole - matching - 2 * (half - matching)) < 1e-9, "lm_weight is not a factor"
    ones = [slice(i, i + 1) for i in range(3)]
    single = [loss(first, second, rows) for rows in ones]
    alone = "the loss of the labels must be the mean over the pairs, each as if it were alone"
    assert abs(sum(single) / 3 - matching) < 1e-9, alone
    early = "the class is predicted from states without access to the whole pair"
    exact = model.states

    def blurred(ids: torch.Tensor, cache: None = None) -> torch.Tensor:
        end = (ids == 2) & ((ids == 2).cumsum(1) == 1)  # all others become random
        return torch.where(end[..., None], exact(ids), torch.randn(*ids.shape, 16).double())

    model.states = blurred
    assert abs(loss(first, second) - matching) < 1e-9, early
    model.states = exact
    for name, a, b in (("first", [[5, 18, 7]], [[11]]), ("second", [[5, 6, 7]], [[18]])):
        assert abs(loss(a, b, ones[0]) - single[0]) > 1e-9, f"the {name} text is not read"
    pair = [torch.tensor([0, 5, 6, 7, 1, 11, 2]), torch.tensor([0, 11, 1, 5, 6, 7, 2])]
    states = [model.states(row[None])[0] for row in pair]
    if abs(loss(second, first) - matching) > 1e-9:  # one order: that of the arguments
        right = F.cross_entropy(head(states[0][-1]), labels[0]).item()
        order = "but it is not that of the sequence start, first, separator, second, end"
        swapped = f"swapping the texts changes the loss of the labels, {order}"
        assert abs(single[0] - right) < 1e-9, swapped
    text = [loss(first, second, rows, 1.0) - one for rows, one in zip(ones, single, strict=True)]
    means = (6 * text[0] + 7 * text[1] + 6 * text[2]) / 19, sum(text) / 3
    beside = "the language model's loss depends on the length of the pairs beside it"
    assert min(abs(whole - matching - mean) for mean in means) < 1e-9, beside
    logits = [x[:-1] @ model.tokens.weight.T for x in states]
    right = [F.cross_entropy(x, row[1:]).item() for x, row in zip(logits, pair, strict=True)]
    where = "all tokens but the first of start, first, separator, second, end"
    if min(abs(text[0] - r) for r in (*right, sum(right) / 2)) > 1e-9:
        expect(text[0], right[0], f"the language model's loss, the mean of -log P over {where}")
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    equal = loss(first, second)
    assert abs(equal - log(3)) < 1e-9, f"the loss of three equal labels is log 3, not {equal:.4f}"


def exercise_27_3(model_class: Callable[[], nn.Module]) -> None:
    """Check a convolutional autoencoder of 28 × 28 images: encoder and decoder, two layers each.

    The output must be decoder(encoder(images)), and the code have fewer numbers than there are
    pixels, and not more bytes.
    """
    model = model_class().eval()
    for part, kind in (("encoder", nn.Conv2d), ("decoder", nn.ConvTranspose2d)):
        modules = getattr(model, part, nn.Module()).modules()
        layers = [type(m) for m in modules if any(w.dim() > 1 for w in m.parameters(False))]
        why = f"the {part} must have two layers {kind.__name__}, got {len(layers)} with weights"
        assert len(layers) == 2 and all(issubclass(layer, kind) for layer in layers), why
    images = to_unit(datasets.mnist(source="embedded").images[:64])
    with torch.no_grad():
        code, output = model.encoder(images), model(images)
        decoded = model.decoder(code)
    assert output.shape == images.shape, f"from (64, 1, 28, 28) came {_shape(output)}"
    assert output.min() >= 0 and output.max() <= 1, "the output must be gray values from 0 to 1"
    numbers, each = code[0].numel(), code.element_size()
    assert numbers < 784, f"nothing is compressed: {numbers:,} numbers for 784 pixels"
    size = f"{numbers:,} numbers of {each} bytes are {numbers * each:,} bytes, 784 pixels are 784"
    assert numbers * each <= 784, f"the code is larger than the image: {size}"
    around = "the output is not decoder(encoder(images)): something goes around the code"
    assert _shape(decoded) == output.shape and torch.allclose(decoded, output, atol=1e-5), around
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    for _ in range(60):
        error = F.mse_loss(model(images), images)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    mean = (images - images.mean(0)).square().mean().item()
    errors = f"error {error:.4f} after 60 steps, and {mean:.4f} for the mean image"
    assert error.item() < 0.7 * mean, f"it does not learn: {errors}"


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
    shapes = _shape(encode), _shape(decode)
    assert shapes == ((3, 12), (12, 3)), f"W_E must be (3, 12) and W_D (12, 3), got {shapes}"
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
    noisy, seen, squares = x + torch.randn(40, 3), [], nn.MSELoss(reduction="none")
    both = noisy, torch.ones(40, 3, dtype=torch.bool)
    value = denoising_loss(x, lambda _: both, lambda z: seen.append(z) or z / 2, squares)
    expect(_shape(value), (), "the shape of the loss, one number")
    right = (noisy / 2 - x).square().mean()
    assert seen and seen[0].equal(noisy), "what is predicted from must have the noise"
    why = f"continuous: {value:.4f}, not {right:.4f}; the target is x without noise"
    assert torch.isclose(value, right), why
    ids = torch.randint(0, 9, (4, 10))
    chosen = torch.arange(40).view(4, 10) % 7 == 0
    logits = torch.randn(4, 10, 9, requires_grad=True)

    def compare(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(prediction.transpose(1, 2), target, reduction="none")

    def loss(chosen: torch.Tensor) -> torch.Tensor:
        noisy = ids.masked_fill(chosen, 9)
        return denoising_loss(ids, lambda x: (noisy, chosen), lambda z: logits, compare)

    value, right = loss(chosen), compare(logits, ids)[chosen].mean()
    why = f"tokens: {value:.4f}, not {right:.4f}; only chosen positions count"
    assert torch.isclose(value, right), why
    value = loss(torch.zeros_like(chosen))
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
        for part, got in table.items():
            two = isinstance(got, (tuple, list)) and len(got) == 2
            assert two, f"{part} needs two numbers, (in BERT, in the encoder), got {got!r}"
        wrong = [part for part in right if tuple(table[part]) != right[part]]
        wrong = [part + _slip(part, table[part], right[part], d, f, n) for part in wrong]
        assert not wrong, f"wrong numbers with d_model = {d}: {', '.join(wrong)}"


def _slip(part: str, got: Sequence, right: Sequence, d: int, f: int, n: int) -> str:
    """Return the name of the mistake in brackets, if it is one that is often made."""
    bert = {  # what BERT has by mistake
        ("attention", n * 4 * d * d): "the biases are missing",
        ("attention", n * 3 * (d * d + d)): "the output projection is missing",
        ("feed-forward", n * 2 * d * f): "the biases are missing",
        ("feed-forward", n * (8 * d * d + 5 * d)): "d_ff need not be 4 * d_model",
        ("layer norms", n * 2 * d): "a layer has two norms, and a norm has two vectors",
        ("embedding norm", d): "a norm has two vectors",
        ("pooler", d * d): "no bias",
    }
    name = bert.get((part, got[0]), "that is one layer" if n > 1 and got[0] * n == right[0] else "")
    if got[0] == right[0] and got[1] and not right[1]:
        learned = "sinusoids are computed, not learned"
        name = learned if part == "positions" else "the encoder has none"
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


CHECKS = {f"27.{i}": globals()[f"exercise_27_{i}"] for i in range(1, 7)}
