"""Where answers fail: by level, subject and how hard the start found a problem; by form of answer.

From the tallies alone: no response is read. A slice is a set of problems, so that its numbers are
means over problems and seeds like those of the whole; they are shown without tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oar_bench.evaluation.tally import UNKNOWN
from oar_bench.records import read_jsonl
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import START, Collection
from oar_bench.reporting.text import visible
from oar_bench.tasks.labels import LABELS

Bools = NDArray[np.bool_]
BY_START = "success of the start"
BINS = ("never", "up to half", "more than half", "always")
MOST_VALUES = 40
"""Values of one label that are shown, the largest slices first; the CSV has them all."""


@dataclass(frozen=True)
class Cell:
    """A method on a slice: shares of its samples, mean over seeds."""

    right: float
    truncated: float
    no_answer: float


@dataclass(frozen=True)
class Slice:
    """The problems with one value of a label, and each method's cell in the order of methods."""

    kind: str
    value: str
    problems: int
    cells: list[Cell]


@dataclass(frozen=True)
class Form:
    """A form in which answers were found: per method its share of samples, and of these right."""

    how: str
    cells: list[tuple[float, float]]


@dataclass(frozen=True)
class TaskSlices:
    """One task, its methods, its slices in tables by kind, and the forms of its answers."""

    task: str
    methods: list[str]
    slices: list[Slice]
    forms: list[Form]

    @property
    def kinds(self) -> dict[str, list[Slice]]:
        """The slices to show, by label."""
        found: dict[str, list[Slice]] = {}
        for part in self.slices:
            found.setdefault(part.kind, []).append(part)
        return {kind: _largest(parts) for kind, parts in found.items()}


def _largest(parts: list[Slice]) -> list[Slice]:
    kept = sorted(parts, key=lambda part: -part.problems)[:MOST_VALUES]
    return [part for part in parts if part in kept]


def problems_of(evaluations: Mapping[str, Mapping[Any, Evaluation]]) -> dict[str, dict[str, Any]]:
    """The rows of the first problems.jsonl that is there, by problem; empty where there is none."""
    for of in evaluations.values():
        for evaluation in of.values():
            path = evaluation.folder / "problems.jsonl"
            if path.is_file():
                return {str(row.get("problem")): row for row in read_jsonl(path)}
    return {}


def slices(collection: Collection, task: str, rows: Mapping[str, Mapping[str, Any]]) -> TaskSlices:
    """The slices of a task; `rows` are those of problems.jsonl by problem."""
    by_method = collection.evaluations_of(task)
    names = next(iter(by_method.values()))
    problems = next(iter(names.values())).matrix.problems
    parts = []
    for kind in LABELS:
        values = [visible(str(rows.get(name, {}).get(kind) or "")) for name in problems]
        known = sorted({value for value in values if value}, key=_natural)
        parts += [(kind, v, np.array([value == v for value in values])) for v in known]
    parts += _by_start(by_method.get(START))
    return TaskSlices(
        task, [*by_method],
        [Slice(kind, value, int(keep.sum()), [_cell(of, keep) for of in by_method.values()])
         for kind, value, keep in parts],
        _forms(by_method),
    )  # fmt: skip


def _natural(value: str) -> tuple[bool, int, str]:
    """Numbers by size, before words."""
    return (not value.isdecimal(), int(value) if value.isdecimal() else 0, value)


def _by_start(start: Mapping[Any, Evaluation] | None) -> list[tuple[str, str, Bools]]:
    """Problems by the share of the start's samples that are right, mean over its seeds."""
    if not start:
        return []
    share = np.mean([e.matrix.values.mean(axis=1) for e in start.values()], axis=0)
    edges = [share == 0, (share > 0) & (share <= 0.5), (share > 0.5) & (share < 1), share == 1]
    return [(BY_START, name, keep) for name, keep in zip(BINS, edges, strict=True) if keep.any()]


def _cell(of: Mapping[Any, Evaluation], keep: Bools) -> Cell:
    found = [e.tally for e in of.values()]
    return Cell(
        float(np.mean([t.matrix.values[keep].mean() for t in found])),
        *(float(np.mean([t.share(s, keep) for t in found])) for s in ("truncated", "no_answer")),
    )


def _forms(by_method: Mapping[str, Mapping[Any, Evaluation]]) -> list[Form]:
    """The forms of answers, the most frequent first; none where no score row names one."""
    tallies = {method: [e.tally for e in of.values()] for method, of in by_method.items()}
    counts: dict[str, int] = {}
    for found in tallies.values():
        for t in found:
            for place, how in enumerate(t.hows):
                counts[how] = counts.get(how, 0) + int((t.how == place).sum())
    if set(counts) <= {UNKNOWN}:
        return []
    names = sorted(counts, key=lambda how: (how == UNKNOWN, -counts[how], how))
    return [Form(how, [_form(found, how) for found in tallies.values()]) for how in names]


def _form(found: Sequence[Any], how: str) -> tuple[float, float]:
    masks = [t.how == t.hows.index(how) if how in t.hows else np.zeros(t.how.shape, dtype=bool)
             for t in found]  # fmt: skip
    total = sum(int(mask.sum()) for mask in masks)
    right = sum(int(t.matrix.values[m].sum()) for t, m in zip(found, masks, strict=True))
    share = float(np.mean([mask.mean() for mask in masks]))
    return share, right / total if total else math.nan


def as_frame(found: Sequence[TaskSlices]) -> pd.DataFrame:
    """A row for each task, slice and method, shares as shares."""
    return pd.DataFrame([
        {"task": of.task, "by": part.kind, "value": part.value, "problems": part.problems,
         "method": method, "right": cell.right, "truncated": cell.truncated,
         "no_answer": cell.no_answer}
        for of in found for part in of.slices
        for method, cell in zip(of.methods, part.cells, strict=True)
    ])  # fmt: skip
