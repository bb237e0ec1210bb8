"""Weights from and for elsewhere: the Transformers library's checkpoints.

A checkpoint is a folder with config.json, which the library reads and writes, and
model.safetensors. Only safetensors are read: a pickled checkpoint can run code.
Sources: the library's modeling_bert.py and modeling_gpt2.py, for what it calls each weight.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
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
    """How the library names a kind of model, its weights, and its sizes."""

    model_type: str
    prefix: str  # of all weights but those of the heads, where there can be heads
    weights: dict[str, str]  # our name of a part, and the library's without the prefix
    heads: tuple[str, ...]  # how the library's names of heads begin
    sizes: dict[str, str]  # our name of a size, and the library's

    def names(self, key: str) -> list[str]:
        """Return the library's name of our weight without the prefix; three for a BERT's qkv."""
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
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
# Options that would change the numbers, and the only value of each that our models have.
_FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}
# Buffers of old releases, which hold nothing of their own.
_NOTHING = ("embeddings.position_ids", ".attn.bias", ".attn.masked_bias")
# Our classes, and the library's.
ARCHITECTURES = {
    Bert: "BertModel",
    BertForPretraining: "BertForPreTraining",
    TextClassifier: "BertForSequenceClassification",
    TokenClassifier: "BertForTokenClassification",
    SpanClassifier: "BertForQuestionAnswering",
    GPT: "GPT2LMHeadModel",
}


def load_bert(folder: str | Path, kind: type[nn.Module] = Bert) -> nn.Module:
    """Return a model of a kind, Bert or one with a head, from a checkpoint; it is in eval mode.

    Heads that the model does not have are left out. A pooler that the checkpoint lacks starts from
    random weights, with a warning.
    Raises: FileNotFoundError; ValueError for a file that is damaged, another kind of model, an
    option that our models do not have, and, naming them, for weights that are unknown, missing, or
    of another shape.
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
    """Return a GPT with the weights of a GPT-2 checkpoint, in eval mode; errors as in load_bert."""
    config, state = _read(Path(folder), GPT2, GPTConfig)
    model = GPT(config)
    _fill(model, state, GPT2, folder)
    return model.eval()


def save(model: nn.Module, folder: str | Path) -> None:
    """Write a checkpoint that the library's class loads.

    model is of one of the classes in ARCHITECTURES. Raises: ValueError for another; OSError.
    """
    from transformers import AutoConfig

    if type(model) not in ARCHITECTURES:
        kinds = ", ".join(kind.__name__ for kind in ARCHITECTURES)
        raise ValueError(f"the model must be one of {kinds}, got {type(model).__name__}")
    family = GPT2 if isinstance(model, GPT) else BERT
    prefix = "" if isinstance(model, Bert) else family.prefix
    state = {}
    for key, value in model.state_dict().items():
        names = family.names(key)
        for name, part in zip(names, value.chunk(len(names)), strict=True):
            full_name = name if name.startswith(family.heads) else prefix + name
            state[full_name] = _turned(name, part).contiguous()
    ours = asdict(model.config if isinstance(model, Bert | GPT) else model.bert.config)
    sizes = {theirs: ours[own] for own, theirs in family.sizes.items()}
    activations = {own: theirs for theirs, own in _ACTIVATIONS.items()}
    sizes[family.sizes["activation"]] = activations[ours["activation"]]
    if family is GPT2:
        # Our model knows of no ids at which a text begins and ends; the library's are for its own.
        sizes |= {"embd_pdrop": ours["dropout"], "bos_token_id": None, "eos_token_id": None}
    if "classifier.weight" in state:
        sizes["num_labels"] = len(state["classifier.weight"])
    config = AutoConfig.for_model(family.model_type, **sizes)
    config.architectures = [ARCHITECTURES[type(model)]]
    config.save_pretrained(folder)
    save_file(state, Path(folder) / "model.safetensors", metadata={"format": "pt"})


def _turned(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return weight, transposed if it is of a linear map of GPT-2, as the library keeps those."""
    return weight.T if ".c_" in name and name.endswith("weight") else weight


def _read(folder: Path, family: _Family, kind: type) -> tuple[Any, State]:
    """Return a checkpoint's sizes, as our configuration of a kind, and its weights, no prefix."""
    from transformers import AutoConfig

    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no {name}, which a checkpoint needs")
    try:
        theirs = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        state = load_file(folder / "model.safetensors")
    except Exception as error:  # the library raises errors of many kinds
        raise ValueError(f"the checkpoint in {folder} cannot be read: {error}") from error
    try:
        config = kind(**_our_sizes(theirs, family))
    except ValueError as error:
        raise ValueError(f"config.json in {folder}: {error}") from None
    # The first checkpoints of BERT call the weight and the bias of a normalization gamma and beta.
    names = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    for old, new in names.items():
        state = {key.replace(old, new): value for key, value in state.items()}
    return config, {key.removeprefix(family.prefix): value for key, value in state.items()}


def _our_sizes(config: Any, family: _Family) -> dict[str, Any]:
    """Return our sizes and options from the library's configuration."""
    if config.model_type != family.model_type:
        given = config.model_type
        raise ValueError(f"a model of type {family.model_type!r} is needed, got {given!r}")
    for name, value in _FIXED.items():
        given = getattr(config, name, value)
        if given != value:
            raise ValueError(f"{name} is {given!r}, our models have {value!r}")
    sizes = {own: getattr(config, theirs) for own, theirs in family.sizes.items()}
    activation = sizes["activation"]
    if activation not in _ACTIVATIONS:
        raise ValueError(f"the activation must be one of {[*_ACTIVATIONS]}, got {activation!r}")
    return sizes | {"activation": _ACTIVATIONS[activation]}


def _fill(model: nn.Module, state: State, family: _Family, folder: str | Path) -> None:
    """Give model the weights of a checkpoint; heads that it does not have are left out."""
    wanted = {key: family.names(key) for key in model.state_dict()}
    known = [name for names in wanted.values() for name in names]
    unknown = [key for key in state if key not in known and not key.startswith(family.heads)]
    if unknown := [key for key in unknown if not key.endswith(_NOTHING)]:
        raise ValueError(f"the checkpoint in {folder} has unknown keys: {', '.join(unknown[:5])}")
    if missing := [name for name in known if name not in state]:
        raise ValueError(f"the checkpoint in {folder} lacks {', '.join(missing[:5])}")
    try:
        weights = {
            key: torch.cat([_turned(name, state[name]) for name in names])
            for key, names in wanted.items()
        }
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"the checkpoint in {folder} and its config.json differ: {error}"
        ) from None
