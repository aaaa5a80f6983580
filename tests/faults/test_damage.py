"""Folders that were damaged, moved or used by two at once: nothing is lost, and it is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from oar_bench.engines.hf import HFEngine
from oar_bench.errors import InputError
from oar_bench.evaluation.generate import generate, sampling_of
from oar_bench.identity import fingerprint_checkpoint
from oar_bench.records import owned, read_json, read_jsonl
from oar_bench.tasks.registry import load_task
from oar_bench.training.trainer import train


@pytest.fixture
def finished(smoke, start, tmp_path) -> Path:
    out = tmp_path / "run"
    train(smoke, "grpo", 0, start, out)
    return out


def test_a_finished_run_whose_last_checkpoint_is_gone_is_made_again(smoke, start, finished):
    last = finished / "checkpoints" / "step-000004"
    weights = (last / "model.safetensors").read_bytes()
    metrics = list(read_jsonl(finished / "metrics.jsonl"))
    for left in (last.with_name("step-000002"), None):
        shutil.rmtree(last)
        if left is None:
            shutil.rmtree(finished / "checkpoints")
        train(smoke, "grpo", 0, start, finished, resume=True)
        assert (last / "model.safetensors").read_bytes() == weights
        assert list(read_jsonl(finished / "metrics.jsonl")) == metrics
        assert read_json(finished / "run.json")["status"] == "finished"


def test_checkpoints_may_be_removed_once_a_reproduction_is_done(call, tmp_path):
    out = tmp_path / "out"
    command = ("reproduce", "smoke", "--methods", "grpo", "--steps", "1", "--out", str(out))
    assert call(*command, "--seeds", "1").returncode == 0
    run = out / "runs" / "grpo" / "seed-0"
    shutil.rmtree(run / "checkpoints")
    before = {p: p.read_bytes() for p in run.rglob("*.json*")}
    assert call(*command, "--seeds", "2").returncode == 0
    assert before == {p: p.read_bytes() for p in before}
    first, second = read_json(out / "reproduce.json")["commands"]
    assert (first["methods"], first["seeds"]) == (["grpo"], [0])
    assert (second["methods"], second["seeds"]) == ([], [1])
    assert second["command"].endswith("--seeds 2")
    assert "# added seed 1" in (out / "report.md").read_text()


def test_two_runs_of_one_recipe_leave_equal_identities(smoke, start, finished, tmp_path):
    other = train(smoke, "grpo", 0, start, tmp_path / "other")
    mine = finished / "checkpoints" / "step-000004"
    assert fingerprint_checkpoint(mine) == fingerprint_checkpoint(other)
    for name in ("trainer_state.safetensors", "model.safetensors"):
        assert (mine / name).read_bytes() == (other / name).read_bytes()
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 10}))
    assert fingerprint_checkpoint(mine) != fingerprint_checkpoint(other)


def test_two_processes_never_write_one_evaluation(start, tmp_path):
    task = load_task("oar_sum", limit=2)
    with owned(tmp_path), pytest.raises(InputError, match="another process"):
        generate(
            HFEngine.load(start), "m", "f" * 12, task, tmp_path, samples=1,
            sampling=sampling_of(task, temperature=1.0),
        )  # fmt: skip


def test_an_evaluation_without_samples_may_be_asked_anew(call, start, tmp_path):
    common = ("evaluate", str(start), "--tasks", "oar_sum", "--limit", "4", "--out", str(tmp_path))
    done = call(*common, "--max-new-tokens", "1000")
    assert (done.returncode, "use at most" in done.stderr) == (2, True)
    assert call(*common, "--max-new-tokens", "12").returncode == 0


@pytest.mark.parametrize("content", ["{}", "[]", "7", '{"files": 3}', "[" * 100_000, ""])
@pytest.mark.parametrize("name", ["run.json", "checkpoints/step-000004/manifest.json"])
def test_damaged_files_of_a_run_are_told_in_a_line(call, finished, name, content):
    (finished / name).write_text(content)
    done = call("train", "smoke", "--out", str(finished), "--resume")
    assert done.returncode == (0 if "manifest" in name else 2), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "model: {hidden: 63}", "model: {threads: 100000}", "credit: {beta: .inf}",
        "train: {temperature: .inf}", "evaluation: {temperature: 0, samples: 2}", "train: 3",
    ],
)  # fmt: skip
def test_impossible_recipes_are_refused_at_once(call, tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_text(f"name: x\n{text}\n")
    done = call("train", str(path), "--steps", "2", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "run").exists()
