"""The update: optimizer steps on a rollout batch, and what they did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from oar_bench.config import TrainSettings
from oar_bench.training.batches import filled_columns, micro_batches
from oar_bench.training.logprobs import LogprobModel, TokenLogprobs
from oar_bench.training.loss import LossParts, policy_loss, token_coefficients
from oar_bench.training.policy import Policy


@dataclass(frozen=True)
class Experience:
    """What an update learns from: B responses, padded to S columns."""

    input_ids: torch.Tensor
    """(B, S) int64"""
    attention_mask: torch.Tensor
    """(B, S) int64"""
    response_mask: torch.Tensor
    """(B, S) bool"""
    loss_mask: torch.Tensor
    """(B, S) bool, the response tokens in the loss"""
    advantages: torch.Tensor
    """(B,)"""
    weights: torch.Tensor
    """(B, S) token weights, times the correction for the sampler"""
    old: torch.Tensor | None = None
    """(B, S) log-probabilities before the update; None: they are those of the update's own pass,
    which is exact for a single optimizer step"""
    ref: torch.Tensor | None = None
    """(B, S) log-probabilities of the start, for the KL term"""
    groups: torch.Tensor | None = None
    """(B,) int64, the number of each response's group among all that are learned from, where these
    are one process's share; None: these are all, group by group"""


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step (1-based): linear warm-up, then the schedule.

    >>> learning_rate(TrainSettings(lr=1.0, warmup_steps=4, steps=8), 2)
    0.5
    >>> learning_rate(TrainSettings(lr=1.0, steps=8, lr_schedule="linear"), 8)
    0.125
    """
    if step <= settings.warmup_steps:
        return settings.lr * step / settings.warmup_steps
    done = (step - 1 - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    return settings.lr * shape[settings.lr_schedule]


def passes(
    rows: torch.Tensor, attention_mask: torch.Tensor, settings: TrainSettings
) -> list[torch.Tensor]:
    """The rows of each forward pass, by the settings' limits on rows and tokens."""
    return micro_batches(
        rows, attention_mask.sum(1), most_rows=settings.micro_batch_size,
        most_tokens=settings.micro_batch_tokens,
    )  # fmt: skip


@torch.no_grad()
def score(
    scorer: LogprobModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    response_mask: torch.Tensor,
    settings: TrainSettings,
    *,
    entropy: bool = False,
) -> TokenLogprobs:
    """Log-probabilities (B, S), and entropies if wanted, of a whole batch without gradient."""
    shape = input_ids.shape
    logprobs = torch.zeros(shape, device=input_ids.device)
    spreads = torch.zeros_like(logprobs)
    everything = torch.arange(len(input_ids), device=input_ids.device)
    for rows in passes(everything, attention_mask, settings):
        columns = filled_columns(attention_mask[rows])
        part = scorer(
            input_ids[rows, columns], attention_mask[rows, columns], response_mask[rows, columns],
            entropy,
        )  # fmt: skip
        logprobs[rows, columns], spreads[rows, columns] = part.logprobs, part.entropy
    return TokenLogprobs(logprobs, spreads)


def mini_batch_rows(groups: torch.Tensor, parts: int) -> list[torch.Tensor]:
    """The rows of each optimizer step of a pass: whole groups, dealt out in turn.

    Args:
        groups: (B,) int64, the number of each row's group in the whole batch, of which these may
            be a share; a part of it may then have none of them.
        parts: optimizer steps.

    >>> [rows.tolist() for rows in mini_batch_rows(torch.tensor([0, 0, 1, 1, 2, 2]), 2)]
    [[0, 1, 4, 5], [2, 3]]
    """
    return [torch.nonzero(groups % parts == i).flatten() for i in range(parts)]


def update(
    policy: Policy, experience: Experience, settings: TrainSettings, rate: float
) -> dict[str, Any]:
    """`num_iterations` x `mini_batches` optimizer steps with learning rate `rate`.

    Several processes do them together, each with its share of the experience: as many steps, and
    in each as many passes, and what the steps tell is told of all.

    Returns:
        loss (mean over the optimizer steps), clip_fraction, grad_norm, lr, skipped_steps (whose
        loss or gradient wasn't finite) and tokens (processed by this process, prompts included).
        A value that is not finite is None.
    """
    processes, device = policy.processes, experience.input_ids.device
    groups = experience.groups
    if groups is None:
        groups = torch.arange(len(experience.advantages), device=device) // settings.group_size
    losses: list[float] = []
    norms: list[float] = []
    clipped = counted = tokens = skipped = 0
    for rows in mini_batch_rows(groups, settings.mini_batches) * settings.num_iterations:
        mask = experience.loss_mask[rows]
        # Without a KL term a response of zero advantage has zero gradient: no pass is spent on it.
        wanted = mask.any(1)
        if settings.kl_beta == 0:
            wanted = wanted & (experience.advantages[rows] != 0)
        chunks = passes(rows[wanted], experience.attention_mask, settings)
        shares = processes.gather((len(rows), int(mask.sum()), len(chunks)))
        most = max(share[2] for share in shares)
        if not most:
            continue
        coefficients = torch.zeros(experience.weights.shape, device=device)
        coefficients[rows] = token_coefficients(
            mask, settings.loss_type, settings.max_new_tokens,
            responses=sum(share[0] for share in shares), tokens=sum(share[1] for share in shares),
        )  # fmt: skip
        policy.zero_grad()
        loss = 0.0
        with policy.updating():
            for number in range(most):
                with policy.trainee.accumulating(last=number == most - 1):
                    if number >= len(chunks):
                        _idle(policy, device).backward()
                        continue
                    chunk = chunks[number]
                    columns = filled_columns(experience.attention_mask[chunk])
                    part = _loss(policy, experience, coefficients, settings, chunk, columns)
                    # The processes' gradients are averaged: their sum is that of the whole batch.
                    (part.loss * processes.count).backward()
                loss += float(part.loss.detach())
                clipped += part.clipped_tokens
                counted += part.tokens
                tokens += int(experience.attention_mask[chunk].sum())
        loss = sum(processes.gather(loss))
        if not math.isfinite(loss):
            policy.zero_grad()
            norm, done = math.nan, False
        else:
            norm, done = policy.apply(rate)
        losses.append(loss)
        norms.append(norm)
        skipped += not done
    counts = processes.gather((clipped, counted))
    return {
        "loss": _finite(sum(losses) / max(1, len(losses))),
        "clip_fraction": sum(c for c, _ in counts) / max(1, sum(n for _, n in counts)),
        "grad_norm": _finite(sum(norms) / max(1, len(norms))),
        "lr": rate,
        "skipped_steps": skipped,
        "tokens": tokens,
    }


def _idle(policy: Policy, device: torch.device) -> torch.Tensor:
    """A pass without a share in the loss: the others can't do theirs without this process."""
    ids = torch.full((1, 2), policy.pad_id, device=device)
    response = torch.tensor([[False, True]], device=device)
    return policy.trainee(ids, torch.ones_like(ids), response).logprobs.sum() * 0.0


def _loss(
    policy: Policy,
    experience: Experience,
    coefficients: torch.Tensor,
    settings: TrainSettings,
    rows: torch.Tensor,
    columns: slice,
) -> LossParts:
    """The loss of some rows, with its graph."""
    logprobs = policy.trainee(
        experience.input_ids[rows, columns], experience.attention_mask[rows, columns],
        experience.response_mask[rows, columns],
    ).logprobs  # fmt: skip
    old, ref = experience.old, experience.ref
    return policy_loss(
        logprobs,
        logprobs.detach() if old is None else old[rows, columns],
        experience.advantages[rows],
        experience.weights[rows, columns],
        coefficients[rows, columns],
        clip_eps_low=settings.clip_eps_low, clip_eps_high=settings.clip_eps_high,
        loss_type=settings.loss_type, kl_beta=settings.kl_beta,
        ref_logprobs=None if ref is None else ref[rows, columns],
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
