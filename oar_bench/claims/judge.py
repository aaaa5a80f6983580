"""The verdicts on all claims together, with the chance of any wrong one bounded.

Each row has two one-sided tests: for its claim and against it. Holm's step-down (Holm 1979) runs
over the rows twice, once for each direction, each at half of alpha. So the chance of any false
`supported` stays below alpha / 2 and that of any false `contradicted` too, whatever the dependence
of the rows. Rows without sampling error (counted operations, logged means) are in neither family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oar_bench.claims.evidence import Evidence
from oar_bench.claims.spec import Claims, NonInferiority
from oar_bench.claims.testing import Judged, Outcome, Word, run_tests
from oar_bench.evaluation.statistics import holm


@dataclass(frozen=True)
class Settle:
    """How many units in all would settle a row with 80 % power, were the observed value the true
    one, and the verdict that this would give. `count` is None where more units alone never would.
    """

    unit: str
    count: int | None
    word: Word


@dataclass(frozen=True)
class Verdict:
    """A row with its verdict; p values adjusted by Holm, each within its direction.

    `level` is what an adjusted p must be below: half of the claims' alpha.
    """

    row: Outcome
    word: Word
    p_for: float
    p_against: float
    level: float
    settle: Settle | None = None

    @property
    def both(self) -> bool:
        """Whether both directions are shown: a real difference, but smaller than the margin."""
        return self.p_for < self.level and self.p_against < self.level


def judge(claims: Claims, found: Sequence[Evidence], *, settle: bool = True) -> list[Verdict]:
    """A verdict on every test of every claim, on each evidence: all of them one family.

    Args:
        claims: what is claimed, and alpha.
        found: what was measured, one of each reproduction.
        settle: also work out what would settle an inconclusive row.
    """
    rows = [row for claim in claims.claims for of in found for row in run_tests(claim, of)]
    level = claims.alpha / 2
    adjusted = zip(holm([r.p_for for r in rows]), holm([r.p_against for r in rows]), strict=True)
    family = sum(not math.isnan(row.p_for) for row in rows)
    verdicts = []
    for row, (p_for, p_against) in zip(rows, adjusted, strict=True):
        word = row.fixed or decide(row, p_for < level, p_against < level)
        open_ = settle and word == "inconclusive" and row.fixed is None
        needed = what_settles(row, level / family) if open_ else None
        verdicts.append(Verdict(row, word, p_for, p_against, level, needed))
    return verdicts


def decide(row: Outcome, shown: bool, refuted: bool) -> Word:
    """The verdict, from what both one-sided tests show.

    Both can hold only where the two bounds enclose a margin. Then the claim is taken at its word:
    a gain is a gain however small, and so is a loss against "at least as good".
    """
    if shown and refuted:
        return "contradicted" if isinstance(row.test, NonInferiority) else "supported"
    return "supported" if shown else "contradicted" if refuted else "inconclusive"


def what_settles(row: Outcome, level: float) -> Settle:
    """What would settle a row, the cheaper of its two verdicts; see `Settle`.

    `level` is that of a one-sided test after Bonferroni over the rows, Holm's first step: a count
    that is enough when every other row stays open.
    """
    ways = [
        Settle(row.unit, _all([_needed(row, one, 0, level) for one in row.judged]), "supported"),
        Settle(row.unit, _any([_needed(row, one, 1, level) for one in row.judged]),
               "contradicted"),
    ]  # fmt: skip
    return min(ways, key=lambda way: math.inf if way.count is None else way.count)


def _needed(row: Outcome, one: Judged, direction: int, level: float) -> int | None:
    distance = one.distances[direction]
    if distance <= 0:
        return None
    count = one.sample.seeds if row.problems and row.unit == "seed" else one.sample.units
    return count(distance, level)


def _all(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _any(counts: Sequence[int | None]) -> int | None:
    return min((count for count in counts if count is not None), default=None)
