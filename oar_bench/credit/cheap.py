"""Importances that cost at most one forward pass: what any credit assignment has to beat.

- `entropy`: the policy's entropy where the token was sampled, the usual cheap alternative.
- `attention`: how much the answer looks at the token, averaged over layers and heads.
- `position`: the token's number; no model at all.
- `random`: drawn by key; no model at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oar_bench.credit.aligned import aligned_chunks, at
from oar_bench.credit.answer import position_ids
from oar_bench.credit.attention import MeanAttention, attended_pass
from oar_bench.credit.controls import keyed_draws
from oar_bench.credit.direct import attended_bytes
from oar_bench.credit.memory import DEFAULT_MEMORY, Sizes, rows_within

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def entropy_importance(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    *,
    memory: int = DEFAULT_MEMORY,
) -> torch.Tensor:
    """Entropy in nats of the distribution that each marked token was sampled from.

    Args:
        model: any causal LM of transformers.
        input_ids, attention_mask, positions: (B, S), as for `perturbation_importance`.
        memory: bytes that one pass may take over the model's own.

    Returns:
        (B, S) float32, 0 outside `positions`.
    """
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    wanted = torch.nonzero(positions.any(1)).flatten()
    columns = torch.nonzero(positions.any(0)).flatten()
    # What predicts a token is the real token before it: padding may stand between the two.
    place = torch.arange(input_ids.shape[1], device=input_ids.device)
    last = (place * (attention_mask > 0)).cummax(1).values
    before = last.roll(1, 1)[:, columns]
    sizes = Sizes.of(model.config, model.dtype)
    width = input_ids.shape[1]
    few = rows_within(memory, sizes.branch(width, width, len(columns)))
    for chosen in wanted.split(few) if len(wanted) else ():
        marked = positions[chosen][:, columns]
        kept = torch.unique(before[chosen][marked])
        output: Any = model(
            input_ids=input_ids[chosen], attention_mask=attention_mask[chosen],
            position_ids=position_ids(attention_mask[chosen]), logits_to_keep=kept, use_cache=False,
        )  # fmt: skip
        logp = at(output.logits, kept, before[chosen].where(marked, kept[0])).log_softmax(-1)
        importance[chosen[:, None], columns] = -(logp.exp() * logp).sum(-1)
    return importance * positions


@torch.no_grad()
def attention_importance(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    *,
    memory: int = DEFAULT_MEMORY,
) -> torch.Tensor:
    """Attention that the positions predicting the answer pay to each marked token.

    Args:
        model, input_ids, attention_mask, positions, answer, memory: as for
            `perturbation_importance`.

    Returns:
        (B, S) float32 in [0, 1], the mean over answer tokens, layers and heads; 0 outside
        `positions` and in rows without an answer.

    Raises:
        InputError: the model's attention gives no weights out.
    """
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    sequences = (input_ids, attention_mask, positions, answer)
    for chosen, rows in aligned_chunks(model, *sequences, memory=memory, row_bytes=attended_bytes):
        _, _, mean = attended_pass(model, rows, MeanAttention)
        found = rows.answer_attention(mean)
        importance[chosen] = rows.spread(found, importance[chosen].shape)
    return importance


def position_importance(positions: torch.Tensor) -> torch.Tensor:
    """Number of each marked token among those of its row, from 1: later counts for more.

    (B, S) bool -> (B, S) float32.

    >>> position_importance(torch.tensor([[False, True, True, False, True]])).tolist()
    [[0.0, 1.0, 2.0, 0.0, 3.0]]
    """
    return (positions.long().cumsum(1) * positions).float()


def random_importance(positions: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Uniform importances (B, S) in (0, 1) at `positions`, 0 elsewhere, float32."""
    return keyed_draws(positions, seeds).float() * positions
