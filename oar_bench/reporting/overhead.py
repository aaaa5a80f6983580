"""From the rows of an overhead measurement to intervals, growth and a verdict on the claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from oar_bench.evaluation.statistics import Floats, Interval, t_interval
from oar_bench.reporting.costs import PHASES
from oar_bench.reporting.frames import REFERENCE

STEP = "step"
"""All phases of a step together."""
Verdict = Literal["supported", "contradicted", "inconclusive"]
NAN = math.nan


@dataclass(frozen=True)
class Measured:
    """A phase (or the whole `step`) of a method at a length; NaN or None where unknown.

    `seconds` has the median of the repeats as its value and the t interval on their logarithms;
    `ratio` is to the same phase of GRPO's step.
    """

    length: int
    method: str
    phase: str
    seconds: Interval
    tokens: float
    peak_mb: float
    counted: float
    formula: float | None
    ratio: Interval | None

    @property
    def speed(self) -> float:
        """Tokens a second at the median (NaN where the phase processes none)."""
        return self.tokens / self.seconds.value if self.tokens else NAN


def logarithmic(values: Floats) -> Interval:
    """The t interval on logarithms, back as it was: a geometric mean and its bounds.

    >>> i = logarithmic(np.array([1.0, 2.0, 4.0]))
    >>> round(i.value, 6), round(i.low, 4), round(i.high, 3)  # 2 exp(-+ 4.3027 ln 2 / sqrt 3)
    (2.0, 0.3575, 11.19)
    """
    log = t_interval(np.log(values))
    return replace(log, value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high),
                   method="t on logarithms, over repeats")  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows with a further one for each whole step: seconds summed, the largest memory."""
    frame = pd.DataFrame(rows)
    keys = ["repeat", "length", "method"]
    whole = frame.groupby(keys, sort=False, as_index=False).agg(
        seconds=("seconds", "sum"), peak_memory_mb=("peak_memory_mb", "max"),
        flops=("flops", lambda values: values.sum(min_count=1)),
    )  # fmt: skip
    sampled = frame[frame["phase"] == "rollout"].set_index(keys)["tokens"]
    whole["tokens"] = [sampled.get(key, 0) for key in zip(*(whole[k] for k in keys), strict=True)]
    return pd.concat([frame, whole.assign(phase=STEP)], ignore_index=True)


def summarize(
    rows: Sequence[Mapping[str, Any]],
    formulas: Mapping[tuple[str, int], Mapping[str, int | None]],
) -> list[Measured]:
    """Every (length, method, phase), phases in the order of a step and the whole step last.

    Args:
        rows: of `oar_bench.overhead.bench.measure`.
        formulas: operations by (method, length) and phase, from `step_flops`.
    """
    frame, found = table(rows), []
    groups: dict[tuple[int, str, str], pd.DataFrame] = {
        (length, method, phase): group
        for (length, method, phase), group in cast(
            "Iterable[tuple[tuple[int, str, str], pd.DataFrame]]",
            frame.groupby(["length", "method", "phase"], sort=False),
        )
    }
    lengths = list(dict.fromkeys(length for length, _, _ in groups))
    methods = list(dict.fromkeys(method for _, method, _ in groups))
    for length in lengths:
        for method in methods:
            work = dict(formulas.get((method, length), {}))
            parts = list(work.values())
            work[STEP] = None if None in parts else sum(p for p in parts if p is not None)
            for phase in (*PHASES, STEP):
                group = groups.get((length, method, phase))
                if group is not None:
                    reference = groups.get((length, REFERENCE, phase))
                    found.append(_measured(group, reference, work.get(phase)))
    return found


def _timed(group: pd.DataFrame) -> pd.Series:
    """Seconds by repeat, without the warm-up."""
    return group[group["repeat"] > 0].set_index("repeat")["seconds"].sort_index()


def _measured(group: pd.DataFrame, reference: pd.DataFrame | None, formula: int | None) -> Measured:
    seconds = _timed(group)
    ratio = None
    if reference is not None and reference is not group:
        ratio = logarithmic((seconds / _timed(reference)).to_numpy(dtype=np.float64))
    first = group.iloc[0]
    timed = logarithmic(seconds.to_numpy(dtype=np.float64))
    return Measured(
        int(first["length"]), str(first["method"]), str(first["phase"]),
        replace(timed, value=float(seconds.median())), float(group["tokens"].mean()),
        float(group[group["repeat"] > 0]["peak_memory_mb"].max()), float(group["flops"].sum()),
        formula, ratio,
    )  # fmt: skip


def counted_ratio(cells: Sequence[Measured], method: str, length: int) -> float:
    """Counted operations of a method's whole step over GRPO's at that length."""
    of = {c.method: c.counted for c in cells if c.phase == STEP and c.length == length}
    return of[method] / of[REFERENCE] if of.get(REFERENCE) else NAN


def equivalence(ratios: Sequence[Interval], margin: float) -> Verdict:
    """Whether ratios to GRPO, one a length, are all within 1 + margin.

    Supported: every interval's upper bound is at most 1 + margin (the one-sided half of the
    two-sided test of equivalence; a method may be faster). Contradicted: some lower bound is
    above it. An exact number has itself as both bounds.

    Source: Schuirmann 1987, J. Pharmacokinet. Biopharm. 15.

    >>> def interval(low, high):
    ...     return Interval(1.0, low, high, 0.0, 4, 5, "")
    >>> equivalence([interval(0.9, 1.1), interval(1.0, 1.05)], 0.1)
    'supported'
    >>> equivalence([interval(0.9, 1.05), interval(1.2, 1.3)], 0.1)
    'contradicted'
    >>> equivalence([interval(0.9, 1.05), interval(1.0, 1.3)], 0.1)
    'inconclusive'
    """
    limit = 1 + margin
    if any(ratio.low > limit for ratio in ratios):
        return "contradicted"
    if ratios and all(ratio.high <= limit for ratio in ratios):
        return "supported"
    return "inconclusive"


def exact(value: float) -> Interval:
    """A number without uncertainty."""
    return Interval(value, value, value, 0.0, math.inf, 1, "exact")


@dataclass(frozen=True)
class Claim:
    """The verdicts on "a method's overhead is negligible", with the ratios by length."""

    method: str
    margin: float
    clock: dict[int, Interval]
    counted: dict[int, float]

    @property
    def in_clock(self) -> Verdict:
        """By wall clock, on the machine that measured."""
        return equivalence(list(self.clock.values()), self.margin)

    @property
    def dearer(self) -> list[int]:
        """Lengths at which the wall clock's lower bound is above the margin."""
        return [n for n, ratio in self.clock.items() if ratio.low > 1 + self.margin]

    @property
    def in_flops(self) -> Verdict:
        """By counted operations."""
        return equivalence([exact(v) for v in self.counted.values()], self.margin)


def claims(cells: Sequence[Measured], margin: float) -> list[Claim]:
    """The claim for every method but GRPO itself, when GRPO was measured beside it."""
    steps = [c for c in cells if c.phase == STEP and c.ratio is not None]
    methods = dict.fromkeys(c.method for c in steps)
    return [
        Claim(
            method, margin,
            {c.length: c.ratio for c in steps if c.method == method and c.ratio is not None},
            {c.length: counted_ratio(cells, method, c.length)
             for c in steps if c.method == method},
        )
        for method in methods
    ]  # fmt: skip


def slope(lengths: Sequence[float], values: Sequence[float]) -> float:
    """The exponent k of the power law values ~ lengths^k: least squares on logarithms.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 9)
    2.0
    """
    x, y = np.log(np.asarray(lengths, float)), np.log(np.asarray(values, float))
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


@dataclass(frozen=True)
class Growth:
    """Exponents of a method's phase with response length: of its seconds, and of operations."""

    method: str
    phase: str
    seconds: Interval
    flops: float


def growth(rows: Sequence[Mapping[str, Any]]) -> list[Growth]:
    """The exponents of credit and of the whole step for every method, from two lengths on.

    Of seconds: one fit a repeat, then the t interval of the fits' mean, so that a slow repeat
    isn't taken for growth. Of operations: one fit, since they don't vary; NaN without any.
    """
    frame = table(rows)
    if frame["length"].nunique() < 2:
        return []
    found = []
    for method in frame["method"].unique():
        # GRPO has no credit: that phase only finds the answers, for the log.
        for phase in (STEP,) if method == REFERENCE else ("credit", STEP):
            part = frame[(frame["method"] == method) & (frame["phase"] == phase)]
            timed = part[part["repeat"] > 0]
            fits = [slope(g["length"], g["seconds"]) for _, g in timed.groupby("repeat")]
            counted = part[(part["repeat"] == 0) & (part["flops"] > 0)]
            flops = slope(counted["length"], counted["flops"]) if len(counted) > 1 else NAN
            fitted = replace(t_interval(fits), method="t on the fits of the repeats")
            found.append(Growth(str(method), phase, fitted, flops))
    return found
