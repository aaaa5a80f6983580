"""The folder of a training run: who owns it, what was asked, where it stands.

RUN/run.json           recipe, method, seed, fingerprints, environment, status
RUN/metrics.jsonl      one row a step
RUN/timing.jsonl       one row a step and phase
RUN/rollouts.jsonl     one row a response
RUN/credit.jsonl       one row a response: its importances and weights (`credit.save_weights`)
RUN/overlap.json       training problems found in test sets (`data.overlap`)
RUN/checkpoints/       step-000010/, ... each whole or absent
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.answers import Grader
from oar_bench.config import Recipe
from oar_bench.config.settings import PLACES
from oar_bench.console import say
from oar_bench.errors import InputError
from oar_bench.identity import differing, environment, fingerprint, fingerprint_files
from oar_bench.records import (
    SCHEMA,
    JsonlWriter,
    left_by_kills,
    prints_of,
    read_json,
    read_placed,
    refuse_foreign,
    repair_tail,
    write_json,
)
from oar_bench.training.checkpoint import (
    damage,
    latest_checkpoint,
    steps_of,
    tidy,
)
from oar_bench.training.processes import ALONE, Processes
from oar_bench.training.sources import Source, source_of

OTHER_SECTIONS = ("name", "data", "evaluation", "reproduce")
"""What reproduce and evaluate do with a run doesn't change the run, and the data have a fingerprint
of their own: of what is trained on, wherever it lies."""
CHANGEABLE = (
    "train.save_every", "train.micro_batch_size", "train.micro_batch_tokens", "train.logits_mib",
    "model.path", "model.gradient_checkpointing", "rollout.batch_size", "credit.memory_mib",
    "credit.save_weights", *(f"rollout.{key}" for key in PLACES),
)  # fmt: skip
"""Settings that a run may go on with another value of: where things lie (the start has its own
fingerprint), what is written beside, and the memory taken, which changes no number but by
rounding."""
STEP_FILES = ("metrics.jsonl", "timing.jsonl", "rollouts.jsonl", "credit.jsonl")


@dataclass(frozen=True)
class RunFolder:
    """A run's folder; see the module's docstring for what lies in it."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the run's checkpoints."""
        return self.path / "checkpoints"

    def final(self, steps: int) -> Path:
        """The checkpoint after the last step."""
        return self.checkpoints / f"step-{steps:06d}"

    def is_finished(self) -> bool:
        """Whether run.json says that the run is done."""
        file = self.path / "run.json"
        return file.is_file() and read_json(file).get("status") == "finished"


def describe(
    recipe: Recipe,
    method: str,
    seed: int,
    start: str,
    rollouts: Path | None = None,
    source: Source | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """The contents of run.json.

    Args:
        recipe, method, seed: of the run.
        start: fingerprint of the weights it begins from.
        rollouts: the file of responses that it learns from, if it samples none.
        source: its problems; read from the recipe if absent.
        processes: those that begin it; it may go on with others.
    """
    settings, source = recipe.settings(), source or source_of(recipe)
    with Grader(answer_type=source.answer_type, extract=source.extract) as grader:
        grader_print = grader.fingerprint
    return {
        "schema": SCHEMA,
        "kind": "training",
        "recipe": recipe.name,
        "method": method,
        "seed": seed,
        "status": "running",
        "settings": settings,
        "data": source.summary,
        "grading": {"answer_type": source.answer_type, "extract": source.extract},
        "fingerprints": {
            "recipe": fingerprint(_of_the_run(settings)),
            "start": start,
            "grader": grader_print,
            "data": source.fingerprint,
            **({} if rollouts is None else {"rollouts": fingerprint_files([rollouts])}),
        },
        "environment": environment(),
        "processes": {"count": processes.count, "kind": processes.kind},
    }


def _of_the_run(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run's numbers depend on, by `section.key`.

    Its number of steps is one of them only where the learning rate falls with it.
    """
    train = settings.get("train")
    constant = isinstance(train, dict) and train.get("lr_schedule") == "constant"
    left = (*CHANGEABLE, "train.steps") if constant else CHANGEABLE
    found: dict[str, Any] = {}
    for section, values in settings.items():
        named = values if isinstance(values, dict) else {"": values}
        found.update({f"{section}.{k}".rstrip("."): v for k, v in named.items()})
    return {
        key: value
        for key, value in found.items()
        if key not in left and key.partition(".")[0] not in OTHER_SECTIONS
    }


def _unlike(existing: Mapping[str, Any], wanted: Mapping[str, Any], file: Path) -> str | None:
    """In what a folder's run is another one than `wanted`, in words; None where it is the same."""
    theirs, ours = prints_of(existing, file), wanted["fingerprints"]
    if ("rollouts" in theirs) != ("rollouts" in ours):
        return "that learns from saved rollouts" if "rollouts" in theirs else "that samples"
    there = existing.get("settings")
    before = _of_the_run(there) if isinstance(there, dict) else {}
    if before:  # taken anew: which settings the fingerprint is of depends on the version
        theirs = {**theirs, "recipe": fingerprint(before)}
    unlike = differing(ours, theirs)
    if not unlike:
        return None
    if unlike[0] == "recipe":
        for key, value in _of_the_run(wanted["settings"]).items():
            if key in before and before[key] != value:
                return f"with another recipe ({key} {before[key]!r}, not {value!r})"
    return f"with {'other' if unlike[0] in ('data', 'rollouts') else 'another'} {unlike[0]}"


class StepFiles:
    """The files that get rows with every step; only the first of several processes has them open.

    Rows of a process that doesn't write, and of a file that isn't wanted, go nowhere.
    """

    def __init__(self, folder: Path, writes: bool, credit: bool) -> None:
        names = [name for name in STEP_FILES if credit or name != "credit.jsonl"]
        self.stack = ExitStack()
        self.files = {
            name.removesuffix(".jsonl"): self.stack.enter_context(JsonlWriter(folder / name))
            for name in names
            if writes
        }

    def write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to NAME.jsonl; they outlive the process when this returns."""
        if name in self.files:
            self.files[name].write(rows)

    def close(self) -> None:
        """Sync and close them."""
        self.stack.close()


def write_overlap(run: RunFolder, source: Source) -> None:
    """Keep beside a run what its problems have in common with test sets, if that was asked."""
    if source.overlap is not None:
        write_json(run.path / "overlap.json", source.overlap)


def refuse_begun(folder: Path, *, resume: bool) -> None:
    """Refuse a file, and a folder in which a run was begun unless it is to be resumed."""
    if (folder / "run.json").exists() and not resume:
        raise InputError("a run was begun in this folder", str(folder), "add --resume to go on")
    refuse_foreign(folder, "run.json")


def open_run(run: RunFolder, wanted: dict[str, Any], steps: int) -> tuple[Path | None, int]:
    """Claim the folder for `wanted` (from `describe`): the checkpoint to go on from and its step.

    A new folder gets run.json. An old one must be the same run (method, seed, start, data, and the
    recipe but for CHANGEABLE), and rows of steps after the checkpoint are removed, since those
    steps will be made again.

    Raises:
        InputError: the folder holds another run, or one with more steps done.
    """
    file = run.path / "run.json"
    for half in left_by_kills(run.path, file.name):
        half.unlink()
    if not file.exists():
        write_json(file, wanted)
        return None, 0
    existing = read_json(file)
    for key in ("method", "seed"):
        if existing.get(key) != wanted[key]:
            raise InputError(
                f"this folder holds a run with {key} {existing.get(key)!r}, not {wanted[key]!r}",
                str(run.path), "choose another --out",
            )  # fmt: skip
    unlike = _unlike(existing, wanted, file)
    if unlike is not None:
        raise InputError(
            f"this folder holds a run {unlike}", str(run.path),
            "choose another --out, or go back to the settings in its run.json",
        )  # fmt: skip
    newest = latest_checkpoint(run.checkpoints)
    step = int(newest.name.removeprefix("step-")) if newest else 0
    if step > steps:
        raise InputError(
            f"{step} steps of this run are done, {steps} are asked for", str(run.path),
            f"give --steps {step} or more, or choose another --out",
        )  # fmt: skip
    if existing.get("status") == "finished" and newest == run.final(steps):
        return newest, steps
    # One that is finished goes on where more steps are wanted, or its last checkpoint is damaged.
    now = {**existing, "status": "running", "settings": wanted["settings"]}
    if now != existing:
        write_json(file, now)
    run.checkpoints.mkdir(exist_ok=True)
    for broken in steps_of(run.checkpoints):
        if newest is None or broken.name > newest.name:
            aside = broken.with_name(f".broken-{broken.name}-{os.getpid()}")
            why = damage(broken)
            broken.rename(aside)
            say(
                f"oar-bench: {broken}: {why}; it is set aside as {aside.name}, and the run goes on "
                f"from {newest.name if newest else 'its start'}"
            )
    tidy(run.checkpoints)
    found = {name: cut_rows(run.path / name, step) for name in STEP_FILES}
    lost = [str(number) for number in range(1, step + 1) if number not in found["metrics.jsonl"]]
    if lost:
        which = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if lost[3:] else "")
        say(f"oar-bench: {run.path / 'metrics.jsonl'}: the rows of step {which} are lost")
    return newest, step


def cut_rows(path: Path, step: int) -> set[int]:
    """Cut a jsonl file off where the rows of steps after `step` begin; the steps that are left.

    Rows stand in the order of their steps. A torn last line goes too; an absent file has no steps.

    Raises:
        InputError: a row has no step.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = file.write_text('{"step": 1}\\n{"step": 2}\\n{"step": 3}\\n{"st')
    >>> cut_rows(file, 2), file.read_text()
    ({1, 2}, '{"step": 1}\\n{"step": 2}\\n')
    """
    steps: set[int] = set()
    for place, row in read_placed(path):
        number = row.get("step")
        if type(number) is not int:
            raise InputError(
                f"the row at byte {place} has no step", str(path), "mend or remove that line"
            )
        if number > step:
            with path.open("rb+") as file:
                file.truncate(place)
                os.fsync(file.fileno())
            break
        steps.add(number)
    repair_tail(path)
    return steps
