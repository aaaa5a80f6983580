"""`oar-bench import`: sources in, evaluation folders of our schema out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from oar_bench.answers.extract import AnswerType
from oar_bench.errors import InputError
from oar_bench.importing.bounded import folder_name, inside
from oar_bench.importing.discover import discover, in_shape
from oar_bench.importing.found import Found, Options
from oar_bench.importing.target import write
from oar_bench.records import SCHEMA, owned, read_json, write_json

Stage = Callable[[str, int], AbstractContextManager[Callable[[int, str], None]]]


@dataclass(frozen=True)
class Job:
    """What `oar-bench import` is asked to do.

    With `method` the results are put where `oar-bench report` looks: OUT/runs/METHOD/seed-SEED, or
    seed-0 where none is known. A run that was trained there keeps its own run.json.
    """

    sources: list[Path]
    out: Path
    options: Options = Options()  # noqa: RUF009  frozen
    method: str | None = None
    seed: int | None = None
    regrade: bool = False
    answer_type: AnswerType | None = None


@dataclass(frozen=True)
class Imported:
    """One result: its folder, and the contents of its results.json."""

    folder: Path
    results: dict[str, Any]


def run_import(job: Job, stage: Stage) -> list[Imported]:
    """Import every result of the sources; one after the other, in the order found.

    Everything is found and told apart before the first is written.

    Raises:
        InputError: a source can't be read, a folder holds another result, or a run of a known seed
            is where results of an unknown one would go.
    """
    found = [_graded(one, job.answer_type) for one in discover(job.sources, job.options)]
    folders = _folders(found, job)
    done = []
    with owned(job.out):
        before = _run_before(job) if job.method is not None else {}
        for one, folder in zip(found, folders, strict=True):
            total = one.problems or 0
            with in_shape(one.where), stage(f"import {folder.name}", total) as tick:
                results = write(one, folder, job.regrade, partial(_tell, tick))
            done.append(Imported(folder, results))
        if job.method is not None and ("imported" in before or not before):
            _write_run(job, found[0])
    return done


def _tell(tick: Callable[[int, str], None], rows: int) -> None:
    tick(rows, "")


def _graded(found: Found, kind: AnswerType | None) -> Found:
    return found if kind is None else replace(found, grading={**found.grading, "answer_type": kind})


def _folders(found: list[Found], job: Job) -> list[Path]:
    """OUT/MODEL/TASK, or OUT/runs/METHOD/seed-S/eval/TASK; InputError where two would be one."""
    if job.method is not None:
        if folder_name(job.method) != job.method:
            raise InputError(f"{job.method!r} can't name a folder", "--method")
        if len({one.model for one in found}) > 1:
            names = ", ".join(sorted({one.model for one in found})[:3])
            raise InputError(f"several models are there ({names})", "--method", "import one each")
        base = _run_folder(job) / "eval"
        folders = [base / folder_name(one.task) for one in found]
    else:
        folders = [job.out / folder_name(one.model) / folder_name(one.task) for one in found]
    seen: dict[str, Found] = {}
    for folder, one in zip(folders, found, strict=True):
        # some file systems don't tell upper from lower case
        twin = seen.setdefault(str(folder).casefold(), one)
        if twin is not one:
            raise InputError(
                f"{twin.model} on {twin.task} and {one.model} on {one.task} would share a folder",
                str(folder), "import them one by one, with --model",
            )  # fmt: skip
    return folders


def _run_folder(job: Job) -> Path:
    return job.out / "runs" / str(job.method) / f"seed-{job.seed or 0}"


def _run_before(job: Job) -> dict[str, Any]:
    """The run.json that is there already, of training or of an import; empty if there is none."""
    file = _run_folder(job) / "run.json"
    about = read_json(file) if file.exists() else {}
    seed = inside(about, "imported", "seed") if "imported" in about else about.get("seed")
    if job.seed is None and seed is not None:
        raise InputError(
            f"results of training seed {seed} are there", str(file.parent),
            f"give --seed {seed} if these are of it too, or choose another --out",
        )  # fmt: skip
    return about


def _write_run(job: Job, first: Found) -> None:
    """run.json as of a finished run; how it was trained isn't known here."""
    about = {
        "schema": SCHEMA, "method": job.method, "seed": job.seed or 0, "status": "finished",
        "settings": {}, "fingerprints": {}, "environment": {},
        "imported": {"tool": first.tool, "version": first.version, "model": first.model,
                     "seed": job.seed},
    }  # fmt: skip
    write_json(_run_folder(job) / "run.json", about)
