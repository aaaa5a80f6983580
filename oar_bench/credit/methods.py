"""Every importance by its name, from a batch and the recipe's credit section.

To add one: write a function like those below, name it in `IMPORTANCES` and in
`oar_bench.config.Importance`; trainer, fidelity table, overhead bench and pages then know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.approximate import preselected_importance, sampled_importance
from oar_bench.credit.cheap import (
    attention_importance,
    entropy_importance,
    position_importance,
    random_importance,
)
from oar_bench.credit.direct import direct_importance
from oar_bench.credit.gradient import answer_gradient_importance, gradient_importance
from oar_bench.credit.perturbation import perturbation_importance
from oar_bench.credit.probe import Probe

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class CreditBatch:
    """What credit needs to know of B responses padded to S tokens."""

    input_ids: torch.Tensor
    """(B, S) int64"""
    attention_mask: torch.Tensor
    """(B, S), 1 on real tokens"""
    response_mask: torch.Tensor
    """(B, S) bool, the sampled tokens"""
    probe: Probe
    seeds: torch.Tensor
    """(B,) int64, the key of each response's own randomness"""

    def rows(self, chosen: torch.Tensor) -> CreditBatch:
        """The responses at the given row numbers."""
        p = self.probe
        return CreditBatch(
            self.input_ids[chosen], self.attention_mask[chosen], self.response_mask[chosen],
            Probe(p.reasoning[chosen], p.answer[chosen], p.found[chosen]), self.seeds[chosen],
        )  # fmt: skip

    def weighted(self, settings: CreditSettings) -> torch.Tensor:
        """Tokens whose weight may differ from 1, (B, S) bool: none where no answer was found."""
        inside = self.probe.reasoning if settings.scope == "reasoning" else self.response_mask
        return inside & self.probe.found[:, None]


@dataclass(frozen=True)
class _Task:
    """One importance to compute: the model, the batch, and what the settings say."""

    model: PreTrainedModel
    batch: CreditBatch
    settings: CreditSettings
    replacement: int

    @property
    def positions(self) -> torch.Tensor:
        return self.batch.weighted(self.settings)

    @property
    def memory(self) -> int:
        return self.settings.memory_mib * 2**20

    @property
    def ids(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.batch.input_ids, self.batch.attention_mask

    def exact(self, positions: torch.Tensor, span: int = 1) -> torch.Tensor:
        """OAR-P of the marked tokens."""
        return perturbation_importance(
            self.model, *self.ids, positions, self.batch.probe.answer, span=span,
            replacement=self.replacement, pfinal=self.settings.pfinal, memory=self.memory,
        )  # fmt: skip


def _oar_p(task: _Task) -> torch.Tensor:
    return task.exact(task.positions)


def _span(task: _Task) -> torch.Tensor:
    return task.exact(task.positions, task.settings.span)


def _sample(task: _Task) -> torch.Tensor:
    return sampled_importance(
        task.exact, task.positions, task.batch.seeds, task.settings.exact_share
    )


def _preselect(task: _Task) -> torch.Tensor:
    return preselected_importance(
        task.exact, _oar_gp(task), task.positions, task.settings.exact_share
    )


def _oar_d(task: _Task) -> torch.Tensor:
    count = task.settings.mediator_count
    return direct_importance(
        task.model, *task.ids, task.positions, task.batch.probe.answer, task.batch.probe.reasoning,
        replacement=task.replacement, mediator_count=None if count == "all" else count,
        mediators=task.settings.mediators, pfinal=task.settings.pfinal, memory=task.memory,
    )  # fmt: skip


def _oar_g(task: _Task) -> torch.Tensor:
    settings = task.settings
    return gradient_importance(
        task.model, *task.ids, task.positions, task.batch.probe.answer, task.batch.seeds,
        sigma=settings.sigma, sigma_scale=settings.sigma_scale, noise_draws=settings.noise_draws,
        pfinal=settings.pfinal, memory=task.memory,
    )  # fmt: skip


def _answer_gradient(
    task: _Task, replacement: int | None, top_k: int | None = None
) -> torch.Tensor:
    return answer_gradient_importance(
        task.model, *task.ids, task.positions, task.batch.probe.answer,
        replacement=replacement, top_k=top_k, memory=task.memory,
    )  # fmt: skip


def _oar_g0(task: _Task) -> torch.Tensor:
    return _answer_gradient(task, None)


def _oar_gp(task: _Task) -> torch.Tensor:
    return _answer_gradient(task, task.replacement)


def _oar_gf(task: _Task) -> torch.Tensor:
    return _answer_gradient(task, task.replacement, task.settings.fisher_top_k)


def _entropy(task: _Task) -> torch.Tensor:
    return entropy_importance(task.model, *task.ids, task.positions, memory=task.memory)


def _attention(task: _Task) -> torch.Tensor:
    return attention_importance(
        task.model, *task.ids, task.positions, task.batch.probe.answer, memory=task.memory
    )


def _position(task: _Task) -> torch.Tensor:
    return position_importance(task.positions)


def _random(task: _Task) -> torch.Tensor:
    return random_importance(task.positions, task.batch.seeds)


IMPORTANCES: dict[str, Callable[[_Task], torch.Tensor]] = {
    "oar-p": _oar_p,
    "oar-d": _oar_d,
    "oar-g": _oar_g,
    "oar-g0": _oar_g0,
    "oar-gp": _oar_gp,
    "oar-gf": _oar_gf,
    "oar-p-span": _span,
    "oar-p-sample": _sample,
    "oar-p-preselect": _preselect,
    "entropy": _entropy,
    "attention": _attention,
    "position": _position,
    "random": _random,
}


def importance(
    method: str,
    model: PreTrainedModel,
    batch: CreditBatch,
    settings: CreditSettings,
    pad_id: int,
) -> torch.Tensor:
    """Importance of the weighted tokens by a method's name.

    Args:
        method: one of `IMPORTANCES`.
        model: the policy that sampled the responses.
        batch: B responses padded to S tokens.
        settings: the recipe's credit section.
        pad_id: the token that replaces others, unless the settings name another.

    Returns:
        (B, S) float32, 0 outside the weighted tokens.
    """
    replacement = pad_id if settings.replacement == "pad" else settings.replacement
    return IMPORTANCES[method](_Task(model, batch, settings, replacement))
