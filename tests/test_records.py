"""Files between the stages: torn tails, broken lines, full disks."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.errors import InputError
from oar_bench.records import (
    JsonlWriter,
    dumps,
    keep_rows,
    read_json,
    read_jsonl,
    repair_tail,
    write_json,
    write_text,
)


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_torn_last_line_is_repaired_and_appended_after(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    whole = dumps({"n": 1}) + "\n"
    last = dumps({"n": 2, "text": "a\nb"}) + "\n"
    path.write_text(whole + last[:cut])
    assert list(read_jsonl(path)) == [{"n": 1}]
    with JsonlWriter(path) as rows:
        rows.write([{"n": 3}])
    assert list(read_jsonl(path)) == [{"n": 1}, {"n": 3}]


def test_a_torn_tail_longer_than_a_block(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n' + '{"b": "' + "x" * 200_000)
    assert repair_tail(path) == 200_007
    assert path.read_text() == '{"a": 1}\n'
    path.write_text("x" * 100_000)
    assert repair_tail(path) == 100_000
    assert path.read_text() == ""


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\nnot json\n{"a": 2}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl: line 2 is not JSON"):
        list(read_jsonl(path))
    path.write_text("[1]\n")
    with pytest.raises(InputError, match="line 1 is not a JSON object"):
        list(read_jsonl(path))
    with pytest.raises(InputError, match="not a folder"):
        list(read_jsonl(tmp_path))


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.booleans()))
def test_any_text_comes_back(tmp_path_factory, row):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with JsonlWriter(path) as rows:
        rows.write([row, row])
    assert list(read_jsonl(path)) == [row, row]


def test_lone_surrogates_come_back(tmp_path):
    with JsonlWriter(tmp_path / "r.jsonl") as rows:
        rows.write([{"text": "\ud800 \x00"}])
    assert list(read_jsonl(tmp_path / "r.jsonl")) == [{"text": "\ud800 \x00"}]


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Out of range"):
        dumps({"x": float("nan")})


def test_a_failed_append_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    rows = JsonlWriter(path)
    rows.write([{"n": 1}])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        rows.write([{"n": 2}])
    assert path.read_text() == '{"n": 1}\n'


def test_whole_files_are_old_or_new(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "half")
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_keep_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    with JsonlWriter(path) as rows:
        rows.write({"step": n} for n in range(5))
    keep_rows(path, lambda row: row["step"] < 3)
    assert [row["step"] for row in read_jsonl(path)] == [0, 1, 2]
    keep_rows(tmp_path / "absent.jsonl", lambda row: False)
    assert not (tmp_path / "absent.jsonl").exists()


def test_what_is_no_file_of_its_own_is_written_to_as_it_stands(tmp_path):
    """A pipe (or /dev/stdout) isn't renamed over."""
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "whole")
    reader.join()
    assert (got, pipe.is_fifo()) == ([b"whole"], True)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
