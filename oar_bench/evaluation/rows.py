"""Checks of identity on rows: one file holds one evaluation, judged by one grader.

Each row of samples.jsonl carries `model` and `fingerprint` (over all fingerprints of its
generation), each row of scores.jsonl the sample's `fingerprint` and its `grader`. They are checked
wherever rows are put together: by `score`, `report` and `compare`.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.records import read_jsonl

Row = dict[str, Any]
GRADER = "grader"


def sample_marks(task: str, fingerprints: Mapping[str, str]) -> dict[str, str]:
    """What every sample of an evaluation has in common, from its generation's fingerprints.

    >>> marks = sample_marks("oar_sum", {"model": "aa", "data": "bb"})
    >>> marks["task"], marks["model"], len(marks["fingerprint"])
    ('oar_sum', 'aa', 12)
    """
    marks = {"task": task, "fingerprint": fingerprint(dict(fingerprints))}
    # named before the fingerprint that holds it, so that a refusal says what differs
    return {"model": fingerprints["model"], **marks} if "model" in fingerprints else marks


def score_marks(task: str, fingerprints: Mapping[str, str]) -> dict[str, str]:
    """What every score row has in common, from the fingerprints of results.json.

    >>> score_marks("oar_sum", {"model": "aa", "grader": "gg"})["grader"]
    'gg'
    """
    made = {name: value for name, value in fingerprints.items() if name != GRADER}
    marks = sample_marks(task, made)
    return {GRADER: fingerprints[GRADER], **marks} if GRADER in fingerprints else marks


def checked(
    rows: Iterable[Mapping[str, Any]],
    path: Path,
    marks: Mapping[str, str],
    mend: str,
    allow: Names[str] = (),
    first: int = 1,
) -> Iterator[Any]:
    """The rows as they come; InputError naming row and field at the first that belongs elsewhere.

    A field that a row lacks isn't compared (files from before it was written). Fields in `allow`
    may differ; `first` is the number of the first row.

    >>> list(checked([{"grader": "g1"}], Path("scores.jsonl"), {"grader": "g2"}, "score again"))
    Traceback (most recent call last):
    ...
    oar_bench.errors.InputError: scores.jsonl: row 1: grader is g1, not g2 as in this evaluation; \
score again
    """
    wanted = [(name, value) for name, value in marks.items() if name not in allow]
    for number, row in enumerate(rows, start=first):
        for name, value in wanted:
            if row.get(name, value) != value:
                raise InputError(
                    f"row {number}: {name} is {row[name]}, not {value} as in this evaluation",
                    str(path), mend,
                )  # fmt: skip
        yield row


class Seen:
    """Which (problem, sample) were met, in a bit each: 10,000 x 64 of them take 2 MB.

    >>> seen = Seen()
    >>> seen.add({"problem": "a", "sample": 3}), seen.add({"problem": "a", "sample": 3})
    (True, False)
    >>> {"problem": "a", "sample": 3} in seen, {"problem": "a", "sample": 2} in seen, len(seen)
    (True, False, 1)
    """

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._count = 0

    def add(self, row: Mapping[str, Any]) -> bool:
        """Note a row; whether it is new."""
        problem, bit = str(row["problem"]), 1 << row["sample"]
        bits = self._bits.get(problem, 0)
        if bits & bit:
            return False
        self._bits[problem] = bits | bit
        self._count += 1
        return True

    def __contains__(self, row: Mapping[str, Any]) -> bool:
        return bool(self._bits.get(str(row["problem"]), 0) >> row["sample"] & 1)

    def __len__(self) -> int:
        return self._count


def scored_already(path: Path, grader: str) -> Seen | None:
    """The samples that have a verdict of this very grader; None where any is of another one.

    Rows that don't name their grader count as another's.
    """
    seen = Seen()
    for row in read_jsonl(path):
        if row.get(GRADER) != grader:
            return None
        seen.add(row)
    return seen
