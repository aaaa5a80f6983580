"""What `oar-bench compare` is given: folders of results, read by task and training seed."""

from __future__ import annotations

import re
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oar_bench.errors import InputError
from oar_bench.records import read_json
from oar_bench.reporting.evaluations import Evaluation, load_evaluation, refuse_copies, unpaired
from oar_bench.reporting.stated import Stated, load_stated
from oar_bench.reporting.text import visible

NO_SEED = -1
_SEED = re.compile(r"seed-\d+")


@dataclass(frozen=True)
class Contestant:
    """What is compared under one name: its evaluations by task and training seed.

    What lies in no seed-S folder was trained under no seed that we know: `NO_SEED`.
    """

    name: str
    tasks: dict[str, dict[int, Evaluation]]
    left_out: tuple[str, ...] = ()
    stated: Mapping[str, Stated] = field(default_factory=dict)
    """Numbers without samples, by task."""
    not_tested: tuple[str, ...] = ()
    """What is shown and not tested, and why."""


def names_of(paths: Sequence[Path]) -> list[str]:
    """What to call the results: the parts of their paths in which they differ.

    >>> names_of([Path("/out/grpo/seed-0/eval"), Path("/out/oar-p/seed-0/eval")])
    ['grpo', 'oar-p']
    >>> names_of([Path("/out/a/x"), Path("/out/b/y")])
    ['a/x', 'b/y']
    """
    every = [path.resolve().parts for path in paths]
    if len(set(every)) < len(every):
        twice = next(p for p, parts in zip(paths, every, strict=True) if every.count(parts) > 1)
        raise InputError("given twice", str(twice), "give each result once")
    shortest = min(map(len, every))
    front = next((i for i in range(shortest) if len({p[i] for p in every}) > 1), shortest)
    back = next(
        (i for i in range(shortest - front) if len({p[-1 - i] for p in every}) > 1), 0
    )  # fmt: skip
    return [visible("/".join(p[front : len(p) - back]) or p[-1]) for p in every]


def load_contestant(path: Path, name: str, allow: Names[str]) -> Contestant:
    """Every finished evaluation of one argument, by task and seed."""
    if not path.is_dir():
        raise InputError("no such folder of results", str(path))
    found: dict[str, dict[int, Evaluation]] = {}
    left_out: list[str] = []
    not_tested: list[str] = []
    stated: dict[str, Stated] = {}
    seeds = [(int(f.name[5:]), f) for f in sorted(path.glob("seed-*/")) if _SEED.fullmatch(f.name)]
    for seed, folder in sorted(seeds) or [(_own_seed(path), path)]:
        for evaluation in _evaluations(folder):
            part = "" if evaluation == path else f"/{evaluation.relative_to(path)}"
            if reason := unpaired(evaluation):
                number = load_stated(evaluation)
                (left_out if number is None else not_tested).append(f"{name}{part}: {reason}")
                if number is not None:
                    stated[number.task] = number
                continue
            if read_json(evaluation / "results.json").get("complete") is False:
                raise InputError(
                    "this evaluation is unfinished", str(evaluation),
                    "run `oar-bench generate` and `oar-bench score` again",
                )  # fmt: skip
            loaded = load_evaluation(evaluation, f"{name}{part}", allow)
            if seed in found.setdefault(loaded.task, {}):
                raise InputError(f"two evaluations are of {loaded.task}", str(path))
            found[loaded.task][seed] = loaded
            refuse_copies(found[loaded.task])
    if not found and not stated:
        what = left_out[0].partition(": ")[2] if left_out else ""
        raise InputError(
            what or "no scored evaluation here (results.json)", str(path),
            "give a folder that `oar-bench score` or `oar-bench evaluate` wrote to",
        )  # fmt: skip
    return Contestant(name, found, tuple(left_out), stated, tuple(not_tested))


def _own_seed(path: Path) -> int:
    """The training seed that a path lies under."""
    found = [part for part in path.resolve().parts if _SEED.fullmatch(part)]
    return int(found[-1].removeprefix("seed-")) if found else NO_SEED


def _evaluations(folder: Path) -> list[Path]:
    if (folder / "results.json").is_file():
        return [folder]
    base = folder / "eval" if (folder / "eval").is_dir() else folder
    return [file.parent for file in sorted(base.glob("[!.]*/results.json"))]
