"""BERT by hand: the encoder, its two pre-training tasks, and heads for fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from support.models.transformer import ACTIVATIONS, Encoder, padding_mask
from support.text.masking import PretrainingBatch


@dataclass(frozen=True)
class BertConfig:
    """The sizes of a BERT; the defaults are BERT-base's. Source: Devlin et al. 2019, section 3."""

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
        if self.n_layers < 1:
            raise ValueError(f"expected n_layers of at least 1, got {self.n_layers}")


class Bert(nn.Module):
    """Token, segment and learned position embeddings, a post-norm encoder, and the pooler.

    Source: Devlin et al. 2019, section 3 and figure 2.
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.segments = nn.Embedding(c.n_segments, c.d_model)
        self.positions = nn.Embedding(c.max_length, c.d_model)
        self.norm = nn.LayerNorm(c.d_model, eps=c.norm_eps)
        self.dropout = nn.Dropout(c.dropout)
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
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return hidden states (B, T, d_model), or (P, d_model) at the given positions.

        Args:
            ids: token ids (B, T).
            segments: segment ids (B, T), by default 0.
            lengths: tokens (B,) of each sequence that are not padding, by default all.
            positions: indices (P,) into ids.flatten(), by default all.
        Raises: ValueError for more positions than max_length.
        """
        T, n = ids.shape[1], len(self.positions.weight)
        if T > n:
            raise ValueError(f"the model has {n} positions, the sequence needs {T}")
        segments = torch.zeros_like(ids) if segments is None else segments
        x = self.tokens(ids) + self.segments(segments) + self.positions.weight[:T]
        x = self.dropout(self.norm(x))  # (B, T, d_model)
        mask = None if lengths is None else padding_mask(lengths, T)
        return self.encoder(x, attn_mask=mask, positions=positions)

    def pool(self, states: torch.Tensor) -> torch.Tensor:
        """Return (B, d_model) for each sequence, computed from the state of its [CLS] token."""
        return torch.tanh(self.pooler(states[:, 0]))


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
        self.transform.apply(initialize)
        self.next_sentence.apply(initialize)

    def predict_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits (…, vocab_size) of the token at each of states (…, d_model)."""
        activation = ACTIVATIONS[self.bert.config.activation]
        x = self.transform_norm(activation(self.transform(states)))
        return F.linear(x, self.bert.tokens.weight, self.token_bias)

    def predict_next(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 2): column 0 says that b follows a, as in the authors' checkpoints."""
        return self.next_sentence(pooled)

    def forward(self, batch: PretrainingBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean losses in nats of masked tokens and of next sentences, two scalars.

        Where nothing is masked, the first loss is 0.
        """
        B, T = batch.ids.shape
        # Only the states that the losses need, without which BERT would not train at 1.4 times
        # the speed of d2l's: of the masked positions, and of [CLS] at the start of each sequence.
        starts = T * torch.arange(B, device=batch.ids.device)
        positions = torch.cat((batch.positions, starts))
        states = self.bert(batch.ids, batch.segments, batch.lengths, positions=positions)
        masked_states, first = states.split((len(batch.positions), B))
        # In chunks, since to allocate all (P, vocab_size) logits at once is slow on a CPU.
        pieces = zip(masked_states.split(1024), batch.targets.split(1024), strict=True)
        losses = [F.cross_entropy(self.predict_tokens(x), y, reduction="sum") for x, y in pieces]
        masked = sum(losses) / max(1, len(batch.targets))  # a mean of nothing would be NaN
        next_logits = self.predict_next(self.bert.pool(first[:, None]))
        following = F.cross_entropy(next_logits, 1 - batch.is_next)
        return masked, following


class TextClassifier(nn.Module):
    """BERT and a linear map of the pooled state: for one text, or a pair in two segments."""

    def __init__(self, bert: Bert, n_classes: int):
        super().__init__()
        self.bert = bert
        self.dropout = nn.Dropout(bert.config.dropout)
        self.classifier = nn.Linear(bert.config.d_model, n_classes)
        self.classifier.apply(initialize)

    def forward(self, ids, segments=None, lengths=None) -> torch.Tensor:
        """Return logits (B, n_classes); arguments as in Bert.forward."""
        pooled = self.bert.pool(self.bert(ids, segments, lengths))
        return self.classifier(self.dropout(pooled))


class TokenClassifier(nn.Module):
    """BERT and a linear map of every token's state: for tags."""

    def __init__(self, bert: Bert, n_classes: int):
        super().__init__()
        self.bert = bert
        self.dropout = nn.Dropout(bert.config.dropout)
        self.classifier = nn.Linear(bert.config.d_model, n_classes)
        self.classifier.apply(initialize)

    def forward(self, ids, segments=None, lengths=None) -> torch.Tensor:
        """Return logits (B, T, n_classes); arguments as in Bert.forward."""
        return self.classifier(self.dropout(self.bert(ids, segments, lengths)))


class SpanClassifier(nn.Module):
    """BERT and two logits for every token: that the answer starts there, and that it ends there."""

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert
        self.span = nn.Linear(bert.config.d_model, 2)
        self.span.apply(initialize)

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
