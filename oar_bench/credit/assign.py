"""From a method's name and a batch to the weight of every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.controls import inverted, shuffled
from oar_bench.credit.methods import CreditBatch, importance
from oar_bench.credit.reshape import effective_share, reshape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Credit", "CreditBatch", "assign", "importance", "weight_metrics"]


@dataclass(frozen=True)
class Credit:
    """Importances and weights of a batch, each (B, S) float32."""

    importance: torch.Tensor
    weights: torch.Tensor


def assign(
    method: str,
    model: PreTrainedModel,
    batch: CreditBatch,
    settings: CreditSettings,
    pad_id: int,
    needed: torch.Tensor | None = None,
) -> Credit:
    """Token weights of a batch by a method's name.

    Args:
        method: `grpo` or `uniform` (all weights 1), an importance of `methods.IMPORTANCES`, or a
            control: `shuffled` and `inverted` rearrange the weights of `settings.control_of`.
        model: the policy that sampled the responses.
        batch: B responses padded to S tokens.
        settings: the recipe's credit section.
        pad_id: the token that replaces others in OAR-P.
        needed: (B,) bool; rows left out keep weight 1. A response with zero advantage needs no
            credit, and skipping it is exact.

    Returns:
        Importances and weights, (B, S) float32; weights are 1 outside the weighted tokens.
    """
    nothing = torch.zeros(batch.input_ids.shape, device=batch.input_ids.device)
    chosen = torch.arange(len(nothing), device=nothing.device)
    if needed is not None:
        chosen = chosen[needed]
    if method in ("grpo", "uniform") or not len(chosen):
        return Credit(nothing, torch.ones_like(nothing))
    part = batch.rows(chosen)
    source = settings.control_of if method in ("shuffled", "inverted") else method
    scores = importance(source, model, part, settings, pad_id)
    positions = part.weighted(settings)
    weights = reshape(
        scores, positions, q=settings.q, beta=settings.beta, floor=settings.floor,
        preserve_mass=settings.preserve_mass, released_quirks=settings.released_quirks,
    )  # fmt: skip
    if method == "shuffled":
        weights = shuffled(weights, positions, part.seeds)
    elif method == "inverted":
        weights = inverted(weights, positions)
    all_scores, all_weights = nothing.clone(), torch.ones_like(nothing)
    all_scores[chosen], all_weights[chosen] = scores, weights
    return Credit(all_scores, all_weights)


def weight_metrics(
    weights: torch.Tensor, batch: CreditBatch, settings: CreditSettings, needed: torch.Tensor
) -> dict[str, float]:
    """Mean, largest value and effective share of the weights (B, S) that a method could set.

    Rows outside `needed` (B,) bool aren't counted; all three are 1 where nothing could be set.
    """
    marked = batch.weighted(settings) & needed[:, None]
    if not bool(marked.any()):
        return {"weight_mean": 1.0, "weight_max": 1.0, "weight_ess": 1.0}
    rows = marked.any(1)
    return {
        "weight_mean": float(weights[marked].mean()),
        "weight_max": float(weights[marked].max()),
        "weight_ess": float(effective_share(weights, marked)[rows].mean()),
    }
