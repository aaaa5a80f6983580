"""The bootstrap for two levels, training seeds and problems. A check on `statistics.two_way`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from oar_bench.evaluation.intervals import Floats, Interval
from oar_bench.evaluation.statistics import components

TABLE = 2_000_000  # numbers in one block of draws: some 50 MB


def hierarchical_bootstrap(
    values: ArrayLike, seed: int = 0, draws: int = 4000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap for (S, P): seeds and problems both resampled, seeded.

    x_sp = mean + r_s + c_p + e_sp. Each draw takes S seeds and, apart from that, P problems with
    replacement: the seeds share their problems, so the levels are crossed. With weights a, b that
    count how often each was drawn, mean* = mean + a'r/S + b'c/P + a'Eb/(SP).

    Resampling the raw table instead (the "pigeonhole bootstrap", Owen 2007) counts the residual
    three times, since r and c hold a part of it, and loses 1/S of the seeds' variance. So r, c and
    e are first scaled to the variances that `components` estimates for them: the "reflated"
    bootstrap of Carpenter, Goldstein and Rasbash 2003, Applied Statistics 52(4). Its standard
    error is that of `two_way`, its shape that of the data; but it has no t quantile, and so is too
    narrow for few seeds: it covers some 80 % at S = 3.

    >>> x = np.add.outer(np.linspace(-1, 1, 12), np.linspace(-1, 1, 50))
    >>> b = hierarchical_bootstrap(x)
    >>> abs(b.value) < 1e-9, b.method
    (True, 'hierarchical bootstrap (seeds x problems)')
    """
    x = np.asarray(values, dtype=np.float64)
    parts = components(x)
    s, p = x.shape
    r, c = x.mean(axis=1) - parts.mean, x.mean(axis=0) - parts.mean
    e = x - parts.mean - r[:, None] - c[None, :]
    r, c, e = (
        _reflated(effects, variance)
        for effects, variance in (
            (r, parts.var_seed), (c, parts.var_problem), (e, parts.var_residual)
        )
    )  # fmt: skip
    generator = np.random.default_rng(seed)
    means = np.empty(draws)
    step = max(1, TABLE // p)
    for start in range(0, draws, step):
        n = min(step, draws - start)
        of_seeds = generator.multinomial(s, np.full(s, 1 / s), size=n) / s
        of_problems = generator.multinomial(p, np.full(p, 1 / p), size=n) / p
        crossed = ((of_seeds @ e) * of_problems).sum(axis=1)
        means[start : start + n] = parts.mean + of_seeds @ r + of_problems @ c + crossed
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    se, method = float(means.std(ddof=1)), "hierarchical bootstrap (seeds x problems)"
    return Interval(parts.mean, float(low), float(high), se, math.inf, s * p, method)


def _reflated(effects: Floats, variance: float) -> Floats:
    """Effects scaled so that their variance is the one estimated; zero where that is unknown."""
    spread = float((effects**2).mean())
    if math.isnan(variance) or spread == 0:
        return np.zeros_like(effects)
    return effects * math.sqrt(variance / spread)
