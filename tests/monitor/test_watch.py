"""`oar-bench watch` as it is called: snapshots, JSON, waiting, Ctrl-C, bad input."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from oar_bench.records import owned
from tests.monitor.runs import make_run
from tests.monitor.test_folder import make_reproduction


def test_a_snapshot_for_people_and_for_scripts(call: Callable, tmp_path: Path, monkeypatch):
    run = make_run(tmp_path / "run", 3)
    monkeypatch.setenv("COLUMNS", "40")
    done = call("watch", str(run), "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "oar-p, seed 1  tiny  interrupted"
    assert all(len(line) <= 40 for line in done.stdout.splitlines())
    with owned(run):
        done = call("watch", str(run), "--once", "--json")
    content = json.loads(done.stdout)
    [project] = content["projects"]
    [found] = project["runs"]
    assert (content["finished"], found["state"], found["step"]) == (False, "running", 3)
    assert found["metrics"]["reward"] == {"latest": 0.375, "recent": 0.25}
    assert found["phases"]["rollout"] == {"seconds": 3.0, "share": 0.75}


def test_a_finished_run_ends_the_watch(call: Callable, tmp_path: Path):
    run = make_run(tmp_path / "run", 4, "finished")
    done = call("watch", str(run))
    assert done.stdout == "run: finished, step 4 of 4, reward 0.500\n"
    done = call("watch", str(run), "--json")
    [line] = done.stdout.splitlines()
    assert json.loads(line)["finished"]


def test_a_finished_reproduction_ends_the_watch(call: Callable, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("oar_bench.cli_watch.SETTLED", 0.0)
    out = make_reproduction(tmp_path / "tiny", methods=["grpo"], seeds=[0])
    make_run(out / "runs" / "grpo" / "seed-0", 4, "finished")
    (out / "index.html").touch()
    done = call("watch", str(out), "--every", "0.1")
    assert done.stdout == "grpo/seed-0: finished, step 4 of 4, reward 0.500\n"


def test_waiting_for_a_run_that_is_not_begun(call: Callable, tmp_path: Path):
    run = tmp_path / "later"
    timer = threading.Timer(0.2, make_run, (run, 4, "finished"))
    timer.start()
    done = call("watch", str(run), "--wait", "--every", "0.1")
    timer.join()
    assert "waiting for a run in" in done.stderr
    # The run's files come one by one: it may be seen before its first row.
    assert done.stdout.splitlines()[-1].startswith("later: finished")


@pytest.mark.parametrize(
    ("make", "options", "line"),
    [
        (lambda path: None, (), "no run has begun there"),
        (lambda path: path.mkdir(), (), "no run has begun there"),
        (lambda path: path.write_text("x"), (), "a run's folder is expected, not a file"),
        (lambda path: (make_run(path, 1) / "run.json").write_text("["), (), "not JSON"),
        (lambda path: make_run(path, 1), ("--every", "nan"), "--every"),
        (lambda path: make_run(path, 1), ("--every", "0"), "--every"),
    ],
)
def test_bad_input_is_one_line(call: Callable, tmp_path: Path, make, options, line):
    make(tmp_path / "run")
    done = call("watch", str(tmp_path / "run"), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def command(run: Path) -> list[str]:
    return [sys.executable, "-m", "oar_bench", "watch", str(run), "--every", "0.1"]


def test_ctrl_c_ends_it_quietly(tmp_path: Path):
    run = make_run(tmp_path / "run", 2)
    process = subprocess.Popen(
        command(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "run: interrupted, step 2 of 4, reward 0.250\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (0, "", "")


def test_on_a_terminal_it_is_drawn_and_ctrl_c_ends_it_quietly(tmp_path: Path):
    run = make_run(tmp_path / "run", 2)
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(command(run), stdout=its, stderr=its, env=environment)
    os.close(its)
    seen = b""
    while b"no process is at work" not in seen:
        seen += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    try:
        while rest := os.read(ours, 4096):
            seen += rest
    except OSError:
        pass  # Linux's word for the end of a terminal
    os.close(ours)
    text = seen.decode()
    assert "gradient norm" in text
    assert "Traceback" not in text
    assert "oar-bench:" not in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is there again


def test_a_reader_that_has_enough(tmp_path: Path):
    run = make_run(tmp_path / "run", 2)
    process = subprocess.Popen(
        [*command(run), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    make_run(run, 3)  # something to say
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
