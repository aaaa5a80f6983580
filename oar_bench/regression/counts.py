"""What is kept of an evaluation: a few whole numbers for each problem, and no text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from oar_bench.errors import InputError
from oar_bench.evaluation.rows import Seen
from oar_bench.evaluation.statistics import Floats
from oar_bench.records import read_jsonl
from oar_bench.reporting.evaluations import Evaluation

Ints = NDArray[np.int64]
LARGEST = 2**40
"""Counts from here on are damage; sums of such fit 64 bits."""
KEPT = ("correct", "no_answer", "truncated", "tokens")


@dataclass(frozen=True)
class Counts:
    """Sums over the K samples of each problem, (P,), problems in the sorted order of their names.

    `truncated` and `tokens` are None where an evaluation has no samples.jsonl, or where the tool
    that it was imported from doesn't say.
    """

    samples: int
    correct: Ints
    no_answer: Ints
    truncated: Ints | None
    tokens: Ints | None

    def means(self, name: str) -> Floats | None:
        """Means of one of `KEPT` over each problem's samples, (P,); None where it isn't known."""
        of = getattr(self, name)
        return None if of is None else np.asarray(of / self.samples, dtype=np.float64)


def count(evaluation: Evaluation) -> Counts:
    """The counts of a scored evaluation, from its scores.jsonl and samples.jsonl.

    Raises InputError when a row lacks a field, or the samples aren't those that were scored.
    """
    place = {name: i for i, name in enumerate(evaluation.matrix.problems)}
    size, k = evaluation.matrix.values.shape
    no_answer, truncated, tokens, rows = (np.zeros(size, dtype=np.int64) for _ in range(4))
    seen, known = Seen(), {"truncated", "tokens"}
    scores = evaluation.folder / "scores.jsonl"
    samples = evaluation.folder / "samples.jsonl"
    try:
        for row in read_jsonl(scores):
            no_answer[place[str(row["problem"])]] += row["status"] == "no_answer"
        for row in read_jsonl(samples) if samples.is_file() else ():
            at = place[str(row["problem"])]
            rows[at] += 1 if seen.add(row) else k  # twice: not those that were scored
            finish, length = row["finish_reason"], row["response_tokens"]
            known -= {name for name, value in (("truncated", finish), ("tokens", length))
                      if value is None}  # fmt: skip
            truncated[at] += finish == "length"
            tokens[at] += 0 if length is None else _length(length)
    except KeyError as error:
        raise InputError(
            f"a row lacks {error} or isn't of this evaluation", str(evaluation.folder),
            "score again",
        ) from error  # fmt: skip
    except (TypeError, ValueError) as error:
        raise InputError(f"a row is damaged: {error}", str(evaluation.folder)) from error
    if not samples.is_file():
        known = set()
    elif not (rows == k).all():
        raise InputError(
            "samples.jsonl holds other samples than scores.jsonl", str(evaluation.folder),
            "run `oar-bench score` again",
        )  # fmt: skip
    correct = evaluation.matrix.values.sum(axis=1, dtype=np.int64)
    return Counts(k, correct, no_answer, truncated if "truncated" in known else None,
                  tokens if "tokens" in known else None)  # fmt: skip


def _length(value: object) -> int:
    """A count of tokens; ValueError when it is none."""
    if not isinstance(value, int) or not 0 <= value < LARGEST:
        raise ValueError(f"{str(value)[:20]} is no number of tokens")
    return value


def encode(values: Ints) -> str:
    """Whole numbers in one line, runs of equal ones shortened.

    >>> encode(np.array([3, 0, 0, 0, 4])), encode(np.array([], dtype=np.int64))
    ('3 0*3 4', '')
    """
    words = []
    for value, run in groupby(values.tolist()):
        length = len(list(run))
        words.append(str(value) if length == 1 else f"{value}*{length}")
    return " ".join(words)


def decode(text: str, size: int) -> Ints:
    """The numbers that `encode` wrote; ValueError when they aren't `size` whole numbers.

    >>> decode("3 0*3 4", 5)
    array([3, 0, 0, 0, 4])
    """
    values: list[int] = []
    for word in text.split(" ") if text else ():
        value, star, length = word.partition("*")
        times = int(length) if star else 1
        if times < 1 or len(values) + times > size:
            raise ValueError(f"{size} numbers are expected")
        values += [int(value)] * times
    if len(values) != size or min(values, default=0) < 0 or max(values, default=0) >= LARGEST:
        raise ValueError(f"{size} numbers, none below 0 or beyond {LARGEST}, are expected")
    return np.array(values, dtype=np.int64)
