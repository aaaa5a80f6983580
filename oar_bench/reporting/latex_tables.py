"""The main tables of a report as LaTeX with booktabs, the numbers as the page has them."""

from __future__ import annotations

from collections.abc import Sequence

from oar_bench.reporting.budgets import Budget
from oar_bench.reporting.comparison import Pair, TaskTable
from oar_bench.reporting.costs import Cost, Weights
from oar_bench.reporting.frames import REFERENCE
from oar_bench.reporting.latex import booktabs
from oar_bench.reporting.slices import TaskSlices
from oar_bench.reporting.text import bracket, number, p_value, percent, points
from oar_bench.reporting.wording import detectable_words, seeds_words, verdict_word

Rows = list[list[str]]


def _table(words: Sequence[str], numbers: Sequence[str], rows: Rows) -> str:
    return booktabs([*words, *numbers], rows, numbers=numbers)


def comparison(tables: Sequence[TaskTable]) -> str:
    """A row for each task and method: score and paired difference, each with its interval."""
    rows = [
        [table.task, row.method, seeds_words(row),
         f"{percent(row.mean.value)} {bracket(row.mean)}",
         *(_judged(row.pair) if row.pair else ["–", "–", "–"])]
        for table in tables for row in table.rows
    ]  # fmt: skip
    header = ("seeds", "score, %", f"difference to {REFERENCE}, points", "p (Holm)", "verdict")
    return _table(("task", "method"), header, rows)


def _judged(pair: Pair) -> list[str]:
    difference = pair.test.difference
    return [f"{points(difference.value)} {bracket(difference, difference=True)}",
            p_value(pair.p), verdict_word(pair)]  # fmt: skip


def pairs(tables: Sequence[TaskTable]) -> str:
    """A row for each paired comparison beside those with the reference."""
    rows = [
        [pair.task, f"{pair.a} against {pair.b}", str(len(pair.seeds)), *_judged(pair),
         detectable_words(pair)]
        for table in tables for pair in table.pairs
    ]  # fmt: skip
    header = ("seeds", "difference, points", "p (Holm)", "verdict", "detectable, points")
    return _table(("task", "pair"), header, rows)


def overhead(costs: Sequence[Cost], phases: Sequence[str]) -> str:
    """A row for each method: seconds of a step, its ratio, its phases, memory."""
    rows = [
        [cost.method, number(cost.step_seconds, 3),
         f"{number(cost.ratio.value, 2)} [{number(cost.ratio.low, 2)}, "
         f"{number(cost.ratio.high, 2)}]" if cost.ratio else "–",
         *(number(cost.phases[p].seconds, 3) if p in cost.phases else "–" for p in phases),
         number(cost.peak_mb, 0)]
        for cost in costs
    ]  # fmt: skip
    header = ("step, s", f"ratio to {REFERENCE}", *(f"{p}, s" for p in phases), "memory, MB")
    return _table(("method",), header, rows)


def budget(found: Sequence[Budget]) -> str:
    """A row for each task and method under every cap that some task has."""
    caps = sorted({cap for task in found for cap in task.caps})
    rows = [
        [task.task, curve.method,
         *(percent(dict(zip(task.caps, curve.mean, strict=True)).get(cap)) for cap in caps)]
        for task in found for curve in task.curves
    ]  # fmt: skip
    return _table(("task", "method"), [str(cap) for cap in caps], rows)


def weights(found: Sequence[Weights]) -> str:
    """A row for each method that logged weights."""
    rows = [
        [w.method, number(w.means["weight_mean"], 4), number(w.means["weight_max"], 2),
         percent(w.means["weight_ess"])]
        for w in found
    ]  # fmt: skip
    return _table(("method",), ("mean", "maximum", "effective share, %"), rows)


def slices(found: Sequence[TaskSlices]) -> str:
    """A row for each task and slice, a column for each method that some task has."""
    methods = list(dict.fromkeys(method for of in found for method in of.methods))
    rows = []
    for of in found:
        for part in of.slices:
            cells = dict(zip(of.methods, part.cells, strict=True))
            shares = [percent(cells[m].right) if m in cells else "–" for m in methods]
            rows.append([of.task, part.kind, part.value, str(part.problems), *shares])
    return _table(("task", "by", "value"), ["problems", *methods], rows)
