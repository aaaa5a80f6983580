"""The numbers behind a report as CSV: one row a fact, shares as shares, not rounded."""

from __future__ import annotations

from typing import Any

import pandas as pd

from oar_bench.evaluation.statistics import Interval
from oar_bench.reporting.budgets import Budget
from oar_bench.reporting.comparison import Pair, TaskTable
from oar_bench.reporting.costs import Cost, Weights
from oar_bench.reporting.frames import LeftOut
from oar_bench.reporting.text import visible


def csv(frame: pd.DataFrame) -> str:
    """A frame as CSV text; words are made visible, and never begin a spreadsheet formula."""
    return str(frame.map(_cell).rename(columns=_cell).to_csv(index=False, lineterminator="\n"))


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown


def comparison(tables: list[TaskTable]) -> pd.DataFrame:
    """A row for each task and method."""
    rows = []
    for table in tables:
        for row in table.rows:
            found: dict[str, Any] = {
                "task": table.task,
                "method": row.method,
                "seeds": len(row.seeds),
                "problems": table.problems,
                "k": table.k,
                **_bounds("avg", row.mean),
                **(_judged(row.pair) if row.pair else {}),
            }
            for k, interval in row.passes.items():
                found |= _bounds(f"pass@{k}", interval)
            found |= {f"maj@{k}": value for k, value in row.majorities.items()}
            found |= {
                "run_sd": row.run_sd,
                "truncated": row.truncated,
                "no_answer": row.no_answer,
                "response_tokens": row.tokens,
                "equal_completions": row.equal,
            }
            rows.append(found)
    return _whole(pd.DataFrame(rows))


def pairs(tables: list[TaskTable]) -> pd.DataFrame:
    """A row for each paired comparison, those with GRPO first."""
    all_pairs = [row.pair for table in tables for row in table.rows if row.pair]
    all_pairs += [pair for table in tables for pair in table.pairs]
    return _whole(pd.DataFrame([
        {"task": p.task, "a": p.a, "b": p.b, "seeds": len(p.seeds), **_judged(p),
         "p_unadjusted": p.test.p, "df": p.test.difference.df, "se": p.test.difference.se,
         "var_seed": p.test.parts.var_seed, "var_problem": p.test.parts.var_problem,
         "var_residual": p.test.parts.var_residual, "method": p.test.difference.method}
        for p in all_pairs
    ]))  # fmt: skip


def numbers(left_out: list[LeftOut]) -> pd.DataFrame:
    """A row for each imported number without samples."""
    return pd.DataFrame([
        {"result": visible(item.where), "task": item.stated.task,
         **_bounds("value", item.stated.mean)}
        for item in left_out if item.stated is not None
    ])  # fmt: skip


def _whole(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers of seeds as whole numbers, although some are missing."""
    counts = [name for name in frame.columns if name.startswith("seeds_to_settle")]
    return frame.astype(dict.fromkeys(counts, "Int64"))


def _bounds(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _judged(pair: Pair) -> dict[str, Any]:
    return {
        **_bounds("difference", pair.test.difference),
        "p_holm": pair.p,
        "verdict": pair.verdict,
        "holds_for": pair.holds_for,
        "identical": pair.test.identical,
        "detectable": pair.test.detectable,
        "seeds_to_settle_observed": pair.to_settle,
        "seeds_to_settle_two_points": pair.for_two,
    }


def budget(found: list[Budget]) -> pd.DataFrame:
    """A row for each task, method and cap: the share right, mean over seeds and under each."""
    return pd.DataFrame([
        {"task": task.task, "method": curve.method, "cap": cap, "mean": curve.mean[place],
         **{f"seed {seed}": shares[place] for seed, shares in curve.seeds.items()
            if seed is not None}}
        for task in found
        for curve in task.curves
        for place, cap in enumerate(task.caps)
    ])  # fmt: skip


def overhead(costs: list[Cost]) -> pd.DataFrame:
    """A row for each method and phase; the whole step is the phase `step`."""
    rows = []
    for cost in costs:
        whole = {
            "method": cost.method,
            "phase": "step",
            "median_seconds": cost.step_seconds,
            **(_bounds("ratio", cost.ratio) if cost.ratio else {}),
            "peak_memory_mb": cost.peak_mb,
            "steps_timed": cost.steps,
        }
        rows.append(whole)
        rows += [
            {"method": cost.method, "phase": name, "median_seconds": phase.seconds,
             "tokens_per_second": phase.tokens_per_second}
            for name, phase in cost.phases.items()
        ]  # fmt: skip
        rows.append(
            {"method": cost.method, "phase": "checkpoint",
             "median_seconds": cost.checkpoint_seconds}
        )  # fmt: skip
    return pd.DataFrame(rows)


def weights(found: list[Weights]) -> pd.DataFrame:
    """A row for each method that logged weights."""
    return pd.DataFrame([{"method": w.method, **w.means, "largest_drift": w.drift} for w in found])
