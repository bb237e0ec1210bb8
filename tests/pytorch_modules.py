"""PyTorch's own modules with the weights of ours, to hold ours against."""

import copy

from torch import nn

from support.models.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MultiHeadAttention,
    TransformerBlock,
)


def to_torch(module: nn.Module) -> nn.Module:
    """Return PyTorch's module, batch first, with copies of the weights and the options of ours.

    Takes MultiHeadAttention, TransformerBlock, Encoder, Decoder and EncoderDecoder.
    Raises: ValueError for a module that PyTorch has no counterpart of.
    """
    if isinstance(module, MultiHeadAttention):
        theirs = _attention_to_torch(module)
    elif isinstance(module, TransformerBlock):
        theirs = _block_to_torch(module)
    elif isinstance(module, Encoder):
        layers = nn.ModuleList(to_torch(layer) for layer in module.layers)
        norm = module.final_norm if isinstance(module.final_norm, nn.LayerNorm) else None
        decodes = isinstance(module, Decoder)
        kind = nn.TransformerDecoder if decodes else nn.TransformerEncoder
        options = {} if decodes else {"enable_nested_tensor": False}
        theirs = kind(layers[0], len(layers), copy.deepcopy(norm), **options)
        theirs.layers = layers
    elif isinstance(module, EncoderDecoder):
        attention = module.encoder.layers[0].attention
        # It draws the weights of the stacks anew that it is made with: ours take their place after.
        theirs = nn.Transformer(
            attention.d_model,
            attention.n_heads,
            custom_encoder=nn.Identity(),
            custom_decoder=nn.Identity(),
            batch_first=True,
        )
        theirs.encoder, theirs.decoder = to_torch(module.encoder), to_torch(module.decoder)
    else:
        raise ValueError(f"PyTorch has no counterpart of {type(module).__name__}")
    return theirs.train(module.training)


def _attention_to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Return PyTorch's attention with the weights of ours."""
    theirs = nn.MultiheadAttention(ours.d_model, ours.n_heads, ours.dropout.p, batch_first=True)
    weights = {
        "in_proj_weight": ours.qkv.weight,
        "in_proj_bias": ours.qkv.bias,
        "out_proj.weight": ours.out.weight,
        "out_proj.bias": ours.out.bias,
    }
    theirs = theirs.to(ours.qkv.weight)
    theirs.load_state_dict(weights)
    return theirs


def _block_to_torch(ours: TransformerBlock) -> nn.Module:
    """Return PyTorch's layer with the weights of our block."""
    if ours.feed_forward.activation == "gelu_tanh":
        raise ValueError("PyTorch's layers have no gelu_tanh")
    cross = ours.has_cross_attention
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    theirs = kind(
        ours.attention.d_model,
        ours.attention.n_heads,
        ours.feed_forward.up.out_features,
        ours.dropout.p,
        ours.feed_forward.activation,
        batch_first=True,
        norm_first=ours.norm_first,
    )
    theirs.self_attn = to_torch(ours.attention)
    theirs.norm1 = copy.deepcopy(ours.attention_norm)
    theirs.linear1 = copy.deepcopy(ours.feed_forward.up)
    theirs.linear2 = copy.deepcopy(ours.feed_forward.down)
    if cross:
        theirs.multihead_attn = to_torch(ours.cross_attention)
        theirs.norm2 = copy.deepcopy(ours.cross_norm)
        theirs.norm3 = copy.deepcopy(ours.feed_forward_norm)
    else:
        theirs.norm2 = copy.deepcopy(ours.feed_forward_norm)
    return theirs
