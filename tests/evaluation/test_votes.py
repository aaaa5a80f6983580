"""maj@k against brute force over all subsets, and what counts as one candidate."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oar_bench.evaluation import votes as v
from oar_bench.evaluation.votes import Votes


def brute(votes, k):
    """The definition: every subset of k samples votes once, ties share the win."""
    cast = ["right"] * votes.right + [None] * votes.silent
    cast += [f"wrong {i}" for i, count in enumerate(votes.wrong) for _ in range(count)]
    scores = []
    for subset in itertools.combinations(cast, k):
        counts = Counter(vote for vote in subset if vote)
        top = [name for name in counts if counts[name] == max(counts.values())]
        scores.append(1 / len(top) if "right" in top else 0.0)
    return sum(scores) / len(scores)


@given(
    st.integers(0, 4), st.lists(st.integers(1, 4), max_size=3), st.integers(0, 2), st.data()
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_exact_is_the_mean_over_all_subsets(right, wrong, silent, data):
    votes = Votes(right, tuple(sorted(wrong, reverse=True)), silent)
    if not 1 <= votes.samples <= 10:
        return
    k = data.draw(st.integers(1, votes.samples))
    assert v.maj_at_k(votes, k) == pytest.approx(brute(votes, k), abs=1e-12)


def test_one_vote_is_avg_at_k():
    assert v.maj_at_k(Votes(3, (4, 2), 1), 1) == pytest.approx(0.3)


def test_without_any_wrong_candidate_one_right_vote_is_enough():
    assert v.maj_at_k(Votes(1, (), 3), 2) == pytest.approx(0.5)
    assert v.maj_at_k(Votes(0, (), 4), 2) == 0


def test_a_tie_of_all_samples_is_shared():
    assert v.maj_at_k(Votes(2, (2, 2), 5), 11) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "votes", [Votes(20, (15, 10, 8, 4, 2, 1, 1), 3), Votes(300, (250, 200), 0)]
)
@pytest.mark.parametrize("k", [4, 32])
def test_draws_agree_with_the_exact_value_within_their_stated_error(votes, k):
    value, error = v.maj_by_draws(votes, k, draws=20_000)
    assert abs(value - v.maj_at_k(votes, k)) < 4 * error
    assert error < 0.5 / math.sqrt(20_000) * 1.001


def test_beyond_a_thousand_samples_it_is_drawn_and_says_so():
    votes = Votes(700, (600,), 0)
    with pytest.raises(ValueError, match="up to 1000"):
        v.maj_at_k(votes, 64)
    values, error = v.maj_of_all([votes, Votes(1, (), 0)], [1])
    assert 0 < error < 0.006
    assert values[0, 0] == pytest.approx(700 / 1300, abs=0.05)


@pytest.mark.parametrize("k", [0, 5])
def test_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="between 1 and 4"):
        v.maj_at_k(Votes(2, (1,), 1), k)


def test_a_thousand_samples_are_exact_and_quick():
    assert 0.5 < v.maj_at_k(Votes(400, (300, 200, 100), 0), 500) <= 1


@pytest.mark.parametrize(
    ("wrong", "candidates"),
    [
        (["1/2", "0.5", "\\frac{1}{2}", "$\\dfrac12$", "0.50"], (5,)),
        (["2(x+1)", "2x+2", "2x + 2", "x+2"], (3, 1)),
        (["(1, 2)", "(1,2)", "(2,1)"], (2, 1)),
        (["\\sqrt{8}", "2\\sqrt{2}", "3"], (2, 1)),
        (["1,000", "1000", "1001"], (2, 1)),
        (["red", "Red", "blue"], (2, 1)),
    ],
)
def test_wrong_answers_vote_as_what_they_mean(wrong, candidates):
    assert v.group_votes([(text, False) for text in wrong]).wrong == candidates


def test_right_answers_are_one_candidate_and_silence_is_none():
    found = v.group_votes([("1/2", True), ("x", True), (None, False), ("  ", False), ("y", False)])
    assert found == Votes(2, (1,), 2)


@pytest.mark.parametrize(
    ("kind", "answers", "candidates"),
    [
        ("choice", ["(A)", "A", "option A", "B"], (3, 1)),
        ("number", ["5 apples", "x = 5", "5.0", "6"], (3, 1)),
        ("exact", ["a  b", "a b", "A b"], (2, 1)),
    ],
)
def test_candidates_follow_the_answer_type(kind, answers, candidates):
    assert v.group_votes([(text, False) for text in answers], kind).wrong == candidates


def test_comparisons_are_bounded_and_those_left_out_counted():
    budget = v.Budget()
    answers = [(f"x + {i} y", False) for i in range(40)]
    found = v.group_votes(answers, budget=budget)
    assert budget.made == v.COMPARISONS
    assert budget.skipped > 0
    assert sum(found.wrong) == 40
    spent = v.Budget(left=0)
    assert v.group_votes([("2(x+1)", False), ("2x+2", False)], budget=spent).wrong == (1, 1)
    assert (spent.made, spent.skipped) == (0, 1)
    numbers = v.Budget()
    assert len(v.group_votes([(str(i), False) for i in range(99)], budget=numbers).wrong) == 99
    assert numbers.made == 0
