"""The report's budget curves and its numbers by k, its words on one seed, its list of commands."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oar_bench.evaluation import metrics
from oar_bench.reporting import write_report
from oar_bench.reporting.budgets import at_caps, common_caps
from tests.reporting.synthetic import make_out, make_run, write_object
from tests.reporting.test_report import cells, sheet, shown


@pytest.mark.parametrize(("seeds", "cell"), [((0,), "better (one seed)"), ((0, 1, 2, 3), "better")])
def test_a_difference_over_one_seed_is_worded_as_one_of_checkpoints(tmp_path, seeds, cell):
    for method, shift in (("grpo", 0.0), ("oar-p", 0.2), ("shuffled", 0.0)):
        for seed in seeds:
            make_run(tmp_path, method, seed, shift=shift, seed_sd=0.005, problems=150)
    paths = write_report(tmp_path, tmp_path / "report")
    page = paths.markdown.read_text()
    assert cells(page, "score and paired difference to grpo", "oar-p")[7] == cell
    verdict, one = page.partition("## Comparison")[0], len(seeds) == 1
    for weak in ("one checkpoint that scores better than grpo's", "one seed can't tell whether",
                 "holds for these checkpoints, not for the methods"):  # fmt: skip
        assert (weak in verdict) == one
    for strong in (": better than grpo.", ": where the weights lie matters."):
        assert (strong in verdict) != one
    frame = sheet(paths, "pairs").query("a == 'oar-p'")
    assert set(frame["holds_for"]) == {"checkpoints" if one else "methods"}


def test_every_command_of_a_reproduction_is_listed_with_what_it_added(tmp_path):
    out = make_out(tmp_path, methods=("grpo", "oar-p"), seeds=(0, 1), example=False)
    about = json.loads((out / "reproduce.json").read_text())
    commands = [
        {"command": about.pop("command"), "methods": ["grpo"], "seeds": [0, 1]},
        {"command": "oar-bench reproduce tiny --methods oar-p", "methods": ["oar-p"], "seeds": []},
    ]
    write_object(out / "reproduce.json", {**about, "commands": commands})
    page = write_report(out, tmp_path / "report").markdown.read_text()
    assert (
        "oar-bench reproduce tiny --out OUT\n"
        "oar-bench reproduce tiny --methods oar-p  # added method oar-p\n"
        "oar-bench report OUT"
    ) in page


def lengths(out, method, seed):
    """(N,) whether each sample is right, and its tokens; read anew and without the package."""
    folder = out / "runs" / method / f"seed-{seed}" / "eval" / "arithmetic"
    read = [pd.DataFrame([json.loads(line) for line in (folder / name).open()])
            for name in ("scores.jsonl", "samples.jsonl")]  # fmt: skip
    both = read[0].merge(read[1], on=["problem", "sample"])
    return both["correct"].to_numpy(bool), both["response_tokens"].to_numpy()


def test_the_budget_curve_is_that_of_the_rows_under_each_seed(out, report):
    frame = sheet(report, "budget").query("method == 'oar-p'")
    assert list(frame["cap"]) == [32, 57]  # responses of 30 to 57 tokens
    for seed in range(3):
        right, tokens = lengths(out, "oar-p", seed)
        expected = [(right & (tokens <= cap)).mean() for cap in frame["cap"]]
        assert list(frame[f"seed {seed}"]) == pytest.approx(expected)
    assert list(frame["mean"]) == pytest.approx(frame[[f"seed {s}" for s in range(3)]].mean(axis=1))
    page = report.markdown.read_text()
    row = cells(page, "arithmetic: by token cap", "oar-p")
    assert row[1:] == [shown(100 * share) for share in frame["mean"]]
    assert row[-1] == cells(page, "score and paired difference to grpo", "oar-p")[2]
    for name in ("budget.svg", "samples.svg"):
        assert f"figures/{name}" in page
        [drawn] = [path for path in report.figures if path.name == name]
        for method in ("start", "grpo", "oar-p", "oar-g", "shuffled"):
            assert f">{method}<" in drawn.read_text()


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(1, 300)), min_size=1), min_size=1),
       st.integers(300, 400))  # fmt: skip
def test_curves_of_unlike_caps_are_read_at_common_ones_without_error(runs, cap):
    curves, rows = [], []
    for run in runs:
        right, tokens = np.array([r for r, _ in run]), np.array([t for _, t in run])
        caps = metrics.budget_caps(tokens, cap)
        curves.append(metrics.budget_curve(right, tokens, caps))
        rows.append((right, tokens))
    caps = common_caps(curves)
    assert caps[-1] == cap
    for points, (right, tokens) in zip(curves, rows, strict=True):
        expected = [(right & (tokens <= c)).mean() for c in caps]
        assert at_caps(points, caps) == pytest.approx(expected)


def test_every_k_has_pass_and_majority_and_one_sample_has_neither(tmp_path, out, report):
    row = cells(report.markdown.read_text(), "arithmetic: by number of samples", "method")
    assert row[1:6] == ["pass@1, %", "pass@2, %", "pass@4, %", "maj@2, %", "maj@4, %"]
    maj = [json.loads((f / "results.json").read_text())["metrics"]["maj@2"]["value"]
           for f in sorted((out / "runs" / "grpo").glob("*/eval/arithmetic"))]  # fmt: skip
    frame = sheet(report, "comparison").query("method == 'grpo'").iloc[0]
    assert frame["maj@2"] == pytest.approx(np.mean(maj))
    make_out(tmp_path, methods=("grpo",), samples=1, example=False)
    paths = write_report(tmp_path, tmp_path / "report")
    assert "by number of samples" not in paths.markdown.read_text() + paths.html.read_text()
    assert "samples.svg" not in [path.name for path in paths.figures]
    assert "budget.svg" in [path.name for path in paths.figures]


def test_results_from_before_the_budget_curve_have_none(tmp_path):
    make_out(tmp_path, methods=("grpo",), seeds=(0,), example=False)
    for file in tmp_path.rglob("results.json"):
        results = json.loads(file.read_text())
        del results["metrics"]["budget"]
        write_object(file, results)
    paths = write_report(tmp_path, tmp_path / "report")
    assert "token cap" not in paths.markdown.read_text() + paths.html.read_text()
