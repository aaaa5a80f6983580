"""How many rows fit a memory budget, from a model's sizes.

Estimates of the largest tensors that live at once, on the generous side; benchmarks/credit.py
shows the peak that was really measured beside the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig

DEFAULT_MEMORY = 256 * 2**20


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder that decide memory and floating-point operations."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    item: int
    """bytes of one number"""

    @classmethod
    def of(cls, config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> Sizes:
        """The sizes in a transformers config, under the names that all its decoders share."""
        text: Any = config.get_text_config()
        heads = int(getattr(text, "num_attention_heads", None) or 1)
        return cls(
            layers=int(text.num_hidden_layers),
            hidden=int(text.hidden_size),
            intermediate=int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size),
            heads=heads,
            kv_heads=int(getattr(text, "num_key_value_heads", None) or heads),
            head_size=int(getattr(text, "head_dim", None) or text.hidden_size // heads),
            vocabulary=int(text.vocab_size),
            item=dtype.itemsize,
        )

    def token(self) -> int:
        """Bytes of one token's activations within a layer, without a graph."""
        return self.item * (8 * self.hidden + 3 * self.intermediate)

    def past(self, length: int) -> int:
        """Bytes of one layer's keys and values of `length` tokens while they are joined."""
        # The joined copy, its source, and the copy in which key heads are repeated.
        return self.item * self.head_size * length * (4 * self.kv_heads + 2 * self.heads)

    def logits(self, count: int) -> int:
        """Bytes of logits at `count` positions with the float32 copies of a divergence."""
        return count * self.vocabulary * (self.item + 16)

    def branch(self, tokens: int, length: int, answers: int) -> int:
        """Bytes of one row of `tokens` fed on a past up to `length`, with its answer's logits."""
        return (
            self.token() * tokens + self.past(length) + 5 * tokens * length + self.logits(answers)
        )

    def clean(self, length: int, answers: int) -> int:
        """Bytes of one row of a clean pass whose cache is kept."""
        kept = 2 * self.item * self.layers * self.kv_heads * self.head_size * length
        return kept + self.token() * length + self.logits(answers)

    def graph(self, tokens: int, length: int, answers: int) -> int:
        """Bytes of one row of `tokens` through all layers with what a backward pass needs."""
        kept = self.item * (12 * self.hidden + 4 * self.intermediate) * tokens
        return self.layers * (kept + self.past(length)) + 2 * self.logits(answers)


MOST_ROWS = 2**31 - 1
"""Beyond which torch takes no size of a batch, whatever the budget."""


def rows_within(budget: int, bytes_per_row: int) -> int:
    """How many rows of so many bytes fit; at least one, since less can't be done.

    >>> rows_within(1000, 300), rows_within(100, 300), rows_within(10**30, 300) == MOST_ROWS
    (3, 1, True)
    """
    return min(max(1, budget // max(1, bytes_per_row)), MOST_ROWS)
