"""inspect_ai's logs: both forms say the same; scores that are neither right nor wrong."""

import json
import math
from contextlib import closing

import pytest

from oar_bench.errors import InputError
from oar_bench.importing.archive import Archive
from oar_bench.importing.inspect_log import value_of
from tests.importing.conftest import JSON_LOG, LOG, change, imports, rows


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.json"
    path.write_bytes(JSON_LOG.read_bytes())
    return path


def header():
    with closing(Archive(LOG)) as archive:
        return json.loads(archive.read("header.json"))


def test_accuracy_verdicts_and_texts_are_the_logs(tmp_path):
    one = imports(LOG, tmp_path)["sums"]
    score = header()["results"]["scores"][0]["metrics"]
    metrics, about = one.results["metrics"], one.results["imported"]
    assert metrics["avg@k"]["value"] == score["accuracy"]["value"] == 0.625
    assert metrics["avg@k"]["se"] == pytest.approx(score["stderr"]["value"], abs=1e-12)
    assert (metrics["n_problems"], metrics["k"]) == (4, 2)
    assert {(r["problem"], r["sample"]) for r in rows(one) if r["correct"]} == {
        ("sum-0", 0), ("sum-0", 1), ("sum-1", 0), ("sum-1", 1), ("sum-3", 1),
    }  # fmt: skip
    assert metrics["response_tokens"] == 7.0
    assert metrics["truncated"] == pytest.approx(1 / 8)
    assert about["version"] == "0.3.285"
    assert about["metric"] == "match/accuracy"
    assert one.results["settings"]["sampling"] == {
        "temperature": 0.7, "top_p": None, "max_new_tokens": 16, "stop": [],
    }  # fmt: skip
    assert one.results["settings"]["scorer"]["options"] == {"numeric": False}


def test_both_forms_of_a_log_are_one_result(tmp_path):
    a, b = (imports(path, tmp_path / path.suffix[1:])["sums"] for path in (LOG, JSON_LOG))
    assert a.results["metrics"] == b.results["metrics"]
    assert a.results["fingerprints"] == b.results["fingerprints"]
    assert a.results["settings"] == b.results["settings"]
    assert rows(a, "problems.jsonl") == rows(b, "problems.jsonl")


def test_our_grader_agrees_on_sums(tmp_path):
    """`match` looks for the target at the end, and so does our grader behind the `=`."""
    one = imports(LOG, tmp_path, regrade=True, answer_type="number")["sums"]
    assert one.results["metrics"]["avg@k"]["value"] == 0.625
    assert one.results["imported"]["regraded"] == {"known": 8, "to_correct": 0, "to_wrong": 0}


def test_without_samples_there_is_a_number(log, tmp_path):
    change(log, lambda top: top.pop("samples"))
    one = imports(log, tmp_path / "out")["sums"]
    assert one.results["metrics"]["avg@k"]["value"] == 0.625
    assert one.results["metrics"]["avg@k"]["n"] == 4
    assert "no samples: no paired test" in one.results["imported"]["notes"]


def test_an_unscored_sample_leaves_its_problem_out(log, tmp_path):
    def unscore(top):
        top["samples"][2]["scores"]["match"]["value"] = math.nan
        top["results"]["scores"][0]["unscored_samples"] = 1

    change(log, unscore)
    one = imports(log, tmp_path / "out")["sums"]
    assert one.results["metrics"]["n_problems"] == 3
    assert one.results["imported"]["notes"] == [
        "1 problem left out: the tool gave a sample no score"
    ]
    assert len(rows(one)) == len(rows(one, "samples.jsonl")) == 6
    assert {r["problem"] for r in rows(one)} == {r["problem"] for r in rows(one, "problems.jsonl")}


@pytest.mark.parametrize("regrade", [False, True])
def test_a_sample_that_broke_off_leaves_its_problem_out(log, tmp_path, regrade):
    """inspect_ai goes on after errors if told to, and counts the others: so do we."""

    def fail(top):
        broken = next(s for s in top["samples"] if s["id"] == "sum-2" and s["epoch"] == 1)
        broken.update(error={"message": "no connection"}, scores=None)
        broken["output"] = {"choices": [], "completion": ""}
        top["results"]["scores"][0]["scored_samples"] = 4

    change(log, fail)
    one = imports(log, tmp_path / "out", regrade=regrade, answer_type="number")["sums"]
    assert one.results["metrics"]["n_problems"] == 3
    assert one.results["metrics"]["avg@k"]["value"] == pytest.approx(5 / 6)
    assert "1 problem left out: the tool gave a sample no score" in one.results["imported"]["notes"]
    assert {row["problem"] for row in rows(one)} == {"sum-0", "sum-1", "sum-3"}
    lost = json.loads(log.read_text())
    lost["samples"][0].update(scores=None)
    log.write_text(json.dumps(lost))
    if not regrade:
        with pytest.raises(InputError, match="no score 'match' for sample"):
            imports(log, tmp_path / "again")


def test_shares_of_a_problem_that_is_left_out_are_in_no_mean(log, tmp_path):
    def half(top):
        top["samples"][0]["scores"]["match"]["value"] = "P"
        gone = next(s for s in top["samples"] if s["id"] == "sum-2" and s["epoch"] == 1)
        gone["scores"]["match"]["value"] = math.nan

    change(log, half)
    metrics = imports(log, tmp_path / "out")["sums"].results["metrics"]
    assert (metrics["n_problems"], metrics["n_samples"]) == (3, 6)
    assert metrics["avg@k"]["value"] == pytest.approx(4.5 / 6)


def test_a_half_right_answer_is_no_verdict(log, tmp_path):
    def half(top):
        top["samples"][0]["scores"]["match"]["value"] = "P"
        top["results"]["scores"][0]["metrics"]["accuracy"]["value"] = 4.5 / 8

    change(log, half)
    one = imports(log, tmp_path / "out")["sums"]
    assert one.results["metrics"]["avg@k"]["value"] == pytest.approx(4.5 / 8)
    assert not (one.folder / "scores.jsonl").exists()


def test_another_reducer_is_told_and_not_compared(log, tmp_path):
    def highest(top):
        top["results"]["scores"][0]["reducer"] = "max"
        top["results"]["scores"][0]["metrics"]["accuracy"]["value"] = 0.75

    change(log, highest)
    one = imports(log, tmp_path / "out")["sums"]
    assert one.results["metrics"]["avg@k"]["value"] == 0.625
    assert one.results["imported"]["value"] == 0.75
    assert one.results["imported"]["notes"][0].startswith("its accuracy is the reducer 'max'")


def test_long_texts_stand_among_the_attachments(log, tmp_path):
    def attach(top):
        sample = top["samples"][0]
        sample["attachments"] = {"aa": sample["output"]["completion"], "bb": sample["input"]}
        sample["output"]["completion"], sample["input"] = "attachment://aa", "attachment://bb"

    plain = imports(log, tmp_path / "a")["sums"]
    change(log, attach)
    one = imports(log, tmp_path / "b")["sums"]
    assert rows(one, "samples.jsonl") == rows(plain, "samples.jsonl")
    assert one.results["fingerprints"] == plain.results["fingerprints"]


@pytest.mark.parametrize("status", ["started", "cancelled", "error"])
def test_an_evaluation_that_did_not_succeed_is_refused(log, tmp_path, status):
    change(log, lambda top: top.update(status=status))
    with pytest.raises(InputError, match=f"ended as '{status}', not as 'success'"):
        imports(log, tmp_path / "out")


def test_values_are_read_by_inspect_ais_rule():
    cases = {"C": 1.0, "I": 0.0, "N": 0.0, "P": 0.5, "yes": 1.0, "No": 0.0, "TRUE": 1.0, "1": 1.0}
    assert {text: value_of(text) for text in cases} == cases
    assert [value_of(v) for v in (True, 0, 0.3)] == [1.0, 0.0, 0.3]
    assert value_of("neither") is value_of([1]) is None
