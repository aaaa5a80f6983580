"""From the common form to an evaluation folder of our schema.

    FOLDER/results.json     metrics, settings, fingerprints, and `imported`: where it is from
    FOLDER/scores.jsonl     a verdict for each response: what `compare` pairs
    FOLDER/problems.jsonl   what names each problem: hashes of prompt and gold
    FOLDER/samples.jsonl    the responses, where each has a verdict of its own

All are written into a folder beside it and put in place at the end: a fault in the source leaves
nothing behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.summary import finite
from oar_bench.identity import environment, fingerprint
from oar_bench.importing.bounded import digest
from oar_bench.importing.found import NO_TEST, Found
from oar_bench.importing.measure import measure, numbers_only
from oar_bench.importing.regrade import Regrader
from oar_bench.importing.verdicts import Tick, mark_of, write_rows
from oar_bench.records import SCHEMA, read_json, write_json


def write(found: Found, folder: Path, regrade: bool = False, tick: Tick = lambda _: None) -> dict[
    str, Any
]:  # fmt: skip
    """Write one result into `folder`; the contents of its results.json.

    Raises:
        InputError: the folder holds another result, the source is damaged, a (problem, sample)
            stands there twice, or the rows don't give the figure that the tool states.
    """
    files = [digest(path) for path in found.files]
    _refuse_other(folder, files, found)
    with _staged(folder) as stage:
        judge = Regrader(found.grading) if regrade and _can_be_judged(found) else None
        notes = [*found.notes]
        if regrade and judge is None:
            notes.append("not regraded: there is no gold, or no response")
        if found.rows is None:
            numbers, prints, k = numbers_only(found), dict(found.own_prints), None
            notes.append(NO_TEST)
        else:
            with closing(judge) if judge else nullcontext():
                written = write_rows(found, stage, judge, tick)
            numbers = measure(found, stage, written, judge is not None, notes)
            prints = {**found.own_prints, **written.prints()}
            k = numbers["k"]
        if judge is not None:
            prints["grader"] = judge.fingerprint
        results = _results(found, files, numbers, prints, k, judge, notes)
        write_json(stage / "results.json", results)
    return results


def _can_be_judged(found: Found) -> bool:
    if found.rows is None:
        return False
    first = next(found.rows(True), None)
    return first is not None and first.response is not None and first.gold is not None


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A folder beside `folder`, put in its place when all went well and removed otherwise."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    try:
        yield stage
        if folder.exists():
            shutil.rmtree(folder)
        stage.replace(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _refuse_other(folder: Path, files: list[dict[str, Any]], found: Found) -> None:
    """Only an import of the same files may be replaced."""
    if not folder.exists():
        return
    before = folder / "results.json"
    about = read_json(before).get("imported") if before.is_file() else None
    if not isinstance(about, dict) or about.get("files") != files:
        raise InputError(
            f"another result is there, not this one of {found.model} on {found.task}",
            str(folder), "choose another --out, or name the model by --model",
        )  # fmt: skip


def _results(
    found: Found, files: list[dict[str, Any]], numbers: Mapping[str, Any],
    prints: Mapping[str, str], k: int | None, judge: Regrader | None, notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    settings: dict[str, Any] = {"problems": numbers["n_problems"], "samples": k}
    if found.rows is not None:
        settings |= {"seed": found.seed, "sampling": dict(found.sampling)}
    if judge is not None:
        settings["grading"] = dict(found.grading)
    settings |= found.protocol
    sampling = {"sampling": fingerprint([found.sampling, k, found.seed])} if found.sampling else {}
    about: dict[str, Any] = {
        "tool": found.tool, "version": found.version, "date": found.date, "source": found.source,
        "files": files, "metric": found.metric, "value": found.value, "stderr": found.stderr,
        "numbers": dict(found.numbers), "settings": _jsonable(found.original),
        "notes": notes,
    }  # fmt: skip
    if judge is not None:
        about["regraded"] = judge.changes
    return {
        "schema": SCHEMA, "kind": "evaluation", "task": found.task, "model": found.model,
        "engine": "imported", "complete": True, "metrics": numbers,
        "fingerprints": {**prints, **sampling, "model": mark_of(found), "engine": found.tool},
        "settings": _jsonable(settings), "environment": environment(), "imported": about,
    }  # fmt: skip


def _jsonable(value: Any) -> Any:
    """A value of foreign JSON without what JSON can't hold: NaN and infinities become null."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(of) for of in value]
    return finite(value) if isinstance(value, float) else value
