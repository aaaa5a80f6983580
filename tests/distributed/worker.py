"""What one process of several does: steps of the trainer, looked at from inside.

    accelerate launch ... worker.py START OUT

For each case and each way to spread the update, the first process writes OUT/KIND-CASE.safetensors
(gradients of the first optimizer step) and .json (the step's rows), and OUT/KIND-LAYOUT, a
checkpoint that was read and written again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from oar_bench.answers import Grade, Grader
from oar_bench.config import load_recipe
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.training import update
from oar_bench.training.loss import LossParts
from oar_bench.training.policy import Policy
from oar_bench.training.processes import ALONE, Processes
from oar_bench.training.rollout import Rollout
from oar_bench.training.trainer import Trainer

LORA = {"rank": 4, "alpha": 8}


@dataclass(frozen=True)
class Case:
    train: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    method: str = "grpo"
    rigged: str = ""
    """Rewards by a response's number, where those of chance wouldn't make the case."""
    broken: bool = False
    """The last process's loss isn't a number."""


CASES = {
    "even": Case({"micro_batch_size": 5}),
    "credit": Case(method="oar-p"),
    "uneven": Case({"prompts_per_step": 5, "loss_type": "dapo", "micro_batch_tokens": 60}),
    "silent": Case({"micro_batch_size": 3}, method="oar-g", rigged="odd groups are right"),
    "nothing": Case({"track": []}, rigged="all are right"),
    "broken": Case({"micro_batch_size": 4}, broken=True),
    "kl": Case({"kl_beta": 0.1, "mini_batches": 3, "num_iterations": 2, "loss_type": "dr_grpo"}),
    "dynamic": Case(
        {"dynamic_sampling": 3, "prompts_per_step": 3, "mini_batches": 2},
        method="oar-d", rigged="few groups have a signal",
    ),
    "lora": Case({"mask_truncated": True}, {"lora": LORA, "gradient_checkpointing": True}, "oar-p"),
    "bfloat16": Case({"micro_batch_size": 7}, {"dtype": "bfloat16"}),
}  # fmt: skip
LAYOUTS = {
    "plain": {}, "lora": {"lora": LORA}, "bfloat16": {"dtype": "bfloat16"},
    "both": {"dtype": "bfloat16", "lora": LORA},
}  # fmt: skip


def right(rigged: str, number: int, size: int) -> bool:
    group, half = number // size, number % 2 == 0
    if rigged == "odd groups are right":  # those of the second of two processes
        return group % 2 == 1 or half
    if rigged == "few groups have a signal":  # 2 of the first draw, 1 of the second: all even
        return half if group in (0, 2, 4) else False
    return True


class Watched(Trainer):
    """A trainer whose rewards may be rigged and whose first gradient is kept, whole."""

    case: Case
    gradient: dict[str, torch.Tensor]
    steps: int

    def grade(self, rollout: Rollout, grader: Grader, timer: PhaseTimer) -> list[Grade]:
        found = super().grade(rollout, grader, timer)
        if not self.case.rigged:
            return found
        size = self.settings.group_size
        return [
            replace(g, status="correct" if right(self.case.rigged, n, size) else "wrong")
            for n, g in zip(rollout.numbers, found, strict=True)
        ]


@contextmanager
def without_loss() -> Iterator[None]:
    """The losses of this process aren't numbers."""
    honest = update.policy_loss

    def broken(*args: Any, **kwargs: Any) -> LossParts:
        return replace(parts := honest(*args, **kwargs), loss=parts.loss * float("nan"))

    update.policy_loss = broken
    try:
        yield
    finally:
        update.policy_loss = honest


def observe(name: str, start: Path, processes: Processes = ALONE) -> dict[str, Any]:
    """The first gradient and the rows of the first step of a case."""
    case = CASES[name]
    recipe = load_recipe("smoke", {
        "train": dict(case.train), "model": dict(case.model), "credit": {"save_weights": True},
    })  # fmt: skip
    trainer = Watched(recipe, case.method, 0, start, "cpu", processes=processes)
    trainer.case, trainer.gradient, trainer.steps = case, {}, 0
    policy, apply = trainer.policy, trainer.policy.apply

    def applied(rate: float) -> tuple[float, bool]:
        if not trainer.steps:
            for key, parameter in policy.trained.items():
                if parameter.grad is not None:
                    trainer.gradient[key] = policy.trainee.whole(parameter.grad).float().clone()
        trainer.steps += 1
        return apply(rate)

    policy.apply = applied  # type: ignore[method-assign]
    breaking = case.broken and processes.rank == processes.count - 1
    with Grader() as grader, without_loss() if breaking else nullcontext():
        left = trainer.step(1, grader, PhaseTimer(1))
    after = {n: p.detach().float().clone() for n, p in policy.model.named_parameters()}
    return {
        "gradient": trainer.gradient, "after": after, "optimizer_steps": trainer.steps,
        "metrics": left.metrics, "rollouts": left.rollouts, "credit": left.credit,
    }  # fmt: skip


def again(layout: str, start: Path, checkpoint: Path, out: Path, processes: Processes) -> None:
    """Read a checkpoint into a policy and write it."""
    recipe = load_recipe("smoke", {"model": dict(LAYOUTS[layout])})
    policy = Policy(recipe, start, "cpu", processes)
    numbers = policy.restore(checkpoint)
    policy.save(out, numbers)


def keep(found: Mapping[str, Any], path: Path) -> None:
    """Write what `observe` found."""
    tensors = {
        f"{part}/{name}": value.contiguous()
        for part in ("gradient", "after")
        for name, value in found[part].items()
    }
    save_file(tensors, path.with_suffix(".safetensors"))
    rest = {key: value for key, value in found.items() if key not in ("gradient", "after")}
    path.with_suffix(".json").write_text(json.dumps(rest))


def main(arguments: Sequence[str]) -> None:
    from oar_bench.training.several import Several

    start, out = map(Path, arguments)
    torch.set_num_threads(1)
    processes = Several("ddp")
    with processes.together():
        for kind in ("ddp", "fsdp2"):
            processes.kind = kind
            for name in CASES:
                found = observe(name, start, processes)
                if processes.is_first:
                    keep(found, out / f"{kind}-{name}")
            for layout in LAYOUTS:
                again(layout, start, out / f"one-{layout}", out / f"{kind}-{layout}", processes)


if __name__ == "__main__":
    main(sys.argv[1:])
