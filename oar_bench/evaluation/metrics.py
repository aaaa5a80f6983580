"""What a table of right and wrong samples says: avg@k, pass@k, run-to-run SD, the budget curve.

maj@k needs the answers themselves and lives in `votes`.


Pure functions on the correctness matrix of one task: P problems by K samples, True = correct.
A metric is returned per problem, because the problem is the unit of every interval
(`statistics`); only `run_sd` is one number for the whole matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correctness:
    """Which samples of which problems are correct.

    `problems` holds the P problem ids in sorted order, `values` is (P, K) bool with the samples
    in the order of their index.
    """

    problems: tuple[str, ...]
    values: Bools


def correctness(scores: Iterable[Mapping[str, Any]]) -> Correctness:
    """The (P, K) matrix of one task from its score rows (`problem`, `sample`, `correct`).

    Every problem must have the same number of samples: with ragged rows avg@k would weigh
    problems by luck and run-to-run SD would have no meaning.

    Raises ValueError for no rows, a (problem, sample) that occurs twice, or ragged samples.

    >>> rows = [{"problem": p, "sample": s, "correct": p == "b" or s == 1}
    ...         for p in "ba" for s in (1, 0)]
    >>> correctness(rows)  # doctest: +NORMALIZE_WHITESPACE
    Correctness(problems=('a', 'b'), values=array([[False,  True], [ True,  True]]))
    """
    table: dict[str, dict[int, bool]] = {}
    for row in scores:
        samples = table.setdefault(str(row["problem"]), {})
        if row["sample"] in samples:
            raise ValueError(
                f"sample {row['sample']} of problem {row['problem']!r} is scored twice"
            )
        samples[row["sample"]] = bool(row["correct"])
    if not table:
        raise ValueError("no score rows: nothing was evaluated")
    problems = sorted(table)
    refuse_ragged({problem: len(table[problem]) for problem in problems})
    values = [[table[problem][index] for index in sorted(table[problem])] for problem in problems]
    return Correctness(tuple(problems), np.array(values, dtype=np.bool_))


def refuse_ragged(counts: Mapping[str, int]) -> None:
    """ValueError, naming two of them, unless all problems have one number of samples."""
    most = max(counts, key=lambda problem: counts[problem])
    least = min(counts, key=lambda problem: counts[problem])
    if counts[most] != counts[least]:
        raise ValueError(
            f"problem {least!r} has {counts[least]} scored samples but {most!r} has "
            f"{counts[most]}: every problem needs the same number"
        )


def avg_at_k(values: Bools) -> Floats:
    """avg@k: the share of correct samples of each problem, (P, K) -> (P,).

    Its mean over problems estimates pass@1 of the sampling policy.

    >>> avg_at_k(np.array([[True, False], [True, True]]))
    array([0.5, 1. ])
    """
    return np.asarray(values.mean(axis=1), dtype=np.float64)


def pass_at_k(values: Bools, k: int) -> Floats:
    """Unbiased pass@k of each problem, (P, K) -> (P,), from n = K samples with c correct.

    1 - C(n-c, k) / C(n, k), in its product form 1 - prod_{i=n-c+1..n} (1 - k/i), which neither
    overflows nor cancels. Source: Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code", arXiv 2107.03374, section 2.1 and figure 3.

    With one of four samples right, two draws without replacement hold it half of the time:

    >>> pass_at_k(np.array([[True, False, False, False]]), 2)
    array([0.5])

    Raises ValueError unless 1 <= k <= K.
    """
    n = values.shape[1]
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs between 1 and {n} samples a problem")
    if k == 1:
        return avg_at_k(values)  # the same number, without the product's rounding
    # factors[c] = prod over the c largest i of (1 - k/i); 1 - k/i < 0 only where i < k, and
    # there some earlier factor (i = k) is already zero, so clipping at zero is exact.
    factors = np.clip(1.0 - k / np.arange(n, 0, -1), 0.0, None)
    failing = np.concatenate(([1.0], np.cumprod(factors)))
    return np.asarray(1.0 - failing[values.sum(axis=1)], dtype=np.float64)


def powers(n: int) -> list[int]:
    """The k at which pass@k is reported: 1, 2, 4, ... below n, and n itself.

    >>> powers(6), powers(1)
    ([1, 2, 4, 6], [1])
    """
    below = [2**i for i in range(n.bit_length()) if 2**i < n]
    return [*below, n]


def run_sd(values: Bools) -> float:
    """Run-to-run SD: how much the benchmark's score moves when everything is sampled once more.

    SD (n - 1) over the K sample indices of the mean over problems, (P, K) -> a share. It holds
    sampling noise only: not the choice of problems (the interval does), nor the training seed.
    NaN when K = 1.

    >>> round(run_sd(np.array([[True, False], [True, True]])), 4)
    0.3536
    """
    if values.shape[1] < 2:
        return float("nan")
    return float(values.mean(axis=0).std(ddof=1))


def token_counts(tokens: ArrayLike) -> dict[str, float]:
    """Mean, median and 90th percentile of the response lengths, (N,) tokens a response.

    Percentiles interpolate between neighbours (Hyndman and Fan 1996, type 7; numpy's default).

    >>> token_counts([10, 20, 30, 40, 100])
    {'mean': 40.0, 'median': 30.0, 'p90': 76.0}
    """
    x = np.asarray(tokens, dtype=np.float64)
    median, p90 = np.percentile(x, [50, 90])
    return {"mean": float(x.mean()), "median": float(median), "p90": float(p90)}


def budget_curve(
    correct: ArrayLike, tokens: ArrayLike, caps: Sequence[int]
) -> list[tuple[int, float]]:
    """The accuracy that a smaller token cap would have given, from saved rows alone.

    A response of more than `cap` tokens counts as truncated and so as not correct; one of at most
    `cap` tokens would have been the same under that cap. (N,) verdicts and lengths in, (cap,
    share correct) out. Exact for a model that isn't told its cap, but for one thing: an answer
    that stood complete before the cap in a longer response is not credited.

    >>> budget_curve([True, True, False, True], [10, 30, 20, 50], [16, 32, 64])
    [(16, 0.25), (32, 0.5), (64, 0.75)]
    """
    right, length = np.asarray(correct, dtype=np.bool_), np.asarray(tokens)
    if right.shape != length.shape or right.ndim != 1 or not right.size:
        raise ValueError("a verdict and a length for each of at least one response are needed")
    spent = np.sort(length[right])
    return [(cap, int(np.searchsorted(spent, cap, side="right")) / right.size) for cap in caps]


def budget_caps(tokens: ArrayLike, cap: int | None = None) -> list[int]:
    """The caps of a budget curve: powers of two from the shortest response on, then the real cap.

    Powers beyond the longest response say nothing new and are left out. Without a known `cap` the
    longest response stands for it, so that the last point is the accuracy itself.

    >>> budget_caps([12, 100, 300], 2048), budget_caps([5, 9])
    ([16, 32, 64, 128, 256, 512, 2048], [8, 9])
    """
    length = np.asarray(tokens)
    shortest, longest = max(int(length.min()), 1), max(int(length.max()), 1)
    last = max(cap or longest, longest)
    powers_of_two = []
    power = 1 << (shortest - 1).bit_length()
    while power < last:
        powers_of_two.append(power)
        if power >= longest:
            break
        power *= 2
    return [*powers_of_two, last]
