"""Read runs from their folders, and find the runs of a folder; nothing is ever written.

A look takes the lock's state first and run.json after it: a run that ends in between is then seen
as finished, never as interrupted.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.monitor.follow import Follower
from oar_bench.monitor.view import (
    ProjectView,
    Rows,
    RunView,
    State,
    number,
    project_view,
    run_view,
    state_of,
    whole,
)
from oar_bench.records import is_owned, read_json

RUN, PROJECT = "run.json", "reproduce.json"
DEPTH = 4  # folders between the one that is watched and a run: SUITE/RECIPE/runs/METHOD/seed-0
ELSEWHERE = frozenset({"checkpoints", "eval", "start", "tables", "figures", "tensorboard", "wandb"})
"""Folders of a run or a reproduction that hold no runs."""


class RunReader:
    """One run's folder, read on at each look."""

    def __init__(self, path: Path, label: str = "") -> None:
        self.path, self.label = path, label or path.name
        self._metrics = Follower(path / "metrics.jsonl")
        self._timing = Follower(path / "timing.jsonl")
        self._damaged = {self._metrics: 0, self._timing: 0}
        self.metrics: dict[int, dict[str, Any]] = {}
        """Metrics rows by step."""
        self.timing: dict[int, dict[str, float]] = {}
        """Seconds by step and phase."""

    def read_rows(self) -> None:
        """Read what was added to the files of rows."""
        for row in self._added(self._metrics, self.metrics):
            step = whole(row.get("step"))
            if step is not None:
                self.metrics[step] = row
        for row in self._added(self._timing, self.timing):
            step, seconds = whole(row.get("step")), number(row.get("seconds"))
            if step is not None and seconds is not None and 0 <= seconds < math.inf:
                phases = self.timing.setdefault(step, {})
                name = str(row.get("phase"))
                phases[name] = phases.get(name, 0.0) + seconds

    def _added(self, follower: Follower, kept: dict[int, Any]) -> list[dict[str, Any]]:
        update = follower.poll()
        if update.restarted:
            kept.clear()
            self._damaged[follower] = 0
        self._damaged[follower] += update.damaged
        return update.rows

    def about(self) -> dict[str, Any] | None:
        """The content of run.json; None: absent. InputError when it is damaged."""
        file = self.path / RUN
        return read_json(file) if file.exists() else None

    def look(self, now: float | None = None) -> RunView:
        """Read on, and say what there is to see; `now` in seconds since the epoch."""
        held, note = is_owned(self.path), ""
        about: dict[str, Any] | None = None
        state: State = "unreadable"
        try:
            about = self.about()
            state = state_of(about, held)
        except InputError as error:
            note = str(error)
        self.read_rows()
        changed = self._metrics.changed if self.metrics else None
        idle = None
        if changed is not None:
            idle = max(0.0, (time.time() if now is None else now) - changed)
        return run_view(
            self.label, about, Rows(self.metrics, self.timing), state,
            idle=idle, damaged=sum(self._damaged.values()), note=note,
        )  # fmt: skip


@dataclass(frozen=True)
class Snapshot:
    """All that is watched, at one moment."""

    projects: tuple[ProjectView, ...]

    @property
    def runs(self) -> list[RunView]:
        """All runs."""
        return [run for project in self.projects for run in project.runs]

    @property
    def finished(self) -> bool:
        """Whether nothing more is to come."""
        return bool(self.projects) and all(p.state == "finished" for p in self.projects)


class Watcher:
    """A run, a reproduction, a suite of them, or any folder with runs in it."""

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise InputError(
                "a run's folder is expected, not a file", str(root), "name the folder it lies in"
            )
        self.root = root
        self._readers: dict[Path, RunReader] = {}

    def look(self, now: float | None = None) -> Snapshot:
        """Find the runs anew, and read on in each."""
        found = _folders(self.root)
        projects = [path for path in found if (path / PROJECT).is_file()]
        runs = [path for path in found if path not in projects]
        views = []
        for project in projects:
            own = [run for run in runs if project in run.parents]
            runs = [run for run in runs if run not in own]
            views.append(self._project(project, own, now))
        if runs:
            looked = [self._reader(run, self._label(run)).look(now) for run in runs]
            views.insert(0, project_view("", looked, planned=False, held=False))
        return Snapshot(tuple(views))

    def _project(self, project: Path, runs: list[Path], now: float | None) -> ProjectView:
        held = is_owned(project)
        planned = _planned(project)
        every = [*planned, *(run for run in runs if run not in planned)]
        views = [self._reader(run, _named(run.relative_to(project))).look(now) for run in every]
        label = "" if project == self.root else self._label(project)
        reported = (project / "index.html").is_file()
        return project_view(label, views, planned=True, held=held, reported=reported)

    def _label(self, path: Path) -> str:
        return _named(path.relative_to(self.root)) if path != self.root else path.resolve().name

    def _reader(self, path: Path, label: str) -> RunReader:
        return self._readers.setdefault(path, RunReader(path, label))


def _named(path: Path) -> str:
    """A run's folder within another, without the `runs/` that says nothing.

    >>> _named(Path("runs/oar-p/seed-1"))
    'oar-p/seed-1'
    """
    return Path(*[part for part in path.parts if part != "runs"] or path.parts).as_posix()


def _folders(root: Path) -> list[Path]:
    """The folders of runs and reproductions in `root`, itself included, in the order of names."""
    return sorted(_walk(root, DEPTH))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        if depth == DEPTH:
            raise
        return  # one among others that can't be looked into
    names = {entry.name for entry in inside}
    if RUN in names:
        yield folder
        return
    if PROJECT in names:
        yield folder
    for entry in inside if depth else []:
        if entry.name not in ELSEWHERE and entry.name[0] != "." and _is_folder(entry):
            yield from _walk(folder / entry.name, depth - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # of a link into what can't be looked into
        return False


def _planned(project: Path) -> list[Path]:
    """The runs that a reproduction is to make, in its order; none when its file is damaged."""
    try:
        about = read_json(project / PROJECT)
    except InputError:
        return []
    methods, seeds = about.get("methods"), about.get("seeds")
    if not isinstance(methods, list) or not isinstance(seeds, list):
        return []
    return [
        project / "runs" / method / f"seed-{seed}"
        for seed in seeds
        for method in methods
        if isinstance(seed, int) and isinstance(method, str) and Path(method).name == method
    ]
