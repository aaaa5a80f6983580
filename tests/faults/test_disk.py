"""A full disk: one line, exit 2, no torn checkpoint; once there is space the run goes on."""

from __future__ import annotations

import errno
import importlib
import subprocess
from pathlib import Path

import pytest
from safetensors import SafetensorError

from oar_bench.records import JsonlWriter, read_jsonl, read_placed
from oar_bench.training.checkpoint import is_whole

from .runs import assert_same_run, rows_of


@pytest.fixture
def disk(tmp_path):
    """A file system of 3 MB in memory, with a file on it that fills most of it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def assert_told(done) -> None:
    """One clear line, after those of progress."""
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("oar-bench: ")]
    assert len(said) == 1, done.stderr
    assert "no space left on device" in said[0]
    assert "free some disk space and run the same command again (train: with --resume)" in said[0]
    assert "Traceback" not in done.stderr


def assert_nothing_torn(out: Path) -> None:
    assert all(is_whole(path) for path in (out / "checkpoints").glob("step-*"))
    assert not list(out.rglob(".tmp-*"))
    assert not list(out.rglob("*.tmp"))


@pytest.mark.parametrize(("free", "kept"), [(2_000, 0), (60_000, 0), (500_000, 0), (1_500_000, 2)])
def test_a_disk_that_fills_up(call, disk, unbroken, start, free, kept):
    """It has room for no row, for rows, for part of a checkpoint, for one checkpoint."""
    out = disk / "run"
    (disk / "other").write_bytes(bytes(3 * 2**20 - free - 4096))
    done = call("train", "smoke", "--out", str(out))
    assert_told(done)
    assert_nothing_torn(out)
    names = [path.name for path in (out / "checkpoints").glob("step-*")]
    assert names == ([f"step-{kept:06d}"] if kept else [])
    (disk / "other").unlink()
    assert call("train", "smoke", "--out", str(out), "--resume").returncode == 0
    assert_same_run(out, unbroken)


def test_rows_that_do_not_fit_are_cut_off_again(disk):
    """Of a file with a page of its own, to the last whole row; there the next one goes."""
    path = disk / "rows.jsonl"
    row = {"step": 1, "text": "a" * 3000}
    with JsonlWriter(path) as rows:
        rows.write([row])
        (disk / "other").write_bytes(bytes(3 * 2**20 - 4096))
        with pytest.raises(OSError, match=r"No space left on device.*rows\.jsonl"):
            rows.write([row, row])
        assert list(read_placed(path)) == [(0, row)]
        assert path.read_bytes().endswith(b"\n")
        (disk / "other").unlink()
        rows.write([{"step": 2}])
    assert [found["step"] for found in read_jsonl(path)] == [1, 2]


def torn(path: Path) -> None:
    """Half of what is in a file, as a full disk leaves it."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def by_os(path: Path) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", str(path))


def by_safetensors(path: Path) -> SafetensorError:
    return SafetensorError("Error: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("error", [by_os, by_safetensors])
@pytest.mark.parametrize(
    ("target", "at", "kept"),
    [
        ("transformers.modeling_utils:safe_save_file", 2, 2),
        ("oar_bench.training.checkpoint:save_file", 1, 0),
        ("oar_bench.training.checkpoint:save_file", 2, 2),
    ],
)
def test_a_disk_that_is_full_within_a_checkpoint(
    call, monkeypatch, unbroken, start, tmp_path, error, target, at, kept
):
    """A stand-in that needs no file system of its own: half of a file, then the error."""
    module_name, _, name = target.partition(":")
    module = importlib.import_module(module_name)
    original, calls = getattr(module, name), 0

    def failing(tensors, filename, *args, **kwargs):
        nonlocal calls
        calls += 1
        original(tensors, filename, *args, **kwargs)
        if calls == at:
            torn(Path(filename))
            raise error(Path(filename))

    monkeypatch.setattr(module, name, failing)
    out = tmp_path / "run"
    done = call("train", "smoke", "--out", str(out))
    monkeypatch.undo()
    assert calls == at
    assert_told(done)
    assert_nothing_torn(out)
    names = [path.name for path in (out / "checkpoints").glob("step-*")]
    assert names == ([f"step-{kept:06d}"] if kept else [])
    assert len(rows_of(out, "metrics")) == kept + 2
    assert call("train", "smoke", "--out", str(out), "--resume").returncode == 0
    assert_same_run(out, unbroken)
