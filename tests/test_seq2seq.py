"""Sequence to sequence: scale, tying, dropout, padding, causality, decoding in steps."""

import math

import pytest
import torch
import torch.nn.functional as F

from support.models.seq2seq import Seq2Seq
from support.models.transformer import padding_mask, sinusoidal_positions
from tests.exactness import EXACT_TYPES, close, rounded_anew

exact_types = pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)
both_orders = pytest.mark.parametrize("norm_first", [False, True])
SOURCE, TARGET, D = 17, 19, 12
SIZES = {"d_model": D, "n_heads": 3, "d_ff": 20, "n_layers": 2, "max_length": 9}
LENGTHS = torch.tensor([5, 2, 4])


def small(*vocab_sizes, **options):
    torch.manual_seed(0)
    return rounded_anew(Seq2Seq(*(vocab_sizes or (SOURCE, TARGET)), **(SIZES | options)))


def text(t=4):
    torch.manual_seed(1)
    return torch.randint(SOURCE, (3, 5)), torch.randint(TARGET, (3, t))


@both_orders
def test_the_logits_are_the_papers_written_out(norm_first):
    model = small(norm_first=norm_first).eval()
    source, target = text()
    positions = sinusoidal_positions(9, D)
    states = model.stack(
        model.source_embedding.weight[source] * math.sqrt(D) + positions[:5],
        model.target_embedding.weight[target] * math.sqrt(D) + positions[:4],
        source_mask=padding_mask(LENGTHS, 5),
    )
    logits = model(source, target, LENGTHS)
    assert logits.shape == (3, 4, TARGET)
    close(logits, states @ model.target_embedding.weight.T)
    norms = {type(s.final_norm).__name__ for s in (model.stack.encoder, model.stack.decoder)}
    assert norms == {"LayerNorm" if norm_first else "Identity"}
    assert not [name for name in model.state_dict() if "positions" in name]


def test_one_embedding_serves_all_where_there_is_one_vocabulary():
    shared = small(SOURCE)
    assert shared.source_embedding is shared.target_embedding
    source, target = text()
    assert shared(source, target % SOURCE).shape == (3, 4, SOURCE)
    same = small(SOURCE, SOURCE)
    assert not torch.equal(same.source_embedding.weight, same.target_embedding.weight)


def test_the_scaled_embeddings_start_with_variance_one():
    model = Seq2Seq(5000, 4000, d_model=64, n_heads=2)
    for table in (model.source_embedding, model.target_embedding):
        assert (table.weight.std() * 8).item() == pytest.approx(1, abs=0.01)


def test_dropout_is_where_the_paper_has_it():
    model = small(dropout=0.75, attention_dropout=0.3).train()
    entered = []
    for stack in (model.stack.encoder, model.stack.decoder):
        stack.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
    model(*text(), LENGTHS)
    for x in entered:
        assert (x == 0).float().mean().item() == pytest.approx(0.75, abs=0.15)
    assert len(entered) == 2
    for layer in (*model.stack.encoder.layers, *model.stack.decoder.layers):
        assert (layer.dropout.p, layer.attention.dropout) == (0.75, 0.3)


@both_orders
def test_a_later_token_changes_no_earlier_logits(norm_first):
    model, (source, target) = small(norm_first=norm_first).eval(), text(t=6)
    changed = target.clone()
    changed[:, 3:] = (target[:, 3:] + 1) % TARGET
    before, after = model(source, target), model(source, changed)
    close(after[:, :3], before[:, :3])
    assert ((after - before)[:, 3:].abs().amax(-1) > 1e-4).all()


@exact_types
def test_padding_changes_nothing_whatever_is_in_it_and_however_long(dtype):
    model, (source, target) = small().to(dtype).eval(), text()
    padded = F.pad(source, (0, 3), value=3)
    other = torch.where(torch.arange(8) < LENGTHS[:, None], padded, (padded + 7) % SOURCE)
    logits = model(source, target, LENGTHS)
    close(model(other, target, LENGTHS), logits)
    for i, n in enumerate(LENGTHS):
        close(model(source[i : i + 1, :n], target[i : i + 1]), logits[i : i + 1])


@exact_types
@both_orders
@pytest.mark.parametrize("parts", [[1] * 6, [3, 1, 2]], ids=str)
def test_decoding_in_steps_gives_the_logits_of_one_pass(parts, norm_first, dtype):
    model = small(norm_first=norm_first).to(dtype).eval()
    source, target = text(t=6)
    memory, mask = model.encode(source, LENGTHS)
    cache = model.stack.decoder.new_cache()
    pieces = [model.decode(part, memory, mask, cache) for part in target.split(parts, 1)]
    close(torch.cat(pieces, 1), model(source, target, LENGTHS))
    with pytest.raises(ValueError, match="the model has 9 positions, the sequence needs 10"):
        model.decode(target[:, :4], memory, mask, cache)


def test_it_memorizes_a_few_pairs():
    torch.manual_seed(0)
    model, (source, target) = Seq2Seq(SOURCE, TARGET, dropout=0.0, **SIZES), text()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    fed = F.pad(target, (1, -1))  # id 0 starts
    for _ in range(40):
        loss = F.cross_entropy(model(source, fed).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3, f"uniform guessing has a loss of {math.log(TARGET):.2f}"
