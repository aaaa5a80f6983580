"""The trainer: GRPO, and every method that differs from it by token weights alone.

One step, in the order of the phases that timing.jsonl shows:

    rollout     sample `group_size` responses to each of `prompts_per_step` problems
    grading     reward 1 for a right answer, else 0; advantages within each group
    logprobs    old log-probabilities, entropy, KL to the weights the run began from
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
from pathlib import Path
from typing import Any, get_args

import torch
from transformers import PreTrainedModel

from oar_bench.answers import Grade, Grader, Status
from oar_bench.config import Recipe, TrainSettings, check_method
from oar_bench.credit.assign import assign, weight_metrics
from oar_bench.credit.files import credit_rows
from oar_bench.engines.hf import load_model, pad_id
from oar_bench.identity import fingerprint_checkpoint
from oar_bench.keyed import derive
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.records import JsonlWriter, owned, read_json, write_json
from oar_bench.training.advantages import group_advantages
from oar_bench.training.checkpoint import load_state, save_checkpoint, tidy
from oar_bench.training.loss import k3_divergence, policy_loss, token_coefficients
from oar_bench.training.model import token_logprobs
from oar_bench.training.rollout import (
    Rollout,
    credit_batch,
    grade_rollout,
    roll_out,
    rollout_rows,
)
from oar_bench.training.run import RunFolder, describe, open_run, refuse_begun
from oar_bench.training.samplers import sampler_of
from oar_bench.training.sources import source_of

FAILURES: tuple[Status, ...] = ("timeout", "gold_error")
"""Gradings that say nothing about the response: it then has no reward, rather than reward 0."""
STATUSES: tuple[Status, ...] = get_args(Status)

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


class Trainer:
    """Trains one method under one seed from a starting checkpoint."""

    def __init__(self, recipe: Recipe, method: str, seed: int, start: Path, device: str) -> None:
        torch.set_num_threads(recipe.model.threads)
        # Nothing here draws from torch's generator; a model with dropout would.
        torch.manual_seed(derive("torch", seed))
        self.recipe, self.settings, self.method, self.seed = recipe, recipe.train, method, seed
        model, self.tokenizer = load_model(start)
        self.model: PreTrainedModel = model.to(device)  # type: ignore[arg-type]
        self.start: PreTrainedModel = load_model(start)[0].to(device)  # type: ignore[arg-type]
        self.pad_id = pad_id(self.tokenizer)
        self.source = source_of(recipe)
        self.sampler = sampler_of(recipe, self.model, self.tokenizer)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.settings.lr, weight_decay=self.settings.weight_decay
        )

    def restore(self, checkpoint: Path) -> None:
        """Take weights and optimizer state from a checkpoint of this run."""
        saved = load_model(checkpoint)[0]
        self.model.load_state_dict(saved.state_dict())
        load_state(checkpoint, self.model, self.optimizer)

    def step(
        self, step: int, grader: Grader, timer: PhaseTimer
    ) -> tuple[dict[str, Any], list[Any], list[Any]]:
        """Do one step; its metrics row, its rollout rows and its rows of credit, if wanted."""
        settings = self.settings
        problems = self.source.of_step(settings.prompts_per_step, self.seed, step)
        with timer.phase("rollout") as row:
            self.sampler.sync(self.model, step)
            rollout = roll_out(
                self.sampler, self.tokenizer, problems, settings, self.seed, step, self.model.device
            )
            row["tokens"] = rollout.response_tokens
        metrics, rollouts, credit = self.learn(step, rollout, grader, timer)
        return {**metrics, **self.sampler.metrics()}, rollouts, credit

    def learn(
        self, step: int, rollout: Rollout, grader: Grader, timer: PhaseTimer
    ) -> tuple[dict[str, Any], list[Any], list[Any]]:
        """The rest of a step, from its responses on, whoever sampled them."""
        settings = self.settings
        with timer.phase("grading") as row:
            grades = grade_rollout(rollout, grader)
            row["tokens"] = rollout.response_tokens
        rewards = torch.tensor([float(g.correct) for g in grades], device=self.model.device)
        advantages, frac_zero_std = group_advantages(
            rewards,
            settings.group_size,
            scale_rewards=settings.scale_rewards and settings.loss_type != "dr_grpo",
            graded=torch.tensor([g.status not in FAILURES for g in grades], device=rewards.device),
        )
        with timer.phase("logprobs") as row:
            old, entropy = self._logprobs(self.model, rollout)
            ref, _ = self._logprobs(self.start, rollout)
            row["tokens"] = 2 * int(rollout.attention_mask.sum())
        with timer.phase("credit") as row:
            batch = credit_batch(rollout, self.tokenizer, self.source.answer_type)
            needed = advantages != 0
            credit = assign(self.method, self.model, batch, self.recipe.credit, self.pad_id, needed)
            row["tokens"] = int((batch.weighted(self.recipe.credit) & needed[:, None]).sum())
        with timer.phase("update") as row:
            update = self._update(rollout, advantages, credit.weights, old, ref, step)
            row["tokens"] = update.pop("tokens")
        tokens = rollout.response_mask.sum()
        metrics = {
            "step": step,
            **_rollout_metrics(rollout, grades),
            "frac_zero_std": frac_zero_std,
            "frac_no_probe": 1 - float(batch.probe.found.float().mean()),
            "entropy": float(entropy.sum() / tokens),
            "kl_start": float((k3_divergence(old, ref) * rollout.response_mask).sum() / tokens),
            **update,
            **weight_metrics(credit.weights, batch, self.recipe.credit, needed),
        }
        rows = rollout_rows(rollout, grades, advantages, step)
        saved = (
            credit_rows(credit, rollout.response_mask, rollout.responses, rows, method=self.method)
            if self.recipe.credit.save_weights
            else []
        )
        return metrics, rows, saved

    @torch.no_grad()
    def _logprobs(
        self, model: PreTrainedModel, rollout: Rollout
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (B, S) of a rollout under a model."""
        parts = [
            token_logprobs(
                model, rollout.input_ids[rows], rollout.attention_mask[rows],
                rollout.response_mask[rows], self.settings.temperature,
            )
            for rows in torch.arange(len(rollout.responses)).split(self.settings.micro_batch_size)
        ]  # fmt: skip
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def _update(
        self,
        rollout: Rollout,
        advantages: torch.Tensor,
        weights: torch.Tensor,
        old: torch.Tensor,
        ref: torch.Tensor,
        step: int,
    ) -> dict[str, Any]:
        """`num_iterations` optimizer steps on the batch; loss, clipping and gradient norm."""
        settings = self.settings
        mask = rollout.response_mask
        if settings.mask_truncated:
            mask = mask & torch.tensor(rollout.finished, device=mask.device)[:, None]
        coefficients = token_coefficients(mask, settings.loss_type, settings.max_new_tokens)
        # Without a KL term a response of zero advantage has zero gradient: no pass is spent on it.
        wanted = mask.any(1) & ((advantages != 0) | (settings.kl_beta > 0))
        rows = torch.nonzero(wanted).flatten()
        rate = learning_rate(settings, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss, clipped, tokens, norms, processed = 0.0, 0, 0, [], 0
        for _ in range(settings.num_iterations if len(rows) else 0):
            self.optimizer.zero_grad()
            for chunk in rows.split(settings.micro_batch_size):
                logprobs, _ = token_logprobs(
                    self.model, rollout.input_ids[chunk], rollout.attention_mask[chunk],
                    rollout.response_mask[chunk], settings.temperature,
                )  # fmt: skip
                parts = policy_loss(
                    logprobs, old[chunk], advantages[chunk], weights[chunk], coefficients[chunk],
                    clip_eps_low=settings.clip_eps_low, clip_eps_high=settings.clip_eps_high,
                    kl_beta=settings.kl_beta, ref_logprobs=ref[chunk],
                )  # fmt: skip
                parts.loss.backward()
                loss += float(parts.loss.detach()) / settings.num_iterations
                clipped, tokens = clipped + parts.clipped_tokens, tokens + parts.tokens
                processed += int(rollout.attention_mask[chunk].sum())
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_grad_norm)
            norms.append(float(norm))
            self.optimizer.step()
        return {
            "loss": loss,
            "clip_fraction": clipped / max(1, tokens),
            "grad_norm": sum(norms) / max(1, len(norms)),
            "lr": rate,
            "tokens": processed,
        }


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

    Raises:
        InputError: unknown method, a folder of another run, prompts beyond the model's context.
    """
    check_method(method, "method")
    run = RunFolder(out)
    refuse_begun(out, resume=resume)
    wanted = describe(recipe, method, seed, fingerprint_checkpoint(start))
    steps = recipe.train.steps
    with owned(out), ExitStack() as stack:
        newest, done = open_run(run, wanted, steps)
        if run.is_finished():
            return run.final(steps)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        trainer = Trainer(recipe, method, seed, start, device)
        stack.callback(trainer.sampler.close)
        if newest is not None:
            trainer.restore(newest)
        metrics_file, timing_file, rollouts_file = (
            stack.enter_context(JsonlWriter(out / name))
            for name in ("metrics.jsonl", "timing.jsonl", "rollouts.jsonl")
        )
        credit_file = (
            stack.enter_context(JsonlWriter(out / "credit.jsonl"))
            if recipe.credit.save_weights
            else None
        )
        grader = stack.enter_context(Grader(answer_type=trainer.source.answer_type))
        for step in range(done + 1, steps + 1):
            timer = PhaseTimer(step)
            metrics, rollouts, credit = trainer.step(step, grader, timer)
            rollouts_file.write(rollouts)
            if credit_file is not None:
                credit_file.write(credit)
            metrics_file.write([metrics])
            if step % recipe.train.save_every == 0 or step == steps:
                with timer.phase("checkpoint"):
                    save_checkpoint(
                        run.final(step), trainer.model, trainer.tokenizer,
                        optimizer=trainer.optimizer, state={"step": step},
                    )  # fmt: skip
                tidy(run.checkpoints)
            timing_file.write(timer.rows)
            report(step, steps, metrics)
        write_json(out / "run.json", {**read_json(out / "run.json"), "status": "finished"})
    return run.final(steps)
