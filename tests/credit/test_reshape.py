"""Weights by hand, the mass kept, and the released file's defect reproduced only on request."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.credit.cheap import random_importance
from oar_bench.credit.controls import inverted, shuffled
from oar_bench.credit.reshape import effective_share, reshape, reshape_one

finite = st.floats(min_value=-1e30, max_value=1e30, allow_nan=False)
scores = st.lists(finite, min_size=1, max_size=40)


def test_weights_by_hand():
    # I = 0, e-1, e^2-1, e^4-1: b = 0, 1, 2, 4; h = 0, .25, .5, 1; q = .5: tau = .375
    importance = torch.tensor([0.0, math.e - 1, math.e**2 - 1, math.e**4 - 1])
    weights, tau = reshape_one(importance, q=0.5, beta=2.0, floor=0.1)
    assert tau == pytest.approx(0.375)
    raw = [0.1, 0.25 / 0.375, 1 + 2 * 0.125 / 0.625, 1 + 2.0]
    expected = [w * 4 / sum(raw) for w in raw]
    assert weights.tolist() == pytest.approx(expected, rel=1e-5)
    without, _ = reshape_one(importance, q=0.5, beta=2.0, floor=0.1, preserve_mass=False)
    assert without.tolist() == pytest.approx(raw, rel=1e-5)


@given(scores, st.floats(0, 1), st.floats(0, 5), st.floats(0, 1))
def test_weights_are_finite_nonnegative_and_keep_the_mass(values, q, beta, floor):
    weights, _ = reshape_one(torch.tensor(values), q=q, beta=beta, floor=floor)
    assert bool(torch.isfinite(weights).all())
    assert bool((weights >= 0).all())
    assert float(weights.double().sum()) == pytest.approx(len(values), rel=1e-4)


@given(scores)
def test_a_more_important_token_never_weighs_less(values):
    importance = torch.tensor(values)
    weights, _ = reshape_one(importance)
    order = torch.argsort(importance)
    assert bool((weights[order].diff() >= -1e-5).all())


@pytest.mark.parametrize("values", [[2.0, 2.0, 2.0], [5.0], [], [0.0, 0.0], [-1.0, -3.0]])
def test_equal_importances_weigh_one(values):
    weights, _ = reshape_one(torch.tensor(values))
    assert weights.tolist() == [1.0] * len(values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_response_with_a_broken_score_keeps_weight_one(bad):
    weights, _ = reshape_one(torch.tensor([0.1, bad, 3.0]))
    assert weights.tolist() == [1.0, 1.0, 1.0]


def test_defect_1_suppression_does_not_fade_along_the_batch():
    """The released file overwrites the quantile's level; equal responses must weigh equally."""
    importance = torch.tensor([[0.0, 0.5, 1.0, 9.0]]).repeat(5, 1)
    positions = torch.ones(5, 4, dtype=torch.bool)
    ours = reshape(importance, positions, q=0.4)
    assert bool((ours == ours[0]).all())
    released = reshape(importance, positions, q=0.4, released_quirks=True)
    assert bool((released[0] == ours[0]).all())
    # The second most suppressed token's weight drifts up with every response.
    assert bool((released[:, 1].diff() > 0).all())
    assert float(released[-1, 1]) > 1.25 * float(ours[0, 1])


def test_defect_6_negative_joint_scores_give_no_nan():
    weights = reshape(torch.tensor([[-5.0, 0.2, 1.0]]), torch.ones(1, 3, dtype=torch.bool))
    assert bool(torch.isfinite(weights).all())


def test_tokens_outside_the_positions_keep_weight_one():
    positions = torch.tensor([[False, True, True, False]])
    weights = reshape(torch.tensor([[9.0, 0.0, 1.0, 7.0]]), positions)
    assert weights[0, 0] == 1
    assert weights[0, 3] == 1
    assert float(weights.sum()) == pytest.approx(4.0)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(0, 2**62))
def test_controls_rearrange_the_same_values(values, seed):
    weights = torch.tensor([[1.0, *values]])
    positions = torch.tensor([[False, *[True] * len(values)]])
    for moved in (
        shuffled(weights, positions, torch.tensor([seed])),
        inverted(weights, positions),
    ):
        assert moved[0, 0] == 1
        assert bool((moved.sort().values == weights.sort().values).all())


def test_inverted_reverses_the_ranks():
    weights = torch.tensor([[0.2, 3.0, 0.7, 1.1]])
    moved = inverted(weights, torch.ones(1, 4, dtype=torch.bool))
    assert moved[0].argsort().tolist() == weights[0].argsort().flip(0).tolist()


def test_random_importances_need_the_seed_alone():
    positions = torch.tensor([[True, True, False], [True, False, True]])
    seeds = torch.tensor([4, 5])
    one = random_importance(positions, seeds)
    two = random_importance(positions.flip(0), seeds.flip(0))
    assert bool((one == two.flip(0)).all())
    assert len(set(one[positions].tolist())) == 4
    assert bool((one[~positions] == 0).all())


def test_effective_share_by_hand():
    weights = torch.tensor([[2.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    positions = torch.tensor([[True, True, True, True], [False, False, False, False]])
    assert effective_share(weights, positions).tolist() == pytest.approx([16 / (4 * 6), 1.0])
