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

Several processes (see processes.py) share a step by its groups: each does all of the above for its
own responses, the update averages their gradients, and the first one writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from oar_bench.answers import Grade, Grader
from oar_bench.config import Recipe, RolloutSettings, check_method
from oar_bench.credit.assign import Credit, CreditBatch, assign, weight_metrics
from oar_bench.credit.files import credit_rows
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint_checkpoint
from oar_bench.keyed import derive
from oar_bench.overhead.phases import PhaseTimer, merged
from oar_bench.records import owned, read_json, write_json
from oar_bench.training.advantages import group_advantages
from oar_bench.training.before import FAILURES, Before, before_update, rollout_metrics
from oar_bench.training.checkpoint import tidy
from oar_bench.training.interrupts import stoppable
from oar_bench.training.policy import Policy
from oar_bench.training.processes import ALONE, Processes
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
from oar_bench.training.run import (
    RunFolder,
    StepFiles,
    describe,
    open_run,
    refuse_begun,
    write_overlap,
)
from oar_bench.training.samplers import check_gap, heed, sampler_of
from oar_bench.training.sources import Source, source_of
from oar_bench.training.update import Experience, learning_rate, update

MOST_SKIPPED = 3
"""Steps one after another without a finite loss and gradient after which a run stops."""

Report = Callable[[int, int, dict[str, Any]], None]
"""Called after each step with its number, the number of steps, and the metrics row."""


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
        source: Source | None = None, processes: Processes = ALONE,
    ) -> None:  # fmt: skip
        torch.set_num_threads(recipe.model.threads)
        # Draws of torch's generator: none but the adapters' first weights.
        torch.manual_seed(derive("torch", seed))
        self.recipe, self.settings, self.method, self.seed = recipe, recipe.train, method, seed
        self.processes = processes
        if recipe.train.prompts_per_step < processes.count:
            raise InputError(
                f"{recipe.train.prompts_per_step} problems a step are too few for "
                f"{processes.count} processes", "train.prompts_per_step", "start fewer processes",
            )  # fmt: skip
        self.policy = Policy(recipe, start, device, processes)
        self.model, self.tokenizer = self.policy.model, self.policy.tokenizer
        self.source = source or source_of(recipe)
        self.sampler = sampler_of(recipe, self.model, self.tokenizer, processes)
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
                rollout = replay.of_step(step, self.tokenizer, self.model, self.processes)
            grades = self.grade(rollout, grader, timer)
        left = self.learn(step, rollout, grades, timer)
        if replay is None:
            left.metrics.update(self.sampler.metrics())
        return left

    def _collect(self, step: int, grader: Grader, timer: PhaseTimer) -> tuple[Rollout, list[Grade]]:
        """Sample and grade this process's share; with dynamic sampling, until enough groups of
        all processes have a signal."""
        settings = self.settings
        parts: list[Rollout] = []
        grades: list[Grade] = []
        drawn = 0
        for again in range(1 + settings.dynamic_sampling):
            problems = self.source.of_step(settings.prompts_per_step, self.seed, step, again)
            if not problems:
                break  # the step has had all there are
            mine = self.processes.share(len(problems))
            with timer.phase("rollout") as row:
                if not parts:
                    self.sampler.sync(self.model, step)
                part = roll_out(
                    self.sampler, self.tokenizer, [problems[i] for i in mine], settings, self.seed,
                    step, self.model.device, [drawn + i for i in mine],
                )  # fmt: skip
                row["tokens"] = part.response_tokens
            drawn += len(problems)
            parts.append(part)
            verdicts = self.grade(part, grader, timer)
            grades += verdicts
            rollout = joined(self.tokenizer, parts)
            if sum(self._signals(rollout, grades).values()) >= settings.prompts_per_step:
                break
        return rollout, grades

    def grade(self, rollout: Rollout, grader: Grader, timer: PhaseTimer) -> list[Grade]:
        """The verdict on each response, in the phase `grading`."""
        with timer.phase("grading") as row:
            row["tokens"] = rollout.response_tokens
            return grade_rollout(rollout, grader)

    def _signals(self, rollout: Rollout, grades: Sequence[Grade]) -> dict[int, bool]:
        """Whether the rewards of each group differ, by its number, over all processes."""
        size = self.settings.group_size
        mine = {}
        for at in range(0, len(grades), size):
            rewards = {g.correct for g in grades[at : at + size] if g.status not in FAILURES}
            mine[rollout.numbers[at] // size] = len(rewards) > 1
        every = {}
        for theirs in self.processes.gather(mine):
            every.update(theirs)
        return dict(sorted(every.items()))

    def _used(self, signals: Mapping[int, bool]) -> dict[int, int]:
        """The groups that the step learns from, each with its number among them.

        All, or with dynamic sampling those with a signal.
        """
        wanted = self.settings.prompts_per_step
        groups = list(signals)
        if self.settings.dynamic_sampling:
            groups = [group for group in groups if signals[group]][:wanted] or groups[:wanted]
        return {group: number for number, group in enumerate(groups)}

    def learn(
        self, step: int, drawn: Rollout, verdicts: Sequence[Grade], timer: PhaseTimer
    ) -> StepRows:
        """The rest of a step, from its graded responses on, whoever sampled them."""
        settings = self.settings
        gains, frac_zero_std = self._advantages(verdicts)
        chosen = self._used(self._signals(drawn, verdicts))
        groups = [chosen.get(number // settings.group_size, -1) for number in drawn.numbers]
        used = [i for i, group in enumerate(groups) if group >= 0]
        rollout, advantages = part_of(drawn, used), gains[used]
        with timer.phase("logprobs") as row:
            before = before_update(self.policy, rollout, settings)
            gap, _ = before.metrics.get("logprob_gap", (None, 0))
            check_gap(gap, self.sampler.metrics(), settings)
            row["tokens"] = before.passes * int(rollout.attention_mask.sum())
        with timer.phase("credit") as row:
            batch = credit_batch(
                rollout, self.tokenizer, self.source.answer_type, self.source.extract
            )
            needed = advantages != 0
            credit = assign(
                self.method, self.model, batch, self.recipe.credit, self.policy.pad_id, needed
            )
            weighted = batch.weighted(self.recipe.credit) & needed[:, None]
            row["tokens"] = int(weighted.sum())
        with timer.phase("update") as row:
            order = torch.tensor([groups[i] for i in used], dtype=torch.long, device=gains.device)
            experience = self._experience(rollout, advantages, credit.weights, before, order)
            updated = update(self.policy, experience, settings, learning_rate(settings, step))
            row["tokens"] = updated.pop("tokens")
        self.skipped = self.skipped + 1 if updated["skipped_steps"] else 0
        rows = rollout_rows(drawn, verdicts, gains, [group >= 0 for group in groups], step)
        credited = self._credit_rows(credit, rollout, [rows[i] for i in used])
        everyone = self.processes.in_order(drawn.numbers, rows)
        metrics = {
            "step": step,
            **rollout_metrics(everyone),
            **self.processes.means({
                "frac_zero_std": (frac_zero_std, len(verdicts)),
                "frac_no_probe": (1 - float(batch.probe.found.float().mean()), len(used)),
                **before.metrics,
            }),
            **updated,
            **self._weight_metrics(credit, batch, needed),
        }  # fmt: skip
        return StepRows(metrics, everyone, credited)

    def _advantages(self, grades: Sequence[Grade]) -> tuple[torch.Tensor, float]:
        device = self.model.device
        return group_advantages(
            torch.tensor([float(g.correct) for g in grades], device=device),
            self.settings.group_size,
            scale_rewards=self.settings.scale_rewards and self.settings.loss_type != "dr_grpo",
            graded=torch.tensor([g.status not in FAILURES for g in grades], device=device),
        )

    def _experience(
        self, rollout: Rollout, advantages: torch.Tensor, weights: torch.Tensor, before: Before,
        groups: torch.Tensor,
    ) -> Experience:  # fmt: skip
        mask = rollout.response_mask
        if self.settings.mask_truncated:
            mask = mask & torch.tensor(rollout.finished, device=mask.device)[:, None]
        return Experience(
            rollout.input_ids, rollout.attention_mask, rollout.response_mask, mask, advantages,
            weights if before.correction is None else weights * before.correction,
            before.old, before.ref, groups,
        )  # fmt: skip

    def _credit_rows(
        self, credit: Credit, rollout: Rollout, rows: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        if not self.recipe.credit.save_weights:
            return []
        found = credit_rows(
            credit, rollout.response_mask, rollout.responses, rows, method=self.method
        )
        return self.processes.in_order(rollout.numbers, found)

    def _weight_metrics(
        self, credit: Credit, batch: CreditBatch, needed: torch.Tensor
    ) -> dict[str, float]:
        """`weight_metrics` of all processes' rows."""
        mine = weight_metrics(credit.weights, batch, self.recipe.credit, needed)
        weighted = batch.weighted(self.recipe.credit) & needed[:, None]
        tokens, rows = int(weighted.sum()), int(weighted.any(1).sum())
        known = self.processes.means(
            {"weight_mean": (mine["weight_mean"], tokens), "weight_ess": (mine["weight_ess"], rows)}
        )
        largest = self.processes.gather(mine["weight_max"] if tokens else -math.inf)
        return {
            "weight_mean": known["weight_mean"],
            "weight_max": max(largest) if max(largest) > -math.inf else mine["weight_max"],
            "weight_ess": known["weight_ess"],
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
    rollouts: Path | Replay | None = None,
    first: Path | None = None,
    processes: Processes = ALONE,
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
        rollouts: rollouts.jsonl of a run, to learn from its responses instead of sampling any, or
            its `Replay.of_run`.
        first: rollouts.jsonl of a run from the same start and seed, whose first step's responses
            are this run's too: methods then part from the same data, whatever engine samples.
        processes: those that train this run together; each calls this with the same arguments.

    Raises:
        InputError: unknown method, a folder of another run, rollouts that aren't of such a run,
            prompts beyond the model's context, no finite loss in several steps one after another.
        Interrupted: SIGINT or SIGTERM came; the run can be gone on with.
    """
    check_method(method, "method")
    run, steps = RunFolder(out), recipe.train.steps
    replay = Replay.of_run(rollouts, recipe) if isinstance(rollouts, Path) else rollouts
    replayed = None if replay is None else replay.path
    source = source_of(recipe)
    with ExitStack() as stack:

        def begin() -> tuple[Path | None, int, bool]:
            refuse_begun(out, resume=resume)
            prints = fingerprint_checkpoint(start)
            wanted = describe(recipe, method, seed, prints, replayed, source, processes)
            stack.enter_context(owned(out))
            newest, done = open_run(run, wanted, steps)
            if not run.is_finished():
                write_overlap(run, source)
            return newest, done, run.is_finished()

        newest, done, finished = processes.by_first(begin)
        if finished:
            return run.final(steps)
        # No engine is started to sample what is there.
        own = recipe.model_copy(update={"rollout": RolloutSettings()}) if replay else recipe
        trainer = Trainer(own, method, seed, start, processes.device, source, processes)
        stack.callback(trainer.sampler.close)
        if newest is not None:
            trainer.restore(newest)
        size = recipe.train.group_size
        opening = Replay(first, size, last=1) if first is not None and not done else None
        files = StepFiles(out, processes.is_first, recipe.credit.save_weights)
        stack.callback(files.close)
        grader = stack.enter_context(Grader(answer_type=source.answer_type, extract=source.extract))

        def leave() -> str:
            """Keep the last finished step, whose weights are still at hand."""
            if done and processes.by_first(lambda: not run.final(done).exists()):
                trainer.save(run.final(done), done)
                if processes.is_first:
                    tidy(run.checkpoints)
                # Launchers signal all others as soon as one ends: not before it is written.
                processes.gather(None)
            return f"after step {done}" if done else "before step 1 was done"

        stop = stack.enter_context(stoppable(leave, processes))
        stack.enter_context(heed(stop.between, trainer.model, trainer.sampler))
        for step in range(done + 1, steps + 1):
            timer = PhaseTimer(step, before=stop.check)
            again = opening if opening is not None and opening.has(step) else replay
            left = trainer.step(step, grader, timer, again)
            files.write("rollouts", left.rollouts)
            files.write("credit", left.credit)
            files.write("metrics", [left.metrics])
            files.write("timing", merged(processes.to_first(timer.rows)))
            if step % recipe.train.save_every == 0 or step == steps:
                with timer.phase("checkpoint"):
                    trainer.save(run.final(step), step)
                if processes.is_first:
                    tidy(run.checkpoints)
                files.write("timing", merged(processes.to_first(timer.rows[-1:])))
            done = step
            if processes.is_first:
                report(step, steps, left.metrics)
            if trainer.skipped >= MOST_SKIPPED:
                raise InputError(
                    f"the loss or its gradient was not finite in {MOST_SKIPPED} steps one after "
                    f"another, up to step {step}", str(out),
                    "lower train.lr; their responses are in rollouts.jsonl for train --rollouts",
                )  # fmt: skip
        if processes.is_first:
            write_json(out / "run.json", {**read_json(out / "run.json"), "status": "finished"})
    return run.final(steps)
