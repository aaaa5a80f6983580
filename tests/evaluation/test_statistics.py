"""Statistics against hand numbers, against scipy, and by coverage simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oar_bench.evaluation import statistics as s
from oar_bench.evaluation.bootstrap import hierarchical_bootstrap


@pytest.fixture
def rng():
    return np.random.default_rng(20240)


def test_t_interval_is_scipys(rng):
    x = rng.random(37)
    ours, theirs = s.t_interval(x), stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (281, 400)])
def test_wilson_is_scipys(k, n):
    ours = s.wilson_interval(k / n, n)
    theirs = stats.binomtest(k, n).proportion_ci(0.95, "wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_bootstrap_is_seeded_and_near_t(rng):
    x = rng.random(200)
    one, two, t = s.bootstrap_interval(x), s.bootstrap_interval(x), s.t_interval(x)
    assert one == two
    assert one.high - one.low == pytest.approx(t.high - t.low, rel=0.06)


@pytest.mark.parametrize("function", [s.t_interval, s.bootstrap_interval])
@pytest.mark.parametrize("values", [[], [[0.1, 0.2]]])
def test_what_is_no_vector_is_refused(function, values):
    with pytest.raises(ValueError, match="vector of problem means"):
        function(values)


def test_one_problem_has_no_interval_but_a_share_has():
    assert math.isnan(s.t_interval([0.5]).low)
    assert 0 < s.share_interval([1.0]).low < 0.5


def test_two_way_by_hand():
    # rows: seeds; columns: problems. grand mean 3; seed means 2, 4; problem means 2, 3, 4
    x = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
    # additive: residual 0; MS_seed = 3 * 2 = 6, MS_problem = 2 * 1 = 2
    parts = s.components(x)
    assert (parts.var_seed, parts.var_problem, parts.var_residual) == pytest.approx((2, 1, 0))
    interval = s.two_way(x)
    # seeds alone: se = 1 with 1 df, wider than sqrt(8/6) with 64 / (36 + 4/2) = 1.68 df?
    plain = stats.t.ppf(0.975, 1) * 1.0
    pooled = stats.t.ppf(0.975, 64 / 38) * math.sqrt(8 / 6)
    assert interval.high - interval.value == pytest.approx(max(plain, pooled))


def test_one_seed_is_the_paired_t_test_of_scipy_and_says_so(rng):
    a, b = rng.random((1, 40)), rng.random((1, 40))
    ours, theirs = s.paired(a, b), stats.ttest_rel(a[0], b[0])
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.difference.low == pytest.approx(theirs.confidence_interval().low)
    assert "seed not covered" in ours.difference.method
    assert s.seeds_needed(ours.parts, 0.02) is None


def test_one_problem_is_the_t_test_over_seeds(rng):
    a, b = rng.random((6, 1)), rng.random((6, 1))
    assert s.paired(a, b).p == pytest.approx(stats.ttest_rel(a[:, 0], b[:, 0]).pvalue)


def test_one_cell_says_nothing():
    c = s.paired([[1.0]], [[0.0]])
    assert math.isnan(c.p)
    assert math.isnan(c.difference.low)
    assert s.verdict(c.difference.value, c.p) == "not separable"


def test_never_narrower_than_the_t_interval_over_seeds_or_than_the_component_sum(rng):
    for _ in range(200):
        d = rng.normal(size=(3, 20)) + rng.normal(size=(3, 1)) * rng.random() * 2
        ours, seeds = s.two_way(d), s.t_interval(d.mean(axis=1))
        assert ours.high - ours.low >= (seeds.high - seeds.low) * (1 - 1e-9)


def test_interval_and_p_agree(rng):
    for _ in range(100):
        a = rng.normal(rng.normal() * 0.5, 1, size=(4, 15)) + rng.normal(size=(4, 1)) * 0.4
        c = s.paired(a, np.zeros_like(a))
        assert (c.p < 0.05) == (c.difference.low > 0 or c.difference.high < 0)


def test_identical_and_constant_differences():
    same = s.paired(np.ones((3, 5)), np.ones((3, 5)))
    assert (same.identical, same.p, same.difference.low, same.difference.high) == (True, 1, 0, 0)
    constant = s.paired(np.ones((3, 50)), np.zeros((3, 50)))
    assert constant.p == 0.25
    assert math.isnan(constant.difference.low)


def test_seed_means_that_agree_exactly_leave_the_problems_to_judge():
    d = np.array([[0.5, -0.5, 0.5, 0.0], [0.0, 0.5, -0.5, 0.5]])
    c = s.paired(d, np.zeros_like(d))
    assert c.parts.se_seeds == 0
    assert 0.05 < c.p < 1
    assert c.difference.low < 0 < c.difference.high


def test_rounding_is_no_spread():
    thirds = np.array([[1.0, 2 / 3, 1 / 3]])
    c = s.paired(thirds, thirds - 1 / 3)
    assert math.isnan(c.difference.low)
    assert c.p == 0.25


def test_unequal_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        s.paired(np.ones((2, 3)), np.ones((3, 3)))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_monotone_and_never_below_p_nor_above_bonferroni(p):
    adjusted = s.holm(p)
    for raw, new in zip(p, adjusted, strict=True):
        assert raw <= new <= min(1.0, raw * len(p)) + 1e-12
    order = np.argsort(p, kind="stable")
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)


def test_holm_leaves_out_what_was_not_tested():
    assert s.holm([0.04, math.nan, 0.02])[0] == pytest.approx(0.04)


def test_the_detectable_effect_is_the_textbooks():
    # Cohen 1988: n = 34 pairs find d = 0.5 with 80 % power at 5 % two-sided
    assert s.detectable(s.Components(1, 34, 0.0, math.nan, 1.0, math.nan)) == pytest.approx(
        0.5, abs=0.005
    )
    for n in (33, 34):
        effect = s.detectable(s.Components(1, n, 0.0, math.nan, 1.0, math.nan))
        shift, critical = effect * math.sqrt(n), stats.t.ppf(0.975, n - 1)
        assert stats.nct.sf(critical, n - 1, shift) == pytest.approx(0.8, abs=1e-4)


def test_seeds_needed_is_the_smallest_that_detects():
    parts = s.Components(4, 400, -0.01, 0.015**2, 0.01, 0.1)
    needed = s.seeds_needed(parts, -0.02)
    assert needed is not None
    assert s.detectable(parts, needed) <= 0.02 < s.detectable(parts, needed - 1)


def test_no_number_of_seeds_helps_where_problems_are_too_few():
    assert s.seeds_needed(s.Components(3, 20, 0.0, 0.0001, 0.2, 0.1), 0.02) is None
    assert s.seeds_needed(s.Components(3, 400, 0.0, 0.0001, 0.0, 0.1), 0.0) is None


def covered(intervals, truth):
    return np.mean([i.low <= truth <= i.high for i in intervals])


@pytest.mark.parametrize(("problems", "k", "others"), [(30, 32, 0.37), (500, 4, 0.79)])
def test_problem_level_intervals_cover_95_percent_and_a_pooled_binomial_does_not(
    rng, problems, k, others
):
    # difficulties as on a real benchmark: many problems near always or never solved
    ability, draws = stats.beta(0.6, 0.5), 4000
    means = rng.binomial(k, ability.rvs((draws, problems), random_state=rng)) / k
    ours = covered([s.share_interval(row) for row in means], ability.mean())
    pooled = [s.wilson_interval(share, problems * k) for share in means.mean(axis=1)]
    theirs = covered(pooled, ability.mean())
    print(f"{problems} problems x {k}: ours {ours:.3f}, pooled binomial {theirs:.3f}")
    assert 0.93 <= ours <= 0.97
    assert theirs == pytest.approx(others, abs=0.03)


@pytest.mark.parametrize(("problems", "k"), [(30, 32), (500, 4)])
def test_intervals_of_a_paired_difference_cover_95_percent(rng, problems, k):
    # a second model that is 3 points better on average, by an amount that varies by problem
    p = stats.beta(0.6, 0.5).rvs((4000, problems), random_state=rng)
    q = np.clip(p + rng.normal(0.03, 0.1, p.shape), 0, 1)
    base = stats.beta(0.6, 0.5).rvs(1_000_000, random_state=rng)
    truth = (np.clip(base + rng.normal(0.03, 0.1, base.shape), 0, 1) - base).mean()
    d = (rng.binomial(k, q) - rng.binomial(k, p)) / k
    assert 0.93 <= covered([s.t_interval(row) for row in d], truth) <= 0.97


def test_bootstraps_are_scipys(rng):
    x = rng.random(60)
    ours = s.bootstrap_interval(x, draws=20_000)
    theirs = stats.bootstrap(
        (x,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.004)
    # one seed: the hierarchical one is the plain one
    level = hierarchical_bootstrap(x[None], draws=20_000)
    assert (level.low, level.high) == pytest.approx((theirs.low, theirs.high), abs=0.004)


@pytest.mark.parametrize("sd_seed", [0.0, 0.3])
@pytest.mark.parametrize("sd_problem", [0.0, 0.3])
def test_hierarchical_bootstrap_has_the_two_way_standard_error(rng, sd_seed, sd_problem):
    x = rng.normal(0, 1, (5, 40)) + rng.normal(0, sd_seed, (5, 1)) + rng.normal(0, sd_problem, 40)
    expected = s.components(x).terms()[0][0]
    assert hierarchical_bootstrap(x, draws=20_000).se == pytest.approx(expected, rel=0.05)
    # resampling the raw table, as is often done, is wider: it counts the residual three times
    raw = [x[rng.integers(0, 5, 5)][:, rng.integers(0, 40, 40)].mean() for _ in range(2000)]
    assert np.std(raw) > 1.1 * expected or sd_seed or sd_problem


@pytest.mark.parametrize("effect", [0.0, 0.03, 0.08])
@pytest.mark.parametrize("sd_seed", [0.0, 0.02, 0.05])
def test_hierarchical_bootstrap_and_mixed_test_agree(rng, effect, sd_seed):
    """Twelve paired seeds, 300 problems, 4 samples each: one interval, one verdict."""
    for _ in range(5):
        p = rng.beta(0.6, 0.5, (1, 300))
        moved = np.clip(p + effect + rng.normal(0, sd_seed, (12, 1)), 0, 1)
        d = (rng.binomial(4, moved) - rng.binomial(4, np.broadcast_to(p, (12, 300)))) / 4
        mixed, boot = s.paired(d, np.zeros_like(d)), hierarchical_bootstrap(d)
        assert mixed.difference.value == pytest.approx(boot.value)
        assert boot.se == pytest.approx(mixed.difference.se, rel=0.1)
        if not 0.005 < mixed.p < 0.2:  # no close call: then they must say the same
            assert (mixed.p < 0.05) == (boot.low > 0 or boot.high < 0)


def test_without_a_seed_effect_more_seeds_do_not_stand_for_more_problems(rng):
    """The mistake of a flat bootstrap: 10 seeds on 20 problems are not 200 problems."""
    x = np.broadcast_to(rng.random((1, 20)), (10, 20))
    flat = s.bootstrap_interval(x.ravel())
    level = hierarchical_bootstrap(x)
    assert level.se == pytest.approx(s.t_interval(x[0]).se, rel=0.05)
    assert flat.se < level.se / 2.5


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize(("sd_seed", "sd_problem"), [(0, 0), (0.3, 0), (0, 1), (0.3, 1), (1.5, 1)])
def test_two_way_covers_at_least_95_percent_for_any_ratio_of_components(
    rng, seeds, sd_seed, sd_problem
):
    intervals = [
        s.two_way(
            rng.normal(0, sd_seed, (seeds, 1))
            + rng.normal(0, sd_problem, (1, 40))
            + rng.normal(0, 1, (seeds, 40))
        )
        for _ in range(600)
    ]
    # 600 draws: 0.95 - 2.6 standard errors of a share
    assert covered(intervals, 0.0) >= 0.927


def test_paired_seeds_of_a_bernoulli_benchmark_keep_the_type_1_error(rng):
    # two equal methods, 3 seeds whose training luck moves every problem, 4 samples each
    found = 0
    for _ in range(600):
        logit = rng.normal(0.5, 2, 100)
        luck = rng.normal(0, 0.15, (2, 3, 1))
        p = 1 / (1 + np.exp(-(logit + luck)))
        a, b = rng.binomial(4, p) / 4
        found += s.paired(a, b).p < 0.05
    assert found / 600 <= 0.07


def test_statistics_does_not_import_torch():
    import subprocess
    import sys

    code = "import sys, oar_bench.evaluation.statistics, oar_bench.evaluation.summary;" \
           "sys.exit('torch' in sys.modules)"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
