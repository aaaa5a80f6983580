"""Reads a folder of runs into memory, once: what is finished, and what is left out and why."""

from __future__ import annotations

import os
from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from oar_bench.errors import InputError
from oar_bench.evaluation.tally import keep_tallies
from oar_bench.records import read_json, read_jsonl
from oar_bench.reporting.evaluations import (
    Evaluation,
    check_schema,
    load_evaluation,
    mapping,
    need,
    refuse_copies,
    unpaired,
)
from oar_bench.reporting.stated import Stated, load_stated
from oar_bench.reporting.text import visible

ORDER = ("grpo", "oar-p", "oar-g", "oar-d", "oar-g0", "oar-gp", "oar-gf",
         "uniform", "shuffled", "random", "inverted", "entropy", "position")  # fmt: skip
START, REFERENCE = "start", "grpo"


@dataclass(frozen=True)
class Run:
    """A finished training run with its evaluations by task.

    `metrics` has one row a step; `timing` one row a (step, phase).
    """

    method: str
    seed: int
    where: str
    settings: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    environment: Mapping[str, Any]
    metrics: pd.DataFrame
    timing: pd.DataFrame
    evaluations: Mapping[str, Evaluation]
    imported: bool = False
    seed_known: bool = True
    """False for an import whose training seed nobody named: `seed` is a place then, no seed."""


@dataclass(frozen=True)
class LeftOut:
    """A folder that isn't in the report's tests; a number without samples is shown all the same."""

    where: str
    reason: str
    stated: Stated | None = None


@dataclass(frozen=True)
class Collection:
    """Everything that a report is made from."""

    runs: list[Run]
    start: dict[str, dict[int | None, Evaluation]] = field(default_factory=dict)
    """By task and seed what the runs began from; None: what the runs of every seed began from."""
    left_out: list[LeftOut] = field(default_factory=list)
    reproduce: Mapping[str, Any] = field(default_factory=dict)
    example: Mapping[str, Any] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """Methods in the order of tables: grpo, OAR, controls, then any others by name."""
        return sorted({run.method for run in self.runs}, key=method_order)

    @property
    def tasks(self) -> list[str]:
        """Tasks that at least one run was evaluated on, by name."""
        return sorted({task for run in self.runs for task in run.evaluations})

    def evaluations_of(self, task: str) -> dict[str, dict[int | None, Evaluation]]:
        """The evaluations on a task by method and seed, the start first where there is one."""
        found = {START: dict(self.start.get(task, {}))}
        for method in self.methods:
            runs = self.of(method)
            found[method] = {r.seed: r.evaluations[task] for r in runs if task in r.evaluations}
        return {method: of for method, of in found.items() if of}

    def of(self, method: str) -> list[Run]:
        """The runs of a method, by seed."""
        return sorted((r for r in self.runs if r.method == method), key=lambda r: r.seed)


def method_order(method: str) -> tuple[int, str]:
    """Sort key of methods: the known order first, then by name.

    >>> sorted(["zeta", "shuffled", "oar-g", "grpo"], key=method_order)
    ['grpo', 'oar-g', 'shuffled', 'zeta']
    """
    return (ORDER.index(method) if method in ORDER else len(ORDER), method)


def load(folder: Path, allow: Names[str] = ()) -> Collection:
    """Read OUT (the `--out` of `oar-bench reproduce`) or OUT/runs.

    Score rows of another evaluation or grader are refused; `allow` names fields not to check.

    Raises InputError when the folder holds no runs, nothing is finished, or a file is broken.
    """
    if not folder.is_dir():
        raise InputError("no such folder", str(folder), "give the --out of `oar-bench reproduce`")
    out, runs_folder = locate(folder)
    every = [
        *runs_folder.glob("*/seed-*/eval/*/scores.jsonl"),
        *(out / START).rglob("scores.jsonl"),
    ]
    keep_tallies(sorted(every), min(os.cpu_count() or 1, 8))
    runs: list[Run] = []
    left_out: list[LeftOut] = []
    for path in sorted(runs_folder.glob("*/seed-*/")):
        run, missing = load_run(path, f"{path.parent.name}/{path.name}", allow)
        runs += [run] if run else []
        left_out += missing
    if not runs and not left_out:
        evaluated = (folder / "results.json").is_file() or any(folder.glob("*/results.json"))
        raise InputError(
            "no runs here (METHOD/seed-S/run.json)",
            str(folder),
            "evaluations without runs are for `oar-bench compare`"
            if evaluated
            else "give the --out folder of `oar-bench reproduce`, or its runs folder",
        )
    if not runs:
        reasons = "; ".join(f"{item.where}: {item.reason}" for item in left_out)
        raise InputError(
            f"nothing finished to report ({reasons})", str(folder), "finish training and evaluation"
        )
    _refuse_twins(runs, runs_folder)
    for method, task in sorted({(run.method, task) for run in runs for task in run.evaluations}):
        refuse_copies({run.seed: run.evaluations[task] for run in runs
                       if run.method == method and task in run.evaluations})  # fmt: skip
    start, missing = _load_starts(out, allow)
    about, example = _optional(out / "reproduce.json"), _optional(out / "credit_example.json")
    return Collection(runs, start, left_out + missing, about, example)


def locate(folder: Path) -> tuple[Path, Path]:
    """(OUT, OUT/runs) from either; a folder of runs with another name is its own OUT."""
    if (folder / "runs").is_dir():
        return folder, folder / "runs"
    if (folder / "run.json").exists():
        raise InputError(
            "this is one run, not a folder of runs", str(folder), "give the folder two levels up"
        )
    return (folder.resolve().parent if folder.resolve().name == "runs" else folder), folder


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def load_run(path: Path, where: str, allow: Names[str]) -> tuple[Run | None, list[LeftOut]]:
    """The run, None when it can't be in the report, and whatever of it is left out."""
    about_file = path / "run.json"
    if not about_file.exists():
        return None, [LeftOut(where, "no run.json: training never began")]
    about = read_json(about_file)
    check_schema(about, about_file)
    method, seed = visible(str(need(about, "method", about_file))), need(about, "seed", about_file)
    if not isinstance(about["method"], str) or not method:
        raise InputError("method is no name", str(about_file))
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise InputError(f"seed is {str(seed)[:40]!r}, no whole number from 0", str(about_file))
    metrics = _numbers(path / "metrics.jsonl", ("step",), METRIC_COLUMNS)
    if need(about, "status", about_file) != "finished":
        return None, [LeftOut(where, f"training is unfinished ({len(metrics)} steps so far)")]
    evaluations, missing = _load_evaluations(path, where, allow)
    if not evaluations:
        return None, missing or [LeftOut(where, "no evaluation yet")]
    run = Run(
        method=method,
        seed=seed,
        where=where,
        settings=mapping(about, "settings", about_file),
        fingerprints=mapping(about, "fingerprints", about_file),
        environment=mapping(about, "environment", about_file),
        metrics=metrics,
        timing=_numbers(path / "timing.jsonl", ("step", "phase", "seconds"), TIMING_COLUMNS),
        evaluations=evaluations,
        imported="imported" in about,
        seed_known="imported" not in about
        or mapping(about, "imported", about_file).get("seed") is not None,
    )
    return run, missing


def _load_evaluations(
    path: Path, where: str, allow: Names[str]
) -> tuple[dict[str, Evaluation], list[LeftOut]]:
    found: dict[str, Evaluation] = {}
    missing: list[LeftOut] = []
    for folder in sorted((path / "eval").glob("[!.]*/")):  # .NAME.tmp: an import broken off
        results = _optional(folder / "results.json")
        if not results.get("complete", bool(results)):
            missing.append(LeftOut(where, f"evaluation of {folder.name} is unfinished"))
            continue
        if reason := unpaired(folder):
            missing.append(LeftOut(f"{where}/eval/{folder.name}", reason, load_stated(folder)))
            continue
        evaluation = load_evaluation(folder, f"{where}/eval/{folder.name}", allow)
        twin = found.setdefault(evaluation.task, evaluation)
        if twin is not evaluation:
            raise InputError(
                f"{twin.where} and {evaluation.where} are both of {evaluation.task}",
                str(path), "move one of them away",
            )  # fmt: skip
    return found, missing


def _load_starts(
    out: Path, allow: Names[str]
) -> tuple[dict[str, dict[int | None, Evaluation]], list[LeftOut]]:
    """The evaluations of the start that all runs share, and of those that seeds have each."""
    found: dict[str, dict[int | None, Evaluation]] = {}
    folders: list[tuple[int | None, str]] = [(None, START)]
    for path in sorted((out / START).glob("seed-*/")):
        number = path.name.removeprefix("seed-")
        if number.isdecimal():
            folders.append((int(number), f"{START}/{path.name}"))
    left_out: list[LeftOut] = []
    for seed, where in folders:
        evaluations, missing = _load_evaluations(out / where, where, allow)
        left_out += missing
        for task, evaluation in evaluations.items():
            found.setdefault(task, {})[seed] = evaluation
    return found, left_out


METRIC_COLUMNS = ("reward", "weight_mean", "weight_max", "weight_ess", "frac_no_probe",
                  "frac_zero_std")  # fmt: skip
TIMING_COLUMNS = ("seconds", "tokens", "peak_memory_mb")


def _numbers(path: Path, required: tuple[str, ...], columns: tuple[str, ...]) -> pd.DataFrame:
    """The known columns of a jsonl file by step, as numbers (`phase` as text)."""
    rows = list(read_jsonl(path))
    frame = pd.DataFrame({"step": pd.Series(dtype=float)})
    for name in dict.fromkeys((*required, *columns)):
        values = [row.get(name) for row in rows]
        if name in required and None in values:
            line = values.index(None) + 1
            raise InputError(f"line {line} lacks {name!r}", str(path))
        if name == "phase":
            frame[name] = [visible(str(value)) for value in values]
        elif any(value is not None for value in values):
            bad = [v for v in values if v is not None and not isinstance(v, int | float)]
            if bad:
                raise InputError(f"{name!r} holds what is no number", str(path))
            frame[name] = pd.Series(values, dtype=float)
    return frame


def _refuse_twins(runs: list[Run], folder: Path) -> None:
    seen: dict[tuple[str, int], str] = {}
    for run in runs:
        twin = seen.setdefault((run.method, run.seed), run.where)
        if twin != run.where:
            raise InputError(
                f"{twin} and {run.where} are both {run.method} with seed {run.seed}",
                str(folder),
                "move one of them away",
            )
