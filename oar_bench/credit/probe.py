"""The answer probe: where a response reasons and where it states its answer (method.md, 2).

A response is split by token positions, never by re-tokenising text:

    prompt | reasoning | answer prefix | answer | rest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenSpans:
    """Token numbers within a response: reasoning is [0, reasoning_end), answer [start, end)."""

    reasoning_end: int
    answer_start: int
    answer_end: int


@dataclass(frozen=True)
class Probe:
    """Masks of a batch, each (B, S) bool; `found` (B,) bool says which responses state an answer.

    Rows without an answer have both masks empty.
    """

    reasoning: torch.Tensor
    answer: torch.Tensor
    found: torch.Tensor


def token_pieces(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """The text that each token adds to the decoded response; joined they give that text.

    Tokens are decoded behind their left neighbours, since a token's text depends on them (a
    leading space, a part of a character). A special token adds nothing; of a character that spans
    several tokens the last one adds it.
    """

    def text(start: int, end: int) -> str:
        return str(tokenizer.decode(list(ids[start:end]), skip_special_tokens=True))

    pieces: list[str] = []
    # ids[anchor:shown] are the neighbours of what comes next; their text is out already.
    anchor = shown = 0
    for end in range(1, len(ids) + 1):
        before, after = text(anchor, shown), text(anchor, end)
        if len(after) > len(before) and not after.endswith("\ufffd"):
            pieces.append(after[len(before) :])
            anchor, shown = shown, end
        else:
            pieces.append("")
    if shown < len(ids):  # a character that never became whole
        pieces[-1] += text(anchor, len(ids))[len(text(anchor, shown)) :]
    return pieces


def locate(pieces: Sequence[str], mark_start: int, start: int, end: int) -> TokenSpans | None:
    """From characters to tokens: an answer at text[start:end] whose mark begins at `mark_start`.

    A token that holds characters of two parts belongs to the later one, so that a token with a
    part of the answer in it is never perturbed as reasoning. None when no token holds the answer.

    >>> locate(["3 + 4", " = 7 ;", " ####", " 7"], mark_start=12, start=17, end=18)
    TokenSpans(reasoning_end=2, answer_start=3, answer_end=4)
    """
    ends: list[int] = []
    total = 0
    for piece in pieces:
        total += len(piece)
        ends.append(total)
    starts = [0, *ends[:-1]]
    inside = [i for i in range(len(pieces)) if ends[i] > start and starts[i] < end and pieces[i]]
    if not inside:
        return None
    before_mark = [i for i in range(len(pieces)) if ends[i] <= mark_start]
    reasoning_end = min(len(before_mark), inside[0])
    return TokenSpans(reasoning_end, inside[0], inside[-1] + 1)


def build_probe(response_mask: torch.Tensor, spans: Sequence[TokenSpans | None]) -> Probe:
    """Masks over the padded batch from each response's token spans.

    Args:
        response_mask: (B, S) bool, the sampled tokens.
        spans: B spans, numbered from each response's first token; None where no answer is.

    >>> probe = build_probe(torch.tensor([[0, 1, 1, 1, 1]]).bool(), [TokenSpans(2, 3, 4)])
    >>> probe.reasoning.int().tolist(), probe.answer.int().tolist()
    ([[0, 1, 1, 0, 0]], [[0, 0, 0, 0, 1]])
    """
    # Number of each response token within its response, -1 elsewhere.
    number = torch.where(response_mask, response_mask.long().cumsum(1) - 1, -1)
    device = response_mask.device

    def column(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)[:, None]

    reasoning_end = column([s.reasoning_end if s else 0 for s in spans])
    start = column([s.answer_start if s else 0 for s in spans])
    end = column([s.answer_end if s else 0 for s in spans])
    return Probe(
        reasoning=(number >= 0) & (number < reasoning_end),
        answer=(number >= start) & (number < end),
        found=torch.tensor([s is not None for s in spans], dtype=torch.bool, device=device),
    )
