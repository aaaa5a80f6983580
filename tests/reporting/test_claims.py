"""Verdicts on claims in reports and on the command line: what is evidence, and how it is told."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from oar_bench import cli
from oar_bench.errors import InputError
from oar_bench.reporting import write_report
from oar_bench.reporting.claims_run import judge_runs
from tests.reporting.synthetic import (
    HOSTILE,
    SETTINGS,
    make_evaluation,
    make_out,
    make_run,
    write_object,
)
from tests.reporting.test_report import means

SIZED = {**SETTINGS, "model": {"path": None, "layers": 3, "hidden": 96, "heads": 4,
                               "intermediate": 256}}  # fmt: skip


def by_title(verdicts):
    return {" ".join(filter(None, (v.row.claim.id, v.row.test.name))): v for v in verdicts}


def write_fidelity(folder, model="st1", problems=20, **changes):
    """A fidelity.json: oar-g ranks at about .3, oar-d at about .95."""
    rng = np.random.default_rng(5)
    responses = [
        {"problem": f"p{i}", "sample": k, "methods": {
            "oar-p": {"spearman": 1.0},
            "oar-g": {"spearman": 0.3 + float(rng.normal(0, 0.05))},
            "oar-d": {"spearman": 0.95 + float(rng.normal(0, 0.01)) if i else None},
            "position": {"spearman": 0.35},
        }}
        for i in range(problems)
        for k in range(2)
    ]  # fmt: skip
    about = {"schema": 1, "kind": "fidelity", "model": "ckpt", "source": "responses to arithmetic",
             "responses": responses, "settings": {"pfinal": "answer_mean", "q": 0.1},
             "fingerprints": {"model": model}}  # fmt: skip
    write_object(folder / "fidelity.json", {**about, **changes})
    return folder


def write_overhead(folder, ratio=1.3, model="x", credit=None, **changes):
    """An overhead.json at two lengths, two phases a step."""
    rows = []
    for repeat in range(6):
        for length in (32, 64):
            drift = 1 + 0.2 * repeat
            for method, seconds, flops in (("grpo", 0.0, 0), ("oar-g", ratio - 1, 40),
                                           ("oar-p", 2.0, 200), ("oar-d", 0.6, 60)):  # fmt: skip
                noise = 1 + 0.001 * ((repeat * ord(method[-1])) % 5)
                for phase, s, n in (("rollout", 1.0, 100), ("credit", seconds, flops)):
                    rows.append({"repeat": repeat, "length": length, "method": method,
                                 "phase": phase, "seconds": s * drift * noise,
                                 "tokens": 8, "peak_memory_mb": 1.0,
                                 "flops": n if repeat == 0 else None})  # fmt: skip
    about = {"schema": 1, "kind": "overhead", "model": "tiny", "rows": rows,
             "settings": {"model": "tiny", "recipe": "tiny"},
             "recipe": {"model": SIZED["model"], "credit": credit or {"noise_draws": 1}},
             "fingerprints": {"model": model}}  # fmt: skip
    write_object(folder / "overhead.json", {**about, **changes})
    return folder


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """OUT with everything measured."""
    out = make_out(tmp_path_factory.mktemp("claims") / "OUT", example=False, settings=SIZED)
    write_fidelity(out / "fidelity")
    write_overhead(out / "overhead")
    return out


def test_the_scores_verdict_is_that_of_an_independent_computation(out):
    found = by_title(judge_runs(out).verdicts)["C2"]
    d = means(out, "oar-g") - means(out, "grpo")
    s, p = d.shape
    over_seeds = d.mean(axis=1).std(ddof=1) / np.sqrt(s)
    against = stats.t.sf((0.01 - d.mean()) / over_seeds, s - 1)
    assert found.row.effect.value == pytest.approx(d.mean())
    assert found.row.p_against >= against - 1e-12  # the larger of the two ways
    assert (found.row.count, found.row.problems) == (s, p)


def test_every_claim_is_judged_by_what_lies_beside_the_runs(measured):
    found = by_title(judge_runs(measured).verdicts)
    assert {name: v.word for name, v in found.items() if name not in ("C1", "C2", "C3")} == {
        "C4 wall clock": "contradicted", "C4 operations": "contradicted", "C5": "supported",
        "C6": "contradicted", "C7 ranks": "supported", "C7 wall clock": "supported",
        "C7 operations": "supported",
    }  # fmt: skip
    assert found["C4 operations"].row.effect.value == pytest.approx(1.4)
    assert found["C4 wall clock"].row.effect.value == pytest.approx(1.3, abs=0.01)
    assert found["C7 operations"].row.effect.value == pytest.approx(0.3)
    assert found["C6"].row.beside == "position alone 0.35"
    assert found["C6"].row.count == 20
    assert found["C7 ranks"].row.count == 19  # a problem without a rank is none
    assert found["C4 wall clock"].row.on == "overhead of tiny"


def test_without_measurements_training_times_are_used_and_the_rest_is_not_tested(out):
    found = by_title(judge_runs(out).verdicts)
    assert found["C4 wall clock"].row.on == "in training"
    ratio = pd.Series(
        [steps(out, "oar-g", s) / steps(out, "grpo", s) for s in range(3)]
    )  # (1 + .22 / .47) or so
    assert found["C4 wall clock"].row.effect.value == pytest.approx(np.exp(np.log(ratio).mean()))
    for name in ("C4 operations", "C6", "C7 ranks", "C7 operations"):
        assert found[name].word == "not tested"
    assert found["C6"].row.command == (
        "oar-bench credit fidelity OUT/runs/grpo/seed-0/checkpoints/step-000030 --task arithmetic "
        "--recipe tiny --problems 64 --out OUT/fidelity --method oar-g"
    )


def test_the_command_for_costs_takes_the_sizes_of_the_runs_own_steps(tmp_path):
    train = {"prompts_per_step": 16, "group_size": 8, "max_new_tokens": 58, "steps": 30}
    out = make_out(tmp_path, methods=("grpo",), seeds=(0,), problems=5, steps=2, example=False,
                   settings={**SETTINGS, "train": train})  # fmt: skip
    assert by_title(judge_runs(out).verdicts)["C4 operations"].row.command == (
        "oar-bench overhead tiny --lengths 29,58 --prompts 16 --group-size 8 --out OUT/overhead "
        "--methods grpo,oar-g"
    )


def steps(out, method, seed):
    path = out / "runs" / method / f"seed-{seed}" / "timing.jsonl"
    frame = pd.DataFrame([json.loads(line) for line in path.open()])
    frame = frame[(frame["step"] > 1) & (frame["phase"] != "checkpoint")]
    return frame.groupby("step")["seconds"].sum().median()


def test_the_section_comes_first_and_says_the_same_in_both_pages(measured, tmp_path):
    paths = write_report(measured, tmp_path)
    markdown, html = paths.markdown.read_text(), paths.html.read_text()
    assert re.findall(r"^## (.*)$", markdown, re.M)[0] == "Verdicts on the claims"
    assert re.findall(r"<h2>(.*?)</h2>", html)[0] == "Verdicts on the claims"
    frame = pd.read_csv(tmp_path / "tables" / "claims.csv", keep_default_na=False)
    rows = [line for line in markdown.splitlines() if re.match(r"\| C\d", line)]
    tags = re.findall(r'<span class="tag (supported|contradicted|inconclusive|not-tested)">', html)
    assert tags == [word.replace(" ", "-") for word in frame["verdict"]]
    assert len(rows) == len(frame)
    for row, (_, verdict) in zip(rows, frame.iterrows(), strict=True):
        assert row.startswith(f"| {verdict['claim']}")
        assert f"| {verdict['verdict']} |" in row
    for page in (markdown, html):
        assert "refutes nothing at another scale" in page
        assert "Contradicted: " in page or "contradicted: " in page
    assert "claims.tex" in {path.name for path in (tmp_path / "tables").iterdir()}
    tex = (tmp_path / "tables" / "claims.tex").read_text()
    assert tex.count(r" \\") == len(frame) + 1
    assert r"\midrule" in tex
    assert "at most 10 \\% more" in tex


def test_verdicts_name_what_would_settle_them(out, tmp_path):
    page = write_report(out, tmp_path).markdown.read_text()
    assert re.search(r"C1: .*about \d+ paired seeds in all would settle it", page)
    assert "to test it: `oar-bench overhead tiny" in page


def test_the_command_prints_the_same_as_json(measured, capsys):
    printed = call(["claims", str(measured), "--json"], capsys)
    found = json.loads(printed)
    verdicts = judge_runs(measured).verdicts
    assert [row["verdict"] for row in found["verdicts"]] == [v.word for v in verdicts]
    assert sum(found["counts"].values()) == len(verdicts)
    assert found["alpha"] == 0.05
    text = call(["claims", str(measured)], capsys)
    for verdict in verdicts:
        assert verdict.row.claim.says in text
    assert "refutes nothing at another scale" in text


def call(words, capsys, monkeypatch=None):
    before = sys.argv
    sys.argv = ["oar-bench", *words]
    try:
        with pytest.raises(SystemExit) as done:
            cli.main()
    finally:
        sys.argv = before
    assert done.value.code == 0
    return capsys.readouterr().out


def test_claims_of_ones_own(measured, tmp_path):
    spec = tmp_path / "mine.yaml"
    spec.write_text("claims: [{id: X, says: mine, source: me, tests: [{test: cost, of: oar-d, "
                    "over: grpo, phase: step, in: operations, at_most: 1.7}]}]")  # fmt: skip
    [verdict] = judge_runs(measured, claims=spec).verdicts
    assert (verdict.word, verdict.row.effect.value) == ("supported", 1.6)


def test_evidence_of_another_model_is_refused_when_named_and_left_out_when_found(out, tmp_path):
    other = write_fidelity(tmp_path / "fid", model="other")
    with pytest.raises(InputError, match=r"evidence\.model is other in fid/fidelity\.json"):
        judge_runs(out, evidence=[other])
    taken = judge_runs(out, ["evidence.model"], [other])
    assert by_title(taken.verdicts)["C6"].word == "contradicted"
    assert taken.allowed == ["evidence.model is other in fid/fidelity.json but none of theirs in "
                             "the runs"]  # fmt: skip
    copy = make_out(tmp_path / "OUT", methods=("grpo",), seeds=(0,), problems=5, example=False)
    write_fidelity(copy / "fid", model="other")
    found = judge_runs(copy)
    assert by_title(found.verdicts)["C6"].word == "not tested"
    assert "unlike the runs: evidence.model" in found.collection.left_out[0].reason


def test_evidence_under_other_credit_settings_is_refused_by_name(measured, tmp_path):
    settings = {**SIZED, "credit": {**SIZED["credit"], "noise_draws": 1}}
    out = make_out(tmp_path / "OUT", methods=("grpo", "oar-g"), settings=settings, example=False)
    more = write_overhead(tmp_path / "o", credit={"noise_draws": 8})
    with pytest.raises(InputError, match=r"evidence\.credit\.noise_draws is 8 in o/.* but 1 in"):
        judge_runs(out, evidence=[more])
    judge_runs(out, evidence=[write_overhead(tmp_path / "same")])


def test_costs_of_a_checkpoint_count_only_for_its_own_runs(measured, tmp_path):
    settings = {"settings": {"model": "ckpt", "recipe": "defaults"}}
    with pytest.raises(InputError, match=r"evidence\.model"):
        judge_runs(measured, evidence=[write_overhead(tmp_path / "a", **settings)])
    judge_runs(measured, evidence=[write_overhead(tmp_path / "b", model="m-grpo-0", **settings)])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"responses": [{"problem": "p"}]}, "not as oar-bench writes it"),
        ({"responses": None}, "not as oar-bench writes it"),
        ({"fingerprints": None}, r"evidence\.model is None"),
    ],
)
def test_broken_evidence_is_told_in_one_line(out, tmp_path, damage, said):
    with pytest.raises(InputError, match=said) as caught:
        judge_runs(out, evidence=[write_fidelity(tmp_path / "fid", **damage)])
    assert "\n" not in str(caught.value)


def test_a_folder_without_evidence_is_refused(out, tmp_path):
    with pytest.raises(InputError, match=r"no overhead\.json or fidelity\.json here"):
        judge_runs(out, evidence=[tmp_path])


def test_hostile_names_in_evidence_are_text(tmp_path):
    out = make_out(tmp_path / "OUT", methods=("grpo", "oar-g"), settings=SIZED, problems=20,
                   example=False)  # fmt: skip
    write_fidelity(out / "fid", source="".join(HOSTILE))
    write_overhead(out / "over", **{"model": HOSTILE[0] + HOSTILE[1]})
    paths = write_report(out, tmp_path / "report")
    html = paths.html.read_text()
    assert "<script>alert" not in html
    assert "<img src=http" not in html
    for path in (paths.html, paths.markdown, *paths.tables):
        text = path.read_text()
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_reported_numbers_stand_beside_those_of_the_same_model_and_task(tmp_path):
    settings = {**SETTINGS, "model": {"path": "/models/Qwen2.5-Math-7B"}}
    for seed in range(2):
        folder = make_run(tmp_path, "grpo", seed, settings=settings, evaluate=False)
        make_evaluation(folder / "eval/oar_math500", "oar_math500", [0.6] * 20,
                        np.random.default_rng(seed), model=f"g{seed}")  # fmt: skip
    paths = write_report(tmp_path, tmp_path / "report")
    for page in (paths.markdown.read_text(), paths.html.read_text()):
        table = page.partition("what others reported with Qwen2.5-Math-7B")[2]
        table = table.partition("no finding")[0]
        assert "measured here" in table
        assert "2 training seeds" in table
        assert "SimpleRL-Zoo, README" in table
        assert "63.6 (pass@1)" in table
        assert "not stated" in table
        assert "83.8" not in table  # the index names no model
        assert "medium: The authors' own" in table.replace("&#39;", "'")


def test_nothing_is_reported_beside_a_model_made_here(measured, tmp_path):
    assert "what others reported" not in write_report(measured, tmp_path).markdown.read_text()
