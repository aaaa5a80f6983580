"""The stage `score` on evaluation folders: streams, resumes, and mixes nothing."""

import json
import tracemalloc

import pytest

from oar_bench.errors import InputError
from oar_bench.evaluation.score import score
from oar_bench.identity import fingerprint
from oar_bench.records import read_json, read_jsonl

PRINTS = {"task": "t1", "data": "d1", "prompt": "p1", "sampling": "s1", "model": "m1"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(problems, samples, text="It is \\boxed{%d}."):
    return [
        {"schema": 1, "task": "t", "problem": f"p{i}", "sample": k, "seed": 1,
         "response": text % (i + (k == 0)), "gold": str(i), "finish_reason": "stop",
         "prompt_tokens": 3, "response_tokens": 5 + k, "model": "m1",
         "fingerprint": fingerprint(PRINTS)}
        for i in range(problems) for k in range(samples)
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "generation.json").write_text(json.dumps({
        "schema": 1, "kind": "generation", "task": "t", "model": "m", "problems": 4, "samples": 3,
        "seed": 0, "sampling": {"temperature": 1.0, "max_new_tokens": 64},
        "grading": {"answer_type": "math"}, "fingerprints": PRINTS,
    }))  # fmt: skip
    write(tmp_path / "samples.jsonl", rows_of(4, 3))
    return tmp_path


def without_time(path):
    return [{k: v for k, v in row.items() if k != "milliseconds"} for row in read_jsonl(path)]


def test_results_hold_every_metric_and_every_row_its_identity(folder):
    results = score(folder)
    metrics = results["metrics"]
    assert results["complete"] is True
    assert metrics["avg@k"]["value"] == pytest.approx(2 / 3)
    assert metrics["maj@3"]["value"] == 1.0
    assert metrics["budget"] == [[8, pytest.approx(2 / 3)], [64, pytest.approx(2 / 3)]]
    for row in read_jsonl(folder / "scores.jsonl"):
        assert row["grader"] == results["fingerprints"]["grader"]
        assert row["fingerprint"] == fingerprint(PRINTS)
        assert row["model"] == "m1"


def test_a_resumed_scoring_is_an_uninterrupted_one(folder):
    whole = score(folder)
    rows = without_time(folder / "scores.jsonl")
    lines = (folder / "scores.jsonl").read_text().splitlines(keepends=True)
    (folder / "scores.jsonl").write_text("".join(lines[:5]) + lines[5][:20])  # torn by a kill
    again = score(folder)
    assert without_time(folder / "scores.jsonl") == rows
    assert again["metrics"] == whole["metrics"]
    untouched = (folder / "scores.jsonl").read_bytes()
    score(folder)
    assert (folder / "scores.jsonl").read_bytes() == untouched


def test_scoring_follows_a_generation_that_still_runs(folder):
    rows = rows_of(4, 3)
    write(folder / "samples.jsonl", rows[:7])
    part = score(folder)
    assert (part["complete"], part["metrics"]["n_problems"]) == (False, 2)
    assert part["metrics"]["left_out_problems"] == 1
    write(folder / "samples.jsonl", rows)
    assert score(folder)["metrics"]["n_problems"] == 4
    assert [r["sample"] for r in read_jsonl(folder / "scores.jsonl")] == [0, 1, 2] * 4
    write(folder / "samples.jsonl", rows[:2])
    (folder / "scores.jsonl").unlink()
    with pytest.raises(InputError, match="no problem has all its 3 samples yet"):
        score(folder)


def test_verdicts_of_another_grader_are_made_anew(folder):
    whole = score(folder)
    rows = list(read_jsonl(folder / "scores.jsonl"))
    rows[3] |= {"grader": "another", "status": "correct", "correct": True}
    write(folder / "scores.jsonl", rows)
    assert score(folder)["metrics"] == whole["metrics"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "m2"}, "samples.jsonl: row 6: model is m2, not m1"),
        ({"task": "u"}, "row 6: task is u, not t"),
        ({"fingerprint": "ff"}, "row 6: fingerprint is ff, not"),
    ],
)
def test_samples_of_another_evaluation_are_refused_by_row_and_field(folder, change, said):
    rows = rows_of(4, 3)
    rows[5] |= change
    write(folder / "samples.jsonl", rows)
    with pytest.raises(InputError, match=said):
        score(folder)
    assert not (folder / "results.json").exists()


def test_scores_of_other_samples_are_refused_by_row_and_field(folder):
    score(folder)
    before = read_json(folder / "results.json")
    rows = list(read_jsonl(folder / "scores.jsonl"))
    rows[1]["fingerprint"] = "ff"
    write(folder / "scores.jsonl", rows)
    with pytest.raises(InputError, match=r"scores\.jsonl: row 2: fingerprint is ff"):
        score(folder)
    assert read_json(folder / "results.json") == before


def test_a_sample_that_occurs_twice_is_refused_by_row(folder):
    rows = rows_of(4, 3)
    write(folder / "samples.jsonl", [*rows, rows[4]])
    with pytest.raises(InputError, match="row 13: sample 1 of problem 'p1' occurs twice"):
        score(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sample": "1"}, "row 2: sample is no whole number"),
        ({"response_tokens": None}, "row 2: response_tokens is no whole number"),
        ({"gold": ...}, "row 2: no field 'gold'"),
    ],
)
def test_a_malformed_row_is_refused_in_one_line(folder, change, said):
    rows = rows_of(4, 3)
    rows[1] |= change
    rows[1] = {name: value for name, value in rows[1].items() if value is not ...}
    write(folder / "samples.jsonl", rows)
    with pytest.raises(InputError, match=said):
        score(folder)


def test_rows_from_before_identity_was_written_are_still_scored(folder):
    rows = rows_of(4, 3)
    for row in rows:
        del row["model"], row["fingerprint"]
    write(folder / "samples.jsonl", rows)
    assert score(folder)["complete"] is True


def test_memory_holds_no_texts(folder):
    """4,000 responses of 10 kB each: 40 MB of text, of which a batch is held at a time."""
    about = read_json(folder / "generation.json") | {"problems": 200, "samples": 20}
    (folder / "generation.json").write_text(json.dumps(about))
    write(folder / "samples.jsonl", rows_of(200, 20, "x " * 5000 + "\\boxed{%d}"))
    score(folder)  # imports and caches
    tracemalloc.start()
    score(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6 < (folder / "samples.jsonl").stat().st_size / 3
