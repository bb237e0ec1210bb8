"""The library's checkpoints: read, written, and refused where our models would differ."""

import json
import pickle
import warnings
from pathlib import Path

import pytest
import torch
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
from support.models.pretrained import load_bert, load_gpt, save
from tests.exactness import close, rounded_anew

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
SMALL = {"d_model": 12, "n_layers": 2, "n_heads": 3, "max_length": 16}
OURS = [Bert, BertForPretraining, TextClassifier, TokenClassifier, SpanClassifier, GPT]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def our_model(kind, **options):
    if kind is GPT:
        return rounded_anew(GPT(GPTConfig(19, **SMALL | options)))
    bert = rounded_anew(Bert(BertConfig(19, **{"d_ff": 20} | SMALL | options)))
    if kind is Bert:
        return bert
    return rounded_anew(kind(bert, 4) if kind in (TextClassifier, TokenClassifier) else kind(bert))


def their_model(library, name, **options):
    gpt = name.startswith("GPT2")
    kind, sizes = (library.GPT2Config, GPT_SIZES) if gpt else (library.BertConfig, BERT_SIZES)
    return rounded_anew(getattr(library, name)(kind(**sizes | options))).eval()


def load(folder, kind):
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


# ------------------------------------------------------------------------------ with the library
PAIRS = {
    "BertModel": Bert,
    "BertForPreTraining": BertForPretraining,
    "BertForSequenceClassification": TextClassifier,
    "BertForTokenClassification": TokenClassifier,
    "BertForQuestionAnswering": SpanClassifier,
    "GPT2LMHeadModel": GPT,
    "GPT2Model": GPT,  # its weights have no prefix
}


@NO_POOLER
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_new"])
def test_theirs_read_and_written_is_theirs_to_the_last_bit(library, tmp_path, name, activation):
    if name.startswith("GPT2"):
        options = {"activation_function": activation, "layer_norm_epsilon": 1e-3}
        options |= {"attn_pdrop": 0.3, "resid_pdrop": 0.2, "embd_pdrop": 0.2}
    else:
        options = {"hidden_act": activation, "layer_norm_eps": 1e-3, "hidden_dropout_prob": 0.2}
        options |= {"attention_probs_dropout_prob": 0.3}
    if "Classification" in name:
        options["num_labels"] = 5
    theirs = their_model(library, name, **options)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs", PAIRS[name])
    assert not ours.training
    config = ours.config if hasattr(ours, "config") else ours.bert.config
    assert (config.dropout, config.attention_dropout, config.norm_eps) == (0.2, 0.3, 1e-3)
    save(ours, tmp_path / "ours")
    back = type(theirs).from_pretrained(tmp_path / "ours").eval()
    equal_states(theirs, back)
    for key in options:
        assert getattr(back.config, key) == getattr(theirs.config, key), key
    equal_states(load(tmp_path / "ours", PAIRS[name]), ours)


@pytest.mark.parametrize("kind", OURS)
def test_ours_written_is_read_by_the_library_without_a_missing_weight(library, tmp_path, kind):
    ours = our_model(kind).eval()
    save(ours, tmp_path)
    (name,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    theirs, info = getattr(library, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert all("pooler" in key for key in info["unexpected_keys"])  # the library's has none there
    ids, segments = torch.randint(19, (3, 8)), torch.randint(2, (3, 8))
    with torch.no_grad():
        if kind is GPT:
            pairs = [(ours(ids), theirs.eval()(ids).logits)]
        else:
            out = theirs.eval()(ids, token_type_ids=segments)
            pairs = list(zip(of_bert(ours, ids, segments), out.to_tuple(), strict=True))
    for own, other in pairs:
        close(own, other)


def of_bert(model, ids, segments):
    """Return our outputs in the order of the library's."""
    if isinstance(model, SpanClassifier):
        return model(ids, segments)
    if isinstance(model, (TextClassifier, TokenClassifier)):
        return (model(ids, segments),)
    bert = getattr(model, "bert", model)
    states = bert(ids, segments)
    if isinstance(model, Bert):
        return states, bert.pool(states)
    return model.predict_tokens(states), model.predict_next(bert.pool(states))


@pytest.mark.parametrize("ids", [{}, {"eos_token_id": 3, "bos_token_id": 1, "pad_token_id": 2}])
def test_ids_that_are_given_are_in_both_configurations_of_a_gpt(library, tmp_path, ids):
    save(our_model(GPT), tmp_path, **ids)
    theirs = library.GPT2LMHeadModel.from_pretrained(tmp_path)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(theirs.config, name) == ids.get(name)
        assert getattr(theirs.generation_config, name) == ids.get(name)
    assert theirs.generation_config.max_length == 16
    if ids:  # the library stops at the end of a text, and within the positions
        prompt = torch.randint(19, (4, 3))
        written = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True)
        assert written.shape[1] <= 16
        for row in written[:, 3:].tolist():
            assert 3 not in row or set(row[row.index(3) + 1 :]) <= {2}


def test_an_id_that_is_given_is_in_the_configuration_of_a_bert(library, tmp_path):
    save(our_model(Bert), tmp_path, pad_token_id=4)
    assert library.BertModel.from_pretrained(tmp_path).config.pad_token_id == 4
    assert not (tmp_path / "generation_config.json").exists()


def test_tied_weights_stay_one(library, tmp_path):
    for name in ("BertForPreTraining", "GPT2LMHeadModel"):
        theirs = their_model(library, name)
        theirs.save_pretrained(tmp_path / name)
        ours = load(tmp_path / name, PAIRS[name])
        total = sum(x.numel() for x in theirs.parameters())
        assert sum(x.numel() for x in ours.parameters()) == total, "no copy of the tied weights"
        save(ours, tmp_path / "again")
        back = type(theirs).from_pretrained(tmp_path / "again")
        assert back.get_output_embeddings().weight is back.get_input_embeddings().weight


def test_a_masked_lm_has_no_pooler_and_a_warning_says_so(library, tmp_path):
    theirs = their_model(library, "BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="has no pooler: ours starts from random") as caught:
        ours = load_bert(tmp_path)
    assert caught[0].filename == __file__, "the warning points at the line of the caller"
    ids = torch.randint(19, (2, 7))
    with torch.no_grad():
        close(ours(ids), theirs.bert(ids).last_hidden_state)
    with pytest.raises(ValueError, match="lacks cls.seq_relationship.weight"):
        load_bert(tmp_path, BertForPretraining)


@pytest.mark.parametrize("name", ["BertForPreTraining", "GPT2LMHeadModel"])
def test_weights_in_several_files_are_read(library, tmp_path, name):
    theirs = their_model(library, name)
    theirs.save_pretrained(tmp_path / "one")
    theirs.save_pretrained(tmp_path / "many", max_shard_size="2KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    equal_states(load(tmp_path / "many", PAIRS[name]), load(tmp_path / "one", PAIRS[name]))


VERSION_4 = {"transformers_version": "4.40.0", "torch_dtype": "float32", "use_cache": True}
VERSION_5 = {"transformers_version": "5.0.0", "dtype": "float32", "is_decoder": False}


@pytest.mark.parametrize("more", [VERSION_4, VERSION_5], ids=["4", "5"])
@pytest.mark.parametrize("kind", [Bert, GPT])
def test_configurations_of_versions_4_and_5_are_read(tmp_path, kind, more):
    ours = our_model(kind)
    save(ours, tmp_path)
    change(tmp_path, config=more | {"position_embedding_type": "absolute"})
    equal_states(load(tmp_path, kind), ours)


# -------------------------------------------------------------------------- without the library
@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("activation", ["relu", "gelu_tanh"])
def test_ours_written_and_read_is_ours(tmp_path, kind, activation):
    options = {"dropout": 0.2, "attention_dropout": 0.3, "norm_eps": 1e-4, "d_ff": 21}
    ours = our_model(kind, activation=activation, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(ours, tmp_path / "new" / "folder")
        back = load(str(tmp_path / "new" / "folder"), kind)
    equal_states(back, ours)
    assert getattr(back, "bert", back).config == getattr(ours, "bert", ours).config


def test_what_the_configuration_leaves_out_is_as_in_the_papers_and_half_precision_is_read(tmp_path):
    ours = our_model(BertForPretraining)
    save(ours, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    change(tmp_path, {key: value.half() for key, value in state.items()})
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob"):
        del config[key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    back = load_bert(tmp_path, BertForPretraining)
    assert back.bert.config == BertConfig(19, **SMALL, d_ff=20)
    for own, other in zip(back.parameters(), ours.parameters(), strict=True):
        assert torch.equal(own, other.half().float())


@pytest.mark.parametrize("name", ["gelu_new", "gelu_pytorch_tanh"])
def test_both_names_of_gpt_2s_activation_are_known(tmp_path, name):
    save(our_model(GPT), tmp_path)
    change(tmp_path, config={"activation_function": name})
    assert load_gpt(tmp_path).config.activation == "gelu_tanh"


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
OTHER = torch.ones(19, 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"bert.extra.weight": ONE}}, "unknown keys: extra.weight"),
        (
            {"without": ["bert.encoder.layer.1.attention.self.query.weight"]},
            "lacks encoder.layer.1",
        ),
        ({"weights": {"bert.embeddings.LayerNorm.bias": ONE}}, "mismatch for bert.norm.bias"),
        ({"weights": {"cls.predictions.decoder.weight": OTHER}}, "our models tie them"),
        ({"config": {"num_hidden_layers": 1}}, "unknown keys: encoder.layer.1"),
        ({"config": {"num_hidden_layers": 3}}, "lacks encoder.layer.2"),
        ({"config": {"num_attention_heads": 5}}, "multiple of n_heads"),
        ({"config": {"model_type": "roberta"}}, "a model of type 'bert', got 'roberta'"),
        ({"config": {"position_embedding_type": "relative_key"}}, "our models have 'absolute'"),
        ({"config": {"is_decoder": True}}, "is_decoder is True, our models have False"),
        ({"config": {"hidden_act": "swish"}}, "'gelu_new'.*, got 'swish'"),
    ],
)
def test_a_bert_that_ours_is_not_is_refused_by_name(tmp_path, changes, message):
    save(our_model(BertForPretraining), tmp_path)
    with pytest.raises((ValueError, RuntimeError), match=message):
        load_bert(change(tmp_path, **changes), BertForPretraining)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": {"transformer.h.2.ln_1.bias": ONE}}, "unknown keys: h.2.ln_1.bias"),
        ({"weights": {"lm_head.weight": OTHER}}, "lm_head.weight .* differs from wte.weight"),
        ({"without": ["transformer.h.1.attn.c_attn.bias"]}, "lacks h.1.attn.c_attn.bias"),
        ({"config": {"scale_attn_weights": False}}, "scale_attn_weights is False"),
        ({"config": {"scale_attn_by_inverse_layer_idx": True}}, "our models have False"),
    ],
)
def test_a_gpt_that_ours_is_not_is_refused_by_name(tmp_path, changes, message):
    save(our_model(GPT), tmp_path)
    with pytest.raises(ValueError, match=message):
        load_gpt(change(tmp_path, **changes))


def test_heads_that_a_model_lacks_are_left_out_and_none_is_taken_for_another(tmp_path):
    whole = our_model(BertForPretraining)
    save(whole, tmp_path)
    change(tmp_path, {"cls.predictions.decoder.weight": OTHER})  # no harm without that head
    equal_states(load_bert(tmp_path), whole.bert)
    with pytest.raises(ValueError, match="lacks classifier.weight, classifier.bias"):
        load_bert(tmp_path, TextClassifier)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_or_missing_file_is_named(tmp_path, name):
    save(our_model(Bert), tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="the checkpoint in .* cannot be read: "):
        load_bert(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"holds no {name}"):
        load_bert(tmp_path)


class Planted:
    """Something that leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_is_never_opened(tmp_path, name):
    save(our_model(GPT), tmp_path)
    trace = tmp_path / "trace"
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_bytes(pickle.dumps({"wte.weight": Planted(trace)}))
    with pytest.raises((FileNotFoundError, ValueError)):
        load_gpt(tmp_path)
    assert not trace.exists()
