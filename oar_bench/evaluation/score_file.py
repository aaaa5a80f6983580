"""`oar-bench score FILE`: grade the responses of any file of JSON lines.

One row of scores for each response, appended as verdicts fall, so that a killed run goes on. Rows
that another grader made are made anew: a scores file never mixes two graders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Self

from oar_bench.answers import Grade, Grader
from oar_bench.answers.corpus import Case, Report, tally
from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.errors import InputError
from oar_bench.evaluation.formats import Fields, Item, read_items
from oar_bench.records import SCHEMA, JsonlWriter, read_jsonl, refuse_foreign_line

BATCH = 256  # verdicts between two writes


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


def count_items(path: Path, fields: Fields) -> int:
    """How many responses a file holds; each row is read, so that a bad one is told beforehand."""
    return sum(1 for _ in read_items(path, fields))


def score_file(
    path: Path,
    out: Path,
    graders: Graders,
    fields: Fields | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Grade every response of `path` into the scores file `out`, row by row in the same order.

    Both files are read as streams: memory holds a batch of rows, however many there are. Scores
    that are there already stay while they are of the same rows and graders, from the first on.

    Raises:
        InputError: `path` can't be read as any known format, or `out` holds something else.
    """
    fields = fields or Fields()
    if out.resolve() == path.resolve():
        raise InputError("the scores would overwrite their input", str(out), "choose another --out")
    finished = _kept(out, path, fields, graders)
    missing = islice(read_items(path, fields), finished, None)
    progress(finished)
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
            progress(finished)


def _kept(out: Path, path: Path, fields: Fields, graders: Graders) -> int:
    """Rows of an existing scores file that stay; it is emptied when they are of other rows than
    `path` begins with, or of another grader."""
    if not out.exists():
        return 0
    refuse_foreign_line(out, f'{{"schema": {SCHEMA}, "row": ')
    items, same, count = read_items(path, fields), True, 0
    for row in read_jsonl(out):
        if not {"id", "row", "status", "grader", "source"} <= set(row):
            raise InputError("this file holds no scores", str(out), "choose another --out")
        if row["source"] != path.name:
            raise InputError(
                f"this file holds the scores of {row['source']}", str(out), "choose another --out"
            )
        item = next(items, None) if same else None
        same = item is not None and (row["row"], row["id"], row["grader"]) == (
            item.row, item.id, graders.of(item).fingerprint
        )  # fmt: skip
        count += 1
    if same:
        return count
    out.unlink()
    return 0


def _row(item: Item, grade: Grade, grader: str, source: str) -> dict[str, Any]:
    row = {
        "schema": SCHEMA,
        "row": item.row,
        "id": item.id,
        **grade.row(),
        "grader": grader,
        "source": source,
    }
    return row if item.expected is None else {**row, "expected": item.expected}


def counts(scores: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What a scores file says in short: rows, correct, by status and stage, the slowest case.

    >>> row = {"correct": True, "status": "correct", "stage": "exact", "milliseconds": 0.5}
    >>> counts([row])["statuses"]
    {'correct': 1}
    """
    rows = correct = 0
    statuses: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    slowest = 0.0
    for row in scores:
        rows += 1
        correct += bool(row["correct"])
        statuses[row["status"]] += 1
        stages[row["stage"]] += 1
        slowest = max(slowest, row["milliseconds"])
    return {"rows": rows, "correct": correct, "statuses": dict(statuses), "stages": dict(stages),
            "slowest_ms": slowest}  # fmt: skip


def expectations(items: Iterable[Item], scores: Iterable[Mapping[str, Any]]) -> Report:
    """Verdicts against the rows' `expected` fields, overall and by kind.

    `scores` are those of `items` in the same order, as `score_file` writes them.

    Raises:
        InputError: no row has an `expected` field.
    """
    return tally(_expected(items, scores))


def _expected(
    items: Iterable[Item], scores: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Case, bool]]:
    some = False
    for item, score in zip(items, scores, strict=False):
        if item.expected is None:
            continue
        some = True
        case = Case(
            item.id, item.kind or "all rows", "equiv" if item.bare else "extract",
            item.answer_type or "math", item.gold, "", item.expected, item.debatable,
        )  # fmt: skip
        yield case, bool(score["correct"])
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

    The files are read side by side; a row waits in memory only until its id comes in the other.

    Raises:
        InputError: a file is absent or holds no scores.
    """
    found: list[tuple[int, Change]] = []
    waiting_old: dict[str, _Verdict] = {}
    waiting_new: dict[str, tuple[int, _Verdict]] = {}

    def meet(place: int, before: _Verdict, after: _Verdict) -> None:
        if before.status != after.status:
            found.append((place, Change(after.id, before.status, after.status, before.extracted,
                                        after.extracted)))  # fmt: skip

    for place, (before, after) in enumerate(zip_longest(_verdicts(old), _verdicts(new))):
        if before is not None and after is not None and before.id == after.id:
            meet(place, before, after)
            continue
        if before is not None:
            if before.id in waiting_new:
                there, other = waiting_new.pop(before.id)
                meet(there, before, other)
            else:
                waiting_old[before.id] = before
        if after is not None:
            if after.id in waiting_old:
                meet(place, waiting_old.pop(after.id), after)
            else:
                waiting_new[after.id] = place, after
    return [change for _, change in sorted(found, key=lambda pair: pair[0])]


class _Verdict(NamedTuple):
    id: str
    status: str
    extracted: str | None


def refuse_absent(scores: Path) -> None:
    """InputError when there is no such scores file."""
    if not scores.is_file():
        raise InputError("no such scores file", str(scores))


def _verdicts(path: Path) -> Iterator[_Verdict]:
    refuse_absent(path)
    for row in read_jsonl(path):
        if "status" not in row:
            raise InputError("this file holds no scores", str(path))
        name = str(row["id"]) if "id" in row else f"{row.get('problem')}/{row.get('sample')}"
        yield _Verdict(name, str(row["status"]), row.get("extracted"))
