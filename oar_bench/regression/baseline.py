"""The baseline file: what `oar-bench check` compares with, kept in the repository.

One JSON object: per-problem counts (never a text or a problem's name), the fingerprints and
settings that they hold under, the limits to check with, and why each version of it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oar_bench import __version__
from oar_bench.errors import InputError
from oar_bench.records import read_json, write_json
from oar_bench.regression.counts import KEPT, Counts, decode, encode
from oar_bench.regression.limits import METRICS, limits_of
from oar_bench.regression.snapshot import Result, Snapshot, TaskOf
from oar_bench.reporting.text import visible
from oar_bench.resources import shipped

SCHEMA = 1
"""Version of the file. Raised when a field changes its meaning."""
ANOTHER = "remove it and write it again by --update"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Why(_Part):
    """One version of the file: when, why, by which code, and its scores by task and method."""

    date: str
    reason: str
    version: str
    git: str | None
    scores: dict[str, dict[str, float]]


class _Task(_Part):
    problems: int = Field(ge=1)
    names: str
    samples: int = Field(ge=1)
    fields: dict[str, str]


class _Result(_Part):
    task: str
    method: str
    seed: int
    model: str
    training: dict[str, str]
    correct: str
    no_answer: str
    truncated: str | None
    tokens: str | None


class _Cost(_Part):
    method: str
    seed: int
    step_time: float | None = Field(gt=0)
    memory_mb: float | None = Field(gt=0)


class _File(_Part):
    schema_version: int = Field(alias="schema")
    kind: Literal["baseline"]
    name: str
    whole: bool
    alpha: float | None = Field(gt=0, lt=0.5)
    limits: dict[str, str]
    history: list[_Why] = Field(min_length=1)
    tasks: dict[str, _Task]
    results: list[_Result] = Field(min_length=1)
    costs: list[_Cost]
    settings: dict[str, str]
    environment: dict[str, Any]


@dataclass(frozen=True)
class Baseline:
    """A baseline: its results, the limits and alpha kept with it, and its history, newest last."""

    snapshot: Snapshot
    limits: Mapping[str, str]
    alpha: float | None
    history: tuple[Mapping[str, Any], ...]

    @property
    def latest(self) -> Mapping[str, Any]:
        """When and why the file was written last."""
        return self.history[-1]


def is_name(text: str) -> bool:
    """Whether a word names a shipped baseline rather than a file."""
    return not text.endswith(".json") and "/" not in text and text not in ("", ".", "..")


def baseline_path(text: str) -> Path:
    """A baseline's file, by its path or, without .json and slashes, by its shipped name.

    >>> baseline_path("smoke").name, str(baseline_path("mine/x.json"))
    ('smoke.json', 'mine/x.json')
    """
    if not is_name(text):
        return Path(text)
    return shipped("baselines") / "expected" / f"{text}.json"


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises InputError when it is absent, no baseline, of another schema, or damaged.
    """
    if path.is_dir():
        raise InputError("a baseline's file is expected, not a folder", str(path))
    if not path.exists():
        known = sorted(p.stem for p in (shipped("baselines") / "expected").glob("*.json"))
        shipped_ones = f", or give a shipped one: {', '.join(known)}" if known else ""
        raise InputError("no such baseline", str(path), f"write it by --update{shipped_ones}")
    content = read_json(path)
    if content.get("kind") != "baseline":
        raise InputError("this is no baseline", str(path), "give a file that --update wrote")
    if content.get("schema") != SCHEMA:
        raise InputError(
            f"schema {content.get('schema')!r}, but this version reads {SCHEMA}", str(path), ANOTHER
        )
    try:
        file = _File.model_validate(content)
        limits_of({name: size for name, size in file.limits.items() if name in METRICS})
        return _restored(file)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        said = first["msg"][:1].lower() + first["msg"][1:]
        raise InputError(f"damaged: {place}: {said}", str(path), ANOTHER) from error
    except (KeyError, ValueError) as error:
        raise InputError(f"damaged: {error}", str(path), ANOTHER) from error


def _restored(file: _File) -> Baseline:
    tasks = {visible(name): TaskOf(of.problems, of.names, of.samples, of.fields)
             for name, of in file.tasks.items()}  # fmt: skip
    if unknown := sorted(set(file.limits) - set(METRICS)):
        raise ValueError(f"a limit on {unknown[0]!r}")
    results = {}
    for row in file.results:
        of = tasks[visible(row.task)]
        texts = {name: getattr(row, name) for name in KEPT}
        decoded = {k: None if v is None else decode(v, of.problems) for k, v in texts.items()}
        for name in ("correct", "no_answer", "truncated"):
            values = decoded[name]
            if values is not None and values.max() > of.samples:
                raise ValueError(f"{name} counts more than {of.samples} samples")
        if (decoded["correct"] + decoded["no_answer"]).max() > of.samples:  # type: ignore[operator]
            raise ValueError(f"right and without an answer are more than {of.samples} samples")
        key = (visible(row.task), visible(row.method), row.seed)
        if key in results:
            raise ValueError(f"{row.method} with seed {row.seed} is there twice")
        counts = Counts(of.samples, **decoded)  # type: ignore[arg-type]
        results[key] = Result(counts, row.model, row.training)
    costs = [(visible(c.method), c.seed, c) for c in file.costs]
    if len({c[:2] for c in costs}) < len(costs):
        raise ValueError("costs of one run are there twice")
    snapshot = Snapshot(
        visible(file.name), "reproduction" if file.whole else "run", tasks, results,
        {(m, s): c.step_time for m, s, c in costs if c.step_time is not None},
        {(m, s): c.memory_mb for m, s, c in costs if c.memory_mb is not None},
        file.settings, file.environment,
    )  # fmt: skip
    history = tuple(entry.model_dump() for entry in file.history)
    return Baseline(snapshot, file.limits, file.alpha, history)


def write_baseline(
    path: Path, now: Snapshot, reason: str, limits: Mapping[str, str], alpha: float | None,
    before: Baseline | None = None,
) -> Mapping[str, Any]:  # fmt: skip
    """Write a baseline from what is there now; returns the entry that its history gains.

    `limits` and `alpha` are kept in it and used when a check names none; what `before` (the file
    that this one replaces) has and they don't is kept. Raises InputError without a reason.
    """
    reason = " ".join(visible(reason).split())
    if not reason:
        raise InputError("a reason is needed", "--update", "add --reason 'why the numbers move'")
    entry = {
        "date": datetime.now(UTC).date().isoformat(),
        "reason": reason,
        "version": __version__,
        "git": now.environment.get("git"),
        "scores": scores_of(now),
    }
    keys = dict.fromkeys([*now.step_time, *now.memory])
    write_json(path, {
        "schema": SCHEMA,
        "kind": "baseline",
        "name": visible(path.stem),
        "whole": now.covers == "reproduction",
        "alpha": alpha if alpha is not None else before.alpha if before else None,
        "limits": {**(before.limits if before else {}), **limits},
        "history": [*(before.history if before else ()), entry],
        "tasks": {name: vars(of) for name, of in now.tasks.items()},
        "results": [
            {"task": task, "method": method, "seed": seed, "model": result.model,
             "training": result.training, **_encoded(result.counts)}
            for (task, method, seed), result in now.results.items()
        ],
        "costs": [
            {"method": key[0], "seed": key[1], "step_time": now.step_time.get(key),
             "memory_mb": now.memory.get(key)}
            for key in keys
        ],
        "settings": now.settings,
        "environment": now.environment,
    })  # fmt: skip
    return entry


def _encoded(counts: Counts) -> dict[str, str | None]:
    kept = {name: getattr(counts, name) for name in KEPT}
    return {name: None if of is None else encode(of) for name, of in kept.items()}


def scores_of(snapshot: Snapshot) -> dict[str, dict[str, float]]:
    """Mean accuracy by task and method, over seeds and problems, as shares."""
    found: dict[str, dict[str, float]] = {}
    for task in snapshot.tasks:
        for method in snapshot.methods(task):
            seeds = snapshot.seeds(task, method)
            every = [snapshot.results[task, method, s].counts.means("correct") for s in seeds]
            found.setdefault(task, {})[method] = round(float(np.mean(every)), 6)  # type: ignore[arg-type]
    return found
