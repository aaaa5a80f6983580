"""TRL's GRPOTrainer with token weights: `pip install 'oar-bench[trl]'`.

    trainer = OARGRPOTrainer(model, reward_funcs, args=..., train_dataset=..., method="oar-p")

One thing is changed. After TRL has sampled, rewarded and made advantages (B,), they become
advantages (B, T) = A_i w_{i,t}, which TRL's loss takes as they are. From there on they lie in
TRL's own batch, so its shuffling, splitting and repeated use move a row's weights with the row.
Clipping, KL, entropy, length normalisation and logging stay TRL's.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from oar_bench.answers.extract import AnswerType
from oar_bench.config import CreditSettings, check_method
from oar_bench.credit.assign import weight_metrics
from oar_bench.errors import InputError
from oar_bench.integrations.tensors import (
    check_answer_type,
    evaluating,
    response_credit,
    weighted_advantages,
)
from oar_bench.keyed import derive

try:
    import trl
except ImportError as error:
    raise ImportError(
        "oar_bench.integrations.trl needs TRL; run pip install 'oar-bench[trl]'"
    ) from error

TESTED = "1.16"
"""The hook leans on two inner workings of TRL: what `_generate_and_score_completions` returns, and
that `_compute_loss` takes advantages of shape (B, T). Both were tested with this release only."""


def check_trl(version: str) -> None:
    """Refuse a release of TRL that the hook was not tested with.

    >>> check_trl("0.9.0")
    Traceback (most recent call last):
    ...
    oar_bench.errors.InputError: trl: version 0.9.0 is not supported; use trl>=1.16,<1.17
    """
    if version.split(".")[:2] != TESTED.split("."):
        mend = f"use trl>={TESTED},<1.{int(TESTED.split('.')[1]) + 1}"
        raise InputError(f"version {version} is not supported", "trl", mend)


class OARGRPOTrainer(trl.GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose advantages are weighted token by token.

    Args:
        method: a name of `oar_bench.config.METHODS`; `grpo` and `uniform` leave TRL's own loss.
        credit: the credit section of a recipe, its defaults when absent.
        answer_type: what counts as a response's answer: math, number, choice or exact.
        args, kwargs: go to `trl.GRPOTrainer`.

    Weights are made once for each batch that TRL samples, by the policy that sampled it, each
    process for its own rows; rows of zero advantage, and truncated ones that TRL masks, are
    skipped. In evaluation nothing is weighted. Logged beside TRL's metrics: `oar/weight_mean`,
    `oar/weight_max`, `oar/weight_ess`, `oar/frac_no_probe` and `oar/seconds`.

    Raises:
        InputError: an unknown method or answer type, another release of TRL, or what the weights
            don't cover: tools and environments (their tokens were not sampled), images, sharded
            parameters (FSDP, DeepSpeed ZeRO-3), where processes would wait for each other's passes.
    """

    def __init__(
        self,
        *args: Any,
        method: str = "oar-p",
        credit: CreditSettings | None = None,
        answer_type: AnswerType = "math",
        **kwargs: Any,
    ) -> None:
        check_trl(trl.__version__)
        check_method(method, "method")
        check_answer_type(answer_type, "answer_type")
        if not isinstance(credit, CreditSettings | None):
            kind = type(credit).__name__
            raise InputError(f"a {kind} is given", "credit", "write CreditSettings(q=0.4, beta=2)")
        self.credit_method, self.credit_settings = method, credit or CreditSettings()
        self.credit_answer_type: AnswerType = answer_type
        for name in ("tools", "environment_factory"):
            _refuse(name, bool(kwargs.get(name)))
        super().__init__(*args, **kwargs)
        _check_covered(self)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return batch
        _refuse("env_mask (tokens that were not sampled)", "tool_mask" in batch)
        began = time.perf_counter()
        advantages, mask = batch["advantages"], batch["completion_mask"]
        # TRL empties the mask of a truncated response that it leaves out of the loss.
        needed = (advantages != 0) & mask.any(1)
        policy = self.accelerator.unwrap_model(self.model)
        with evaluating(policy), self.accelerator.autocast():
            found = response_credit(
                policy, self._tokenizer, batch["prompt_ids"], batch["prompt_mask"],
                batch["completion_ids"], mask, method=self.credit_method,
                seeds=self._credit_seeds(len(advantages)), settings=self.credit_settings,
                needed=needed, answer_type=self.credit_answer_type,
            )  # fmt: skip
        batch["advantages"] = weighted_advantages(advantages, found.weights)
        self._log_credit(
            {
                **weight_metrics(found.credit.weights, found.batch, self.credit_settings, needed),
                "frac_no_probe": 1 - float(found.batch.probe.found.float().mean()),
                "seconds": time.perf_counter() - began,
            }
        )
        return batch

    def _credit_seeds(self, rows: int) -> list[int]:
        """A key for each row: other in every process and batch, the same in a repeated run."""
        # Two batches may be sampled within one optimizer step; the second begins at another part.
        part = self._step % self.args.gradient_accumulation_steps
        place = (self.args.seed, self.state.global_step, part, self.accelerator.process_index)
        return [derive("trl", *place, row) for row in range(rows)]

    def _log_credit(self, values: dict[str, float]) -> None:
        """Means over the processes, next to TRL's own metrics."""
        own = torch.tensor(list(values.values()), device=self.accelerator.device)
        means = self.accelerator.gather(own).view(-1, len(values)).mean(0).tolist()
        for name, mean in zip(values, means, strict=True):
            self._metrics["train"][f"oar/{name}"].append(mean)


def _refuse(name: str, present: bool) -> None:
    if present:
        raise InputError("token weights don't cover it", name, "use trl.GRPOTrainer")


def _check_covered(trainer: Any) -> None:
    """Refuse the settings of a GRPOTrainer under which the weights would be wrong or hang."""
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    _refuse("tools", bool(trainer.tools))
    _refuse("a model with images", trainer._is_vlm)
    _refuse("FSDP", trainer.is_fsdp_enabled)
    _refuse("DeepSpeed ZeRO-3", plugin is not None and plugin.zero_stage == 3)
