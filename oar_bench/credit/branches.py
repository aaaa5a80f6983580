"""Branches: what the answer becomes when a span of tokens is replaced, by one pass a branch.

Two savings that change no number. What precedes the span is the clean prefix, so its keys and
values are reused; and logits are computed at the probe's positions alone. A pass holds as many
branches as the memory budget allows, of any response and any column; it begins at the earliest of
its columns, and what the later ones then repeat is kept under MAX_WASTE of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig

from oar_bench.credit.aligned import Aligned, Layers, at, forward, has_plain_cache, prefix
from oar_bench.credit.answer import divergence
from oar_bench.credit.memory import Sizes, rows_within

MAX_WASTE = 0.06
FEW_TOKENS = 48
"""A pass with fewer tokens costs hardly less than one with so many: below it waste is free."""


class Branching:
    """The clean pass of a batch of aligned rows, and branches from it."""

    def __init__(
        self,
        model: Callable[..., Any],
        config: PreTrainedConfig,
        rows: Aligned,
        pfinal: str,
        memory: int,
        dtype: torch.dtype = torch.float32,
        done: tuple[torch.Tensor, Layers] | None = None,
    ) -> None:
        """Run the clean pass, unless its logits (B, len(rows.wanted), V) and past are given.

        Args:
            model: a causal LM of transformers, or a function that is called like one.
            config: its config.
            rows: B aligned rows.
            pfinal: see `oar_bench.credit.answer.divergence`.
            memory: bytes that one pass may take over the model's own.
            dtype: of the model's numbers.
            done: logits and past of a clean pass that has been run already.
        """
        self.model, self.rows, self.pfinal, self.memory = model, rows, pfinal, memory
        self.sizes = Sizes.of(config, dtype)
        self.reusable = has_plain_cache(model, config)
        logits, self.past = done or forward(model, rows, wanted=rows.wanted, cached=self.reusable)
        self.clean = at(logits, rows.wanted, rows.index)

    def scores(
        self, numbers: torch.Tensor, start: torch.Tensor, stop: torch.Tensor, replacement: int
    ) -> torch.Tensor:
        """How far each of N branches moves the answer, (N,) float32 >= 0.

        Args:
            numbers: (N,) int64, the row that each branch belongs to.
            start, stop: (N,) int64, columns [start, stop) are replaced.
            replacement: the id that takes their place.
        """
        found = torch.zeros(len(numbers), device=numbers.device)
        order = torch.argsort(start, stable=True)
        for part in self._passes(start[order].tolist()):
            chosen = order[part]
            found[chosen] = self._pass(numbers[chosen], start[chosen], stop[chosen], replacement)
        return found

    def _passes(self, starts: list[int]) -> Iterator[slice]:
        """Runs of the ascending columns at which branches begin, each small enough for a pass."""
        width, answers, first = self.rows.width, self.rows.index.shape[1], 0
        while first < len(starts):
            begin = starts[first] if self.reusable else 0
            tokens, end, waste = width - begin, first + 1, 0
            most = rows_within(self.memory, self.sizes.branch(tokens, width, answers))
            while end < len(starts) and end - first < most:
                waste += starts[end] - starts[first]
                fed = (end - first + 1) * tokens
                if self.reusable and waste > MAX_WASTE * fed and fed > FEW_TOKENS:
                    break
                end += 1
            yield slice(first, end)
            first = end

    def _pass(
        self, numbers: torch.Tensor, start: torch.Tensor, stop: torch.Tensor, replacement: int
    ) -> torch.Tensor:
        """The scores of the branches of one pass."""
        rows = self.rows
        begin = int(start[0]) if self.reusable else 0
        columns = torch.arange(begin, rows.width, device=start.device)
        inside = (columns >= start[:, None]) & (columns < stop[:, None])
        past = prefix(self.past, numbers, begin)
        later = rows.wanted[rows.wanted >= begin]
        output: Any = self.model(
            input_ids=rows.ids[numbers, begin:].masked_fill(inside, replacement),
            attention_mask=rows.mask[numbers], position_ids=rows.where[numbers, begin:],
            past_key_values=past, use_cache=past is not None, logits_to_keep=later - begin,
        )  # fmt: skip
        return self.moved(numbers, start, output.logits, later)

    def moved(
        self,
        numbers: torch.Tensor,
        start: torch.Tensor,
        logits: torch.Tensor,
        columns: torch.Tensor,
    ) -> torch.Tensor:
        """Divergence (N,) of logits (N, len(columns), V) from the clean ones of the same rows."""
        rows, found = self.rows, []
        few = rows_within(self.memory // 4, self.sizes.logits(rows.index.shape[1]))
        for part in torch.arange(len(numbers), device=numbers.device).split(few):
            of = numbers[part]
            index, clean = rows.index[of], self.clean[of]
            other = at(logits[part], columns, index.clamp(min=int(columns[0])))
            # An answer position before the span is untouched by it: its logits stay clean.
            before = index < start[part, None]
            if bool(before.any()):
                other = torch.where(before[:, :, None], clean, other)
            found.append(divergence(self.pfinal, clean, other, rows.answer_ids[of], rows.real[of]))
        # KL is >= 0 up to rounding (-1e-7 was seen), the joint score may really be negative.
        return torch.cat(found).clamp(min=0)
