"""What `train` and `reproduce` show: lines without a terminal, the view with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oar_bench.console import Progress
from oar_bench.monitor.live import training_report
from tests.monitor.runs import make_run
from tests.monitor.test_trackers import go_on


def terminal() -> Progress:
    console = Progress()
    console.fancy = True
    return console


@pytest.mark.parametrize("brief", [False, True])
def test_the_view_of_a_whole_run(tmp_path: Path, capsys, monkeypatch, brief: bool):
    monkeypatch.setenv("COLUMNS", "100")
    run = make_run(tmp_path / "run", 2)  # resumed from step 2
    with training_report(terminal(), "oar-p, seed 1", run, 4, brief=brief) as report:
        for step in (3, 4):
            go_on(run, step)
            report(step, 4, {"reward": 0.5})
        (run / "run.json").write_text((run / "run.json").read_text().replace("running", "finished"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "oar-p, seed 1  tiny  finished" in shown.err
    assert "step 4 of 4" in shown.err
    assert ("▁▃▆█" in shown.err) == (not brief)
    assert "rollout 75 %   update 25 %" in shown.err


def test_a_run_that_is_broken_off_says_so(tmp_path: Path, capsys):
    run = make_run(tmp_path / "run", 0)

    def broken_off():
        with training_report(terminal(), "oar-p, seed 1", run, 4) as report:
            go_on(run, 1)
            report(1, 4, {"reward": 0.125})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert "interrupted" in capsys.readouterr().err


def test_lines_without_a_terminal(tmp_path: Path, capsys):
    run = make_run(tmp_path / "run", 0)
    with training_report(Progress(), "grpo, seed 0", run, 4) as report:
        report(1, 4, {"reward": 0.5})
    line = capsys.readouterr().err
    assert line.startswith("train grpo, seed 0: done in ")
    assert line.endswith(" s, reward 0.50\n")


def test_train_with_a_log_and_a_watch_of_it(call: Callable, tmp_path: Path, start: Path):
    run = tmp_path / "run"
    done = call("train", "smoke", "--out", str(run), "--log", "jsonl,tensorboard")
    assert done.returncode == 0, done.stderr
    assert len((run / "log.jsonl").read_text().splitlines()) == 4
    assert (run / "tensorboard").is_dir()
    done = call("watch", str(run), "--once")
    assert done.stdout.startswith("grpo, seed 0  smoke  finished\nstep 4 of 4")


@pytest.mark.parametrize("fancy", [False, True])
@pytest.mark.parametrize(("shares", "told"), [((1.0, 1.0), True), ((1.0, 0.9), False)])
def test_steps_without_any_signal_are_told(tmp_path: Path, capsys, shares, told, fancy):
    run, console = make_run(tmp_path / "run", 0), terminal() if fancy else Progress()
    with training_report(console, "grpo, seed 0", run, 2) as report:
        for step, share in enumerate(shares, 1):
            report(step, 2, {"reward": 0.0, "truncated": 1.0, "frac_zero_std": share})
    said = capsys.readouterr().err
    line = "in these 2 steps no problem had both right and wrong responses; of the last step's"
    assert (line in said) == told
    assert said.endswith("0 % are right, 100 % truncated\n") == told
