"""Whether a run and a baseline may be compared at all, and what else moved between them."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from oar_bench.errors import InputError
from oar_bench.regression.snapshot import Key, Result, Snapshot, TaskOf
from oar_bench.reporting.contestants import NO_SEED
from oar_bench.reporting.frames import START
from oar_bench.reporting.likeness import Difference, allowed, differences
from oar_bench.reporting.text import listed

BASELINE, RUN = "the baseline", "the run"
PROBLEMS = "problems"


def matched(before: Snapshot, now: Snapshot) -> dict[Key, Key]:
    """The baseline's results that the run has too, and what they go by there.

    Where each side has one result of a task they are matched whatever their names: a checkpoint
    evaluated anew, outside its run.
    """
    pairs = {key: key for key in before.results if key in now.results}
    for task in now.tasks:
        mine, theirs = ([k for k in s.results if k[0] == task] for s in (now, before))
        if len(mine) == len(theirs) == 1:
            pairs[theirs[0]] = mine[0]
    if not pairs and not before.tasks.keys() & now.tasks.keys():
        raise InputError(
            f"this is of {listed([*now.tasks])}, but the baseline is of {listed([*before.tasks])}",
            now.name, "give a baseline of the same tasks",
        )  # fmt: skip
    if not pairs:
        has = listed([f"{m} on {t}" for t, m in dict.fromkeys(k[:2] for k in before.results)])
        raise InputError(
            f"nothing here is in the baseline, which has {has}", now.name,
            "give the run's own folder, METHOD/seed-S",
        )  # fmt: skip
    return pairs


def renamed(pairs: Mapping[Key, Key]) -> list[str]:
    """That a result is held against one of another name, the only one of its task on each side.

    >>> renamed({("oar_sum", "grpo", 0): ("oar_sum", "model", -1)})
    ['model here is held against grpo, seed 0 of the baseline: each has that result alone']
    """
    others = {(who(theirs), who(mine)) for theirs, mine in pairs.items() if theirs != mine}
    return [f"{mine} here is held against {theirs} of the baseline: each has that result alone"
            for theirs, mine in sorted(others)]  # fmt: skip


def absent(before: Snapshot, now: Snapshot, pairs: Mapping[Key, Key]) -> list[Key]:
    """Results of the baseline that the run, by what its folder is of, should have and hasn't."""
    methods, runs = {key[1] for key in pairs}, {key[1:] for key in pairs}
    return [
        key for key in before.results
        if key not in pairs
        and (now.covers == "reproduction"
             or (now.covers == "method" and key[1] in methods)
             or (now.covers == "run" and key[1:] in runs))
    ]  # fmt: skip


def added(before: Snapshot, now: Snapshot, pairs: Mapping[Key, Key]) -> list[str]:
    """What the run has and the baseline hasn't: a new method by name, of an old one the seed."""
    old = {key[:2] for key in before.results}
    new = sorted(set(now.results) - set(pairs.values()))
    names = [f"{who(k) if k[:2] in old else k[1]} on {k[0]}" for k in new]
    return [*dict.fromkeys(names)]


def gone_from(before: Snapshot, now: Snapshot) -> list[str]:
    """What a baseline had and the one that takes its place has not."""
    return [f"{who(key)} on {key[0]}" for key in before.results if key not in now.results]


def who(key: Key) -> str:
    """The method and seed of a result, in words.

    >>> who(("oar_sum", "grpo", 1)), who(("oar_sum", "model", -1))
    ('grpo, seed 1', 'model')
    """
    _, method, seed = key
    return f"{method}{'' if seed == NO_SEED else f', seed {seed}'}"


def said(key: Key) -> str:
    """That a result of the baseline isn't there.

    >>> said(("oar_sum", "grpo", 1))
    'grpo, seed 1 has no finished result on oar_sum'
    """
    return f"{who(key)} has no finished result on {key[0]}"


def known(snapshot: Snapshot) -> Iterator[str]:
    """Every field by which a snapshot may be unlike another, or its runs each other."""
    yield PROBLEMS
    yield from snapshot.own
    for of in snapshot.tasks.values():
        yield from of.fields
    for result in snapshot.results.values():
        yield from (f"fingerprints.{name}" for name in result.training)


def differing(before: Snapshot, now: Snapshot, pairs: Mapping[Key, Key]) -> Iterator[Difference]:
    """Every field in which the two differ, each once for a task or for all training runs."""
    for task in dict.fromkeys(key[0] for key in pairs):
        sides = (BASELINE, before.tasks[task]), (RUN, now.tasks[task])
        yield from differences([(f"{where} on {task}", _fields(of)) for where, of in sides])
    seen: set[str] = set()
    for theirs, mine in pairs.items():
        first, second = before.results[theirs].training, now.results[mine].training
        both = first.keys() & second.keys()
        where = f"{mine[1]}, seed {mine[2]}"
        for found in differences(
            [(f"{side} ({where})", {f"fingerprints.{k}": of[k] for k in sorted(both)})
             for side, of in ((BASELINE, first), (RUN, second))]
        ):  # fmt: skip
            if found[0] not in seen:
                seen.add(found[0])
                yield found


def _fields(of: TaskOf) -> dict[str, str]:
    return {PROBLEMS: f"{of.problems} ({of.names})", **of.fields}


def judged(found: Iterable[Difference], allow: Names[str]) -> tuple[list[str], list[str]]:
    """Sentences on what may not and on what may differ. Pairs need the same problems, always."""
    unlike, notes = [], []
    for name, mine, here, theirs, there in found:
        line = f"{name} is {theirs} in {there} but {mine} in {here}"
        if name == PROBLEMS:
            unlike.append(f"{line}: evaluate on the same ones")
        elif allowed(name, allow):
            notes.append(f"unlike, allowed: {line}")
        else:
            unlike.append(f"{line}: check like with like, or add --allow {name}")
    return unlike, notes


def changed_settings(before: Snapshot, now: Snapshot) -> list[str]:
    """Settings of training and package versions that moved: no reason to refuse, but a cause."""
    lines = []
    if before.settings and now.settings:
        sides = ((BASELINE, before.settings), (RUN, now.settings))
        lines += [f"{name} is {theirs} in the baseline but {mine} here"
                  for name, mine, _, theirs, _ in differences(sides)]  # fmt: skip
    packages = [of.environment.get("packages", {}) for of in (before, now)]
    if all(isinstance(of, dict) for of in packages):
        moved = [f"{k} {packages[0].get(k, 'absent')} -> {packages[1].get(k, 'absent')}"
                 for k in {**packages[0], **packages[1]}
                 if packages[0].get(k) != packages[1].get(k)]  # fmt: skip
        lines += [f"other versions: {', '.join(moved)}"] if moved else []
    return lines


def moved_starts(before: Snapshot, now: Snapshot, shared: Mapping[Key, Key]) -> list[str]:
    """A start that is another model isn't checked, and moves what began from it."""
    lines = []
    for theirs, mine in shared.items():
        was, result = before.results[theirs], now.results[mine]
        if theirs[1] == START and was.model != result.model:
            a, b = (_score(of) for of in (was, result))
            which = "" if theirs[2] == NO_SEED else f" of seed {theirs[2]}"
            lines.append(
                f"the start{which} is another model (accuracy {100 * a:.1f} % in the baseline, "
                f"{100 * b:.1f} % here): what all runs from it share isn't in the intervals"
            )
    return lines


def _score(result: Result) -> float:
    return float(np.mean(result.counts.correct)) / result.counts.samples
