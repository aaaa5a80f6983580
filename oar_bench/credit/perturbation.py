"""OAR-P: a token matters as much as replacing it moves the answer (method.md, section 2).

    I_t = KL(p_clean || p_t),   p_t: the same statistic with token t replaced by the pad token

The replaced token keeps its position and stays visible to attention: the mask is carried over
from the clean sequence, never derived from ids.

One forward pass a token, two savings that change no number: what precedes t is the clean prefix,
so its keys and values are reused; and logits are computed at the probe's positions alone, so
memory is chunk x A x V. The batch is walked column by column of the right-aligned sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from oar_bench.credit.answer import divergence, padded_index, position_ids

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
    chunk_size: int = 64,
) -> torch.Tensor:
    """Importance of each marked token by counterfactual replacement.

    Args:
        model: any causal LM of transformers; used as it is, nothing written. Where its cache is
            not the plain one (sliding windows, states), whole sequences are run instead.
        input_ids: (B, S) int64.
        attention_mask: (B, S), 1 on real tokens.
        positions: (B, S) bool, the tokens to score. Those behind the answer score 0 (no forward
            pass is spent on them: attention is causal).
        answer: (B, S) bool, the answer's tokens; a row without any scores 0 throughout.
        replacement: id that takes a token's place, the pad token in the paper.
        pfinal: see `oar_bench.credit.answer.divergence`.
        chunk_size: responses in one forward pass (each with one token replaced).

    Returns:
        (B, S) float32, >= 0, 0 outside `positions`.
    """
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    answered = torch.nonzero(answer.any(1)).flatten()
    for rows in answered.split(chunk_size) if len(answered) else ():
        importance[rows] = _importance_of_rows(
            model, input_ids[rows], attention_mask[rows], positions[rows], answer[rows],
            replacement, pfinal,
        )  # fmt: skip
    return importance


def _importance_of_rows(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    replacement: int,
    pfinal: str,
) -> torch.Tensor:
    """Importances (B, S) of a chunk of rows that all state an answer."""
    place, mask = _right_aligned(attention_mask, answer)
    ids, scored, marks = (t.gather(1, place) for t in (input_ids, positions, answer))
    scored, marks = scored & mask.bool(), marks & mask.bool()
    index, real = padded_index(marks)
    answer_ids = ids.gather(1, index)
    # The last answer token predicts nothing of the answer: it is never fed.
    ids, mask, width = ids[:, :-1], mask[:, :-1], ids.shape[1] - 1
    where, wanted = position_ids(mask), torch.unique(index - 1)
    clean_output: Any = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=where,
        logits_to_keep=wanted,
        use_cache=True,
    )
    clean = _at(clean_output.logits, wanted, index - 1)
    cache = clean_output.past_key_values
    reusable = type(cache) is DynamicCache and all(type(x) is DynamicLayer for x in cache.layers)
    found = torch.zeros(place.shape, dtype=torch.float32, device=ids.device)
    for column in torch.nonzero(scored[:, :width].any(0)).flatten().tolist():
        rows = torch.nonzero(scored[:, column]).flatten()
        begin = column if reusable else 0
        fed = ids[rows, begin:].clone()
        fed[:, column - begin] = replacement
        later = wanted[wanted >= begin]
        output: Any = model(
            input_ids=fed, attention_mask=mask[rows], position_ids=where[rows, begin:],
            past_key_values=_prefix(cache, rows, begin) if begin else None,
            logits_to_keep=later - begin, use_cache=begin > 0,
        )  # fmt: skip
        # An answer position before the replaced token is untouched by it: its logits stay clean.
        before = (index[rows] - 1 < begin)[:, :, None]
        after = _at(output.logits, later, (index[rows] - 1).clamp(min=int(later[0])))
        moved = torch.where(before, clean[rows], after)
        score = divergence(pfinal, clean[rows], moved, answer_ids[rows], real[rows])
        # KL is >= 0 up to rounding (-1e-7 was seen), the joint score may really be negative.
        found[rows, column] = score.clamp(min=0)
    result = torch.zeros(input_ids.shape, dtype=torch.float32, device=ids.device)
    # Padding columns of `place` point at real tokens too: they add zeros.
    return result.scatter_add(1, place, found)


def _right_aligned(
    attention_mask: torch.Tensor, answer: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's real tokens up to its answer's end, moved to the right edge.

    Returns:
        Where the tokens of the aligned rows come from (B, W) int64, and their mask (B, W) int64.
        What follows the answer can't reach it, and so neither side of padding makes a difference.

    >>> place, mask = _right_aligned(
    ...     torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]),
    ...     torch.tensor([[False, False, True, False], [False, False, True, False]]))
    >>> place.tolist(), mask.tolist()
    ([[1, 1, 2], [0, 1, 2]], [[0, 1, 1], [1, 1, 1]])
    """
    length = answer.shape[1]
    column = torch.arange(length, device=answer.device)
    last = (column * answer).amax(1)
    kept = attention_mask.bool() & (column <= last[:, None])
    counts = kept.sum(1)
    width = int(counts.max())
    order = torch.argsort((~kept).int(), dim=1, stable=True)
    slot = torch.arange(width, device=answer.device) - (width - counts[:, None])
    return order.gather(1, slot.clamp(min=0)), (slot >= 0).long()


def _at(logits: torch.Tensor, columns: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Float32 logits (B, A, V) at the columns `wanted` (B, A) of logits kept for `columns`."""
    place = torch.searchsorted(columns, wanted)
    return logits.float().gather(1, place[:, :, None].expand(-1, -1, logits.shape[2]))


def _prefix(cache: DynamicCache, rows: torch.Tensor, length: int) -> DynamicCache:
    """A new cache with the first `length` keys and values of some rows of a clean one."""
    layers: list[Any] = cache.layers  # plain ones: checked before any is reused
    return DynamicCache(
        [(layer.keys[rows, :, :length], layer.values[rows, :, :length]) for layer in layers]
    )
