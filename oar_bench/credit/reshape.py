"""Bi-level reshaping: from importances to weights that keep the advantage mass (method.md, 2).

b = log(1 + I),  h = (b - min b) / (max b - min b),  tau = quantile_q(h)
h <  tau: w = max(h / tau, floor)                    suppress
h >= tau: w = 1 + beta (h - tau) / (1 - tau)         boost
w <- w T / sum(w)                                    mass kept
"""

from __future__ import annotations

import torch


def reshape_one(
    importance: torch.Tensor,
    *,
    q: float = 0.4,
    beta: float = 2.0,
    floor: float = 0.1,
    preserve_mass: bool = True,
) -> tuple[torch.Tensor, float]:
    """Weights of one response from the importances of its T weighted tokens.

    Args:
        importance: (T,) float, any values; negative ones (possible for `answer_joint`) count as 0.
        q: level of the quantile that divides suppressed from boosted tokens, in [0, 1].
        beta: boost of the most important token before the mass is restored.
        floor: least weight of a suppressed token before the mass is restored.
        preserve_mass: rescale so that the weights sum to T.

    Returns:
        (T,) float32 weights and the threshold tau. All weights are 1 when the importances are all
        equal, or when one of them isn't finite.

    >>> weights, tau = reshape_one(torch.tensor([0.0, 1.0, 3.0]), q=0.5, beta=1.0, floor=0.1)
    >>> tau, [round(w, 4) for w in weights.tolist()]  # 0.1, 1, 2 before rescaling by 3 / 3.1
    (0.5, [0.0968, 0.9677, 1.9355])
    """
    bent = torch.log1p(importance.double().clamp(min=0))
    low, high = bent.aminmax() if len(bent) else (torch.zeros(()), torch.zeros(()))
    if not bool(torch.isfinite(bent).all()) or bool(high <= low):
        return torch.ones_like(importance, dtype=torch.float32), q
    h = (bent - low) / (high - low)
    tau = torch.quantile(h, q)
    suppressed = (h / tau).clamp(min=floor)
    # tau = 1 leaves only h = 1 to boost, by nothing: the divisor just must not be 0.
    boosted = 1 + beta * (h - tau) / (1 - tau).clamp(min=torch.finfo(torch.float64).tiny)
    weights = torch.where(h < tau, suppressed, boosted)
    if preserve_mass:
        weights = weights * (len(weights) / weights.sum())
    return weights.float(), float(tau)


def reshape(
    importance: torch.Tensor,
    positions: torch.Tensor,
    *,
    q: float = 0.4,
    beta: float = 2.0,
    floor: float = 0.1,
    preserve_mass: bool = True,
    released_quirks: bool = False,
) -> torch.Tensor:
    """Weights of a batch, each response by itself.

    Args:
        importance: (B, S) float.
        positions: (B, S) bool, the weighted tokens; all others keep weight 1.
        q, beta, floor, preserve_mass: see `reshape_one`.
        released_quirks: reproduce the released file's defect of overwriting the quantile's level
            by each response's threshold, which fades suppression out along the batch.

    Returns:
        (B, S) float32 weights >= 0; with `preserve_mass` those of a response's weighted tokens
        sum to their number.

    >>> importance = torch.tensor([[9.0, 0.0, 1.0, 3.0]])
    >>> positions = torch.tensor([[False, True, True, True]])
    >>> [round(w, 4) for w in reshape(importance, positions, q=0.5, beta=1.0)[0].tolist()]
    [1.0, 0.0968, 0.9677, 1.9355]
    """
    weights = torch.ones(importance.shape, dtype=torch.float32, device=importance.device)
    level = q
    for row in range(len(importance)):
        chosen = positions[row]
        weights[row, chosen], tau = reshape_one(
            importance[row, chosen], q=level, beta=beta, floor=floor, preserve_mass=preserve_mass
        )
        if released_quirks:
            level = tau
    return weights


def effective_share(weights: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Effective share of the weighted tokens, ESS / T = (sum w)^2 / (T sum w^2), in (0, 1].

    Kish's effective sample size over the marked tokens of each row: (B, S), (B, S) bool -> (B,)
    float32; 1 when all weights are equal, and for a row without marked tokens.

    >>> weights = torch.tensor([[1.0, 3.0, 7.0]])
    >>> round(float(effective_share(weights, torch.tensor([[True, True, False]]))), 4)
    0.8
    """
    marked = weights * positions
    count = positions.sum(1)
    share = marked.sum(1).square() / (count * marked.square().sum(1)).clamp(min=1e-12)
    return torch.where(count > 0, share, torch.ones_like(share))
