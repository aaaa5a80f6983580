"""`--log`: what trackers get of a run that is broken off and resumed, read back from each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from oar_bench.config import Recipe
from oar_bench.console import Progress
from oar_bench.errors import InputError
from oar_bench.monitor.folder import RunReader
from oar_bench.monitor.live import training_report
from oar_bench.monitor.trackers import Tracking, check_trackers
from oar_bench.records import keep_rows, read_json, read_jsonl
from oar_bench.training.trainer import train
from tests.monitor.runs import lines, make_run, metrics, timing


class Refused(Exception):
    """What the stand-in for wandb raises, as wandb.Error."""


class StandIn(ModuleType):
    """Takes wandb's place, and keeps what it is told; its server knows the runs by their ids."""

    Error = Refused

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.ends: list[int] = []
        self.refuse = False

    def init(self, **asked: Any) -> SimpleNamespace:
        if self.refuse:
            raise Refused("no API key")
        offline = os.environ.get("WANDB_MODE") == "offline"
        known = not offline and any(before["id"] == asked["id"] for before in self.begun)
        self.begun.append(asked)
        return SimpleNamespace(
            log=lambda values, step: self.rows.append((step, values)),
            finish=lambda exit_code: self.ends.append(exit_code),
            starting_step=self.rows[-1][0] + 1 if known and self.rows else 0,
            offline=offline,
            url="https://wandb.invalid/run",
            dir="elsewhere",
        )


@pytest.fixture
def wandb(monkeypatch) -> StandIn:
    module = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_PROJECT", "WANDB_DIR", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    return module


def events(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


EVERY = ("tensorboard", "wandb", "jsonl")


class Broken(Exception):
    """Stands for whatever ends a run before its last step."""


def test_a_run_that_was_killed_and_resumed_shows_each_step_once(
    smoke: Recipe, start: Path, tmp_path: Path, wandb: StandIn
):
    out = tmp_path / "run"

    def broken_off():
        with training_report(Progress(), "grpo", out, 4, EVERY) as told:

            def report(step, steps, row):
                told(step, steps, row)
                if step == 3:  # the newest checkpoint is step 2's
                    raise Broken

            train(smoke, "grpo", 0, start, out, report=report)

    with pytest.raises(Broken):
        broken_off()
    assert [step for step, _ in events(out)["train/reward"]] == [1, 2, 3]
    assert wandb.ends == [1]
    with training_report(Progress(), "grpo", out, 4, EVERY) as told:
        train(smoke, "grpo", 0, start, out, resume=True, report=told)

    rows = list(read_jsonl(out / "metrics.jsonl"))
    rewards = [(row["step"], row["reward"]) for row in rows]
    assert [step for step, _ in rewards] == [1, 2, 3, 4]
    found = events(out)
    assert found["train/reward"] == rewards  # multiples of 1/32: exact in float32
    assert [s for s, _ in found["train/grad_norm"]] == [1, 2, 3, 4]
    assert found["train/statuses/correct"][0][1] == rows[0]["statuses"]["correct"]
    seconds = {
        row["step"]: row["seconds"]
        for row in read_jsonl(out / "timing.jsonl")
        if row["phase"] == "rollout"
    }
    assert dict(found["seconds/rollout"]) == pytest.approx(seconds)
    assert len(found["seconds/rollout"]) == 4
    assert [(step, values["train/reward"]) for step, values in wandb.rows] == rewards
    assert wandb.ends == [1, 0]
    first, second = wandb.begun
    assert first["id"] == second["id"]
    assert (first["project"], first["group"], first["name"]) == (
        "oar-bench",
        "smoke",
        "grpo, seed 0",
    )
    flat = list(read_jsonl(out / "log.jsonl"))
    assert [(row["step"], row["train/reward"]) for row in flat] == rewards
    notes = read_json(out / "tracking.json")
    assert {name: notes[name]["logged"] for name in EVERY} == dict.fromkeys(EVERY, 4)


def go_on(run: Path, step: int) -> None:
    for name, rows in (("metrics.jsonl", [metrics(step)]), ("timing.jsonl", timing(step))):
        with (run / name).open("a") as file:
            file.write(lines(rows))


def track(run: Path, *steps: int, names: tuple[str, ...] = EVERY) -> None:
    """A process that makes these steps, and is then killed: nothing is closed."""
    reader = RunReader(run)
    tracking = Tracking(reader, names)
    for step in steps:
        go_on(run, step)
        reader.read_rows()
        tracking.upto(step)


def test_steps_made_before_it_was_asked_for_are_there_too(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 2)
    track(run, 3)
    assert [step for step, _ in events(run)["train/reward"]] == [1, 2, 3]
    assert [step for step, _ in wandb.rows] == [1, 2, 3]
    assert [row["step"] for row in read_jsonl(run / "log.jsonl")] == [1, 2, 3]
    assert events(run)["seconds/step"] == [(1, 12.0), (2, 4.0), (3, 4.0)]


def test_a_resume_without_tracking_and_one_with_it(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 0)
    track(run, 1, 2, 3)
    for name in ("metrics.jsonl", "timing.jsonl"):
        keep_rows(run / name, lambda row: row["step"] <= 1)
    track(run, 2, 3, 4, names=())  # seen by nobody
    track(run, 5)
    for steps in (
        [step for step, _ in events(run)["train/reward"]],
        [step for step, _ in wandb.rows],
        [row["step"] for row in read_jsonl(run / "log.jsonl")],
    ):
        assert steps == [1, 2, 3, 4, 5]


def test_a_finished_run_can_be_tracked_afterwards(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 3, "finished")
    for _ in range(2):  # and again: nothing is shown twice
        tracking = Tracking(RunReader(run), EVERY)
        tracking.close(complete=True)
    assert events(run)["train/reward"] == [(1, 0.125), (2, 0.25), (3, 0.375)]
    assert [step for step, _ in wandb.rows] == [1, 2, 3]
    assert [row["step"] for row in read_jsonl(run / "log.jsonl")] == [1, 2, 3]


def test_nothing_is_opened_unless_asked(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 0)
    before = {path.name for path in run.iterdir()}
    track(run, 1, names=())
    Tracking(RunReader(run), ()).close(complete=True)
    assert {path.name for path in run.iterdir()} == before
    assert not wandb.begun


def test_the_user_decides_where_wandb_goes(tmp_path: Path, wandb: StandIn, monkeypatch):
    run = make_run(tmp_path / "run", 0)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_MODE", "offline")
    track(run, 1, names=("wandb",))
    [asked] = wandb.begun
    assert asked["project"] == "mine"
    assert asked["dir"] == str(run)
    assert "mode" not in asked  # its own setting stands
    assert asked["config"]["seed"] == 1


def test_wandb_off_line_gets_again_what_a_kill_may_have_lost(
    tmp_path: Path, wandb: StandIn, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = make_run(tmp_path / "run", 0)
    track(run, 1, 2, names=("wandb",))  # killed: its file may lack them
    reader = RunReader(run)
    tracking = Tracking(reader, ("wandb",))
    go_on(run, 3)
    reader.read_rows()
    tracking.upto(3)
    tracking.close(complete=False)  # as by Ctrl-C: its file is whole
    track(run, 4, names=("wandb",))
    assert [step for step, _ in wandb.rows] == [1, 2, 1, 2, 3, 4]
    assert len({asked["id"] for asked in wandb.begun}) == 1


def test_wandb_whose_server_lost_the_run_gets_all_of_it(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 0)
    track(run, 1, 2, names=("wandb",))
    wandb.begun.clear()
    wandb.rows.clear()
    track(run, 3, names=("wandb",))
    assert [step for step, _ in wandb.rows] == [1, 2, 3]


def test_wandb_that_does_not_begin_is_one_line(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 0)
    wandb.refuse = True
    with pytest.raises(InputError, match=r"--log wandb: it didn't begin \(no API key\); log in"):
        track(run, 1, names=("wandb",))


def test_numbers_that_are_none_are_left_out(tmp_path: Path, wandb: StandIn):
    run = make_run(tmp_path / "run", 0)
    row = metrics(1, reward=None, grad_norm=float("inf"), text="x", loss=1)
    (run / "metrics.jsonl").write_text(lines([row]))
    reader = RunReader(run)
    reader.read_rows()
    Tracking(reader, EVERY).upto(1)
    names = set(events(run))
    assert "train/loss" in names
    assert not names & {"train/reward", "train/grad_norm", "train/text", "train/step"}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("--log", "tensorbord"),
            "--log: unknown tracker 'tensorbord'; did you mean 'tensorboard'?",
        ),
        (("--log", ","), "--log: nothing is given"),
        (("--log", "jsonl", "--log", "wandb"), "--log wandb: wandb isn't installed; python -m pip"),
    ],
)
def test_bad_input_is_one_line(call: Callable, tmp_path: Path, monkeypatch, options, line):
    monkeypatch.setattr("oar_bench.monitor.trackers.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    for command in ("train", "reproduce"):
        done = call(command, "smoke", "--out", str(tmp_path / "run"), *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert line in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "run").exists()


def test_a_folder_of_its_name_is_no_package(tmp_path: Path, monkeypatch):
    (tmp_path / "wandb").mkdir()  # as wandb makes one where it is run
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(InputError, match="wandb isn't installed"):
        check_trackers(["wandb"])
