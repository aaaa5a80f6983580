"""Controls: weights that carry no credit. A gain they share is not credit assignment.

- `shuffled`: a method's own weights, permuted at random inside each response.
- `inverted`: the same weights in the reverse rank order; should hurt.
- `random`: weights reshaped from importances drawn at random, without any model (cheap.py).
"""

from __future__ import annotations

import torch

from oar_bench.credit.answer import longest
from oar_bench.keyed import uniform


def keyed_draws(positions: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """A uniform draw (B, S) for each marked token, keyed by row and by its number in the row."""
    most = longest(positions)
    draws = uniform(seeds, 0, most)
    return draws.gather(1, (positions.long().cumsum(1) - 1).clamp(min=0))


def shuffled(weights: torch.Tensor, positions: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """`weights` (B, S) with the values at `positions` (B, S) permuted inside each row.

    seeds: (B,) int64, the key of each row's permutation.

    >>> weights = torch.tensor([[1.0, 0.1, 0.2, 2.7]])
    >>> marked = torch.tensor([[False, True, True, True]])
    >>> moved = shuffled(weights, marked, torch.tensor([3]))
    >>> float(moved[0, 0]), bool((moved.sort().values == weights.sort().values).all())
    (1.0, True)
    """
    result, keys = weights.clone(), keyed_draws(positions, seeds)
    for row in range(len(weights)):
        chosen = positions[row]
        result[row, chosen] = weights[row, chosen][torch.argsort(keys[row, chosen])]
    return result


def inverted(weights: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """`weights` (B, S) with the rank order at `positions` reversed in each row.

    >>> inverted(torch.tensor([[0.5, 2.0, 1.0]]), torch.tensor([[True, True, True]])).tolist()
    [[2.0, 0.5, 1.0]]
    """
    result = weights.clone()
    for row in range(len(weights)):
        chosen = positions[row]
        values = weights[row, chosen]
        order = torch.argsort(values, stable=True)
        flipped = torch.empty_like(values)
        flipped[order] = values[order].flip(0)
        result[row, chosen] = flipped
    return result
