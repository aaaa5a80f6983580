"""The result of grading one response.

>>> Grade("correct", "5", "boxed", "exact", 0.1).correct
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["correct", "wrong", "no_answer", "truncated", "timeout", "gold_error"]


@dataclass(frozen=True)
class Grade:
    """A verdict with where it came from.

    `milliseconds` is the time of the whole call; `explanation` is filled on `explain=True`.
    """

    status: Status
    extracted: str | None
    how: str | None
    stage: str
    milliseconds: float
    explanation: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """The verdict as the rows of a scores file hold it; times in milliseconds.

        >>> Grade("wrong", "6", "boxed", "exact", 0.12345).row()["milliseconds"]
        0.123
        """
        return {
            "status": self.status,
            "correct": self.correct,
            "extracted": self.extracted,
            "how": self.how,
            "stage": self.stage,
            "milliseconds": round(self.milliseconds, 3),
        }

    @property
    def correct(self) -> bool:
        """Whether the answer counts as right."""
        return self.status == "correct"
