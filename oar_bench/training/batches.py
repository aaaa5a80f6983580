"""Micro-batches by a budget of tokens: rows of like length together, with little padding."""

from __future__ import annotations

import torch


def micro_batches(
    rows: torch.Tensor, lengths: torch.Tensor, *, most_rows: int, most_tokens: int | None = None
) -> list[torch.Tensor]:
    """Split rows into micro-batches, longest first, so that memory shows at once.

    Args:
        rows: (N,) int64, row numbers of a batch, in any order.
        lengths: (B,) int64, tokens of each row of that batch.
        most_rows: rows of a micro-batch at most.
        most_tokens: its rows x its longest row at most; a row longer than that goes alone.

    Returns:
        Row numbers of each micro-batch; each of `rows` in exactly one of them.

    >>> lengths = torch.tensor([10, 3, 9, 4, 3])
    >>> [part.tolist() for part in micro_batches(torch.arange(5), lengths, most_rows=3,
    ...                                          most_tokens=20)]
    [[0, 2], [3, 1, 4]]
    """
    ordered = rows[torch.sort(lengths[rows], descending=True, stable=True).indices]
    parts: list[torch.Tensor] = []
    start = 0
    while start < len(ordered):
        longest = max(1, int(lengths[ordered[start]]))
        room = most_rows if most_tokens is None else min(most_rows, most_tokens // longest)
        end = start + max(1, room)
        parts.append(ordered[start:end])
        start = end
    return parts


def filled_columns(attention_mask: torch.Tensor) -> slice:
    """The columns of (B, S) rows in which any row has a token, as one slice.

    >>> filled_columns(torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]]))
    slice(1, 4, None)
    """
    filled = torch.nonzero(attention_mask.any(0)).flatten()
    if not len(filled):
        return slice(0, 0)
    return slice(int(filled[0]), int(filled[-1]) + 1)
