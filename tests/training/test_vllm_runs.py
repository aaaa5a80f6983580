"""Whole runs whose rollouts vLLM makes for real, and what is left when one of their processes ends.

Run by `tox -e vllm`, which installs vLLM's CPU build; skipped where there is none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from oar_bench.engines.weights import SHARED
from oar_bench.records import read_jsonl
from oar_bench.training.checkpoint import is_whole

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

CLOSE = 1e-5
"""Mean absolute gap of log-probabilities, in nats, of equal weights in float32."""
SMOKE = ("train", "smoke", "--method", "oar-p", "--set", "rollout.engine=vllm")


def test_the_smoke_recipe_with_one_key_changed(start, tmp_path, call):
    """Every step's gap is rounding, by the trainer's own metric; nothing is left behind."""
    before = set(SHARED.glob("oar-bench-*"))
    done = call(*SMOKE, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    rows = list(read_jsonl(tmp_path / "run" / "metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert all(row["logprob_gap"] < CLOSE for row in rows)
    assert all((row["weights_age"], row["stale"]) == (0, False) for row in rows)
    assert set(SHARED.glob("oar-bench-*")) == before


class Run:
    """A training run in a process of its own, long enough to be interrupted."""

    def __init__(self, out: Path, *extra: str) -> None:
        command = [
            sys.executable, "-m", "oar_bench", *SMOKE, "--out", str(out), "--steps", "400",
            "--set", "train.save_every=3", *extra,
        ]  # fmt: skip
        self.out = out
        self.log = out.with_suffix(".log")
        self.file = self.log.open("wb")
        # A session of its own, so that a signal to its group is Ctrl-C at its terminal.
        self.process = subprocess.Popen(
            command, stderr=self.file, stdout=self.file, start_new_session=True
        )
        self.children: list[psutil.Process] = []

    def reach(self, step: int) -> Run:
        """Wait until a step is done."""
        end = time.monotonic() + 400
        while self.steps() < step:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        assert any("EngineCore" in child.name() for child in self.children)
        return self

    def steps(self) -> int:
        file = self.out / "metrics.jsonl"
        return len(file.read_bytes().splitlines()) if file.exists() else 0

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def ended(self) -> int:
        """Its exit code, once no process of it is left."""
        code = self.process.wait(120)
        _, left = psutil.wait_procs(self.children, timeout=30)
        self.file.close()
        for child in left:
            child.kill()
        assert not left, f"{left} outlived the run that was ended by {code}"
        return code


@pytest.fixture(scope="module")
def out(start, tmp_path_factory) -> Path:
    """The folder of a run that each of the next tests takes up and ends."""
    return tmp_path_factory.mktemp("broken") / "run"


def taken_up(out: Path) -> Run:
    """The run some steps further on; a step that is done again was not finished before."""
    run = Run(out, "--resume")
    return run.reach(run.steps() + 7)


def rows_of(out: Path) -> list[dict]:
    """Its finished steps: none lost, none doubled, none sampled with old weights."""
    rows = list(read_jsonl(out / "metrics.jsonl"))
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["logprob_gap"] < CLOSE for row in rows)
    return rows


def assert_kept(out: Path) -> None:
    """The last finished step has a checkpoint, whatever `save_every`."""
    assert is_whole(out / "checkpoints" / f"step-{len(rows_of(out)):06d}")


def test_a_killed_engine_ends_the_run_with_one_line(out):
    run = taken_up(out)
    [engine] = [child for child in run.children if "EngineCore" in child.name()]
    engine.kill()
    assert run.ended() == 2, run.said()
    [line] = [line for line in run.said().splitlines() if line.startswith("oar-bench: ")]
    assert "vLLM's engine died" in line
    assert "--resume" in line
    assert "Traceback" not in run.said()
    assert len(rows_of(out)) >= 7
    assert_kept(out)


def test_ctrl_c_leaves_no_process(out):
    run = taken_up(out)
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.ended() == 130, run.said()
    assert_kept(out)


def test_sigterm_leaves_no_process(out):
    run = taken_up(out)
    run.process.terminate()
    assert run.ended() == 143, run.said()
    assert_kept(out)


def test_a_scheduler_that_signals_every_process(out):
    """vLLM's processes end by themselves then; if a rollout fails for it, it is no fault."""
    run = taken_up(out)
    os.killpg(run.process.pid, signal.SIGTERM)
    assert run.ended() == 143, run.said()
    assert_kept(out)


def test_a_killed_trainer_takes_its_engine_along(out):
    run = taken_up(out)
    run.process.kill()
    assert run.ended() == -signal.SIGKILL
    rows_of(out)
