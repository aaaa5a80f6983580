"""Group-relative advantages (method.md, section 1)."""

from __future__ import annotations

import torch


def group_advantages(
    rewards: torch.Tensor, group_size: int, *, scale_rewards: bool = True
) -> tuple[torch.Tensor, float]:
    """Advantage of each response within its group, and the share of groups without a signal.

        A_i = (r_i - mean(r)) / (std(r) + 1e-8)

    The standard deviation is the sample's (divisor G - 1), as in the common trainers. A group
    whose rewards are all equal gives exactly 0 to all its responses, never NaN.

    Args:
        rewards: (N * G,) float, group by group.
        group_size: G.
        scale_rewards: divide by the group's standard deviation.

    Returns:
        (N * G,) float32 advantages, and frac_zero_std in [0, 1].

    Source: GRPO, Shao et al. 2024 (arXiv 2402.03300), equation 3 and section 4.1.2.

    >>> rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    >>> advantages, frac_zero_std = group_advantages(rewards, group_size=4)
    >>> [round(a, 4) for a in advantages.tolist()]  # std of 1 0 0 1 is sqrt(1/3)
    [0.866, -0.866, -0.866, 0.866, 0.0, 0.0, 0.0, 0.0]
    >>> frac_zero_std
    0.5
    """
    groups = rewards.float().view(-1, group_size)
    centred = groups - groups.mean(1, keepdim=True)
    equal = (groups == groups[:, :1]).all(1, keepdim=True)
    if scale_rewards:
        centred = centred / (groups.std(1, keepdim=True) + 1e-8)
    # Exact zeros: the mean of equal floats may be off by rounding.
    advantages = torch.where(equal, torch.zeros_like(centred), centred)
    return advantages.flatten(), float(equal.float().mean())
