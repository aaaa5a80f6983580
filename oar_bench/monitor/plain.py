"""What is watched, where there is no terminal: lines of text, and JSON for scripts."""

from __future__ import annotations

from typing import Any

from oar_bench.console import PLAIN_EVERY
from oar_bench.monitor.draw import duration, shown, value
from oar_bench.monitor.folder import Snapshot
from oar_bench.monitor.view import ProjectView, RunView, as_dict
from oar_bench.records import SCHEMA


def brief(run: RunView) -> str:
    """One run in one line, which ends with its time left while it runs."""
    done = f"step {run.step}" + (f" of {run.steps}" if run.steps else "")
    parts = [f"{shown(run.label)}: {run.state}", done]
    parts.append(f"reward {value('reward', run.quantity('reward').latest)}")
    if run.state == "running" and run.left is not None:
        parts.append(f"about {duration(run.left)} left")
    return ", ".join([*parts, *([shown(run.note)] if run.note else [])])


class Lines:
    """Says of each run when its state changes, and while it runs how far it is now and then."""

    def __init__(self) -> None:
        self._said: dict[tuple[int, str], tuple[str, int, float]] = {}

    def of(self, found: Snapshot, now: float) -> list[str]:
        """The lines that a look at the time `now` (seconds of any clock) adds."""
        lines = []
        for place, project in enumerate(found.projects):
            for run in project.runs:
                key = (place, run.label)
                state, step, last = self._said.get(key, ("not begun", 0, now - PLAIN_EVERY))
                onward = run.state == "running" and run.step != step and now - last >= PLAIN_EVERY
                if run.state != state or onward:
                    self._said[key] = (run.state, run.step, now)
                    lines.append(brief(run))
        return lines


def as_json(found: Snapshot) -> dict[str, Any]:
    """A snapshot for scripts.

    >>> as_json(Snapshot(()))
    {'schema': 1, 'kind': 'watch', 'finished': False, 'projects': []}
    """
    return {
        "schema": SCHEMA,
        "kind": "watch",
        "finished": found.finished,
        "projects": [_project(project) for project in found.projects],
    }


def _project(project: ProjectView) -> dict[str, Any]:
    return {
        "label": project.label,
        "state": project.state,
        "held": project.held,
        "step": project.step,
        "steps": project.steps,
        "left": project.left,
        "runs": [as_dict(run) for run in project.runs],
    }


def without_clock(content: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a snapshot without what changes as time passes."""
    projects = [
        {**project, "runs": [{**run, "idle": None} for run in project["runs"]]}
        for project in content["projects"]
    ]
    return {**content, "projects": projects}
