"""lm-eval's output: its accuracy, its verdicts, and what is told of what it lacks."""

import hashlib
import json
import math

import pytest

from oar_bench.answers import grade
from oar_bench.errors import InputError
from oar_bench.evaluation.intervals import share_interval, wilson_interval
from tests.importing.conftest import LM_EVAL, MORE, change, imports, rows

[RESULTS] = LM_EVAL.rglob("results_*.json")
[SAMPLES] = LM_EVAL.rglob("samples_*.jsonl")


def test_accuracy_and_verdicts_are_the_tools(tmp_path):
    one = imports(LM_EVAL, tmp_path)["oar_sum"]
    stated = json.loads(RESULTS.read_text())["results"]["oar_sum"]
    theirs = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
    metrics, about = one.results["metrics"], one.results["imported"]
    assert metrics["avg@k"]["value"] == pytest.approx(stated["acc,none"], abs=1e-12)
    assert metrics["avg@k"]["low"] == share_interval([row["acc"] for row in theirs]).low
    assert {r["problem"]: r["correct"] for r in rows(one)} == {
        row["doc"]["id"]: row["acc"] == 1.0 for row in theirs
    }
    assert {r["problem"]: r["response"] for r in rows(one, "samples.jsonl")} == {
        row["doc"]["id"]: row["resps"][0][0] for row in theirs
    }
    assert one.folder == tmp_path / "warm-start" / "oar_sum"
    assert (about["tool"], about["version"], about["metric"]) == ("lm-eval", "0.4.13", "acc,none")
    assert about["stderr"] == stated["acc_stderr,none"]
    assert [f["sha256"] for f in about["files"]] == [
        hashlib.sha256(path.read_bytes()).hexdigest() for path in (RESULTS, SAMPLES)
    ]
    assert about["settings"]["task"]["generation_kwargs"]["max_gen_toks"] == 16


def test_what_lm_eval_does_not_say_is_null_and_told(tmp_path):
    results = imports(LM_EVAL, tmp_path)["oar_sum"].results
    assert results["metrics"]["truncated"] is None
    assert results["metrics"]["response_tokens"] is None
    assert "tokens" not in results["metrics"]
    assert "not known: token counts" in results["imported"]["notes"]


def test_one_file_brings_the_other(tmp_path):
    by_file = imports(RESULTS, tmp_path / "a")["oar_sum"].results
    by_samples = imports(SAMPLES, tmp_path / "b")["oar_sum"].results
    for found in (by_file, by_samples):
        found.pop("environment")
    assert by_file == by_samples


def test_results_alone_have_wilsons_interval_and_no_test(lm_eval, tmp_path):
    next(lm_eval.rglob("samples_*")).unlink()
    one = imports(lm_eval, tmp_path / "out")["oar_sum"]
    interval = one.results["metrics"]["avg@k"]
    expected = wilson_interval(4 / 12, 12)
    assert (interval["low"], interval["high"]) == (expected.low, expected.high)
    assert interval["n"] == 12
    assert "no samples: no paired test" in one.results["imported"]["notes"]
    assert [path.name for path in one.folder.iterdir()] == ["results.json"]


def test_samples_alone_need_a_name_and_give_the_accuracy(lm_eval, tmp_path):
    next(lm_eval.rglob("results_*")).unlink()
    with pytest.raises(InputError, match="name it by --model"):
        imports(lm_eval, tmp_path / "out")
    one = imports(lm_eval, tmp_path / "out", model="mine")["oar_sum"]
    assert one.results["metrics"]["avg@k"]["value"] == pytest.approx(4 / 12)
    assert one.results["imported"]["version"] is None


def test_several_filters_and_responses(tmp_path):
    """lm-eval's verdict is on a filter's choice among four responses, ours on each of them."""
    theirs = [
        row for path in MORE.glob("samples_sums_four_*")
        for row in map(json.loads, path.read_text().splitlines()) if row["filter"] == "strict"
    ]  # fmt: skip
    assert len(theirs) == 6
    plain = imports(MORE, tmp_path / "a")["sums_four"]
    assert plain.results["metrics"]["avg@k"]["value"] == 0.5
    assert plain.results["metrics"]["k"] == 1
    assert not (plain.folder / "samples.jsonl").exists()
    anew = imports(MORE, tmp_path / "b", regrade=True)["sums_four"]
    expected = [[grade(text, row["target"]).correct for text in row["resps"][0]] for row in theirs]
    assert anew.results["metrics"]["k"] == 4
    assert anew.results["metrics"]["avg@k"]["value"] == pytest.approx(
        sum(map(sum, expected)) / 24
    )  # fmt: skip
    assert anew.results["imported"]["value"] == 0.5


def test_a_choice_of_answers_has_verdicts_and_no_texts(tmp_path):
    one = imports(MORE, tmp_path, regrade=True)["sums_choice"]
    assert one.results["metrics"]["avg@k"]["value"] == pytest.approx(4 / 6)
    assert one.results["metrics"]["statuses"] == {"correct": 4, "wrong": 2}
    assert "not regraded: there is no gold, or no response" in one.results["imported"]["notes"]
    assert set(rows(one, "problems.jsonl")[0]) == {
        "schema", "problem", "doc_hash", "prompt_hash", "target_hash",
    }  # fmt: skip


def test_a_metric_that_is_not_right_or_wrong_has_an_interval_over_problems(lm_eval, tmp_path):
    values = iter([0.25, 0.5, 0.75] * 4)
    change(next(lm_eval.rglob("samples_*")), lambda row: row.update(acc=next(values)))
    change(next(lm_eval.rglob("results_*")), lambda top: top["results"]["oar_sum"].update(
        {"acc,none": 0.5}))  # fmt: skip
    one = imports(lm_eval, tmp_path / "out")["oar_sum"]
    expected = share_interval([0.25, 0.5, 0.75] * 4)
    assert one.results["metrics"]["avg@k"]["low"] == expected.low
    assert not (one.folder / "scores.jsonl").exists()
    assert any("no paired test" in note for note in one.results["imported"]["notes"])


def test_groups_are_left_out(lm_eval, tmp_path):
    def group(top):
        top["results"]["all_sums"] = {"acc,none": 0.3}
        top["groups"] = {"all_sums": {"acc,none": 0.3}}
        top["group_subtasks"] = {"all_sums": ["oar_sum"]}

    change(next(lm_eval.rglob("results_*")), group)
    assert set(imports(lm_eval, tmp_path / "out")) == {"oar_sum"}


def test_the_metric_can_be_named(tmp_path):
    one = imports(MORE, tmp_path, metric="exact_match,first", tasks=("sums_four",))["sums_four"]
    assert one.results["imported"]["metric"] == "exact_match,first"
    with pytest.raises(InputError, match="no metric 'f1'; use one of exact_match,strict"):
        imports(MORE, tmp_path / "b", metric="f1", tasks=("sums_four",))
    with pytest.raises(InputError, match="no results of task 'sum'"):
        imports(MORE, tmp_path / "b", tasks=("sum",))


def test_numbers_that_are_none_are_left_out_and_told(lm_eval, tmp_path):
    change(next(lm_eval.rglob("results_*")), lambda top: top["results"]["oar_sum"].update(
        {"perplexity,none": math.inf, "acc_stderr,none": "N/A"}))  # fmt: skip
    about = imports(lm_eval, tmp_path / "out")["oar_sum"].results["imported"]
    assert about["numbers"] == {"acc,none": 4 / 12}
    assert about["stderr"] is None
    assert "not finite, left out: perplexity,none" in about["notes"]
