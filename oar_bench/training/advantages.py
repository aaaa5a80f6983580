"""Group-relative advantages (method.md, section 1)."""

from __future__ import annotations

import torch


def group_advantages(
    rewards: torch.Tensor,
    group_size: int,
    *,
    scale_rewards: bool = True,
    graded: torch.Tensor | None = None,
) -> tuple[torch.Tensor, float]:
    """Advantage of each response within its group, and the share of groups without a signal.

        A_i = (r_i - mean(r)) / (std(r) + 1e-8)

    The standard deviation is the sample's (divisor G - 1), as in the common trainers. A group
    whose rewards are all equal gives exactly 0 to all its responses, never NaN.

    Args:
        rewards: (N * G,) float, group by group.
        group_size: G.
        scale_rewards: divide by the group's standard deviation.
        graded: (N * G,) bool; a response whose grading failed has no reward: it gets advantage 0
            and its group's mean and deviation are those of the others.

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
    known = torch.ones_like(groups) if graded is None else graded.float().view(-1, group_size)
    count = known.sum(1, keepdim=True)
    centred = (groups - (groups * known).sum(1, keepdim=True) / count.clamp(min=1)) * known
    # Exact zeros: the mean of equal floats may be off by rounding.
    low = groups.masked_fill(known == 0, torch.inf).amin(1, keepdim=True)
    high = groups.masked_fill(known == 0, -torch.inf).amax(1, keepdim=True)
    equal = high <= low
    if scale_rewards:
        deviation = (centred.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
        centred = centred / (deviation + 1e-8)
    advantages = torch.where(equal, torch.zeros_like(centred), centred)
    return advantages.flatten(), float(equal.float().mean())
