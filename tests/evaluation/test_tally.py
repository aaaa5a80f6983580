"""Tallies of score rows: the same from the rows and from what is kept, never of another file."""

import json
import os

import numpy as np
import pytest

from oar_bench.errors import InputError
from oar_bench.evaluation import tally as module
from oar_bench.evaluation.tally import FILE, keep_tallies, tally, tally_of

STATUSES = ("correct", "wrong", "no_answer", "truncated")


def rows_of(problems=5, samples=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(problems):
        for k in range(samples):
            status = STATUSES[rng.integers(4)]
            rows.append({"task": "t", "problem": f"p{i}\0\ud800", "sample": k, "status": status,
                         "correct": status == "correct", "grader": "g1",
                         "how": ("boxed", None)[rng.integers(2)]})  # fmt: skip
    return rows


def write(path, rows, age=60.0):
    """The rows as a file that was last written some seconds ago."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    now = path.stat().st_mtime
    os.utime(path, (now - age, now - age))


def same(a, b):
    for name in ("problems", "values"):
        assert np.array_equal(getattr(a.matrix, name), getattr(b.matrix, name))
    assert np.array_equal(a.status, b.status)
    assert np.array_equal(a.how, b.how)
    assert (a.statuses, a.hows, a.first) == (b.statuses, b.hows, b.first)
    return True


@pytest.fixture(autouse=True)
def _keep_small_files(monkeypatch):
    monkeypatch.setattr(module, "LEAST_BYTES", 0)


def test_shares_by_hand():
    status = ("correct", "wrong", "wrong", "truncated")
    rows = [{"problem": p, "sample": k, "correct": s == "correct", "status": s}
            for k, s in enumerate(status) for p in "ab"]  # fmt: skip
    found = tally_of(rows)
    assert found.share("wrong") == 0.5
    assert found.share("truncated", np.array([True, False])) == 0.25
    assert found.only(np.array([False, True])).matrix.problems == ("b",)


def test_a_kept_tally_is_the_one_of_the_rows_and_the_rows_are_not_read_again(tmp_path, monkeypatch):
    path = tmp_path / "scores.jsonl"
    write(path, rows_of())
    made = tally(path)
    assert (tmp_path / FILE).is_file()
    monkeypatch.setattr(module, "read_jsonl", None)
    assert same(tally(path), made)


def test_a_changed_file_is_read_anew(tmp_path):
    path = tmp_path / "scores.jsonl"
    write(path, rows_of(seed=0))
    tally(path)
    write(path, rows_of(seed=1), age=30.0)
    assert same(tally(path), tally_of(rows_of(seed=1)))


def test_a_file_just_written_is_not_kept_for_its_clock_may_not_tell_the_next_change(tmp_path):
    path = tmp_path / "scores.jsonl"
    write(path, rows_of(), age=0.0)
    tally(path)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("damage", [b"", b"PK", b"not a zip at all"])
def test_a_broken_tally_is_made_anew(tmp_path, damage):
    path = tmp_path / "scores.jsonl"
    write(path, rows_of())
    made = tally(path)
    (tmp_path / FILE).write_bytes(damage)
    assert same(tally(path), made)
    assert (tmp_path / FILE).stat().st_size > 100


@pytest.mark.parametrize("kept", [False, True])
def test_a_row_of_another_grader_is_named_by_number_also_from_what_is_kept(tmp_path, kept):
    path = tmp_path / "scores.jsonl"
    rows = rows_of()
    rows[7]["grader"] = "g9"
    write(path, rows)
    if kept:
        tally(path)
    with pytest.raises(InputError, match="row 8: grader is g9, not g1"):
        tally(path).check(path, {"grader": "g1"}, "mend", ())
    tally(path).check(path, {"grader": "g1"}, "mend", ("grader",))


def test_several_are_made_side_by_side_and_a_broken_one_is_left(tmp_path, monkeypatch):
    paths = []
    for name in "abc":
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "scores.jsonl")
        write(paths[-1], rows_of(problems=400, samples=40, seed=ord(name)))
    paths[1].write_text("{broken\n" * 200_000)
    monkeypatch.undo()  # the processes have the real bound, which these files pass
    keep_tallies(paths, 2)
    assert [path.with_name(FILE).exists() for path in paths] == [True, False, True]
    assert same(tally(paths[0]), tally_of(rows_of(400, 40, ord("a"))))
