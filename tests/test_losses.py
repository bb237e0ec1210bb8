"""The loss that never holds all logits, against PyTorch's: values, gradients, precision, memory."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models import transformer
from support.models.transformer import linear_cross_entropy
from tests.exactness import close

quick = settings(max_examples=40, derandomize=True, database=None, deadline=None)


def example(n=7, d=5, v=11, dtype=torch.float32, bias=True, spread=1.0):
    """Return states, weight and bias, which want gradients, and targets with both ends."""
    made = torch.randn(n, d) * spread, torch.randn(v, d), torch.randn(v) if bias else None
    targets = torch.randint(v, (n,))
    targets[0], targets[-1] = 0, v - 1
    return *(None if x is None else x.to(dtype).requires_grad_() for x in made), targets


def in_chunks(rows, states, weight, bias, targets):
    """Return our loss with the logits of that many rows at a time; rows None leaves it alone."""
    with pytest.MonkeyPatch.context() as patch:
        if rows is not None:
            patch.setattr(transformer, "CHUNK_CPU", rows * len(weight))
        return linear_cross_entropy(states, weight, bias, targets)


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, [x for x in inputs if x is not None])


@given(
    n=st.integers(1, 20),
    d=st.integers(1, 9),
    v=st.integers(1, 30),
    chunk=st.none() | st.integers(1, 25),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    factor=st.sampled_from([1.0, -0.3, 2.0**16]),
    seed=st.integers(0, 2**32),
)
@quick
def test_value_and_gradients_are_those_of_all_logits_at_once(
    n, d, v, chunk, bias, dtype, factor, seed
):
    torch.manual_seed(seed)
    states, weight, b, targets = example(n, d, v, dtype, bias)
    ours = in_chunks(chunk, states, weight, b, targets)
    theirs = F.cross_entropy(F.linear(states, weight, b), targets)
    assert ours.dtype == dtype and ours.shape == ()
    close(ours, theirs)
    inputs = states, weight, b
    for own, other in zip(
        gradients(ours * factor, *inputs), gradients(theirs * factor, *inputs), strict=True
    ):
        assert own.dtype == dtype
        close(own / factor, other / factor)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, None])
def test_gradients_are_the_slopes_of_the_loss(bias, chunk):
    torch.manual_seed(1)
    states, weight, b, targets = example(dtype=torch.float64, bias=bias)
    assert torch.autograd.gradcheck(
        lambda *inputs: in_chunks(chunk, *inputs, targets), (states, weight, b)
    )


def test_the_loss_can_be_a_part_of_a_larger_one():
    torch.manual_seed(2)
    states, weight, b, targets = example()
    other = torch.randn(())
    ours = in_chunks(2, states, weight, b, targets) * other + weight.square().sum()
    theirs = F.cross_entropy(F.linear(states, weight, b), targets) * other + weight.square().sum()
    for own, others in zip(
        gradients(ours, states, weight, b), gradients(theirs, states, weight, b), strict=True
    ):
        close(own, others)


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_a_scaled_loss_scales_the_gradients_without_a_rounding(factor):
    torch.manual_seed(3)
    inputs = example()
    plain = gradients(linear_cross_entropy(*inputs), *inputs[:3])
    scaled = gradients(linear_cross_entropy(*inputs) * factor, *inputs[:3])
    for one, other in zip(plain, scaled, strict=True):
        assert torch.equal(one * factor, other)


def test_a_right_answer_beyond_doubt_costs_nothing_and_a_wrong_one_stays_finite():
    states, weight = torch.tensor([[1e4], [1e4]]), torch.tensor([[1.0], [-1.0]])
    assert linear_cross_entropy(states, weight, None, torch.tensor([0, 0])) == 0
    assert linear_cross_entropy(states, weight, None, torch.tensor([0, 1])) == 1e4


def test_under_autocast_only_the_products_are_in_half_precision():
    torch.manual_seed(4)
    inputs = example(n=1000, d=32, v=50)
    exact = linear_cross_entropy(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rough = in_chunks(2, *inputs)
        theirs = F.cross_entropy(F.linear(*inputs[:3]), inputs[3])
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rough, exact, rtol=1e-2, atol=1e-2)
    for own, other in zip(
        gradients(rough, *inputs[:3]), gradients(exact, *inputs[:3]), strict=True
    ):
        assert own.dtype == torch.float32
        # A sum of 500 chunks that itself were in half precision would be off by 1.4 %.
        assert (own - other).norm() < 0.01 * other.norm()


def test_states_in_half_precision_keep_their_type_and_the_loss_its_digits():
    torch.manual_seed(5)
    states, weight, b, targets = example(n=2000, dtype=torch.bfloat16, bias=False)
    loss = in_chunks(64, states, weight, b, targets)
    assert loss.dtype == torch.float32
    logits = F.linear(states, weight).float()
    torch.testing.assert_close(loss, F.cross_entropy(logits, targets), rtol=1e-5, atol=1e-5)
    assert {x.dtype for x in gradients(loss, states, weight)} == {torch.bfloat16}


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_gets_no_gradient_and_the_others_the_same(frozen):
    torch.manual_seed(6)
    inputs = example()
    expected = gradients(linear_cross_entropy(*inputs), *inputs[:3])
    inputs[frozen].requires_grad_(False)
    linear_cross_entropy(*inputs).backward()
    for i, gradient in enumerate(expected):
        assert inputs[i].grad is None if i == frozen else torch.equal(inputs[i].grad, gradient)


# ------------------------------------------------------------------------------ memory and work
@pytest.fixture
def sizes(monkeypatch):
    """Return the list to which the number of logits of each product is added."""
    seen = []
    linear = F.linear

    def counted(x, weight, bias=None):
        out = linear(x, weight, bias)
        seen.append(out.numel())
        return out

    monkeypatch.setattr(F, "linear", counted)
    return seen


@pytest.mark.parametrize(("at_once", "most"), [(33, 33), (32, 22), (5, 11)])
def test_never_more_than_a_chunk_of_logits_is_held(monkeypatch, sizes, at_once, most):
    monkeypatch.setattr(transformer, "CHUNK_CPU", at_once)
    linear_cross_entropy(*example(n=20, v=11)).backward()
    assert max(sizes) == most
    assert sum(size for size in sizes if size > 1) == 20 * 11


def test_without_gradients_none_is_computed(monkeypatch):
    inputs = example()
    expected = linear_cross_entropy(*inputs).detach()

    def refuse(*_, **__):
        raise AssertionError("a gradient was computed that nobody asked for")

    monkeypatch.setattr(torch, "mm", refuse)
    with torch.no_grad():
        assert linear_cross_entropy(*inputs) == expected
    frozen = [x.detach() for x in inputs]
    assert linear_cross_entropy(*frozen) == expected
    with pytest.raises(AssertionError, match="nobody asked"):
        linear_cross_entropy(*inputs)


def test_it_says_that_it_cannot_be_differentiated_twice():
    states, weight, b, targets = example()
    loss = linear_cross_entropy(states, weight, b, targets)
    (gradient,) = torch.autograd.grad(loss, states, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(gradient.sum(), states)


# --------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": torch.zeros(7, 4)}, r"\(7, 4\), \(11, 5\), \(11,\), \(7,\)"),
        ({"states": torch.zeros(1, 7, 5)}, r"\(1, 7, 5\)"),
        ({"weight": torch.zeros(11)}, r"\(7, 5\), \(11,\)"),
        ({"bias": torch.zeros(1)}, r"\(11, 5\), \(1,\), \(7,\)"),
        ({"targets": torch.zeros(7, 1, dtype=torch.long)}, r"\(7, 1\)"),
        ({"targets": torch.zeros(6, dtype=torch.long)}, r"\(6,\)"),
        ({"targets": torch.arange(7) + 5}, "targets must be from 0 to 10, got 5 to 11"),
        ({"targets": torch.arange(7) - 100}, "targets must be from 0 to 10, got -100 to -94"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    states, weight, bias, targets = example()
    given = {"states": states, "weight": weight, "bias": bias, "targets": targets} | change
    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(**given)


def test_a_batch_without_predictions_is_refused():
    with pytest.raises(ValueError, match="nothing to predict"):
        linear_cross_entropy(torch.zeros(0, 5), torch.zeros(11, 5), None, torch.zeros(0).long())
