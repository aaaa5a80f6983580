"""What a check compares: the results under RUN, or the same as read from a baseline file."""

from __future__ import annotations

import math
from collections.abc import Collection as Names
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from oar_bench.errors import InputError
from oar_bench.evaluation.statistics import Floats
from oar_bench.identity import environment, fingerprint
from oar_bench.regression.counts import Counts, count
from oar_bench.reporting.contestants import NO_SEED, load_contestant
from oar_bench.reporting.costs import ratios_by_seed
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import (
    REFERENCE,
    START,
    Collection,
    Run,
    load,
    load_run,
)
from oar_bench.reporting.likeness import (
    allowed,
    evaluation_fields,
    known_fields,
    refuse_unlike,
    shared_settings,
)
from oar_bench.reporting.text import visible

MODEL = "model"
"""The method of an evaluation that lies in no training run."""
FEWEST_STEPS = 5
"""With fewer timed steps a run's median step says nothing."""
OF_TRAINING = ("start", "grader")

Key = tuple[str, str, int]
"""Task, method, training seed."""
Covers = Literal["reproduction", "method", "run", "task"]
"""All runs, all seeds of a method, all tasks of one run or model, or one task of it."""


@dataclass(frozen=True)
class TaskOf:
    """What a task's results have in common: problems in sorted order, samples of each, fields."""

    problems: int
    names: str
    samples: int
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Result:
    """One evaluation: its counts, its model's fingerprint, and those of its training run."""

    counts: Counts
    model: str
    training: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Results by (task, method, seed), costs by (method, seed), and what they were made with.

    `step_time` is the median over steps of the ratio to grpo's same step; `memory` the peak MiB of
    a run. `covers` says what the folder is of, so that nothing of that may be missing.
    `own` are the fields by which its own runs may be unlike each other.
    """

    name: str
    covers: Covers
    tasks: Mapping[str, TaskOf]
    results: Mapping[Key, Result]
    step_time: Mapping[tuple[str, int], float]
    memory: Mapping[tuple[str, int], float]
    settings: Mapping[str, str]
    environment: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own: tuple[str, ...] = ()

    def methods(self, task: str) -> list[str]:
        """Methods with results on a task, in the order in which they were read."""
        return list(dict.fromkeys(method for of, method, _ in self.results if of == task))

    def seeds(self, task: str, method: str) -> list[int]:
        """Training seeds of a method on a task, ascending."""
        return sorted(seed for t, m, seed in self.results if (t, m) == (task, method))

    def table(self, task: str, method: str, seeds: Iterable[int], name: str) -> Floats | None:
        """Problem means of one kept count, (S, P); None where a seed doesn't know it."""
        rows = [self.results[task, method, seed].counts.means(name) for seed in seeds]
        known = [row for row in rows if row is not None]
        return np.stack(known) if known and len(known) == len(rows) else None


def take(path: Path, allow: Names[str] = ()) -> Snapshot:
    """Everything finished under RUN: a reproduction, a run, a method's runs, or evaluations.

    Raises InputError when there is nothing finished, a file is broken, or results under RUN are
    unlike each other in a field that `allow` doesn't name.
    """
    if not path.is_dir():
        raise InputError("no such folder of results", str(path))
    _refuse_suite(path)
    name = visible(path.resolve().name)
    if (path / "runs").is_dir() or any(path.glob("*/seed-*/run.json")):
        collection = load(path, allow)
        names = [*known_fields(collection)]
        refuse_unlike(collection, [w for w in allow if any(allowed(n, [w]) for n in names)])
        left = tuple(f"{item.where}: {item.reason}" for item in collection.left_out)
        found = [(m, r.seed, e, r) for m in collection.methods for r in collection.of(m)
                 for e in r.evaluations.values()]  # fmt: skip
        starts: list[tuple[str, int, Evaluation, Run | None]] = [
            (START, NO_SEED if seed is None else seed, e, None)
            for of in collection.start.values() for seed, e in of.items()
        ]  # fmt: skip
        return _snapshot(name, "reproduction", [*starts, *found], collection, left)
    contestant = load_contestant(path, name, allow)
    if not contestant.tasks:
        raise InputError(
            "there is no verdict on each response here, only numbers", str(path),
            "import the result with its samples",
        )  # fmt: skip
    runs: dict[Path, Run] = {}
    placed: list[tuple[str, int, Evaluation, Run | None]] = []
    for of in contestant.tasks.values():
        for seed, evaluation in of.items():
            folder = evaluation.folder.resolve().parents[1]
            if (folder / "run.json").is_file() and folder not in runs:
                run, _ = load_run(folder, f"{folder.parent.name}/{folder.name}", allow)
                if run is None:
                    raise InputError("training is unfinished", str(folder), "resume it first")
                runs[folder] = run
            of_run = runs.get(folder)
            method = of_run.method if of_run else MODEL
            placed.append((method, of_run.seed if of_run else seed, evaluation, of_run))
    covers: Covers = "method" if any(path.glob("seed-*/")) else "run"
    if (path / "results.json").is_file():
        covers = "task"
    return _snapshot(name, covers, placed, Collection([*runs.values()]),
                     (*contestant.left_out, *contestant.not_tested))  # fmt: skip


def _refuse_suite(path: Path) -> None:
    members = sorted(p.parent.name for p in path.glob("*/reproduce.json"))
    if members and not (path / "runs").is_dir():
        raise InputError(
            f"this is a suite of {len(members)} reproductions", str(path),
            f"check each by itself, such as {visible(str(path / members[0]))}",
        )  # fmt: skip


def _snapshot(
    name: str, covers: Covers, placed: Iterable[tuple[str, int, Evaluation, Run | None]],
    collection: Collection, left_out: tuple[str, ...],
) -> Snapshot:  # fmt: skip
    tasks: dict[str, TaskOf] = {}
    problems: dict[str, tuple[str, ...]] = {}
    results: dict[Key, Result] = {}
    for method, seed, evaluation, run in placed:
        names = evaluation.matrix.problems
        of = TaskOf(len(names), fingerprint(list(names)), evaluation.matrix.values.shape[1],
                    evaluation_fields(evaluation))  # fmt: skip
        task = evaluation.task
        if tasks.setdefault(task, of) != of:
            raise InputError(
                f"results of {task} differ in their settings or problems", evaluation.where,
                "check each by itself",
            )  # fmt: skip
        problems.setdefault(task, names)
        training = {k: str(run.fingerprints[k]) for k in OF_TRAINING if k in run.fingerprints} \
            if run else {}  # fmt: skip
        model = str(evaluation.fingerprints.get("model", "unknown"))
        results[task, method, seed] = Result(count(evaluation), model, training)
    made_in = next((run.environment for run in collection.runs if run.environment), environment())
    settings = {k: v for run in collection.runs for k, v in shared_settings(run.settings).items()}
    return Snapshot(
        name, covers, tasks, results, _step_times(collection), _memory(collection), settings,
        made_in, left_out, problems, tuple(known_fields(collection)),
    )  # fmt: skip


def _step_times(collection: Collection) -> dict[tuple[str, int], float]:
    return {
        (method, seed): round(float(np.median(ratios)), 4)  # as a file keeps it
        for method in collection.methods
        if method != REFERENCE
        for seed, ratios in ratios_by_seed(collection, method).items()
        if len(ratios) >= FEWEST_STEPS
    }


def _memory(collection: Collection) -> dict[tuple[str, int], float]:
    peaks = {
        (run.method, run.seed): round(float(run.timing["peak_memory_mb"].max()), 1)
        for run in collection.runs
        if "peak_memory_mb" in run.timing
    }
    return {key: peak for key, peak in peaks.items() if math.isfinite(peak) and peak > 0}
