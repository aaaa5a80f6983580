"""The baseline file: what it holds, what it doesn't, its history, and what is wrong with it."""

import json
import shutil

import numpy as np
import pytest

from oar_bench.errors import InputError
from oar_bench.regression.baseline import read_baseline, write_baseline
from oar_bench.regression.counts import KEPT, decode
from oar_bench.regression.snapshot import take
from tests.regression.made import again, change, redraw
from tests.reporting.synthetic import HOSTILE


@pytest.fixture(scope="module")
def written(base, tmp_path_factory):
    path = tmp_path_factory.mktemp("expected") / "made.json"
    write_baseline(path, take(base), "first", {"drop": "5pp"}, 0.1)
    return path


@pytest.fixture
def kept(written, tmp_path):
    return shutil.copy(written, tmp_path / "made.json")


def test_what_is_read_is_what_was_taken(base, kept):
    now, found = take(base), read_baseline(kept)
    assert found.snapshot.results.keys() == now.results.keys()
    for key, result in now.results.items():
        other = found.snapshot.results[key]
        assert (other.model, other.training) == (result.model, result.training)
        for name in KEPT:
            assert np.array_equal(getattr(other.counts, name), getattr(result.counts, name))
    assert found.snapshot.step_time == now.step_time
    assert found.snapshot.memory == now.memory
    assert (found.limits, found.alpha) == ({"drop": "5pp"}, 0.1)


def test_it_holds_neither_text_nor_the_names_of_problems(kept):
    text = kept.read_text()
    assert "p0001" not in text
    assert "answer" not in text.replace("no_answer", "")
    assert not [s for s in HOSTILE if json.dumps(s)[1:-1] in text]
    assert len(text) < 12_000  # 7 evaluations of 60 problems


def test_the_history_keeps_every_reason_and_the_limits_stay(base, kept, tmp_path):
    other = redraw(again(base, tmp_path / "other"))
    write_baseline(kept, take(other), "second\n", {"tokens": "off"}, None, read_baseline(kept))
    found = read_baseline(kept)
    assert [entry["reason"] for entry in found.history] == ["first", "second"]
    assert found.history[0]["scores"] != found.history[1]["scores"]
    assert (found.limits, found.alpha) == ({"drop": "5pp", "tokens": "off"}, 0.1)
    with pytest.raises(InputError, match="a reason is needed"):
        write_baseline(kept, take(base), " \n", {}, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "report"}, "this is no baseline"),
        ({"schema": 2}, "schema 2, but this version reads 1"),
        ({"history": []}, "damaged: history: list should have at least 1 item"),
        ({"results": []}, "damaged: results"),
        ({"extra": 1}, "damaged: extra: extra inputs"),
        ({"alpha": 0.7}, "damaged: alpha"),
        ({"limits": {"drop": "2"}}, "'2' is no limit"),
        ({"limits": {"speed": "2%"}}, "damaged: a limit on 'speed'"),
        ({"tasks": {}}, "damaged: 'arithmetic'"),
        ({"tasks__arithmetic__problems": 61}, "damaged: 61 numbers"),
        ({"tasks__arithmetic__samples": 1}, "counts more than 1 samples"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(kept, fields, message):
    change(kept, **fields)
    with pytest.raises(InputError, match=message):
        read_baseline(kept)


@pytest.mark.parametrize("correct", ["x*60", "1*59", "1*61", "1*0 1*60", "-1*60", "", "1" * 99])
def test_damaged_counts_are_said(kept, correct):
    content = json.loads(kept.read_text())
    content["results"][1]["correct"] = correct
    kept.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"made\.json: damaged"):
        read_baseline(kept)


@pytest.mark.parametrize(
    ("part", "row", "said"),
    [
        ("results", {"tokens": "9" * 25 + "*60"}, "60 numbers, none below 0 or beyond"),
        ("results", {"tokens": "9999999999999*60"}, "60 numbers, none below 0 or beyond"),
        ("results", {"correct": "4*60", "no_answer": "1*60"}, "more than 4 samples"),
        ("costs", {"memory_mb": float("inf")}, "a finite number"),
        ("costs", {"step_time": float("nan")}, "damaged: costs.1.step_time"),
        ("costs", {"seed": 0}, "costs of one run are there twice"),
    ],
)
def test_damaged_rows_are_said(kept, part, row, said):
    content = json.loads(kept.read_text())
    content[part][1] |= row
    kept.write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"made\.json: damaged: .*{said}|{said}"):
        read_baseline(kept)


def test_a_result_that_is_there_twice_is_refused(kept):
    content = json.loads(kept.read_text())
    content["results"].append(content["results"][1])
    kept.write_text(json.dumps(content))
    with pytest.raises(InputError, match="grpo with seed 0 is there twice"):
        read_baseline(kept)


def test_counts_beyond_the_problems_are_not_made(monkeypatch):
    with pytest.raises(ValueError, match="3 numbers"):
        decode("0*999999999999", 3)
