"""`--log`: a run's rows go to TensorBoard, Weights & Biases or a flat file too.

Rows are taken from the run's own files after each step, so what was done before tracking was
asked for is added at the beginning. A run that resumed at an earlier step gives no step twice:

    tensorboard  RUN/tensorboard/; steps after the one resumed from are purged by its own mark
    wandb        takes back nothing, so steps that it has are left out: they are made again equal
    jsonl        RUN/log.jsonl, cut back to the step resumed from

RUN/tracking.json notes by tracker the newest step that it was given (`logged`) and the one at its
last orderly end (`closed`).

Nothing is opened, let alone sent, unless it is asked for by name.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from oar_bench.console import printable, say
from oar_bench.errors import InputError, nearest
from oar_bench.monitor.folder import RunReader
from oar_bench.monitor.view import number, whole
from oar_bench.records import SCHEMA, JsonlWriter, keep_rows, read_json, read_jsonl, write_json

NOTE = "tracking.json"
NEEDS = {"tensorboard": "tensorboard", "wandb": "wandb", "jsonl": None}
"""The trackers, and the package that each needs."""


def check_trackers(names: Sequence[str], where: str = "--log") -> tuple[str, ...]:
    """The trackers of these names, without repeats; InputError when one is unknown or missing.

    >>> check_trackers(["jsonl", "jsonl"])
    ('jsonl',)
    """
    for name in names:
        if name not in NEEDS:
            raise InputError(f"unknown tracker {name!r}", where, nearest(name, list(NEEDS)))
        package = NEEDS[name]
        if package is not None and not _is_installed(package):
            raise InputError(
                f"{package} isn't installed", f"{where} {name}",
                f"python -m pip install 'oar-bench[{name}]'",
            )  # fmt: skip
    return tuple(dict.fromkeys(names))


def _is_installed(package: str) -> bool:
    """Whether a package can be imported; a folder of its name, as it may lie here, is none."""
    if package in sys.modules:
        return True
    found = find_spec(package)
    return found is not None and found.origin is not None


def scalars(metrics: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, float]:
    """A step's numbers under the names that trackers show; what isn't finite is left out.

    >>> scalars({"step": 3, "statuses": {"correct": 2}}, {"rollout": 1.5})
    {'train/statuses/correct': 2.0, 'seconds/rollout': 1.5, 'seconds/step': 1.5}
    """
    found = _flat("train", {key: value for key, value in metrics.items() if key != "step"})
    found |= {f"seconds/{name}": value for name, value in seconds.items()}
    if seconds:
        found["seconds/step"] = math.fsum(seconds.values())
    return found


def _flat(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, Mapping):
        return {
            k: v for key, inner in value.items() for k, v in _flat(f"{name}/{key}", inner).items()
        }
    found = number(value)
    return {name: found} if found is not None and math.isfinite(found) else {}


class Tracker(Protocol):
    """Where steps are shown besides our own files."""

    logged: int
    """The newest step that it has."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Give it a step's numbers."""
        ...

    def close(self, *, complete: bool) -> None:
        """End; `complete` when training wasn't broken off."""
        ...


class TensorBoard:
    """Event files in RUN/tensorboard."""

    def __init__(self, folder: Path, about: Mapping[str, Any], done: int, note: dict[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self.logged = min(done, _step(note, "logged"))
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=self.logged + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write a step's events, so that they outlive a kill."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, *, complete: bool) -> None:
        """Close the file."""
        self._writer.close()


class WandB:
    """A run of Weights & Biases, resumed under the id in RUN/tracking.json.

    Its own settings decide the rest: WANDB_MODE=offline keeps it on this machine, WANDB_PROJECT
    (default oar-bench), WANDB_ENTITY, WANDB_DIR (default RUN).
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], done: int, note: dict[str, Any]):
        import wandb

        if not isinstance(note.get("id"), str):
            note["id"] = os.urandom(5).hex()
        try:
            self._run = wandb.init(
                id=note["id"],
                resume="allow",
                project=os.environ.get("WANDB_PROJECT", "oar-bench"),
                group=str(about.get("recipe")),
                name=f"{about.get('method')}, seed {about.get('seed')}",
                dir=os.environ.get("WANDB_DIR", str(folder)),
                config={key: about.get(key) for key in ("method", "seed", "settings")},
                # Its lines would break up the view of the run; where it is to be found is said.
                settings={"console": "off", "silent": True},
            )
        except wandb.Error as error:
            raise InputError(
                f"it didn't begin ({error})", "--log wandb",
                "log in with `wandb login`, or set WANDB_MODE=offline",
            ) from error  # fmt: skip
        if self._run.offline:
            # Its file is written late: what it was given before a kill may not be there.
            self.logged = _step(note, "closed")
            say(f"wandb: {printable(str(self._run.dir))}")
        else:
            self.logged = max(0, self._run.starting_step - 1)  # as its server has it
            say(f"wandb: {printable(str(self._run.url))}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Give it a step's numbers; it sends them when it likes."""
        self._run.log(dict(values), step=step)

    def close(self, *, complete: bool) -> None:
        """Let it send what is left, and mark a broken run as failed."""
        self._run.finish(exit_code=0 if complete else 1)


class Flat:
    """RUN/log.jsonl: a row a step of names and numbers, as the other trackers get them."""

    def __init__(self, folder: Path, about: Mapping[str, Any], done: int, note: dict[str, Any]):
        path = folder / "log.jsonl"
        keep_rows(path, lambda row: isinstance(row.get("step"), int) and row["step"] <= done)
        self.logged = max((row["step"] for row in read_jsonl(path)), default=0)
        self._file = JsonlWriter(path)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append the step's row."""
        self._file.write([{"step": step, **values}])

    def close(self, *, complete: bool) -> None:
        """Close the file."""
        self._file.__exit__(None, None, None)


Opener = Callable[[Path, Mapping[str, Any], int, dict[str, Any]], Tracker]
OPENERS: dict[str, Opener] = {"tensorboard": TensorBoard, "wandb": WandB, "jsonl": Flat}


def _step(note: Mapping[str, Any], key: str) -> int:
    return whole(note.get(key)) or 0


class Tracking:
    """The trackers of one run, opened at its first step; see the module's docstring."""

    def __init__(self, reader: RunReader, names: Sequence[str]) -> None:
        self._reader, self._names = reader, names
        self._open: dict[str, Tracker] = {}
        self._notes: dict[str, Any] = {}

    def upto(self, step: int) -> None:
        """Give every tracker the steps that it lacks, up to this one, which was just done."""
        if self._names and not self._open:
            self._begin(step - 1)
        for name, tracker in self._open.items():
            for new in range(tracker.logged + 1, step + 1):
                row = self._reader.metrics.get(new)
                if row is not None:
                    tracker.log(new, scalars(row, self._reader.timing.get(new, {})))
            tracker.logged = max(tracker.logged, step)
            self._notes[name]["logged"] = tracker.logged
        self._save()

    def _save(self) -> None:
        if self._open:
            write_json(self._reader.path / NOTE, self._notes)

    def _begin(self, done: int) -> None:
        """Open the trackers of a run that stands at a step, whatever they were given before."""
        file = self._reader.path / NOTE
        notes = read_json(file) if file.exists() else {}
        self._notes = {**notes, "schema": SCHEMA, "kind": "tracking"}
        about = self._reader.about() or {}
        for name in self._names:
            note = notes.get(name)
            self._notes[name] = note if isinstance(note, dict) else {}
            self._open[name] = OPENERS[name](self._reader.path, about, done, self._notes[name])

    def close(self, *, complete: bool) -> None:
        """End all trackers; a finished run that no step was made of is given as it is."""
        if complete and self._names and not self._open:
            self._reader.read_rows()
            self.upto(max(self._reader.metrics, default=0))
        for name, tracker in self._open.items():
            tracker.close(complete=complete)
            self._notes[name]["closed"] = tracker.logged
        self._save()
