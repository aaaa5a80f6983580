"""OAR-P at a part of its cost: spans, a sample of positions, preselection by a gradient.

Each is exact where it looks and guesses elsewhere; their agreement with exact OAR-P is measured by
`oar-bench credit fidelity`, never assumed.

- span: neighbours are replaced together (`perturbation_importance` with span > 1);
- sample: a keyed random share of the tokens is scored, the others by interpolation;
- preselect: `oar-gp` ranks all tokens, the share that it ranks highest is scored exactly; the
  others keep the gradient's order below them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from oar_bench.credit.controls import keyed_draws

Exact = Callable[[torch.Tensor], torch.Tensor]
"""Exact importances (B, S) of the tokens marked in a mask (B, S), 0 elsewhere."""


def share_of(keys: torch.Tensor, positions: torch.Tensor, share: float) -> torch.Tensor:
    """The ceil(share x T) of each row's T marked tokens with the highest keys, (B, S) bool.

    >>> share_of(torch.tensor([[9.0, 3.0, 1.0, 2.0]]),
    ...          torch.tensor([[False, True, True, True]]), 0.5).int().tolist()
    [[0, 1, 0, 1]]
    """
    count = torch.ceil(positions.sum(1) * share - 1e-9).long()
    ranked = keys.double().masked_fill(~positions, -torch.inf)
    rank = torch.argsort(torch.argsort(-ranked, dim=1, stable=True), dim=1, stable=True)
    return (rank < count[:, None]) & positions


def sampled_importance(
    exact: Exact, positions: torch.Tensor, seeds: torch.Tensor, share: float
) -> torch.Tensor:
    """Exact importance of a random share of each row's tokens, interpolated between them.

    Args:
        exact: scores the chosen tokens.
        positions: (B, S) bool, the tokens to score.
        seeds: (B,) int64, the key of each row's choice.
        share: in (0, 1], of the tokens that are scored.

    Returns:
        (B, S) float32; beyond the outermost scored tokens their score is held.

    >>> exact = lambda mask: mask * torch.tensor([[0.0, 4.0, 0.0, 8.0]])
    >>> sampled_importance(exact, torch.ones(1, 4).bool(), torch.tensor([1]), 1.0).tolist()
    [[0.0, 4.0, 0.0, 8.0]]
    """
    chosen = share_of(keyed_draws(positions, seeds), positions, share)
    scores = exact(chosen)
    result = scores.clone()
    for row in torch.nonzero(chosen.any(1)).flatten().tolist():
        marked = torch.nonzero(positions[row]).flatten()
        known = torch.nonzero(chosen[row, marked]).flatten()
        result[row, marked] = _interpolated(scores[row, marked], known)
    return result * positions


def _interpolated(scores: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Scores (T,) with those not at `known` (K,) on straight lines between the ones that are."""
    place = torch.arange(len(scores), device=scores.device)
    right = torch.searchsorted(known, place).clamp(max=len(known) - 1)
    left = (torch.searchsorted(known, place, right=True) - 1).clamp(min=0)
    gap = (known[right] - known[left]).clamp(min=1)
    part = ((place - known[left]).float() / gap).clamp(0, 1)
    return scores[known[left]] * (1 - part) + scores[known[right]] * part


def preselected_importance(
    exact: Exact, gradient: torch.Tensor, positions: torch.Tensor, share: float
) -> torch.Tensor:
    """Exact importance of the share of tokens that a gradient ranks highest.

    Args:
        exact: scores the chosen tokens.
        gradient: (B, S) float32 >= 0, the ranking score.
        positions: (B, S) bool, the tokens to score.
        share: in (0, 1], of the tokens that are scored.

    Returns:
        (B, S) float32; the tokens left out keep the gradient's order, scaled below the least
        exact score of their row.

    >>> exact = lambda mask: mask * torch.tensor([[0.5, 4.0, 0.0, 2.0]])
    >>> gradient = torch.tensor([[0.1, 0.9, 0.2, 0.8]])
    >>> preselected_importance(exact, gradient, torch.ones(1, 4).bool(), 0.5).tolist()
    [[1.0, 4.0, 2.0, 2.0]]
    """
    chosen = share_of(gradient, positions, share)
    scores = exact(chosen)
    rest = gradient * (positions & ~chosen)
    least = scores.masked_fill(~chosen, torch.inf).amin(1, keepdim=True)
    most = rest.amax(1, keepdim=True)
    scale = torch.where((most > 0) & torch.isfinite(least), least / most.clamp(min=1e-30), 0.0)
    return scores + rest * scale
