"""Weights from and for elsewhere: the Transformers library's checkpoints, and PyTorch's modules.

A checkpoint is a folder with config.json and model.safetensors. Only safetensors are read: a
pickled checkpoint can run code.
Sources: the library's modeling_bert.py and modeling_gpt2.py, for what it calls each weight.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from support.data.files import whole_file
from support.models.bert import (
    Bert,
    BertConfig,
    BertForPretraining,
    SpanClassifier,
    TextClassifier,
    TokenClassifier,
)
from support.models.gpt import GPT, GPTConfig
from support.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MultiHeadAttention,
    TransformerBlock,
)

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class _Family:
    """How the library names a kind of model: its weights, and the entries of its config.json."""

    model_type: str
    prefix: str  # of all weights but those of the heads, where there can be heads
    layer: str
    parts: dict[str, str]  # our name of a part, and the library's without the prefix
    layer_parts: dict[str, tuple[str, ...]]  # within a layer; three for our qkv of a BERT
    heads: tuple[str, ...]  # how the library's names of heads begin
    config: dict[str, str]  # the library's name of a size, and ours
    activation: str  # the library's, where config.json names none

    def names(self, key: str) -> list[str]:
        """Return the library's names, without the prefix, of our weight, to be put together."""
        part, _, kind = key.rpartition(".")
        if key in self.parts:
            return [self.parts[key]]
        if part in self.parts:
            return [f"{self.parts[part]}.{kind}"]
        _, number, rest = re.fullmatch(r"(.*)layers\.(\d+)\.(.*)", part).groups()
        return [f"{self.layer}.{number}.{name}.{kind}" for name in self.layer_parts[rest]]


BERT = _Family(
    model_type="bert",
    prefix="bert.",
    layer="encoder.layer",
    parts={
        "bert.tokens": "embeddings.word_embeddings",
        "bert.segments": "embeddings.token_type_embeddings",
        "bert.positions": "embeddings.position_embeddings",
        "bert.norm": "embeddings.LayerNorm",
        "bert.pooler": "pooler.dense",
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "token_bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
        "classifier": "classifier",
        "span": "qa_outputs",
    },
    layer_parts={
        "attention.qkv": (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ),
        "attention.out": ("attention.output.dense",),
        "attention_norm": ("attention.output.LayerNorm",),
        "feed_forward.up": ("intermediate.dense",),
        "feed_forward.down": ("output.dense",),
        "feed_forward_norm": ("output.LayerNorm",),
    },
    heads=("cls.", "classifier.", "qa_outputs."),
    config={
        "vocab_size": "vocab_size",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "d_ff",
        "max_position_embeddings": "max_length",
        "type_vocab_size": "n_segments",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
        "layer_norm_eps": "norm_eps",
    },
    activation="gelu",
)
GPT2 = _Family(
    model_type="gpt2",
    prefix="transformer.",
    layer="h",
    parts={"tokens": "wte", "positions": "wpe", "final_norm": "ln_f"},
    layer_parts={
        "attention_norm": ("ln_1",),
        "attention.qkv": ("attn.c_attn",),
        "attention.out": ("attn.c_proj",),
        "feed_forward_norm": ("ln_2",),
        "feed_forward.up": ("mlp.c_fc",),
        "feed_forward.down": ("mlp.c_proj",),
    },
    heads=("lm_head.",),
    config={
        "vocab_size": "vocab_size",
        "n_embd": "d_model",
        "n_layer": "n_layers",
        "n_head": "n_heads",
        "n_inner": "d_ff",
        "n_positions": "max_length",
        "resid_pdrop": "dropout",
        "attn_pdrop": "attention_dropout",
        "activation_function": "activation",
        "layer_norm_epsilon": "norm_eps",
    },
    activation="gelu_new",
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
    """Write a checkpoint that the library's class loads: each file whole, or as it was.

    model is of one of the classes in ARCHITECTURES. Raises: ValueError for another; OSError.
    """
    if type(model) not in ARCHITECTURES:
        kinds = ", ".join(kind.__name__ for kind in ARCHITECTURES)
        raise ValueError(f"the model must be one of {kinds}, got {type(model).__name__}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    family = GPT2 if isinstance(model, GPT) else BERT
    config = model.config if isinstance(model, Bert | GPT) else model.bert.config
    prefix = "" if isinstance(model, Bert) else family.prefix
    state = {}
    for key, value in _our_weights(model).items():
        names = family.names(key)
        value = value.T if _is_turned(names[0]) else value
        for name, part in zip(names, value.chunk(len(names)), strict=True):
            name = name if name.startswith(family.heads) else prefix + name
            state[name] = part.contiguous()
    body = _their_config(asdict(config), family)
    body["architectures"] = [ARCHITECTURES[type(model)]]
    if "classifier.weight" in state:
        labels = [f"LABEL_{i}" for i in range(len(state["classifier.weight"]))]
        body["id2label"] = {str(i): label for i, label in enumerate(labels)}
        body["label2id"] = {label: i for i, label in enumerate(labels)}
    with whole_file(folder / "model.safetensors") as file:
        file.write(to_bytes(state, metadata={"format": "pt"}))
    with whole_file(folder / "config.json") as file:
        file.write(json.dumps(body, indent=2).encode() + b"\n")


def _our_weights(model: nn.Module) -> State:
    """Return the weights of a model by the names that they have in a model with a head."""
    prefix = "bert." if isinstance(model, Bert) else ""
    return {prefix + key: value for key, value in model.state_dict().items()}


def _is_turned(name: str) -> bool:
    """Return whether a weight is of a linear map of GPT-2, which the library keeps transposed."""
    return ".c_" in name and name.endswith("weight")


def _read(folder: Path, family: _Family, kind: type) -> tuple[Any, State]:
    """Return a checkpoint's sizes, as our configuration of a kind, and its weights, no prefix."""
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} holds no {name}, which a checkpoint needs")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("config.json holds no object")
        state = load_file(folder / "model.safetensors")
    except (ValueError, RecursionError, SafetensorError) as error:
        raise ValueError(f"the checkpoint in {folder} cannot be read: {error}") from error
    try:
        sizes = kind(**_our_config(config, family))
        if sizes.d_model % sizes.n_heads:
            raise ValueError(f"d_model {sizes.d_model} is no multiple of n_heads {sizes.n_heads}")
        _check_size(sizes, state)
    except ValueError as error:
        raise ValueError(f"config.json in {folder}: {error}") from None
    return sizes, {key.removeprefix(family.prefix): value for key, value in state.items()}


def _our_config(config: Mapping[str, Any], family: _Family) -> dict[str, Any]:
    """Return our sizes and options from the library's."""
    if config.get("model_type") != family.model_type:
        given = config.get("model_type")
        raise ValueError(f"a model of type {family.model_type!r} is needed, got {given!r}")
    if "vocab_size" not in config:
        raise ValueError("there is no vocab_size")
    for key, value in _FIXED.items():
        if config.get(key, value) != value:
            raise ValueError(f"{key} is {config[key]!r}, our models have {value!r}")
    ours = {own: config[key] for key, own in family.config.items() if key in config}
    activation = ours.get("activation", family.activation)
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise ValueError(f"the activation must be one of {[*_ACTIVATIONS]}, got {activation!r}")
    return ours | {"activation": _ACTIVATIONS[activation]}


def _their_config(sizes: Mapping[str, Any], family: _Family) -> dict[str, Any]:
    """Return the library's sizes and options from ours."""
    body = {theirs: sizes[ours] for theirs, ours in family.config.items()}
    (activation,) = (theirs for theirs, ours in family.config.items() if ours == "activation")
    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    body |= {activation: names[sizes["activation"]], "model_type": family.model_type}
    if family is GPT2:
        body["embd_pdrop"] = body["resid_pdrop"]
    return body


def _check_size(sizes: Any, state: State) -> None:
    """Raise ValueError for sizes that need far more memory than the weights that are there."""
    d, d_ff = sizes.d_model, sizes.d_ff or 4 * sizes.d_model
    layers = sizes.n_layers * max(4 * d * d + 2 * d * d_ff, 10_000)
    rows = sizes.vocab_size + sizes.max_length + getattr(sizes, "n_segments", 0)
    announced = layers + d * rows
    held = sum(value.numel() for value in state.values())
    if announced > 2 * held + 1_000_000:
        raise ValueError(f"it announces {announced} weights, there are {held}")


def _fill(model: nn.Module, state: State, family: _Family, folder: str | Path) -> None:
    """Give model the weights of a checkpoint; heads that it does not have are left out."""
    wanted = {key: family.names(key) for key in _our_weights(model)}
    known = [name for names in wanted.values() for name in names]
    extra = [key for key in state if key not in known and not key.startswith(family.heads)]
    if unknown := [key for key in extra if not key.endswith(_NOTHING)]:
        raise ValueError(f"the checkpoint in {folder} has unknown keys: {_some(unknown)}")
    if missing := [name for name in known if name not in state]:
        raise ValueError(f"the checkpoint in {folder} lacks {_some(missing)}")
    parts = {
        key: [state[name].T if _is_turned(name) else state[name] for name in names]
        for key, names in wanted.items()
    }
    shapes = {
        key: (len(value) // len(parts[key]), *value.shape[1:])
        for key, value in _our_weights(model).items()
    }
    wrong = [
        f"{name} {tuple(part.shape)} instead of {shapes[key]}"
        for key, names in wanted.items()
        for name, part in zip(names, parts[key], strict=True)
        if part.shape != shapes[key]
    ]
    if wrong:
        raise ValueError(f"the checkpoint in {folder} has {_some(wrong)}")
    weights = [torch.cat(each) for each in parts.values()]
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def to_torch(module: nn.Module) -> nn.Module:
    """Return PyTorch's module, batch first, with the weights and options of ours.

    Takes MultiHeadAttention, TransformerBlock, Encoder, Decoder and EncoderDecoder.
    Raises: ValueError for a module that PyTorch has no counterpart of.
    """
    theirs = _like_ours(module).to(next(module.parameters()))
    own = module.state_dict()
    theirs.load_state_dict({key: own[_our_name(key, theirs)] for key in theirs.state_dict()})
    return theirs.train(module.training)


def _like_ours(module: nn.Module) -> nn.Module:
    """Return PyTorch's counterpart of our module, with weights of its own."""
    if isinstance(module, MultiHeadAttention):
        rate = module.dropout.p
        return nn.MultiheadAttention(module.d_model, module.n_heads, rate, batch_first=True)
    if isinstance(module, TransformerBlock):
        return _layer_like_ours(module)
    if isinstance(module, Encoder):
        layer, n_layers = _layer_like_ours(module.layers[0]), len(module.layers)
        norm = module.final_norm
        norm = nn.LayerNorm(norm.normalized_shape, norm.eps) if hasattr(norm, "eps") else None
        if isinstance(module, Decoder):
            return nn.TransformerDecoder(layer, n_layers, norm)
        return nn.TransformerEncoder(layer, n_layers, norm, enable_nested_tensor=False)
    if isinstance(module, EncoderDecoder):
        attention = module.encoder.layers[0].attention
        return nn.Transformer(
            attention.d_model,
            attention.n_heads,
            custom_encoder=_like_ours(module.encoder),
            custom_decoder=_like_ours(module.decoder),
            batch_first=True,
        )
    raise ValueError(f"PyTorch has no counterpart of {type(module).__name__}")


def _layer_like_ours(block: TransformerBlock) -> nn.Module:
    """Return PyTorch's counterpart of our block, with weights of its own."""
    if block.feed_forward.activation == "gelu_tanh":
        raise ValueError("PyTorch's layers have no gelu_tanh")
    cross = block.has_cross_attention
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(
        block.attention.d_model,
        block.attention.n_heads,
        block.feed_forward.up.out_features,
        block.dropout.p,
        block.feed_forward.activation,
        block.attention_norm.eps,
        batch_first=True,
        norm_first=block.norm_first,
    )
    layer.self_attn.dropout = block.attention.dropout.p
    if cross:
        layer.multihead_attn.dropout = block.cross_attention.dropout.p
    return layer


# PyTorch's names of parameters, and ours; the last norm of a layer is that of the feed-forward.
_ATTENTION_NAMES = {"in_proj_": "qkv.", "out_proj.": "out."}
_ENCODER_NAMES = {
    "self_attn.": "attention.",
    "linear1.": "feed_forward.up.",
    "linear2.": "feed_forward.down.",
    "norm1.": "attention_norm.",
    "norm2.": "feed_forward_norm.",
}
_DECODER_NAMES = _ENCODER_NAMES | {
    "multihead_attn.": "cross_attention.",
    "norm2.": "cross_norm.",
    "norm3.": "feed_forward_norm.",
}


def _our_name(key: str, module: nn.Module) -> str:
    """Return our name of PyTorch's parameter key of a module."""
    if key.startswith(("norm.", "encoder.norm.", "decoder.norm.")):
        return key.replace("norm.", "final_norm.")
    decoders = nn.TransformerDecoder, nn.TransformerDecoderLayer
    in_decoder = isinstance(module, decoders) or key.startswith("decoder.")
    names = _ATTENTION_NAMES | (_DECODER_NAMES if in_decoder else _ENCODER_NAMES)
    for theirs, ours in names.items():
        key = key.replace(theirs, ours)
    return key
