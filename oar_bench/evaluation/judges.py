"""Who gives the verdicts of an evaluation: our grader, or lm-eval for its own tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from oar_bench.answers import Grade, Grader


class Judge(Protocol):
    """What gives the verdicts of an evaluation."""

    @property
    def fingerprint(self) -> str:
        """Names everything that can change a verdict."""
        ...

    def grade(self, sample: Mapping[str, Any]) -> Grade:
        """The verdict on a row of samples.jsonl."""
        ...


class OwnJudge:
    """Verdicts by our grader; a gold's own tolerance goes before the task's."""

    def __init__(self, grader: Grader, tolerances: Mapping[str, float | None]) -> None:
        self.grader, self.tolerances = grader, tolerances
        self.fingerprint = grader.fingerprint

    def grade(self, sample: Mapping[str, Any]) -> Grade:
        """The verdict on a row of samples.jsonl."""
        return self.grader.grade(
            sample["response"], sample["gold"],
            truncated=sample["finish_reason"] == "length",
            tolerance=self.tolerances.get(sample["problem"]),
        )  # fmt: skip


@contextmanager
def judge_of(
    generation: Mapping[str, Any], tolerances: Mapping[str, float | None]
) -> Iterator[Judge]:
    """The judge of an evaluation: our grader, or lm-eval's filter and metric for its own tasks."""
    if generation.get("judge") == "lm-eval":
        from oar_bench.evaluation.stock import StockJudge

        yield StockJudge(generation["task"])
        return
    with Grader(**generation["grading"]) as grader:
        yield OwnJudge(grader, tolerances)
