"""The trainer: GRPO, and every method that differs from it by token weights alone.

One step, in the order of the phases that timing.jsonl shows:

    rollout     sample `group_size` responses to each of `prompts_per_step` problems
    grading     reward 1 for a right answer, else 0; advantages within each group
    logprobs    log-probabilities before the update, where they are needed; entropy, KL to the start
    credit      token weights by the method; all 1 for GRPO
    update      clipped policy loss with those weights, AdamW
    checkpoint  every `save_every` steps and at the end

Where it departs from the paper: rewards are exact-match 0/1; responses without a stated answer
keep weight 1 (they are counted, never guessed at); the answer probe is the response's own answer;
groups whose rewards are all equal are skipped, which is exact, since their advantage is zero.

All randomness is keyed (see keyed.py), so a resumed run equals an uninterrupted one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from oar_bench.answers import Grade, Grader, Status
from oar_bench.config import Recipe, TrainSettings, check_method
from oar_bench.credit.assign import Credit, assign, weight_metrics
from oar_bench.credit.files import credit_rows
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint_checkpoint
from oar_bench.keyed import derive
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.records import JsonlWriter, owned, read_json, write_json
from oar_bench.training.advantages import group_advantages
from oar_bench.training.checkpoint import tidy
from oar_bench.training.interrupts import stoppable
from oar_bench.training.loss import importance_correction, k3_divergence
from oar_bench.training.policy import Policy
from oar_bench.training.replay import Replay
from oar_bench.training.rollout import (
    Rollout,
    credit_batch,
    grade_rollout,
    joined,
    part_of,
    roll_out,
    rollout_rows,
)
from oar_bench.training.run import RunFolder, describe, open_run, refuse_begun, write_overlap
from oar_bench.training.samplers import sampler_of
from oar_bench.training.sources import Source, source_of
from oar_bench.training.update import Experience, score, update

FAILURES: tuple[Status, ...] = ("timeout", "gold_error")
"""Gradings that say nothing about the response: it then has no reward, rather than reward 0."""
STATUSES: tuple[Status, ...] = get_args(Status)
MOST_SKIPPED = 3
"""Steps one after another without a finite loss and gradient after which a run stops."""

Report = Callable[[int, int, dict[str, Any]], None]
"""Called after each step with its number, the number of steps, and the metrics row."""


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


@dataclass(frozen=True)
class StepRows:
    """What a step leaves: its metrics, a row for each response, and rows of credit if wanted."""

    metrics: dict[str, Any]
    rollouts: list[dict[str, Any]]
    credit: list[dict[str, Any]]


class Trainer:
    """Trains one method under one seed from a starting checkpoint."""

    def __init__(
        self, recipe: Recipe, method: str, seed: int, start: Path, device: str,
        source: Source | None = None,
    ) -> None:  # fmt: skip
        torch.set_num_threads(recipe.model.threads)
        # Draws of torch's generator: none but the adapters' first weights.
        torch.manual_seed(derive("torch", seed))
        self.recipe, self.settings, self.method, self.seed = recipe, recipe.train, method, seed
        self.policy = Policy(recipe, start, device)
        self.model, self.tokenizer = self.policy.model, self.policy.tokenizer
        self.source = source or source_of(recipe)
        self.sampler = sampler_of(recipe, self.model, self.tokenizer)
        self.skipped = 0
        """Steps up to now, one after another, in which an optimizer step was skipped."""

    def restore(self, checkpoint: Path) -> None:
        """Go on from a checkpoint of this run."""
        self.skipped = int(self.policy.restore(checkpoint).get("skipped", 0))

    def save(self, folder: Path, step: int) -> None:
        """Write the checkpoint after a step."""
        self.policy.save(folder, {"step": step, "skipped": self.skipped})

    def step(
        self, step: int, grader: Grader, timer: PhaseTimer, replay: Replay | None = None
    ) -> StepRows:
        """Do one step, on responses sampled now or on those of a file."""
        if replay is None:
            rollout, grades = self._collect(step, grader, timer)
        else:
            with timer.phase("rollout"):
                rollout = replay.of_step(step, self.tokenizer, self.model.device)
            grades = self.grade(rollout, grader, timer)
        left = self.learn(step, rollout, grades, timer)
        if replay is None:
            left.metrics.update(self.sampler.metrics())
        return left

    def _collect(self, step: int, grader: Grader, timer: PhaseTimer) -> tuple[Rollout, list[Grade]]:
        """Sample and grade; with dynamic sampling, until enough groups have a signal."""
        settings = self.settings
        parts: list[Rollout] = []
        grades: list[Grade] = []
        for again in range(1 + settings.dynamic_sampling):
            problems = self.source.of_step(settings.prompts_per_step, self.seed, step, again)
            if not problems:
                break  # the step has had all there are
            with timer.phase("rollout") as row:
                if not parts:
                    self.sampler.sync(self.model, step)
                part = roll_out(
                    self.sampler, self.tokenizer, problems, settings, self.seed, step,
                    self.model.device,
                )  # fmt: skip
                row["tokens"] = part.response_tokens
            parts.append(part)
            grades += self.grade(part, grader, timer)
            if sum(self._has_signal(grades)) >= settings.prompts_per_step:
                break
        return joined(self.tokenizer, parts), grades

    def grade(self, rollout: Rollout, grader: Grader, timer: PhaseTimer) -> list[Grade]:
        """The verdict on each response, in the phase `grading`."""
        with timer.phase("grading") as row:
            row["tokens"] = rollout.response_tokens
            return grade_rollout(rollout, grader)

    def _has_signal(self, grades: Sequence[Grade]) -> list[bool]:
        """Whether the rewards of each group differ."""
        size = self.settings.group_size
        groups = [grades[at : at + size] for at in range(0, len(grades), size)]
        return [len({g.correct for g in group if g.status not in FAILURES}) > 1 for group in groups]

    def _used(self, grades: Sequence[Grade]) -> list[int]:
        """Rows that the step learns from: all, or with dynamic sampling those with a signal."""
        size, wanted = self.settings.group_size, self.settings.prompts_per_step
        groups = list(range(len(grades) // size))
        if self.settings.dynamic_sampling:
            signal = self._has_signal(grades)
            groups = [group for group in groups if signal[group]][:wanted] or groups[:wanted]
        return [group * size + i for group in groups for i in range(size)]

    def learn(
        self, step: int, drawn: Rollout, verdicts: Sequence[Grade], timer: PhaseTimer
    ) -> StepRows:
        """The rest of a step, from its graded responses on, whoever sampled them."""
        settings = self.settings
        gains, frac_zero_std = self._advantages(verdicts)
        used = self._used(verdicts)
        rollout, advantages = part_of(drawn, used), gains[used]
        with timer.phase("logprobs") as row:
            before = self._before(rollout)
            row["tokens"] = before.passes * int(rollout.attention_mask.sum())
        with timer.phase("credit") as row:
            batch = credit_batch(
                rollout, self.tokenizer, self.source.answer_type, self.source.extract
            )
            needed = advantages != 0
            credit = assign(
                self.method, self.model, batch, self.recipe.credit, self.policy.pad_id, needed
            )
            row["tokens"] = int((batch.weighted(self.recipe.credit) & needed[:, None]).sum())
        with timer.phase("update") as row:
            experience = self._experience(rollout, advantages, credit.weights, before)
            updated = update(self.policy, experience, settings, learning_rate(settings, step))
            row["tokens"] = updated.pop("tokens")
        self.skipped = self.skipped + 1 if updated["skipped_steps"] else 0
        metrics = {
            "step": step,
            **_rollout_metrics(drawn, verdicts),
            "frac_zero_std": frac_zero_std,
            "frac_no_probe": 1 - float(batch.probe.found.float().mean()),
            **before.metrics,
            **updated,
            **weight_metrics(credit.weights, batch, self.recipe.credit, needed),
        }
        chosen = set(used)
        flags = [i in chosen for i in range(len(verdicts))]
        rows = rollout_rows(drawn, verdicts, gains, flags, step)
        return StepRows(metrics, rows, self._credit_rows(credit, rollout, rows))

    def _advantages(self, grades: Sequence[Grade]) -> tuple[torch.Tensor, float]:
        device = self.model.device
        return group_advantages(
            torch.tensor([float(g.correct) for g in grades], device=device),
            self.settings.group_size,
            scale_rewards=self.settings.scale_rewards and self.settings.loss_type != "dr_grpo",
            graded=torch.tensor([g.status not in FAILURES for g in grades], device=device),
        )

    def _before(self, rollout: Rollout) -> _Before:
        """Log-probabilities before the update, those of the start, and what they tell."""
        settings, policy = self.settings, self.policy
        batch = rollout.input_ids, rollout.attention_mask, rollout.response_mask
        tokens = rollout.response_mask.sum().clamp(min=1)
        sampler = rollout.sampler_logprobs
        old = ref = correction = None
        metrics: dict[str, float] = {}
        if settings.scores_policy or sampler is not None:
            scored = score(policy.scorer, *batch, settings, entropy="entropy" in settings.track)
            old = scored.logprobs
            if "entropy" in settings.track:
                metrics["entropy"] = float(scored.entropy.sum() / tokens)
        if settings.scores_start and old is not None:
            with policy.start_scorer() as scorer:
                ref = score(scorer, *batch, settings).logprobs
            spread = k3_divergence(old, ref) * rollout.response_mask
            metrics["kl_start"] = float(spread.sum() / tokens)
        if sampler is not None and old is not None:
            metrics["logprob_gap"] = float((old - sampler).abs().sum() / tokens)
            if settings.tis_cap is not None:
                correction = importance_correction(old, sampler, settings.tis_cap)
                capped = (correction >= settings.tis_cap) & rollout.response_mask
                metrics["tis_capped"] = float(capped.sum() / tokens)
        return _Before(old, ref, correction, metrics, (old is not None) + (ref is not None))

    def _experience(
        self, rollout: Rollout, advantages: torch.Tensor, weights: torch.Tensor, before: _Before
    ) -> Experience:
        mask = rollout.response_mask
        if self.settings.mask_truncated:
            mask = mask & torch.tensor(rollout.finished, device=mask.device)[:, None]
        return Experience(
            rollout.input_ids, rollout.attention_mask, rollout.response_mask, mask, advantages,
            weights if before.correction is None else weights * before.correction,
            before.old, before.ref,
        )  # fmt: skip

    def _credit_rows(
        self, credit: Credit, rollout: Rollout, rows: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        if not self.recipe.credit.save_weights:
            return []
        used = [row for row in rows if row["used"]]
        return credit_rows(
            credit, rollout.response_mask, rollout.responses, used, method=self.method
        )


@dataclass(frozen=True)
class _Before:
    """What is known of a rollout's tokens before the update."""

    old: torch.Tensor | None
    ref: torch.Tensor | None
    correction: torch.Tensor | None
    metrics: dict[str, float]
    passes: int


def _rollout_metrics(rollout: Rollout, grades: Sequence[Grade]) -> dict[str, Any]:
    """Reward, lengths, the shares cut by the token limit and without an answer, all statuses."""
    count = len(grades)
    statuses = Counter(grade.status for grade in grades)
    failed = sum(statuses[name] for name in FAILURES)
    return {
        "reward": statuses["correct"] / max(1, count - failed),
        "response_length": rollout.response_tokens / count,
        "truncated": sum(not finished for finished in rollout.finished) / count,
        "no_answer": (statuses["no_answer"] + statuses["truncated"]) / count,
        "statuses": {name: statuses[name] for name in STATUSES},
    }


def train(
    recipe: Recipe,
    method: str,
    seed: int,
    start: Path,
    out: Path,
    *,
    resume: bool = False,
    report: Report = lambda step, steps, metrics: None,
    rollouts: Path | None = None,
    first: Path | None = None,
) -> Path:
    """Train one run in the folder `out` and return its final checkpoint.

    Args:
        recipe: what to train and how.
        method: one of `oar_bench.config.METHODS`.
        seed: of problems and sampling.
        start: checkpoint folder that the run begins from.
        out: the run's folder.
        resume: go on with an unfinished run; its final weights equal those of an unbroken one,
            bit for bit on a CPU. A finished run is left as it is.
        report: called after each step.
        rollouts: rollouts.jsonl of a run, to learn from its responses instead of sampling any.
        first: rollouts.jsonl of a run from the same start and seed, whose first step's responses
            are this run's too: methods then part from the same data, whatever engine samples.

    Raises:
        InputError: unknown method, a folder of another run, prompts beyond the model's context,
            no finite loss in several steps one after another.
        Interrupted: SIGINT or SIGTERM came; the run can be gone on with.
    """
    check_method(method, "method")
    run = RunFolder(out)
    refuse_begun(out, resume=resume)
    if rollouts is not None and not rollouts.is_file():
        raise InputError("no such file", str(rollouts), "give the rollouts.jsonl of a run's folder")
    source = source_of(recipe)
    wanted = describe(recipe, method, seed, fingerprint_checkpoint(start), rollouts, source)
    steps = recipe.train.steps
    with owned(out), ExitStack() as stack:
        newest, done = open_run(run, wanted, steps)
        if run.is_finished():
            return run.final(steps)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        write_overlap(run, source)
        trainer = Trainer(recipe, method, seed, start, device, source)
        stack.callback(trainer.sampler.close)
        if newest is not None:
            trainer.restore(newest)
        size = recipe.train.group_size
        words = int(trainer.model.config.get_text_config().vocab_size)
        replay = Replay(rollouts, size, words) if rollouts is not None else None
        opening = Replay(first, size, words, last=1) if first is not None and not done else None
        files = {
            name: stack.enter_context(JsonlWriter(out / f"{name}.jsonl"))
            for name in ("metrics", "timing", "rollouts")
        }
        if recipe.credit.save_weights:
            files["credit"] = stack.enter_context(JsonlWriter(out / "credit.jsonl"))
        grader = stack.enter_context(Grader(answer_type=source.answer_type, extract=source.extract))

        def leave() -> str:
            """Keep the last finished step, whose weights are still at hand."""
            if done and not run.final(done).exists():
                trainer.save(run.final(done), done)
                tidy(run.checkpoints)
            return f"after step {done}" if done else "before step 1 was done"

        stop = stack.enter_context(stoppable(leave))
        for step in range(done + 1, steps + 1):
            timer = PhaseTimer(step, before=stop.check)
            again = opening if opening is not None and opening.has(step) else replay
            left = trainer.step(step, grader, timer, again)
            files["rollouts"].write(left.rollouts)
            if "credit" in files:
                files["credit"].write(left.credit)
            files["metrics"].write([left.metrics])
            files["timing"].write(timer.rows)
            if step % recipe.train.save_every == 0 or step == steps:
                with timer.phase("checkpoint"):
                    trainer.save(run.final(step), step)
                tidy(run.checkpoints)
                files["timing"].write(timer.rows[-1:])
            done = step
            report(step, steps, left.metrics)
            if trainer.skipped >= MOST_SKIPPED:
                raise InputError(
                    f"the loss or its gradient was not finite in {MOST_SKIPPED} steps one after "
                    f"another, up to step {step}", str(out),
                    "lower train.lr; their responses are in rollouts.jsonl for train --rollouts",
                )  # fmt: skip
        write_json(out / "run.json", {**read_json(out / "run.json"), "status": "finished"})
    return run.final(steps)
