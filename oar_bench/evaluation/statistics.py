"""Statistics of benchmark scores: arrays in, small frozen results out.

The problem is the unit. K samples of one problem are no K independent observations; pooling them
into one binomial gives intervals several times too narrow. So every interval here starts from
problem means (P,), or from training seeds x problems (S, P) where a method was trained several
times: then the seed is a second random facet and is never averaged away (`two_way`).

The intervals of one vector live in `intervals` and are exported here as well.

All values are shares (0.64), not percent. Nothing here draws unseeded random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from oar_bench.evaluation.intervals import (
    NAN,
    Floats,
    Interval,
    bootstrap_interval,
    quantile,
    share_interval,
    t_interval,
    wilson_interval,
)

Verdict = Literal["better", "worse", "not separable"]
SAME = 1e-12  # shares nearer than this differ by rounding only

__all__ = [
    "Comparison", "Components", "Floats", "Interval", "Verdict", "bootstrap_interval", "components",
    "detectable", "effect_of", "holm", "paired", "seeds_needed", "share_interval", "t_interval",
    "two_way", "verdict", "wilson_interval",
]  # fmt: skip


@dataclass(frozen=True)
class Components:
    """Mean and variance components of an (S, P) table: seeds x problems, one value a cell.

    x_sp = mean + seed_s + problem_p + residual_sp, all random. Variances are in squared units of
    the input, estimated by the mean squares and never negative. With one seed `var_seed` is NaN:
    it can't be known; with one problem so is `var_problem`. `se_seeds` is the standard error of
    the mean over the S seed means as measured (NaN: take it from the components).
    """

    seeds: int
    problems: int
    mean: float
    var_seed: float
    var_problem: float
    var_residual: float
    se_seeds: float = NAN

    def terms(self, seeds: int | None = None) -> list[tuple[float, float]]:
        """(se, df) of the mean by each way of taking it, for `seeds` seeds (default: as measured).

        First the two-way random effects one, then the one over the seed means; `two_way` takes the
        wider. With one seed, or one problem, only the facet that varies is left.
        """
        s, p = seeds or self.seeds, self.problems
        if s < 2 or p < 2:
            facet = self.var_problem if s < 2 else self.var_seed
            n = max(s, p)
            return [(math.sqrt(facet / n), n - 1.0)] if n > 1 else [(NAN, NAN)]
        if math.isnan(self.var_seed) or math.isnan(self.var_problem):
            return [(NAN, NAN)]  # asked for more than was measured
        ms_residual = self.var_residual
        ms_seed = ms_residual + p * self.var_seed
        ms_problem = ms_residual + s * self.var_problem
        total = ms_seed + ms_problem - ms_residual
        # Satterthwaite 1946 over the mean squares that are in the sum. Where a component is zero
        # its mean square cancels against the residual's.
        active = [(ms_seed, s - 1.0)] if self.var_seed > 0 else []
        active += [(ms_problem, p - 1.0)] if self.var_problem > 0 else []
        if len(active) != 1:
            active.append((ms_residual, (s - 1.0) * (p - 1.0)))
        pooled = sum(ms * ms / df for ms, df in active)
        df = total * total / pooled if pooled > 0 else s - 1.0
        se_seeds = self.se_seeds if seeds is None else NAN
        if math.isnan(se_seeds):
            se_seeds = math.sqrt(ms_seed / (s * p))
        return [(math.sqrt(total / (s * p)), df), (se_seeds, s - 1.0)]


def components(values: ArrayLike) -> Components:
    """Variance components of an (S, P) table by the crossed two-way ANOVA without replication.

    MS_seed = P var(seed means), MS_problem = S var(problem means), MS_residual from what is left;
    var_seed = max(0, (MS_seed - MS_residual) / P), var_problem likewise. Source: Searle, Casella,
    McCulloch 1992, "Variance Components", chapter 4.

    >>> c = components([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    >>> round(c.var_problem, 4), round(c.var_residual, 4), c.var_seed
    (0.1667, 0.1667, 0.0)
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or not x.size:
        raise ValueError(f"a non-empty table of seeds x problems is needed, not shape {x.shape}")
    s, p = x.shape
    mean = float(x.mean())
    if s == 1 or p == 1:
        spread = float(x.var(ddof=1)) if x.size > 1 else NAN
        by_seed, by_problem = (NAN, spread) if s == 1 else (spread, NAN)
        return Components(s, p, mean, by_seed, by_problem, NAN)
    by_seed = float(p * x.mean(axis=1).var(ddof=1))
    by_problem = float(s * x.mean(axis=0).var(ddof=1))
    left = x - x.mean(axis=1, keepdims=True) - x.mean(axis=0, keepdims=True) + mean
    residual = float((left**2).sum() / ((s - 1) * (p - 1)))
    return Components(
        s,
        p,
        mean,
        max((by_seed - residual) / p, 0.0),
        max((by_problem - residual) / s, 0.0),
        residual,
        math.sqrt(by_seed / (s * p)),
    )


def two_way(values: ArrayLike, level: float = 0.95) -> Interval:
    """Interval for the grand mean of (S, P): seeds and problems both drawn at random.

    With the components above, Var(mean) = var_seed/S + var_problem/P + var_residual/(SP). Since
    negative components are cut at zero this is never below MS_seed/(SP), the variance over seeds
    alone, nor MS_problem/(SP), the one over problems alone. Its degrees of freedom are
    Satterthwaite's. By itself that covers only 87-93 % where few seeds meet a large seed effect:
    when MS_seed comes out small by chance, the df jump from S - 1 to P - 1. So the interval is the
    wider of this and of the plain t interval over the S seed means (S - 1 df). In simulations
    with S = 2..6, P = 30..400 and any ratio of the components it covers 94-98 % (up to 99.5 % for
    S = 2 without any seed effect); a test repeats a part of them.

    S = 1 falls back to problems alone, and `method` says that the seed isn't covered.

    >>> i = two_way([[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
    >>> round(i.value, 4), round(i.low, 4), round(i.high, 4), i.n
    (0.5833, -0.0841, 1.2507, 12)
    >>> two_way([[0.0, 1.0]]).method
    't on problem means; training seed not covered (one seed)'
    """
    parts = components(values)
    s, p = parts.seeds, parts.problems
    if s == 1 and p == 1:
        method = "one seed, one problem: no interval"
    elif s == 1:
        method = "t on problem means; training seed not covered (one seed)"
    elif p == 1:
        method = "t on seed means; problems not covered (one problem)"
    else:
        method = "two-way random effects (seeds x problems)"
    half, se, df = max(
        ((quantile(df, level) * se, se, df) for se, df in parts.terms()), key=lambda term: term[0]
    )
    return Interval(parts.mean, parts.mean - half, parts.mean + half, se, df, s * p, method)


@dataclass(frozen=True)
class Comparison:
    """A paired difference a - b with everything needed to judge it.

    `p` is two-sided and unadjusted; `detectable` is the smallest true difference that this design
    finds with 80 % power; `identical` says that no cell differs at all.
    """

    difference: Interval
    p: float
    detectable: float
    parts: Components
    identical: bool


def paired(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Comparison:
    """Compare two (S, P) tables cell by cell: same training seeds, same problems, same order.

    `two_way` on d = a - b. Pairing takes away what both share (hard problems, a lucky seed). The
    p value belongs to the same interval: the larger of the two-way and the seeds-only one.

    A constant difference other than zero (d has no spread) leaves nothing to estimate noise from:
    the interval is NaN and p is the sign test's over the smallest facet with more than one level.

    >>> a = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1]])
    >>> c = paired(a, np.zeros((3, 4)))
    >>> c.difference.value, c.p < 0.05
    (0.8333333333333334, True)
    >>> paired(a, a).identical
    True
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"paired tables must have one shape, not {x.shape} and {y.shape}")
    d = x - y
    parts, difference = components(d), two_way(d, level)
    identical = bool(np.abs(d).max() < SAME)
    if np.ptp(d) < SAME and d.size > 1:
        if identical:
            return Comparison(difference, 1.0, NAN, parts, True)
        unknown = replace(difference, low=NAN, high=NAN, method="no spread: no interval")
        smallest = min(n for n in d.shape if n > 1)
        return Comparison(unknown, min(1.0, 2.0 ** (1 - smallest)), NAN, parts, False)
    # seed means that agree exactly leave nothing to test over seeds alone (se 0)
    terms = [(se, df) for se, df in parts.terms() if se != 0]
    p = max(2 * float(stats.t.sf(abs(parts.mean) / se, df)) for se, df in terms)
    return Comparison(difference, p, detectable(parts, alpha=1 - level), parts, identical)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given; NaN stays NaN and isn't counted.

    Sorted ascending, p_(i) becomes max over j <= i of min(1, (m - j + 1) p_(j)). Keeps the chance
    of any false finding below alpha without assuming independence. Source: Holm 1979.

    >>> [round(v, 6) for v in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    tested = sorted((i for i, v in enumerate(p) if not math.isnan(v)), key=lambda i: p[i])
    adjusted, running = list(p), 0.0
    for rank, i in enumerate(tested):
        running = max(running, min(1.0, (len(tested) - rank) * p[i]))
        adjusted[i] = running
    return adjusted


def detectable(
    parts: Components, seeds: int | None = None, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Minimum detectable effect: the true difference found with `power` at level `alpha`.

    Solves P(|T| > t_{1-a/2, df}) = power for a noncentral t with noncentrality effect / se, for
    each of the two ways in `Components.terms`; the larger one. Source: Cohen 1988, chapter 2. The
    measured components are taken as true, so it is itself only an estimate.

    One facet of 16 units with variance 1: the textbook's 0.75 standard deviations.

    >>> round(detectable(Components(1, 16, 0.0, NAN, 1.0, NAN)), 2)
    0.75
    """
    return max(effect_of(se, df, alpha, power) for se, df in parts.terms(seeds))


def seeds_needed(
    parts: Components, effect: float, alpha: float = 0.05, power: float = 0.8, most: int = 1000
) -> int | None:
    """Paired training seeds that would settle a true difference of `effect` with `power`.

    The smallest S >= 2 whose `detectable` is at most |effect|, with the same problems and the
    measured components. None when no number up to `most` does: with one seed measured the seed's
    variance is unknown, and when var_problem / P alone is too large only more problems help.

    >>> seeds_needed(Components(4, 400, -0.01, 0.030**2, 0.0, 0.1), 0.02)
    25
    """
    effect = abs(effect)
    if math.isnan(parts.var_seed) or not detectable(parts, most, alpha, power) <= effect:
        return None
    low, high = 2, most
    while low < high:
        middle = (low + high) // 2
        if detectable(parts, middle, alpha, power) <= effect:
            high = middle
        else:
            low = middle + 1
    return low


def verdict(difference: float, p: float, alpha: float = 0.05) -> Verdict:
    """What a (Holm-adjusted) p value lets one say about a difference.

    "not separable" is no proof of equality: see `Comparison.detectable` for what was in reach.

    >>> verdict(0.02, 0.03), verdict(-0.02, 0.03), verdict(0.02, 0.3), verdict(0.02, NAN)
    ('better', 'worse', 'not separable', 'not separable')
    """
    if not p < alpha or difference == 0:
        return "not separable"
    return "better" if difference > 0 else "worse"


@lru_cache(maxsize=1)
def _legendre() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return nodes, weights


def effect_of(se: float, df: float, alpha: float, power: float) -> float:
    """The true effect that a two-sided t test with this standard error finds with `power`.

    For a one-sided test give twice its level: the far tail holds next to nothing.

    >>> round(effect_of(1.0, 1e9, 0.05, 0.8), 2), effect_of(0.0, 9, 0.05, 0.8)
    (2.8, 0.0)
    """
    if math.isnan(se) or se == 0:
        return NAN if math.isnan(se) else 0.0
    critical = float(stats.t.ppf(1 - alpha / 2, df))
    # P(|T| > critical) for a noncentral T, as the mean over the chi distribution of its
    # denominator (scipy's nct gives NaN for the large shifts that 1 or 2 df need).
    nodes, weights = _legendre()
    scale = critical * np.sqrt(stats.chi2.ppf((nodes + 1) / 2, df) / df)

    def missing(shift: float) -> float:
        found = stats.norm.cdf(shift - scale) + stats.norm.cdf(-shift - scale)
        return float(found @ weights) / 2 - power

    return se * float(optimize.brentq(missing, 0.0, 4 * critical + 10))
