"""The same checkpoint, problems and greedy decoding under `lm-eval run` and under oar-bench."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oar_bench.console import Progress
from oar_bench.evaluation.score import score
from oar_bench.importing.run import Job as ImportJob
from oar_bench.importing.run import run_import
from oar_bench.records import read_jsonl
from oar_bench.resources import shipped
from oar_bench.stages import Job, run_generation

PROBLEMS = 24


@pytest.fixture(scope="module")
def output(start: Path, tmp_path_factory) -> Path:
    """The output folder of lm-eval."""
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
    return out


@pytest.fixture(scope="module")
def lm_eval(output: Path) -> tuple[float, dict[str, str]]:
    """lm-eval's accuracy, and its response to each prompt."""
    [results] = output.rglob("results_*.json")
    [samples] = output.rglob("samples_*.jsonl")
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


def test_an_import_regraded_is_what_evaluate_writes(output, start: Path, tmp_path):
    """Same problems, prompts, decoding, grader and verdicts, by fingerprint and row by row."""
    [folder] = run_generation(Job(start, "oar_sum", 1, 0.0, 1.0, 0, PROBLEMS, None, 5, tmp_path))
    ours = score(folder)
    job = ImportJob([output], tmp_path / "imported", regrade=True)
    [theirs] = run_import(job, Progress().stage)
    for name in ("data", "prompt", "sampling", "grader"):
        assert theirs.results["fingerprints"][name] == ours["fingerprints"][name], name
    assert theirs.results["settings"] == ours["settings"]
    assert theirs.results["imported"]["regraded"] == {
        "known": PROBLEMS, "to_correct": 0, "to_wrong": 0,
    }  # fmt: skip
    verdicts = [
        {row["problem"]: (row["status"], row["extracted"]) for row in read_jsonl(path)}
        for path in (folder / "scores.jsonl", theirs.folder / "scores.jsonl")
    ]
    assert verdicts[0] == verdicts[1]
