"""The model's answer as a distribution, and how far a perturbation moves it (method.md, `pfinal`).

Logits are computed only at the positions that predict answer tokens, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def position_ids(attention_mask: torch.Tensor) -> torch.Tensor:
    """Positions (B, S) counted over real tokens, so that padding on either side is the same.

    >>> position_ids(torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])).tolist()
    [[0, 0, 0, 1], [0, 1, 1, 1]]
    """
    return (attention_mask.long().cumsum(1) - 1).clamp(min=0)


def longest(mask: torch.Tensor) -> int:
    """Most True entries in a row of a mask (B, S), at least 1: the width that holds them all."""
    counts: list[int] = mask.sum(1).tolist()
    return max([1, *counts])


def padded_index(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions of the True entries of each row, padded: index (B, A) and which are real (B, A).

    >>> index, real = padded_index(torch.tensor([[0, 1, 1], [0, 0, 1]]).bool())
    >>> index.tolist(), real.tolist()
    ([[1, 2], [2, 2]], [[True, True], [True, False]])
    """
    counts = mask.sum(1)
    width = longest(mask)
    # A stable sort brings the True entries to the front, in order.
    order = torch.argsort((~mask).int(), dim=1, stable=True)[:, :width]
    real = torch.arange(width, device=mask.device)[None, :] < counts[:, None]
    last = order.gather(1, (counts.clamp(min=1) - 1)[:, None])
    return torch.where(real, order, last), real


def answer_logits(
    model: PreTrainedModel,
    attention_mask: torch.Tensor,
    index: torch.Tensor,
    *,
    input_ids: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
) -> torch.Tensor:
    """Float32 logits (B, A, V) that predict the tokens at `index` (B, A), each position >= 1."""
    wanted, place = torch.unique(index - 1, return_inverse=True)
    output: Any = model(
        input_ids=input_ids, inputs_embeds=inputs_embeds, attention_mask=attention_mask,
        position_ids=position_ids(attention_mask), logits_to_keep=wanted, use_cache=False,
    )  # fmt: skip
    logits: torch.Tensor = output.logits.float()
    return logits.gather(1, place[:, :, None].expand(-1, -1, logits.shape[2]))


def _kl(clean: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(clean || other) over the last axis, from log-probabilities."""
    return (clean.exp() * (clean - other)).sum(-1)


def _last(clean: Tensor, other: Tensor, ids: Tensor, real: Tensor) -> torch.Tensor:
    return _kl(log_softmax(clean[:, 0], -1), log_softmax(other[:, 0], -1))


def _answer_mean(clean: Tensor, other: Tensor, ids: Tensor, real: Tensor) -> torch.Tensor:
    share = real[:, :, None].float() / real.sum(1)[:, None, None].clamp(min=1)
    return _kl(log_softmax((clean * share).sum(1), -1), log_softmax((other * share).sum(1), -1))


def _answer_kl(clean: Tensor, other: Tensor, ids: Tensor, real: Tensor) -> torch.Tensor:
    return (_kl(log_softmax(clean, -1), log_softmax(other, -1)) * real).sum(1)


def _answer_joint(clean: Tensor, other: Tensor, ids: Tensor, real: Tensor) -> torch.Tensor:
    gap = log_softmax(clean, -1) - log_softmax(other, -1)
    of_answer = gap.gather(2, ids[:, :, None].expand(gap.shape[0], -1, -1))[:, :, 0]
    return (of_answer * real).sum(1) / real.sum(1).clamp(min=1)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "last": _last,
    "answer_mean": _answer_mean,
    "answer_kl": _answer_kl,
    "answer_joint": _answer_joint,
}


def divergence(
    pfinal: str,
    clean: torch.Tensor,
    other: torch.Tensor,
    answer_ids: torch.Tensor,
    real: torch.Tensor,
) -> torch.Tensor:
    """How far `other` moved the answer from `clean`, one number a row (may be negative for joint).

    Args:
        pfinal: `last` (first answer token), `answer_mean` (softmax of the mean logits),
            `answer_kl` (sum of per-position KLs: the KL of the answer string's distribution by
            the chain rule) or `answer_joint` (fall of the answer's mean log-probability).
        clean, other: logits (B or 1, A, V) and (B, A, V) float32.
        answer_ids: (B or 1, A) int64, the answer's tokens.
        real: (B or 1, A) bool, False on padding.

    Returns:
        (B,) float32.

    >>> clean = torch.tensor([[[0.0, 0.0]]])
    >>> other = torch.tensor([[[1.0, 0.0]]])
    >>> ids, real = torch.tensor([[1]]), torch.tensor([[True]])
    >>> round(float(divergence("last", clean, other, ids, real)), 4)  # ln(1+e) - 1/2 - ln 2
    0.1201
    >>> round(float(divergence("answer_joint", clean, other, ids, real)), 4)  # ln(1+e) - ln 2
    0.6201
    """
    return DIVERGENCES[pfinal](clean, other, answer_ids, real)
