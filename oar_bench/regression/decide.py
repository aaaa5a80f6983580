"""Pass, regression or too little data: the decision behind `oar-bench check`, arrays in.

Everything is a *worsening*: baseline minus now for accuracy, now minus baseline for what should
stay small. A check has a margin, the worsening that is still accepted, and two one-sided tests:

- non-inferiority, H0 "the worsening is at least the margin": rejected, the check passes. So a
  worsening of the margin or more passes at most alpha of the time, however little data there is.
- worse at all, H0 "no worsening": rejected (after Holm over all checks) while non-inferiority
  isn't shown, the check is a regression. So equal re-runs are called one at most alpha of the time.

Neither shown: too little data. With enough of it (`detectable` <= margin) that hardly happens,
and an equal re-run passes; with ever more, the margin itself becomes the border.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from oar_bench.evaluation.intervals import NAN, Floats
from oar_bench.evaluation.statistics import components, effect_of, holm

Verdict = Literal["pass", "regression", "too little data", "not checked"]
Term = tuple[float, float]
"""A standard error and its degrees of freedom."""
SAME = 1e-12


@dataclass(frozen=True)
class SeedNoise:
    """Variance of one training seed's mean, in squared units, and its degrees of freedom."""

    variance: float
    df: float


def seed_noise(tables: Sequence[Floats]) -> SeedNoise | None:
    """How far the seeds of a method lie apart, pooled over methods: each table is (S, P).

    Sum of squares of the seed means about their method's mean, over sum of (S - 1). With two or
    three seeds a method's own spread says nearly nothing; methods of one recipe share model, data
    and steps, so that their seeds are taken to scatter alike. None without a method of two seeds.

    >>> seed_noise([np.array([[0.0], [0.2]]), np.array([[0.5], [0.5]])])
    SeedNoise(variance=0.010000000000000002, df=2.0)
    """
    means = [table.mean(axis=1) for table in tables if len(table) > 1]
    df = sum(len(of) - 1 for of in means)
    if not df:
        return None
    return SeedNoise(float(sum((len(of) - 1) * of.var(ddof=1) for of in means) / df), float(df))


@dataclass(frozen=True)
class Measured:
    """One check's worsening (S, P) and what is known of its noise, before any verdict.

    `value` is the mean worsening. `against_margin` are the terms that non-inferiority is tested
    by, `against_none` those for "worse at all". `identical` says that no cell differs.
    """

    value: float
    problems: int
    identical: bool
    against_margin: tuple[Term, ...]
    against_none: tuple[Term, ...]
    margin: float

    @property
    def p_margin(self) -> float:
        """One-sided p of H0: the worsening is at least the margin (1 where nothing can be said)."""
        return self._p(self.margin - self.value, self.against_margin)

    @property
    def p_worse(self) -> float:
        """One-sided p of H0: there is no worsening."""
        return self._p(self.value, self.against_none)

    def _p(self, distance: float, terms: tuple[Term, ...]) -> float:
        if not terms:  # no spread at all: the sign test over problems, if there are any to count
            return 2.0**-self.problems if distance > 0 and self.problems > 1 else 1.0
        return max(float(special.stdtr(df, -distance / se)) for se, df in terms)

    def bounds(self, alpha: float) -> tuple[float, float]:
        """The worsening's one-sided bounds at 1 - alpha each; passes if the upper one < margin."""
        if not self.against_margin:
            return NAN, NAN
        half = max(se * float(special.stdtrit(df, 1 - alpha)) for se, df in self.against_margin)
        return self.value - half, self.value + half

    def detectable(self, alpha: float, checks: int) -> float:
        """Minimum detectable effect with all of `checks` side by side, at power 1 - alpha.

        A worsening of this size is called a regression 1 - alpha of the time, and under a margin
        of this size all checks of an equal re-run pass 1 - alpha of the time: both need
        t_alpha + t_(alpha/checks) standard errors between them.
        """
        terms = {*self.against_margin, *self.against_none}
        if not terms:
            return NAN
        level = 2 * alpha / max(checks, 1)
        return max(effect_of(se, df, level, 1 - alpha) for se, df in terms)


def measure(
    worsening: Floats, margin: float, *, cells: Sequence[Floats] = (),
    prior: SeedNoise | None = None, own_prior: SeedNoise | None = None, step: float = 0.0,
    redrawn: bool = False,
) -> Measured:  # fmt: skip
    """What is known of a worsening (S, P): seeds x problems, the same on both sides.

    Args:
        worsening: the difference in each cell.
        margin: the worsening that is accepted.
        cells: the worsening of every method under the same metric and task, for the seeds' noise;
            those that are identical to the baseline are left out of it.
        prior: noise of a seed's mean within the baseline: what tells a seed's luck from a loss.
        own_prior: the same for this method alone; the larger of the two is taken.
        step: the smallest change of a cell (1/K for shares of K samples). Under a worsening of
            the margin, problem means of step/S then have a variance of at least
            margin x step / S - margin^2: the spread isn't taken to be smaller than that, or a few
            rare failures would pass as none.
        redrawn: the cells come of other weights than the baseline's: that none differs is then
            luck too, most of all where all are right or none is, and is tested like any result.

    >>> w = np.array([[0.1, 0.0, -0.1, 0.0]])
    >>> m = measure(w, 0.2)
    >>> m.value, round(m.p_margin, 3), m.p_worse
    (0.0, 0.008, 0.5)
    """
    identical = not redrawn and bool(np.abs(worsening).max() < SAME)
    found = components(worsening)
    seeds, problems = worsening.shape
    means = worsening.mean(axis=0)
    spread = float(means.var(ddof=1)) if problems > 1 else NAN
    least = max(margin * step / seeds - margin**2, 0.0)
    pooled = seed_noise([cell for cell in cells if np.abs(cell).max() >= SAME])
    of_seeds = _larger(pooled, seed_noise([worsening])) if seeds > 1 else None
    luck = _larger(prior, own_prior)
    twice = None if luck is None else SeedNoise(2 * luck.variance, luck.df)
    rest = 0.0 if math.isnan(found.var_residual) else found.var_residual / (seeds * problems)
    return Measured(
        found.mean,
        problems,
        identical,
        _terms(max(spread, least), rest, seeds, problems, of_seeds),
        _terms(spread, rest, seeds, problems, twice or of_seeds),
        margin,
    )


def _larger(pooled: SeedNoise | None, own: SeedNoise | None) -> SeedNoise | None:
    """The pooled noise, or a method's own where that is larger: it may not scatter like others."""
    if pooled is None or own is None:
        return pooled or own
    return SeedNoise(max(pooled.variance, own.variance), pooled.df)


def _terms(
    spread: float, rest: float, seeds: int, problems: int, noise: SeedNoise | None
) -> tuple[Term, ...]:
    """Over problems alone, over seeds alone, and (two seeds or more) over both at random.

    The sum is `two_way`'s: the seeds' variance holds the residual already, so it is taken off the
    problems'. Its degrees of freedom are Satterthwaite's.
    """
    terms: list[Term] = []
    over_problems = spread / problems
    if problems > 1:
        terms.append((math.sqrt(over_problems), problems - 1.0))
    if noise is not None:
        over_seeds = noise.variance / seeds
        terms.append((math.sqrt(over_seeds), noise.df))
        more = max(over_problems - rest, 0.0) if seeds > 1 and problems > 1 else 0.0
        if more and over_seeds:
            total = over_seeds + more
            pooled = over_seeds**2 / noise.df + more**2 / (problems - 1.0)
            terms.append((math.sqrt(total), total**2 / pooled))
    return tuple((se, df) for se, df in terms if se > 0)


@dataclass(frozen=True)
class Decision:
    """A check's verdict; `p_worse` is adjusted by Holm."""

    verdict: Verdict
    p_margin: float
    p_worse: float


def decide(checks: Sequence[Measured], alpha: float) -> list[Decision]:
    """The verdict on each check, all taken together.

    "Worse at all" is adjusted by Holm over the checks that differ at all. Non-inferiority isn't:
    the whole passes only if every check does, so a real regression slips through with at most the
    chance of its own test (an intersection-union test; Berger 1982).

    >>> calm = measure(np.array([[0.0, 0.0, 0.1, -0.1] * 25]), 0.05)
    >>> lost = measure(np.array([[0.3, 0.2, 0.1, 0.2] * 25]), 0.05)
    >>> [d.verdict for d in decide([calm, lost], 0.05)]
    ['pass', 'regression']
    """
    worse = holm([NAN if check.identical else check.p_worse for check in checks])
    return [
        Decision(_verdict(check, p, alpha), 0.0 if check.identical else check.p_margin,
                 1.0 if check.identical else p)
        for check, p in zip(checks, worse, strict=True)
    ]  # fmt: skip


def _verdict(check: Measured, p_worse: float, alpha: float) -> Verdict:
    if check.identical or check.p_margin < alpha:
        return "pass"
    return "regression" if p_worse < alpha else "too little data"
