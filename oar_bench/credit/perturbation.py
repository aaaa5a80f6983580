"""OAR-P: a token matters as much as replacing it moves the answer (method.md, section 2).

    I_t = KL(p_clean || p_t),   p_t: the same statistic with token t replaced by the pad token

The replaced token keeps its position and stays visible to attention: the mask is carried over
from the clean sequence, never derived from ids. How it is computed: branches.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oar_bench.credit.aligned import aligned_chunks
from oar_bench.credit.branches import Branching
from oar_bench.credit.memory import DEFAULT_MEMORY

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def perturbation_importance(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    *,
    replacement: int,
    pfinal: str = "answer_mean",
    memory: int = DEFAULT_MEMORY,
    span: int = 1,
) -> torch.Tensor:
    """Importance of each marked token by counterfactual replacement.

    Args:
        model: any causal LM of transformers; used as it is, nothing written. Where its past isn't
            one key and value a token (state-space layers), whole sequences are run instead.
        input_ids: (B, S) int64.
        attention_mask: (B, S), 1 on real tokens.
        positions: (B, S) bool, the tokens to score. Those behind the answer score 0 (no forward
            pass is spent on them: attention is causal).
        answer: (B, S) bool, the answer's tokens; a row without any scores 0 throughout.
        replacement: id that takes a token's place, the pad token in the paper.
        pfinal: see `oar_bench.credit.answer.divergence`.
        memory: bytes that one forward pass may take over the model's own.
        span: this many neighbouring tokens are replaced together and share what they moved; 1 is
            OAR-P, more an approximation at 1 / span of its cost.

    Returns:
        (B, S) float32, >= 0, 0 outside `positions`.
    """
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    for chosen, rows in aligned_chunks(
        model, input_ids, attention_mask, positions, answer, memory=memory
    ):
        branching = Branching(model, model.config, rows, pfinal, memory, model.dtype)
        numbers, column = torch.nonzero(rows.scored, as_tuple=True)
        # Number of each scored token within its row, and the first of its span.
        number = rows.scored.long().cumsum(1)[numbers, column] - 1
        first = number % span == 0
        last = torch.zeros_like(first)
        last[:-1], last[-1:] = first[1:], True
        scores = branching.scores(numbers[first], column[first], column[last] + 1, replacement)
        owner = first.long().cumsum(0) - 1
        size = torch.bincount(owner)
        found = torch.zeros(rows.ids.shape, device=scores.device)
        found[numbers, column] = (scores / size)[owner]
        importance[chosen] = rows.spread(found, importance[chosen].shape)
    return importance
