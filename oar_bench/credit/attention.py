"""Mean attention of a clean pass: who looks at whom, averaged over layers and heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from oar_bench.credit.aligned import Aligned, Layers, forward, has_plain_cache
from oar_bench.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class MeanAttention:
    """Collects attention weights layer by layer; holds their running sum (B, W, W) alone."""

    def __init__(self) -> None:
        self.total: torch.Tensor | None = None
        self.layers = 0

    def collect(self, module: Any, inputs: Any, output: Any) -> Any:
        """A forward hook of an attention module: adds its weights and lets them go."""
        mean = output[1].float().mean(1)
        self.total = mean if self.total is None else self.total + mean
        self.layers += 1
        return (output[0], None, *output[2:])

    @property
    def mean(self) -> torch.Tensor:
        """(B, W, W) float32: [b, u, t] is how much u looks at t; rows of real tokens sum to 1."""
        if self.total is None:
            raise InputError(
                "no attention weights come out of this model", "--method",
                "use a method that needs none, for example oar-p",
            )  # fmt: skip
        return self.total / self.layers


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
    model: PreTrainedModel, rows: Aligned
) -> tuple[torch.Tensor, Layers, torch.Tensor]:
    """A clean pass with its mean attention.

    Returns:
        Logits (B, len(rows.wanted), V), keys and values of each layer (none where the model's past
        isn't plain), and the mean attention (B, W, W) float32.

    Raises:
        InputError: the model's attention gives no weights out.
    """
    collector = MeanAttention()
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
    return logits, past, collector.mean
