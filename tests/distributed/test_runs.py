"""Whole runs by `accelerate launch`: a killed process, a refusal, and who goes on with the run."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from oar_bench.records import read_json, read_jsonl
from oar_bench.training.checkpoint import is_whole
from oar_bench.training.trainer import train
from tests.distributed.launch import DYING, launch


@pytest.fixture(scope="module")
def unbroken(smoke, start, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("one") / "run"
    train(smoke, "oar-p", 0, start, out)
    return out


def left_over(out: Path) -> list[psutil.Process]:
    """Processes that still work on a run."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words, status = process.info["cmdline"] or [], process.info["status"]
        if str(out) in words and status != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def same_run(out: Path, want: Path) -> None:
    """The rows of one process's run, none lost or doubled, and its weights but for rounding."""
    assert read_json(out / "run.json")["status"] == "finished"
    mine, theirs = (list(read_jsonl(p / "rollouts.jsonl")) for p in (out, want))
    names = ("step", "problem", "sample", "seed", "response_ids", "reward", "advantage")
    assert [[r[n] for n in names] for r in mine] == [[r[n] for n in names] for r in theirs]
    mine, theirs = (list(read_jsonl(p / "metrics.jsonl")) for p in (out, want))
    assert [row["reward"] for row in mine] == [row["reward"] for row in theirs]
    timed = [(row["step"], row["phase"]) for row in read_jsonl(out / "timing.jsonl")]
    assert timed == [(row["step"], row["phase"]) for row in read_jsonl(want / "timing.jsonl")]
    last = Path("checkpoints") / "step-000004" / "model.safetensors"
    a, b = load_file(out / last), load_file(want / last)
    assert a.keys() == b.keys()
    assert max(float((a[k] - b[k]).abs().max()) for k in b) < 1e-4


def kill_the_second(out: Path, kind: str) -> tuple[str, ...]:
    """A run that lost its second process after its first checkpoint; the words to go on with."""
    command = ("train", "smoke", "--method", "oar-p", "--out", str(out), "--resume")
    target = ("1", "oar_bench.training.update:policy_loss", "4", "kill")
    done = launch(DYING, *target, *command, kind=kind)
    assert done.returncode != 0
    # The first process finds out by itself, unless the launcher's SIGTERM is there before.
    said = ("another process of this run has ended", "stopped by SIGTERM")
    assert any(line in done.stderr for line in said), done.stderr
    assert not left_over(out)
    assert [p.name for p in (out / "checkpoints").glob("step-*")] == ["step-000002"]
    assert read_json(out / "run.json")["processes"] == {"count": 2, "kind": kind}
    return command


def test_a_run_of_ddp_whose_process_was_killed_goes_on_by_fsdp2(unbroken, tmp_path):
    out = tmp_path / "run"
    command = kill_the_second(out, "ddp")
    done = launch("-m", "oar_bench", *command, kind="fsdp2")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == str(out / "checkpoints" / "step-000004")
    same_run(out, unbroken)


def test_a_run_of_fsdp2_whose_process_was_killed_goes_on_in_one(unbroken, smoke, start, tmp_path):
    out = tmp_path / "run"
    kill_the_second(out, "fsdp2")
    train(smoke, "oar-p", 0, start, out, resume=True)
    same_run(out, unbroken)


def test_what_one_process_refuses_ends_all_with_one_line(unbroken, smoke, start, tmp_path):
    out = tmp_path / "run"
    target = ("1", "oar_bench.training.trainer:roll_out", "4", "refuse")
    done = launch(DYING, *target, "train", "smoke", "--method", "oar-p", "--out", str(out))
    said = [line for line in done.stderr.splitlines() if line.startswith("oar-bench:")]
    assert said == ["oar-bench: its own trouble: this process can't go on; mend it"]
    assert done.stderr.count("Traceback") == 1  # the launcher's, which has one for every failure
    assert "exitcode  : 2" in done.stderr
    assert not left_over(out)
    train(smoke, "oar-p", 0, start, out, resume=True)  # by one process
    same_run(out, unbroken)


def test_none_leaves_a_stopped_run_before_its_checkpoint_is_written(tmp_path):
    """The launcher would end the process that writes it."""
    out = tmp_path / "run"
    target = ("1", "oar_bench.training.trainer:roll_out", "2", "stop")
    done = launch(DYING, *target, "train", "smoke", "--method", "oar-p", "--out", str(out))
    assert "oar-bench: stopped by SIGTERM after step 1" in done.stderr
    assert is_whole(out / "checkpoints" / "step-000001")
