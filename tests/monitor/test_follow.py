"""Files that grow, are torn, are cut back on resume, or aren't there yet."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from oar_bench.monitor.follow import Follower, Update
from oar_bench.records import keep_rows
from tests.monitor.runs import lines


def test_a_file_that_is_not_there_is_empty_until_it_is(tmp_path: Path):
    follower = Follower(tmp_path / "rows.jsonl")
    assert follower.poll() == Update([])
    assert follower.changed is None
    follower.path.write_text(lines([{"step": 1}]))
    assert follower.poll() == Update([{"step": 1}])
    assert follower.changed == follower.path.stat().st_mtime
    follower.path.unlink()
    assert follower.poll() == Update([], restarted=True)
    assert follower.poll() == Update([])


def test_a_torn_tail_is_read_when_it_is_whole(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(lines([{"step": 1}]) + '{"step": 2, "rew')
    follower = Follower(file)
    assert follower.poll().rows == [{"step": 1}]
    assert follower.poll() == Update([])
    with file.open("a") as out:
        out.write('ard": 0.5}\n')
    assert follower.poll().rows == [{"step": 2, "reward": 0.5}]


def test_a_torn_tail_that_is_cut_off_and_written_anew(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(lines([{"step": 1}]) + '{"step": 2, "of": "the killed process"')
    follower = Follower(file)
    follower.poll()
    file.write_text(lines([{"step": 1}, {"step": 2, "of": "the next"}]))
    assert follower.poll() == Update([{"step": 2, "of": "the next"}])


def test_rows_cut_back_on_resume_are_forgotten(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(lines([{"step": s} for s in (1, 2, 3)]))
    follower = Follower(file)
    assert len(follower.poll().rows) == 3
    keep_rows(file, lambda row: row["step"] <= 2)
    assert follower.poll() == Update([{"step": 1}, {"step": 2}], restarted=True)


def test_a_file_that_was_cut_and_has_grown_past_the_place_since(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(lines([{"step": 1, "seconds": 1.25}, {"step": 2, "seconds": 2.5}]))
    follower = Follower(file)
    follower.poll()
    number = file.stat().st_ino
    with file.open("r+") as out:  # the same file, as a file system that reuses numbers shows it
        out.write(lines([{"step": 1, "seconds": 3.75}, {"step": 2, "seconds": 4.5}, {"step": 3}]))
    assert file.stat().st_ino == number
    update = follower.poll()
    assert update.restarted
    assert [row.get("seconds") for row in update.rows] == [3.75, 4.5, None]


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    bad = [b"{broken", b"[1]", b"\xff\xfe", b"null", b"[" * 100_000, b"1" * 5000]
    file.write_bytes(b'{"step": 1}\n' + b"\n".join(bad) + b'\n{"step": 2}\n')
    assert Follower(file).poll() == Update([{"step": 1}, {"step": 2}], damaged=len(bad))


def test_looking_changes_nothing(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"step": 1}\n{"torn')
    os.utime(file, ns=(10**18, 10**18))
    before = file.stat()
    Follower(file).poll()
    after = file.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2)),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_every_row_is_read_once_however_the_file_grows(rows, cuts, tmp_path_factory):
    file = tmp_path_factory.mktemp("grow") / "rows.jsonl"
    # Raw separators of other kinds stand inside strings: only a newline ends a row.
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    data = data.encode(errors="surrogatepass")
    follower, read = Follower(file), []
    for cut in [*sorted(cuts), len(data)]:
        file.write_bytes(data[:cut])
        update = follower.poll()
        assert not update.restarted
        assert not update.damaged
        read += update.rows
        assert len(read) == data[:cut].count(b"\n")
    assert read == rows
