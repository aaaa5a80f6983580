"""Advantages and losses by hand, and the settings that must not change the gradient."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.training.advantages import group_advantages
from oar_bench.training.loss import importance_correction, policy_loss, token_coefficients

CLIP = {"clip_eps_low": 0.2, "clip_eps_high": 0.2}


def test_advantages_by_hand():
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    advantages, _ = group_advantages(rewards, 4)
    half = math.sqrt(1 / 3)  # sample deviation of 1 1 0 0
    quarter = math.sqrt((3 * 0.0625 + 0.5625) / 3)  # of 0 0 0 1
    expected = [0.5 / half, 0.5 / half, -0.5 / half, -0.5 / half,
                -0.25 / quarter, -0.25 / quarter, -0.25 / quarter, 0.75 / quarter]  # fmt: skip
    assert advantages.tolist() == pytest.approx(expected, rel=1e-6)
    plain, _ = group_advantages(rewards, 4, scale_rewards=False)
    assert plain.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5, -0.25, -0.25, -0.25, 0.75])


@given(st.lists(st.sampled_from([0.0, 1.0, 0.1, 1 / 3]), min_size=4, max_size=4))
def test_advantages_sum_to_zero_and_are_never_nan(rewards):
    advantages, share = group_advantages(torch.tensor(rewards), 4)
    assert bool(torch.isfinite(advantages).all())
    assert float(advantages.sum()) == pytest.approx(0, abs=1e-4)
    equal = len(set(rewards)) == 1
    assert share == float(equal)
    assert equal == bool((advantages == 0).all())


def test_loss_by_hand():
    # Two responses of 2 and 1 tokens; ratios 1.5, 0.5 and 1; advantages +1 and -2; weights too.
    ratio = torch.tensor([[1.5, 0.5], [0.5, 1.0]])
    mask = torch.tensor([[True, True], [True, False]])
    weights = torch.tensor([[1.5, 0.5], [2.0, 9.0]])
    advantages = torch.tensor([1.0, -2.0])
    # min(1.5, 1.2) = 1.2; min(0.5, 0.8) = 0.5; min(-1.0, -1.6) = -1.6
    per_token = [[-1.5 * 1.2, -0.5 * 0.5], [2.0 * 1.6, 0.0]]
    expected = {
        "grpo": ((per_token[0][0] + per_token[0][1]) / 2 + per_token[1][0]) / 2,
        "dapo": (per_token[0][0] + per_token[0][1] + per_token[1][0]) / 3,
        "dr_grpo": (per_token[0][0] + per_token[0][1] + per_token[1][0]) / (2 * 10),
    }
    for loss_type, value in expected.items():
        parts = policy_loss(
            ratio.log(), torch.zeros(2, 2), advantages, weights,
            token_coefficients(mask, loss_type, 10), **CLIP,
        )  # fmt: skip
        assert float(parts.loss) == pytest.approx(value, rel=1e-6), loss_type
        # Clipping binds where the clipped branch is the smaller: the first and the third token.
        assert (parts.clipped_tokens, parts.tokens) == (2, 3)


def test_kl_is_added_unweighted():
    logprobs, ref = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    one = torch.ones(1, 1)
    parts = policy_loss(
        logprobs, logprobs, torch.zeros(1), one * 5, one, kl_beta=0.1, ref_logprobs=ref, **CLIP
    )
    assert float(parts.loss) == pytest.approx(0.1 * (math.exp(-0.5) + 0.5 - 1), rel=1e-5)
    with pytest.raises(ValueError, match="ref_logprobs"):
        policy_loss(logprobs, logprobs, torch.zeros(1), one, one, kl_beta=0.1, **CLIP)


def test_cispo_by_hand():
    """The ratio is a bounded constant: the gradient is that of log pi, whatever was clipped."""
    ratio = torch.tensor([[1.5, 0.5]])
    logprobs = ratio.log().requires_grad_()
    weights, mask = torch.tensor([[2.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    parts = policy_loss(
        logprobs, torch.zeros(1, 2), torch.tensor([3.0]), weights,
        token_coefficients(mask, "cispo", 10), loss_type="cispo", **CLIP,
    )  # fmt: skip
    parts.loss.backward()
    expected = -(2 * 1.2 * 3 * math.log(1.5) + 0.5 * 3 * math.log(0.5)) / 2
    assert float(parts.loss.detach()) == pytest.approx(expected, rel=1e-6)
    assert logprobs.grad.tolist() == [pytest.approx([-2 * 1.2 * 3 / 2, -0.5 * 3 / 2], rel=1e-6)]
    assert (parts.clipped_tokens, parts.tokens) == (1, 2)


@given(
    st.lists(st.floats(-5, 0), min_size=1, max_size=6), st.floats(0.1, 4.0), st.integers(0, 2**31)
)
def test_the_correction_is_a_capped_ratio(sampler, cap, seed):
    theirs = torch.tensor([sampler])
    ours = theirs + torch.randn(theirs.shape, generator=torch.Generator().manual_seed(seed))
    factor = importance_correction(ours, theirs, cap)
    assert bool((factor <= cap).all())
    assert bool((factor > 0).all())
    free = (ours - theirs).exp()
    torch.testing.assert_close(factor[free < cap], free[free < cap])
    assert importance_correction(theirs, theirs, max(cap, 1.0)).tolist() == [[1.0] * len(sampler)]


def test_asymmetric_clipping():
    ratio, one = torch.tensor([[1.4]]), torch.ones(1, 1)
    parts = policy_loss(
        ratio.log(), one * 0, torch.tensor([1.0]), one, one, clip_eps_low=0.2, clip_eps_high=0.28
    )
    assert float(parts.loss) == pytest.approx(-1.28)


def test_unknown_loss_is_refused():
    with pytest.raises(ValueError, match="nope"):
        token_coefficients(torch.ones(1, 1).bool(), "nope", 4)


def test_a_response_that_could_not_be_graded_has_no_advantage():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    graded = torch.tensor([True, True, True, False])
    advantages, _ = group_advantages(rewards, 4, graded=graded)
    alone, _ = group_advantages(rewards[:3], 3)
    assert advantages.tolist() == pytest.approx([*alone.tolist(), 0.0])
    nothing, share = group_advantages(rewards, 4, graded=torch.zeros(4, dtype=torch.bool))
    assert nothing.tolist() == [0.0] * 4
    assert share == 1.0
    one, share = group_advantages(rewards, 4, graded=torch.tensor([True, False, False, False]))
    assert one.tolist() == [0.0] * 4
    assert share == 1.0
