"""The main table: every method on every task, and every paired difference with its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oar_bench.evaluation import metrics
from oar_bench.evaluation.statistics import (
    Comparison,
    Floats,
    Interval,
    Verdict,
    holm,
    paired,
    seeds_needed,
    share_interval,
    two_way,
    verdict,
)
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import REFERENCE, START, Collection

TWO_POINTS = 0.02
CONTROL_PAIRS = (("oar-p", "shuffled"), ("oar-p", "oar-g"))
"""Beside method against GRPO: a gain that the shuffled control also shows is no credit."""


@dataclass(frozen=True)
class Pair:
    """A paired difference a - b on one task, over the seeds that both have.

    `p` is adjusted by Holm over all pairs of the report. `to_settle` are the paired seeds at
    which a true difference of the observed size would be found with 80 % power, `for_two` the
    same for two points; None when more seeds alone never would, or only one seed was run.
    """

    task: str
    a: str
    b: str
    seeds: tuple[int, ...]
    test: Comparison
    p: float
    verdict: Verdict
    to_settle: int | None
    for_two: int | None

    @property
    def holds_for(self) -> str:
        """What a verdict speaks of: `methods`, or with one training seed only `checkpoints`."""
        return "methods" if len(self.seeds) > 1 else "checkpoints"


@dataclass(frozen=True)
class Row:
    """A method on a task: shares, with the interval over seeds and problems.

    `majorities` are maj@2, maj@4 .., NaN where a results.json is from before it.
    """

    method: str
    seeds: tuple[int, ...]
    mean: Interval
    passes: dict[int, Interval]
    run_sd: float
    majorities: dict[int, float]
    truncated: float
    no_answer: float
    tokens: float
    equal: float
    statuses: dict[str, float]
    pair: Pair | None = None


@dataclass(frozen=True)
class TaskTable:
    """All methods on one task; `pairs` holds the comparisons beside those with GRPO."""

    task: str
    problems: int
    k: int
    rows: list[Row]
    pairs: list[Pair]

    def row(self, method: str) -> Row | None:
        """The row of a method, if it was evaluated on this task."""
        return next((row for row in self.rows if row.method == method), None)


def compare(collection: Collection) -> list[TaskTable]:
    """One table a task, p values adjusted by Holm over every pair of all of them."""
    return compare_all([collection])


def compare_all(collections: Sequence[Collection]) -> list[TaskTable]:
    """The tables of several collections, p values adjusted by Holm over every pair of them.

    The start's row is a landmark, not a claim: its pair with GRPO stays out of the family and
    keeps its own p.
    """
    tables = [_table(collection, task) for collection in collections for task in collection.tasks]
    family = [row.pair for t in tables for row in t.rows if row.pair and row.method != START]
    family += [pair for t in tables for pair in t.pairs]
    adjusted = holm([pair.p for pair in family])
    judged = {
        id(pair): replace(pair, p=p, verdict=verdict(pair.test.difference.value, p))
        for pair, p in zip(family, adjusted, strict=True)
    }
    return [
        replace(
            table,
            rows=[replace(r, pair=judged.get(id(r.pair), r.pair)) for r in table.rows],
            pairs=[judged[id(pair)] for pair in table.pairs],
        )
        for table in tables
    ]


def _table(collection: Collection, task: str) -> TaskTable:
    by_method = {
        method: {
            r.seed: r.evaluations[task] for r in collection.of(method) if task in r.evaluations
        }
        for method in collection.methods
    }
    by_method = {method: found for method, found in by_method.items() if found}
    start = collection.start.get(task)
    rows = [_row(START, start, _against_start(task, start, by_method))] if start else []
    for method, found in by_method.items():
        rows.append(_row(method, found, _pair(task, by_method, method, REFERENCE)))
    pairs = [_pair(task, by_method, a, b) for a, b in CONTROL_PAIRS]
    one = next(iter(next(iter(by_method.values())).values()))
    size, k = one.matrix.values.shape
    return TaskTable(task, size, k, rows, [pair for pair in pairs if pair])


def _row(method: str, found: Mapping[Any, Evaluation], pair: Pair | None) -> Row:
    values = [evaluation.matrix.values for evaluation in found.values()]
    k = min(v.shape[1] for v in values)
    about = [evaluation.metrics for evaluation in found.values()]
    statuses = sorted({name for m in about for name in m["statuses"]})
    return Row(
        method,
        () if method == START else tuple(found),
        over_seeds(np.stack([metrics.avg_at_k(v) for v in values])),
        {n: over_seeds(np.stack([metrics.pass_at_k(v, n) for v in values]))
         for n in metrics.powers(k)},
        float(np.sqrt(np.mean([metrics.run_sd(v) ** 2 for v in values]))),
        {n: float(np.mean([m.get(f"maj@{n}", {}).get("value", np.nan) for m in about]))
         for n in metrics.powers(k) if n > 1},
        mean_of(about, "truncated"),
        mean_of(about, "no_answer"),
        mean_of(about, "response_tokens"),
        mean_of(about, "equal_completions"),
        {s: float(np.mean([m["statuses"].get(s, 0) / m["n_samples"] for m in about]))
         for s in statuses},
        pair,
    )  # fmt: skip


def mean_of(about: Sequence[Mapping[str, Any]], key: str) -> float:
    """The mean of a metric over results; NaN where one of them doesn't know it (null).

    >>> mean_of([{"truncated": 0.25}, {"truncated": 0.75}], "truncated")
    0.5
    """
    values = [math.nan if of.get(key) is None else float(of[key]) for of in about]
    return float(np.mean(values))


def over_seeds(values: Floats) -> Interval:
    """Mean of (S, P) shares: seeds and problems both random; one seed leaves the problems."""
    if len(values) == 1:
        return share_interval(values[0])
    interval = two_way(values)
    # no spread at all (every cell equal): the width of Wilson's interval on the problems
    return interval.clipped() if interval.se > 0 else share_interval(values.mean(axis=0))


def _pair(task: str, found: dict[str, dict[int, Evaluation]], a: str, b: str) -> Pair | None:
    """a - b over the seeds that both have; None for the reference itself or without such seeds."""
    if a == b or a not in found or b not in found:
        return None
    seeds = tuple(seed for seed in found[a] if seed in found[b])
    if not seeds:
        return None
    mine, theirs = (
        np.stack([metrics.avg_at_k(found[m][seed].matrix.values) for seed in seeds]) for m in (a, b)
    )
    return judge(task, a, b, seeds, paired(mine, theirs))


def _against_start(
    task: str, start: Mapping[int | None, Evaluation], found: dict[str, dict[int, Evaluation]]
) -> Pair | None:
    """What the runs of GRPO began from, minus GRPO: each seed with its own start or with the one
    that all share."""
    began = {seed: start.get(seed, start.get(None)) for seed in found.get(REFERENCE, {})}
    of = {seed: evaluation for seed, evaluation in began.items() if evaluation is not None}
    if not of:
        return None
    theirs = np.stack([metrics.avg_at_k(found[REFERENCE][seed].matrix.values) for seed in of])
    mine = np.stack([metrics.avg_at_k(evaluation.matrix.values) for evaluation in of.values()])
    return judge(task, START, REFERENCE, tuple(of), paired(mine, theirs))


def judge(task: str, a: str, b: str, seeds: tuple[int, ...], test: Comparison) -> Pair:
    """A comparison with its verdict (before Holm) and the seeds that would settle it."""
    difference = test.difference.value
    return Pair(
        task,
        a,
        b,
        seeds,
        test,
        test.p,
        verdict(difference, test.p),
        None if test.identical else seeds_needed(test.parts, difference),
        None if test.identical else seeds_needed(test.parts, TWO_POINTS),
    )
