"""`oar-bench compare`: two or more results, paired problem by problem.

Each argument is one contestant: an evaluation folder, a folder of several tasks, a run (with its
eval/), or a method (its seed-*/ are paired by training seed). Every pair of contestants is tested
on every task that both have; p values are adjusted by Holm over all of these tests.
"""

from __future__ import annotations

import math
from collections.abc import Collection as Names
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from oar_bench.errors import InputError
from oar_bench.evaluation import metrics
from oar_bench.evaluation.statistics import Floats, Interval, holm, paired, verdict
from oar_bench.reporting.common import on_common_problems
from oar_bench.reporting.comparison import Pair, judge, mean_of, over_seeds
from oar_bench.reporting.contestants import NO_SEED, Contestant, load_contestant, names_of
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.likeness import (
    OF_ROWS,
    PROBLEMS,
    check_allow,
    evaluation_fields,
    unlike_evaluations,
)

SAME = 1e-12
NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Standing:
    """A contestant on a task; shares. `place` is best, tied or behind (the best), by the tests.

    One that is a number without samples is `NOT_TESTED`, as is one that meets only such.
    """

    name: str
    seeds: int
    mean: Interval
    truncated: float
    no_answer: float
    tokens: float
    majority: float | None
    place: str = ""


@dataclass(frozen=True)
class Duel:
    """One test, a - b: `pair` holds difference, p (Holm), verdict and detectable effect.

    `wins`, `losses` and `ties` count problems on which a is better than, worse than or level
    with b, by its mean over seeds and samples.
    """

    pair: Pair
    wins: int
    losses: int
    ties: int

    @property
    def word(self) -> str:
        """The verdict on a in one word: better, worse, tied, or identical."""
        if self.pair.test.identical:
            return "identical"
        return "tied" if self.pair.verdict == "not separable" else self.pair.verdict


@dataclass(frozen=True)
class Meeting:
    """All contestants of one task and their tests; 0 problems and k where all are numbers."""

    task: str
    problems: int
    k: int
    standings: list[Standing]
    duels: list[Duel]


@dataclass(frozen=True)
class HeadToHead:
    """The whole comparison; `allowed`, `left_out` and `not_tested` are sentences for it."""

    meetings: list[Meeting]
    allowed: list[str]
    left_out: list[str]
    not_tested: list[str]


def head_to_head(paths: Sequence[Path], allow: Names[str] = ()) -> HeadToHead:
    """Compare the results at two or more paths.

    Raises InputError when a path holds no finished evaluation, no task is shared, or two results
    of one task differ in a setting or fingerprint (other than the model's) that `allow` doesn't
    name.
    """
    if len(paths) < 2:
        raise InputError("two or more results are needed", "compare", "give two folders or more")
    contestants = [
        load_contestant(path, name, allow)
        for path, name in zip(paths, names_of(paths), strict=True)
    ]
    every = [e for c in contestants for of in c.tasks.values() for e in of.values()]
    check_allow(
        allow, [PROBLEMS, *OF_ROWS, *(name for e in every for name in evaluation_fields(e))]
    )
    meetings, allowed = [], []
    left_out = [line for contestant in contestants for line in contestant.left_out]
    for task in sorted({task for c in contestants for task in (*c.tasks, *c.stated)}):
        present = [c for c in contestants if task in c.tasks]
        numbers = [c for c in contestants if task in c.stated and task not in c.tasks]
        absent = [c.name for c in contestants if task not in c.tasks and task not in c.stated]
        if absent:
            left_out.append(f"{task}: {', '.join(absent)} has no results")
        if len(present) + len(numbers) < 2:
            continue
        if len(present) > 1:
            if PROBLEMS in allow:
                present, notes = _on_common_problems(task, present)
                allowed += notes
            allowed += unlike_evaluations(
                [e for c in present for e in c.tasks[task].values()], allow
            )
        meetings.append(_meeting(task, present, numbers))
    if not meetings:
        raise InputError(
            "no task is in two of the results", "compare", "evaluate both on the same task"
        )
    not_tested = [line for contestant in contestants for line in contestant.not_tested]
    return HeadToHead(_judged(meetings), allowed, left_out, not_tested)


def _on_common_problems(task: str, present: list[Contestant]) -> tuple[list[Contestant], list[str]]:
    every = [e for c in present for e in c.tasks[task].values()]
    cut, notes = on_common_problems(every)
    ready = iter(cut)
    return [
        replace(c, tasks={task: {seed: next(ready) for seed in c.tasks[task]}}) for c in present
    ], notes


def _meeting(task: str, present: list[Contestant], numbers: list[Contestant]) -> Meeting:
    duels = [_duel(task, b, a) for a, b in combinations(present, 2)]
    size, k = next(iter(present[0].tasks[task].values())).matrix.values.shape if present else (0, 0)
    standings = [_standing(task, c) for c in present]
    return Meeting(task, size, k, standings + [_stated(task, c) for c in numbers], duels)


def _stated(task: str, contestant: Contestant) -> Standing:
    mean = contestant.stated[task].mean
    return Standing(contestant.name, 1, mean, math.nan, math.nan, math.nan, None, NOT_TESTED)


def _standing(task: str, contestant: Contestant) -> Standing:
    found = list(contestant.tasks[task].values())
    about = [evaluation.metrics for evaluation in found]
    k = found[0].matrix.values.shape[1]
    majority = [m[f"maj@{k}"]["value"] for m in about if f"maj@{k}" in m]
    return Standing(
        contestant.name,
        len(found),
        over_seeds(np.stack([metrics.avg_at_k(e.matrix.values) for e in found])),
        mean_of(about, "truncated"),
        mean_of(about, "no_answer"),
        mean_of(about, "response_tokens"),
        float(np.mean(majority)) if len(majority) == len(about) else None,
    )


def _duel(task: str, a: Contestant, b: Contestant) -> Duel:
    """a - b over the seeds that both have.

    One evaluation each is paired whatever its seed; one of no seed stands against every seed.
    """
    mine, theirs = a.tasks[task], b.tasks[task]
    seeds = [seed for seed in mine if seed in theirs]
    if len(mine) == len(theirs) == 1:
        seeds = [*mine]
        left, right = [*mine.values()], [*theirs.values()]
    elif NO_SEED in mine or NO_SEED in theirs:
        seeds = [*(theirs if NO_SEED in mine else mine)]
        left = [mine[seed if seed in mine else NO_SEED] for seed in seeds]
        right = [theirs[seed if seed in theirs else NO_SEED] for seed in seeds]
    elif seeds:
        left, right = [mine[s] for s in seeds], [theirs[s] for s in seeds]
    else:
        raise InputError(f"{a.name} and {b.name} have no training seed in common", task)
    x, y = _table(left), _table(right)
    d = (x - y).mean(axis=0)
    return Duel(
        judge(task, a.name, b.name, tuple(seeds), paired(x, y)),
        int((d > SAME).sum()), int((d < -SAME).sum()), int((np.abs(d) <= SAME).sum()),
    )  # fmt: skip


def _table(evaluations: list[Evaluation]) -> Floats:
    return np.stack([metrics.avg_at_k(e.matrix.values) for e in evaluations])


def _judged(meetings: list[Meeting]) -> list[Meeting]:
    """Holm over every test of every task, then the standings from the verdicts."""
    adjusted = iter(holm([duel.pair.p for m in meetings for duel in m.duels]))
    done = []
    for meeting in meetings:
        duels = []
        for duel in meeting.duels:
            p = next(adjusted)
            word = verdict(duel.pair.test.difference.value, p)
            duels.append(replace(duel, pair=replace(duel.pair, p=p, verdict=word)))
        done.append(replace(meeting, duels=duels, standings=_placed(meeting.standings, duels)))
    return done


def _placed(standings: list[Standing], duels: list[Duel]) -> list[Standing]:
    """best: alone on top and separable from all others; tied: not separable from the highest."""
    tested = [s for s in standings if s.place != NOT_TESTED]
    if len(tested) < 2:
        return [replace(s, place=NOT_TESTED) for s in standings]
    top = max(tested, key=lambda s: s.mean.value).name
    behind = {
        duel.pair.b if duel.pair.verdict == "better" else duel.pair.a
        for duel in duels
        if top in (duel.pair.a, duel.pair.b) and duel.pair.verdict != "not separable"
    } - {top}
    alone = len(behind) == len(tested) - 1

    def place(name: str) -> str:
        if name in behind:
            return "behind"
        return "best" if alone else "tied"

    return [s if s.place == NOT_TESTED else replace(s, place=place(s.name)) for s in standings]
