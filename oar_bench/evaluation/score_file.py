"""`oar-bench score FILE`: grade the responses of any file of JSON lines.

One row of scores for each response, appended as verdicts fall, so that a killed run goes on. Rows
that another grader made are made anew: a scores file never mixes two graders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

from oar_bench.answers import Grade, Grader
from oar_bench.answers.corpus import Case, Report, tally
from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.errors import InputError
from oar_bench.evaluation.formats import Fields, Item, read_items
from oar_bench.records import SCHEMA, JsonlWriter, read_jsonl

BATCH = 256  # verdicts between two writes

Progress = Callable[[int, int], None]


@dataclass
class Graders:
    """One grader for each answer type that the file asks for, closed together."""

    answer_type: AnswerType | None = None
    """Overrides what the rows say; absent, the row's own or `math`."""
    extract: ExtractMode = "auto"
    tolerance: float | None = None
    deadline: float = 1.6
    workers: int = 1
    _made: dict[AnswerType, Grader] = field(default_factory=dict)

    def of(self, item: Item) -> Grader:
        """The grader for a row."""
        kind: AnswerType = self.answer_type or item.answer_type or "math"
        if kind not in self._made:
            self._made[kind] = Grader(
                answer_type=kind, extract=self.extract, tolerance=self.tolerance,
                deadline=self.deadline, workers=self.workers,
            )  # fmt: skip
        return self._made[kind]

    def grade(self, item: Item) -> Grade:
        """The verdict on a row."""
        if item.bare:
            return self.of(item).compare(item.text, item.gold)
        return self.of(item).grade(item.text, item.gold, truncated=item.truncated)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for grader in self._made.values():
            grader.close()


def score_file(
    path: Path,
    out: Path,
    graders: Graders,
    fields: Fields | None = None,
    progress: Progress = lambda done, wanted: None,
) -> None:
    """Grade every response of `path` into the scores file `out`.

    Raises:
        InputError: `path` can't be read as any known format, or `out` holds something else.
    """
    items = list(read_items(path, fields or Fields()))
    if out.resolve() == path.resolve():
        raise InputError("the scores would overwrite their input", str(out), "choose another --out")
    done = _kept(out, path, {item.id: graders.of(item).fingerprint for item in items})
    missing = iter([item for item in items if (item.row, item.id) not in done])
    finished = len(done)
    progress(finished, len(items))
    with JsonlWriter(out) as rows, ThreadPoolExecutor(graders.workers) as threads:
        while batch := list(islice(missing, BATCH)):
            # Threads only wait for the worker processes; what needs none is decided here.
            grades = threads.map(graders.grade, batch) if graders.workers > 1 else map(
                graders.grade, batch
            )  # fmt: skip
            rows.write(
                _row(item, grade, graders.of(item).fingerprint, path.name)
                for item, grade in zip(batch, grades, strict=True)
            )
            finished += len(batch)
            progress(finished, len(items))


def _kept(out: Path, path: Path, graders: dict[str, str]) -> set[tuple[int, str]]:
    """Rows of an existing scores file that stay; it is emptied when another grader wrote it."""
    if not out.exists():
        return set()
    rows = list(read_jsonl(out))
    for row in rows:
        if not {"id", "row", "status", "grader", "source"} <= set(row):
            raise InputError("this file holds no scores", str(out), "choose another --out")
        if row["source"] != path.name:
            raise InputError(
                f"this file holds the scores of {row['source']}", str(out), "choose another --out"
            )
    if any(graders.get(row["id"]) != row["grader"] for row in rows):
        out.unlink()
        return set()
    return {(row["row"], row["id"]) for row in rows}


def _row(item: Item, grade: Grade, grader: str, source: str) -> dict[str, Any]:
    row = {
        "schema": SCHEMA,
        "row": item.row,
        "id": item.id,
        "status": grade.status,
        "correct": grade.correct,
        "extracted": grade.extracted,
        "how": grade.how,
        "stage": grade.stage,
        "milliseconds": round(grade.milliseconds, 3),
        "grader": grader,
        "source": source,
    }
    return row if item.expected is None else {**row, "expected": item.expected}


def expectations(items: Iterable[Item], scores: Iterable[dict[str, Any]]) -> Report:
    """Verdicts against the rows' `expected` fields, overall and by kind.

    Raises:
        InputError: no row has an `expected` field.
    """
    verdicts = {(row["row"], row["id"]): bool(row["correct"]) for row in scores}
    return tally(_expected(items, verdicts))


def _expected(
    items: Iterable[Item], verdicts: dict[tuple[int, str], bool]
) -> Iterator[tuple[Case, bool]]:
    some = False
    for item in items:
        if item.expected is None:
            continue
        some = True
        case = Case(
            item.id, item.kind or "all rows", "equiv" if item.bare else "extract",
            item.answer_type or "math", item.gold, "", item.expected, item.debatable,
        )  # fmt: skip
        yield case, verdicts[item.row, item.id]
    if not some:
        raise InputError("no row has an `expected` field (true or false)", "--expect")


@dataclass(frozen=True)
class Change:
    """A verdict that differs between two scores files, with what was extracted then and now."""

    id: str
    before: str
    after: str
    extracted_before: str | None
    extracted_after: str | None


def changes(old: Path, new: Path) -> list[Change]:
    """Every verdict that changed from one scores file to another, by id, in the new one's order.

    Raises:
        InputError: a file is absent or holds no scores.
    """
    before, after = _verdicts(old), _verdicts(new)
    return [
        Change(name, before[name][0], status, before[name][1], extracted)
        for name, (status, extracted) in after.items()
        if name in before and before[name][0] != status
    ]


def _verdicts(path: Path) -> dict[str, tuple[str, str | None]]:
    if not path.exists():
        raise InputError("no such scores file", str(path))
    found = {}
    for row in read_jsonl(path):
        if "status" not in row:
            raise InputError("this file holds no scores", str(path))
        name = str(row["id"]) if "id" in row else f"{row.get('problem')}/{row.get('sample')}"
        found[name] = (str(row["status"]), row.get("extracted"))
    return found
