"""The grader: a response and a gold answer in, a verdict with its reason out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from oar_bench.answers.extract import extract_answer
from oar_bench.identity import fingerprint

Status = Literal["correct", "wrong", "no_answer", "truncated", "timeout", "gold_error"]
VERSION = 1  # raised whenever a verdict can change


@dataclass(frozen=True)
class Grade:
    """One verdict: its status, the answer found, how it was found and which stage decided."""

    status: Status
    extracted: str | None
    how: str | None
    stage: str
    milliseconds: float

    @property
    def correct(self) -> bool:
        """True for status `correct` alone."""
        return self.status == "correct"


class Grader:
    """Grades responses by equality of the extracted answer with the gold, up to white space.

    >>> with Grader(answer_type="exact") as grader:
    ...     [grader.grade(text, "4 2").status for text in ("#### 4  2", "#### 2 4", "4 2")]
    ['correct', 'wrong', 'no_answer']
    >>> Grader(answer_type="exact").grade("4 +", "4", truncated=True).status
    'truncated'
    """

    def __init__(self, *, answer_type: str = "exact") -> None:
        self.answer_type = answer_type
        self.fingerprint = fingerprint({"version": VERSION, "answer_type": answer_type})

    def grade(self, response: str, gold: str, *, truncated: bool = False) -> Grade:
        """The verdict on one response; `truncated` says that it ran into the token limit."""
        start = time.perf_counter()
        found = extract_answer(response)
        status: Status
        if not gold.split():
            status = "gold_error"
        elif found is None:
            status = "truncated" if truncated else "no_answer"
        else:
            status = "correct" if found.text.split() == gold.split() else "wrong"
        spent = (time.perf_counter() - start) * 1000
        text, how = (found.text, found.how) if found else (None, None)
        return Grade(status, text, how, "exact" if found else "extract", spent)

    def close(self) -> None:
        """Release what the grader holds; grading after it is an error of the caller."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


def grade(response: str, gold: str, *, answer_type: str = "exact") -> Grade:
    """Grade one response; for many, keep a `Grader`."""
    with Grader(answer_type=answer_type) as grader:
        return grader.grade(response, gold)
