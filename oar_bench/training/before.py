"""What is known of a rollout's tokens before the update, and the metrics that it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch

from oar_bench.answers import Status
from oar_bench.config import TrainSettings
from oar_bench.training.loss import importance_correction, k3_divergence
from oar_bench.training.policy import Policy
from oar_bench.training.rollout import Rollout
from oar_bench.training.update import score

FAILURES: tuple[Status, ...] = ("timeout", "gold_error")
"""Gradings that say nothing about the response: it then has no reward, rather than reward 0."""
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Before:
    """Log-probabilities (B, S) before the update and of the start, None where not needed."""

    old: torch.Tensor | None
    ref: torch.Tensor | None
    correction: torch.Tensor | None
    """(B, S) factor for a sampler that isn't the trainer"""
    metrics: dict[str, tuple[float, float]]
    """Means over response tokens, each with their number."""
    passes: int
    """Forward passes that it took over the batch."""


def before_update(policy: Policy, rollout: Rollout, settings: TrainSettings) -> Before:
    """Score a rollout by the policy, and by the weights that the run began from, where needed."""
    batch = rollout.input_ids, rollout.attention_mask, rollout.response_mask
    tokens = rollout.response_mask.sum()
    sampler = rollout.sampler_logprobs
    old = ref = correction = None
    metrics: dict[str, tuple[float, float]] = {}

    def note(name: str, values: torch.Tensor) -> None:
        metrics[name] = float(values.sum() / tokens.clamp(min=1)), float(tokens)

    if settings.scores_policy or sampler is not None:
        scored = score(policy.scorer, *batch, settings, entropy="entropy" in settings.track)
        old = scored.logprobs
        if "entropy" in settings.track:
            note("entropy", scored.entropy)
    if settings.scores_start and old is not None:
        with policy.start_scorer() as scorer:
            ref = score(scorer, *batch, settings).logprobs
        note("kl_start", k3_divergence(old, ref) * rollout.response_mask)
    if sampler is not None and old is not None:
        note("logprob_gap", (old - sampler).abs())
        if settings.tis_cap is not None:
            correction = importance_correction(old, sampler, settings.tis_cap)
            note("tis_capped", (correction >= settings.tis_cap) & rollout.response_mask)
    return Before(old, ref, correction, metrics, (old is not None) + (ref is not None))


def rollout_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a step's rows of rollouts.jsonl: reward, lengths, the shares cut by the token limit and
    without an answer, all statuses."""
    count = max(1, len(rows))
    statuses = Counter(row["status"] for row in rows)
    failed = sum(statuses[name] for name in FAILURES)
    return {
        "reward": statuses["correct"] / max(1, len(rows) - failed),
        "response_length": sum(row["response_tokens"] for row in rows) / count,
        "truncated": sum(row["finish_reason"] == "length" for row in rows) / count,
        "no_answer": (statuses["no_answer"] + statuses["truncated"]) / count,
        "statuses": {name: statuses[name] for name in STATUSES},
    }
