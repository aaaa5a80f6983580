"""Only like is compared with like: refuses runs that differ in more than method and seed."""

from __future__ import annotations

import json
from collections.abc import Collection as Names
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oar_bench.errors import InputError, nearest
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import Collection, Run
from oar_bench.reporting.text import listed

MAY_DIFFER = ("method", "seed")
OF_ROWS = ("grader", "model", "fingerprint", "task")
"""Fields of single rows that `--allow` may name: see `oar_bench.evaluation.rows`."""
PROBLEMS = "problems"
"""What `--allow` may name to compare results of several problem sets on those in common."""
Difference = tuple[str, str, str, str, str]
"""A field, its value here, where that is, its value there, and where that is."""
WHICH_RUNS = "reproduce."  # the section that says which runs to make, not how to make one
# The recipe's fingerprint may hold the method, a model's always does; the settings themselves
# are compared one by one instead.
OF_THE_RUN = ("recipe", "model", "environment")
PLACES = {"data.path": "data", "model.path": "start"}
"""Settings that say where a thing lies, and the fingerprint of what lies there: with it, the place
may differ."""


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted names with JSON values.

    >>> flatten({"train": {"lr": 0.1, "seed": 3}, "name": "x"})
    {'train.lr': '0.1', 'train.seed': '3', 'name': '"x"'}
    """
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, sort_keys=True)
    return flat


def shared_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The flat settings without those that runs of one report may differ in."""
    return {
        name: value
        for name, value in flatten(settings).items()
        if name.rpartition(".")[2] not in MAY_DIFFER and not name.startswith(WHICH_RUNS)
    }


def refuse_unlike(collection: Collection, allow: Names[str] = ()) -> list[str]:
    """Raise InputError naming the field in which two runs differ; `allow` overrides by field.

    Compared are the settings apart from method and seed, the fingerprints of every run, and per
    task those of every evaluation (with the start's) and the problems themselves. Returns one
    sentence for each difference that was allowed, for the report to print.
    """
    runs = collection.runs
    check_allow(allow, known_fields(collection))
    found = [*differences((run.where, _identity_of(run)) for run in runs)]
    for seed in sorted({run.seed for run in runs if _has_own_start(run)}):
        same = [run for run in runs if run.seed == seed]
        found += differences((run.where, _marked(run.fingerprints)) for run in same)
    for task in collection.tasks:
        evaluations = [run.evaluations[task] for run in runs if task in run.evaluations]
        evaluations += collection.start.get(task, {}).values()
        refuse_other_problems(evaluations)
        found += differences((e.where, _marked(e.fingerprints)) for e in evaluations)
    return judged(found, allow, "keep like runs together")


def judged(found: Iterable[Difference], allow: Names[str], mend: str) -> list[str]:
    """A sentence for each difference that is allowed; InputError naming all fields that aren't."""
    notes: list[str] = []
    refused: dict[str, str] = {}
    for name, mine, here, theirs, there in found:
        said = f"{name} is {theirs} in {there} but {mine} in {here}"
        if allowed(name, allow):
            notes.append(said)
        else:
            refused.setdefault(name, said)
    if refused:
        first, *others = refused
        more = f"; they differ in {listed(others)} too" if others else ""
        options = " ".join(f"--allow {name}" for name in refused)
        raise InputError(
            f"unlike runs: {refused[first]}{more}", mend=f"{mend}, or add {options}"
        )  # fmt: skip
    return notes


def allowed(name: str, allow: Names[str]) -> bool:
    """Whether `--allow` covers a field: by its whole name, without its section, or by a parent.

    >>> allowed("settings.sampling.top_p", ["sampling"]), allowed("fingerprints.data", ["data"])
    (True, True)
    >>> allowed("settings.train.lr", ["lr"])
    False
    """
    short = name.removeprefix("settings.").removeprefix("fingerprints.")
    return any(
        full == given or full.startswith(f"{given}.") for given in allow for full in (name, short)
    )


def check_allow(allow: Names[str], known: Iterable[str]) -> None:
    """InputError for a word of `--allow` that covers no field: most likely it is misspelt."""
    names = sorted(set(known))
    for given in allow:
        if not any(allowed(name, [given]) for name in names):
            short = [*dict.fromkeys(name.partition(".")[2] or name for name in names)]
            raise InputError(f"no field is called {given!r}", "--allow", nearest(given, short))


def unlike_evaluations(evaluations: Sequence[Evaluation], allow: Names[str] = ()) -> list[str]:
    """Raise InputError naming the field in which evaluations of one task differ.

    Compared are the problems, then all settings and fingerprints apart from the model's. The
    sampling fingerprint is compared by the settings that it holds, which can be named.
    """
    refuse_other_problems(evaluations, "or add --allow problems to compare those in common")
    named = [(e.where, evaluation_fields(e)) for e in evaluations]
    return judged(differences(named), allow, "compare like results")


def evaluation_fields(evaluation: Evaluation) -> dict[str, str]:
    """Every field in which results of one task must agree."""
    fields = {f"settings.{key}": value for key, value in flatten(evaluation.settings).items()}
    marks = _marked(evaluation.fingerprints)
    if "sampling" in evaluation.settings:
        marks.pop("fingerprints.sampling", None)
    return fields | marks


def refuse_other_problems(evaluations: Sequence[Evaluation], or_else: str = "") -> None:
    """InputError unless all evaluations hold the same problems: they are paired one by one."""
    same = evaluations[0]
    for other in evaluations[1:]:
        here, there = set(other.matrix.problems), set(same.matrix.problems)
        if here != there:
            mend = "evaluate on the same ones"
            raise InputError(
                f"other problems than {same.where} ({len(here)} here, {len(there)} there, "
                f"{len(here & there)} in common)", other.where,
                f"{mend}, {or_else}" if or_else and here & there else mend,
            )  # fmt: skip


def _has_own_start(run: Run) -> bool:
    """Whether each seed of the run's recipe begins from weights of its own."""
    return flatten(run.settings).get("warmstart.per_seed") == "true"


def _identity_of(run: Run) -> dict[str, str]:
    """What a run must have in common with those of all seeds."""
    fields = _identity(run.settings, run.fingerprints)
    if _has_own_start(run):
        fields.pop("fingerprints.start", None)
    return fields


def known_fields(collection: Collection) -> Iterable[str]:
    """Every field by which runs of a collection may be unlike, which `--allow` may name."""
    yield from OF_ROWS
    for run in collection.runs:
        yield from _identity(run.settings, run.fingerprints)
        for evaluation in run.evaluations.values():
            yield from _marked(evaluation.fingerprints)


def _identity(settings: Mapping[str, Any], fingerprints: Mapping[str, str]) -> dict[str, str]:
    placed = [name for name, mark in PLACES.items() if mark in fingerprints]
    named = {
        f"settings.{key}": value
        for key, value in shared_settings(settings).items()
        if key not in placed
    }
    return named | _marked(fingerprints)


def _marked(fingerprints: Mapping[str, str]) -> dict[str, str]:
    return {f"fingerprints.{k}": str(v) for k, v in fingerprints.items() if k not in OF_THE_RUN}


def differences(named: Iterable[tuple[str, Mapping[str, str]]]) -> Iterable[Difference]:
    """Every field in which one of the named mappings differs from the first of them.

    >>> list(differences([("a", {"k": "1", "n": "2"}), ("b", {"k": "1"})]))
    [('n', 'absent', 'b', '2', 'a')]
    """
    items = list(named)
    there, first = items[0]
    for here, other in items[1:]:
        for key in [*first, *(key for key in other if key not in first)]:
            mine, theirs = other.get(key, "absent"), first.get(key, "absent")
            if mine != theirs:
                yield key, mine, here, theirs, there
