"""From the rows of one evaluation to the `metrics` of its results.json."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from oar_bench.answers.extract import AnswerType
from oar_bench.evaluation import metrics
from oar_bench.evaluation.statistics import Interval, share_interval
from oar_bench.evaluation.votes import Budget, group_votes, maj_of_all

Row = Mapping[str, Any]

STATUSES = ("correct", "wrong", "no_answer", "truncated", "timeout", "gold_error")
"""The grader's verdicts, in the order in which tables show them."""
SILENT = ("no_answer", "truncated")
"""Verdicts of responses without an answer: they don't vote."""


def summarize(
    samples: Iterable[Row],
    scores: Iterable[Row],
    *,
    answer_type: AnswerType = "math",
    cap: int | None = None,
    k: int | None = None,
) -> dict[str, Any]:
    """Everything that a table says about one model on one task, ready for JSON.

    Reads each stream once, in any order, and keeps some 200 bytes a sample. Keys of the result:

    - `n_problems`, `n_samples` (all rows), `k` (samples a problem)
    - `avg@k`, then `pass@1`, `pass@2`, `pass@4` .. `pass@k` and `maj@2`, `maj@4` .. `maj@k`: each
      an interval over problem means (`value, low, high, se, df, n, method`; shares; see
      `statistics.share_interval`)
    - `maj_votes`: `comparisons` of answers by algebra, those `skipped` at the bound, and
      `monte_carlo_se` (0: every maj@k is exact)
    - `run_sd`: run-to-run SD of the score (null for k = 1)
    - `truncated`: share of samples that hit the length limit; `no_answer`: share in which the
      grader found none; `statuses`: how many samples got each verdict
    - `response_tokens`: mean tokens a response; `tokens`: mean, median and p90
    - `budget`: [cap, accuracy] had the token cap been smaller (`metrics.budget_curve`)
    - `equal_completions`: share of the samples whose text another sample of the problem repeats

    Where a row doesn't say how its response ended or how long it is (null, in what other tools
    wrote), `truncated` and `response_tokens` are null, and `tokens` and `budget` are absent.

    Args:
        samples: rows of samples.jsonl.
        scores: rows of scores.jsonl.
        answer_type: how answers are compared when they vote.
        cap: the token limit of the run, the last point of the budget curve.
        k: of an evaluation that isn't complete: samples a problem should have. Problems with
            fewer are left out then, and `left_out_problems` counts them.

    Raises ValueError, naming task-independent identity (problem and sample), when a row occurs
    twice, a score has no sample, a sample no score, or problems differ in their sample count.

    >>> samples = [{"problem": "a", "sample": s, "response": "4", "finish_reason": "stop",
    ...             "response_tokens": 3} for s in (0, 1)]
    >>> scores = [{"problem": "a", "sample": s, "status": "correct", "correct": True,
    ...            "extracted": "4"} for s in (0, 1)]
    >>> result = summarize(samples, scores)
    >>> result["avg@k"]["value"], result["maj@2"]["value"], result["budget"]
    (1.0, 1.0, [[3, 1.0]])
    """
    table = _read_samples(samples)
    _read_scores(scores, table)
    _refuse_unscored(table)
    partial = {} if k is None else {name: of for name, of in table.items() if len(of) < k}
    table = {name: table[name] for name in sorted(table) if name not in partial}
    if partial and not table:
        raise ValueError(f"no problem has all its {k} samples yet: generate the rest first")
    matrix = _matrix(table)
    statuses = Counter(str(sample.status) for of in table.values() for sample in of.values())
    n, k = matrix.size, matrix.shape[1]
    every = [sample for of in table.values() for sample in of.values()]
    result: dict[str, Any] = {"n_problems": len(table), "n_samples": n, "k": k}
    if partial:
        result["left_out_problems"] = len(partial)
    result["avg@k"] = to_json(share_interval(metrics.avg_at_k(matrix)))
    for size in metrics.powers(k):
        result[f"pass@{size}"] = to_json(share_interval(metrics.pass_at_k(matrix, size)))
    result |= _majorities(table, k, answer_type)
    result["run_sd"] = finite(metrics.run_sd(matrix))
    cut = [sample.truncated for sample in every if sample.truncated is not None]
    result["truncated"] = sum(cut) / n if len(cut) == n else None
    result["no_answer"] = statuses["no_answer"] / n
    known = [status for status in STATUSES if statuses[status]]
    result["statuses"] = {s: statuses[s] for s in [*known, *sorted(set(statuses) - set(known))]}
    result |= _lengths(every, cap)
    result["equal_completions"] = _equal(table) / n
    return result


def to_json(interval: Interval) -> dict[str, Any]:
    """The fields of an interval; what JSON can't hold (NaN, infinite df) becomes null."""
    return {
        name: finite(value) if isinstance(value, float) else value
        for name, value in asdict(interval).items()
    }


def finite(value: float) -> float | None:
    """A float for JSON: None in place of NaN and the infinities."""
    return float(value) if math.isfinite(value) else None


class _Sample:
    """What the summary keeps of a sample and its score."""

    __slots__ = ("answer", "correct", "status", "text", "tokens", "truncated")

    def __init__(self, row: Row) -> None:
        # equality within this process is all that is asked of the text
        self.text = hash(str(row["response"]))
        self.tokens: int | None = row["response_tokens"]
        reason = row["finish_reason"]
        self.truncated: bool | None = None if reason is None else reason == "length"
        self.status: str | None = None
        self.correct = False
        self.answer: str | None = None


Table = dict[str, dict[int, _Sample]]


def _read_samples(samples: Iterable[Row]) -> Table:
    table: Table = {}
    for row in samples:
        of = table.setdefault(str(row["problem"]), {})
        if row["sample"] in of:
            raise ValueError(f"sample {row['sample']} of problem {row['problem']!r} occurs twice")
        of[row["sample"]] = _Sample(row)
    return table


def _read_scores(scores: Iterable[Row], table: Table) -> None:
    """Put each score to its sample. Equal answers of one problem are one string in memory."""
    for row in scores:
        name = f"sample {row['sample']} of problem {row['problem']!r}"
        sample = table.get(str(row["problem"]), {}).get(row["sample"])
        if sample is None:
            raise ValueError(f"a score for {name}, but no such sample")
        if sample.status is not None:
            raise ValueError(f"{name} is scored twice")
        sample.status = sys.intern(str(row["status"]))
        sample.correct = bool(row["correct"])
        answer = row.get("extracted")
        if isinstance(answer, str) and sample.status not in SILENT:
            sample.answer = sys.intern(answer) if len(answer) < 64 else answer


def _refuse_unscored(table: Table) -> None:
    if not table:
        raise ValueError("no score rows: nothing was evaluated")
    for name in sorted(table):
        scored = sum(sample.status is not None for sample in table[name].values())
        if not scored:
            raise ValueError(f"problem {name!r} has samples but no scores: score them first")
        if scored < len(table[name]):
            raise ValueError(
                f"problem {name!r} has {len(table[name])} samples but {scored} scores: "
                "score them first"
            )


def _matrix(table: Table) -> metrics.Bools:
    metrics.refuse_ragged({name: len(of) for name, of in table.items()})
    return np.array([[of[i].correct for i in sorted(of)] for of in table.values()], dtype=np.bool_)


def _majorities(table: Table, k: int, answer_type: AnswerType) -> dict[str, Any]:
    """maj@2, maj@4 .. maj@k with their intervals; nothing for one sample a problem."""
    if k < 2:
        return {}
    budget = Budget()
    every = [
        group_votes(((s.answer, s.correct) for s in of.values()), answer_type, budget)
        for of in table.values()
    ]
    sizes = metrics.powers(k)[1:]
    values, error = maj_of_all(every, sizes)
    found: dict[str, Any] = {
        f"maj@{size}": to_json(share_interval(values[:, place])) for place, size in enumerate(sizes)
    }
    found["maj_votes"] = {
        "comparisons": budget.made, "skipped": budget.skipped, "monte_carlo_se": error,
    }  # fmt: skip
    return found


def _lengths(every: list[_Sample], cap: int | None) -> dict[str, Any]:
    """What token counts say; only that they aren't known where a sample has none."""
    known = [sample.tokens for sample in every if sample.tokens is not None]
    if len(known) < len(every):
        return {"response_tokens": None}
    tokens = np.array(known, dtype=np.int64)
    curve = metrics.budget_curve(
        [sample.correct for sample in every], tokens, metrics.budget_caps(tokens, cap)
    )
    return {
        "response_tokens": float(tokens.mean()),
        "tokens": metrics.token_counts(tokens),
        "budget": [list(point) for point in curve],
    }


def _equal(table: Table) -> int:
    repeated = 0
    for of in table.values():
        counts = Counter(sample.text for sample in of.values())
        repeated += sum(count for count in counts.values() if count > 1)
    return repeated
