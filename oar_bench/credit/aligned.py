"""Responses moved to a common right edge, and what their clean prefixes' keys and values are.

Perturbing a token changes nothing before it and nothing behind the answer matters. So rows are cut
at their answer's end and aligned there: a branch that begins at column c holds the same number of
tokens in every row, and neither side of padding makes a difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from oar_bench.credit.answer import padded_index, position_ids
from oar_bench.credit.memory import Sizes, rows_within

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Layers whose cache is one key and one value a token: any prefix of them is the prefix's own.
PLAIN_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values (B, heads, W, head size) of each layer."""


@dataclass(frozen=True)
class Aligned:
    """B rows that all state an answer, W fed tokens each; column W - 1 predicts the last one's."""

    place: torch.Tensor
    """(B, W) int64, the column of the original batch that each token comes from"""
    ids: torch.Tensor
    """(B, W) int64"""
    mask: torch.Tensor
    """(B, W) int64, 1 on real tokens"""
    where: torch.Tensor
    """(B, W) int64, position ids"""
    scored: torch.Tensor
    """(B, W) bool, the tokens whose importance is wanted"""
    region: torch.Tensor
    """(B,) int64, first column of the answer region: answer prefix, answer, what predicts it"""
    index: torch.Tensor
    """(B, A) int64, columns that predict the answer's tokens, padded with the last"""
    real: torch.Tensor
    """(B, A) bool, False on padding"""
    answer_ids: torch.Tensor
    """(B, A) int64"""

    @property
    def width(self) -> int:
        """W"""
        return int(self.ids.shape[1])

    @property
    def wanted(self) -> torch.Tensor:
        """Columns at which some row's logits are needed, ascending."""
        columns: torch.Tensor = torch.unique(self.index)
        return columns

    def answer_attention(self, attention: torch.Tensor) -> torch.Tensor:
        """What the columns that predict the answer pay of an attention (B, W, W): mean (B, W)."""
        share = self.real.float() / self.real.sum(1, keepdim=True)
        index = self.index[:, :, None].expand(-1, -1, self.width)
        return (attention.gather(1, index) * share[:, :, None]).sum(1)

    def spread(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Values (B, W) of the aligned tokens at their places in the original batch (B, S)."""
        # Padding columns of `place` point at real tokens too: they add zeros.
        result = torch.zeros(shape, dtype=torch.float32, device=values.device)
        return result.scatter_add(1, self.place, values.float() * self.scored)


def align(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    reasoning: torch.Tensor | None = None,
) -> Aligned:
    """Move each row's tokens up to its answer's end to the right edge.

    Args:
        input_ids: (B, S) int64. attention_mask: (B, S).
        positions: (B, S) bool, tokens to score; those that nothing of the answer follows drop out.
        answer: (B, S) bool, some True in every row.
        reasoning: (B, S) bool, which tokens are reasoning; by default the scored ones are.

    >>> rows = align(
    ...     torch.tensor([[0, 5, 6, 7], [8, 9, 3, 0]]), torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]),
    ...     torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0]]).bool(),
    ...     torch.tensor([[0, 0, 1, 0], [0, 0, 1, 0]]).bool())
    >>> rows.ids.tolist(), rows.mask.tolist(), rows.answer_ids.tolist()
    ([[5, 5], [8, 9]], [[0, 1], [1, 1]], [[6], [3]])
    """
    column = torch.arange(answer.shape[1], device=answer.device)
    last = (column * answer).amax(1)
    kept = attention_mask.bool() & (column <= last[:, None])
    counts = kept.sum(1)
    width = int(counts.max())
    order = torch.argsort((~kept).int(), dim=1, stable=True)
    slot = torch.arange(width, device=answer.device) - (width - counts[:, None])
    place, inside = order.gather(1, slot.clamp(min=0)), slot >= 0
    ids, scored, marks = (t.gather(1, place) for t in (input_ids, positions & kept, answer))
    thinks = scored if reasoning is None else reasoning.gather(1, place)
    index, real = padded_index(marks & inside)
    columns = torch.arange(width, device=answer.device)
    after = torch.where(thinks & inside, columns + 1, 0).amax(1)
    predicts = index[:, 0] - 1
    region = torch.where(after > 0, torch.minimum(after, predicts), predicts)
    mask = inside.long()
    # The last answer token predicts nothing of the answer: it is never fed.
    return Aligned(
        place=place[:, :-1], ids=ids[:, :-1], mask=mask[:, :-1], where=position_ids(mask[:, :-1]),
        scored=(scored & inside)[:, :-1], region=region, index=index - 1,
        real=real, answer_ids=ids.gather(1, index),
    )  # fmt: skip


def aligned_chunks(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    reasoning: torch.Tensor | None = None,
    *,
    memory: int,
    row_bytes: Callable[[Sizes, int, int], int] = Sizes.clean,
) -> Iterator[tuple[torch.Tensor, Aligned]]:
    """The rows that state an answer and have a token to score, aligned, within the memory budget.

    Rows of like length go together. `row_bytes(sizes, width, answers)` estimates one row's need.
    """
    wanted = torch.nonzero(answer.any(1) & positions.any(1)).flatten()
    if not len(wanted):
        return
    lengths = attention_mask[wanted].sum(1)
    wanted = wanted[torch.argsort(lengths, stable=True)]
    sizes = Sizes.of(model.config, model.dtype)
    answers = int(answer.sum(1).max())
    few = rows_within(memory, row_bytes(sizes, int(lengths.max()), answers))
    for chosen in wanted.split(few):
        thinks = None if reasoning is None else reasoning[chosen]
        yield (
            chosen,
            align(
                input_ids[chosen], attention_mask[chosen], positions[chosen], answer[chosen], thinks
            ),
        )


class PrefixLayer(DynamicLayer):
    """A layer's cache that begins with part of a clean one and forgets what is added to it.

    The copy for one layer lives while that layer runs: memory is one layer's, not the model's.
    """

    def __init__(self, clean: tuple[torch.Tensor, torch.Tensor], rows: Any, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.clean, self.rows, self.length = clean, rows, length
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Clean keys and values of the prefix, followed by the new ones."""
        keys, values = (part[:, :, : self.length] for part in self.clean)
        if isinstance(self.rows, int):  # many branches of one response: no copy of its own
            only = slice(self.rows, self.rows + 1)
            keys = keys[only].expand(len(key_states), -1, -1, -1)
            values = values[only].expand(len(key_states), -1, -1, -1)
        else:
            keys, values = keys[self.rows], values[self.rows]
        return torch.cat([keys, key_states], 2), torch.cat([values, value_states], 2)

    def get_seq_length(self) -> int:
        """Tokens before the ones that are added."""
        return self.length


def prefix(layers: Layers, rows: torch.Tensor, length: int) -> Cache | None:
    """A cache of the first `length` tokens of some rows (N,), or None when there are none."""
    if not length:
        return None
    first = int(rows[0])
    same: Any = first if bool((rows == first).all()) else rows
    return Cache(layers=[PrefixLayer(layer, same, length) for layer in layers])


def has_plain_cache(model: Callable[..., Any], config: PreTrainedConfig) -> bool:
    """Whether a model's past is one key and value a token in every layer (no state, no window).

    Layers with a sliding window count: with the whole past given, their mask makes the window.
    """
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ["full_attention"])
    forward = getattr(model, "forward", model)
    return kinds <= PLAIN_LAYERS and "past_key_values" in inspect.signature(forward).parameters


def forward(
    model: Callable[..., Any],
    rows: Aligned,
    *,
    until: int | None = None,
    wanted: torch.Tensor | None = None,
    cached: bool,
) -> tuple[torch.Tensor, Layers]:
    """A clean pass over the columns before `until`: logits at the columns `wanted`, and its cache.

    Returns:
        Logits (B, len(wanted), V) (of the last column when nothing is wanted), and keys and values
        of each layer, none unless `cached`.
    """
    end = rows.width if until is None else until
    cache = DynamicCache() if cached else None
    output: Any = model(
        input_ids=rows.ids[:, :end], attention_mask=rows.mask[:, :end],
        position_ids=rows.where[:, :end], past_key_values=cache, use_cache=cached,
        logits_to_keep=1 if wanted is None else wanted,
    )  # fmt: skip
    kept: list[Any] = cache.layers if cache is not None else []
    return output.logits, [(layer.keys, layer.values) for layer in kept]


def at(logits: torch.Tensor, columns: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Float32 logits (B, A, V) at the columns `wanted` (B, A) of logits kept for `columns`."""
    place = torch.searchsorted(columns, wanted)
    if place.shape[1] == logits.shape[1] and bool((place.diff(dim=1) == 1).all()):
        return logits.float()  # every column once and in order
    return logits.float().gather(1, place[:, :, None].expand(-1, -1, logits.shape[2]))
