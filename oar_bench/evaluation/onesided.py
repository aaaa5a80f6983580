"""One-sided tests against a bound: what a verdict on a claim is made of.

A claim says that a value is above (or below) a bound, so each of its two verdicts is one one-sided
test; both together, at the two ends of a margin, are the two one-sided tests of equivalence (TOST,
Schuirmann 1987, J. Pharmacokinet. Biopharm. 15). Values are units x nothing, or seeds x problems:
then the training seed is a level of its own, as in `statistics.paired`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from oar_bench.evaluation.intervals import NAN
from oar_bench.evaluation.statistics import (
    SAME,
    Components,
    Interval,
    components,
    detectable,
    seeds_needed,
    two_way,
)


@dataclass(frozen=True)
class Sample:
    """Values of which the mean is judged, with what their spread lets one say.

    `interval` is the two-sided 95 % one. `spread` is False where all values are equal: then there
    is no noise to measure, and a test can only count units (the sign test). `skewness` is that of
    values without a second level, 0 with one.
    """

    parts: Components
    interval: Interval
    spread: bool
    smallest: int
    skewness: float = 0.0

    def above(self, bound: float) -> float:
        """p of the hypothesis that the mean is at most `bound`: small where it is above.

        max over the ways of taking the standard error of P(T_df > (mean - bound) / se); the
        training seed is covered as in `statistics.two_way`. For values without a second level
        also `halls` statistic in place of t, the larger p of the two: far out in its tail plain t
        is several times too generous to skewed values. NaN for a single value.

        >>> round(sample([[1.0, 2.0, 3.0]]).above(0.0), 4)  # t = 2 sqrt 3, 2 df
        0.0371
        >>> sample([[0.5, 0.5, 0.5]]).above(0.0)  # no spread: three of three signs agree
        0.125
        """
        return self._tail(self.parts.mean - bound, self.skewness)

    def below(self, bound: float) -> float:
        """p of the hypothesis that the mean is at least `bound`: small where it is below.

        >>> round(sample([[1.0, 2.0, 3.0]]).below(0.0), 4)
        0.9629
        """
        return self._tail(bound - self.parts.mean, -self.skewness)

    def _tail(self, effect: float, skewness: float) -> float:
        if self.smallest < 2:
            return NAN
        if not self.spread:
            return 2.0**-self.smallest if effect > SAME else 1.0
        # seed means that agree exactly leave nothing to test over seeds alone (se 0)
        terms = [(se, df) for se, df in self.parts.terms() if se != 0]
        found = [(effect / se, df) for se, df in terms]
        if skewness:
            found += [(halls(t, skewness, self.smallest), df) for t, df in found]
        return max(float(special.stdtr(df, -t)) for t, df in found)

    def seeds(self, effect: float, level: float) -> int | None:
        """Seeds at which a true distance of `effect` to a bound is found with 80 % power.

        `level` is that of the one-sided test. None: no number up to 1000, or not known.
        """
        if effect == 0:
            return None
        if not self.spread:
            return signs(level)
        return seeds_needed(self.parts, effect, alpha=2 * level)

    def units(self, effect: float, level: float, most: int = 1000) -> int | None:
        """The same for values without a second level: how many units (problems, repeats).

        >>> sample([[1.0, 2.0, 3.0, 4.0]]).units(1.0, 0.025)  # sd 1.29, effect 0.77 sd
        16
        """
        variance = self.parts.var_problem

        def reach(n: int) -> float:
            return detectable(Components(1, n, 0.0, NAN, variance, NAN), alpha=2 * level)

        effect = abs(effect)
        if not self.spread and effect:
            return signs(level)
        if not effect or reach(most) > effect:
            return None
        low, high = 2, most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if reach(middle) <= effect else (middle + 1, high)
        return low


def halls(t: float, skewness: float, n: int) -> float:
    """Student's t of n values freed from their skewness, by a monotone cubic.

    u = t / sqrt n, g = u + a u^2 / 3 + a^2 u^3 / 27 + a / 6n for skewness a; sqrt n times that.
    Source: Hall 1992, "On the removal of skewness by transformation", JRSS B 54.

    >>> round(halls(2.0, -1.0, 16), 4)  # 4 (1/2 - 1/12 + 1/216 - 1/96)
    1.6435
    """
    u = t / math.sqrt(n)
    return math.sqrt(n) * (u + skewness * u**2 / 3 + skewness**2 * u**3 / 27 + skewness / (6 * n))


def signs(level: float) -> int:
    """Equal signs in a row that a sign test at `level` needs.

    >>> signs(0.025)
    6
    """
    return math.floor(-math.log2(level)) + 1


def sample(values: ArrayLike, level: float = 0.95) -> Sample:
    """The sample of (S, P) values: seeds x problems; (1, N) for N units without seeds.

    >>> s = sample([[0.1, 0.2], [0.3, 0.2]])
    >>> s.interval.value, s.smallest
    (0.2, 2)
    """
    x = np.asarray(values, dtype=np.float64)
    parts, interval = components(x), two_way(x, level)
    spread = bool(np.ptp(x) >= SAME)
    if not spread:
        interval = replace(interval, low=NAN, high=NAN, method="no spread: no interval")
    smallest = min((n for n in x.shape if n > 1), default=1)
    single = spread and min(x.shape) == 1 and smallest > 2
    d = x - x.mean()
    skewness = float((d**3).mean() / (d**2).mean() ** 1.5) if single else 0.0
    return Sample(parts, interval, spread, smallest, 0.0 if abs(skewness) < SAME else skewness)
