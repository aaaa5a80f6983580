"""The decision by hand: one-sided tests, the noise of seeds, Holm, and what has no spread."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oar_bench.regression.decide import SeedNoise, decide, measure, seed_noise

W = np.array([[0.0, 0.5, -0.25, 0.0, 0.25, 0.0, -0.5, 0.25, 0.0, 0.25]])


def test_one_seed_is_scipys_one_sided_t_test_over_problems():
    m = measure(W, 0.3)
    worse = stats.ttest_1samp(W[0], 0.0, alternative="greater")
    margin = stats.ttest_1samp(W[0], 0.3, alternative="less")
    assert m.value == pytest.approx(0.05)
    assert m.p_worse == pytest.approx(worse.pvalue)
    assert m.p_margin == pytest.approx(margin.pvalue)
    low, high = m.bounds(0.05)
    assert low == pytest.approx(worse.confidence_interval(0.95).low)
    assert high == pytest.approx(margin.confidence_interval(0.95).high)


def test_the_bound_within_the_margin_and_the_pass_are_one():
    edge = measure(W, 0.3).bounds(0.05)[1]
    assert decide([measure(W, edge + 1e-6)], 0.05)[0].verdict == "pass"
    assert decide([measure(W, edge - 1e-6)], 0.05)[0].verdict == "too little data"


def test_seeds_are_pooled_over_methods_by_hand():
    # deviations +-0.1 (df 1) and -0.3, 0, 0.3 (df 2): (0.02 + 0.18) / 3
    tables = [np.array([[0.4], [0.6]]), np.array([[0.1], [0.4], [0.7]])]
    found = seed_noise(tables)
    assert found.variance == pytest.approx(0.2 / 3)
    assert found.df == 3
    assert seed_noise([np.zeros((1, 9))]) is None


def test_a_loss_is_held_against_the_seeds_of_the_baseline():
    """Two seeds that lose alike: their own spread says nothing, the baseline's does."""
    w = np.tile(W + 0.4, (2, 1))
    calm = measure(w, 0.02, prior=SeedNoise(0.01**2, 4))
    wild = measure(w, 0.02, prior=SeedNoise(0.4**2, 4))
    # a seed's mean scatters by 0.4 before and after: 2 x 0.16 / 2 seeds; and the problems scatter
    seeds, problems = 0.16, W.var(ddof=1) / 10
    df = (seeds + problems) ** 2 / (seeds**2 / 4 + problems**2 / 9)
    assert wild.p_worse == pytest.approx(
        max(
            stats.t.sf(w.mean() / math.sqrt(seeds), 4),
            stats.t.sf(w.mean() / math.sqrt(seeds + problems), df),
        )
    )
    assert decide([calm], 0.05)[0].verdict == "regression"
    assert decide([wild], 0.05)[0].verdict == "too little data"


def test_a_methods_own_scatter_counts_where_it_is_larger():
    w = np.tile(W, (2, 1))
    own = measure(w, 0.02, prior=SeedNoise(0.01, 8), own_prior=SeedNoise(0.09, 1))
    assert own.against_none[1] == pytest.approx((math.sqrt(2 * 0.09 / 2), 8))
    less = measure(w, 0.02, prior=SeedNoise(0.01, 8), own_prior=SeedNoise(0.001, 1))
    assert less.against_none[1] == pytest.approx((math.sqrt(2 * 0.01 / 2), 8))


def test_methods_that_did_not_change_say_nothing_of_the_seeds():
    w = np.array([[0.1, 0.1, 0.3], [-0.1, 0.0, -0.2]])
    alone = measure(w, 0.02, cells=[w])
    beside = measure(w, 0.02, cells=[w, np.zeros_like(w), np.zeros_like(w)])
    assert alone == beside


def test_identical_results_pass_and_are_no_test():
    same, lost = measure(np.zeros((2, 9)), 0.02), measure(W + 0.35, 0.02)
    alone, beside = decide([lost], 0.05), decide([same] * 30 + [lost], 0.05)
    assert beside[0].verdict == "pass"
    assert beside[0].p_worse == 1.0
    assert beside[-1].p_worse == alone[0].p_worse  # thirty copies cost it nothing


def test_holm_over_the_checks_decides_on_a_regression():
    lost = measure(W + 0.15, 0.02)
    others = [measure(W - 0.05, 0.9)] * 9
    assert lost.p_worse < 0.05 < 10 * lost.p_worse
    assert decide([lost], 0.05)[0].verdict == "regression"
    assert decide([lost, *others], 0.05)[0].verdict == "too little data"
    assert decide([lost, *others], 0.05)[1].verdict == "pass"


def test_a_rare_failure_is_not_taken_for_none():
    """4 of 400 lost, margin 2 points: the plain t bound would pass 10 % of true 2-point drops."""
    w = np.zeros((1, 400))
    w[0, :4] = 1.0
    plain = measure(w, 0.02)
    careful = measure(w, 0.02, step=1.0)
    assert plain.p_margin < 0.05 < careful.p_margin
    assert careful.against_margin[0][0] == pytest.approx(math.sqrt(0.02 * 0.98 / 400))
    assert careful.against_none == plain.against_none


def test_what_has_no_spread_goes_by_the_sign_test():
    lost = measure(np.full((1, 8), 0.5), 0.02)
    assert lost.p_worse == 2.0**-8
    assert decide([lost], 0.05)[0].verdict == "regression"
    won = measure(np.full((1, 8), -0.5), 0.02)
    assert won.p_worse == 1.0
    assert decide([won], 0.05)[0].verdict == "pass"
    single = measure(np.array([[0.5]]), 0.02)
    assert decide([single], 0.05)[0].verdict == "too little data"
    assert math.isnan(single.detectable(0.05, 1))


def test_the_detectable_effect_is_what_both_tests_need():
    """Large df: z(0.95) for one test and z(0.95) for its power; more checks need more."""
    rng = np.random.default_rng(0)
    m = measure(rng.normal(0, 1, (1, 4000)), 0.02)
    se = m.against_none[0][0]
    z = stats.norm.ppf
    assert m.detectable(0.05, 1) == pytest.approx(2 * z(0.95) * se, rel=0.01)
    assert m.detectable(0.05, 20) == pytest.approx((z(0.95) + z(1 - 0.05 / 20)) * se, rel=0.01)


@given(
    st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5]), min_size=4, max_size=30),
    st.floats(0.01, 0.3),
    st.floats(0.01, 0.4),
)
def test_more_loss_never_passes_where_less_did_not(cells, margin, more):
    order = {"pass": 0, "too little data": 1, "regression": 2}
    # a table without spread is judged otherwise than one with a little: keep some
    w = np.array([[0.25, -0.25, *cells]])
    words = [decide([measure(x, margin)], 0.05)[0].verdict for x in (w, w + more)]
    if not measure(w, margin).identical:
        assert order[words[0]] <= order[words[1]]
