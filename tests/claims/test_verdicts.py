"""Verdicts on claims: each against numbers worked out by hand or by scipy alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from oar_bench.claims.evidence import Cell, Costs, Evidence, Masses, Ranks, Scores
from oar_bench.claims.judge import judge
from oar_bench.claims.spec import Claims, load_claims
from oar_bench.errors import InputError
from oar_bench.evaluation.onesided import sample


def claims_of(*tests, alpha=0.05):
    """A claim for each test, called T1, T2 ..."""
    return Claims.model_validate({"alpha": alpha, "claims": [
        {"id": f"T{i}", "says": "x", "source": "y", "tests": [test]}
        for i, test in enumerate(tests, 1)
    ]})  # fmt: skip


BETTER = {"test": "superiority", "a": "a", "b": "b", "margin": 0.01}
AS_GOOD = {"test": "non-inferiority", "a": "a", "b": "b", "margin": 0.01}
CHEAP = {"test": "cost", "of": "a", "over": "b", "phase": "step", "in": "seconds", "at_most": 1.1}
COUNTED = {**CHEAP, "in": "operations"}
RANKS = {"test": "agreement", "of": "a", "at_least": 0.8}
MASS = {"test": "mass", "of": ["a", "c"], "tolerance": 1e-5}


def with_differences(by_seed, problems=40, spread=0.0):
    """Scores of a and b that differ by these means over problems, one for each seed."""
    wave = spread * np.where(np.arange(problems) % 2, 1.0, -1.0)
    a = {s: 0.5 + d + wave for s, d in enumerate(by_seed)}
    return Evidence(scores=[Scores("t", {"a": a, "b": {s: np.full(problems, 0.5) for s in a}})])


def only(spec, evidence, *, settle=True):
    [verdict] = judge(spec, [evidence], settle=settle)
    return verdict


def test_the_p_of_a_score_is_the_t_over_seeds_worked_out_by_hand():
    # seed means .02 .03 .04: mean .03, sd .01, se .01 / sqrt 3; both ways reduce to the seeds here
    verdict = only(claims_of(BETTER), with_differences([0.02, 0.03, 0.04]))
    assert verdict.p_for == pytest.approx(stats.t.sf(0.03 / (0.01 / math.sqrt(3)), 2))
    assert verdict.p_against == pytest.approx(stats.t.sf(-0.02 / (0.01 / math.sqrt(3)), 2))
    assert verdict.word == "supported"  # p .018 < .025
    low, high = verdict.row.effect.low, verdict.row.effect.high
    assert (low + high) / 2 == pytest.approx(0.03)
    assert high - 0.03 == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-4)


@pytest.mark.parametrize(
    ("test", "seeds", "word"),
    [
        # superiority, margin one point: 0 for the claim, +.01 against it
        (BETTER, [0.028, 0.030, 0.032], "supported"),
        (BETTER, [-0.002, 0.0, 0.002], "contradicted"),  # equal within the margin
        (BETTER, [-0.052, -0.05, -0.048], "contradicted"),  # worse
        (BETTER, [0.0045, 0.005, 0.0055], "supported"),  # a gain, and smaller than the margin
        (BETTER, [-0.02, 0.01, 0.04], "inconclusive"),
        # non-inferiority: -.01 for the claim, 0 against it
        (AS_GOOD, [-0.002, 0.0, 0.002], "supported"),
        (AS_GOOD, [0.028, 0.030, 0.032], "supported"),
        (AS_GOOD, [-0.032, -0.03, -0.028], "contradicted"),
        (AS_GOOD, [-0.0055, -0.005, -0.0045], "contradicted"),  # a loss, smaller than the margin
        (AS_GOOD, [-0.03, 0.0, 0.03], "inconclusive"),
    ],
)
def test_scores(test, seeds, word):
    verdict = only(claims_of(test), with_differences(seeds))
    assert verdict.word == word
    assert verdict.both == (abs(seeds[1]) == 0.005)


def test_problems_are_a_facet_too():
    # the same seed means, but problems that differ by far more: nothing is shown any more
    loud = with_differences([0.028, 0.030, 0.032], problems=10, spread=0.3)
    assert only(claims_of(BETTER), loud).word == "inconclusive"


def test_one_seed_is_never_a_verdict_on_methods():
    verdict = only(claims_of(BETTER), with_differences([0.3], spread=0.01))
    assert verdict.word == "inconclusive"
    assert "one paired seed" in verdict.row.why
    assert verdict.row.command.endswith("--methods a,b --seeds 3")
    assert math.isnan(verdict.p_for)


def test_no_spread_leaves_the_sign_test():
    assert only(claims_of(BETTER), with_differences([0.1] * 5)).p_for == 2.0**-5
    assert only(claims_of(BETTER), with_differences([0.1] * 5)).word == "inconclusive"
    assert only(claims_of(BETTER), with_differences([0.1] * 6)).word == "supported"
    assert only(claims_of(BETTER), with_differences([0.1] * 5)).settle.count == 6
    same = only(claims_of(BETTER), with_differences([0.0] * 6))  # equal, margin .01 away
    assert (same.word, same.p_for, same.p_against) == ("contradicted", 1.0, 2.0**-6)


def test_what_is_missing_is_not_tested_and_names_its_command():
    scores = [Scores("t", {"a": {0: np.zeros(3)}})]
    verdict = only(claims_of(BETTER), Evidence(scores=scores))
    assert (verdict.word, verdict.row.why) == ("not tested", "no b run")
    assert verdict.row.command == "oar-bench reproduce RECIPE --out OUT --methods a,b --seeds 3"
    apart = [Scores("t", {"a": {0: np.zeros(3)}, "b": {1: np.zeros(3)}})]
    assert only(claims_of(BETTER), Evidence(scores=apart)).row.why == "no seed that both have"
    for test in (CHEAP, COUNTED, RANKS, MASS):
        verdict = only(claims_of(test), Evidence())
        assert verdict.word == "not tested"
        assert verdict.row.command.startswith("oar-bench ")


def test_a_control_of_another_method_is_not_the_claims_control():
    control = {**BETTER, "control": True}
    evidence = with_differences([0.028, 0.030, 0.032])
    assert only(claims_of(control), replace(evidence, control_of="a")).word == "supported"
    verdict = only(claims_of(control), replace(evidence, control_of="c"))
    assert (verdict.word, verdict.row.why) == ("not tested", "b is the control of c here, not of a")


def bench(ratios_by_length, operations=None, unit="repeat", where="bench"):
    """Cells of a and b whose seconds have these ratios, repeat by repeat."""
    cells = []
    for length, ratios in ratios_by_length.items():
        count = operations and operations[length]
        base = dict(enumerate(np.linspace(1.0, 3.0, len(ratios)), 1))
        mine = {r: base[r] * ratio for r, ratio in enumerate(ratios, 1)}
        cells += [Cell(length, "a", "step", mine, count),
                  Cell(length, "b", "step", base, operations and 100.0)]  # fmt: skip
    return Costs(where, unit, cells)


def test_the_p_of_a_cost_is_the_t_on_log_ratios_worked_out_by_hand():
    ratios = [1.0, 1.02, 1.04]
    verdict = only(claims_of(CHEAP), Evidence(costs=[bench({8: ratios})]))
    logs = np.log(ratios)
    t = (math.log(1.1) - logs.mean()) / (logs.std(ddof=1) / math.sqrt(3))
    # a skewness of the logs, if only of -.02, makes Hall's statistic count where p is larger
    assert verdict.p_for == pytest.approx(stats.t.sf(t, 2), rel=0.05)
    assert verdict.p_for >= stats.t.sf(t, 2)
    assert verdict.word == "supported"
    assert verdict.row.effect.value == pytest.approx(math.exp(logs.mean()))


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ({8: [1.0, 1.01, 1.02, 1.0, 1.01]}, "supported"),
        ({8: [1.3, 1.31, 1.32, 1.3, 1.31]}, "contradicted"),
        ({8: [0.5, 1.0, 2.0, 1.2, 0.9]}, "inconclusive"),
        # every length must keep to the bound, and one that is shown not to is enough
        ({8: [1.0, 1.01, 1.02, 1.0, 1.01], 16: [0.5, 1.0, 2.0, 1.2, 0.9]}, "inconclusive"),
        ({8: [1.0, 1.01, 1.02, 1.0, 1.01], 16: [1.3, 1.31, 1.32, 1.3, 1.31]}, "contradicted"),
    ],
)
def test_costs(ratios, word):
    assert only(claims_of(CHEAP), Evidence(costs=[bench(ratios)])).word == word


def test_several_lengths_take_the_largest_p_for_and_bonferronis_against():
    near, far = [1.0, 1.02, 1.04], [1.2, 1.3, 1.4]
    both = only(claims_of(CHEAP), Evidence(costs=[bench({8: near, 16: far})]))
    one = only(claims_of(CHEAP), Evidence(costs=[bench({8: near})]))
    other = only(claims_of(CHEAP), Evidence(costs=[bench({16: far})]))
    assert both.p_for == max(one.p_for, other.p_for)
    assert both.p_against == pytest.approx(2 * min(one.p_against, other.p_against))
    assert both.row.beside == "1.02 at 8 tokens, 1.30 at 16 tokens"


def test_the_longest_length_alone_where_the_claim_says_so():
    evidence = Evidence(costs=[bench({16: [1.0, 1.01, 1.02, 1.0, 1.01], 8: [1.3, 1.31, 1.3]})])
    longest = claims_of({**CHEAP, "lengths": "longest"})
    assert only(longest, evidence).word == "supported"
    assert only(claims_of(CHEAP), evidence).word == "contradicted"


def test_turns_decide_before_whole_runs_one_after_the_other():
    trained = bench({None: [1.5, 1.6, 1.55]}, unit="seed", where="in training")
    turns = bench({8: [1.0, 1.01, 1.02, 1.0, 1.01]})
    alone = only(claims_of(CHEAP), Evidence(costs=[trained]))
    assert (alone.word, alone.row.on) == ("contradicted", "in training")
    together = only(claims_of(CHEAP), Evidence(costs=[turns, trained]))
    assert (together.word, together.row.on) == ("supported", "bench")
    assert "in training 1.55" in together.row.beside
    single = bench({None: [1.5]}, unit="seed", where="in training")
    assert only(claims_of(CHEAP), Evidence(costs=[single])).word == "inconclusive"


def test_operations_are_exact():
    fine = bench({8: [1.0, 1.0]}, {8: 110.0})
    dear = bench({8: [1.0, 1.0], 16: [1.0, 1.0]}, {8: 105.0, 16: 111.0})
    assert only(claims_of(COUNTED), Evidence(costs=[fine])).word == "supported"
    verdict = only(claims_of(COUNTED), Evidence(costs=[dear]))
    assert (verdict.word, verdict.row.effect.value) == ("contradicted", 1.11)
    assert math.isnan(verdict.p_for)
    uncounted = bench({8: [1.0, 1.0]})
    assert only(claims_of(COUNTED), Evidence(costs=[uncounted])).word == "not tested"


@pytest.mark.parametrize(
    ("middle", "word"), [(0.95, "supported"), (0.3, "contradicted"), (0.8, "inconclusive")]
)
def test_agreement(middle, word):
    values = middle + 0.05 * np.where(np.arange(20) % 2, 1, -1)
    ranks = Ranks("r", {"a": values, "position": np.full(20, 0.31)})
    verdict = only(claims_of(RANKS), Evidence(ranks=[ranks]))
    assert verdict.word == word
    assert verdict.row.beside == "position alone 0.31"
    # symmetric values: plain Student's t
    t = (middle - 0.8) / (values.std(ddof=1) / math.sqrt(20))
    assert verdict.p_for == pytest.approx(stats.t.sf(t, 19))


def test_few_problems_are_no_verdict_on_ranks():
    ranks = Ranks("r", {"a": np.linspace(0.1, 0.3, 15)})
    verdict = only(claims_of(RANKS), Evidence(ranks=[ranks]))
    assert verdict.word == "inconclusive"
    assert verdict.row.why == "a verdict needs at least 16 problems, and there are 15"


def test_mass():
    kept = [Masses("a", 30, 2e-7, True), Masses("b", 30, 1.0, True)]
    verdict = only(claims_of(MASS), Evidence(masses=kept))
    assert (verdict.word, verdict.row.on, verdict.row.count) == ("supported", "a", 30)
    lost = [*kept, Masses("c", 30, 0.02, False)]
    verdict = only(claims_of(MASS), Evidence(masses=lost))
    assert (verdict.word, verdict.row.effect.value) == ("contradicted", 0.02)
    assert verdict.row.beside == "preserve_mass is off for c"


def test_holm_runs_over_the_rows_with_sampling_error_in_each_direction():
    # p of the sign test: 2^-6 = .0156 for either row; two rows need .0125, one needs .025
    evidence = with_differences([0.1] * 6)
    alone = only(claims_of(BETTER), evidence)
    assert (alone.word, alone.p_for) == ("supported", 2.0**-6)
    first, second, mass = judge(claims_of(BETTER, BETTER, MASS), [evidence])
    assert [v.word for v in (first, second)] == ["inconclusive"] * 2
    assert first.p_for == 2.0**-5
    assert mass.word == "not tested"


def test_each_reproduction_has_rows_of_its_own_in_one_family():
    evidence = replace(with_differences([0.1] * 6), name="one")
    found = judge(claims_of(BETTER), [evidence, replace(evidence, name="two")])
    assert [v.row.on for v in found] == ["one: t", "two: t"]
    assert {v.p_for for v in found} == {2.0**-5}


def test_what_would_settle_is_the_nearer_verdict_at_the_level_of_the_family():
    verdict = only(claims_of(BETTER), with_differences([-0.02, 0.01, 0.04, -0.01, 0.02]))
    # mean .008: .008 above 0, .002 below the margin; supported is nearer
    assert verdict.settle.word == "supported"
    assert verdict.settle.unit == "seed"
    more = judge(claims_of(BETTER, BETTER), [with_differences([-0.02, 0.01, 0.04, -0.01, 0.02])])
    assert more[0].settle.count > verdict.settle.count
    # two-sided 5 % with 80 % power: (t + z)^2 var / effect^2 seeds, some 70 for sd .0239
    assert 60 < verdict.settle.count < 85


@settings(deadline=None)
@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=6), st.floats(0.001, 0.1))
def test_swapping_the_methods_swaps_the_verdicts(differences, margin):
    better = {**BETTER, "margin": margin}
    at_least = {**AS_GOOD, "margin": margin}
    ahead = with_differences(differences, problems=4, spread=0.01)
    behind = with_differences([-d for d in differences], problems=4, spread=-0.01)
    swapped = {"supported": "contradicted", "contradicted": "supported"}
    first, second = (
        only(claims_of(test), evidence, settle=False).word
        for test, evidence in ((better, ahead), (at_least, behind))
    )
    # "a is better" holds exactly where "b is at least as good" doesn't
    assert second == swapped.get(first, first)


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12), st.floats(-1, 1))
def test_the_two_directions_are_never_both_below_a_half_at_one_bound(values, bound):
    measured = sample([values])
    assert max(measured.above(bound), measured.below(bound)) >= 0.5 - 1e-9


def test_shipped_claims_are_the_seven_with_their_tests():
    found = {claim.id: [test.test for test in claim.tests] for claim in load_claims().claims}
    assert found == {
        "C1": ["non-inferiority"], "C2": ["superiority"], "C3": ["superiority"],
        "C4": ["cost", "cost"], "C5": ["mass"], "C6": ["agreement"],
        "C7": ["agreement", "cost", "cost"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("claims: []", "claims: "),
        ("claims: [{id: A, says: x, source: y, tests: [{test: nope}]}]", "tests.0: "),
        ("claims: [{id: A, says: x, source: y, testss: []}]", "did you mean 'tests'"),
        ("alpha: 2\nclaims: []", "alpha: "),
        (
            "claims: [{id: A, says: x, source: y, tests: [{test: mass, of: [a], tolerance: .1},"
            " {test: mass, of: [a], tolerance: .1}]}]",
            "need a name each",
        ),
        (
            "claims:\n- &a {id: A, says: x, source: y, tests: [{test: mass, of: [a], "
            "tolerance: .1}]}\n- *a",
            "two claims have one id",
        ),
    ],
)
def test_a_broken_file_of_claims_is_one_line(tmp_path, text, said):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        load_claims(path)
    assert "\n" not in str(caught.value)
