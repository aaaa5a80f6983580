"""What a method costs and what its weights look like, from timing.jsonl and metrics.jsonl.

Times are medians over steps, without the first step of each run: it pays for warm-up
(allocations, caches, lazy imports). Writing checkpoints isn't part of a step, since how often one
is written is a choice: it gets its own column. A run that learnt from saved rollouts sampled
nothing: its steps have no rollout, and are compared with no steps that have one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from oar_bench.evaluation.statistics import Floats, Interval, t_interval
from oar_bench.reporting.frames import REFERENCE, Collection, Run

ROLLOUT = "rollout"
PHASES = (ROLLOUT, "grading", "logprobs", "credit", "update")
CHECKPOINT = "checkpoint"
WEIGHTS = ("weight_mean", "weight_max", "weight_ess", "frac_no_probe", "frac_zero_std")


@dataclass(frozen=True)
class Phase:
    """Median seconds a step, and tokens a second over all steps (NaN where none are counted)."""

    seconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class Cost:
    """The cost of a method: medians over steps, mean over seeds.

    `step_seconds` are whole steps without checkpoints, `ratio` is to GRPO's same step under the
    same seed, its median over steps (None without GRPO), `checkpoint_seconds` per checkpoint
    written, `peak_mb` the largest of any step. `steps` counts the timed steps over all seeds.
    """

    method: str
    seeds: tuple[int, ...]
    steps: int
    step_seconds: float
    ratio: Interval | None
    phases: dict[str, Phase]
    checkpoint_seconds: float
    peak_mb: float


def overhead(collection: Collection) -> list[Cost]:
    """The cost of every method that has timings, in the order of tables."""
    steps = {method: _timed(collection, method) for method in collection.methods}
    reference = steps.get(REFERENCE, {})
    return [
        _cost([run for run in collection.of(method) if run.seed in found], found, reference)
        for method, found in steps.items()
        if found
    ]


def replays(run: Run) -> bool:
    """Whether a run learnt from the responses of another's rollouts.jsonl, and sampled none."""
    return "rollouts" in run.fingerprints


def step_seconds(run: Run) -> pd.DataFrame:
    """Seconds by step (rows) and phase (columns, checkpoint apart), without the first step.

    A run of a single step keeps it: better a warm-up than nothing. A run that replays has no
    rollout: what is timed as one there is reading the file.
    """
    timing = run.timing
    table = timing.pivot_table(index="step", columns="phase", values="seconds", aggfunc="sum")
    untimed = [CHECKPOINT, ROLLOUT] if replays(run) else [CHECKPOINT]
    table = table.drop(columns=untimed, errors="ignore").fillna(0.0)
    return table.iloc[1:] if len(table) > 1 else table


def _cost(
    runs: list[Run], found: dict[int, pd.DataFrame], reference: dict[int, pd.DataFrame]
) -> Cost:
    timing = pd.concat([_warm(run) for run in runs])
    saved = timing[timing["phase"] == CHECKPOINT]["seconds"]
    names = {name for table in found.values() for name in table.columns}
    unknown = sorted(names.difference(PHASES))
    peaks = [run.timing["peak_memory_mb"].max() for run in runs if "peak_memory_mb" in run.timing]
    return Cost(
        runs[0].method,
        tuple(found),
        sum(len(table) for table in found.values()),
        float(np.mean([table.sum(axis=1).median() for table in found.values()])),
        _ratio(found, reference),
        {name: _phase(name, found, timing) for name in [*PHASES, *unknown] if name in names},
        float(saved.median()) if len(saved) else math.nan,
        float(max(peaks, default=math.nan)),
    )


def _warm(run: Run) -> pd.DataFrame:
    later = run.timing[run.timing["step"] > run.timing["step"].min()]
    return later if len(later) else run.timing


def _phase(name: str, found: dict[int, pd.DataFrame], timing: pd.DataFrame) -> Phase:
    medians = [t[name].median() if name in t else 0.0 for t in found.values()]
    rows = timing[timing["phase"] == name]
    seconds = rows["seconds"].sum()
    tokens = rows["tokens"].sum() if "tokens" in rows else 0
    speed = float(tokens / seconds) if tokens > 0 and seconds > 0 else math.nan
    return Phase(float(np.mean(medians)), speed)


def step_ratios(mine: pd.DataFrame, theirs: pd.DataFrame) -> Floats:
    """Seconds of whole steps over another run's, step by step over those that both have: (N,).

    Paired by step, because a step's work changes as training goes on (responses grow or shrink).
    Empty without a common step, and where only one of the two samples; a step of no measurable
    time is left out.

    >>> a, b = pd.DataFrame({"rollout": [2.0, 6.0]}), pd.DataFrame({"rollout": [1.0, 2.0]})
    >>> step_ratios(a, b)
    array([2., 3.])
    >>> step_ratios(a.rename(columns={"rollout": "update"}), b)
    array([], dtype=float64)
    """
    if (ROLLOUT in mine) != (ROLLOUT in theirs):
        return np.empty(0, dtype=np.float64)
    both = pd.concat([mine.sum(axis=1), theirs.sum(axis=1)], axis=1, join="inner")
    timed = both[(both > 0).all(axis=1)].to_numpy(dtype=np.float64)
    return np.asarray(timed[:, 0] / timed[:, 1], dtype=np.float64)


def ratios_by_seed(collection: Collection, method: str) -> dict[int, Floats]:
    """The step ratios of a method to GRPO under every seed that both were timed with."""
    return _paired(_timed(collection, method), _timed(collection, REFERENCE))


def _timed(collection: Collection, method: str) -> dict[int, pd.DataFrame]:
    return {run.seed: step_seconds(run) for run in collection.of(method) if len(run.timing)}


def _paired(
    found: dict[int, pd.DataFrame], reference: dict[int, pd.DataFrame]
) -> dict[int, Floats]:
    every = {s: step_ratios(table, reference[s]) for s, table in found.items() if s in reference}
    return {seed: ratios for seed, ratios in every.items() if len(ratios)}


def _ratio(found: dict[int, pd.DataFrame], reference: dict[int, pd.DataFrame]) -> Interval | None:
    """Step time over GRPO's: each seed's median over steps of the ratio, then their geometric mean.

    A median of paired steps: neither a step that something else slowed nor the drift of a step's
    work decides.
    """
    ratios = _paired(found, reference)
    if not ratios:
        return None
    if found is reference:
        return Interval(1.0, 1.0, 1.0, 0.0, math.inf, len(ratios), "the reference")
    if len(ratios) == 1:
        return bootstrap_median(next(iter(ratios.values())))
    log = t_interval([math.log(np.median(of)) for of in ratios.values()])
    return replace(log, value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high),
                   method="t on the logs of the seeds' median step ratios")  # fmt: skip


def bootstrap_median(values: Floats, seed: int = 0, draws: int = 2000) -> Interval:
    """Median of (N,) step ratios of one seed, bootstrapped over steps.

    >>> r = bootstrap_median(np.array([2.0, 2.1, 1.9, 2.0, 9.0]))
    >>> r.value, 1.8 < r.low <= 2.0 <= r.high
    (2.0, True)
    """
    generator = np.random.default_rng(seed)
    medians = np.median(values[generator.integers(0, len(values), (draws, len(values)))], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Interval(float(np.median(values)), float(low), float(high), float(medians.std(ddof=1)),
                    math.inf, len(values), "bootstrap over steps (one seed)")  # fmt: skip


def rewards_of(collection: Collection) -> pd.DataFrame:
    """Training reward by step: columns method, step, mean (over seeds), then one for each seed."""
    frames = []
    for method in collection.methods:
        seeds = {
            f"seed {run.seed}": run.metrics.groupby("step")["reward"].last()
            for run in collection.of(method)
            if "reward" in run.metrics
        }
        if seeds:
            table = pd.DataFrame(seeds)
            # where a seed is missing (other number of steps) a mean would jump: leave it out
            table.insert(0, "mean", table.mean(axis=1, skipna=False))
            table.insert(0, "method", method)
            frames.append(table.reset_index())
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


@dataclass(frozen=True)
class Weights:
    """A method's weights: each the mean over steps, then over seeds (NaN where not logged).

    `drift` is the largest |weight_mean - 1| of any step: zero when the advantage mass is kept.
    """

    method: str
    means: dict[str, float]
    drift: float


def weights(collection: Collection) -> list[Weights]:
    """Weight statistics of every method that logged them."""
    found = []
    for method in collection.methods:
        runs = [run.metrics for run in collection.of(method)]
        means = {
            name: float(np.mean([m[name].mean() for m in runs if name in m]))
            if any(name in m and m[name].notna().any() for m in runs)
            else math.nan
            for name in WEIGHTS
        }
        if math.isnan(means["weight_mean"]):
            continue
        drift = max(float((m["weight_mean"] - 1).abs().max()) for m in runs if "weight_mean" in m)
        found.append(Weights(method, means, drift))
    return found
