"""`oar-bench compare`: its numbers by hand, what it refuses, and how it is written."""

import io
import json
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from oar_bench.cli import main
from oar_bench.errors import InputError
from oar_bench.reporting.headtohead import head_to_head, names_of
from oar_bench.reporting.headtohead_text import as_csv, as_dict, as_markdown, plain
from tests.reporting.synthetic import make_evaluation, make_out, write_object, write_rows

P = np.linspace(0.1, 0.9, 60)


@pytest.fixture
def pair(tmp_path):
    """Two models on one task, the second better by far on every problem."""
    for name, shift, seed in (("base", 0.0, 1), ("tuned", 0.3, 2)):
        p = np.clip(P + shift, 0, 1)
        make_evaluation(tmp_path / name / "sum", "sum", p, np.random.default_rng(seed), 4, name)
    return tmp_path / "base", tmp_path / "tuned"


def means(folder):
    rows = [json.loads(line) for line in (folder / "scores.jsonl").open()]
    return pd.DataFrame(rows).groupby("problem")["correct"].mean()


def change(folder, **fields):
    """Set fields of results.json; a dotted name goes down."""
    results = json.loads((folder / "results.json").read_text())
    for name, value in fields.items():
        section, _, key = name.partition("__")
        results[section] = results.get(section, {}) | {key: value} if key else value
    write_object(folder / "results.json", results)


def test_the_numbers_are_scipys_and_counted_by_hand(pair):
    [meeting] = head_to_head(pair).meetings
    [duel] = meeting.duels
    a, b = means(pair[1] / "sum"), means(pair[0] / "sum")
    expected = stats.ttest_rel(a, b)
    assert (duel.pair.a, duel.pair.b) == ("tuned", "base")
    assert duel.pair.test.difference.value == pytest.approx((a - b).mean())
    assert duel.pair.p == pytest.approx(expected.pvalue)
    assert duel.pair.test.difference.low == pytest.approx(expected.confidence_interval().low)
    assert duel.wins == (a > b).sum()
    assert duel.losses == (a < b).sum()
    assert duel.ties == (a == b).sum()
    assert duel.word == "better"
    assert [s.place for s in meeting.standings] == ["behind", "best"]


def test_a_small_difference_is_tied_and_no_one_is_best(tmp_path):
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        make_evaluation(tmp_path / name, "sum", P, np.random.default_rng(seed), 4, name)
    found = head_to_head([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    [meeting] = found.meetings
    assert [(d.pair.a, d.pair.b) for d in meeting.duels] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert {d.word for d in meeting.duels} == {"tied"}
    assert {s.place for s in meeting.standings} == {"tied"}
    assert meeting.duels[0].pair.test.detectable > 0.03
    assert "tied" in plain(found)


def test_the_same_results_under_two_names_are_identical(pair):
    make_evaluation(pair[0].parent / "copy" / "sum", "sum", P, np.random.default_rng(1), 4, "x")
    [meeting] = head_to_head([pair[0], pair[0].parent / "copy"]).meetings
    assert meeting.duels[0].word == "identical"
    assert meeting.duels[0].ties == 60


def test_holm_goes_over_every_task_and_pair(tmp_path):
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        for task in ("sum", "digits"):
            rng = np.random.default_rng([seed, len(task)])
            make_evaluation(tmp_path / name / task, task, P, rng, 4, name)
    found = head_to_head([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert [m.task for m in found.meetings] == ["digits", "sum"]
    raw = [d.pair.test.p for m in found.meetings for d in m.duels]
    adjusted = [d.pair.p for m in found.meetings for d in m.duels]
    assert len(raw) == 6
    assert min(adjusted) == pytest.approx(min(1, 6 * min(raw)))


def test_methods_are_paired_by_training_seed(tmp_path):
    out = make_out(tmp_path, methods=("grpo", "oar-p"), example=False)
    found = head_to_head([out / "runs" / "grpo", out / "runs" / "oar-p"])
    [duel] = found.meetings[0].duels
    assert (duel.pair.a, duel.pair.b, duel.pair.seeds) == ("oar-p", "grpo", (0, 1, 2))
    d = np.stack([
        means(out / "runs" / "oar-p" / f"seed-{s}" / "eval" / "arithmetic")
        - means(out / "runs" / "grpo" / f"seed-{s}" / "eval" / "arithmetic") for s in range(3)
    ])  # fmt: skip
    assert duel.pair.test.difference.value == pytest.approx(d.mean())
    assert "two-way" in duel.pair.test.difference.method
    one = head_to_head([out / "start", out / "runs" / "grpo" / "seed-1"])
    assert one.meetings[0].standings[0].name == "start"


def test_one_run_is_paired_with_its_own_seed_and_a_start_with_every_seed(tmp_path):
    runs = make_out(tmp_path, methods=("grpo", "oar-p"), example=False) / "runs"
    grpo = [means(runs / "grpo" / f"seed-{s}" / "eval" / "arithmetic") for s in range(3)]
    one = means(runs / "oar-p" / "seed-1" / "eval" / "arithmetic")
    start = means(tmp_path / "start" / "eval" / "arithmetic")
    for path in (runs / "oar-p" / "seed-1", runs / "oar-p" / "seed-1" / "eval" / "arithmetic"):
        [duel] = head_to_head([runs / "grpo", path]).meetings[0].duels
        assert duel.pair.seeds == (1,)
        assert duel.pair.test.difference.value == pytest.approx((one - grpo[1]).mean())
    [duel] = head_to_head([tmp_path / "start", runs / "grpo"]).meetings[0].duels
    assert duel.pair.seeds == (0, 1, 2)
    assert duel.pair.test.difference.value == pytest.approx(np.mean([g - start for g in grpo]))
    (runs / "oar-p" / "seed-2").rename(runs / "oar-p" / "seed-7")
    (runs / "oar-p" / "seed-1").rename(runs / "oar-p" / "seed-8")
    (runs / "oar-p" / "seed-0").rename(runs / "oar-p" / "seed-9")
    with pytest.raises(InputError, match="no training seed in common"):
        head_to_head([runs / "grpo", runs / "oar-p"])


@pytest.mark.parametrize(
    ("fields", "name", "allow"),
    [
        ({"fingerprints__grader": "g2"}, "fingerprints.grader", "grader"),
        ({"fingerprints__data": "d2"}, "fingerprints.data", "data"),
        ({"settings__temperature": 0.6}, "settings.temperature", "temperature"),
        ({"settings__sampling": {"top_p": 0.9}}, "settings.sampling.top_p", "sampling"),
    ],
)
def test_unlike_results_are_refused_by_field_and_compared_on_demand(pair, fields, name, allow):
    if "settings__sampling" in fields:
        change(pair[0] / "sum", settings__sampling={"top_p": 1.0})
    change(pair[1] / "sum", **fields)
    with pytest.raises(InputError, match=rf"unlike runs: {name} is") as error:
        head_to_head(pair)
    assert f"--allow {name}" in str(error.value)
    assert "tuned" in str(error.value)
    [note] = head_to_head(pair, [allow]).allowed
    assert note.startswith(name)


def test_a_misspelt_allow_is_refused(pair):
    with pytest.raises(InputError, match="did you mean 'grader'"):
        head_to_head(pair, ["greder"])


def test_rows_of_another_grader_are_refused_by_row_and_field(pair):
    file = pair[1] / "sum" / "scores.jsonl"
    rows = [json.loads(line) | {"grader": "g1"} for line in file.open()]
    rows[6]["grader"] = "g2"
    write_rows(file, rows)
    with pytest.raises(InputError, match=r"scores\.jsonl: row 7: grader is g2, not g1"):
        head_to_head(pair)
    assert head_to_head(pair, ["grader"]).meetings


def write_problems(folder, n, prompt="Compute {}"):
    write_rows(folder / "problems.jsonl", [
        {"schema": 1, "problem": f"p{i:04d}", "prompt": prompt.format(i), "gold": "4"}
        for i in range(n)
    ])  # fmt: skip


def test_other_problems_are_paired_on_demand_and_only_those_in_common(tmp_path, pair):
    few, base = tmp_path / "few", pair[0] / "sum"
    make_evaluation(few, "sum", P[:50], np.random.default_rng(5), 4, "few",
                    {"data": "d50", "prompt": "p50"})  # fmt: skip
    change(few, settings__problems=50)
    change(base, settings__problems=60)
    with pytest.raises(
        InputError, match=r"other problems than base.*50 here, 60 there, 50 in"
    ) as e:
        head_to_head([pair[0], few])
    assert "--allow problems" in str(e.value)
    for folder in (few, base):
        (folder / "problems.jsonl").unlink()
    with pytest.raises(InputError, match=r"fingerprints\.data"):  # can't be checked one by one
        head_to_head([pair[0], few], ["problems"])
    write_problems(few, 50)
    write_problems(base, 60)
    found = head_to_head([pair[0], few], ["problems"])
    [meeting] = found.meetings
    a, b = means(few), means(base).iloc[:50]
    assert meeting.problems == 50
    assert meeting.duels[0].pair.test.difference.value == pytest.approx((a - b).mean())
    assert meeting.duels[0].pair.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
    rows = [json.loads(line) for line in (base / "samples.jsonl").open()][:200]
    assert meeting.standings[0].tokens == np.mean([row["response_tokens"] for row in rows])
    assert found.allowed == ["problems: 60 in base/sum, 50 in few; compared on the 50 in common"]
    assert "compared on demand: problems" in plain(found)
    rows = [json.loads(line) | {"level": "3"} for line in (few / "problems.jsonl").open()]
    write_rows(few / "problems.jsonl", rows)  # a label is neither asked nor graded
    assert head_to_head([pair[0], few], ["problems"]).meetings[0].problems == 50
    write_problems(few, 50, "Please compute {}")
    with pytest.raises(InputError, match="'p0000' has another prompt or gold than in base"):
        head_to_head([pair[0], few], ["problems"])


def test_no_problem_in_common_is_refused_whatever_is_allowed(tmp_path, pair):
    rows = (pair[0] / "sum" / "scores.jsonl").read_text()
    make_evaluation(tmp_path / "other", "sum", P, np.random.default_rng(1), 4, "other")
    (tmp_path / "other" / "scores.jsonl").write_text(rows.replace('"p0', '"q0'))
    with pytest.raises(InputError, match="0 in common") as error:
        head_to_head([pair[0], tmp_path / "other"])
    assert "--allow" not in str(error.value)
    with pytest.raises(InputError, match="no problem in common"):
        head_to_head([pair[0], tmp_path / "other"], ["problems"])


def test_a_probe_is_no_evaluation(pair):
    for folder in pair:
        write_object(folder / "sum.probe-partial-0.6" / "results.json",
                     {"schema": 1, "kind": "probe", "task": "sum", "metrics": {}})  # fmt: skip
    found = head_to_head(pair)
    assert [m.task for m in found.meetings] == ["sum"]
    assert len(found.left_out) == 2
    assert found.left_out[0].startswith("base/sum.probe-partial-0.6: this is a contamination probe")
    with pytest.raises(InputError, match="contamination probe, not an evaluation"):
        head_to_head([folder / "sum.probe-partial-0.6" for folder in pair])


def test_two_engines_are_compared_on_demand(pair):
    change(pair[0] / "sum", fingerprints__engine="hf")
    change(pair[1] / "sum", fingerprints__engine="vllm")
    with pytest.raises(InputError, match=r"fingerprints\.engine is hf in base.* but vllm in tuned"):
        head_to_head(pair)
    [note] = head_to_head(pair, ["engine"]).allowed
    assert note.startswith("fingerprints.engine is hf")


def test_one_training_seed_speaks_of_checkpoints_several_of_methods(pair, tmp_path):
    found = head_to_head(pair)
    assert "better (checkpoint)" in plain(found)
    assert "hold for these checkpoints, not for the methods" in plain(found)
    assert as_dict(found)["tasks"][0]["pairs"][0]["holds_for"] == "checkpoints"
    for method, shift in (("a", 0.0), ("b", 0.3)):
        for seed in (0, 1, 2):
            make_evaluation(tmp_path / method / f"seed-{seed}" / "eval" / "sum", "sum",
                            np.clip(P + shift, 0, 1), np.random.default_rng([seed, len(method)]),
                            4, method)  # fmt: skip
    found = head_to_head([tmp_path / "a", tmp_path / "b"])
    assert found.meetings[0].duels[0].word == "better"
    assert "checkpoint" not in plain(found)
    assert as_dict(found)["tasks"][0]["pairs"][0]["holds_for"] == "methods"


def test_more_samples_are_compared_when_allowed(tmp_path, pair):
    make_evaluation(tmp_path / "many", "sum", P, np.random.default_rng(5), 16, "many")
    change(pair[0] / "sum", settings__samples=4)
    change(tmp_path / "many", settings__samples=16)
    with pytest.raises(InputError, match=r"settings\.samples is 4 in base/sum but 16 in many"):
        head_to_head([pair[0], tmp_path / "many"])
    assert head_to_head([pair[0], tmp_path / "many"], ["samples"]).meetings[0].duels


def test_a_task_that_only_one_has_is_left_out_and_said(pair):
    make_evaluation(pair[0] / "digits", "digits", P, np.random.default_rng(4), 4, "base")
    found = head_to_head(pair)
    assert [m.task for m in found.meetings] == ["sum"]
    assert found.left_out == ["digits: tuned has no results"]


def test_an_unfinished_evaluation_is_refused(pair):
    change(pair[1] / "sum", complete=False)
    with pytest.raises(InputError, match="unfinished"):
        head_to_head(pair)


def test_names_are_what_differs(tmp_path):
    assert names_of([tmp_path / "a", tmp_path / "a" / "b"]) == ["a", "b"]
    with pytest.raises(InputError, match="given twice"):
        names_of([tmp_path / "a", tmp_path / "b", tmp_path / "c" / ".." / "a"])


def test_markdown_and_csv_hold_the_same_numbers(pair):
    found = head_to_head(pair)
    frame = pd.read_csv(io.StringIO(as_csv(found)))
    [duel] = found.meetings[0].duels
    assert frame.loc[0, "difference"] == duel.pair.test.difference.value
    assert frame.loc[0, "wins"] == duel.wins
    page = as_markdown(found)
    assert f"| {duel.wins} | {duel.losses} | {duel.ties} |" in page
    for text in (page, plain(found)):
        assert "truncated, %" in text
        assert "no answer, %" in text
    assert as_dict(found)["tasks"][0]["pairs"][0]["wins"] == duel.wins


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["oar-bench", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        main()
    captured = capsys.readouterr()
    return int(exit.value.code or 0), captured.out, captured.err


def test_the_command(pair, tmp_path, monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "compare", *pair, "--out", tmp_path / "t.md")
    assert code == 0
    assert "tuned against base" in out
    assert (tmp_path / "t.md").read_text().startswith("# Comparison")
    code, out, _ = call(monkeypatch, capsys, "compare", *pair, "--json")
    assert json.loads(out)["tasks"][0]["pairs"][0]["verdict"] == "better"
    change(pair[1] / "sum", fingerprints__grader="g2")
    for arguments, said in (
        (pair, "fingerprints.grader"),
        (pair[:1], "two or more"),
        ((pair[0], tmp_path / "nowhere"), "no such folder"),
        ((pair[0], tmp_path), "no scored evaluation here"),
        ((*pair, "--out", tmp_path / "t.pdf"), ".md or .csv"),
        ((*pair, "--allow", "colour"), "no field is called 'colour'"),
    ):
        code, out, err = call(monkeypatch, capsys, "compare", *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert said in err
    assert call(monkeypatch, capsys, "compare", *pair, "--allow", "grader")[0] == 0
