"""How well one importance stands in for another: ranks, top tokens, deletion and insertion curves.

Agreement is measured within a response, over its T scored tokens. Where either importance is the
same on all of them, no rank is defined: the result is NaN, to be counted and left out, never 0.

The curves ask the model itself. Deletion replaces the most important share of the tokens and
measures how far the answer moves; insertion replaces all of them, gives the most important share
back and measures how far the answer still is from the clean one. A good ranking moves the answer
far by deleting few tokens (high) and brings it back by restoring few (low).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from oar_bench.credit.aligned import aligned_chunks
from oar_bench.credit.branches import Branching
from oar_bench.credit.memory import DEFAULT_MEMORY

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of the tokens at which the curves are measured."""
TOP = 0.2


def mean_ranks(values: torch.Tensor) -> torch.Tensor:
    """Ranks (T,) float64 from 1, the lowest, of values (T,); equal values share their mean rank.

    >>> mean_ranks(torch.tensor([5.0, 1.0, 5.0, 7.0])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    _, level, counts = torch.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    ranks: torch.Tensor = (last - (counts - 1) / 2)[level]
    return ranks


def is_ranked(values: torch.Tensor) -> bool:
    """Whether values (T,) rank anything: two of them differ, and all are finite.

    >>> is_ranked(torch.tensor([1.0, 1.0])), is_ranked(torch.tensor([1.0, 2.0]))
    (False, True)
    """
    return bool(torch.isfinite(values).all()) and bool((values != values[:1]).any())


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    """Spearman's rank correlation of two importances (T,) of the same tokens, in [-1, 1].

    Pearson's correlation of the mean ranks (Spearman 1904; ties as in Kendall 1945). NaN where
    either ranks nothing.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))
    0.5
    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 4.0, 4.0]))
    nan
    """
    if not (is_ranked(a) and is_ranked(b)):
        return math.nan
    x, y = (ranks - ranks.mean() for ranks in (mean_ranks(a), mean_ranks(b)))
    return float((x @ y) / torch.sqrt((x @ x) * (y @ y)))


def top_count(share: float, count: int) -> int:
    """How many tokens the given share of `count` is, rounded up.

    >>> top_count(0.2, 5), top_count(0.2, 6), top_count(0.0, 6)
    (1, 2, 0)
    """
    return math.ceil(share * count - 1e-9)


def by_importance(scores: torch.Tensor) -> torch.Tensor:
    """Token numbers (..., T) from the most important on; of equal ones the earlier comes first.

    >>> by_importance(torch.tensor([0.5, 2.0, 0.5, 3.0])).tolist()
    [3, 1, 0, 2]
    """
    return torch.argsort(-scores, dim=-1, stable=True)


def top_overlap(exact: torch.Tensor, other: torch.Tensor, share: float = TOP) -> float:
    """Share of the top ceil(share x T) tokens of `exact` (T,) that are in the top of `other` (T,).

    Of equal tokens the earlier counts as the more important. Two unrelated rankings overlap by
    about `share`. NaN where either ranks nothing.

    >>> exact = torch.tensor([9.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0])
    >>> top_overlap(exact, torch.tensor([9.0, 0.0, 8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    0.5
    """
    if not (is_ranked(exact) and is_ranked(other)):
        return math.nan
    few = top_count(share, len(exact))
    tops = [set(by_importance(scores)[:few].tolist()) for scores in (exact, other)]
    return len(tops[0] & tops[1]) / few


def aopc(curve: Sequence[float]) -> float:
    """Area over the perturbation curve: the mean of its points (Samek et al. 2017, equation 12).

    >>> aopc([0.0, 1.0, 2.0])
    1.0
    """
    return sum(curve) / len(curve)


@torch.no_grad()
def answer_curves(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    scores: torch.Tensor,
    *,
    replacement: int,
    shares: Sequence[float] = SHARES,
    pfinal: str = "answer_mean",
    memory: int = DEFAULT_MEMORY,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Deletion and insertion curves of an importance.

    Args:
        model, input_ids, attention_mask, positions, answer, replacement, pfinal, memory: as for
            `oar_bench.credit.perturbation.perturbation_importance`.
        scores: (B, S) float32, the importance that orders the marked tokens; of equal ones the
            earlier comes first.
        shares: K shares in [0, 1] of a row's marked tokens, each rounded up to whole tokens.

    Returns:
        Deletion and insertion, each (B, K) float32: the divergence from the clean answer, in nats
        (for `answer_joint` the fall of the log-probability), with the top share replaced, and with
        all but the top share replaced. NaN in rows without an answer or marked tokens.
    """
    found = torch.full((len(input_ids), 2, len(shares)), math.nan, device=input_ids.device)
    sequences = (input_ids, attention_mask, positions, answer)
    for chosen, rows in aligned_chunks(model, *sequences, memory=memory):
        branching = Branching(model, model.config, rows, pfinal, memory, model.dtype)
        values = scores[chosen].gather(1, rows.place).masked_fill(~rows.scored, -torch.inf)
        order = by_importance(values)
        # The place of each column in its row's order, from 0.
        place = torch.argsort(order, dim=1)
        counts = rows.scored.sum(1).tolist()
        few = torch.tensor(
            [[top_count(share, count) for share in shares] for count in counts],
            device=place.device,
        )
        top = place[:, None, :] < few[:, :, None]
        marked = torch.stack([top, ~top], 1) & rows.scored[:, None, None, :]
        numbers = torch.arange(len(chosen), device=place.device)
        moved = branching.replaced(
            numbers.repeat_interleave(2 * len(shares)), marked.flatten(0, 2), replacement
        )
        found[chosen] = moved.view(len(chosen), 2, len(shares))
    return found[:, 0], found[:, 1]
