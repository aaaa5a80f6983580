"""The test sets under `lm-eval run --include_path tasks`: same prompts and responses as ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from lm_eval.__main__ import cli_evaluate

from oar_bench.evaluation.asking import Asking
from oar_bench.evaluation.score import score
from oar_bench.records import read_jsonl
from oar_bench.resources import shipped
from oar_bench.stages import Job, run_generation
from tests.tasks.conftest import byte_model, data_dir  # noqa: F401  fixtures

LIMIT = 3
CASES = [
    ("oar_math", [], Asking()),
    ("oar_math_fewshot", [], Asking()),
    ("oar_math_chat", ["--apply_chat_template"], Asking(chat_template=True)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "words", "asking"), CASES, ids=[case[0] for case in CASES])
def test_prompts_and_responses_are_the_same(
    byte_model: Path, data_dir: Path, tmp_path: Path, monkeypatch, group, words, asking  # noqa: F811
):  # fmt: skip
    monkeypatch.setenv("OAR_BENCH_DATA_DIR", str(data_dir))
    arguments = [
        "lm-eval", "run", "--include_path", str(shipped("tasks")), "--tasks", group,
        "--model", "hf", "--model_args", f"pretrained={byte_model}", "--limit", str(LIMIT),
        "--batch_size", "4", "--device", "cpu", "--gen_kwargs", "max_gen_toks=12",
        "--output_path", str(tmp_path / "theirs"), "--log_samples", *words,
    ]  # fmt: skip
    with monkeypatch.context() as patched:  # in this process: importing it all takes longer
        patched.setattr(sys, "argv", arguments)
        cli_evaluate()
    folders = run_generation(
        Job(byte_model, group, 1, 0.0, 1.0, 0, LIMIT, 12, 64, tmp_path / "ours", asking=asking)
    )
    assert len(folders) == 7
    for folder in folders:
        [file] = (tmp_path / "theirs").rglob(f"samples_{folder.name}_*.jsonl")
        theirs = [json.loads(line) for line in file.read_text().splitlines()]
        prompts = {row["problem"]: row["prompt"] for row in read_jsonl(folder / "problems.jsonl")}
        ours = {
            prompts[row["problem"]]: row["response"] for row in read_jsonl(folder / "samples.jsonl")
        }
        assert ours == {
            row["arguments"]["gen_args_0"]["arg_0"]: row["resps"][0][0] for row in theirs
        }
        accuracy = sum(row["acc"] for row in theirs) / LIMIT
        assert score(folder)["metrics"]["avg@k"]["value"] == pytest.approx(accuracy)
