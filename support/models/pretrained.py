"""Checkpoints of the Transformers library: read and written.

A checkpoint is a folder with config.json and model.safetensors, or several such files with an
index. Only safetensors are read: a pickled checkpoint can run code.
Sources: the library's modeling_bert.py and modeling_gpt2.py, for the names of the weights.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
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

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class _Family:
    """The library's names of a kind of model, its weights and its sizes, by our names."""

    model_type: str
    prefix: str  # of all weights but those of the heads, where there can be heads
    weights: dict[str, str]  # without the prefix
    heads: tuple[str, ...]  # how the names of heads begin
    sizes: dict[str, str]

    def names(self, key: str) -> list[str]:
        """Return the library's names of our weight, without the prefix; three for BERT's qkv."""
        parts = "|".join(map(re.escape, self.weights))
        key = key.removeprefix("bert.")
        name = re.sub(rf"\b({parts})\b", lambda found: self.weights[found[0]], key)
        if ".query." in name:
            return [name.replace("query", part) for part in ("query", "key", "value")]
        return [name]


BERT = _Family(
    model_type="bert",
    prefix="bert.",
    weights={
        "tokens": "embeddings.word_embeddings",
        "segments": "embeddings.token_type_embeddings",
        "positions": "embeddings.position_embeddings",
        "norm": "embeddings.LayerNorm",
        "layers": "layer",
        "attention.qkv": "attention.self.query",
        "attention.out": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.up": "intermediate.dense",
        "feed_forward.down": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
        "pooler": "pooler.dense",
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "token_bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
        "span": "qa_outputs",
    },
    heads=("cls.", "classifier.", "qa_outputs."),
    sizes={
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "d_ff": "intermediate_size",
        "max_length": "max_position_embeddings",
        "n_segments": "type_vocab_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "activation": "hidden_act",
        "norm_eps": "layer_norm_eps",
    },
)
GPT2 = _Family(
    model_type="gpt2",
    prefix="transformer.",
    weights={
        "tokens": "wte",
        "positions": "wpe",
        "layers": "h",
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "feed_forward_norm": "ln_2",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
        "final_norm": "ln_f",
    },
    heads=("lm_head.",),
    sizes={
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "n_inner",
        "max_length": "n_positions",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
        "activation": "activation_function",
        "norm_eps": "layer_norm_epsilon",
    },
)
# The library's activations, ours, and the first of the library's for each of ours is written.
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# Options that would change the numbers, and the only value that our models have.
_FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
# Weights of a language-model head that our models share with other weights.
_TIED = {
    "lm_head.weight": "wte.weight",
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Buffers of old releases, which are no weights.
_BUFFERS = ("embeddings.position_ids", ".attn.bias", ".attn.masked_bias")
ARCHITECTURES = {
    Bert: "BertModel",
    BertForPretraining: "BertForPreTraining",
    TextClassifier: "BertForSequenceClassification",
    TokenClassifier: "BertForTokenClassification",
    SpanClassifier: "BertForQuestionAnswering",
    GPT: "GPT2LMHeadModel",
}


def load_bert(folder: str | Path, kind: type[nn.Module] = Bert) -> nn.Module:
    """Return a model in eval mode from a BERT checkpoint.

    Args:
        folder: the checkpoint.
        kind: Bert, or one of our classes with a head. Heads that it lacks are left out; a pooler
            that the checkpoint lacks starts from random weights, with a warning.
    Raises:
        FileNotFoundError: for a folder without config.json or safetensors.
        ValueError: for another kind of model, an option that our models lack, and weights that are
            unknown, missing, of another shape, or not tied where ours are.
    """
    config, state = _read(Path(folder), BERT, BertConfig)
    model = Bert(config)
    if kind in (TextClassifier, TokenClassifier):
        model = kind(model, len(state.get("classifier.weight", [0])))
    elif kind is not Bert:
        model = kind(model)
    if not any(key.startswith("pooler.") for key in state):
        warnings.warn(f"{folder} has no pooler: ours starts from random weights", stacklevel=2)
        pooler = (model if kind is Bert else model.bert).pooler
        state |= {f"pooler.dense.{name}": value for name, value in pooler.state_dict().items()}
    _fill(model, state, BERT, folder)
    return model.eval()


def load_gpt(folder: str | Path) -> GPT:
    """Return a GPT in eval mode from a GPT-2 checkpoint; errors as in load_bert."""
    config, state = _read(Path(folder), GPT2, GPTConfig)
    model = GPT(config)
    _fill(model, state, GPT2, folder)
    return model.eval()


def save(model: nn.Module, folder: str | Path, **options: Any) -> None:
    """Write a checkpoint that the library's class loads, version 4.40 or later.

    Args:
        model: of one of the classes in ARCHITECTURES.
        folder: made if need be.
        options: more entries of config.json, such as pad_token_id, bos_token_id, eos_token_id.
    """
    family = GPT2 if isinstance(model, GPT) else BERT
    prefix = "" if isinstance(model, Bert) else family.prefix
    state = {}
    for key, value in model.state_dict().items():
        names = family.names(key)
        for name, part in zip(names, value.chunk(len(names)), strict=True):
            full_name = name if name.startswith(family.heads) else prefix + name
            state[full_name] = _turned(name, part).contiguous()
    ours = asdict(model.config if isinstance(model, Bert | GPT) else model.bert.config)
    config = {"model_type": family.model_type, "architectures": [ARCHITECTURES[type(model)]]}
    config |= {theirs: ours[own] for own, theirs in family.sizes.items()}
    config[family.sizes["activation"]] = next(
        theirs for theirs, own in _ACTIVATIONS.items() if own == ours["activation"]
    )
    if "classifier.weight" in state:
        config["num_labels"] = len(state["classifier.weight"])
    if family is GPT2:
        # Without null the library would take GPT-2's own 50,256 for the end of a text.
        config |= {"embd_pdrop": ours["dropout"], "bos_token_id": None, "eos_token_id": None}
    config |= options
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if family is GPT2:
        generation = {key: value for key, value in config.items() if key.endswith("_token_id")}
        _write(folder / "generation_config.json", generation | {"max_length": ours["max_length"]})
    _write(folder / "config.json", config)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _turned(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return weight, transposed if it is of a linear map of GPT-2, as the library stores those."""
    return weight.T if ".c_" in name and name.endswith("weight") else weight


def _read(folder: Path, family: _Family, kind: type) -> tuple[Any, State]:
    """Return a checkpoint's sizes, as our configuration, and its weights without prefix."""
    for name in ("config.json", "model.safetensors"):
        if not any(folder.glob(f"{name}*")):
            raise FileNotFoundError(f"{folder} holds no {name}; only safetensors are read")
    try:
        theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        files = ["model.safetensors"]
        index = folder / "model.safetensors.index.json"
        if index.is_file():  # the weights lie in several files
            files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        state = {}
        for name in files:
            state |= load_file(folder / name)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"the checkpoint in {folder} cannot be read: {error}") from error
    config = kind(**_our_sizes(theirs, family))
    # The first checkpoints of BERT call the weight and the bias of a normalization gamma and beta.
    for old, new in ("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"):
        state = {key.replace(old, new): value for key, value in state.items()}
    return config, {key.removeprefix(family.prefix): value for key, value in state.items()}


def _our_sizes(config: dict[str, Any], family: _Family) -> dict[str, Any]:
    """Return our sizes from the library's configuration; what it leaves out has our defaults."""
    if config.get("model_type") != family.model_type:
        given = config.get("model_type")
        raise ValueError(f"expected a model of type {family.model_type!r}, got {given!r}")
    for name, value in _FIXED.items():
        given = config.get(name, value)
        if given != value:
            raise ValueError(f"{name} is {given!r}, our models have {value!r}")
    sizes = {own: config[theirs] for own, theirs in family.sizes.items() if theirs in config}
    activation = sizes.pop("activation", None)
    if activation is None:
        return sizes
    if activation not in _ACTIVATIONS:
        raise ValueError(f"expected an activation of {[*_ACTIVATIONS]}, got {activation!r}")
    return sizes | {"activation": _ACTIVATIONS[activation]}


def _fill(model: nn.Module, state: State, family: _Family, folder: str | Path) -> None:
    """Give model the weights of a checkpoint; heads that it lacks are left out."""
    wanted = {key: family.names(key) for key in model.state_dict()}
    known = [name for names in wanted.values() for name in names]
    unknown = [key for key in state if key not in known and not key.startswith(family.heads)]
    if unknown := [key for key in unknown if not key.endswith(_BUFFERS)]:
        raise ValueError(f"the checkpoint in {folder} has unknown keys: {', '.join(unknown[:5])}")
    if missing := [name for name in known if name not in state]:
        raise ValueError(f"the checkpoint in {folder} lacks {', '.join(missing[:5])}")
    if isinstance(model, GPT | BertForPretraining):
        for head, tied in _TIED.items():
            if head in state and not torch.equal(state[head], state[tied]):
                raise ValueError(f"{head} in {folder} differs from {tied}; our models tie them")
    weights = {
        key: torch.cat([_turned(name, state[name]) for name in names])
        for key, names in wanted.items()
    }
    model.load_state_dict(weights)
