"""What a report refuses in one line, and what it leaves out by name."""

import json
import re
import shutil

import numpy as np
import pytest

from oar_bench.errors import InputError
from oar_bench.reporting import write_report
from tests.reporting.reading import cells, sheet
from tests.reporting.synthetic import (
    SETTINGS,
    make_evaluation,
    make_out,
    make_run,
    write_object,
    write_rows,
)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"settings": {**SETTINGS, "train": {**SETTINGS["train"], "lr": 1e-3}}},
         "settings.train.lr"),
        ({"fingerprints": {"start": "other"}}, "fingerprints.start"),
        ({"eval_fingerprints": {"grader": "other"}}, "fingerprints.grader"),
        ({"eval_fingerprints": {"sampling": "other"}}, "fingerprints.sampling"),
        ({"eval_fingerprints": {"data": "other"}}, "fingerprints.data"),
    ],
)  # fmt: skip
def test_unlike_runs_are_refused_by_field_and_nothing_is_written(tmp_path, change, field):
    make_run(tmp_path, "grpo", 0)
    make_run(tmp_path, "oar-p", 0, **change)
    with pytest.raises(InputError, match=rf"{field} is .*grpo/seed-0.* but .*oar-p/seed-0"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()
    paths = write_report(tmp_path, tmp_path / "report", allow=[field])
    assert "Unlike runs, compared on demand" in paths.markdown.read_text()


def test_all_fields_in_which_runs_are_unlike_are_named_at_once(tmp_path):
    make_run(tmp_path, "grpo", 0)
    make_run(tmp_path, "oar-p", 0, eval_fingerprints={"grader": "other", "data": "other"})
    with pytest.raises(InputError) as error:
        write_report(tmp_path, tmp_path / "report")
    named = re.findall("fingerprints[.][a-z]+", str(error.value))
    assert sorted(named) == sorted(["fingerprints.data", "fingerprints.grader"] * 2)
    options = re.findall("--allow ([a-z.]+)", str(error.value))
    write_report(tmp_path, tmp_path / "report", allow=options)


def test_an_evaluation_that_says_it_is_not_complete_is_left_out(tmp_path):
    make_out(tmp_path, methods=("grpo",), seeds=(0, 1), example=False)
    path = tmp_path / "runs/grpo/seed-1/eval/arithmetic/results.json"
    write_object(path, {**json.loads(path.read_text()), "complete": False})
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "grpo/seed-1: evaluation of arithmetic is unfinished" in page


def test_a_probe_beside_an_evaluation_is_named_and_left_out(tmp_path):
    make_out(tmp_path, methods=("grpo",), seeds=(0, 1), example=False)
    folder = tmp_path / "runs/grpo/seed-1/eval/arithmetic.probe-partial-0.6"
    write_object(folder / "results.json", {"schema": 1, "kind": "probe", "complete": True})
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "arithmetic.probe-partial-0.6: this is a contamination probe" in page
    assert cells(page, "arithmetic: score and paired difference to grpo", "grpo")[1] == "2"


def test_a_start_evaluated_otherwise_is_refused(tmp_path):
    make_out(tmp_path, methods=("grpo",), example=False, start=False)
    make_evaluation(tmp_path / "start/eval/arithmetic", "arithmetic", [0.5] * 60,
                    np.random.default_rng(0), fingerprints={"sampling": "other"})  # fmt: skip
    with pytest.raises(InputError, match=r"fingerprints\.sampling"):
        write_report(tmp_path, tmp_path / "report")


def test_other_problems_are_refused(tmp_path):
    make_run(tmp_path, "grpo", 0)
    make_run(tmp_path, "oar-p", 0, problems=59)
    with pytest.raises(InputError, match="other problems than grpo/seed-0"):
        write_report(tmp_path, tmp_path / "report")


def test_what_is_unfinished_is_named_and_left_out(tmp_path):
    make_out(tmp_path, methods=("grpo", "oar-p"), seeds=(0, 1), example=False)
    make_run(tmp_path, "oar-g", 0, status="running", steps=12)
    make_run(tmp_path, "oar-g", 1, evaluate=False)
    make_run(tmp_path, "oar-p", 2, evaluate=False)
    half = tmp_path / "runs/oar-p/seed-2/eval/arithmetic/samples.jsonl"
    write_rows(half, [])
    (tmp_path / "runs/oar-p/seed-3").mkdir()
    paths = write_report(tmp_path, tmp_path / "report")
    for page in (paths.markdown.read_text(), paths.html.read_text()):
        for words in ("oar-g/seed-0", "training is unfinished (12 steps so far)", "oar-g/seed-1",
                      "no evaluation yet", "oar-p/seed-2", "evaluation of arithmetic is unfinished",
                      "oar-p/seed-3", "training never began"):  # fmt: skip
            assert words in page
    assert list(sheet(paths, "comparison")["method"]) == ["start", "grpo", "oar-p"]
    assert cells(paths.markdown.read_text(), "difference to grpo", "oar-p")[1] == "2"


def spoil_scores(out):
    path = out / "runs/grpo/seed-0/eval/arithmetic/scores.jsonl"
    path.write_text(path.read_text().replace('"status"', "status", 1))


def drop_status(out):
    path = out / "runs/grpo/seed-0/eval/arithmetic/scores.jsonl"
    path.write_text(path.read_text().replace('"correct": ', '"right": '))


def double_score(out):
    path = out / "runs/grpo/seed-0/eval/arithmetic/scores.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")


def flip_score(out):
    path = out / "runs/grpo/seed-0/eval/arithmetic/scores.jsonl"
    path.write_text(path.read_text().replace('"correct": true', '"correct": false', 1))


def word_in_metrics(out):
    path = out / "runs/grpo/seed-0/metrics.jsonl"
    path.write_text(path.read_text().replace('"reward": ', '"reward": "x", "_": ', 1))


def timing_without_phase(out):
    path = out / "runs/grpo/seed-0/timing.jsonl"
    path.write_text(path.read_text().replace('"phase"', '"face"', 1))


def other_schema(out):
    path = out / "runs/grpo/seed-0/run.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99', 1))


def twin(out):
    shutil.copytree(out / "runs/grpo/seed-0", out / "runs/grpo2/seed-0")


def short_example(out):
    path = out / "credit_example.json"
    about = json.loads(path.read_text())
    about["sections"].pop()
    write_object(path, about)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil_scores, r"scores\.jsonl: line 1 is not JSON"),
        (drop_status, "lacks 'correct'"),
        (double_score, "is scored twice"),
        (flip_score, r"results\.json does not belong to scores\.jsonl"),
        (word_in_metrics, r"metrics\.jsonl: 'reward' holds what is no number"),
        (timing_without_phase, r"timing\.jsonl: line 1 lacks 'phase'"),
        (other_schema, "schema 99, but this version reads 1"),
        (twin, "are both grpo with seed 0"),
        (short_example, r"credit_example\.json: sections has \d+ entries for \d+ tokens"),
    ],
)
def test_broken_files_are_told_in_one_line_with_their_name(tmp_path, damage, message):
    make_out(tmp_path, methods=("grpo",), seeds=(0,), problems=5, steps=2)
    damage(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        write_report(tmp_path, tmp_path / "report")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report").exists()


def test_what_is_no_folder_of_finished_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "absent", tmp_path / "report")
    with pytest.raises(InputError, match="no runs here"):
        write_report(tmp_path, tmp_path / "report")
    run = make_run(tmp_path, "grpo", 0, status="running", problems=5)
    with pytest.raises(InputError, match="this is one run"):
        write_report(run, tmp_path / "report")
    with pytest.raises(InputError, match=r"nothing finished to report .*grpo/seed-0: training is"):
        write_report(tmp_path, tmp_path / "report")


def test_scores_of_another_grader_are_refused_by_row_and_allowed_by_field(out, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    file = copy / "runs" / "oar-g" / "seed-1" / "eval" / "arithmetic" / "scores.jsonl"
    rows = [json.loads(line) | {"grader": "g1"} for line in file.open()]
    rows[2]["grader"] = "g9"
    write_rows(file, rows)
    with pytest.raises(InputError, match=r"scores\.jsonl: row 3: grader is g9, not g1"):
        write_report(copy, tmp_path / "report")
    assert not (tmp_path / "report").exists()
    write_report(copy, tmp_path / "report", allow=["grader"])
    with pytest.raises(InputError, match="did you mean 'grader'"):
        write_report(copy, tmp_path / "report", allow=["grader", "grder"])
