"""Metrics against hand numbers and against brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.evaluation import metrics


def rows(table):
    return [
        {"problem": f"p{i}", "sample": k, "correct": bool(v)}
        for i, row in enumerate(table)
        for k, v in enumerate(row)
    ]


def test_the_matrix_has_sorted_problems_and_samples_whatever_the_order_of_rows():
    table = [[1, 0, 0], [0, 1, 1], [1, 1, 1]]
    shuffled = rows(table)
    np.random.default_rng(0).shuffle(shuffled)
    matrix = metrics.correctness(shuffled)
    assert matrix.problems == ("p0", "p1", "p2")
    assert matrix.values.tolist() == np.array(table, dtype=bool).tolist()


@pytest.mark.parametrize(
    ("given_rows", "message"),
    [
        ([], "no score rows"),
        (rows([[1, 0]]) + rows([[1, 0]]), "sample 0 of problem 'p0' is scored twice"),
        (rows([[1, 0], [1]]), "problem 'p1' has 1 scored samples but 'p0' has 2"),
    ],
)
def test_bad_rows_are_refused_by_name(given_rows, message):
    with pytest.raises(ValueError, match=message):
        metrics.correctness(given_rows)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_correct_sample(samples, data):
    k = data.draw(st.integers(1, len(samples)))
    subsets = list(itertools.combinations(samples, k))
    expected = sum(any(subset) for subset in subsets) / len(subsets)
    assert metrics.pass_at_k(np.array([samples]), k)[0] == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_of_the_paper_at_a_large_n():
    values = np.zeros((1, 200), dtype=bool)
    values[0, :7] = True
    exact = 1 - math.comb(193, 100) / math.comb(200, 100)
    assert metrics.pass_at_k(values, 100)[0] == pytest.approx(exact, abs=1e-12)


def test_pass_at_1_is_avg_at_k():
    values = np.random.default_rng(1).random((50, 6)) < 0.4
    assert np.allclose(metrics.pass_at_k(values, 1), metrics.avg_at_k(values))


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_beyond_the_samples_is_refused(k):
    with pytest.raises(ValueError, match="between 1 and 3"):
        metrics.pass_at_k(np.ones((2, 3), dtype=bool), k)


def test_run_sd_by_hand():
    values = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=bool)
    scores = [1.0, 0.25, 0.25]
    assert metrics.run_sd(values) == pytest.approx(np.std(scores, ddof=1))
    assert math.isnan(metrics.run_sd(values[:, :1]))


def test_the_budget_curve_is_what_a_smaller_cap_would_have_scored():
    rng = np.random.default_rng(3)
    tokens, right = rng.integers(1, 400, 500), rng.random(500) < 0.6
    for cap, share in metrics.budget_curve(right, tokens, [1, 7, 64, 399, 400]):
        assert share == np.mean([r and t <= cap for r, t in zip(right, tokens, strict=True)])
    assert metrics.budget_curve(right, tokens, [400])[0][1] == right.mean()
    with pytest.raises(ValueError, match="a verdict and a length"):
        metrics.budget_curve([], [], [4])


@given(st.lists(st.integers(0, 5000), min_size=1), st.one_of(st.none(), st.integers(1, 9000)))
def test_caps_rise_and_end_where_nothing_is_cut(tokens, cap):
    caps = metrics.budget_caps(tokens, cap)
    assert caps == sorted(set(caps))
    assert caps[-1] >= max(tokens)
    assert cap is None or caps[-1] >= cap


def test_token_percentiles_are_scipys():
    from scipy import stats

    tokens = np.random.default_rng(4).integers(1, 2000, 777)
    found = metrics.token_counts(tokens)
    assert found["p90"] == pytest.approx(stats.scoreatpercentile(tokens, 90))
    assert found["median"] == pytest.approx(stats.scoreatpercentile(tokens, 50))
