"""A loss that overflows: the step is skipped and counted, and its replay shows the same fault."""

from __future__ import annotations

import shutil

import pytest

from oar_bench.answers import Grader
from oar_bench.config import changes_of, load_recipe
from oar_bench.errors import InputError
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.tasks.problems import ANSWER_TYPE
from oar_bench.training.replay import Replay
from oar_bench.training.trainer import Trainer, train

from .runs import rows_of

OVERFLOW = ["train.kl_beta=3e38", "train.lr=1e-3", "train.save_every=1"]
"""At the first step the distance to the start is 0; from the second on, times this it is no
float32, in the loss or in its gradient."""


@pytest.fixture(scope="module")
def broken(start, tmp_path_factory):
    """A run that stopped for want of a finite loss, and its checkpoint after step 1."""
    recipe = load_recipe("smoke", changes_of([*OVERFLOW, "train.steps=6"]))
    out = tmp_path_factory.mktemp("broken")
    kept = out / "kept"

    def keep(step, steps, metrics):
        if step == 1:
            shutil.copytree(out / "run" / "checkpoints" / "step-000001", kept)

    with pytest.raises(InputError, match="3 steps one after another, up to step 4") as caught:
        train(recipe, "grpo", 0, start, out / "run", report=keep)
    assert "rollouts.jsonl for train --rollouts" in str(caught.value)
    return recipe, out / "run", kept


def test_the_steps_are_skipped_and_counted(broken):
    _, out, _ = broken
    rows = rows_of(out, "metrics")
    assert [row["skipped_steps"] for row in rows] == [0, 1, 1, 1]
    assert [row["grad_norm"] is None for row in rows] == [False, True, True, True]
    # Nothing moved after step 1.
    weights = [
        (out / "checkpoints" / f"step-{step:06d}" / "model.safetensors").read_bytes()
        for step in (3, 4)
    ]
    assert weights[0] == weights[1] == (broken[2] / "model.safetensors").read_bytes()


def test_the_replay_of_exactly_that_step_has_the_same_fault(broken, start):
    """From the checkpoint before it, on the batch that rollouts.jsonl kept, without a sampler."""
    recipe, out, kept = broken
    [wanted] = [row for row in rows_of(out, "metrics") if row["step"] == 2]
    trainer = Trainer(recipe, "grpo", 0, start, "cpu")
    trainer.restore(kept)
    trainer.sampler.sample = None  # nothing is sampled
    replay = Replay(out / "rollouts.jsonl", recipe.train.group_size)
    with Grader(answer_type=ANSWER_TYPE) as grader:
        again = trainer.step(2, grader, PhaseTimer(2), replay)
    assert again.metrics == wanted
    assert again.rollouts == [row for row in rows_of(out, "rollouts") if row["step"] == 2]
    assert trainer.skipped == 1
    # With a bound that a float32 can hold, the very same batch is learned from.
    finite = changes_of([*OVERFLOW, "train.kl_beta=0.1"])
    sane = Trainer(load_recipe("smoke", finite), "grpo", 0, start, "cpu")
    sane.restore(kept)
    with Grader(answer_type=ANSWER_TYPE) as grader:
        mended = sane.step(2, grader, PhaseTimer(2), replay)
    assert mended.metrics["skipped_steps"] == 0
    assert mended.metrics["kl_start"] == wanted["kl_start"] > 0


def test_the_command_replays_up_to_that_step(call, broken, start, tmp_path):
    _, out, _ = broken
    sets = [f"--set={change}" for change in OVERFLOW]
    done = call(
        "train", "smoke", *sets, "--steps", "2", "--rollouts", str(out / "rollouts.jsonl"),
        "--out", str(tmp_path / "again"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rows_of(tmp_path / "again", "metrics") == rows_of(out, "metrics")[:2]


def test_a_resumed_run_counts_on(call, broken, start, tmp_path):
    """Stopped at three, it is not made to do three more."""
    recipe, out, _ = broken
    copy = tmp_path / "run"
    shutil.copytree(out, copy)
    with pytest.raises(InputError, match="up to step 5"):
        train(recipe, "grpo", 0, start, copy, resume=True)
    assert len(rows_of(copy, "metrics")) == 5
