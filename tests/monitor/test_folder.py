"""Folders: what is found in them, and whether somebody is at work there."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from oar_bench.errors import InputError
from oar_bench.monitor.folder import Snapshot, Watcher
from oar_bench.monitor.plain import Lines
from oar_bench.records import is_owned, keep_rows, owned
from tests.monitor.runs import lines, make_run, metrics, timing


def only(found: Snapshot):
    [run] = found.runs
    return run


def test_the_lock_says_whether_a_process_is_at_work(tmp_path: Path):
    run = make_run(tmp_path / "run", 2)
    watcher = Watcher(run)
    assert only(watcher.look()).state == "interrupted"
    with owned(run):
        assert only(watcher.look()).state == "running"
    assert only(watcher.look()).state == "interrupted"
    make_run(run, 4, "finished")
    assert only(watcher.look()).state == "finished"


def test_whoever_looks_keeps_nobody_from_working(tmp_path: Path):
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)  # as `is_owned` holds it, though not for so long
        assert not is_owned(tmp_path)  # others who look are no owner
        timer = threading.Timer(0.05, fcntl.flock, (look, fcntl.LOCK_UN))
        timer.start()
        with owned(tmp_path):
            assert is_owned(tmp_path)
        timer.join()


def test_a_folder_at_work_is_still_refused(tmp_path: Path):
    with (
        owned(tmp_path),
        pytest.raises(InputError, match="another process is working in this folder"),
        owned(tmp_path),
    ):
        pass


def test_following_a_run_through_a_kill_and_its_resume(tmp_path: Path):
    run = make_run(tmp_path / "run", 3)
    watcher = Watcher(run)
    found = only(watcher.look(now=(run / "metrics.jsonl").stat().st_mtime + 5))
    assert (found.step, found.spent) == (3, 20.0)
    assert found.idle == pytest.approx(5)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')  # killed here
    assert only(watcher.look()).step == 3
    for name in ("metrics.jsonl", "timing.jsonl"):  # as `open_run` does for a checkpoint of step 2
        keep_rows(run / name, lambda row: row["step"] <= 2)
    found = only(watcher.look())
    assert (found.step, found.spent, found.damaged) == (2, 16.0, 0)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(lines([metrics(3, reward=0.75)]))
    with (run / "timing.jsonl").open("a") as file:
        file.write(lines(timing(3)))
    found = only(watcher.look())
    assert (found.step, found.spent) == (3, 20.0)
    assert found.quantity("reward").series == (0.125, 0.25, 0.75)


def test_reading_writes_nothing(tmp_path: Path):
    run = make_run(tmp_path / "run", 2)
    (run / ".lock").touch()
    for path in [*run.iterdir(), run]:
        os.utime(path, ns=(10**18, 10**18))
    before = {path: path.stat().st_mtime_ns for path in [*run.iterdir(), run]}
    Watcher(tmp_path).look()
    assert {path: path.stat().st_mtime_ns for path in [*run.iterdir(), run]} == before


def make_reproduction(folder: Path, **other) -> Path:
    folder.mkdir(parents=True)
    content = {"methods": ["grpo", "oar-p"], "seeds": [0, 1], **other}
    (folder / "reproduce.json").write_text(json.dumps(content))
    return folder


def test_a_reproduction_has_all_its_runs_in_order(tmp_path: Path):
    out = make_reproduction(tmp_path / "tiny")
    make_run(out / "runs" / "grpo" / "seed-0", 4, "finished")
    make_run(out / "runs" / "oar-p" / "seed-0", 2)
    (out / "runs" / "oar-p" / "seed-0" / "eval").mkdir()
    make_run(out / "runs" / "oar-p" / "seed-0" / "eval" / "no-run", 1)
    with owned(out), owned(out / "runs" / "oar-p" / "seed-0"):
        [project] = Watcher(out).look().projects
    assert [(run.label, run.state) for run in project.runs] == [
        ("grpo/seed-0", "finished"), ("oar-p/seed-0", "running"),
        ("grpo/seed-1", "not begun"), ("oar-p/seed-1", "not begun"),
    ]  # fmt: skip
    assert (project.state, project.step, project.steps) == ("running", 6, 16)
    assert project.left == 2 * 4 + 4 * 4 + 4 * 4
    assert Watcher(out).look().projects[0].state == "interrupted"


def test_a_suite_of_reproductions(tmp_path: Path):
    for name in ("arithmetic", "digits"):
        out = make_reproduction(tmp_path / name, methods=["grpo"], seeds=[0])
        make_run(out / "runs" / "grpo" / "seed-0", 4, "finished")
        (out / "index.html").touch()
    found = Watcher(tmp_path).look()
    assert [project.label for project in found.projects] == ["arithmetic", "digits"]
    assert found.finished


def test_runs_without_a_reproduction(tmp_path: Path):
    make_run(tmp_path / "runs" / "grpo" / "seed-0", 4, "finished")
    make_run(tmp_path / "runs" / "oar-p" / "seed-0", 1)
    found = Watcher(tmp_path).look()
    assert [run.label for run in found.runs] == ["grpo/seed-0", "oar-p/seed-0"]
    assert not found.finished


def test_damaged_plans_and_runs_are_told_not_raised(tmp_path: Path):
    out = make_reproduction(tmp_path / "tiny", methods=["../..", 3, "grpo"], seeds=[0, "1", None])
    run = make_run(out / "runs" / "grpo" / "seed-0", 2)
    (run / "run.json").write_text("{broken")
    found = Watcher(out).look()
    assert [(run.label, run.state) for run in found.runs] == [("grpo/seed-0", "unreadable")]
    assert "not JSON" in found.runs[0].note
    (out / "reproduce.json").write_text("[]")
    assert len(Watcher(out).look().runs) == 1


def test_a_folder_that_can_not_be_looked_into_hides_no_other(tmp_path: Path, monkeypatch):
    make_run(tmp_path / "mine", 2)
    make_run(tmp_path / "theirs", 2)
    real = os.scandir

    def refusing(path):
        if Path(path).name == "theirs":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [run.label for run in Watcher(tmp_path).look().runs] == ["mine"]
    with pytest.raises(PermissionError):
        Watcher(tmp_path / "theirs").look()


def test_nothing_there_yet(tmp_path: Path):
    watcher = Watcher(tmp_path / "later")
    assert watcher.look() == Snapshot(())
    assert not watcher.look().finished
    make_run(tmp_path / "later", 1)
    assert only(watcher.look()).step == 1


def test_lines_for_where_there_is_no_terminal(tmp_path: Path):
    out = make_reproduction(tmp_path / "tiny", methods=["grpo"])
    run = make_run(out / "runs" / "grpo" / "seed-0", 1)
    watcher, said = Watcher(out), Lines()
    with owned(run):
        assert said.of(watcher.look(), now=0) == [
            "grpo/seed-0: running, step 1 of 4, reward 0.125, about 36 s left"
        ]
        make_run(run, 2)
        assert said.of(watcher.look(), now=1) == []  # not so soon
        assert said.of(watcher.look(), now=16) == [
            "grpo/seed-0: running, step 2 of 4, reward 0.250, about 8 s left"
        ]
        assert said.of(watcher.look(), now=60) == []  # nothing new
    assert said.of(watcher.look(), now=61) == [
        "grpo/seed-0: interrupted, step 2 of 4, reward 0.250"
    ]
    make_run(run, 4, "finished")
    assert said.of(watcher.look(), now=62) == ["grpo/seed-0: finished, step 4 of 4, reward 0.500"]
