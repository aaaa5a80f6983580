"""From the rows of a run to what there is to see of it: pure functions, no files, no terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

State = Literal["not begun", "starting", "running", "interrupted", "finished", "unreadable"]

RECENT = 10  # steps that a mean is taken over
TIMED = 20  # newest steps that say how long a step takes
HUGE = 1e150
QUANTITIES = {
    "reward": "reward",
    "kl_start": "KL to the start",
    "response_length": "response length",
    "truncated": "truncated",
    "grad_norm": "gradient norm",
    "logprob_gap": "gap to sampler",
}
"""Columns of metrics.jsonl that are shown, and what they are called."""
ELSEWHERE_ONLY = frozenset({"logprob_gap"})
"""Those that a run has only where another engine samples."""
SHARES = frozenset({"truncated"})
"""Those that are shares of the responses, shown in per cent."""


@dataclass(frozen=True)
class Quantity:
    """One number of a run over its steps.

    Attributes:
        key: its name in metrics.jsonl.
        latest: of the newest step; may be infinite or NaN, None when that step has none.
        recent: mean of the finite values among the newest `RECENT` steps; None: there are none.
        series: value of each step in order, None where it is missing or not finite.
    """

    key: str
    latest: float | None
    recent: float | None
    series: tuple[float | None, ...]


@dataclass(frozen=True)
class Phase:
    """A phase of a step: mean seconds a step, and its share of the time of the steps."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True)
class RunView:
    """What there is to see of a run.

    Attributes:
        label: what it is called among others.
        recipe, method, seed: as run.json says; empty and None where it doesn't.
        state: not begun (no run.json), starting (none yet, but a process holds the folder),
            running, interrupted (unfinished, and no process holds the folder), finished,
            unreadable (run.json is damaged).
        step, steps: steps done and to be done; `steps` None: not known.
        quantities: one for each name in `QUANTITIES` that the run has, in that order.
        phases: by their order in a step, over the newest steps.
        step_seconds: mean of the newest steps, checkpoints included; None: none is timed.
        spent: seconds in all steps that have rows.
        left: seconds to the end; None when that can't be said, 0 when finished.
        idle: seconds since a row was last written; None: none was.
        damaged: complete lines of its files that are no JSON object.
        note: what is wrong with it, or empty.
    """

    label: str
    recipe: str
    method: str
    seed: int | None
    state: State
    step: int
    steps: int | None
    quantities: tuple[Quantity, ...]
    phases: tuple[Phase, ...]
    step_seconds: float | None
    spent: float
    left: float | None
    idle: float | None = None
    damaged: int = 0
    note: str = ""

    def quantity(self, key: str) -> Quantity:
        """The quantity of that name in metrics.jsonl."""
        return next(found for found in self.quantities if found.key == key)


@dataclass(frozen=True)
class Rows:
    """Rows of a run by step: the metrics row, and seconds by phase in the order they were spent."""

    metrics: Mapping[int, Mapping[str, Any]]
    timing: Mapping[int, Mapping[str, float]]


def number(value: Any) -> float | None:
    """A JSON value as a float when it is a number (which may be infinite), else None.

    Beyond 1e150 it counts as infinite, so that sums of what is finite are finite.

    >>> number(3), number("3"), number(True), number(-(10**400))
    (3.0, None, None, -inf)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) > HUGE:
        return math.inf if value > 0 else -math.inf
    return float(value)


def whole(value: Any) -> int | None:
    """A JSON value as a count of steps, 1 to 1e12; None when it is none.

    >>> whole(3), whole(0), whole(2.0), whole(True), whole(10**400)
    (3, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= 10**12 else None


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def state_of(about: Mapping[str, Any] | None, held: bool) -> State:
    """The state of a run by its run.json (None: absent) and whether a process holds its folder.

    >>> state_of({"status": "running"}, held=False)
    'interrupted'
    """
    if about is None:
        return "starting" if held else "not begun"
    if about.get("status") == "finished":
        return "finished"
    return "running" if held else "interrupted"


def quantity(key: str, metrics: Mapping[int, Mapping[str, Any]]) -> Quantity:
    """One column of the metrics rows.

    >>> quantity("reward", {1: {"reward": 0.25}, 2: {}, 3: {"reward": 0.75}})
    Quantity(key='reward', latest=0.75, recent=0.5, series=(0.25, None, 0.75))
    """
    values = [number(metrics[step].get(key)) for step in sorted(metrics)]
    series = tuple(v if v is not None and math.isfinite(v) else None for v in values)
    recent = [v for v in series[-RECENT:] if v is not None]
    return Quantity(key, values[-1] if values else None, mean(recent), series)


def timed_steps(timing: Mapping[int, Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Seconds by phase of the newest steps; the run's first, which pays for warm-up, if alone."""
    steps = sorted(timing)
    return [timing[step] for step in (steps[1:] or steps)[-TIMED:]]


def phases_of(timing: Mapping[int, Mapping[str, float]]) -> tuple[Phase, ...]:
    """The phases of the newest steps.

    >>> phases_of({1: {"rollout": 9.0}, 2: {"rollout": 3.0, "update": 1.0}})
    (Phase(name='rollout', seconds=3.0, share=0.75), Phase(name='update', seconds=1.0, share=0.25))
    """
    newest = timed_steps(timing)
    totals: dict[str, float] = {}
    for row in newest:
        for name, seconds in row.items():
            totals[name] = totals.get(name, 0.0) + seconds
    whole_time = math.fsum(totals.values())
    if not whole_time > 0:
        return ()
    return tuple(
        Phase(name, total / len(newest), total / whole_time) for name, total in totals.items()
    )


def run_view(
    label: str,
    about: Mapping[str, Any] | None,
    rows: Rows,
    state: State,
    *,
    idle: float | None = None,
    damaged: int = 0,
    note: str = "",
) -> RunView:
    """The view of a run from its run.json (None: absent) and its rows; see `RunView`.

    >>> rows = Rows({2: {"reward": 0.5}}, {1: {"rollout": 4.0}, 2: {"rollout": 2.0}})
    >>> view = run_view("a", {"settings": {"train": {"steps": 5}}}, rows, "running")
    >>> view.step, view.steps, view.step_seconds, view.left
    (2, 5, 2.0, 6.0)
    """
    about = about or {}
    settings = _inside(about, "settings")
    steps = whole(_inside(settings, "train").get("steps"))
    step = max(rows.metrics, default=0)
    each = mean([math.fsum(row.values()) for row in timed_steps(rows.timing)])
    left = None
    if state == "finished":
        left = 0.0
    elif each is not None and steps is not None:
        left = each * max(0, steps - step)
    seed = about.get("seed")
    return RunView(
        label=label,
        recipe=str(about.get("recipe") or ""),
        method=str(about.get("method") or ""),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        state=state,
        step=step,
        steps=steps,
        quantities=tuple(
            quantity(key, rows.metrics)
            for key in QUANTITIES
            if key not in ELSEWHERE_ONLY or any(key in row for row in rows.metrics.values())
        ),
        phases=phases_of(rows.timing),
        step_seconds=each,
        spent=math.fsum(s for row in rows.timing.values() for s in row.values()),
        left=left,
        idle=idle,
        damaged=damaged,
        note=note,
    )


def _inside(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class ProjectView:
    """Runs that belong together: a reproduction, or whatever lies in a folder.

    Attributes:
        label: its folder, within the one that is watched.
        planned: whether it is a reproduction, whose runs are known before they begin.
        held: whether a process holds the reproduction's folder.
        reported: whether a reproduction has its report.
        runs: in the order in which they are made.
        step, steps: over all runs; `steps` None: not known.
        left: seconds of training to the end at the newest pace; None when that can't be said.
    """

    label: str
    planned: bool
    held: bool
    reported: bool
    runs: tuple[RunView, ...]
    step: int
    steps: int | None
    left: float | None

    @property
    def state(self) -> State:
        """The state of all together: running when any is."""
        states = [run.state for run in self.runs]
        if self.held or "running" in states or "starting" in states:
            return "running"
        for state in ("unreadable", "interrupted"):
            if state in states:
                return state
        if states and all(state == "finished" for state in states):
            return "finished" if self.reported or not self.planned else "interrupted"
        return "interrupted" if self.planned else "not begun"


def project_view(
    label: str, runs: Sequence[RunView], *, planned: bool, held: bool, reported: bool = False
) -> ProjectView:
    """Runs taken together; one that is not begun has the steps and pace of its fellows."""
    known = [run.steps for run in runs if run.steps is not None]
    total = max(known, default=None)
    paces = [run.step_seconds for run in runs if run.step_seconds is not None]
    pace = mean(paces)
    left: float | None = 0.0
    for run in runs:
        rest = 0 if run.state == "finished" else max(0, (run.steps or total or 0) - run.step)
        each = run.step_seconds if run.step_seconds is not None else pace
        if rest and each is not None and left is not None:
            left += rest * each
        elif rest or (total is None and run.state != "finished"):
            left = None
    steps = sum(run.steps or total for run in runs) if total is not None else None
    return ProjectView(
        label, planned, held, reported, tuple(runs), sum(run.step for run in runs), steps, left
    )


def as_dict(view: RunView) -> dict[str, Any]:
    """A run's view for scripts: JSON without infinities, quantities by name, no series.

    >>> rows = Rows({1: {"reward": 0.5, "grad_norm": float("inf")}}, {})
    >>> found = as_dict(run_view("a", None, rows, "running"))
    >>> found["metrics"]["reward"], found["metrics"]["grad_norm"], found["step"]
    ({'latest': 0.5, 'recent': 0.5}, {'latest': None, 'recent': None}, 1)
    """
    plain = {
        field.name: getattr(view, field.name)
        for field in fields(view)
        if field.name not in ("quantities", "phases")
    }
    plain["metrics"] = {
        found.key: {"latest": _finite(found.latest), "recent": found.recent}
        for found in view.quantities
    }
    plain["phases"] = {
        phase.name: {"seconds": _finite(phase.seconds), "share": phase.share}
        for phase in view.phases
    }
    return {key: _finite(v) if isinstance(v, float) else v for key, v in plain.items()}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
