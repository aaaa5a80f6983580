"""lighteval's results and details: its numbers, verdicts, and shares over several responses."""

import json

import pyarrow
import pytest
from pyarrow.parquet import read_table, write_table

from oar_bench.errors import InputError
from tests.importing.conftest import DATA, imports, rows

STATED = json.loads((DATA / "lighteval" / "results.json").read_text())["results"]


def test_accuracy_verdicts_and_texts_are_the_tools(lighteval, tmp_path):
    one = imports(lighteval, tmp_path / "out")["sums"]
    assert one.results["metrics"]["avg@k"]["value"] == STATED["sums|0"]["em"] == 0.5
    assert one.results["imported"]["stderr"] == STATED["sums|0"]["em_stderr"]
    assert {r["problem"]: r["correct"] for r in rows(one)} == {
        "sums-0": True, "sums-1": True, "sums-2": False, "sums-3": False,
    }  # fmt: skip
    responses = {r["problem"]: r["response"] for r in rows(one, "samples.jsonl")}
    assert responses == {"sums-0": "2", "sums-1": "5", "sums-2": "15", "sums-3": "28"}
    assert one.results["metrics"]["response_tokens"] == 3.0
    assert "lighteval doesn't say its version" in one.results["imported"]["notes"]
    assert one.results["settings"]["sampling"]["max_new_tokens"] == 16


def test_a_share_of_four_responses_is_counted(lighteval, tmp_path):
    one = imports(lighteval, tmp_path / "out")["sums_four"]
    metrics = one.results["metrics"]
    assert metrics["avg@k"]["value"] == STATED["sums_four|0"]["avg@n:n=4"] == 0.6875
    assert metrics["k"] == 4
    # right of four: 4, 4, 0, 3 of the problems in their order
    assert metrics["pass@2"]["value"] == pytest.approx((1 + 1 + 0 + 1) / 4)
    assert metrics["pass@1"]["value"] == 0.6875
    assert not (one.folder / "samples.jsonl").exists()


def test_our_grader_says_which_of_the_four(lighteval, tmp_path):
    one = imports(lighteval, tmp_path / "out", regrade=True)["sums_four"]
    assert one.results["metrics"]["avg@k"]["value"] == 0.6875
    assert [r["correct"] for r in rows(one) if r["problem"] == "sums_four-3"] == [
        False, True, True, True,
    ]  # fmt: skip
    assert one.results["metrics"]["response_tokens"] == 4.5


def test_a_results_file_finds_its_details(lighteval, tmp_path):
    [path] = lighteval.rglob("results_*.json")
    done = imports(path, tmp_path / "out")
    assert {task: one.results["metrics"]["k"] for task, one in done.items()} == {
        "sums": 1, "sums_four": 4,
    }  # fmt: skip


def test_without_details_there_is_no_interval_since_n_is_not_said(lighteval, tmp_path):
    for path in lighteval.rglob("*.parquet"):
        path.unlink()
    interval = imports(lighteval, tmp_path / "out")["sums"].results["metrics"]["avg@k"]
    assert (interval["value"], interval["low"], interval["high"]) == (0.5, None, None)


def test_details_of_another_form_are_refused_by_column(lighteval, tmp_path):
    path = next(lighteval.rglob("details_sums|*"))
    write_table(pyarrow.table({"predictions": ["2"], "metrics": [1]}), path)
    with pytest.raises(InputError, match=r"no column 'doc' \(it has predictions, metrics\)"):
        imports(lighteval, tmp_path / "out")


def test_documents_that_are_missing_are_told(lighteval, tmp_path):
    path = next(lighteval.rglob("details_sums|*"))
    write_table(read_table(path).slice(0, 3), path)
    with pytest.raises(InputError, match=r"samples give 0.333333, its results say 0.5 for em"):
        imports(lighteval, tmp_path / "out")


def test_one_document_twice_is_told(lighteval, tmp_path):
    path = next(lighteval.rglob("details_sums|*"))
    table = read_table(path)
    write_table(pyarrow.concat_tables([table, table]), path)
    with pytest.raises(InputError, match="sample 0 of problem 'sums-2' occurs twice"):
        imports(lighteval, tmp_path / "out")
