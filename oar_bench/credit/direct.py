"""OAR-D: near-exact OAR-P at a cost linear in length (method.md, section 2).

Replacing token t, OAR-P recomputes every later token. OAR-D recomputes t itself, the answer region
and the m later tokens through which t most reaches the answer, its mediators; every other token
keeps its clean keys and values. So a branch is 1 + m + C tokens, whatever the length.

    score of a mediator u of t = sum over layers l < k of a_l(u -> t) x a_k(answer -> u),

a_l being the clean pass's attention in layer l by its strongest head (attention.py);
`mediators="next"` takes the next m tokens instead. With every token between t and the answer as
mediator it is exact OAR-P.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oar_bench.credit.aligned import Aligned, aligned_chunks, has_plain_cache, prefix
from oar_bench.credit.answer import longest
from oar_bench.credit.attention import AnswerPaths, attended_pass
from oar_bench.credit.branches import Branching
from oar_bench.credit.memory import DEFAULT_MEMORY, Sizes, rows_within
from oar_bench.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def direct_importance(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    reasoning: torch.Tensor,
    *,
    replacement: int,
    mediator_count: int | None = 8,
    mediators: str = "attention",
    pfinal: str = "answer_mean",
    memory: int = DEFAULT_MEMORY,
) -> torch.Tensor:
    """Importance of each marked token by replacement with m mediators.

    Args:
        model, input_ids, attention_mask, positions, answer, replacement, pfinal, memory: as for
            `perturbation_importance`.
        reasoning: (B, S) bool, the reasoning; what follows it up to the answer's end is the answer
            region, which every branch recomputes.
        mediator_count: m; None takes all later tokens, which is exact OAR-P.
        mediators: how they are chosen, `attention` or `next`.

    Returns:
        (B, S) float32, >= 0, 0 outside `positions` and in rows without an answer.

    Raises:
        InputError: the model's past isn't one key and value a token, or its sliding window is
            shorter than the sequences.
    """
    if not has_plain_cache(model, model.config):
        raise InputError(
            "this model keeps a state instead of keys and values", "--method oar-d", "use oar-p"
        )
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    sequences = (input_ids, attention_mask, positions, answer, reasoning)
    for chosen, rows in aligned_chunks(model, *sequences, memory=memory, row_bytes=attended_bytes):
        _check_window(model, rows)
        found = _Direct(model, rows, pfinal, memory, mediator_count, mediators).importances(
            replacement
        )
        importance[chosen] = rows.spread(found, importance[chosen].shape)
    return importance


def attended_bytes(sizes: Sizes, width: int, answers: int) -> int:
    """Bytes of one row of a clean pass whose attention weights are made, a layer at a time."""
    return sizes.clean(width, answers) + (3 * sizes.heads * sizes.item + 16) * width * width


def _check_window(model: PreTrainedModel, rows: Aligned) -> None:
    config: Any = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    slides = kinds - {"full_attention"} or (not kinds and window)
    if slides and window and rows.width > window:
        raise InputError(
            f"the model's attention window of {window} tokens is shorter than a sequence of "
            f"{rows.width}", "--method oar-d", "use oar-p, which is exact with windows too",
        )  # fmt: skip


class _Direct(Branching):
    """Branches that feed chosen columns only, on the whole clean past."""

    def __init__(
        self, model: PreTrainedModel, rows: Aligned, pfinal: str, memory: int,
        mediator_count: int | None, mediators: str,
    ) -> None:  # fmt: skip
        by_attention = mediators == "attention" and mediator_count not in (None, 0)
        attended = attended_pass(model, rows, AnswerPaths) if by_attention else None
        super().__init__(
            model, model.config, rows, pfinal, memory, model.dtype,
            done=attended[:2] if attended else None,
        )  # fmt: skip
        self.paths = attended[2] if attended else None
        self.count = mediator_count

    def importances(self, replacement: int) -> torch.Tensor:
        """Importances (B, W) of the scored tokens."""
        rows = self.rows
        numbers, column = torch.nonzero(rows.scored, as_tuple=True)
        between = (rows.region[numbers] - column - 1).clamp(min=0)
        most = int(between.max())
        count = most if self.count is None else min(self.count, most)
        # Branches of like size go together: near the answer there are few mediators to choose.
        order = torch.argsort(between.clamp(max=count) * rows.width - column, stable=True)
        answers, found = rows.index.shape[1], torch.zeros(rows.ids.shape, device=column.device)
        tokens = 1 + count + rows.width - int(rows.region.min())
        few = rows_within(self.memory, self.sizes.branch(tokens, rows.width + tokens, answers))
        for part in order.split(few):
            fed = self._fed_columns(numbers[part], column[part], count)
            found[numbers[part], column[part]] = self._direct_pass(
                numbers[part], column[part], fed, replacement
            )
        return found

    def _fed_columns(self, numbers: torch.Tensor, start: torch.Tensor, count: int) -> torch.Tensor:
        """Which columns each branch recomputes, (N, W) bool: t, mediators, answer region."""
        rows = self.rows
        columns = torch.arange(rows.width, device=start.device)
        region = rows.region[numbers, None]
        between = (columns > start[:, None]) & (columns < region)
        if self.paths is not None:
            reaches = self.paths[numbers, :, start].masked_fill(~between, -1)
        else:  # the next ones: the nearer, the higher
            reaches = torch.where(between, float(rows.width) - columns, -1.0)
        chosen = torch.zeros_like(between)
        if count:
            best = reaches.topk(min(count, rows.width), dim=1)
            chosen.scatter_(1, best.indices, best.values >= 0)
        after = (columns >= region) & (columns > start[:, None])
        return chosen | after | (columns == start[:, None])

    def _direct_pass(
        self, numbers: torch.Tensor, start: torch.Tensor, fed: torch.Tensor, replacement: int
    ) -> torch.Tensor:
        """Scores (N,) of branches that feed the columns `fed` (N, W)."""
        rows, n = self.rows, longest(fed)
        # Fed columns moved to the right edge, so that the answer's are the last in every branch.
        order = torch.argsort(fed.int(), dim=1, stable=True)[:, rows.width - n :]
        real = fed.gather(1, order)
        ids = rows.ids[numbers].gather(1, order).masked_fill(order == start[:, None], replacement)
        columns = torch.arange(rows.width, device=start.device)
        query = order[:, :, None]
        clean = (columns < query) & (rows.mask[numbers].bool() & ~fed)[:, None, :]
        new = (order[:, None, :] <= query) & real[:, None, :]
        # Padding looks at itself: a row that looks at nothing would be NaN, and NaN spreads.
        itself = torch.eye(n, dtype=torch.bool, device=start.device) & ~real[:, :, None]
        allowed = torch.cat([clean & real[:, :, None], (new & real[:, :, None]) | itself], 2)
        later = rows.wanted
        slots = n - (rows.width - later)
        output: Any = self.model(
            input_ids=ids, attention_mask=_mask(allowed, self.model),
            position_ids=rows.where[numbers].gather(1, order),
            past_key_values=prefix(self.past, numbers, rows.width), use_cache=True,
            logits_to_keep=slots[slots >= 0],
        )  # fmt: skip
        return self.moved(numbers, start, output.logits, later[slots >= 0])


def _mask(allowed: torch.Tensor, model: Any) -> torch.Tensor:
    """A mask (N, 1, n, W + n) as the model's attention takes it ready-made."""
    if model.config._attn_implementation == "sdpa":
        return allowed[:, None]
    low = torch.finfo(model.dtype).min
    return torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device).masked_fill(
        ~allowed, low
    )[:, None]
