"""BERT by hand: the encoder, its two tasks of pre-training, and heads for fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from support import checks
from support.models.transformer import (
    ACTIVATIONS,
    Dropout,
    Encoder,
    Positions,
    embed,
    linear_cross_entropy,
    padding_mask,
)
from support.text.masking import PretrainingBatch

ROWS_CPU = 128  # rows of a batch that go through a CPU together, padded to the longest of them


@dataclass(frozen=True)
class BertConfig:
    """The sizes of a BERT; the defaults are BERT-base's.

    Raises: ValueError for sizes that are no positive integers (n_layers may be 0).
    Source: Devlin et al. 2019, section 3.
    """

    vocab_size: int
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int = 3072
    max_length: int = 512
    n_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    norm_eps: float = 1e-12

    def __post_init__(self):
        checks.integers(0, n_layers=self.n_layers)
        checks.integers(1, vocab_size=self.vocab_size, d_model=self.d_model, n_heads=self.n_heads)
        checks.integers(1, d_ff=self.d_ff, max_length=self.max_length, n_segments=self.n_segments)
        checks.above(0, norm_eps=self.norm_eps)
        checks.rates(dropout=self.dropout, attention_dropout=self.attention_dropout)


class Bert(nn.Module):
    """Token, segment and learned position embeddings, a post-norm encoder, and the pooler.

    Source: Devlin et al. 2019, section 3 and figure 2.
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.segments = nn.Embedding(c.n_segments, c.d_model)
        self.positions = Positions(c.max_length, c.d_model, learned=True)
        self.norm = nn.LayerNorm(c.d_model, eps=c.norm_eps)
        self.dropout = Dropout(c.dropout)
        self.encoder = Encoder(
            c.n_layers,
            c.d_model,
            c.n_heads,
            c.d_ff,
            dropout=c.dropout,
            attention_dropout=c.attention_dropout,
            activation=c.activation,
            norm_eps=c.norm_eps,
        )
        self.pooler = nn.Linear(c.d_model, c.d_model)
        self.apply(initialize)

    def forward(
        self,
        ids: torch.Tensor,
        segments: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
        *,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return hidden states (B, T, d_model).

        Args: ids and segments (B, T), segments 0 by default; lengths (B,) tells how many of each
        row are no padding, default all; with rows (B, P), indices into T, the last layer computes
        only those positions, and the states are (B, P, d_model).
        Raises: ValueError for shapes that differ, ids outside the vocabulary, or T over max_length.
        """
        if segments is None:
            segments = torch.zeros_like(ids)
        if segments.shape != ids.shape or (lengths is not None and lengths.shape != ids.shape[:1]):
            shapes = tuple(segments.shape), None if lengths is None else tuple(lengths.shape)
            raise ValueError(f"ids {tuple(ids.shape)}, segments and lengths {shapes} do not fit")
        x = embed(self.tokens, ids) + embed(self.segments, segments)
        x = self.dropout(self.norm(x + self.positions(ids.shape[1])))  # (B, T, d_model)
        mask = None if lengths is None else padding_mask(lengths, ids.shape[1])
        return self.encoder(x, attn_mask=mask, rows=rows)

    def pool(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (B, d_model) for the whole text, made from the state of its first token, [CLS]."""
        return torch.tanh(self.pooler(hidden[:, 0]))


class BertForPretraining(nn.Module):
    """BERT with its heads for masked language modeling (tied) and next-sentence prediction.

    The masked-LM head maps a state back into the space of the embeddings and multiplies by the
    token embedding itself. Source: Devlin et al. 2019, section 3.1.
    """

    def __init__(self, bert: Bert):
        super().__init__()
        c = bert.config
        self.bert = bert
        self.transform = nn.Linear(c.d_model, c.d_model)
        self.transform_norm = nn.LayerNorm(c.d_model, eps=c.norm_eps)
        self.token_bias = nn.Parameter(torch.zeros(c.vocab_size))
        self.next_sentence = nn.Linear(c.d_model, 2)
        for part in (self.transform, self.next_sentence):
            initialize(part)

    def predict_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits (…, vocab_size) of the token at each of states (…, d_model)."""
        return F.linear(self.transformed(states), self.bert.tokens.weight, self.token_bias)

    def transformed(self, states: torch.Tensor) -> torch.Tensor:
        """Return states (…, d_model) in the space of the token embeddings."""
        activation = ACTIVATIONS[self.bert.config.activation]
        return self.transform_norm(activation(self.transform(states)))

    def predict_next(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 2): column 0 says that b follows a, as in the authors' checkpoints."""
        return self.next_sentence(pooled)

    def forward(self, batch: PretrainingBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean losses in nats of masked tokens and of next sentences, two scalars."""
        states, first = self.states(batch)
        weight, bias = self.bert.tokens.weight, self.token_bias
        masked = linear_cross_entropy(self.transformed(states), weight, bias, batch.targets)
        pooled = self.bert.pool(first[:, None])
        following = self.predict_next(pooled).to(masked.dtype)  # in full precision, as masked is
        return masked, F.cross_entropy(following, 1 - batch.is_next)

    def states(self, batch: PretrainingBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states (P, d_model) at batch.positions, and those (B, d_model) of [CLS].

        Nothing else is computed where it is not needed: on the CPU the rows, which are in order of
        length, go through in pieces without most of the padding; and the last layer computes
        batch.rows, the first position and those to be predicted, no others.
        """
        on_cpu = batch.ids.device.type == "cpu"
        size = ROWS_CPU if on_cpu else len(batch.ids)
        parts = []
        for start in range(0, len(batch.ids), size):
            own = slice(start, start + size)
            # To read the lengths from a GPU, the program would have to wait for it.
            cut = int(batch.lengths[own].max()) if on_cpu else batch.ids.shape[1]
            ids, segments = batch.ids[own, :cut], batch.segments[own, :cut]
            parts.append(self.bert(ids, segments, batch.lengths[own], rows=batch.rows[own]))
        states = torch.cat(parts)  # (B, 1 + most predictions of a row, d_model)
        return states.flatten(0, 1)[batch.places], states[:, 0]


def pretraining_loss(model: nn.Module, batch: PretrainingBatch) -> torch.Tensor:
    """Return the sum of both losses of a BertForPretraining: the loss_fn for training.fit."""
    masked, following = model(batch)
    return masked + following


class TextClassifier(nn.Module):
    """BERT and a linear map of the pooled state: for one text, or a pair in two segments."""

    def __init__(self, bert: Bert, n_classes: int):
        super().__init__()
        self.bert = bert
        self.dropout = Dropout(bert.config.dropout)
        self.classifier = _head(bert, n_classes)

    def forward(self, ids, segments=None, lengths=None) -> torch.Tensor:
        """Return logits (B, n_classes); arguments as in Bert.forward."""
        pooled = self.bert.pool(self.bert(ids, segments, lengths))
        return self.classifier(self.dropout(pooled))


class TokenClassifier(nn.Module):
    """BERT and a linear map of every token's state: for tags."""

    def __init__(self, bert: Bert, n_classes: int):
        super().__init__()
        self.bert = bert
        self.dropout = Dropout(bert.config.dropout)
        self.classifier = _head(bert, n_classes)

    def forward(self, ids, segments=None, lengths=None) -> torch.Tensor:
        """Return logits (B, T, n_classes); arguments as in Bert.forward."""
        return self.classifier(self.dropout(self.bert(ids, segments, lengths)))


class SpanClassifier(nn.Module):
    """BERT and two scores for every token: that the answer starts there, and that it ends there."""

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert
        self.span = _head(bert, 2)

    def forward(self, ids, segments=None, lengths=None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits (B, T) of the start and of the end; arguments as in Bert.forward."""
        start, end = self.span(self.bert(ids, segments, lengths)).unbind(-1)
        return start, end


def initialize(module: nn.Module) -> None:
    """Give a linear map or an embedding normal weights of standard deviation 0.02, zero biases."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _head(bert: Bert, n_classes: int) -> nn.Linear:
    checks.integers(1, n_classes=n_classes)
    head = nn.Linear(bert.config.d_model, n_classes)
    initialize(head)
    return head
