"""Intervals for the mean of one vector of problem means. Use them by way of `statistics`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
NAN = float("nan")


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval. NaN stands for what the data can't tell.

    `value`, `low`, `high`, `se` share the unit of the input; `df` are the degrees of freedom of
    the t quantile used (inf for a normal one); `n` counts the units (problems, or seeds x
    problems); `method` says how it was made.
    """

    value: float
    low: float
    high: float
    se: float
    df: float
    n: int
    method: str

    def clipped(self, low: float = 0.0, high: float = 1.0) -> Interval:
        """The same interval cut to the possible range of the value."""
        return replace(
            self,
            low=float(np.clip(self.low, low, high)),
            high=float(np.clip(self.high, low, high)),
        )


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student's t interval for the mean of (P,) problem means.

    mean +- t_{1-a/2, P-1} * s / sqrt(P), s with P - 1. Source: Student 1908; for benchmark scores
    Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640, section 2. One problem alone has
    no spread: se, low and high are NaN then.

    >>> t = t_interval([0.0, 0.5, 1.0])
    >>> t.value, round(t.se, 4), round(t.low, 4), round(t.high, 4)
    (0.5, 0.2887, -0.7421, 1.7421)
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ValueError(f"a non-empty vector of problem means is needed, not shape {x.shape}")
    n, mean = x.size, float(x.mean())
    if n == 1:
        return Interval(mean, NAN, NAN, NAN, NAN, 1, "one problem: no interval")
    se = float(x.std(ddof=1)) / math.sqrt(n)
    half = quantile(n - 1, level) * se
    return Interval(mean, mean - half, mean + half, se, n - 1, n, "t on problem means")


def wilson_interval(share: float, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for a share of n independent yes/no units.

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n). Source: Wilson 1927; recommended
    over Wald's by Brown, Cai, DasGupta 2001. It keeps a width at 0 % and 100 %.

    >>> w = wilson_interval(1.0, 10)
    >>> round(w.low, 4), w.high
    (0.7225, 1.0)
    """
    if n < 1 or not 0 <= share <= 1:
        raise ValueError(f"a share within 0..1 of at least one unit is needed, not {share} of {n}")
    z = float(stats.norm.ppf((1 + level) / 2))
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    spread = share * (1 - share) / n
    half = z * math.sqrt(spread + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if share == 0 else max(middle - half, 0.0)
    high = 1.0 if share == 1 else min(middle + half, 1.0)
    return Interval(share, low, high, math.sqrt(spread), math.inf, n, "Wilson")


def share_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """The interval for a mean of problem means within [0, 1]: t, or Wilson where t fails.

    t on the problem means, cut to [0, 1]. When all problem means are equal (all right, all wrong,
    or one problem only) their spread is zero and t's width would be too: then Wilson's interval
    for P yes/no units, which is wider than any other distribution of problem means allows.

    >>> share_interval([1.0, 1.0, 1.0]).method
    'Wilson'
    >>> share_interval([1.0, 0.5, 1.0]).high
    1.0
    """
    x = np.asarray(values, dtype=np.float64)
    interval = t_interval(x, level)
    if interval.se > 0:
        return interval.clipped()
    return wilson_interval(float(np.clip(interval.value, 0.0, 1.0)), x.size, level)


def bootstrap_interval(
    values: ArrayLike, seed: int = 0, draws: int = 4000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap over problems, seeded: a check on `t_interval`, not the headline.

    Resample P problems with replacement `draws` times; the quantiles of the means. Source: Efron
    1979. It is a little too narrow for small P (by about sqrt((P-1)/P), and z instead of t).

    >>> b = bootstrap_interval([0.0, 1.0] * 50)
    >>> abs(b.low - t_interval([0.0, 1.0] * 50).low) < 0.02
    True
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ValueError(f"a non-empty vector of problem means is needed, not shape {x.shape}")
    generator = np.random.default_rng(seed)
    means = np.array([x[generator.integers(0, x.size, x.size)].mean() for _ in range(draws)])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    se = float(means.std(ddof=1))
    return Interval(float(x.mean()), float(low), float(high), se, math.inf, x.size, "bootstrap")


@lru_cache(maxsize=4096)
def quantile(df: float, level: float) -> float:
    """The two-sided t quantile for `level`.

    >>> round(quantile(9, 0.95), 4)
    2.2622
    """
    return float(stats.t.ppf((1 + level) / 2, df))
