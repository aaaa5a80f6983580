"""Measuring one batch of responses after the other: what `fidelity_table` makes a table of.

A batch's records are handed out once it is done, to be kept: a measurement that was killed goes on
with the batch it was in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.fidelity import answer_curves, is_ranked, spearman, top_overlap
from oar_bench.credit.methods import DRAWN, CreditBatch, importance, replacement_of
from oar_bench.engines.hf import HFEngine, pad_id
from oar_bench.evaluation.summary import finite
from oar_bench.integrations.responses import Response
from oar_bench.integrations.saved import batch_of
from oar_bench.keyed import derive
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.reporting.fidelity_source import Answers

EXACT, FLOOR = "oar-p", "position"
OTHER = "oar-p, other token"
ROWS = "fidelity.jsonl"
"""The file in which each response's numbers are kept."""


@dataclass
class Measured:
    """Measures responses by each method, a batch at a time."""

    engine: HFEngine
    answers: Answers
    settings: CreditSettings
    other: int
    curves: bool

    def __post_init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        """Of the batch just measured, a record a response; its share of the batch's `seconds`."""
        self._seconds: Counter[str] = Counter()
        self._warm = False
        self.pad = pad_id(self.engine.tokenizer)

    def add(self, part: Sequence[Response], names: Sequence[str]) -> Iterator[str]:
        """Measure some responses; yields each row's name once it is done."""
        batch = batch_of(part, self.engine.model, self.engine.tokenizer, self.answers.grading)
        if not self._warm:  # the first pass of a model is slower than the later ones
            self._scores("entropy", batch.rows(torch.tensor([0])), self.settings)
            self._warm = True
        self._seconds.clear()
        records = [
            {**response.name, "tokens": int(count), "methods": {}}
            for response, count in zip(part, batch.weighted(self.settings).sum(1), strict=True)
        ]
        exact = self._timed(EXACT, EXACT, batch, self.settings)
        for name in names:
            scores = exact if name == EXACT else self._timed(name, name, batch, self.settings)
            second = None
            if name in DRAWN:
                second = self._scores(name, _redrawn(batch), self.settings)
            self._record(name, records, batch, exact, scores, second)
            yield name
        with_other = self.settings.model_copy(update={"replacement": self.other})
        scores = self._timed(OTHER, EXACT, batch, with_other)
        self._record(OTHER, records, batch, exact, scores, None)
        share = {name: seconds / len(part) for name, seconds in self._seconds.items()}
        self.records = [{**record, "seconds": share} for record in records]
        yield OTHER

    def _scores(
        self, method: str, batch: CreditBatch, settings: CreditSettings
    ) -> torch.Tensor:  # fmt: skip
        return importance(method, self.engine.model, batch, settings, self.pad)

    def _timed(
        self, name: str, method: str, batch: CreditBatch, settings: CreditSettings
    ) -> torch.Tensor:
        timer = PhaseTimer(0)
        with timer.phase(name):
            scores = self._scores(method, batch, settings)
        self._seconds[name] += timer.rows[0]["seconds"]
        return scores

    def _record(
        self, name: str, records: list[dict[str, Any]], batch: CreditBatch, exact: torch.Tensor,
        scores: torch.Tensor, second: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """Enter one method's numbers into the records of the batch's responses."""
        marked, s = batch.weighted(self.settings), self.settings
        curves = None if not self.curves else answer_curves(
            self.engine.model, batch.input_ids, batch.attention_mask, marked, batch.probe.answer,
            scores, replacement=replacement_of(s, self.pad), pfinal=s.pfinal,
            memory=s.memory_mib * 2**20,
        )  # fmt: skip
        for row, record in enumerate(records):
            mine, true = scores[row, marked[row]], exact[row, marked[row]]
            ranked = is_ranked(mine)  # the curves of an order that is none would mean nothing
            record["methods"][name] = {
                "spearman": finite(spearman(true, mine)),
                "top": finite(top_overlap(true, mine)),
                "draws": None if second is None else finite(
                    spearman(mine, second[row, marked[row]])
                ),
                "deletion": _curve(curves[0][row]) if curves and ranked else None,
                "insertion": _curve(curves[1][row]) if curves and ranked else None,
            }  # fmt: skip


def _curve(points: torch.Tensor) -> list[float] | None:
    values: list[float] = points.tolist()
    return values if all(map(math.isfinite, values)) else None


def _redrawn(batch: CreditBatch) -> CreditBatch:
    """The batch under the keys of a second draw."""
    keys = [derive("second draw", seed) for seed in batch.seeds.tolist()]
    return replace(batch, seeds=torch.tensor(keys, device=batch.seeds.device))
