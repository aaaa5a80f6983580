"""From a claim's test and the evidence to p values in both directions, one row a place measured.

Nothing here is adjusted for there being several claims; `judge` does that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from oar_bench.claims.evidence import Cell, Costs, Evidence, Scores
from oar_bench.claims.spec import (
    Agreement,
    Claim,
    CostRatio,
    Mass,
    NonInferiority,
    Superiority,
    Test,
)
from oar_bench.evaluation.intervals import NAN
from oar_bench.evaluation.onesided import Sample, sample
from oar_bench.evaluation.statistics import SAME, Interval

Word = Literal["supported", "contradicted", "inconclusive", "not tested"]
FLOOR = "position"
"""The importance that uses no model, beside which every agreement is told."""
IMPORT = "oar-bench import SOURCE --out OUT --method METHOD --seed SEED  # each training run"
FEWEST = 16
"""Problems from which on the tests of correlations, which are skewed, keep their level."""


@dataclass(frozen=True)
class Judged:
    """A sample with the bounds that its mean must be shown beyond, for the claim and against it.

    `up`: the claim holds for large values.
    """

    sample: Sample
    bound_for: float
    bound_against: float
    up: bool

    @property
    def distances(self) -> tuple[float, float]:
        """How far the observed mean is beyond the two bounds; negative on the wrong side."""
        sign, mean = 1 if self.up else -1, self.sample.parts.mean
        return sign * (mean - self.bound_for), sign * (self.bound_against - mean)

    @property
    def tails(self) -> tuple[float, float]:
        """One-sided p of "the claim doesn't hold", and of "the claim holds"."""
        if self.up:
            return self.sample.above(self.bound_for), self.sample.below(self.bound_against)
        return self.sample.below(self.bound_for), self.sample.above(self.bound_against)


@dataclass(frozen=True)
class Outcome:
    """One row: a test of a claim, on one thing that was measured.

    `effect` is a difference of shares, a ratio, a correlation or a distance, with its two-sided
    95 % interval. `p_for` is small where the claim is shown, `p_against` where it is shown false;
    both NaN where there is nothing random, or too little. Then `fixed` is the verdict, and `why`
    says why. `judged` holds what the p values are of: for the claim all must hold, against it one
    is enough. `unit` is what more would settle it: `seed`, `problem` or `repeat`.
    """

    claim: Claim
    test: Test
    on: str
    effect: Interval | None = None
    p_for: float = NAN
    p_against: float = NAN
    judged: tuple[Judged, ...] = ()
    unit: str = ""
    count: int = 0
    problems: int = 0
    fixed: Word | None = None
    why: str = ""
    beside: str = ""
    command: str = ""


def run_tests(claim: Claim, evidence: Evidence) -> list[Outcome]:
    """Every test of a claim on everything that was measured; at least one row a test."""
    rows = []
    for test in claim.tests:
        found = TESTS[type(test)](claim, test, evidence)
        rows += [replace(row, on=_on(evidence, row)) for row in found]
    return rows


def _on(evidence: Evidence, row: Outcome) -> str:
    return ": ".join(part for part in (evidence.name, row.on) if part)


def _outcome(claim: Claim, test: Test, on: str, judged: Sequence[Judged], **more: Any) -> Outcome:
    """The row of one or more samples: the claim must hold for all, and fails with any."""
    tails = [one.tails for one in judged]
    p_for = max(p for p, _ in tails)  # intersection-union
    p_against = min(1.0, len(tails) * min(p for _, p in tails))  # Bonferroni
    return Outcome(claim, test, on, p_for=p_for, p_against=p_against, judged=tuple(judged), **more)


def _scores(claim: Claim, test: Superiority | NonInferiority, found: Evidence) -> list[Outcome]:
    """Paired over problems, the training seed as a second level."""
    a, b = test.a, test.b
    command = found.commands.training((a, b))
    absent = Outcome(claim, test, "", fixed="not tested", command=command)
    if isinstance(test, Superiority) and test.control and found.control_of != a:
        why = f"{b} is the control of {found.control_of} here, not of {a}"
        return [replace(absent, why=why, command=f"{command}  # credit.control_of: {a}")]
    rows = []
    for scores in found.scores:
        seeds = [s for s in scores.of.get(a, {}) if s in scores.of.get(b, {})]
        if not seeds:
            rows.append(replace(absent, on=scores.task, why=_why_unpaired(a, b, scores)))
            continue
        if unseeded := [method for method in (a, b) if method in scores.unseeded]:
            rows.append(replace(
                absent, on=scores.task, command=IMPORT,
                why=f"no training seeds in the imports of {' and '.join(unseeded)}",
            ))  # fmt: skip
            continue
        d = np.stack([scores.of[a][seed] - scores.of[b][seed] for seed in seeds])
        measured = sample(d)
        size: dict[str, Any] = {"unit": "seed", "count": d.shape[0], "problems": d.shape[1]}
        if len(seeds) < 2:
            rows.append(Outcome(
                claim, test, scores.task, measured.interval, fixed="inconclusive", **size,
                why="one paired seed says nothing of another training run",
                command=found.commands.training((a, b), 3),
            ))  # fmt: skip
            continue
        bounds = (0.0, test.margin) if isinstance(test, Superiority) else (-test.margin, 0.0)
        one = Judged(measured, *bounds, up=True)
        rows.append(_outcome(claim, test, scores.task, [one], effect=measured.interval, **size))
    return rows or [replace(absent, why="no run was evaluated")]


def _why_unpaired(a: str, b: str, scores: Scores) -> str:
    """Why two methods have no seed in common on a task."""
    told = [
        f"{method} is a number without samples" if method in scores.numbers else f"no {method} run"
        for method in (a, b)
        if method not in scores.of
    ]
    return " and ".join(told) or "no seed that both have"


def _agreement(claim: Claim, test: Agreement, found: Evidence) -> list[Outcome]:
    """Over the problems of each set of responses that was ranked."""
    command = f"{found.commands.fidelity} --method {test.of}"
    absent = Outcome(claim, test, "", fixed="not tested", command=command)
    rows = []
    for ranks in found.ranks:
        values = ranks.of.get(test.of)
        if values is None or not values.size:
            rows.append(replace(absent, on=ranks.where, why=f"{test.of} wasn't ranked there"))
            continue
        measured = sample(values[None, :])
        floor = ranks.of.get(FLOOR)
        beside = "" if floor is None or not floor.size else f"{FLOOR} alone {floor.mean():.2f}"
        size: dict[str, Any] = {"unit": "problem", "count": values.size, "problems": values.size}
        if values.size < FEWEST:
            why = f"a verdict needs at least {FEWEST} problems, and there are {values.size}"
            rows.append(Outcome(claim, test, ranks.where, measured.interval, fixed="inconclusive",
                               why=why, command=command, beside=beside,
                               **size))  # fmt: skip
            continue
        one = Judged(measured, test.at_least, test.at_least, up=True)
        effect = measured.interval.clipped(-1.0, 1.0)
        rows.append(_outcome(claim, test, ranks.where, [one], effect=effect, beside=beside, **size))
    with_ranks = [row for row in rows if row.fixed != "not tested"]
    return with_ranks or rows[:1] or [replace(absent, why="no ranks were compared")]


def _costs(claim: Claim, test: CostRatio, found: Evidence) -> list[Outcome]:
    """Over repeats where methods took turns, else over training seeds; operations as counted."""
    of = _operations if test.measure == "operations" else _seconds
    rows = [of(claim, test, costs) for costs in found.costs]
    fit = {row.unit: row for row in reversed(rows) if row}
    turns = [row for row in rows if row and row.unit != "seed"]
    if turns:
        trained = fit.get("seed")
        said = trained.effect if trained else None
        note = f"in training {said.value:.2f}" if said else ""
        return [replace(row, beside=_joined(row.beside, note)) for row in turns]
    if "seed" in fit:
        row = fit["seed"]
        return [replace(row, beside=_joined(row.beside, "methods timed one after the other"))]
    methods = ",".join(dict.fromkeys(("grpo", test.over, test.of)))
    return [Outcome(
        claim, test, "", fixed="not tested",
        why=f"{test.measure} of {test.of} and {test.over} weren't measured together",
        command=f"{found.commands.overhead} --methods {methods}",
    )]  # fmt: skip


def _pairs(test: CostRatio, costs: Costs) -> list[tuple[Cell, Cell]]:
    """The cells of both methods at the lengths that count."""
    mine, theirs = costs.find(test.of, test.phase), costs.find(test.over, test.phase)
    lengths = [length for length in mine if length in theirs]
    if test.lengths == "longest" and lengths:
        lengths = [max(lengths, key=lambda length: length or 0)]
    return [(mine[length], theirs[length]) for length in lengths]


def _seconds(claim: Claim, test: CostRatio, costs: Costs) -> Outcome | None:
    rows = []
    for mine, theirs in _pairs(test, costs):
        shared = [key for key in mine.seconds if key in theirs.seconds]
        logs = [
            math.log(mine.seconds[key] / theirs.seconds[key])
            for key in shared
            if mine.seconds[key] > 0 and theirs.seconds[key] > 0
        ]
        if logs:
            rows.append((mine.length, sample([logs]), len(logs)))
    if not rows:
        return None
    worst = max(rows, key=lambda row: row[1].parts.mean)
    count = min(n for _, _, n in rows)
    log = worst[1].interval
    effect = replace(log, value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high),
                     method=f"t on log ratios, over {costs.unit}s")  # fmt: skip
    size: dict[str, Any] = {"unit": costs.unit, "count": count, "effect": effect}
    size["beside"] = _by_length({n: math.exp(s.parts.mean) for n, s, _ in rows})
    if count < 2:
        return Outcome(claim, test, costs.where, fixed="inconclusive",
                      why=f"one {costs.unit} has no spread", **size)  # fmt: skip
    bound = math.log(test.at_most)
    judged = [Judged(s, bound, bound, up=False) for _, s, _ in rows]
    return _outcome(claim, test, costs.where, judged, **size)


def _operations(claim: Claim, test: CostRatio, costs: Costs) -> Outcome | None:
    ratios = {
        mine.length: mine.operations / theirs.operations
        for mine, theirs in _pairs(test, costs)
        if mine.operations is not None and theirs.operations
    }
    if not ratios:
        return None
    worst = max(ratios.values())
    effect = Interval(worst, worst, worst, 0.0, math.inf, len(ratios), "counted")
    word: Word = "supported" if worst <= test.at_most else "contradicted"
    return Outcome(claim, test, costs.where, effect, fixed=word, unit="count", count=len(ratios),
                  beside=_by_length(ratios))  # fmt: skip


def _by_length(ratios: Mapping[int | None, float]) -> str:
    """The ratios by length, where there is more than one, or where the one isn't all of training.

    >>> _by_length({32: 1.25, 64: 1.0}), _by_length({None: 1.3})
    ('1.25 at 32 tokens, 1.00 at 64 tokens', '')
    """
    told = [f"{value:.2f} at {n} tokens" for n, value in ratios.items() if n is not None]
    return ", ".join(told)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _mass(claim: Claim, test: Mass, found: Evidence) -> list[Outcome]:
    """Exact: the largest distance from 1 of any logged step."""
    logged = [m for m in found.masses if m.method in test.of and m.steps]
    if not logged:
        return [Outcome(
            claim, test, "", fixed="not tested", why="no run logged its weights",
            command=found.commands.training(test.of),
        )]  # fmt: skip
    drift, steps = max(m.drift for m in logged), sum(m.steps for m in logged)
    off = [m.method for m in logged if not m.kept]
    effect = Interval(drift, drift, drift, 0.0, math.inf, steps, "largest of all steps")
    word: Word = "supported" if drift <= test.tolerance + SAME else "contradicted"
    return [Outcome(
        claim, test, ", ".join(m.method for m in logged), effect, fixed=word, unit="step",
        count=steps, beside=f"preserve_mass is off for {', '.join(off)}" if off else "",
    )]  # fmt: skip


TESTS: dict[type[Any], Callable[[Claim, Any, Evidence], list[Outcome]]] = {
    Superiority: _scores,
    NonInferiority: _scores,
    Agreement: _agreement,
    CostRatio: _costs,
    Mass: _mass,
}
