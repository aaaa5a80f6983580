"""SIGTERM and Ctrl-C: what goes on is finished, a checkpoint is left, a line says how to go on."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from oar_bench.config import changes_of, load_recipe
from oar_bench.records import read_json
from oar_bench.training import interrupts
from oar_bench.training import trainer as trainer_module
from oar_bench.training.checkpoint import is_whole, latest_checkpoint
from oar_bench.training.interrupts import Interrupted, stoppable, terminable
from oar_bench.training.samplers import heed
from oar_bench.training.trainer import train

from .runs import assert_same_run, rows_of

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.fixture
def signalled(monkeypatch):
    """Have this process get signals at the beginning of the CALL-th call of a function."""

    def arm(target: str, call: int, *numbers: int) -> None:
        module_name, _, name = target.partition(":")
        module = importlib.import_module(module_name)
        original, calls = getattr(module, name), 0

        def signalling(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == call:
                for number in numbers:
                    os.kill(os.getpid(), number)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, signalling)

    return arm


MOMENTS = [  # function, call, signal; the step whose checkpoint is then the newest
    pytest.param("training.trainer:roll_out", 1, TERM, 0, id="first rollout"),
    pytest.param("training.trainer:roll_out", 3, TERM, 2, id="a rollout after a checkpoint"),
    pytest.param("training.trainer:roll_out", 4, INT, 3, id="a rollout after a step without one"),
    pytest.param("training.trainer:grade_rollout", 2, INT, 1, id="grading"),
    pytest.param("training.before:score", 3, TERM, 1, id="log-probabilities"),
    pytest.param("training.trainer:assign", 4, INT, 3, id="credit"),
    pytest.param("training.trainer:update", 1, TERM, 1, id="an update"),
    pytest.param("training.update:policy_loss", 3, INT, 3, id="within an update"),
    pytest.param("training.checkpoint:save_file", 1, INT, 2, id="a checkpoint"),
    pytest.param("training.trainer:tidy", 1, TERM, 2, id="after a checkpoint"),
    pytest.param("training.trainer:update", 4, INT, 4, id="the last update"),
    pytest.param("training.trainer:write_json", 1, TERM, 4, id="the last write"),
]


@pytest.mark.parametrize(("target", "at", "number", "step"), MOMENTS)
def test_a_signal_leaves_the_last_finished_step(
    call, monkeypatch, signalled, unbroken, start, tmp_path, target, at, number, step
):
    out = tmp_path / "run"
    signalled(f"oar_bench.{target}", at, number)
    done = call("train", "smoke", "--out", str(out))
    assert done.returncode == 128 + number, done.stderr
    name = signal.Signals(number).name
    where = f"after step {step}" if step else "before step 1 was done"
    said = [line for line in done.stderr.splitlines() if "to go on" in line]
    assert said == [
        f"oar-bench: stopped by {name} {where}; run the same command with --resume to go on"
    ]
    assert "Traceback" not in done.stderr
    newest = latest_checkpoint(out / "checkpoints")
    assert newest == (out / "checkpoints" / f"step-{step:06d}" if step else None)
    assert [row["step"] for row in rows_of(out, "metrics")] == list(range(1, step + 1))
    assert len(rows_of(out, "rollouts")) == 32 * step
    assert {row["step"] for row in rows_of(out, "timing")} == set(range(1, step + 1))
    monkeypatch.undo()
    resumed = call("train", "smoke", "--out", str(out), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_run(out, unbroken)


def test_it_can_be_stopped_at_every_step(call, signalled, monkeypatch, unbroken, start, tmp_path):
    out = tmp_path / "run"
    for step in range(1, 5):
        signalled("oar_bench.training.trainer:update", 1, TERM)
        assert call("train", "smoke", "--out", str(out), "--resume").returncode == 143
        monkeypatch.undo()
        assert len(rows_of(out, "metrics")) == step
    assert call("train", "smoke", "--out", str(out), "--resume").returncode == 0
    assert_same_run(out, unbroken)


@pytest.mark.parametrize(
    ("target", "at", "left"),
    [
        ("oar_bench.training.update:policy_loss", 2, 0),
        ("oar_bench.training.checkpoint:save_file", 2, 2),
        ("oar_bench.training.trainer:roll_out", 4, 2),
    ],
)
def test_a_second_signal_ends_at_once(
    call, monkeypatch, signalled, unbroken, start, tmp_path, target, at, left
):
    out = tmp_path / "run"
    monkeypatch.setattr(interrupts, "SAME", 0.0)
    signalled(target, at, INT, INT)
    done = call("train", "smoke", "--out", str(out))
    monkeypatch.undo()
    assert done.returncode == 130
    assert "stopped by SIGINT at once; run the same command with --resume" in done.stderr
    newest = latest_checkpoint(out / "checkpoints")
    assert (newest.name if newest else None) == (f"step-{left:06d}" if left else None)
    assert call("train", "smoke", "--out", str(out), "--resume").returncode == 0
    assert_same_run(out, unbroken)


def test_processes_begun_under_a_shield_do_not_get_ctrl_c():
    """Also the first one of multiprocessing, which begins a helper of its own before."""
    look = "import signal as s; print(s.SIGINT in s.pthread_sigmask(s.SIG_BLOCK, []))"
    code = (
        "import multiprocessing as m; from oar_bench.engines.vllm_process import shielded\n"
        f"with shielded():\n    p = m.get_context('spawn').Process(target=exec, args=({look!r},))\n"
        "    p.start()\np.join()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_handlers_come_back_and_what_is_ignored_stays_so():
    before = signal.getsignal(TERM), signal.getsignal(INT)
    ignored = signal.signal(INT, signal.SIG_IGN)
    try:
        with stoppable(lambda: "left") as stop:
            assert signal.getsignal(INT) is signal.SIG_IGN
            os.kill(os.getpid(), INT)
            stop.check("rollout")
    finally:
        signal.signal(INT, ignored)
    assert (signal.getsignal(TERM), signal.getsignal(INT)) == before


def test_nothing_is_handled_outside_the_main_thread():
    before = signal.getsignal(TERM)
    seen = []

    def work() -> None:
        with terminable(), stoppable(lambda: "left") as stop:
            stop.check("rollout")
            seen.append(signal.getsignal(TERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_fork_of_the_process_ends_by_the_signal_itself():
    with terminable():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), TERM)
            time.sleep(60)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -TERM


def test_callers_from_python_get_an_exception(smoke, start, signalled, tmp_path):
    signalled("oar_bench.training.trainer:roll_out", 2, INT)
    with pytest.raises(Interrupted, match="after step 1") as caught:
        train(smoke, "grpo", 0, start, tmp_path / "run")
    assert not isinstance(caught.value, Exception)
    assert is_whole(tmp_path / "run" / "checkpoints" / "step-000001")


LORA = ["model.lora.rank=2", "model.lora.alpha=4"]


@pytest.mark.parametrize(
    ("method", "phase", "passes"), [("grpo", "rollout", 5), ("grpo", "logprobs", 1),
                                    ("oar-p", "credit", 2), ("oar-g", "credit", 2)],
)  # fmt: skip
@pytest.mark.parametrize("changes", [[], LORA], ids=["whole", "lora"])
def test_a_signal_within_a_phase_waits_for_one_pass_alone(
    start, monkeypatch, tmp_path, method, phase, passes, changes
):
    """A token's, in a rollout. What is left goes on to the weights of an unbroken run."""
    recipe = load_recipe("smoke", changes_of([*changes, "train.steps=3"]))
    out, seen, now = tmp_path / "run", [], []

    class Watched(trainer_module.PhaseTimer):
        def phase(self, name):
            now[:] = [self.step, name]
            return super().phase(name)

    def count(between, model, sampler):
        def counted():
            if now == [2, phase]:
                seen.append(1)
                if len(seen) == passes:
                    os.kill(os.getpid(), TERM)
            between()

        return heed(counted, model, sampler)

    monkeypatch.setattr(trainer_module, "PhaseTimer", Watched)
    monkeypatch.setattr(trainer_module, "heed", count)
    with pytest.raises(Interrupted, match="SIGTERM after step 1"):
        train(recipe, method, 0, start, out)
    assert len(seen) == passes
    assert is_whole(out / "checkpoints" / "step-000001")
    monkeypatch.undo()
    last = train(recipe, method, 0, start, out, resume=True)
    whole = train(recipe, method, 0, start, tmp_path / "whole")
    for name in ("model.safetensors", "trainer_state.safetensors"):
        assert (last / name).read_bytes() == (whole / name).read_bytes()
    assert rows_of(out, "rollouts") == rows_of(tmp_path / "whole", "rollouts")
    assert rows_of(out, "metrics") == rows_of(tmp_path / "whole", "metrics")


REPRODUCE = ("reproduce", "smoke", "--methods", "grpo,oar-p", "--seeds", "1")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("reproduced") / "out"
    command = [sys.executable, "-m", "oar_bench", *REPRODUCE, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return out


@pytest.mark.parametrize(
    ("target", "at", "number"),
    [
        ("oar_bench.training.trainer:update", 3, TERM),
        ("oar_bench.training.trainer:write_json", 1, INT),
        ("oar_bench.evaluation.generate:_row", 20, TERM),
        ("oar_bench.evaluation.score:_row", 20, INT),
        ("oar_bench.reproduce:credit_example", 1, TERM),
    ],
)
def test_a_reproduction_goes_on_after_a_signal(
    call, monkeypatch, signalled, reproduced, tmp_path, target, at, number
):
    out = tmp_path / "out"
    signalled(target, at, number)
    done = call(*REPRODUCE, "--out", str(out))
    monkeypatch.undo()
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.splitlines()[-1].startswith("oar-bench: ")
    assert done.stderr.splitlines()[-1].endswith("; run the same command again to go on")
    assert "Traceback" not in done.stderr
    assert call(*REPRODUCE, "--out", str(out)).returncode == 0
    for method in ("grpo", "oar-p"):
        run = Path("runs") / method / "seed-0"
        assert_same_run(out / run, reproduced / run)
        results = run / "eval" / "oar_sum" / "results.json"
        assert read_json(out / results)["metrics"] == read_json(reproduced / results)["metrics"]


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_process_that_is_signalled_from_outside(unbroken, tmp_path, number):
    """With Ctrl-C its whole group is signalled, as by a terminal: the grader's workers too."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "oar_bench", "train", "smoke", "--out", str(out), "--resume"]
    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(
            [*command, "--set", "train.save_every=3"], stderr=log, start_new_session=True
        )
        while not rows_of(out, "metrics") and run.poll() is None:
            time.sleep(0.01)
        os.killpg(run.pid, number) if number == INT else run.terminate()
        assert run.wait(300) == 128 + number, (tmp_path / "log").read_text()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-1].startswith(f"oar-bench: stopped by {signal.Signals(number).name} after step")
    assert any(line.startswith("oar-bench: stopping") for line in lines)
    done = len(rows_of(out, "metrics"))
    assert is_whole(out / "checkpoints" / f"step-{done:06d}")
