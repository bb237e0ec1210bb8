"""The library's checkpoints: read, written, refused; and PyTorch's modules with our weights."""

import copy
import itertools
import json
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
)
from support.models.gpt import GPT, GPTConfig
from support.models.pretrained import load_bert, load_gpt, save
from support.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MultiHeadAttention,
    TransformerBlock,
    causal_mask,
    padding_mask,
    record_weights,
)
from tests.exactness import EXACT_TYPES, close, rounded_anew
from tests.pytorch_modules import to_torch

quick = settings(max_examples=5, derandomize=True, database=None, deadline=None)
NO_POOLER = pytest.mark.filterwarnings("ignore:.*has no pooler")

BERT_SIZES = {
    "vocab_size": 19,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
GPT_SIZES = {"vocab_size": 19, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 16}
GPT_SIZES |= {"bos_token_id": 0, "eos_token_id": 0}

# The library's class, ours, and whether the weights have the prefix "bert." or "transformer.".
PAIRS = {
    "BertModel": (Bert, False),
    "BertForPreTraining": (BertForPretraining, True),
    "BertForSequenceClassification": (TextClassifier, True),
    "BertForTokenClassification": (TokenClassifier, True),
    "BertForQuestionAnswering": (SpanClassifier, True),
    "GPT2LMHeadModel": (GPT, True),
    "GPT2Model": (GPT, False),
}


def our_model(kind, **options):
    if kind is GPT:
        return rounded_anew(GPT(GPTConfig(**({"vocab_size": 19, "d_model": 12} | SMALL | options))))
    bert = rounded_anew(Bert(BertConfig(**({"vocab_size": 19, "d_ff": 20} | SMALL | options))))
    if kind is Bert:
        return bert
    return rounded_anew(kind(bert, 4) if kind in (TextClassifier, TokenClassifier) else kind(bert))


SMALL = {"d_model": 12, "n_layers": 2, "n_heads": 3, "max_length": 16}
OURS = [Bert, BertForPretraining, TextClassifier, TokenClassifier, SpanClassifier, GPT]


def load(folder, kind):
    """Return a checkpoint as one of our classes."""
    return load_gpt(folder) if kind is GPT else load_bert(folder, kind)


def equal_states(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def change(folder, weights=None, without=(), config=None):
    """Change a checkpoint: weights to set, keys to leave out, entries of the configuration."""
    state = load_file(folder / "model.safetensors")
    state = {key: value for key, value in state.items() if key not in without} | (weights or {})
    save_file(state, folder / "model.safetensors")
    given = json.loads((folder / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps(given))
    return folder


@pytest.fixture
def bert_folder(tmp_path):
    save(our_model(BertForPretraining), tmp_path)
    return tmp_path


@pytest.fixture
def gpt_folder(tmp_path):
    save(our_model(GPT), tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------ with the library
def their_model(library, name, **options):
    if name.startswith("GPT2"):
        config = library.GPT2Config(**(GPT_SIZES | options))
    else:
        config = library.BertConfig(**(BERT_SIZES | options))
    return rounded_anew(getattr(library, name)(config)).eval()


@NO_POOLER
@pytest.mark.parametrize("name", PAIRS)
@given(
    seed=st.integers(0, 2**32),
    dropout=st.sampled_from([0.0, 0.3]),
    activation=st.sampled_from(["relu", "gelu", "gelu_new"]),
    eps=st.sampled_from([1e-12, 1e-3]),
    n_classes=st.sampled_from([1, 2, 5]),
)
@quick
def test_theirs_read_and_written_is_theirs_to_the_last_bit(
    library, tmp_path_factory, name, seed, dropout, activation, eps, n_classes
):
    torch.manual_seed(seed)
    first, second = (tmp_path_factory.mktemp(x) for x in ("theirs", "ours"))
    if name.startswith("GPT2"):
        options = {"activation_function": activation, "layer_norm_epsilon": eps}
        options |= {"attn_pdrop": dropout, "resid_pdrop": 0.2, "embd_pdrop": 0.2}
    else:
        options = {"hidden_act": activation, "layer_norm_eps": eps, "hidden_dropout_prob": 0.2}
        options |= {"attention_probs_dropout_prob": dropout}
    if "Classification" in name:
        options["num_labels"] = n_classes
    theirs = their_model(library, name, **options)
    theirs.save_pretrained(first)
    kind, prefixed = PAIRS[name]
    prefix = "transformer." if kind is GPT else "bert."
    stored = load_file(first / "model.safetensors")
    assert any(key.startswith(prefix) for key in stored) == prefixed
    ours = load(first, kind)
    assert not ours.training
    config = ours.config if kind in (Bert, GPT) else ours.bert.config
    assert (config.dropout, config.attention_dropout, config.norm_eps) == (0.2, dropout, eps)
    save(ours, second)
    back = type(theirs).from_pretrained(second).eval()
    equal_states(theirs, back)
    for key in options:
        assert getattr(back.config, key) == getattr(theirs.config, key), key
    written = load_file(second / "model.safetensors")
    for key in stored:
        ours_key = key if key in written else f"{prefix}{key}"  # of a bare GPT2Model
        assert torch.equal(stored[key], written[ours_key]), key
    equal_states(load(second, kind), ours)


@pytest.mark.parametrize("kind", OURS)
def test_ours_written_is_read_by_the_library(library, tmp_path, kind):
    torch.manual_seed(1)
    ours = our_model(kind).eval()
    save(ours, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    (name,) = written["architectures"]
    theirs = getattr(library, name).from_pretrained(tmp_path).eval()
    ids, segments = torch.randint(19, (3, 8)), torch.randint(2, (3, 8))
    with torch.no_grad():
        if kind is GPT:
            assert written["bos_token_id"] is written["eos_token_id"] is None
            pairs = [(ours.logits(ours(ids)), theirs(ids).logits)]
        elif kind is Bert:
            out = theirs(ids, token_type_ids=segments)
            hidden = ours(ids, segments)
            pairs = [(hidden, out.last_hidden_state), (ours.pool(hidden), out.pooler_output)]
        elif kind is BertForPretraining:
            out = theirs(ids, token_type_ids=segments)
            hidden = ours.bert(ids, segments)
            pairs = [
                (ours.predict_tokens(hidden), out.prediction_logits),
                (ours.predict_next(ours.bert.pool(hidden)), out.seq_relationship_logits),
            ]
        elif kind is SpanClassifier:
            out = theirs(ids, token_type_ids=segments)
            pairs = list(zip(ours(ids, segments), (out.start_logits, out.end_logits), strict=True))
        else:
            pairs = [(ours(ids, segments), theirs(ids, token_type_ids=segments).logits)]
    for own, other in pairs:
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)


def test_tied_weights_are_one_before_and_after(library, tmp_path):
    for name in ("BertForPreTraining", "GPT2LMHeadModel"):
        theirs = their_model(library, name)
        theirs.save_pretrained(tmp_path / name)
        ours = load(tmp_path / name, PAIRS[name][0])
        if isinstance(ours, GPT):
            table, states = ours.tokens.weight, torch.randn(2, 12)
            predict, total = ours.logits, sum(x.numel() for x in theirs.parameters())
        else:
            table, states = ours.bert.tokens.weight, torch.randn(2, 12)
            predict, total = ours.predict_tokens, sum(x.numel() for x in theirs.parameters())
        assert sum(x.numel() for x in ours.parameters()) == total, "no copy of the tied weights"
        before = predict(states)
        with torch.no_grad():
            table[5] += 1.0
        moved = (predict(states) != before).any(0)
        assert moved.nonzero()[:, 0].tolist() == [5]
        save(ours, tmp_path / f"{name}-again")
        back = type(theirs).from_pretrained(tmp_path / f"{name}-again")
        assert back.get_output_embeddings().weight is back.get_input_embeddings().weight
        assert torch.equal(back.get_input_embeddings().weight, table)


def test_a_masked_lm_has_no_pooler_and_a_warning_says_so(library, tmp_path):
    theirs = their_model(library, "BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="has no pooler: ours starts from random") as caught:
        ours = load_bert(tmp_path)
    assert caught[0].filename == __file__, "the warning points at the line of the caller"
    ids = torch.randint(19, (2, 7))
    with torch.no_grad():
        expected = theirs.bert(ids).last_hidden_state
        torch.testing.assert_close(ours(ids), expected, rtol=1e-5, atol=1e-5)
    assert 0 < ours.pooler.weight.std() < 0.05
    with pytest.raises(
        ValueError, match="lacks cls.seq_relationship.weight, cls.seq_relationship.bias"
    ):
        load_bert(tmp_path, BertForPretraining)


@NO_POOLER
def test_a_head_is_not_taken_for_another(library, tmp_path):
    their_model(library, "BertForQuestionAnswering").save_pretrained(tmp_path / "spans")
    their_model(library, "BertForSequenceClassification").save_pretrained(tmp_path / "texts")
    with pytest.raises(ValueError, match="lacks .*classifier.weight, classifier.bias"):
        load_bert(tmp_path / "spans", TextClassifier)
    with pytest.raises(ValueError, match="lacks qa_outputs.weight, qa_outputs.bias"):
        load_bert(tmp_path / "texts", SpanClassifier)
    load_bert(tmp_path / "texts")


# -------------------------------------------------------------------------- without the library
@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_ours_written_and_read_is_ours(tmp_path, kind, activation):
    options = {"dropout": 0.2, "attention_dropout": 0.3, "norm_eps": 1e-4, "d_ff": 21}
    ours = our_model(kind, activation=activation, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(ours, tmp_path / "new" / "folder")
        back = load(str(tmp_path / "new" / "folder"), kind)
    equal_states(back, ours)
    config = (lambda x: x.config) if kind in (Bert, GPT) else (lambda x: x.bert.config)
    assert config(back) == config(ours)
    save(ours, tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        once, again = ((tmp_path / x / name).read_bytes() for x in ("new/folder", "again"))
        assert once == again
    assert sorted(x.name for x in (tmp_path / "again").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_a_feed_forward_of_four_widths_stays_so(tmp_path):
    ours = our_model(GPT)
    save(ours, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["n_inner"] is None
    assert load_gpt(tmp_path).config == ours.config


def test_heads_that_a_model_does_not_have_are_left_out(bert_folder):
    whole = load_bert(bert_folder, BertForPretraining)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        equal_states(load_bert(bert_folder), whole.bert)
    with pytest.raises(ValueError, match="lacks classifier.weight, classifier.bias"):
        load_bert(bert_folder, TextClassifier)


def test_half_precision_and_what_is_not_configured(bert_folder):
    ours = load_bert(bert_folder, BertForPretraining)
    state = load_file(bert_folder / "model.safetensors")
    change(bert_folder, {key: value.half() for key, value in state.items()})
    config = json.loads((bert_folder / "config.json").read_text())
    for key in ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob"):
        del config[key]
    (bert_folder / "config.json").write_text(json.dumps(config))
    back = load_bert(bert_folder, BertForPretraining)
    assert back.bert.config == BertConfig(19, **SMALL, d_ff=20)
    for own, other in zip(back.parameters(), ours.parameters(), strict=True):
        assert torch.equal(own, other.half().float())


def test_what_old_releases_wrote_is_read(tmp_path):
    bert, gpt = our_model(BertForPretraining), our_model(GPT)
    save(bert, tmp_path / "bert")
    save(gpt, tmp_path / "gpt")
    names = {"gamma": "bert.embeddings.LayerNorm.weight", "beta": "bert.embeddings.LayerNorm.bias"}
    stored = load_file(tmp_path / "bert" / "model.safetensors")
    old = {f"bert.embeddings.LayerNorm.{old}": stored[new] for old, new in names.items()} | {
        "bert.embeddings.position_ids": torch.arange(16)[None],
        "cls.predictions.decoder.weight": bert.bert.tokens.weight.detach().clone(),
        "cls.predictions.decoder.bias": bert.token_bias.detach().clone(),
    }
    change(tmp_path / "bert", old, without=names.values())
    equal_states(load_bert(tmp_path / "bert", BertForPretraining), bert)
    old = {
        "transformer.h.1.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.bool),
        "transformer.h.1.attn.masked_bias": torch.tensor(-1e4),
        "lm_head.weight": gpt.tokens.weight.detach().clone(),
    }
    equal_states(load_gpt(change(tmp_path / "gpt", old)), gpt)


# ---------------------------------------------------------------------------------------- errors
ONE = torch.zeros(1)
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
LAYER_3 = "bert.encoder.layer.2.output.dense.bias"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"bert.extra.weight": ONE}}, "unknown keys: extra.weight"),
        ({"weights": {LAYER_3: ONE}}, "unknown keys: encoder.layer.2.output.dense.bias"),
        ({"without": [QUERY]}, "lacks encoder.layer.1.attention.self.query.weight"),
        ({"without": ["bert.embeddings.LayerNorm.bias"]}, "lacks embeddings.LayerNorm.bias"),
        ({"without": ["bert.pooler.dense.bias", "cls.seq_relationship.bias"]}, "lacks .*pooler"),
        ({"weights": {"bert.embeddings.LayerNorm.bias": ONE}}, r"mismatch for bert.norm.bias"),
        ({"config": {"vocab_size": 7}}, r"shape torch.Size\(\[19, 12\]\) from checkpoint"),
        ({"config": {"num_hidden_layers": 1}}, "unknown keys: encoder.layer.1"),
        ({"config": {"num_hidden_layers": 3}}, "lacks encoder.layer.2"),
        ({"config": {"num_attention_heads": 5}}, "multiple of n_heads"),
        ({"config": {"model_type": "roberta"}}, "a model of type 'bert' is needed, got 'roberta'"),
        ({"config": {"model_type": "none"}}, "cannot be read: .*none"),
        ({"config": {"position_embedding_type": "relative_key"}}, "our models have 'absolute'"),
        ({"config": {"is_decoder": True}}, "is_decoder is True, our models have False"),
        ({"config": {"add_cross_attention": True}}, "add_cross_attention is True"),
        ({"config": {"tie_word_embeddings": False}}, "tie_word_embeddings is False"),
        ({"config": {"hidden_act": "swish"}}, "one of .*'gelu_new'.*, got 'swish'"),
    ],
)
def test_a_bert_that_ours_is_not_is_refused_by_name(bert_folder, changes, message):
    change(bert_folder, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_bert(bert_folder, BertForPretraining)
    if "n_heads" not in message:
        assert str(bert_folder) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"transformer.h.0.extra.weight": ONE}}, "unknown keys: .*h.0.extra.weight"),
        ({"weights": {"transformer.h.2.ln_1.bias": ONE}}, "unknown keys: h.2.ln_1.bias"),
        ({"weights": {"score.weight": ONE}}, "unknown keys: score.weight"),
        ({"without": ["transformer.h.1.attn.c_attn.bias"]}, "lacks h.1.attn.c_attn.bias"),
        (
            {"weights": {"transformer.h.0.mlp.c_fc.weight": torch.zeros(48, 12)}},
            "mismatch for layers.0.feed_forward.up.weight",
        ),
        ({"config": {"model_type": "bert"}}, "'gpt2' is needed, got 'bert'"),
        ({"config": {"scale_attn_weights": False}}, "scale_attn_weights is False"),
        ({"config": {"scale_attn_by_inverse_layer_idx": True}}, "our models have False"),
        ({"config": {"activation_function": "silu"}}, "got 'silu'"),
    ],
)
def test_a_gpt_that_ours_is_not_is_refused_by_name(gpt_folder, changes, message):
    with pytest.raises(ValueError, match=message):
        load_gpt(change(gpt_folder, **changes))


@pytest.mark.parametrize("text", ['{"model_type": "bert"', "", "\udc80", "[]"])
def test_a_damaged_configuration_is_refused(bert_folder, text):
    (bert_folder / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match="the checkpoint in .* cannot be read: "):
        load_bert(bert_folder)


@pytest.mark.parametrize("size", [0, 100, -1])
def test_weights_that_are_cut_off_are_refused(bert_folder, size):
    path = bert_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="the checkpoint in .* cannot be read: "):
        load_bert(bert_folder)


class Planted:
    """Something that leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("kind", [Bert, GPT])
def test_a_pickle_is_never_opened(tmp_path, kind, name):
    save(our_model(kind), tmp_path / "model")
    trace = tmp_path / "trace"
    (tmp_path / "model" / "model.safetensors").unlink()
    planted = pickle.dumps({"wte.weight": Planted(trace)})
    (tmp_path / "model" / name).write_bytes(planted)
    expected = FileNotFoundError if name == "pytorch_model.bin" else ValueError
    with pytest.raises(expected, match="model.safetensors|cannot be read"):
        load(tmp_path / "model", kind)
    assert not trace.exists()
    pickle.loads(planted)
    assert trace.exists(), "the trap works"


@pytest.mark.parametrize("kind", [Bert, GPT])
def test_a_folder_that_holds_no_checkpoint_is_not_found(tmp_path, kind):
    with pytest.raises(FileNotFoundError, match="none holds no config.json"):
        load(tmp_path / "none", kind)
    save(our_model(kind), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds no model.safetensors"):
        load(str(tmp_path), kind)


# ------------------------------------------------------------------------------ PyTorch's modules
D, HEADS, FF = 12, 3, 20
few = settings(quick, max_examples=12)


@st.composite
def cases(draw):
    """Return sizes, masks and options of a random case; torch's generator is seeded by it."""
    b, t, s = (draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    torch.manual_seed(draw(st.integers(0, 2**32)))
    lengths, target_lengths = (torch.randint(1, n + 1, (b,)) for n in (s, t))
    kind = draw(st.sampled_from(["none", "padding", "pairs", "both"]))
    return {
        "b": b,
        "t": t,
        "s": s,
        "dtype": draw(st.sampled_from(EXACT_TYPES)),
        "padding": padding_mask(lengths, s) if kind in ("padding", "both") else None,
        "target_padding": padding_mask(target_lengths, t) if kind in ("padding", "both") else None,
        "pairs": kind in ("pairs", "both"),
        "options": {
            "activation": draw(st.sampled_from(["relu", "gelu"])),
            "norm_first": draw(st.booleans()),
            "norm_eps": draw(st.sampled_from([1e-5, 1e-2])),
        },
    }


def pairs(t, s):
    """Return a random (t, s) in which every row may attend to the first, which is no padding."""
    return (torch.rand(t, s) < 0.5) | (torch.arange(s) == 0)


def hidden(mask):
    """Return the mask for PyTorch, where True hides; a padding mask as (B, S)."""
    return None if mask is None else ~(mask[:, 0] if mask.dim() == 3 else mask)


def joined(mask, padding):
    """Return what ours takes instead of PyTorch's two masks."""
    return padding if mask is None else mask if padding is None else mask & padding


def check_equal(theirs, their_out, ours, our_out, their_inputs, our_inputs):
    """Hold outputs and the gradients of all parameters and inputs against each other."""
    close(our_out, their_out)
    direction = torch.randn_like(our_out)
    (our_out * direction).sum().backward()
    (their_out * direction).sum().backward()
    for mine, other in zip(our_inputs, their_inputs, strict=True):
        close(mine.grad, other.grad)
    gradients = copy.deepcopy(ours)
    with torch.no_grad():
        for of, value in zip(gradients.parameters(), ours.parameters(), strict=True):
            of.copy_(value.grad)
    expected = to_torch(gradients).state_dict()
    assert [*expected] == [name for name, _ in theirs.named_parameters()]
    for name, value in theirs.named_parameters():
        close(expected[name], value.grad)


def inputs_for_both(case, *lengths):
    """Return random inputs (B, T, D) for ours, and the same for PyTorch's."""
    ours = [torch.randn(case["b"], n, D, dtype=case["dtype"]).requires_grad_() for n in lengths]
    return ours, [x.detach().clone().requires_grad_() for x in ours]


def both(kind, case, *args, **options):
    """Return PyTorch's module made of ours, and ours, which has random weights."""
    ours = rounded_anew(kind(*args, **options)).to(case["dtype"])
    return to_torch(ours), ours


@given(case=cases(), cross=st.booleans())
@settings(few, max_examples=30)
def test_multi_head_attention_is_pytorchs(case, cross):
    theirs, ours = both(MultiHeadAttention, case, D, HEADS)
    assert type(theirs) is nn.MultiheadAttention
    s = case["s"]
    t = case["t"] if cross else s
    mine, others = inputs_for_both(case, t, *([s] if cross else []))
    mask = pairs(t, s) if case["pairs"] else None
    with record_weights(ours) as [recorded]:
        explicit = ours(*mine, attn_mask=joined(mask, case["padding"]))
    out, weights = theirs(
        others[0],
        others[-1],
        others[-1],
        key_padding_mask=hidden(case["padding"]),
        attn_mask=hidden(mask),
        average_attn_weights=False,
    )
    close(recorded[0], weights)
    fused = ours(*mine, attn_mask=joined(mask, case["padding"]))
    close(explicit, fused)
    check_equal(theirs, out, ours, fused, others, mine)


@given(case=cases())
@few
def test_a_mask_of_its_own_for_each_head_is_pytorchs(case):
    theirs, ours = both(MultiHeadAttention, case, D, HEADS)
    b, t, s = case["b"], case["t"], case["s"]
    mine, others = inputs_for_both(case, t, s)
    mask = (torch.rand(b, HEADS, t, s) < 0.5) | (torch.arange(s) == 0)
    out, _ = theirs(others[0], others[1], others[1], attn_mask=~mask.flatten(0, 1))
    check_equal(theirs, out, ours, ours(*mine, attn_mask=mask), others, mine)


@given(case=cases(), is_causal=st.booleans())
@few
def test_the_encoder_layer_is_pytorchs(case, is_causal):
    theirs, ours = both(TransformerBlock, case, D, HEADS, FF, **case["options"])
    assert type(theirs) is nn.TransformerEncoderLayer
    s = case["s"]
    mine, others = inputs_for_both(case, s)
    mask = causal_mask(s) if is_causal else pairs(s, s) if case["pairs"] else None
    out = theirs(*others, src_mask=hidden(mask), src_key_padding_mask=hidden(case["padding"]))
    if is_causal:
        our_out = ours(*mine, attn_mask=case["padding"], is_causal=True)
    else:
        our_out = ours(*mine, attn_mask=joined(mask, case["padding"]))
    check_equal(theirs, out, ours, our_out, others, mine)


@given(case=cases())
@few
def test_the_decoder_layer_is_pytorchs(case):
    theirs, ours = both(
        TransformerBlock, case, D, HEADS, FF, cross_attention=True, **case["options"]
    )
    assert type(theirs) is nn.TransformerDecoderLayer
    t, s = case["t"], case["s"]
    mine, others = inputs_for_both(case, t, s)
    memory_mask = pairs(t, s) if case["pairs"] else None
    out = theirs(
        *others,
        tgt_mask=~causal_mask(t),
        memory_mask=hidden(memory_mask),
        tgt_key_padding_mask=hidden(case["target_padding"]),
        memory_key_padding_mask=hidden(case["padding"]),
    )
    our_out = ours(
        *mine,
        attn_mask=case["target_padding"],
        is_causal=True,
        memory_mask=joined(memory_mask, case["padding"]),
    )
    check_equal(theirs, out, ours, our_out, others, mine)


@given(case=cases(), n_layers=st.integers(1, 3), final=st.booleans())
@few
def test_the_encoder_is_pytorchs(case, n_layers, final):
    sizes = n_layers, D, HEADS, FF
    theirs, ours = both(Encoder, case, *sizes, final_norm=final, **case["options"])
    assert type(theirs) is nn.TransformerEncoder and len(theirs.layers) == n_layers
    mine, others = inputs_for_both(case, case["s"])
    mask = pairs(case["s"], case["s"]) if case["pairs"] else None
    out = theirs(*others, mask=hidden(mask), src_key_padding_mask=hidden(case["padding"]))
    our_out = ours(*mine, attn_mask=joined(mask, case["padding"]))
    check_equal(theirs, out, ours, our_out, others, mine)


@given(case=cases(), n_layers=st.integers(1, 3), final=st.booleans())
@few
def test_the_decoder_is_pytorchs(case, n_layers, final):
    sizes = n_layers, D, HEADS, FF
    theirs, ours = both(Decoder, case, *sizes, final_norm=final, **case["options"])
    assert type(theirs) is nn.TransformerDecoder
    mine, others = inputs_for_both(case, case["t"], case["s"])
    out = theirs(
        *others,
        tgt_mask=~causal_mask(case["t"]),
        tgt_key_padding_mask=hidden(case["target_padding"]),
        memory_key_padding_mask=hidden(case["padding"]),
    )
    our_out = ours(*mine, attn_mask=case["target_padding"], memory_mask=case["padding"])
    check_equal(theirs, out, ours, our_out, others, mine)


@given(case=cases(), n_layers=st.integers(1, 2))
@settings(few, max_examples=9)
def test_the_whole_transformer_is_pytorchs(case, n_layers):
    theirs, ours = both(EncoderDecoder, case, D, HEADS, FF, n_layers, **case["options"])
    assert type(theirs) is nn.Transformer
    mine, others = inputs_for_both(case, case["s"], case["t"])
    out = theirs(
        *others,
        tgt_mask=~causal_mask(case["t"]),
        src_key_padding_mask=hidden(case["padding"]),
        tgt_key_padding_mask=hidden(case["target_padding"]),
        memory_key_padding_mask=hidden(case["padding"]),
    )
    our_out = ours(*mine, source_mask=case["padding"], target_mask=case["target_padding"])
    check_equal(theirs, out, ours, our_out, others, mine)


@given(case=cases())
@few
def test_pytorchs_fast_path_gives_the_same_at_all_that_is_no_padding(case):
    theirs, ours = both(Encoder, case, 2, D, HEADS, FF, **case["options"])
    theirs.eval()
    x = torch.randn(case["b"], case["s"], D, dtype=case["dtype"])
    with torch.no_grad():
        out = theirs(x, src_key_padding_mask=hidden(case["padding"]))
        own = ours.eval()(x, attn_mask=case["padding"])
    real = slice(None) if case["padding"] is None else case["padding"][:, 0]
    close(own[real], out[real])


def our_modules():
    sizes = D, HEADS, FF
    for activation, norm_first in itertools.product(["relu", "gelu"], [False, True]):
        options = {
            "activation": activation,
            "norm_first": norm_first,
            "norm_eps": 1e-3,
            "dropout": 0.25,
            "attention_dropout": 0.5,
        }
        yield TransformerBlock(*sizes, **options)
        yield TransformerBlock(*sizes, cross_attention=True, **options)
        yield Encoder(2, *sizes, final_norm=norm_first, **options)
        yield Decoder(2, *sizes, final_norm=True, **options)
        yield EncoderDecoder(*sizes, 2, final_norm=norm_first, **options)
    yield MultiHeadAttention(D, HEADS, 0.5)


OUR_MODULES = list(our_modules())


@pytest.mark.parametrize(("dtype", "training"), [(torch.float64, False), (torch.bfloat16, True)])
@pytest.mark.parametrize("module", OUR_MODULES, ids=lambda module: type(module).__name__)
def test_all_weights_and_rates_come_over_as_copies(module, training, dtype):
    ours = rounded_anew(copy.deepcopy(module).to(dtype)).train(training)
    theirs = to_torch(ours)
    assert theirs.training is training
    before, after = list(ours.parameters()), list(theirs.parameters())
    assert sum(value.numel() for value in before) == sum(value.numel() for value in after)
    assert {value.dtype for value in after} == {dtype}
    assert not {value.data_ptr() for value in before} & {value.data_ptr() for value in after}
    attentions = [m for m in theirs.modules() if isinstance(m, nn.MultiheadAttention)]
    assert all((m.dropout, m.batch_first) == (0.5, True) for m in attentions) and attentions
    assert {m.p for m in theirs.modules() if isinstance(m, nn.Dropout)} <= {0.25}


@pytest.mark.parametrize("module", OUR_MODULES, ids=lambda module: type(module).__name__)
def test_to_torch_gives_the_same_output(module):
    ours = rounded_anew(copy.deepcopy(module)).eval()
    theirs = to_torch(ours)
    x, y = torch.randn(2, 4, D), torch.randn(2, 5, D)
    causal = ~causal_mask(5)
    if isinstance(ours, MultiHeadAttention):
        close(ours(y, x), theirs(y, x, x)[0])
    elif isinstance(ours, EncoderDecoder):
        close(ours(x, y), theirs(x, y, tgt_mask=causal))
    elif isinstance(ours, Decoder):
        close(ours(y, x), theirs(y, x, tgt_mask=causal))
    elif isinstance(ours, TransformerBlock) and ours.has_cross_attention:
        close(ours(y, x), theirs(y, x))
    else:
        close(ours(y), theirs(y))
