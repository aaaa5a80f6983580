r"""Cases with known verdicts: reading them and counting where a grader differs.

A case is one JSON object a line with `id`, `kind`, `level` ("equiv": a bare `answer`; "extract": a
whole `model_output`), `answer_type`, `gold`, `expected`, `debatable`; a long text stands as
`answer_parts` or `model_output_parts`, a list of [text, count] to repeat and join.

>>> expand([["ab", 2], ["c", 1]])
'ababc'
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from oar_bench.answers.extract import AnswerType
from oar_bench.answers.grader import Grader
from oar_bench.answers.grades import Grade

MAX_TEXT_CHARS = 16_000_000


@dataclass(frozen=True)
class Case:
    """One case of the corpus."""

    id: str
    kind: str
    level: Literal["equiv", "extract"]
    answer_type: AnswerType
    gold: str
    text: str
    expected: bool
    debatable: bool = False
    note: str = ""


@dataclass
class Count:
    """Verdicts against expectations; a timeout or an unread answer counts as not accepted."""

    cases: int = 0
    right: int = 0
    false_positives: list[str] = field(default_factory=list)
    false_negatives: list[str] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of verdicts as expected; 1.0 of no cases."""
        return self.right / self.cases if self.cases else 1.0


@dataclass
class Report:
    """Counts overall and by kind, debatable cases left out and counted apart."""

    overall: Count
    kinds: dict[str, Count]
    debatable: int = 0
    debatable_right: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready counts, overall under `all`, then by kind.

        >>> Report(Count(4, 3), {}).as_dict()["all"]["accuracy"]
        0.75
        """
        return {
            name: {**vars(count), "accuracy": count.accuracy}
            for name, count in (("all", self.overall), *sorted(self.kinds.items()))
        }


def expand(parts: Sequence[Sequence[Any]]) -> str:
    """Joins repeated segments; `ValueError` where the text would be unreasonably long."""
    total = sum(len(str(text)) * int(count) for text, count in parts)
    if total > MAX_TEXT_CHARS:
        raise ValueError(f"a text of {total} characters")
    return "".join(str(text) * int(count) for text, count in parts)


def parse_case(row: Mapping[str, Any]) -> Case:
    """A case from its JSON object; `ValueError` names a missing field.

    >>> parse_case({"id": "a-1", "gold": "2", "answer": "2", "expected": True}).level
    'equiv'
    """
    level = row.get("level") or ("equiv" if "answer" in row or "answer_parts" in row else "extract")
    name = "answer" if level == "equiv" else "model_output"
    missing = [key for key in ("id", "gold", "expected") if key not in row]
    if missing or (name not in row and f"{name}_parts" not in row):
        missing = missing or [name]
        raise ValueError(f"case {row.get('id', '?')}: no field {', '.join(missing)}")
    text = row[name] if name in row else expand(row[f"{name}_parts"])
    return Case(
        str(row["id"]),
        str(row.get("kind", "all")),
        cast(Literal["equiv", "extract"], level),
        cast(AnswerType, row.get("answer_type", "math")),
        str(row["gold"]),
        str(text),
        bool(row["expected"]),
        bool(row.get("debatable", False)),
        str(row.get("note", "")),
    )


def read_cases(path: str | Path) -> Iterator[Case]:
    """The cases of a JSON-lines file; `ValueError` names the line that is not one."""
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield parse_case(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error


class CorpusGrader:
    """One grader per answer type, closed together."""

    def __init__(self, *, deadline: float = 1.6, workers: int = 1, memo: bool = True) -> None:
        self._graders: dict[str, Grader] = {}
        self._deadline, self._workers, self._memo = deadline, workers, memo

    def grade(self, case: Case) -> Grade:
        """The verdict on one case."""
        grader = self._graders.get(case.answer_type)
        if grader is None:
            grader = Grader(
                answer_type=case.answer_type,
                deadline=self._deadline,
                workers=self._workers,
                memo=self._memo,
            )
            self._graders[case.answer_type] = grader
        if case.level == "equiv":
            return grader.compare(case.text, case.gold)
        return grader.grade(case.text, case.gold)

    def __enter__(self) -> CorpusGrader:
        return self

    def __exit__(self, *_: object) -> None:
        for grader in self._graders.values():
            grader.close()


def tally(results: Iterable[tuple[Case, bool]]) -> Report:
    """Counts (case, accepted) pairs.

    >>> case = parse_case({"id": "a-1", "gold": "2", "answer": "3", "expected": False})
    >>> tally([(case, True)]).overall.false_positives
    ['a-1']
    """
    report = Report(Count(), {})
    for case, accepted in results:
        if case.debatable:
            report.debatable += 1
            report.debatable_right += accepted == case.expected
            continue
        for count in (report.overall, report.kinds.setdefault(case.kind, Count())):
            count.cases += 1
            if accepted == case.expected:
                count.right += 1
            elif accepted:
                count.false_positives.append(case.id)
            else:
                count.false_negatives.append(case.id)
    return report


def format_report(report: Report) -> str:
    """The report as aligned lines, kinds in alphabetical order.

    >>> print(format_report(Report(Count(4, 4), {"base": Count(4, 4)})))
    kind                 cases  right  accuracy  FP  FN
    base                     4      4   100.00%   0   0
    all                      4      4   100.00%   0   0
    debatable, left out: 0, of which as expected: 0
    """
    lines = ["kind                 cases  right  accuracy  FP  FN"]
    for name, count in (*sorted(report.kinds.items()), ("all", report.overall)):
        lines.append(
            f"{name:<20} {count.cases:>5}  {count.right:>5}  {count.accuracy:>8.2%}"
            f"  {len(count.false_positives):>2}  {len(count.false_negatives):>2}"
        )
    lines.append(
        f"debatable, left out: {report.debatable}, of which as expected: {report.debatable_right}"
    )
    return "\n".join(lines)
