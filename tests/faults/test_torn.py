"""Files of a run that were cut short, damaged or locked: what can go on does, and it is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oar_bench.records import owned, read_json, write_json
from oar_bench.training.run import cut_rows

from .runs import LAST, assert_same_run, rows_of


@pytest.fixture
def copy(unbroken, tmp_path) -> Path:
    """A finished run, to be damaged."""
    return Path(shutil.copytree(unbroken, tmp_path / "run"))


@pytest.fixture
def killed(copy) -> Path:
    """The same run as a kill within the checkpoint of step 4 leaves it."""
    shutil.rmtree(copy / LAST)
    write_json(copy / "run.json", {**read_json(copy / "run.json"), "status": "running"})
    return copy


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def said(done) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("oar-bench: ")]


DAMAGES = [
    pytest.param("model.safetensors", flip, "has another content than was written", id="flip"),
    pytest.param("model.safetensors", shorten, "bytes of", id="cut"),
    pytest.param("trainer_state.safetensors", flip, "another content", id="flip of the optimizer"),
    pytest.param("trainer_state.json", empty, "has 0 bytes of", id="empty"),
    pytest.param("tokenizer.json", Path.unlink, "tokenizer.json is missing", id="missing"),
    pytest.param("manifest.json", shorten, "manifest.json is missing or damaged", id="manifest"),
    pytest.param("manifest.json", Path.unlink, "manifest.json is missing", id="no manifest"),
]


@pytest.mark.parametrize("status", ["finished", "running"])
@pytest.mark.parametrize(("name", "harm", "why"), DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    call, copy, unbroken, start, name, harm, why, status
):
    write_json(copy / "run.json", {**read_json(copy / "run.json"), "status": status})
    harm(copy / LAST / name)
    done = call("train", "smoke", "--out", str(copy), "--resume")
    assert done.returncode == 0, done.stderr
    [line] = said(done)
    assert line.startswith(f"oar-bench: {copy / LAST}: ")
    assert why in line
    [aside] = (copy / "checkpoints").glob(".broken-*")
    assert line.endswith(f"set aside as {aside.name}, and the run goes on from step-000002")
    assert_same_run(copy, unbroken)


def test_with_every_checkpoint_damaged_the_run_begins_anew(call, copy, unbroken, start):
    for folder in (copy / "checkpoints").glob("step-*"):
        flip(folder / "model.safetensors")
    done = call("train", "smoke", "--out", str(copy), "--resume")
    assert [line.rpartition(" and ")[2] for line in said(done)] == [
        "the run goes on from its start"
    ] * 2
    assert_same_run(copy, unbroken)


def test_a_damaged_older_checkpoint_is_not_needed(call, copy, unbroken, start):
    flip(copy / "checkpoints" / "step-000002" / "model.safetensors")
    before = (copy / LAST / "model.safetensors").stat().st_mtime_ns
    done = call("train", "smoke", "--out", str(copy), "--resume")
    assert (done.returncode, said(done)) == (0, [])
    assert (copy / LAST / "model.safetensors").stat().st_mtime_ns == before


FILES = ["metrics", "timing", "rollouts"]


@pytest.mark.parametrize("tail", ['{"step": 4', '{"step": 4, "phase"', "\x00\x00\x00"])
@pytest.mark.parametrize("name", FILES)
def test_a_torn_tail_is_cut(call, killed, unbroken, start, name, tail):
    with (killed / f"{name}.jsonl").open("a") as file:
        file.write(tail)
    done = call("train", "smoke", "--out", str(killed), "--resume")
    assert (done.returncode, said(done)) == (0, []), done.stderr
    assert_same_run(killed, unbroken)


@pytest.mark.parametrize("keep", [0.55, 0.8, 0.99])
@pytest.mark.parametrize("name", FILES)
def test_rows_cut_short_after_the_checkpoint_are_made_again(
    call, killed, unbroken, start, name, keep
):
    path = killed / f"{name}.jsonl"
    os.truncate(path, int(path.stat().st_size * keep))
    done = call("train", "smoke", "--out", str(killed), "--resume")
    assert (done.returncode, said(done)) == (0, []), done.stderr
    assert_same_run(killed, unbroken)


def test_torn_rows_of_credit(call, start, tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    command = ("train", "smoke", "--method", "oar-p", "--set", "credit.save_weights=true")
    assert call(*command, "--out", str(whole)).returncode == 0
    shutil.copytree(whole, torn)
    shutil.rmtree(torn / LAST)
    write_json(torn / "run.json", {**read_json(torn / "run.json"), "status": "running"})
    os.truncate(torn / "credit.jsonl", (torn / "credit.jsonl").stat().st_size - 100)
    assert call(*command, "--out", str(torn), "--resume").returncode == 0
    assert_same_run(torn, whole)
    assert (torn / "credit.jsonl").read_bytes() == (whole / "credit.jsonl").read_bytes()


def test_lost_rows_are_told_and_training_goes_on(call, killed, unbroken, start):
    (killed / "metrics.jsonl").unlink()
    done = call("train", "smoke", "--out", str(killed), "--resume")
    assert done.returncode == 0
    assert said(done) == [f"oar-bench: {killed / 'metrics.jsonl'}: the rows of step 1, 2 are lost"]
    assert rows_of(killed, "metrics") == rows_of(unbroken, "metrics")[2:]
    weights = LAST / "model.safetensors"
    assert (killed / weights).read_bytes() == (unbroken / weights).read_bytes()


@pytest.mark.parametrize("line", ["{", "7", '{"step": "2"}', "{}", '{"step": null}', "\xff"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_row_is_told_with_its_place(call, killed, start, name, line):
    path = killed / f"{name}.jsonl"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([rows[0], line + "\n", *rows[1:]]), encoding="latin-1")
    before = path.read_bytes()
    done = call("train", "smoke", "--out", str(killed), "--resume")
    assert done.returncode == 2
    [told] = said(done)
    assert str(path) in told
    assert "line 2 is not" in told or f"the row at byte {len(rows[0])} has no step" in told
    assert path.read_bytes() == before


def test_cutting_rows_reads_no_further_than_it_must(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"step": 3}\nnot json\n{"step": 1}\n')
    assert cut_rows(path, 2) == {1}
    assert path.read_text() == '{"step": 1}\n'
    assert cut_rows(tmp_path / "absent.jsonl", 2) == set()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"kind": "training"}', "\x00" * 64])
def test_a_damaged_run_file_is_told_and_nothing_touched(call, killed, start, content):
    (killed / "run.json").write_text(content)
    before = {p: p.read_bytes() for p in killed.rglob("*") if p.is_file()}
    done = call("train", "smoke", "--out", str(killed), "--resume")
    assert done.returncode == 2
    assert len(said(done)) == 1
    assert "run.json" in done.stderr or "holds a run with" in done.stderr
    assert before == {p: p.read_bytes() for p in killed.rglob("*") if p.is_file()}


def test_what_a_kill_leaves_lying_is_no_hindrance(call, killed, unbroken, start):
    """Locks outlive no process; temporary files and folders go, or are never read."""
    (killed / ".lock").write_text("12345")
    (killed / ".run.json.12345.tmp").write_text("{")
    half = killed / "checkpoints" / ".tmp-step-000004"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    done = call("train", "smoke", "--out", str(killed), "--resume")
    assert done.returncode == 0, done.stderr
    assert not half.exists()
    assert_same_run(killed, unbroken)


def test_a_kill_within_the_very_first_write(call, unbroken, start, tmp_path):
    """All there is then is half of run.json, beside its place."""
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".run.json.12345.tmp").write_text("{")
    assert call("train", "smoke", "--out", str(out), "--resume").returncode == 0
    assert_same_run(out, unbroken)


def test_two_processes_on_one_folder(call, killed, unbroken, start):
    """The second is refused while the first lives, and touches nothing; after its end it may."""
    holding = (
        "import sys, time, pathlib; from oar_bench.records import owned\n"
        "with owned(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", holding, str(killed)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        before = {p: p.read_bytes() for p in killed.rglob("*") if p.is_file()}
        done = call("train", "smoke", "--out", str(killed), "--resume")
        assert done.returncode == 2
        [line] = said(done)
        assert "another process is working in this folder" in line
        assert before == {p: p.read_bytes() for p in killed.rglob("*") if p.is_file()}
    finally:
        first.kill()
        first.wait()
    assert call("train", "smoke", "--out", str(killed), "--resume").returncode == 0
    assert_same_run(killed, unbroken)


def test_two_reproductions_in_one_folder(call, tmp_path):
    with owned(tmp_path / "out"):
        done = call("reproduce", "smoke", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "another process" in done.stderr


def test_a_folder_that_can_not_be_written(call, monkeypatch, killed, unbroken, start):
    """Told in a line, for a run to be resumed and for one to begin; then all is as it was."""
    with_mount = subprocess.run(
        ["mount", "--bind", str(killed), str(killed)], capture_output=True
    ).returncode == 0  # fmt: skip
    if not with_mount and os.geteuid() == 0:
        pytest.skip("root may write everywhere, and mounting is not allowed here")
    try:
        if with_mount:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(killed)], check=True)
        else:
            killed.chmod(0o500)
        for folder in (killed, killed / "new"):
            done = call("train", "smoke", "--out", str(folder), "--resume")
            assert done.returncode == 2
            [line] = said(done)
            assert "read-only file system" in line or "permission denied" in line
    finally:
        if with_mount:
            subprocess.run(["umount", str(killed)], check=True)
        else:
            killed.chmod(0o700)
    assert call("train", "smoke", "--out", str(killed), "--resume").returncode == 0
    assert_same_run(killed, unbroken)


def test_run_json_is_whole_at_every_moment(killed):
    """It is written beside its place and renamed."""
    before = json.loads((killed / "run.json").read_text())
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(killed / "run.json", {**before, "bad": float("nan")})
    assert json.loads((killed / "run.json").read_text()) == before
