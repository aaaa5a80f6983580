"""From a method's name and a batch to the weight of every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.controls import inverted, random_importance, shuffled
from oar_bench.credit.gradient import gradient_importance
from oar_bench.credit.perturbation import perturbation_importance
from oar_bench.credit.probe import Probe
from oar_bench.credit.reshape import effective_share, reshape

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class CreditBatch:
    """What credit needs to know of B responses padded to S tokens."""

    input_ids: torch.Tensor
    """(B, S) int64"""
    attention_mask: torch.Tensor
    """(B, S), 1 on real tokens"""
    response_mask: torch.Tensor
    """(B, S) bool, the sampled tokens"""
    probe: Probe
    seeds: torch.Tensor
    """(B,) int64, the key of each response's own randomness"""

    def rows(self, chosen: torch.Tensor) -> CreditBatch:
        """The responses at the given row numbers."""
        p = self.probe
        return CreditBatch(
            self.input_ids[chosen], self.attention_mask[chosen], self.response_mask[chosen],
            Probe(p.reasoning[chosen], p.answer[chosen], p.found[chosen]), self.seeds[chosen],
        )  # fmt: skip


@dataclass(frozen=True)
class Credit:
    """Importances and weights of a batch, each (B, S) float32."""

    importance: torch.Tensor
    weights: torch.Tensor


def weighted_positions(batch: CreditBatch, settings: CreditSettings) -> torch.Tensor:
    """The tokens whose weight may differ from 1, (B, S) bool: none where no answer was found."""
    inside = batch.probe.reasoning if settings.scope == "reasoning" else batch.response_mask
    return inside & batch.probe.found[:, None]


def importance(
    method: str, model: PreTrainedModel, batch: CreditBatch, settings: CreditSettings, pad_id: int
) -> torch.Tensor:
    """Importance (B, S) of the weighted tokens by `oar-p`, `oar-g` or `random`."""
    positions = weighted_positions(batch, settings)
    sequences = (batch.input_ids, batch.attention_mask, positions, batch.probe.answer)
    if method == "oar-p":
        return perturbation_importance(
            model, *sequences, replacement=pad_id,
            pfinal=settings.pfinal, chunk_size=settings.chunk_size,
        )  # fmt: skip
    if method == "oar-g":
        return gradient_importance(
            model, *sequences, batch.seeds, sigma=settings.sigma,
            sigma_scale=settings.sigma_scale, noise_draws=settings.noise_draws,
            pfinal=settings.pfinal, chunk_size=settings.chunk_size,
        )  # fmt: skip
    if method == "random":
        return random_importance(positions, batch.seeds)
    raise ValueError(f"no importance is called {method!r}")


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
        method: `grpo` or `uniform` (all weights 1), `oar-p`, `oar-g`, or a control: `shuffled`
            and `inverted` rearrange the weights of `settings.control_of`, `random` has its own.
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
    if method in ("grpo", "uniform"):
        return Credit(nothing, torch.ones_like(nothing))
    chosen = torch.arange(len(nothing), device=nothing.device)
    if needed is not None:
        chosen = chosen[needed]
    part = batch.rows(chosen)
    source = settings.control_of if method in ("shuffled", "inverted") else method
    scores = importance(source, model, part, settings, pad_id)
    positions = weighted_positions(part, settings)
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
    marked = weighted_positions(batch, settings) & needed[:, None]
    if not bool(marked.any()):
        return {"weight_mean": 1.0, "weight_max": 1.0, "weight_ess": 1.0}
    rows = marked.any(1)
    return {
        "weight_mean": float(weights[marked].mean()),
        "weight_max": float(weights[marked].max()),
        "weight_ess": float(effective_share(weights, marked)[rows].mean()),
    }
