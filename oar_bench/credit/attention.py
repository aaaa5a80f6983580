"""Attention of a clean pass: who looks at whom, and through whom a token reaches the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from oar_bench.credit.aligned import Aligned, Layers, forward, has_plain_cache
from oar_bench.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Collector(ABC):
    """Takes attention weights layer by layer; holds sums (B, W, W) of them alone."""

    def __init__(self, rows: Aligned) -> None:
        self.rows = rows
        self.layers = 0

    def collect(self, module: Any, inputs: Any, output: Any) -> Any:
        """A forward hook of an attention module: adds its weights and lets them go."""
        self.add(output[1].float())
        self.layers += 1
        return (output[0], None, *output[2:])

    @abstractmethod
    def add(self, weights: torch.Tensor) -> None:
        """Take the next layer's weights (B, heads, W, W) float32."""

    @abstractmethod
    def result(self) -> torch.Tensor:
        """What was asked for, (B, W, W) float32."""


class MeanAttention(Collector):
    """The mean over layers and heads: [b, u, t] is how much u looks at t.

    Rows of real tokens sum to 1.
    """

    total = torch.zeros(())

    def add(self, weights: torch.Tensor) -> None:
        """Take the next layer's weights (B, heads, W, W) float32."""
        self.total = self.total + weights.mean(1)

    def result(self) -> torch.Tensor:
        """The mean, (B, W, W) float32."""
        return self.total / self.layers


class AnswerPaths(Collector):
    """How much of token t the answer can see through token u: [b, u, t].

        sum over layers l < k of  max_heads attention_l(u -> t) x max_heads attention_k(answer -> u)

    A path through u reads t in one layer and is read in a later one. The largest head counts, since
    a token is usually carried by one head of many, which a mean would drown.
    """

    paths = torch.zeros(())
    before = torch.zeros(())
    """What the layers so far read, summed."""

    def add(self, weights: torch.Tensor) -> None:
        """Take the next layer's weights (B, heads, W, W) float32."""
        strongest = weights.amax(1)
        to_answer = self.rows.answer_attention(strongest)[:, :, None]
        self.paths = self.paths + to_answer * self.before
        self.before = self.before + strongest

    def result(self) -> torch.Tensor:
        """The sum over pairs of layers, (B, W, W) float32."""
        # With a single layer there is no path: zeros of one column, to be spread over all.
        return self.paths + torch.zeros_like(self.before)


@contextmanager
def _eager(model: PreTrainedModel) -> Iterator[None]:
    """Attention by the plain formula, which alone gives its weights out; the former one after."""
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(before)


def attended_pass(
    model: PreTrainedModel, rows: Aligned, kind: type[Collector]
) -> tuple[torch.Tensor, Layers, torch.Tensor]:
    """A clean pass with a sum of its attention, of the given kind.

    Returns:
        Logits (B, len(rows.wanted), V), keys and values of each layer (none where the model's past
        isn't plain), and the collector's result (B, W, W) float32.

    Raises:
        InputError: the model's attention gives no weights out.
    """
    collector = kind(rows)
    hooks = [
        module.register_forward_hook(collector.collect)
        for module in model.modules()
        if type(module).__name__.endswith("Attention") and hasattr(module, "layer_idx")
    ]
    try:
        with _eager(model):
            logits, past = forward(
                model, rows, wanted=rows.wanted, cached=has_plain_cache(model, model.config)
            )
    finally:
        for hook in hooks:
            hook.remove()
    if not collector.layers:
        raise InputError(
            "no attention weights come out of this model", "--method",
            "use a method that needs none, for example oar-p",
        )  # fmt: skip
    return logits, past, collector.result()
