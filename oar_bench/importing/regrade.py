"""Our grader's verdicts on imported responses, beside those of the tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oar_bench.answers import Grader
from oar_bench.errors import InputError
from oar_bench.importing.found import Found, Sample


class Regrader:
    """A grader that counts where it judges otherwise than the tool did.

    `changes` holds `known` (samples with a verdict of the tool), and of them those that went
    `to_correct` and `to_wrong`.
    """

    def __init__(self, grading: Mapping[str, Any]) -> None:
        self._grader = Grader(**grading)
        self.fingerprint = self._grader.fingerprint
        self.changes = {"known": 0, "to_correct": 0, "to_wrong": 0}

    def verdicts(self, batch: Sequence[Sample], found: Found) -> list[dict[str, Any]]:
        """The fields of the score rows of `batch`.

        Raises:
            InputError: a sample has no response or no gold.
        """
        return [self._verdict(sample, found) for sample in batch]

    def _verdict(self, sample: Sample, found: Found) -> dict[str, Any]:
        if sample.response is None or sample.gold is None:
            lacking = "response" if sample.response is None else "gold"
            raise InputError(
                f"sample {sample.sample} of problem {sample.problem!r} has no {lacking}",
                found.where, "import it without --regrade",
            )  # fmt: skip
        grade = self._grader.grade(
            sample.response, sample.gold, truncated=sample.truncated is True,
            tolerance=sample.tolerance,
        )  # fmt: skip
        if sample.value in (0.0, 1.0):
            self.changes["known"] += 1
            if grade.correct != (sample.value == 1.0):
                self.changes["to_correct" if grade.correct else "to_wrong"] += 1
        return grade.row()

    def close(self) -> None:
        """End the grader's processes; use it by `contextlib.closing`."""
        self._grader.close()
