"""The command line by hand: help, bad input in one line with exit code 2, the stages apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oar_bench.records import read_json, read_jsonl

COMMANDS = [
    "reproduce", "train", "generate", "score", "evaluate", "compare", "report", "tasks", "doctor",
]  # fmt: skip


def test_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "oar_bench", "train", "nowhere.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "oar-bench: nowhere.yaml: no such recipe file\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(call, command):
    done = call(command, "--help")
    assert done.returncode == 0
    assert f"oar-bench {command}" in done.stdout
    assert "Example" in done.stdout


BAD = [
    (["reproduce", "tinny"], "did you mean 'tiny'"),
    (["reproduce", "tiny", "--methods", "grpo,oarp"], "did you mean 'oar-p'"),
    (["reproduce", "tiny", "--methods", ","], "nothing is given"),
    (["reproduce", "tiny", "--seeds", "0"], "--seeds"),
    (["reproduce", "tiny", "--steps", "x"], "--steps"),
    (["train", "tiny", "--method", "orp-g"], "did you mean 'oar-g'"),
    (["train", "tiny", "--method", "OAR-G"], "did you mean 'oar-g'"),
    (["train", "tiny", "--output_dir", "x"], "No such option: --output_dir (here: --out); see"),
    (["train", "tiny", "--learning_rate", "1"], "(here: --set train.lr=...)"),
    (["evaluate", ".", "--log_samples"], "(here: nothing to ask for: every response is kept)"),
    (["evaluate", ".", "--task", "x"], "(Possible options: --tasks)"),
    (["train", "nowhere.yaml"], "no such recipe file"),
    (["evaluate", "/nowhere", "--tasks", "oar_sum"], "no such checkpoint folder"),
    (["evaluate", ".", "--tasks", "oar_sum"], "no config.json"),
    (["evaluate", ".", "--tasks", "oar_sums"], "did you mean 'oar_sum'"),
    (["evaluate", ".", "--tasks", "oar_sum", "-n", "4", "--temperature", "0"], "equal responses"),
    (["evaluate", ".", "--task", "oar_sum"], "--tasks"),
    (["generate", ".", "--tasks", "oar_sum", "--shard", "2/2"], "no shard 2 of 2"),
    (["generate", ".", "--tasks", "oar_sum", "--system", "x"], "add --chat-template"),
    (["generate", ".", "--tasks", "oar_sum", "--data-dir", "/nowhere"], "--data-dir /nowhere"),
    (["generate", ".", "--tasks", "oar_sum", "--chat-template"], "tokenizer"),
    (["evaluate", ".", "--tasks", "oar_sum", "--probe", "all"], "use partial:0.6"),
    (["evaluate", ".", "--tasks", "oar_sum", "--probe", "partial:0.5", "-n", "2"], "greedy"),
    (["evaluate", ".", "--tasks", "oar_math_chat/oar_sum"], "has no task 'oar_sum'"),
    (["evaluate", ".", "--tasks", "oar_sum", "--engine", "vlm"], "did you mean 'vllm'"),
    (["evaluate", ".", "--tasks", "oar_sum", "--engine", "openai"], "--base-url"),
    (["evaluate", ".", "--tasks", "oar_sum", "--base-url", "http://x"], "use --engine openai"),
    (["evaluate", ".", "--tasks", "oar_sum", "--engine-arg", "x"], "KEY=VALUE"),
    (["score", "/nowhere"], "no such file"),
    (["score", "."], "no generation.json"),
    (["report", "/nowhere"], "/nowhere"),
    (["report", "."], "."),
    (["nonsense"], "nonsense"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(call, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_sampling_out_of_range(call, start, tmp_path):
    for arguments, said in (
        (["--max-new-tokens", "45"], "context of 48"),
        (["--limit", "999"], "999 problems asked for"),
        (["--temperature", "nan"], "temperature"),
        (["--top-p", "0"], "top-p"),
    ):
        out = tmp_path / "out"
        done = call("evaluate", str(start), "--tasks", "oar_sum", "--out", str(out), *arguments)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
        assert said in done.stderr


def test_the_stages_apart_equal_evaluate(call, start, tmp_path):
    common = ("--tasks", "oar_sum", "--limit", "10", "-n", "2")
    assert call("evaluate", str(start), *common, "--out", str(tmp_path / "a")).returncode == 0
    assert call("generate", str(start), *common, "--out", str(tmp_path / "b")).returncode == 0
    assert not (tmp_path / "b" / "oar_sum" / "scores.jsonl").exists()
    scored = call("score", str(tmp_path / "b" / "oar_sum"), "--json")
    one = read_json(tmp_path / "a" / "oar_sum" / "results.json")
    assert json.loads(scored.stdout)["metrics"] == one["metrics"]
    two = read_json(tmp_path / "b" / "oar_sum" / "results.json")
    assert two["metrics"] == one["metrics"]


def test_another_evaluation_in_the_folder_is_refused(call, start, tmp_path):
    common = ("evaluate", str(start), "--tasks", "oar_sum", "--out", str(tmp_path))
    assert call(*common, "--limit", "5").returncode == 0
    before = (tmp_path / "oar_sum" / "samples.jsonl").read_bytes()
    for change, field in (
        (["--limit", "6"], "data"),
        (["--limit", "5", "--seed", "1"], "sampling"),
    ):
        done = call(*common, *change)
        assert done.returncode == 2
        assert f"another {field}" in done.stderr
    assert (tmp_path / "oar_sum" / "samples.jsonl").read_bytes() == before


def test_shards_by_hand(call, start, tmp_path):
    common = (str(start), "--tasks", "oar_sum", "--limit", "9", "-n", "2")
    out = ("--out", str(tmp_path / "parts"))
    made = call("generate", *common, *out, "--shard", "0/2")
    assert made.stdout.strip().endswith("samples.shard-0-of-2.jsonl")
    early = call("score", str(tmp_path / "parts" / "oar_sum"))
    assert (early.returncode, len(early.stderr.strip().splitlines())) == (2, 1)
    assert "shard 1 of 2 is missing" in early.stderr
    assert call("generate", *common, *out, "--shard", "1/2").returncode == 0
    assert call("score", str(tmp_path / "parts" / "oar_sum")).returncode == 0
    assert call("evaluate", *common, "--out", str(tmp_path / "whole")).returncode == 0
    parts, whole = (
        read_json(tmp_path / name / "oar_sum" / "results.json") for name in ("parts", "whole")
    )
    assert parts["metrics"] == whole["metrics"]
    assert parts["fingerprints"] == whole["fingerprints"]


def test_a_dry_run_says_the_cost_and_writes_nothing(call, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("generate", str(start), "--tasks", "oar_sum", "-n", "3", "--limit", "5",
                "--dry-run")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--- prompt") == 2
    assert "5 problems x 3 samples = 15 requests" in done.stdout
    assert "at most 240 tokens" in done.stdout
    assert "min 4, mean 4.0, max 4; 60 over all requests" in done.stdout
    assert list(tmp_path.iterdir()) == []
    probe = call("evaluate", str(start), "--tasks", "oar_sum", "--limit", "2", "--probe",
                 "partial:0.6", "--dry-run")  # fmt: skip
    assert "oar_sum: 2 problems x 1 samples = 2 requests" in probe.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_probe_by_hand(call, start, tmp_path):
    common = ("--tasks", "oar_sum", "--limit", "5", "--out", str(tmp_path))
    done = call("evaluate", str(start), *common, "--probe", "partial:0.6")
    assert done.returncode == 0, done.stderr
    assert "exact completions" in done.stdout
    results = read_json(tmp_path / "oar_sum.probe-partial-0.6" / "results.json")
    assert (results["kind"], results["metrics"]["n_problems"]) == ("probe", 5)
    assert call("evaluate", str(start), *common).returncode == 0
    assert read_json(tmp_path / "oar_sum" / "results.json")["kind"] == "evaluation"


def test_a_file_where_a_folder_is_needed(call, start, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for arguments in (
        ["evaluate", str(start), "--tasks", "oar_sum", "--out", str(file)],
        ["train", "smoke", "--out", str(file)],
        ["reproduce", "smoke", "--out", str(file)],
        ["report", str(file)],
        ["score", str(file)],
    ):
        done = call(*arguments)
        assert done.returncode == 2, arguments
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert file.read_text() == "mine"


def test_tasks_and_doctor_as_json(call):
    assert "oar_digits" in json.loads(call("tasks", "--json").stdout)
    found = json.loads(call("doctor", "--json").stdout)
    assert found["engines"]["hf"].startswith("works")
    assert "torch" in found["packages"]


def test_reproduce_twice_does_nothing_the_second_time(call, start, tmp_path):
    """The whole way, and then again: not one file but the lock is written anew."""
    out = tmp_path / "out"
    command = ("reproduce", "smoke", "--seeds", "1", "--methods", "grpo,oar-p", "--steps", "2")
    first = call(*command, "--out", str(out))
    assert first.returncode == 0, first.stderr
    assert "grpo" in first.stdout
    for name in ("report.md", "index.html", "reproduce.json", "credit_example.json"):
        assert (out / name).is_file()
    files = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    times = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    second = call(*command, "--out", str(out))
    assert second.returncode == 0, second.stderr
    assert second.stderr == ""
    assert second.stdout == first.stdout
    assert files == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    changed = [p for p, t in times.items() if p.stat().st_mtime_ns != t and p.name != ".lock"]
    assert changed == []
    other = call("reproduce", "smoke", "--seeds", "1", "--steps", "3", "--out", str(out))
    assert other.returncode == 2
    assert "other settings" in other.stderr
    rows = list(read_jsonl(Path(out) / "runs" / "oar-p" / "seed-0" / "metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 2]
