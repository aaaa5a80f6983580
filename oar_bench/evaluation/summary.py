"""From the rows of one evaluation to the `metrics` of its results.json."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from oar_bench.evaluation import metrics
from oar_bench.evaluation.statistics import Interval, share_interval

Row = Mapping[str, Any]

STATUSES = ("correct", "wrong", "no_answer", "truncated", "timeout", "gold_error")
"""The grader's verdicts, in the order in which tables show them."""


def summarize(samples: Iterable[Row], scores: Iterable[Row]) -> dict[str, Any]:
    """Everything that a table says about one model on one task, ready for JSON.

    Reads each stream once, in any order. Keys of the result:

    - `n_problems`, `n_samples` (all rows), `k` (samples a problem)
    - `avg@k` and `pass@1`, `pass@2`, `pass@4` .. `pass@k`: each an interval over problem means
      (`value, low, high, se, df, n, method`; shares; see `statistics.share_interval`)
    - `run_sd`: run-to-run SD of the score (null for k = 1)
    - `truncated`: share of samples that hit the length limit; `no_answer`: share in which the
      grader found none; `statuses`: how many samples got each verdict
    - `response_tokens`: mean tokens a response
    - `equal_completions`: share of the samples whose text another sample of the problem repeats

    Raises ValueError, naming task-independent identity (problem and sample), when a row occurs
    twice, a score has no sample, a sample no score, or problems differ in their sample count.

    >>> samples = [{"problem": "a", "sample": s, "response": "4", "finish_reason": "stop",
    ...             "response_tokens": 3} for s in (0, 1)]
    >>> scores = [{"problem": "a", "sample": s, "status": "correct", "correct": True}
    ...           for s in (0, 1)]
    >>> result = summarize(samples, scores)
    >>> result["avg@k"]["value"], result["statuses"], result["equal_completions"]
    (1.0, {'correct': 2}, 1.0)
    """
    texts, truncated, tokens = _read_samples(samples)
    statuses: Counter[str] = Counter()
    matrix = metrics.correctness(_counted(scores, texts, statuses))
    n = sum(statuses.values())
    if n != sum(len(of) for of in texts.values()):
        raise ValueError(_unscored(texts, matrix))
    k = matrix.values.shape[1]
    result: dict[str, Any] = {"n_problems": len(matrix.problems), "n_samples": n, "k": k}
    result["avg@k"] = to_json(share_interval(metrics.avg_at_k(matrix.values)))
    for size in metrics.powers(k):
        result[f"pass@{size}"] = to_json(share_interval(metrics.pass_at_k(matrix.values, size)))
    result["run_sd"] = finite(metrics.run_sd(matrix.values))
    result["truncated"] = truncated / n
    result["no_answer"] = statuses["no_answer"] / n
    known = [status for status in STATUSES if statuses[status]]
    result["statuses"] = {s: statuses[s] for s in [*known, *sorted(set(statuses) - set(known))]}
    result["response_tokens"] = tokens / n
    result["equal_completions"] = _equal(texts) / n
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


Texts = dict[str, dict[int, bytes]]


def _read_samples(samples: Iterable[Row]) -> tuple[Texts, int, int]:
    """Digest of each response by problem and sample; number truncated; response tokens."""
    texts: Texts = {}
    truncated = tokens = 0
    for row in samples:
        of = texts.setdefault(str(row["problem"]), {})
        if row["sample"] in of:
            raise ValueError(f"sample {row['sample']} of problem {row['problem']!r} occurs twice")
        response = str(row["response"]).encode("utf-8", "surrogatepass")
        of[row["sample"]] = hashlib.blake2b(response, digest_size=16).digest()
        truncated += row["finish_reason"] == "length"
        tokens += row["response_tokens"]
    return texts, truncated, tokens


def _counted(scores: Iterable[Row], texts: Texts, statuses: Counter[str]) -> Iterator[Row]:
    for row in scores:
        if row["sample"] not in texts.get(str(row["problem"]), {}):
            raise ValueError(
                f"a score for sample {row['sample']} of problem {row['problem']!r}, "
                "but no such sample"
            )
        statuses[str(row["status"])] += 1
        yield row


def _unscored(texts: Texts, matrix: metrics.Correctness) -> str:
    missing = sorted(set(texts) - set(matrix.problems))
    if missing:
        return f"problem {missing[0]!r} has samples but no scores: score them first"
    k = matrix.values.shape[1]
    problem = next(name for name in sorted(texts) if len(texts[name]) != k)
    return f"problem {problem!r} has {len(texts[problem])} samples but {k} scores: score them first"


def _equal(texts: Texts) -> int:
    repeated = 0
    for of in texts.values():
        counts = np.array(list(Counter(of.values()).values()))
        repeated += int(counts[counts > 1].sum())
    return repeated
