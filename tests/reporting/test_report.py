"""The report as a whole: its numbers, what it refuses, what it leaves out, the same bytes twice."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from oar_bench.reporting import write_report
from tests.reporting.reading import cells, sheet
from tests.reporting.synthetic import (
    SETTINGS,
    make_out,
    make_run,
    write_object,
)


def scores(folder):
    """(P, K) of a run, read anew and without the package."""
    rows = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    table = pd.DataFrame(rows).pivot_table(index="problem", columns="sample", values="correct")
    return table.to_numpy(dtype=float)


def means(out, method, seeds=(0, 1, 2)):
    """(S, P) problem means of a method."""
    folders = [out / "runs" / method / f"seed-{s}" / "eval" / "arithmetic" for s in seeds]
    return np.stack([scores(folder).mean(axis=1) for folder in folders])


def shown(value):
    return f"{value:.1f}".replace("-", "\N{MINUS SIGN}")


def test_means_and_differences_are_those_of_an_independent_computation(out, report):
    page = report.markdown.read_text()
    grpo, oar = means(out, "grpo"), means(out, "oar-p")
    row = cells(page, "arithmetic: score and paired difference to grpo", "oar-p")
    assert row[1] == "3"
    assert row[2] == shown(100 * oar.mean())
    assert row[4].lstrip("+") == shown(100 * (oar - grpo).mean())


def test_the_interval_of_a_difference_is_the_wider_of_the_two_ways(out, report):
    d = means(out, "oar-g") - means(out, "grpo")
    s, p = d.shape
    ms_seed, ms_problem = p * d.mean(axis=1).var(ddof=1), s * d.mean(axis=0).var(ddof=1)
    total = ((d - d.mean()) ** 2).sum()
    ms_rest = (total - (s - 1) * ms_seed - (p - 1) * ms_problem) / ((s - 1) * (p - 1))
    halves = [stats.t.ppf(0.975, s - 1) * np.sqrt(ms_seed / (s * p))]
    if ms_seed > ms_rest and ms_problem > ms_rest:
        sum_ = ms_seed + ms_problem - ms_rest
        parts = [ms_seed**2 / (s - 1), ms_problem**2 / (p - 1), ms_rest**2 / ((s - 1) * (p - 1))]
        halves.append(stats.t.ppf(0.975, sum_**2 / sum(parts)) * np.sqrt(sum_ / (s * p)))
    elif ms_problem > ms_rest:
        halves.append(stats.t.ppf(0.975, p - 1) * np.sqrt(ms_problem / (s * p)))
    table = sheet(report, "pairs").query("a == 'oar-g' and b == 'grpo'").iloc[0]
    assert table["difference_high"] - table["difference"] == pytest.approx(max(halves))


def test_pass_at_k_run_sd_and_shares_are_those_of_an_independent_computation(out, report):
    folders = [out / "runs" / "oar-p" / f"seed-{s}" / "eval" / "arithmetic" for s in range(3)]
    tables = [scores(folder) for folder in folders]
    frame = sheet(report, "comparison").query("method == 'oar-p'").iloc[0]
    wrong = [4 - t.sum(axis=1) for t in tables]
    pass_at_2 = np.mean([1 - w * (w - 1) / 12 for w in wrong])
    assert frame["pass@2"] == pytest.approx(pass_at_2)
    assert frame["pass@4"] == pytest.approx(np.mean([t.any(axis=1) for t in tables]))
    sds = [t.mean(axis=0).std(ddof=1) for t in tables]
    assert frame["run_sd"] == pytest.approx(np.sqrt(np.mean(np.square(sds))))
    samples = [json.loads(x) for f in folders for x in (f / "samples.jsonl").open()]
    assert frame["truncated"] == pytest.approx(
        np.mean([s["finish_reason"] == "length" for s in samples])
    )


def test_p_values_are_holms_over_every_pair_but_the_starts(report):
    pairs = sheet(report, "pairs")
    family = pairs[pairs["a"] != "start"]
    raw = family["p_unadjusted"].sort_values()
    expected = (raw * np.arange(len(raw), 0, -1)).cummax().clip(upper=1)
    assert np.allclose(family["p_holm"].loc[raw.index], expected)
    start = pairs[pairs["a"] == "start"].iloc[0]
    assert start["p_holm"] == start["p_unadjusted"]


def test_step_times_are_medians_without_the_first_step(out, report):
    medians = []
    for seed in range(3):
        path = out / "runs" / "oar-p" / f"seed-{seed}" / "timing.jsonl"
        frame = pd.DataFrame([json.loads(line) for line in path.open()])
        frame = frame[(frame["step"] > 1) & (frame["phase"] != "checkpoint")]
        medians.append(frame.groupby("step")["seconds"].sum().median())
    row = sheet(report, "overhead").query("method == 'oar-p' and phase == 'step'").iloc[0]
    assert row["median_seconds"] == pytest.approx(np.mean(medians))
    assert 3.0 < row["ratio"] < 3.6
    assert row["ratio_low"] < row["ratio"] < row["ratio_high"]


def test_the_verdict_says_what_is_open_and_what_would_settle_it(report):
    page = report.markdown.read_text()
    verdict = page.partition("## Comparison")[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "No method is separable from grpo" in verdict
    assert "This is no proof of equality" in verdict
    assert "paired seeds" in verdict
    assert "own weights shuffled" in verdict
    assert "<b>" not in report.html.read_text()
    assert "**" not in page  # nothing is bold: no best that isn't separable


def test_a_real_gain_and_a_real_loss_are_named(tmp_path):
    make_run(tmp_path, "grpo", 0, seed_sd=0)
    for method, shift in (("grpo", 0.0), ("oar-p", 0.15), ("inverted", -0.15)):
        for seed in range(4):
            make_run(tmp_path, method, seed, shift=shift, seed_sd=0.005, problems=150)
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert cells(page, "score and paired difference to grpo", "oar-p")[7] == "better"
    assert cells(page, "score and paired difference to grpo", "inverted")[7] == "worse"
    assert "better than grpo." in page


def test_a_gain_that_the_shuffled_control_also_shows_is_called_no_evidence(tmp_path):
    for method, shift in (("grpo", 0.0), ("oar-p", 0.15), ("shuffled", 0.15)):
        for seed in range(4):
            make_run(tmp_path, method, seed, shift=shift, seed_sd=0.005, problems=150)
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "that gain is no evidence of credit assignment" in page


def test_uniform_with_the_same_answers_is_identical_not_a_tie(tmp_path):
    make_out(tmp_path, methods=("grpo",), start=False, example=False)
    for seed in range(3):
        run = make_run(tmp_path, "uniform", seed)
        shutil.copytree(tmp_path / f"runs/grpo/seed-{seed}/eval", run / "eval", dirs_exist_ok=True)
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    row = cells(page, "score and paired difference to grpo", "uniform")
    assert row[4:8] == ["0.0", "[0.0, 0.0]", "1.000", "identical"]
    assert "uniform is identical to grpo" in page


def test_one_seed_says_that_the_seed_is_not_covered(tmp_path):
    make_out(tmp_path, methods=("grpo", "oar-p"), seeds=(0,), example=False)
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "the luck of training isn't covered" in page
    assert cells(page, "score and paired difference to grpo", "oar-p")[9] == "unknown (one seed)"
    assert "bootstrap over steps (one seed)" in page


def test_without_grpo_nothing_is_compared_and_it_says_so(tmp_path):
    make_out(tmp_path, methods=("oar-p", "weird <b>name"), seeds=(0, 1), example=False)
    paths = write_report(tmp_path, tmp_path / "report")
    assert "no grpo run was evaluated" in paths.markdown.read_text()
    assert "weird &lt;b&gt;name" in paths.html.read_text()


def test_several_tasks_have_a_table_each_and_one_family_of_tests(tmp_path):
    make_out(tmp_path, methods=("grpo", "oar-p"), tasks=("arithmetic", "digits"), example=False)
    paths = write_report(tmp_path, tmp_path / "report")
    pairs = sheet(paths, "pairs").query("a != 'start'")
    assert list(pairs["task"]) == ["arithmetic", "digits"]
    smallest = pairs["p_unadjusted"].min()
    assert pairs["p_holm"].min() == pytest.approx(min(1, 2 * smallest))


def test_a_smoke_run_says_that_its_numbers_mean_nothing(tmp_path):
    make_out(tmp_path, methods=("grpo",), seeds=(0,), smoke=True, problems=5, samples=1, steps=1,
             example=False)  # fmt: skip
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "its numbers mean nothing" in page.replace("\n", " ")


def test_out_or_its_runs_folder_give_the_same_bytes_twice(out, report, tmp_path):
    paths = write_report(out / "runs", tmp_path / "again")
    for old, new in [
        (report.markdown, paths.markdown), (report.html, paths.html),
        *zip(report.tables, paths.tables, strict=True),
        *zip(report.figures, paths.figures, strict=True),
        *[(a.with_suffix(".png"), b.with_suffix(".png"))
          for a, b in zip(report.figures, paths.figures, strict=True)],
    ]:  # fmt: skip
        assert old.name == new.name
        assert old.read_bytes() == new.read_bytes()


def test_no_path_of_this_machine_is_in_the_report(out, report):
    for path in (report.markdown, report.html, *report.tables, *report.figures):
        assert str(out) not in path.read_text()


def test_a_later_reproduce_with_more_seeds_is_no_unlike_setting(tmp_path):
    make_run(tmp_path, "grpo", 0, settings={**SETTINGS, "reproduce": {"seeds": 1}})
    make_run(tmp_path, "grpo", 1, settings={**SETTINGS, "reproduce": {"seeds": 2}})
    write_report(tmp_path, tmp_path / "report")


def test_a_run_that_lacks_one_of_two_evaluations_is_named_and_the_other_one_used(tmp_path):
    make_out(tmp_path, methods=("grpo", "oar-p"), seeds=(0, 1), tasks=("arithmetic", "digits"),
             example=False)  # fmt: skip
    (tmp_path / "runs/oar-p/seed-1/eval/digits/results.json").unlink()
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "oar-p/seed-1: evaluation of digits is unfinished" in page
    assert cells(page, "arithmetic: score and paired difference to grpo", "oar-p")[1] == "2"
    assert cells(page, "digits: score and paired difference to grpo", "oar-p")[1] == "1"


def test_pairs_use_only_the_seeds_that_both_have(tmp_path):
    for seed in range(3):
        make_run(tmp_path, "grpo", seed)
    for seed in range(1, 5):
        make_run(tmp_path, "oar-p", seed)
    paths = write_report(tmp_path, tmp_path / "report")
    pair = sheet(paths, "pairs").iloc[0]
    d = means(tmp_path, "oar-p", (1, 2)) - means(tmp_path, "grpo", (1, 2))
    assert pair["seeds"] == 2
    assert pair["difference"] == pytest.approx(d.mean())


def test_runs_without_timing_or_training_metrics_still_report(tmp_path):
    make_out(tmp_path, methods=("grpo", "oar-p"), seeds=(0, 1), example=False, start=False)
    for path in tmp_path.glob("runs/*/*/*.jsonl"):
        path.unlink()
    page = write_report(tmp_path, tmp_path / "report").markdown.read_text()
    assert "No run kept timings." in page
    assert "No run logged a training reward." in page


def test_majority_votes_are_in_every_table_and_absent_where_results_lack_them(out, tmp_path):
    folders = [out / "runs" / "oar-p" / f"seed-{s}" / "eval" / "arithmetic" for s in range(3)]
    found = [json.loads((f / "results.json").read_text())["metrics"]["maj@4"] for f in folders]
    expected = np.mean([m["value"] for m in found])
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    paths = write_report(copy, tmp_path / "report")
    frame = sheet(paths, "comparison").query("method == 'oar-p'").iloc[0]
    assert frame["maj@4"] == pytest.approx(expected)
    page = paths.markdown.read_text()
    assert shown(100 * expected) in cells(page, "arithmetic: by number of samples", "oar-p")
    assert "maj@4" in paths.html.read_text()
    for file in copy.rglob("results.json"):
        results = json.loads(file.read_text())
        del results["metrics"]["maj@4"], results["metrics"]["maj@2"]
        write_object(file, results)
    old = write_report(copy, tmp_path / "old")
    assert not re.search(r"maj@\d", old.markdown.read_text() + old.html.read_text())
