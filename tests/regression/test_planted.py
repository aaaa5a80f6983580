"""Regressions planted into real smoke reproductions: each is caught, and named."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from oar_bench.console import Progress
from oar_bench.reproduce import evaluate_checkpoint, reproduce
from oar_bench.tasks.registry import load_task
from tests.regression.made import again


@pytest.fixture(scope="module")
def run(smoke, start, tmp_path_factory):
    """A smoke reproduction with its baseline beside it."""
    folder = tmp_path_factory.mktemp("planted") / "OUT"
    return reproduce(smoke, ["grpo", "oar-p"], [0, 1], folder, ["test"], Progress())


@pytest.fixture
def kept(run, call, tmp_path):
    path = tmp_path / "smoke.json"
    command = ("check", str(run), "--baseline", str(path), "--limit", "memory=off")
    done = call(*command, "--update", "--reason", "planted tests")
    assert done.returncode == 0, done.stderr
    return str(path)


def last(folder):
    return sorted((folder / "checkpoints").glob("step-*"))[-1]


def test_a_run_made_again_elsewhere_on_this_machine_passes(smoke, run, kept, call, tmp_path):
    second = reproduce(smoke, ["grpo", "oar-p"], [0, 1], tmp_path / "second", ["t"], Progress())
    done = call("check", str(second), "--baseline", kept)
    assert done.returncode == 0, done.stdout
    assert "pass: nothing is worse" in done.stdout


def test_damaged_weights_are_a_regression_of_the_damaged_method(smoke, run, kept, call, tmp_path):
    folder = again(run, tmp_path / "damaged")
    task = load_task(smoke.evaluation.task, limit=smoke.evaluation.problems)
    for path in sorted((folder / "runs" / "oar-p").glob("seed-*")):
        file = last(path) / "model.safetensors"
        noise = torch.Generator().manual_seed(0)
        weights = {
            name: w + w.std() * torch.randn(w.shape, generator=noise) if w.dim() > 1 else w
            for name, w in load_file(file).items()
        }
        save_file(weights, file, metadata={"format": "pt"})
        shutil.rmtree(path / "eval")
        evaluate_checkpoint(last(path), task, smoke, path / "eval" / task.name, Progress(), "x")
    done = call("check", str(folder), "--baseline", kept)
    assert done.returncode == 1, done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("regression: ")]
    assert lines[0].startswith("regression: accuracy of oar-p on oar_sum: ")
    assert "most lost: sum-0-" in lines[0]
    assert all(" of oar-p on oar_sum" in line for line in lines)
    one = call("check", str(folder / "runs" / "oar-p" / "seed-0"), "--baseline", kept)
    assert one.returncode == 1


def test_a_changed_grader_is_named(run, kept, call, tmp_path, monkeypatch):
    folder = again(run, tmp_path / "graded")
    monkeypatch.setattr("oar_bench.answers.grader.GRADER_VERSION", "another")
    evaluations = [str(p.parent) for p in folder.glob("**/eval/*/generation.json")]
    assert call("score", *evaluations).returncode == 0
    done = call("check", str(folder), "--baseline", kept)
    assert done.returncode == 2
    assert "unlike: fingerprints.grader is " in done.stdout
    assert "--allow fingerprints.grader" in done.stdout
    assert call("check", str(folder), "--baseline", kept, "--allow", "grader").returncode == 0


def test_a_changed_prompt_is_named(run, kept, call, tmp_path):
    path = again(run, tmp_path / "prompted") / "runs" / "grpo" / "seed-0"
    shutil.rmtree(path / "eval")
    command = ("evaluate", str(last(path)), "--tasks", "oar_sum", "-n", "2", "--out",
               str(path / "eval"), "--fewshot", "1")  # fmt: skip
    assert call(*command).returncode == 0
    done = call("check", str(path), "--baseline", kept)
    assert done.returncode == 2
    assert "unlike: fingerprints.prompt is " in done.stdout
    mixed = call("check", str(path.parents[2]), "--baseline", kept)
    assert mixed.returncode == 2
    assert "fingerprints.prompt" in mixed.stderr
