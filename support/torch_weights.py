"""Weights to and from PyTorch's own Transformer modules."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from support.attention import MultiHeadAttention
from support.transformer import Decoder, Encoder, EncoderDecoder, TransformerBlock

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
