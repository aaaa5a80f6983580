"""The policy loss with token weights (method.md, sections 1 and 2).

    l_t = -w_t u_t s_t  [+ kl_beta k3_t]
    L   = sum_t c_t l_t,      c from `token_coefficients`, u from `importance_correction`
    s_t = min(rho_t A, clip(rho_t, 1 - eps_low, 1 + eps_high) A)        grpo, dapo, dr_grpo
    s_t = sg[min(rho_t, 1 + eps_high)] A log pi(t)                      cispo

The coefficients come from the masks of the whole batch, once. A micro-batch is then a slice of
the same sum: its size, accumulation and padding don't change the gradient, and neither does the
number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


def token_coefficients(
    mask: torch.Tensor,
    loss_type: str,
    max_new_tokens: int,
    *,
    responses: int | None = None,
    tokens: int | None = None,
) -> torch.Tensor:
    """Each token's share in the loss, (B, S) float32, zero outside `mask`.

    Args:
        mask: (B, S) bool over the whole batch of one optimizer step: response tokens in the loss.
        loss_type: `grpo` (mean over a response, then over responses), `dapo` and `cispo` (one
            mean over all tokens) or `dr_grpo` (sum over tokens / (responses x max_new_tokens)).
        max_new_tokens: the constant length of `dr_grpo`.
        responses, tokens: of the optimizer step's whole batch and in its mask, where `mask` is
            one process's share of it; else those of `mask`.

    Source: GRPO (arXiv 2402.03300), DAPO (2503.14476), Dr. GRPO (2503.20783), CISPO (2506.13585).

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> token_coefficients(mask, "grpo", 4).tolist()
    [[0.25, 0.25], [0.5, 0.0]]
    >>> token_coefficients(mask, "dr_grpo", 4).tolist()
    [[0.125, 0.125], [0.125, 0.0]]
    >>> token_coefficients(mask[:1], "dapo", 4, responses=2, tokens=4).tolist()
    [[0.25, 0.25]]
    """
    inside = mask.float()
    responses = len(mask) if responses is None else responses
    if loss_type == "grpo":
        return inside / inside.sum(1, keepdim=True).clamp(min=1) / responses
    if loss_type in ("dapo", "cispo"):
        return inside / max(1, int(mask.sum()) if tokens is None else tokens)
    if loss_type == "dr_grpo":
        return inside / (responses * max_new_tokens)
    raise ValueError(f"no loss is called {loss_type!r}")


@dataclass(frozen=True)
class LossParts:
    """A (micro-)batch's loss (a scalar with its graph) and how much of it was clipped."""

    loss: torch.Tensor
    clipped_tokens: int
    tokens: int


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    coefficients: torch.Tensor,
    *,
    clip_eps_low: float,
    clip_eps_high: float,
    loss_type: str = "grpo",
    kl_beta: float = 0.0,
    ref_logprobs: torch.Tensor | None = None,
) -> LossParts:
    """Clipped surrogate with token weights; with weights 1 it is GRPO to the bit.

    Args:
        logprobs: (B, S) of the policy, with gradient; old_logprobs: (B, S) when it sampled.
        advantages: (B,); weights: (B, S) >= 0, so they may stand outside the minimum.
        coefficients: (B, S) from `token_coefficients`; zero leaves a token out.
        clip_eps_low, clip_eps_high: the ratio is clipped to [1 - low, 1 + high]; `cispo` has an
            upper bound alone.
        loss_type: `cispo` bounds the ratio as a constant factor, so that no token loses its
            gradient; every other type clips as PPO does.
        kl_beta: coefficient of the k3 estimate of KL(policy || reference), which no token weight
            touches. Source: Schulman, "Approximating KL divergence" (2020).
        ref_logprobs: (B, S), needed when kl_beta > 0.

    >>> one = torch.ones(1, 1)
    >>> parts = policy_loss(torch.log(one * 1.5), one * 0, torch.tensor([2.0]), one * 3, one,
    ...                     clip_eps_low=0.2, clip_eps_high=0.2)
    >>> round(float(parts.loss), 4), parts.clipped_tokens  # -3 x min(1.5 x 2, 1.2 x 2)
    (-7.2, 1)
    """
    inside = coefficients > 0
    ratio = torch.exp(logprobs - old_logprobs)
    gain = advantages[:, None]
    if loss_type == "cispo":
        bounded = ratio.clamp(max=1 + clip_eps_high).detach()
        surrogate = bounded * gain * logprobs
        bound = (bounded < ratio) & inside
    else:
        clipped = ratio.clamp(1 - clip_eps_low, 1 + clip_eps_high)
        surrogate = torch.minimum(ratio * gain, clipped * gain)
        bound = (clipped * gain < ratio * gain) & inside
    per_token = -weights * surrogate
    if kl_beta > 0:
        if ref_logprobs is None:
            raise ValueError("kl_beta > 0 needs ref_logprobs")
        per_token = per_token + kl_beta * k3_divergence(logprobs, ref_logprobs)
    return LossParts((per_token * coefficients).sum(), int(bound.sum()), int(inside.sum()))


def importance_correction(
    old_logprobs: torch.Tensor, sampler_logprobs: torch.Tensor, cap: float
) -> torch.Tensor:
    """Factor that corrects for a sampler whose distribution isn't quite the trainer's.

        u_t = min(pi_trainer(t) / pi_sampler(t), cap)

    Args:
        old_logprobs, sampler_logprobs: (B, S) of the same tokens, by the trainer before the
            update and by the engine that drew them; both 0 outside the response.
        cap: largest factor, > 0.

    Returns:
        (B, S) float32 in (0, cap], without gradient.

    Source: truncated importance sampling, Yao et al. 2025 ("Your efficient RL framework secretly
    brings you off-policy RL training").

    >>> old = torch.log(torch.tensor([[0.5, 0.9]]))
    >>> importance_correction(old, torch.log(torch.tensor([[0.4, 0.3]])), cap=2.0)
    tensor([[1.2500, 2.0000]])
    """
    return torch.exp(old_logprobs - sampler_logprobs).clamp(max=cap).detach()


def k3_divergence(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """Per-token k3 estimate of KL(policy || reference), >= 0, same shape as its arguments.

    >>> k3_divergence(torch.tensor([0.0]), torch.tensor([0.0])).tolist()
    [0.0]
    """
    gap = ref_logprobs - logprobs
    return torch.exp(gap) - gap - 1
