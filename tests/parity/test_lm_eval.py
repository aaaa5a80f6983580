"""The same checkpoint, problems and greedy decoding under `lm-eval run` and under oar-bench."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oar_bench.evaluation.score import score
from oar_bench.records import read_jsonl
from oar_bench.resources import shipped
from oar_bench.stages import Job, run_generation

PROBLEMS = 24


@pytest.fixture(scope="module")
def lm_eval(start: Path, tmp_path_factory) -> tuple[float, dict[str, str]]:
    """lm-eval's accuracy, and its response to each prompt."""
    out = tmp_path_factory.mktemp("lm-eval")
    subprocess.run(
        [
            sys.executable, "-m", "lm_eval", "run", "--include_path", str(shipped("tasks")),
            "--tasks", "oar_sum", "--model", "hf", "--model_args", f"pretrained={start}",
            "--limit", str(PROBLEMS), "--batch_size", "7", "--device", "cpu",
            "--output_path", str(out), "--log_samples",
        ],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    [results] = out.rglob("results_*.json")
    [samples] = out.rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    accuracy = json.loads(results.read_text())["results"]["oar_sum"]["acc,none"]
    return accuracy, {row["arguments"]["gen_args_0"]["arg_0"]: row["resps"][0][0] for row in rows}


def test_greedy_accuracy_and_responses_are_the_same(lm_eval, start: Path, tmp_path):
    accuracy, responses = lm_eval
    [folder] = run_generation(Job(start, "oar_sum", 1, 0.0, 1.0, 0, PROBLEMS, None, 5, tmp_path))
    results = score(folder)
    assert results["metrics"]["n_problems"] == PROBLEMS
    assert 0 < accuracy < 1
    assert results["metrics"]["avg@k"]["value"] == pytest.approx(accuracy, abs=1e-12)
    prompts = {row["problem"]: row["prompt"] for row in read_jsonl(folder / "problems.jsonl")}
    ours = {
        prompts[row["problem"]]: row["response"] for row in read_jsonl(folder / "samples.jsonl")
    }
    assert ours == responses
