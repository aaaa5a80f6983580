"""Whole training runs of the smoke recipe: rows, resume, pairing, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from oar_bench.config import Recipe, load_recipe
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.training.checkpoint import is_whole, latest_checkpoint
from oar_bench.training.trainer import train


def weights(checkpoint: Path) -> bytes:
    return (checkpoint / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def grpo(smoke: Recipe, start: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("grpo")
    train(smoke, "grpo", 0, start, out)
    return out


METRICS = {
    "step", "reward", "response_length", "truncated", "no_answer", "frac_zero_std",
    "frac_no_probe", "entropy", "kl_start", "clip_fraction", "grad_norm", "weight_mean",
    "weight_max", "weight_ess", "lr", "loss",
}  # fmt: skip


def test_a_run_leaves_its_rows(grpo: Path, smoke: Recipe):
    metrics = list(read_jsonl(grpo / "metrics.jsonl"))
    assert [row["step"] for row in metrics] == [1, 2, 3, 4]
    assert set(metrics[0]) >= METRICS
    assert metrics[0]["kl_start"] == pytest.approx(0, abs=1e-6)
    assert metrics[-1]["kl_start"] > 1e-5
    assert 0 < metrics[0]["reward"] < 1
    assert sum(metrics[0]["statuses"].values()) == 8 * 4
    assert metrics[0]["statuses"]["correct"] == metrics[0]["reward"] * 8 * 4
    rollouts = list(read_jsonl(grpo / "rollouts.jsonl"))
    assert len(rollouts) == 4 * 8 * 4
    for row in metrics:
        own = [r for r in rollouts if r["step"] == row["step"]]
        assert row["reward"] == pytest.approx(sum(r["reward"] for r in own) / len(own))
        assert row["response_length"] == sum(r["response_tokens"] for r in own) / len(own)
    phases = [row["phase"] for row in read_jsonl(grpo / "timing.jsonl") if row["step"] == 2]
    assert phases == ["rollout", "grading", "logprobs", "credit", "update", "checkpoint"]
    assert read_json(grpo / "run.json")["status"] == "finished"
    assert is_whole(grpo / "checkpoints" / "step-000004")


def test_training_changes_the_weights(grpo: Path, start: Path):
    assert weights(grpo / "checkpoints" / "step-000004") != weights(start)


def test_uniform_weights_are_grpo_to_the_bit(grpo: Path, smoke: Recipe, start: Path, tmp_path):
    final = train(smoke, "uniform", 0, start, tmp_path / "run")
    assert weights(final) == weights(grpo / "checkpoints" / "step-000004")


def test_methods_of_a_seed_are_paired(grpo: Path, smoke: Recipe, start: Path, tmp_path):
    """Same prompts and, from the same weights, the very same responses; then they part."""
    other = tmp_path / "run"
    train(smoke, "oar-p", 0, start, other)
    mine, theirs = (list(read_jsonl(p / "rollouts.jsonl")) for p in (grpo, other))
    assert [r["prompt"] for r in mine] == [r["prompt"] for r in theirs]
    first = [r["response"] for r in mine if r["step"] == 1]
    assert first == [r["response"] for r in theirs if r["step"] == 1]
    assert weights(other / "checkpoints" / "step-000004") != weights(
        grpo / "checkpoints" / "step-000004"
    )
    row = next(read_jsonl(other / "metrics.jsonl"))
    assert row["weight_mean"] == pytest.approx(1, abs=1e-4)
    assert row["weight_max"] > 1.2
    assert row["weight_ess"] < 0.95


@pytest.mark.parametrize("method", ["oar-g", "shuffled", "random", "inverted"])
def test_every_method_trains(method, smoke: Recipe, start: Path, tmp_path):
    final = train(load_recipe("smoke", {"train": {"steps": 1}}), method, 0, start, tmp_path / "run")
    assert is_whole(final)


def test_every_setting_of_the_loss_trains(start: Path, tmp_path):
    changes = {
        "steps": 2, "num_iterations": 2, "kl_beta": 0.05, "loss_type": "dr_grpo", "top_p": 0.9,
        "mask_truncated": True, "lr_schedule": "cosine", "warmup_steps": 1, "temperature": 0.8,
        "micro_batch_size": 5, "clip_eps_high": 0.28,
    }  # fmt: skip
    train(load_recipe("smoke", {"train": changes}), "oar-p", 0, start, tmp_path / "run")
    rows = list(read_jsonl(tmp_path / "run" / "metrics.jsonl"))
    assert rows[0]["lr"] == pytest.approx(3e-4)
    assert all(row["grad_norm"] > 0 for row in rows)


def test_a_micro_batch_size_does_not_change_training(grpo: Path, start: Path, tmp_path):
    recipe = load_recipe("smoke", {"train": {"micro_batch_size": 5, "steps": 1, "save_every": 1}})
    whole = load_recipe("smoke", {"train": {"steps": 1, "save_every": 1}})
    a = load_file(train(recipe, "grpo", 0, start, tmp_path / "a") / "model.safetensors")
    b = load_file(train(whole, "grpo", 0, start, tmp_path / "b") / "model.safetensors")
    assert max(float((a[k] - b[k]).abs().max()) for k in a) < 1e-5


def test_a_finished_run_is_left_alone(grpo: Path, smoke: Recipe, start: Path):
    before = {p: p.stat().st_mtime_ns for p in grpo.rglob("*") if p.is_file() and p.name != ".lock"}
    train(smoke, "grpo", 0, start, grpo, resume=True)
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_a_run_begun_before_needs_resume(grpo: Path, smoke: Recipe, start: Path):
    with pytest.raises(InputError, match="--resume"):
        train(smoke, "grpo", 0, start, grpo)


def test_another_run_in_the_folder_is_refused(grpo: Path, smoke: Recipe, start: Path, tmp_path):
    with pytest.raises(InputError, match="method 'grpo'"):
        train(smoke, "oar-p", 0, start, grpo, resume=True)
    with pytest.raises(InputError, match="seed 0"):
        train(smoke, "grpo", 1, start, grpo, resume=True)
    other = load_recipe("smoke", {"train": {"lr": 1e-4}})
    with pytest.raises(InputError, match=r"another recipe \(train\.lr 0\.0003, not 0\.0001\)"):
        train(other, "grpo", 0, start, grpo, resume=True)
    falling = load_recipe("smoke", {"train": {"lr_schedule": "linear", "steps": 8}})
    with pytest.raises(InputError, match=r"train\.lr_schedule 'constant', not 'linear'"):
        train(falling, "grpo", 0, start, grpo, resume=True)
    with pytest.raises(InputError, match="a run that samples"):
        train(smoke, "grpo", 0, start, grpo, resume=True, rollouts=grpo / "rollouts.jsonl")
    fewer = load_recipe("smoke", {"train": {"steps": 2}})
    with pytest.raises(InputError, match="4 steps of this run are done, 2 are asked for"):
        train(fewer, "grpo", 0, start, grpo, resume=True)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match=r"letter\.txt"):
        train(smoke, "grpo", 0, start, tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_more_steps_go_on_from_a_finished_run_to_the_longer_run(
    smoke: Recipe, start: Path, tmp_path, grpo: Path
):
    out = tmp_path / "run"
    short = load_recipe("smoke", {"train": {"steps": 2}})
    train(short, "grpo", 0, start, out)
    final = train(smoke, "grpo", 0, start, out, resume=True)
    whole = grpo / "checkpoints" / final.name
    assert (final / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (out / "rollouts.jsonl").read_bytes() == (grpo / "rollouts.jsonl").read_bytes()
    assert read_json(out / "run.json")["settings"]["train"]["steps"] == 4


def test_a_run_goes_on_with_less_memory_and_from_a_start_that_was_moved(
    smoke: Recipe, start: Path, tmp_path
):
    out = tmp_path / "run"
    train(load_recipe("smoke", {"train": {"steps": 2}}), "grpo", 0, start, out)
    moved = shutil.copytree(start, tmp_path / "moved")
    changes = {
        "model": {"path": str(moved), "gradient_checkpointing": True},
        "train": {"steps": 3, "micro_batch_size": 2, "logits_mib": 1, "save_every": 5},
        "credit": {"memory_mib": 1},
    }
    final = train(load_recipe("smoke", changes), "grpo", 0, moved, out, resume=True)
    assert final.name == "step-000003"
    settings = read_json(out / "run.json")["settings"]
    assert (settings["train"]["micro_batch_size"], settings["train"]["logits_mib"]) == (2, 1)


def test_a_run_whose_version_took_its_fingerprint_of_other_settings_goes_on(
    smoke: Recipe, start: Path, tmp_path
):
    out = tmp_path / "run"
    train(load_recipe("smoke", {"train": {"steps": 1}}), "grpo", 0, start, out)
    about = read_json(out / "run.json")
    about["fingerprints"]["recipe"] = "0123456789ab"
    (out / "run.json").write_text(json.dumps(about))
    two = load_recipe("smoke", {"train": {"steps": 2}})
    assert train(two, "grpo", 0, start, out, resume=True).name == "step-000002"


def test_a_broken_checkpoint_is_passed_over(smoke: Recipe, start: Path, tmp_path, grpo: Path):
    out = tmp_path / "run"
    train(load_recipe("smoke"), "grpo", 0, start, out)
    (out / "run.json").write_text(json.dumps({**read_json(out / "run.json"), "status": "running"}))
    last = out / "checkpoints" / "step-000004" / "model.safetensors"
    last.write_bytes(last.read_bytes()[:-10])
    newest = latest_checkpoint(out / "checkpoints")
    assert newest is not None
    assert newest.name == "step-000002"
    final = train(smoke, "grpo", 0, start, out, resume=True)
    assert weights(final) == weights(grpo / "checkpoints" / "step-000004")


def test_more_than_the_context_is_refused(start: Path, tmp_path):
    recipe = load_recipe("smoke", {"train": {"max_new_tokens": 60}})
    with pytest.raises(InputError, match="context of 48"):
        train(recipe, "grpo", 0, start, tmp_path / "run")


def test_a_token_budget_does_not_change_training(grpo: Path, start: Path, tmp_path):
    recipe = load_recipe("smoke", {"train": {"micro_batch_tokens": 64, "steps": 1}})
    whole = load_recipe("smoke", {"train": {"steps": 1}})
    a = load_file(train(recipe, "oar-p", 0, start, tmp_path / "a") / "model.safetensors")
    b = load_file(train(whole, "oar-p", 0, start, tmp_path / "b") / "model.safetensors")
    assert max(float((a[k] - b[k]).abs().max()) for k in a) < 1e-5


def test_untracked_metrics_cost_no_pass_and_change_no_training(start: Path, tmp_path):
    recipe = load_recipe("smoke", {"train": {"track": [], "steps": 1}})
    whole = load_recipe("smoke", {"train": {"steps": 1}})
    a = load_file(train(recipe, "oar-p", 0, start, tmp_path / "run") / "model.safetensors")
    b = load_file(train(whole, "oar-p", 0, start, tmp_path / "whole") / "model.safetensors")
    assert max(float((a[k] - b[k]).abs().max()) for k in a) < 1e-5
    rows = list(read_jsonl(tmp_path / "run" / "metrics.jsonl"))
    assert not {"entropy", "kl_start"} & set(rows[0])
    timed = [r for r in read_jsonl(tmp_path / "run" / "timing.jsonl") if r["phase"] == "logprobs"]
    assert all(row["tokens"] == 0 for row in timed)


def test_mini_batches_are_optimizer_steps(start: Path, tmp_path):
    recipe = load_recipe("smoke", {"train": {"steps": 1, "mini_batches": 4, "num_iterations": 2}})
    final = train(recipe, "grpo", 0, start, tmp_path / "run")
    done = load_file(final / "trainer_state.safetensors")
    steps = {float(v) for k, v in done.items() if k.endswith("/step")}
    assert len(steps) == 1
    # Eight groups of which some have no signal; a mini-batch of such groups alone does no step.
    assert 4 <= steps.pop() <= 8


def test_dynamic_sampling_learns_from_groups_with_a_signal(start: Path, tmp_path):
    recipe = load_recipe("smoke", {"train": {"steps": 1, "dynamic_sampling": 4}})
    train(recipe, "grpo", 0, start, tmp_path / "run")
    rows = list(read_jsonl(tmp_path / "run" / "rollouts.jsonl"))
    used = [row for row in rows if row["used"]]
    assert len(rows) > len(used) == 8 * 4
    groups = [used[at : at + 4] for at in range(0, len(used), 4)]
    assert all(len({row["reward"] for row in group}) == 2 for group in groups)
    assert len({group[0]["problem"] for group in groups}) == 8
    again = train(
        recipe, "grpo", 0, start, tmp_path / "again", rollouts=tmp_path / "run" / "rollouts.jsonl"
    )
    assert weights(again) == weights(tmp_path / "run" / "checkpoints" / "step-000001")


def test_a_step_without_a_finite_loss_is_skipped_and_the_run_stops(
    smoke, start, tmp_path, monkeypatch, grpo
):
    """The second step's loss is broken: skipped, and all else goes on; three in a row stop it."""
    from oar_bench.training import update as module

    calls = {"broken": {2}, "now": 0}
    honest = module.policy_loss

    def broken(*args, **kwargs):
        calls["now"] += 1
        parts = honest(*args, **kwargs)
        if calls["now"] in calls["broken"]:
            return type(parts)(parts.loss * float("nan"), parts.clipped_tokens, parts.tokens)
        return parts

    monkeypatch.setattr(module, "policy_loss", broken)
    train(smoke, "grpo", 0, start, tmp_path / "one")
    rows = list(read_jsonl(tmp_path / "one" / "metrics.jsonl"))
    assert [row["skipped_steps"] for row in rows] == [0, 1, 0, 0]
    assert rows[1]["loss"] is None
    assert rows[1]["grad_norm"] is None
    # The weights of step 3's rollout are those of step 2's: nothing moved in between.
    assert rows[2]["kl_start"] > 0

    calls.update(now=0, broken={2, 3, 4})
    with pytest.raises(InputError, match="3 steps one after another, up to step 4"):
        train(smoke, "grpo", 0, start, tmp_path / "three")
    assert len(list(read_jsonl(tmp_path / "three" / "rollouts.jsonl"))) == 4 * 32
    kept = latest_checkpoint(tmp_path / "three" / "checkpoints")
    assert kept is not None
    assert all(bool(v.isfinite().all()) for v in load_file(kept / "model.safetensors").values())
