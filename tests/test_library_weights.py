"""Checkpoints of the Transformers library: read, written, refused; never a pickle."""

import json
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
)
from support.models.gpt import GPT, GPTConfig
from tests.exactness import rounded_anew

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
    our_model(BertForPretraining).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def gpt_folder(tmp_path):
    our_model(GPT).save_pretrained(tmp_path)
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
    ours = kind.from_pretrained(first)
    assert not ours.training
    config = ours.config if kind in (Bert, GPT) else ours.bert.config
    assert (config.dropout, config.attention_dropout, config.norm_eps) == (0.2, dropout, eps)
    ours.save_pretrained(second)
    back = type(theirs).from_pretrained(second).eval()
    equal_states(theirs, back)
    for key in options:
        assert getattr(back.config, key) == getattr(theirs.config, key), key
    written = load_file(second / "model.safetensors")
    for key in stored:
        ours_key = key if key in written else f"{prefix}{key}"  # of a bare GPT2Model
        assert torch.equal(stored[key], written[ours_key]), key
    equal_states(kind.from_pretrained(second), ours)


@pytest.mark.parametrize("kind", OURS)
def test_ours_written_is_read_by_the_library(library, tmp_path, kind):
    torch.manual_seed(1)
    ours = our_model(kind).eval()
    ours.save_pretrained(tmp_path)
    (name,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    theirs = getattr(library, name).from_pretrained(tmp_path).eval()
    ids, segments = torch.randint(19, (3, 8)), torch.randint(2, (3, 8))
    with torch.no_grad():
        if kind is GPT:
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
        ours = PAIRS[name][0].from_pretrained(tmp_path / name)
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
        ours.save_pretrained(tmp_path / f"{name}-again")
        back = type(theirs).from_pretrained(tmp_path / f"{name}-again")
        assert back.get_output_embeddings().weight is back.get_input_embeddings().weight
        assert torch.equal(back.get_input_embeddings().weight, table)


def test_a_masked_lm_has_no_pooler_and_a_warning_says_so(library, tmp_path):
    theirs = their_model(library, "BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="has no pooler: ours starts from random") as caught:
        ours = Bert.from_pretrained(tmp_path)
    assert caught[0].filename == __file__, "the warning points at the line of the caller"
    ids = torch.randint(19, (2, 7))
    with torch.no_grad():
        expected = theirs.bert(ids).last_hidden_state
        torch.testing.assert_close(ours(ids), expected, rtol=1e-5, atol=1e-5)
    assert 0 < ours.pooler.weight.std() < 0.05
    with pytest.raises(ValueError, match="lacks .*next_sentence.weight, next_sentence.bias"):
        BertForPretraining.from_pretrained(tmp_path)


@NO_POOLER
def test_a_head_is_not_taken_for_another(library, tmp_path):
    their_model(library, "BertForQuestionAnswering").save_pretrained(tmp_path / "spans")
    their_model(library, "BertForSequenceClassification").save_pretrained(tmp_path / "texts")
    with pytest.raises(ValueError, match="lacks .*classifier.weight, classifier.bias"):
        TextClassifier.from_pretrained(tmp_path / "spans")
    with pytest.raises(ValueError, match="lacks span.weight, span.bias"):
        SpanClassifier.from_pretrained(tmp_path / "texts")
    Bert.from_pretrained(tmp_path / "texts")


# -------------------------------------------------------------------------- without the library
@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_ours_written_and_read_is_ours(tmp_path, kind, activation):
    options = {"dropout": 0.2, "attention_dropout": 0.3, "norm_eps": 1e-4, "d_ff": 21}
    ours = our_model(kind, activation=activation, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.save_pretrained(tmp_path / "new" / "folder")
        back = kind.from_pretrained(str(tmp_path / "new" / "folder"))
    equal_states(back, ours)
    config = (lambda x: x.config) if kind in (Bert, GPT) else (lambda x: x.bert.config)
    assert config(back) == config(ours)
    ours.save_pretrained(tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        once, again = ((tmp_path / x / name).read_bytes() for x in ("new/folder", "again"))
        assert once == again
    assert sorted(x.name for x in (tmp_path / "again").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_a_feed_forward_of_four_widths_stays_so(tmp_path):
    ours = our_model(GPT)
    ours.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["n_inner"] is None
    assert GPT.from_pretrained(tmp_path).config == ours.config


def test_heads_that_a_model_does_not_have_are_left_out(bert_folder):
    whole = BertForPretraining.from_pretrained(bert_folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        equal_states(Bert.from_pretrained(bert_folder), whole.bert)
    with pytest.raises(ValueError, match="lacks classifier.weight, classifier.bias"):
        TextClassifier.from_pretrained(bert_folder)


def test_half_precision_and_what_is_not_configured(bert_folder):
    ours = BertForPretraining.from_pretrained(bert_folder)
    state = load_file(bert_folder / "model.safetensors")
    change(bert_folder, {key: value.half() for key, value in state.items()})
    config = json.loads((bert_folder / "config.json").read_text())
    for key in ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob"):
        del config[key]
    (bert_folder / "config.json").write_text(json.dumps(config))
    back = BertForPretraining.from_pretrained(bert_folder)
    assert back.bert.config == BertConfig(19, **SMALL, d_ff=20)
    for own, other in zip(back.parameters(), ours.parameters(), strict=True):
        assert torch.equal(own, other.half().float())


def test_buffers_of_old_releases_and_copies_of_tied_weights_are_passed_over(tmp_path):
    bert, gpt = our_model(BertForPretraining), our_model(GPT)
    bert.save_pretrained(tmp_path / "bert")
    gpt.save_pretrained(tmp_path / "gpt")
    old = {
        "bert.embeddings.position_ids": torch.arange(16)[None],
        "cls.predictions.decoder.weight": bert.bert.tokens.weight.detach().clone(),
        "cls.predictions.decoder.bias": bert.token_bias.detach().clone(),
    }
    equal_states(BertForPretraining.from_pretrained(change(tmp_path / "bert", old)), bert)
    old = {
        "transformer.h.1.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.bool),
        "transformer.h.1.attn.masked_bias": torch.tensor(-1e4),
        "lm_head.weight": gpt.tokens.weight.detach().clone(),
    }
    equal_states(GPT.from_pretrained(change(tmp_path / "gpt", old)), gpt)


# ---------------------------------------------------------------------------------------- errors
ONE = torch.zeros(1)
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
LAYER_3 = "bert.encoder.layer.2.output.dense.bias"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"bert.extra.weight": ONE}}, "unknown keys: bert.extra.weight"),
        (
            {"weights": {"bert.encoder.layer.0.adapter.bias": ONE}},
            "unknown keys: bert.encoder.layer.0.adapter.bias",
        ),
        ({"weights": {LAYER_3: ONE}}, r"unknown keys: .*layers\.2\.feed_forward\.down\.bias"),
        ({"weights": {"bert.pooler.dense.scale": ONE}}, "unknown keys: .*pooler.scale"),
        (
            {"weights": {f"key.{i}": torch.zeros(1) for i in range(8)}},
            "unknown keys: key.0.* and 3 more",
        ),
        ({"without": [QUERY]}, r"layers\.1\.attention"),
        ({"without": [QUERY.replace("query", "value")]}, r"lacks .*1\.attention\.self\.value"),
        ({"without": ["bert.embeddings.LayerNorm.bias"]}, "lacks bert.norm.bias"),
        ({"without": ["bert.pooler.dense.bias", "cls.seq_relationship.bias"]}, "lacks .*pooler"),
        (
            {"weights": {"bert.embeddings.word_embeddings.weight": torch.zeros(20, 12)}},
            r"bert.tokens.weight \(20, 12\) instead of \(19, 12\)",
        ),
        (
            {"weights": {"bert.embeddings.LayerNorm.bias": ONE}},
            r"bert.norm.bias \(1,\) instead of \(12,\)",
        ),
        ({"config": {"vocab_size": 7}}, r"\(19, 12\) instead of \(7, 12\)"),
        ({"config": {"num_hidden_layers": 1}}, r"unknown keys: bert.encoder.layers.1"),
        ({"config": {"num_hidden_layers": 3}}, r"lacks bert.encoder.layers.2"),
        ({"config": {"num_attention_heads": 5}}, "multiple of n_heads 5"),
        ({"config": {"model_type": "roberta"}}, "a model of type 'roberta', not 'bert'"),
        ({"config": {"model_type": None}}, "of type None, not 'bert'"),
        ({"config": {"position_embedding_type": "relative_key"}}, "our models have 'absolute'"),
        ({"config": {"is_decoder": True}}, "has is_decoder=True; our models have False"),
        ({"config": {"add_cross_attention": True}}, "has add_cross_attention=True"),
        ({"config": {"tie_word_embeddings": False}}, "has tie_word_embeddings=False"),
        ({"config": {"hidden_act": "swish"}}, "activation 'swish', not of .*'gelu_new'"),
    ],
)
def test_a_bert_that_ours_is_not_is_refused_by_name(bert_folder, changes, message):
    change(bert_folder, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        BertForPretraining.from_pretrained(bert_folder)
    if "n_heads" not in message:
        assert str(bert_folder) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"transformer.h.0.extra.weight": ONE}}, "unknown keys: .*h.0.extra.weight"),
        ({"weights": {"transformer.h.2.ln_1.bias": ONE}}, "unknown keys: layers.2.attention_norm"),
        ({"weights": {"score.weight": ONE}}, "unknown keys: score.weight"),
        ({"without": ["transformer.h.1.attn.c_attn.bias"]}, "lacks layers.1.attention.qkv.bias"),
        (
            {"weights": {"transformer.h.0.mlp.c_fc.weight": torch.zeros(48, 12)}},
            r"layers.0.feed_forward.up.weight \(12, 48\) instead of \(48, 12\)",
        ),
        ({"config": {"model_type": "bert"}}, "of type 'bert', not 'gpt2'"),
        ({"config": {"scale_attn_weights": False}}, "has scale_attn_weights=False"),
        ({"config": {"scale_attn_by_inverse_layer_idx": True}}, "our models have False"),
        ({"config": {"activation_function": "silu"}}, "the activation 'silu'"),
    ],
)
def test_a_gpt_that_ours_is_not_is_refused_by_name(gpt_folder, changes, message):
    with pytest.raises(ValueError, match=message):
        GPT.from_pretrained(change(gpt_folder, **changes))


@pytest.mark.parametrize("text", ['{"model_type": "bert"', "", "\udc80", "[]", '"bert"', "{} {}"])
def test_a_damaged_configuration_is_refused(bert_folder, text):
    (bert_folder / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match="the checkpoint in .* cannot be read: "):
        Bert.from_pretrained(bert_folder)


def test_a_configuration_without_a_vocabulary_is_refused(bert_folder):
    (bert_folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="has no vocab_size"):
        Bert.from_pretrained(bert_folder)


SIZES = ["vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"]


@pytest.mark.parametrize("key", [*SIZES, "max_position_embeddings", "type_vocab_size"])
def test_sizes_that_lie_are_refused_before_the_memory_is_taken(bert_folder, key):
    config = json.loads((bert_folder / "config.json").read_text())
    (bert_folder / "config.json").write_text(json.dumps({**config, key: 12 * 10**12}))
    with pytest.raises(ValueError, match="config.json announces [0-9]+ weights, there are [0-9]+"):
        Bert.from_pretrained(bert_folder)


@pytest.mark.parametrize("size", [0, 4, 8, 100, -1])
def test_weights_that_are_cut_off_are_refused(bert_folder, size):
    path = bert_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="the checkpoint in .* cannot be read: "):
        Bert.from_pretrained(bert_folder)


class Planted:
    """Something that leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("kind", [Bert, GPT])
def test_a_pickle_is_never_opened(tmp_path, kind, name):
    our_model(kind).save_pretrained(tmp_path / "model")
    trace = tmp_path / "trace"
    (tmp_path / "model" / "model.safetensors").unlink()
    planted = pickle.dumps({"wte.weight": Planted(trace)})
    (tmp_path / "model" / name).write_bytes(planted)
    expected = FileNotFoundError if name == "pytorch_model.bin" else ValueError
    with pytest.raises(expected, match="model.safetensors|cannot be read"):
        kind.from_pretrained(tmp_path / "model")
    assert not trace.exists()
    pickle.loads(planted)
    assert trace.exists(), "the trap works"


@pytest.mark.parametrize("kind", [Bert, GPT])
def test_a_folder_that_holds_no_checkpoint_is_not_found(tmp_path, kind):
    with pytest.raises(FileNotFoundError, match="none holds no config.json"):
        kind.from_pretrained(tmp_path / "none")
    our_model(kind).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds no model.safetensors"):
        kind.from_pretrained(str(tmp_path))


@pytest.mark.parametrize("kind", [BertForPretraining, GPT])
@pytest.mark.parametrize("at", [0, 1])
def test_a_failing_write_leaves_the_old_file_as_it_was(monkeypatch, tmp_path, kind, at):
    old = our_model(kind)
    old.save_pretrained(tmp_path)
    names = ["model.safetensors", "config.json"]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    opened = []

    class FullDisk:
        """A file that takes ten bytes of what is written, and then fails."""

        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, data):
            self.file.write(data[:10])
            raise OSError("no space left on device")

    def fake_open(*args):
        opened.append(args[0])
        file = open(*args)
        return FullDisk(file) if len(opened) == at + 1 else file

    monkeypatch.setattr("support.data.files.open", fake_open, raising=False)
    with pytest.raises(OSError, match="no space left"):
        our_model(kind, max_length=17).save_pretrained(tmp_path)
    assert sorted(x.name for x in tmp_path.iterdir()) == sorted(names)
    for name in names[at:]:
        assert (tmp_path / name).read_bytes() == before[name]
    if at == 0:
        equal_states(kind.from_pretrained(tmp_path), old)
