"""GPT against the Transformers library's GPT-2, and by its own laws: causality, cache, training."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.models.gpt import GPT, GPTConfig
from support.models.pretrained import load_gpt
from tests.exactness import EXACT_TYPES, close, rounded_anew

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)


def small_gpt(dtype=torch.float32, max_length=16, **options):
    torch.manual_seed(0)
    config = GPTConfig(19, 12, 2, 3, max_length=max_length, **options)
    return rounded_anew(GPT(config)).to(dtype).eval()


@exact_types
@pytest.mark.parametrize(
    "options",
    [
        {"activation_function": "gelu_new"},
        {"activation_function": "relu", "n_inner": 7, "layer_norm_epsilon": 1e-2},
        {"activation_function": "gelu", "n_layer": 1, "n_head": 1},
    ],
    ids=str,
)
def test_logits_loss_and_gradients_are_the_librarys(library, tmp_path, options, dtype):
    torch.manual_seed(0)
    sizes = {"vocab_size": 23, "n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 11}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0}
    theirs = rounded_anew(library.GPT2LMHeadModel(library.GPT2Config(**sizes | options))).eval()
    theirs.save_pretrained(tmp_path)
    theirs, ours = theirs.to(dtype), load_gpt(tmp_path).to(dtype)
    ids = torch.randint(23, (3, 11))
    logits, expected = ours(ids), theirs(ids, output_hidden_states=True)
    close(logits, expected.logits)
    close(ours.states(ids), expected.hidden_states[-1])
    for out in (logits, expected.logits):
        F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    for own, other in {"tokens": "wte", "positions": "wpe", "final_norm": "ln_f"}.items():
        gradient = theirs.transformer.get_parameter(f"{other}.weight").grad
        close(ours.get_parameter(f"{own}.weight").grad, gradient)


@exact_types
def test_a_token_moves_its_own_logits_and_all_later_ones_and_no_earlier(dtype):
    model = small_gpt(dtype)
    ids = torch.randint(19, (2, 10))
    before = model(ids)
    for at in range(10):
        other = ids.clone()
        other[:, at] = (ids[:, at] + 1) % 19
        moved = (model(other) - before).abs().amax(-1)
        assert moved[:, :at].sum() == 0 or moved[:, :at].max() < 1e-5
        assert (moved[:, at:] > 1e-4).all()


@exact_types
@pytest.mark.parametrize("parts", [[1] * 9, [4, 1, 1, 3], [9]], ids=str)
def test_with_the_cache_in_parts_is_as_the_whole(parts, dtype):
    model = small_gpt(dtype)
    ids, cache = torch.randint(19, (3, 9)), model.new_cache()
    pieces = [model(part, cache=cache) for part in ids.split(parts, dim=1)]
    close(torch.cat(pieces, dim=1), model(ids))
    assert [layer.length for layer in cache] == [9, 9]


def test_more_positions_than_the_model_has_are_refused_with_and_without_a_cache():
    model, cache = small_gpt(), None
    with pytest.raises(ValueError, match="the model has 16 positions, the sequence needs 17"):
        model(torch.zeros(1, 17, dtype=torch.long))
    cache = model.new_cache()
    model(torch.zeros(1, 15, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="the model has 16 positions, the sequence needs 17"):
        model(torch.zeros(1, 2, dtype=torch.long), cache=cache)  # its one vector would broadcast


@pytest.mark.parametrize("n_layers", [0, -1])
def test_a_model_without_layers_is_refused(n_layers):
    """Its cache could not count the positions."""
    with pytest.raises(ValueError, match=f"expected n_layers of at least 1, got {n_layers}"):
        GPTConfig(19, 12, n_layers, 3)


@pytest.mark.parametrize("ids", [torch.tensor([[19]]), torch.tensor([1, 2]), torch.zeros(1, 2)])
def test_ids_that_are_none_of_the_model_are_refused(ids):
    with pytest.raises((IndexError, RuntimeError)):
        small_gpt()(ids)


# ---------------------------------------------------------------------- sizes, start and dropout
def test_the_default_is_gpt_2_with_its_124_million_parameters():
    with torch.device("meta"):
        model = GPT(GPTConfig(50_257))
    assert sum(value.numel() for value in model.parameters()) == 124_439_808
    config = model.config
    assert (config.max_length, config.dropout, config.attention_dropout) == (1024, 0.1, 0.1)
    assert (config.norm_eps, config.activation) == (1e-5, "gelu_tanh")


def test_the_embedding_is_used_at_both_ends_and_positions_count_from_zero():
    model = small_gpt()
    ids = torch.tensor([[1, 2, 3]])
    close(model(ids), model.states(ids) @ model.tokens.weight.T)
    model(ids)[..., 7].sum().backward()
    used = model.tokens.weight.grad.abs().sum(-1) > 0
    assert used.nonzero()[:, 0].tolist() == [1, 2, 3, 7]
    used = model.positions.weight.grad.abs().sum(-1) > 0
    assert used.nonzero()[:, 0].tolist() == [0, 1, 2]


def test_weights_start_small_and_what_adds_to_the_stream_smaller():
    torch.manual_seed(0)
    model = GPT(GPTConfig(300, 96, 8, 4, max_length=100))
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            assert not value.any(), name
        elif value.dim() == 1:
            assert (value == 1).all(), name
        else:
            expected = 0.02 / 4 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert value.std().item() == pytest.approx(expected, rel=0.05), name
            assert abs(value.mean().item()) < 0.05 * expected, name


def test_dropout_reaches_the_embedding_the_weights_and_both_sublayers():
    model = small_gpt(dropout=0.75, attention_dropout=0.3).train()
    entered = []
    model.layers[0].register_forward_pre_hook(lambda _, given: entered.append(given[0]))
    ids = torch.randint(19, (4, 16))
    model(ids)
    assert (entered[0] == 0).float().mean().item() == pytest.approx(0.75, abs=0.05)
    for layer in model.layers:
        assert (layer.dropout.p, layer.attention.dropout) == (0.75, 0.3)
    model.eval()
    assert torch.equal(model(ids), model(ids))


def test_a_model_learns_a_text_that_repeats_itself():
    torch.manual_seed(0)
    model = GPT(GPTConfig(5, 16, 1, 2, max_length=8, dropout=0.0, attention_dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    windows = torch.tensor([0, 1, 2, 1, 3, 4] * 60).unfold(0, 9, 8)  # (44, 9)
    losses = []
    for _ in range(12):
        for rows in torch.randperm(len(windows)).split(8):
            logits = model(windows[rows, :-1]).flatten(0, 1)
            loss = F.cross_entropy(logits, windows[rows, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(5), abs=0.1)
    assert losses[-1] < 0.4
