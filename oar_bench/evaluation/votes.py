r"""maj@k: how often the most frequent answer of k samples is right, ties averaged.

Answers vote as what they mean, not as they are spelt: `group_votes` counts "1/2", "0.5" and
"\frac12" as one candidate. A response without an answer doesn't vote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oar_bench.answers.decide import decide
from oar_bench.answers.exact import plain_number
from oar_bench.answers.extract import AnswerType, first_number
from oar_bench.answers.limits import MAX_ANSWER_CHARS
from oar_bench.answers.normalize import clean
from oar_bench.answers.textual import choice_letter, text_key
from oar_bench.evaluation.intervals import Floats

COMPARISONS = 64  # answers of one problem compared by algebra, at most
ALL_COMPARISONS = 20_000  # the same for a whole evaluation: some seconds
EXACT_SAMPLES = 1000  # beyond, C(n, k) leaves the range of a double: maj@k is drawn
DRAWS = 2000


class Votes(NamedTuple):
    """The votes of one problem: for the right answer, for each wrong one, and abstentions.

    `wrong` is sorted from large to small, so that equal situations are equal values.
    """

    right: int
    wrong: tuple[int, ...]
    silent: int

    @property
    def samples(self) -> int:
        """All samples, n."""
        return self.right + sum(self.wrong) + self.silent


@dataclass
class Budget:
    """Comparisons by algebra that are left, and how many were not made for want of them."""

    left: int = ALL_COMPARISONS
    made: int = 0
    skipped: int = 0


def normal_form(answer: str, answer_type: AnswerType = "math") -> str:
    r"""A string that is equal for most answers that are equal.

    Plain numbers become exact fractions, everything else is cleaned of layout and case.

    >>> normal_form("0.50") == normal_form("\\frac{1}{2}") == normal_form(" 1/2 ")
    True
    >>> normal_form("72 apples", "number"), normal_form("(B) because", "choice")
    ('72', 'B')
    """
    if answer_type == "exact":
        return " ".join(answer.split())
    if answer_type == "choice":
        return choice_letter(answer) or answer.strip()
    if answer_type == "number":
        answer = first_number(answer) or answer
    if len(answer) > MAX_ANSWER_CHARS:
        return answer.strip()
    cleaned = clean(answer)
    number = plain_number(cleaned)
    return str(number) if number is not None else text_key(cleaned)


def group_votes(
    answers: Iterable[tuple[str | None, bool]],
    answer_type: AnswerType = "math",
    budget: Budget | None = None,
) -> Votes:
    r"""Count the votes of one problem's samples, given as (answer or None, is correct).

    1. None doesn't vote. 2. Correct answers all equal the gold, so they are one candidate.
    3. Wrong ones are one candidate where their `normal_form` is the same string, or, except
    between two plain numbers (exact already), where `answers.decide` proves them equal: that is
    `answers.equivalent` without its worker processes, so that a vote never depends on a deadline.
    At most `COMPARISONS` such proofs a problem; answers beyond stay apart, and `budget` counts
    them. A wrong answer is never merged with a right one.

    >>> group_votes([("1/2", True), ("0.5", True), ("2x+2", False), ("2(x+1)", False),
    ...              ("7", False), (None, False)])
    Votes(right=2, wrong=(2, 1), silent=1)
    """
    budget = budget or Budget()
    right = silent = 0
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for answer, correct in answers:
        if answer is None or not answer.strip():
            silent += 1
        elif correct:
            right += 1
        else:
            form = normal_form(answer, answer_type)
            counts[form] = counts.get(form, 0) + 1
            texts.setdefault(form, answer)
    if answer_type in ("math", "number"):
        counts = _merged(counts, texts, budget)
    return Votes(right, tuple(sorted(counts.values(), reverse=True)), silent)


def _merged(counts: dict[str, int], texts: dict[str, str], budget: Budget) -> dict[str, int]:
    """Candidates that algebra proves equal, joined; the most frequent ones are compared first."""
    forms = sorted(counts, key=lambda form: (-counts[form], form))
    numbers = {form for form in forms if plain_number(form) is not None}
    if len(numbers) == len(forms):
        return counts
    merged: dict[str, int] = {}
    allowed = min(COMPARISONS, budget.left)
    for form in forms:
        home = form
        for other in merged:
            if form in numbers and other in numbers:
                continue
            if not allowed:
                budget.skipped += 1
                break
            allowed -= 1
            budget.left -= 1
            budget.made += 1
            if decide(texts[form], texts[other]).verdict:
                home = other
                break
        merged[home] = merged.get(home, 0) + counts[form]
    return merged


def maj_at_k(votes: Votes, k: int) -> float:
    """The chance that the majority answer of k of the n samples, drawn without return, is right.

    The expectation over all C(n, k) subsets, exactly. With j votes for the right answer, t wrong
    candidates that also have j and none with more, the subset scores 1 / (1 + t):

        maj@k = sum_j C(c, j) sum_t N(j, t) / (1 + t) / C(n, k)

    where N(j, t) counts the ways to fill the other k - j places from the wrong candidates and the
    abstentions: the coefficient of x^(k-j) u^t in the product over wrong candidates of size w of
    (sum_{i<j} C(w, i) x^i + C(w, j) u x^j), times (1 + x)^silent. A subset in which nobody votes
    scores 0. Source: Wang et al. 2023, "Self-Consistency", arXiv 2203.11171, for the vote; the
    expectation over subsets as for pass@k (`metrics.pass_at_k`).

    Two of four right, one candidate each against them: of the six pairs one holds both right
    answers, four are a tie of right and wrong, one is a tie of the two wrong ones: 1/6 + 4/6 / 2.

    >>> maj_at_k(Votes(2, (1, 1), 0), 2), maj_at_k(Votes(2, (1, 1), 0), 4)
    (0.5, 1.0)

    Raises ValueError unless 1 <= k <= n and n <= EXACT_SAMPLES (then use `maj_by_draws`).
    """
    _check(votes, k)
    if votes.samples > EXACT_SAMPLES:
        raise ValueError(f"exact maj@k is for up to {EXACT_SAMPLES} samples")
    return float(_exact(votes)[k])


@lru_cache(maxsize=4096)
def _exact(votes: Votes) -> Floats:
    """maj@k for every k = 0 .. n: the sums over the places left differ only in one coefficient."""
    n = votes.samples
    total, mine, subsets = np.zeros(n + 1), _binomials(votes.right), _binomials(n)
    if not votes.wrong:  # one right vote is a majority: pass@k
        silent = _binomials(votes.silent)
        total[: silent.size] = silent
        return 1.0 - total / subsets
    for j in range(1, votes.right + 1):
        # candidates with fewer than j samples can neither tie nor win: they are free places
        strong = [w for w in votes.wrong if w >= j]
        ways = _fillings(strong, j, n - j)
        shared = (1.0 / np.arange(1, ways.shape[0] + 1)) @ ways
        free = _binomials(n - votes.right - sum(strong))
        total[j:] += mine[j] * np.convolve(shared, free)[: n - j + 1]
    return total / subsets


def _fillings(strong: Sequence[int], j: int, left: int) -> Floats:
    """(T + 1, left + 1): ways to take s samples with t of the candidates at exactly j, none over.

    Each of `strong` has at least j samples.
    """
    most = min(len(strong), left // j)
    ways = np.zeros((most + 1, left + 1))
    ways[0, 0] = 1.0
    for w in strong:
        chosen = _binomials(w)[: min(j, left + 1)]
        fewer = np.zeros_like(ways)
        if chosen.size <= most + 1:
            for i, count in enumerate(chosen):
                fewer[:, i:] += count * ways[:, : left + 1 - i]
        else:
            for t in range(most + 1):
                fewer[t] = np.convolve(ways[t], chosen)[: left + 1]
        if most:
            fewer[1:, j:] += _binomials(w)[j] * ways[:-1, : left + 1 - j]
        ways = fewer
    return ways


@lru_cache(maxsize=2048)
def _binomials(n: int) -> NDArray[np.float64]:
    return np.array([math.comb(n, i) for i in range(n + 1)], dtype=np.float64)


def maj_by_draws(votes: Votes, k: int, seed: int = 0, draws: int = DRAWS) -> tuple[float, float]:
    """maj@k from `draws` random subsets, and its Monte-Carlo standard error; seeded.

    For any number of samples. The error is SD / sqrt(draws), at most 0.5 / sqrt(draws): 1.1
    points for one problem and 2000 draws, and it shrinks with the root of the problems.

    >>> value, error = maj_by_draws(Votes(2, (1, 1), 0), 2)
    >>> abs(value - 0.5) < 3 * error, error < 0.012
    (True, True)
    """
    _check(votes, k)
    sizes = [votes.right, *votes.wrong, votes.silent]
    generator = np.random.default_rng([seed, k, *sizes])
    drawn = generator.multivariate_hypergeometric(sizes, k, size=draws)
    most = drawn[:, :-1].max(axis=1, keepdims=True)
    top = (drawn[:, :-1] == most) & (most > 0)
    score = top[:, 0] / np.maximum(top.sum(axis=1), 1)
    return float(score.mean()), float(score.std(ddof=1) / math.sqrt(draws))


def maj_of_all(every: Sequence[Votes], ks: Sequence[int]) -> tuple[Floats, float]:
    """maj@k of each problem, (P, len(ks)), and the Monte-Carlo SE of a mean over the problems.

    The error is that of the k where it is largest, and 0 where all is exact.

    >>> maj_of_all([Votes(2, (1, 1), 0), Votes(0, (3,), 1)], [2, 4])
    (array([[0.5, 1. ],
           [0. , 0. ]]), 0.0)
    """
    values, variance = np.empty((len(every), len(ks))), np.zeros(len(ks))
    for place, votes in enumerate(every):
        for column, k in enumerate(ks):
            if votes.samples <= EXACT_SAMPLES:
                values[place, column] = maj_at_k(votes, k)
            else:
                values[place, column], error = maj_by_draws(votes, k)
                variance[column] += error**2
    return values, float(np.sqrt(variance.max())) / len(every)


def _check(votes: Votes, k: int) -> None:
    if not 1 <= k <= votes.samples:
        raise ValueError(f"maj@{k} needs between 1 and {votes.samples} samples a problem")
