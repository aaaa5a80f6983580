"""A run against its baseline: whether they are alike, what each check finds, and the verdict."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from oar_bench.errors import InputError
from oar_bench.evaluation.intervals import NAN
from oar_bench.regression.alike import (
    absent,
    added,
    changed_settings,
    differing,
    judged,
    known,
    matched,
    moved_starts,
    renamed,
    said,
)
from oar_bench.regression.baseline import Baseline
from oar_bench.regression.decide import Measured, decide
from oar_bench.regression.finding import (
    KEPT_AS,
    Check,
    back,
    memory,
    of_problems,
    step_times,
    uncounted,
)
from oar_bench.regression.limits import METRICS
from oar_bench.regression.snapshot import Snapshot
from oar_bench.reporting.likeness import allowed, check_allow
from oar_bench.reporting.text import listed

MISSING = "missing"


@dataclass(frozen=True)
class Outcome:
    """The verdict on a run; `unlike` and `missing` are sentences that keep it from passing."""

    baseline: Baseline
    run: str
    alpha: float
    checks: tuple[Check, ...]
    unlike: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Literal["pass", "regression", "unlike", "too little data"]:
        """The worst of all: unlike results aren't checked, a regression outweighs little data."""
        found = {check.verdict for check in self.checks}
        if self.unlike or (self.missing and "regression" not in found):
            return "unlike"
        if "regression" in found:
            return "regression"
        return "pass" if found and "too little data" not in found else "too little data"

    @property
    def code(self) -> int:
        """The exit code: 0 pass, 1 regression, 2 unlike or too little data."""
        return {"pass": 0, "regression": 1}.get(self.verdict, 2)


def check(
    baseline: Baseline, now: Snapshot, limits: Mapping[str, float | None], alpha: float,
    allow: Names[str] = (),
) -> Outcome:  # fmt: skip
    """Check a run against a baseline.

    Args:
        baseline: as read from its file.
        now: the run's results.
        limits: by metric the accepted worsening as a share; None: not checked.
        alpha: the chance of either error: see `decide`.
        allow: fields in which both may differ, and `missing` for results that the run lacks.

    Raises InputError when nothing in the run is in the baseline, `allow` names no field, or every
    check is off.
    """
    if all(limit is None for limit in limits.values()):
        raise InputError("every check is off", "--max-drop, --limit", "leave one on")
    before = baseline.snapshot
    pairs = matched(before, now)
    check_allow(allow, [MISSING, *known(before), *known(now)])
    unlike, notes = judged(differing(before, now, pairs), allow)
    notes = [*renamed(pairs), *notes]
    missing = [said(key) for key in absent(before, now, pairs)]
    missing = [*missing, *now.left_out] if missing else []
    if missing and allowed(MISSING, allow):
        notes, missing = [*notes, *(f"missing: {line}" for line in missing)], []
    elif not missing:
        notes += now.left_out
    if new := added(before, now, pairs):
        notes.append(f"not in the baseline, not checked: {listed(new)}")
    notes += changed_settings(before, now)
    if unlike:
        return Outcome(
            baseline, now.name, alpha, (), tuple(unlike), tuple(missing), tuple(notes)
        )  # fmt: skip
    found: list[tuple[Check, Measured]] = []
    for task in dict.fromkeys(key[0] for key in pairs):
        shared = {k: v for k, v in pairs.items() if k[0] == task}
        notes += moved_starts(before, now, shared)
        for metric in KEPT_AS:
            if (limit := limits[metric]) is not None:
                found += of_problems(metric, task, limit, alpha, before, now, shared)
    timed, untimed = step_times(before, now, limits["step-time"], alpha)
    decisions = decide([measured for _, measured in [*found, *timed]], alpha)
    tested = sum(not measured.identical for _, measured in [*found, *timed])
    checks = [
        replace(c, p_worse=d.p_worse, p_margin=d.p_margin, verdict=d.verdict,
                detectable=NAN if m.identical else back(c.metric, m.detectable(alpha, tested)))
        for (c, m), d in zip([*found, *timed], decisions, strict=True)
    ]  # fmt: skip
    checks += memory(before, now, limits["memory"])
    off = [METRICS[name].title for name, limit in limits.items() if limit is None]
    notes += [*untimed, *uncounted(before, now, pairs, limits)]
    notes += [f"not checked (off): {listed(off)}"] if off else []
    return Outcome(baseline, now.name, alpha, tuple(checks), (), tuple(missing), tuple(notes))
