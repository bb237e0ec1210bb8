"""Checkpoints of the Transformers library: config.json and model.safetensors, and its names.

Only safetensors are read: a pickled checkpoint can run code.
Sources: the library's modeling_bert.py and modeling_gpt2.py, for what it calls each weight.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from support.data.files import whole_file
from support.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MultiHeadAttention,
    TransformerBlock,
)

State = dict[str, torch.Tensor]

# The library's name of a part, and ours. Encoder and decoder parts come without a prefix.
_BERT = {
    "embeddings.word_embeddings": "bert.tokens",
    "embeddings.token_type_embeddings": "bert.segments",
    "embeddings.position_embeddings": "bert.positions",
    "embeddings.LayerNorm": "bert.norm",
    "pooler.dense": "bert.pooler",
    "cls.predictions.transform.dense": "transform",
    "cls.predictions.transform.LayerNorm": "transform_norm",
    "cls.seq_relationship": "next_sentence",
    "classifier": "classifier",
    "qa_outputs": "span",
}
_BERT_LAYER = {
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.up",
    "output.dense": "feed_forward.down",
    "output.LayerNorm": "feed_forward_norm",
}
_GPT2 = {"wte": "tokens", "wpe": "positions", "ln_f": "final_norm"}
_GPT2_LAYER = {
    "ln_1": "attention_norm",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.out",
    "ln_2": "feed_forward_norm",
    "mlp.c_fc": "feed_forward.up",
    "mlp.c_proj": "feed_forward.down",
}
_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")
# Keys that hold nothing of their own: buffers of old releases, and copies of tied weights.
_NOTHING = ("embeddings.position_ids", ".attn.bias", ".attn.masked_bias")
_HEADS = ("transform", "transform_norm", "token_bias", "next_sentence", "classifier", "span")
_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "lm_head.weight")

_BERT_CONFIG = {
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
}
_GPT2_CONFIG = {
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
}
# Options that would change the numbers, and the only value of each that our models have.
_FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}


@dataclass(frozen=True)
class _Family:
    """How one of the library's models names its parts: prefix, and the prefix of a layer."""

    model_type: str
    prefix: str
    layer: str
    our_layer: str
    parts: dict[str, str]
    layer_parts: dict[str, str]
    config: dict[str, str]

    def ours(self, key: str) -> str | None:
        """Return our name of the library's key, or None if it is unknown."""
        if key == "cls.predictions.bias":
            return "token_bias"
        key = key.removeprefix(self.prefix)
        part, _, kind = key.rpartition(".")
        if not part.startswith(self.layer):
            return self.parts.get(part) and f"{self.parts[part]}.{kind}"
        number, _, rest = part.removeprefix(self.layer).partition(".")
        own = rest if rest in _QKV and self is BERT else self.layer_parts.get(rest)
        return own and f"{self.our_layer}{number}.{own}.{kind}"

    def theirs(self, key: str) -> str:
        """Return the library's name of our key."""
        if key == "token_bias":
            return "cls.predictions.bias"
        part, _, kind = key.rpartition(".")
        if part.startswith(self.our_layer):
            number, _, rest = part.removeprefix(self.our_layer).partition(".")
            back = {ours: theirs for theirs, ours in self.layer_parts.items()}
            return f"{self.prefix}{self.layer}{number}.{back.get(rest, rest)}.{kind}"
        back = {ours: theirs for theirs, ours in self.parts.items()}
        inside = self.model_type == "gpt2" or part.startswith("bert.")
        return f"{self.prefix if inside else ''}{back[part]}.{kind}"


BERT = _Family(
    "bert", "bert.", "encoder.layer.", "bert.encoder.layers.", _BERT, _BERT_LAYER, _BERT_CONFIG
)
GPT2 = _Family("gpt2", "transformer.", "h.", "layers.", _GPT2, _GPT2_LAYER, _GPT2_CONFIG)


def load(folder: str | Path, family: _Family, kind: type) -> tuple[Any, State]:
    """Return a checkpoint's sizes, as our configuration of a kind, and weights by our names.

    Raises: FileNotFoundError; ValueError for a file that is damaged, another kind of model, sizes
    that make none, an option that our models do not have, or a key that is unknown.
    """
    folder = Path(folder)
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
        sizes = kind(**_read_config(config, family, folder))
        if sizes.d_model % sizes.n_heads:
            raise ValueError(f"d_model {sizes.d_model} is no multiple of n_heads {sizes.n_heads}")
    except ValueError as error:
        raise ValueError(f"config.json in {folder}: {error}") from None
    _check_size(sizes, state, folder)
    return sizes, _to_ours(state, family, folder)


def save(folder: str | Path, family: _Family, config: Any, state: State, architecture: str) -> None:
    """Write a checkpoint of the library's class architecture: each file whole, or as it was."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    bare = architecture in ("BertModel", "GPT2Model")
    values = asdict(config)
    body = {theirs: values[ours] for theirs, ours in family.config.items()}
    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    for key in ("hidden_act", "activation_function"):
        if key in body:
            body[key] = names[body[key]]
    body |= {"model_type": family.model_type, "architectures": [architecture]}
    if family is GPT2:
        body["embd_pdrop"] = body["resid_pdrop"]
    if "classifier.weight" in state:
        n_classes = len(state["classifier.weight"])
        body["id2label"] = {str(i): f"LABEL_{i}" for i in range(n_classes)}
        body["label2id"] = {f"LABEL_{i}": i for i in range(n_classes)}
    theirs = {}
    for key, value in _split(state, family).items():
        name = family.theirs(key)
        theirs[name.removeprefix(family.prefix) if bare else name] = value.contiguous()
    with whole_file(folder / "model.safetensors") as file:
        file.write(to_bytes(theirs, metadata={"format": "pt"}))
    with whole_file(folder / "config.json") as file:
        file.write(json.dumps(body, indent=2).encode() + b"\n")


def fill(model: nn.Module, state: State, folder: str | Path) -> None:
    """Give model the weights of a checkpoint; heads that it does not have are left out.

    A pooler that the checkpoint lacks keeps its random weights, with a warning.
    Raises: ValueError for weights that are missing, too many, or of another shape.
    """
    wanted = model.state_dict()
    if "tokens.weight" in wanted:
        state = {key.removeprefix("bert."): value for key, value in state.items()}
    unknown = [key for key in state if key not in wanted and key.split(".")[0] not in _HEADS]
    if unknown:
        raise ValueError(f"the checkpoint in {folder} has unknown keys: {_some(unknown)}")
    missing = [key for key in wanted if key not in state]
    if missing and all("pooler" in key for key in missing):
        warnings.warn(f"{folder} has no pooler: ours starts from random weights", stacklevel=3)
    elif missing:
        raise ValueError(f"the checkpoint in {folder} lacks {_some(missing)}")
    wrong = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(value.shape)}"
        for key, value in wanted.items()
        if key in state and state[key].shape != value.shape
    ]
    if wrong:
        raise ValueError(f"the checkpoint in {folder} has {_some(wrong)}")
    model.load_state_dict(wanted | {key: state[key] for key in wanted if key in state})


def _read_config(config: Mapping[str, Any], family: _Family, folder: Path) -> dict[str, Any]:
    if config.get("model_type") != family.model_type:
        given = config.get("model_type")
        raise ValueError(f"{folder} holds a model of type {given!r}, not {family.model_type!r}")
    if "vocab_size" not in config:
        raise ValueError(f"the config.json in {folder} has no vocab_size")
    for key, value in _FIXED.items():
        if config.get(key, value) != value:
            raise ValueError(f"{folder} has {key}={config[key]!r}; our models have {value!r}")
    ours = {own: config[key] for key, own in family.config.items() if key in config}
    activation = ours.get("activation", "gelu_new" if family is GPT2 else "gelu")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise ValueError(f"{folder} has the activation {activation!r}, not of {[*_ACTIVATIONS]}")
    return ours | {"activation": _ACTIVATIONS[activation]}


def _check_size(sizes: Any, state: State, folder: Path) -> None:
    """Raise ValueError for sizes that need far more memory than the weights that are there."""
    d, d_ff = sizes.d_model, sizes.d_ff or 4 * sizes.d_model
    layers = sizes.n_layers * max(4 * d * d + 2 * d * d_ff, 10_000)
    rows = sizes.vocab_size + sizes.max_length + getattr(sizes, "n_segments", 0)
    announced = layers + d * rows
    held = sum(value.numel() for value in state.values())
    if announced > 2 * held + 1_000_000:
        raise ValueError(f"{folder}: config.json announces {announced} weights, there are {held}")


def _to_ours(state: State, family: _Family, folder: Path) -> State:
    """Return the weights by our names, the three projections of a BERT's attention as one."""
    known = {key: family.ours(key) for key in state if not key.endswith((*_NOTHING, *_TIED))}
    unknown = [key for key, own in known.items() if own is None]
    if unknown:
        raise ValueError(f"the checkpoint in {folder} has unknown keys: {_some(unknown)}")
    ours = {own: _turn(key, state[key], family) for key, own in known.items()}
    for key in [key for key in ours if _QKV[0] in key]:
        names = [key.replace(_QKV[0], name) for name in _QKV]
        if lacking := [name for name in names if name not in ours]:
            raise ValueError(f"the checkpoint in {folder} lacks {_some(lacking)}")
        ours[key.replace(_QKV[0], "attention.qkv")] = torch.cat([ours.pop(n) for n in names])
    return ours


def _split(state: State, family: _Family) -> State:
    """Return our weights with the projections apart, or turned, as the library has them."""
    if family is GPT2:
        return {key: _turn(family.theirs(key), value, family) for key, value in state.items()}
    apart = {}
    for key, value in state.items():
        key = f"bert.{key}" if "tokens.weight" in state else key
        if "attention.qkv" in key:
            for name, part in zip(_QKV, value.chunk(3), strict=True):
                apart[key.replace("attention.qkv", name)] = part
        else:
            apart[key] = value
    return apart


def _turn(key: str, value: torch.Tensor, family: _Family) -> torch.Tensor:
    """Return a weight of a linear map of GPT-2, which the library keeps transposed, turned."""
    turned = family is GPT2 and ".c_" in key and key.endswith("weight")
    return value.T.contiguous() if turned else value


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# PyTorch's names of parameters, and ours; within an encoder's block norm2 is the last.
_ATTENTION = {"in_proj_": "qkv.", "out_proj.": "out."}
_ENCODER_BLOCK = {
    "self_attn.": "attention.",
    "linear1.": "feed_forward.up.",
    "linear2.": "feed_forward.down.",
    "norm1.": "attention_norm.",
    "norm2.": "feed_forward_norm.",
}
_DECODER_BLOCK = _ENCODER_BLOCK | {
    "multihead_attn.": "cross_attention.",
    "norm2.": "cross_norm.",
    "norm3.": "feed_forward_norm.",
}


def from_torch(module: nn.Module) -> nn.Module:
    """Return our module with the weights and options of one of PyTorch's, in the same mode.

    Takes nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
    nn.TransformerEncoder, nn.TransformerDecoder and nn.Transformer, batch first or not: ours take
    (B, T, d_model). Raises: ValueError for another module or an option that ours does not have.
    """
    ours = _like_torch(module).to(next(module.parameters()))
    weights = {_name(key, _kind(module)): value for key, value in module.state_dict().items()}
    ours.load_state_dict(weights)
    return ours.train(module.training)


def to_torch(module: nn.Module) -> nn.Module:
    """Return PyTorch's module, batch first, with the weights and options of ours: from_torch back.

    Raises: ValueError for a module that PyTorch has no counterpart of.
    """
    theirs = _like_ours(module).to(next(module.parameters()))
    own = module.state_dict()
    theirs.load_state_dict({key: own[_name(key, _kind(theirs))] for key in theirs.state_dict()})
    return theirs.train(module.training)


def _kind(module: nn.Module) -> str:
    if isinstance(module, (nn.TransformerEncoder, nn.TransformerEncoderLayer)):
        return "encoder"
    if isinstance(module, (nn.TransformerDecoder, nn.TransformerDecoderLayer)):
        return "decoder"
    return "both"


def _name(key: str, kind: str) -> str:
    """Return our name of PyTorch's parameter key."""
    if kind == "both":
        kind = "decoder" if key.startswith("decoder.") else "encoder"
    if key.startswith(("norm.", "encoder.norm.", "decoder.norm.")):
        return key.replace("norm.", "final_norm.")
    table = _ATTENTION | (_DECODER_BLOCK if kind == "decoder" else _ENCODER_BLOCK)
    for theirs, ours in table.items():
        key = key.replace(theirs, ours)
    return key


def _like_torch(module: nn.Module) -> nn.Module:
    """Return our counterpart of PyTorch's module, with weights of its own."""
    if isinstance(module, nn.MultiheadAttention):
        plain = module.in_proj_weight is not None and module.in_proj_bias is not None
        if not plain or module.bias_k is not None or module.add_zero_attn:
            raise ValueError("kdim, vdim, bias=False, add_bias_kv and add_zero_attn are not ours")
        return MultiHeadAttention(module.embed_dim, module.num_heads, module.dropout)
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        cross = isinstance(module, nn.TransformerDecoderLayer)
        return TransformerBlock(*_sizes(module), cross_attention=cross, **_options(module))
    if isinstance(module, (nn.TransformerEncoder, nn.TransformerDecoder)):
        stack = Decoder if isinstance(module, nn.TransformerDecoder) else Encoder
        first = module.layers[0]
        final = module.norm is not None
        ours = stack(len(module.layers), *_sizes(first), final_norm=final, **_options(first))
        if final:
            ours.final_norm.eps = module.norm.eps
        return ours
    if isinstance(module, nn.Transformer):
        ours = EncoderDecoder(1, 1, 1, 0)
        ours.encoder, ours.decoder = _like_torch(module.encoder), _like_torch(module.decoder)
        return ours
    raise ValueError(f"no counterpart of {type(module).__name__} here")


def _sizes(layer: nn.Module) -> tuple[int, int, int]:
    return layer.self_attn.embed_dim, layer.self_attn.num_heads, layer.linear1.out_features


def _options(layer: nn.Module) -> dict[str, object]:
    activation = {F.relu: "relu", F.gelu: "gelu"}.get(layer.activation)
    if activation is None or layer.linear1.bias is None:
        raise ValueError("only ReLU and GELU, with biases, have a counterpart here")
    return {
        "dropout": layer.dropout1.p,
        "attention_dropout": layer.self_attn.dropout,
        "activation": activation,
        "norm_first": layer.norm_first,
        "norm_eps": layer.norm1.eps,
    }


def _like_ours(module: nn.Module) -> nn.Module:
    """Return PyTorch's counterpart of our module, with weights of its own."""
    if isinstance(module, MultiHeadAttention):
        rate = module.dropout.p
        return nn.MultiheadAttention(module.d_model, module.n_heads, rate, batch_first=True)
    if isinstance(module, TransformerBlock):
        if module.feed_forward.activation == "gelu_tanh":
            raise ValueError("PyTorch's layers have no gelu_tanh")
        layer = nn.TransformerDecoderLayer if module.has_cross_attention else None
        layer = layer or nn.TransformerEncoderLayer
        theirs = layer(
            module.attention.d_model,
            module.attention.n_heads,
            module.feed_forward.up.out_features,
            module.dropout.p,
            module.feed_forward.activation,
            module.attention_norm.eps,
            batch_first=True,
            norm_first=module.norm_first,
        )
        theirs.self_attn.dropout = module.attention.dropout.p
        if module.has_cross_attention:
            theirs.multihead_attn.dropout = module.cross_attention.dropout.p
        return theirs
    if isinstance(module, Encoder):
        layer = _like_ours(module.layers[0])
        final = isinstance(module.final_norm, nn.LayerNorm)
        norm = nn.LayerNorm(layer.self_attn.embed_dim, module.final_norm.eps) if final else None
        if isinstance(module, Decoder):
            return nn.TransformerDecoder(layer, len(module.layers), norm)
        return nn.TransformerEncoder(layer, len(module.layers), norm, enable_nested_tensor=False)
    if isinstance(module, EncoderDecoder):
        encoder, decoder = _like_ours(module.encoder), _like_ours(module.decoder)
        layer = encoder.layers[0].self_attn
        sizes = layer.embed_dim, layer.num_heads
        return nn.Transformer(
            *sizes, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
        )
    raise ValueError(f"PyTorch has no counterpart of {type(module).__name__}")
