"""What each check finds: accuracy, truncation, no answer and tokens by problem; time and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from oar_bench.evaluation.intervals import NAN, Floats
from oar_bench.regression.decide import Measured, Verdict, measure, seed_noise
from oar_bench.regression.limits import METRICS
from oar_bench.regression.snapshot import FEWEST_STEPS, Key, Snapshot
from oar_bench.reporting.frames import START
from oar_bench.reporting.text import listed

KEPT_AS = {"drop": "correct", "truncated": "truncated", "no-answer": "no_answer",
           "tokens": "tokens"}  # fmt: skip
MOST_LOST = 5


@dataclass(frozen=True)
class Check:
    """One thing that was checked, in natural signs: `change` is now minus before.

    Shares for accuracy, truncation and no answer; tokens, step time and memory change by a share
    of the baseline's. `low` and `high` are one-sided bounds of the change at 1 - alpha each,
    `detectable` the minimum detectable effect. NaN stands for what isn't known. `lost` are the
    problems that lost most, for accuracy.
    """

    metric: str
    task: str
    method: str
    seeds: tuple[int, ...]
    before: float
    now: float
    change: float
    limit: float
    low: float = NAN
    high: float = NAN
    p_worse: float = NAN
    p_margin: float = NAN
    detectable: float = NAN
    identical: bool = False
    verdict: Verdict = "not checked"
    lost: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What is checked, in words."""
        on = f" on {self.task}" if self.task else ""
        return f"{METRICS[self.metric].title} of {self.method}{on}"


def of_problems(
    metric: str, task: str, limit: float, alpha: float, before: Snapshot, now: Snapshot,
    shared: Mapping[Key, Key],
) -> list[tuple[Check, Measured]]:  # fmt: skip
    """The checks of one metric on one task, a method each, with their seeds' noise pooled."""
    name, tables = KEPT_AS[metric], {}
    for method in dict.fromkeys(key[1] for key in shared):
        keys = sorted(k for k in shared if k[1] == method)
        if method == START:
            keys = [k for k in keys if before.results[k].model == now.results[shared[k]].model]
        seeds = tuple(k[2] for k in keys)
        was = before.table(task, method, seeds, name)
        of = [now.results[shared[k]].counts.means(name) for k in keys]
        if was is not None and all(row is not None for row in of):
            tables[method] = (seeds, was, np.stack([row for row in of if row is not None]))
    scale = {m: float(was.mean()) or 1.0 if metric == "tokens" else 1.0
             for m, (_, was, _) in tables.items()}  # fmt: skip
    sign = -1.0 if metric == "drop" else 1.0
    worse = {m: sign * (is_now - was) / scale[m] for m, (_, was, is_now) in tables.items()}
    luck = _luck(before, task, name, scale)
    found = []
    for method, (seeds, was, is_now) in tables.items():
        own = [] if method == START else [w for m, w in worse.items() if m != START]
        samples = min(before.tasks[task].samples, now.tasks[task].samples)
        redrawn = any(before.results[theirs].model != now.results[mine].model
                      for theirs, mine in shared.items() if theirs[1] == method)  # fmt: skip
        measured = measure(
            worse[method], limit, cells=own, step=0.0 if metric == "tokens" else 1 / samples,
            redrawn=redrawn and method != START,
            prior=None if method == START else seed_noise([*luck.values()]),
            own_prior=seed_noise([luck[method]]) if method in luck else None,
        )  # fmt: skip
        check = _check(metric, task, method, seeds, measured, alpha, was.mean(), is_now.mean())
        lost = _lost(was, is_now, now.problems.get(task, ())) if metric == "drop" else ()
        found.append((replace(check, lost=lost), measured))
    return found


def _luck(
    before: Snapshot, task: str, name: str, scale: Mapping[str, float]
) -> dict[str, Floats]:  # fmt: skip
    """The baseline's tables by method, of all its seeds: how far those lie apart."""
    tables = {m: before.table(task, m, before.seeds(task, m), name)
              for m in before.methods(task) if m != START}  # fmt: skip
    return {m: of / scale.get(m, float(of.mean()) or 1.0) if name == "tokens" else of
            for m, of in tables.items() if of is not None}  # fmt: skip


def _check(
    metric: str, task: str, method: str, seeds: tuple[int, ...], measured: Measured, alpha: float,
    before: float, now: float,
) -> Check:  # fmt: skip
    """A check without its verdict, in natural signs."""
    low, high = measured.bounds(alpha)
    low, high, change = (back(metric, x) for x in (low, high, measured.value))
    if metric == "drop":
        low, high, change = -high, -low, -change
    return Check(
        metric, task, method, seeds, float(before), float(now), change + 0.0,
        back(metric, measured.margin), low, high, identical=measured.identical,
    )  # fmt: skip


def back(metric: str, value: float) -> float:
    """A step time is tested as a log ratio: back to a share of the baseline's."""
    return math.expm1(value) if metric == "step-time" else value


def _lost(was: Floats, is_now: Floats, names: tuple[str, ...]) -> tuple[str, ...]:
    """The problems that lost most, with their shares before and now."""
    a, b = was.mean(axis=0), is_now.mean(axis=0)
    order = np.argsort(b - a, kind="stable")[:MOST_LOST]
    return tuple(f"{names[i]} {100 * a[i]:.0f} -> {100 * b[i]:.0f} %"
                 for i in order if b[i] < a[i] and i < len(names))  # fmt: skip


def step_times(
    before: Snapshot, now: Snapshot, limit: float | None, alpha: float
) -> tuple[list[tuple[Check, Measured]], list[str]]:
    """Each method's step over grpo's step of the same run, as log ratios by seed."""
    if limit is None:
        return [], []
    logs = {m: {s: math.log(r) for (n, s), r in before.step_time.items() if n == m}
            for m in dict.fromkeys(m for m, _ in before.step_time)}  # fmt: skip
    shared = {m: [s for s in of if (m, s) in now.step_time] for m, of in logs.items()}
    tables = {m: (np.array([[math.log(now.step_time[m, s])] for s in seeds]),
                  np.array([[logs[m][s]] for s in seeds]))
              for m, seeds in shared.items() if len(seeds) > 1}  # fmt: skip
    worse = {m: is_now - was for m, (is_now, was) in tables.items()}
    every = {m: np.array([[log] for log in of.values()]) for m, of in logs.items()}
    found = []
    for method, w in worse.items():
        measured = measure(
            w, math.log1p(limit), cells=[*worse.values()], prior=seed_noise([*every.values()]),
            own_prior=seed_noise([every[method]]),
        )  # fmt: skip
        is_now, was = (float(np.exp(of.mean())) for of in tables[method])
        seeds = tuple(shared[method])
        found.append((_check("step-time", "", method, seeds, measured, alpha, was, is_now),
                      measured))  # fmt: skip
    whole = now.covers == "reproduction"
    timed = [m for m, of in logs.items() if m not in tables and of] if whole else []
    why = f"two seeds with grpo and {FEWEST_STEPS} timed steps each are needed"
    return found, [f"step time of {listed(timed)} isn't checked: {why}"] if timed else []


def uncounted(
    before: Snapshot, now: Snapshot, shared: Mapping[Key, Key], limits: Mapping[str, float | None]
) -> list[str]:  # fmt: skip
    """What the baseline has of these results but the run hasn't, so that it isn't checked."""
    lost: dict[tuple[str, str], None] = {}
    for metric, name in KEPT_AS.items():
        for theirs, mine in shared.items() if limits[metric] is not None else ():
            was, is_now = (getattr(of.counts, name) for of in
                           (before.results[theirs], now.results[mine]))  # fmt: skip
            if was is not None and is_now is None:
                lost[METRICS[metric].title, theirs[1]] = None
    if limits["memory"] is not None:
        runs = {(theirs[1], theirs[2]) for theirs, mine in shared.items() if theirs == mine}
        gone = {m for m, s in runs if (m, s) in before.memory and (m, s) not in now.memory}
        lost |= {(METRICS["memory"].title, method): None for method in sorted(gone)}
    of_what = {what: [m for w, m in lost if w == what] for what, _ in lost}
    return [f"{what} of {listed(methods)} isn't known of every run here, as it is in the baseline"
            for what, methods in of_what.items()]  # fmt: skip


def memory(before: Snapshot, now: Snapshot, limit: float | None) -> list[Check]:
    """The peak of each method, mean over seeds: one number, so a threshold and no test."""
    checks = []
    for method in dict.fromkeys(m for m, _ in before.memory) if limit is not None else ():
        seeds = tuple(s for m, s in before.memory if m == method and (m, s) in now.memory)
        if not seeds or limit is None:
            continue
        was, is_now = (float(np.mean([of.memory[method, s] for s in seeds]))
                       for of in (before, now))  # fmt: skip
        change = is_now / was - 1
        checks.append(Check("memory", "", method, seeds, was, is_now, change, limit,
                            verdict="pass" if change <= limit else "regression"))  # fmt: skip
    return checks
