"""`oar-bench check` on made reproductions: what passes, what is caught, what is refused by name."""

import json
import shutil

import numpy as np
import pytest

from oar_bench.errors import InputError
from oar_bench.regression.baseline import read_baseline, write_baseline
from oar_bench.regression.check import check
from oar_bench.regression.limits import limits_of
from oar_bench.regression.snapshot import take
from tests.regression.made import again, change, out, redraw, slower
from tests.reporting.synthetic import make_evaluation, write_rows


def held(kept, folder, allow=(), **limits):
    return check(read_baseline(kept), take(folder, allow), limits_of(limits), 0.05, allow)


def of(outcome, metric, method):
    return next(c for c in outcome.checks if (c.metric, c.method) == (metric, method))


def test_the_same_run_passes_everything_as_identical(base, kept, tmp_path):
    found = held(kept, again(base, tmp_path / "again"))
    assert (found.verdict, found.code) == ("pass", 0)
    assert len(found.checks) == 4 * 3 + 1 + 2  # with the start; one step ratio; two peaks
    assert all(c.identical or c.metric == "memory" for c in found.checks)
    assert found.notes == ()


def test_a_redrawn_run_passes_under_a_margin_that_it_can_tell(base, kept, tmp_path):
    folder = redraw(again(base, tmp_path / "again"))
    sizes = {"drop": "25pp", "truncated": "25pp", "no-answer": "25pp", "tokens": "25%"}
    found = held(kept, folder, **sizes)
    assert found.code == 0, [c for c in found.checks if c.verdict != "pass"]
    few = held(kept, folder, **{**sizes, "drop": "0.1pp"})
    assert (few.verdict, few.code) == ("too little data", 2)
    worst = of(few, "drop", "oar-p")
    assert 0.02 < worst.detectable < 0.5
    assert worst.low < worst.change < worst.high


def test_the_numbers_are_those_of_the_files(base, kept, tmp_path):
    folder = redraw(again(base, tmp_path / "again"), shift=-0.1)
    found = of(held(kept, folder), "drop", "oar-p")

    def mean(where, key):
        files = sorted((where / "runs" / "oar-p").glob("seed-*/eval/arithmetic/results.json"))
        every = [json.loads(path.read_text())["metrics"][key] for path in files]
        return np.mean([v["value"] if key == "avg@k" else v for v in every])

    assert found.before == pytest.approx(mean(base, "avg@k"))
    assert found.now == pytest.approx(mean(folder, "avg@k"))
    assert found.change == pytest.approx(found.now - found.before)
    assert found.seeds == (0, 1, 2)
    for metric, key in (("truncated", "truncated"), ("no-answer", "no_answer"),
                        ("tokens", "response_tokens")):  # fmt: skip
        assert of(held(kept, folder), metric, "oar-p").now == pytest.approx(mean(folder, key))


def test_a_large_loss_of_one_method_is_caught_and_named(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    redraw_one = tmp_path / "other"
    redraw(again(base, redraw_one), shift=-0.5)
    shutil.rmtree(folder / "runs" / "oar-p")
    shutil.copytree(redraw_one / "runs" / "oar-p", folder / "runs" / "oar-p")
    found = held(kept, folder)
    assert (found.verdict, found.code) == ("regression", 1)
    worst = of(found, "drop", "oar-p")
    assert worst.verdict == "regression"
    assert worst.lost[0].startswith("p0")
    assert of(found, "drop", "grpo").verdict == "pass"


@pytest.mark.parametrize("field", ["task", "data", "prompt", "sampling", "grader"])
def test_each_fingerprint_that_differs_is_named_and_can_be_allowed(base, kept, tmp_path, field):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("**/results.json"):
        change(path, **{f"fingerprints__{field}": "other"})
    found = held(kept, folder)
    assert (found.verdict, found.code, found.checks) == ("unlike", 2, ())
    [line] = found.unlike
    assert line.startswith(f"fingerprints.{field} is ")
    assert f"--allow fingerprints.{field}" in line
    told = held(kept, folder, allow=[field])
    assert told.code == 0
    assert [n for n in told.notes if n.startswith(f"unlike, allowed: fingerprints.{field}")]


def test_a_replay_beside_a_run_that_samples_is_held_to_all_but_its_step_time(tmp_path):
    folder, kept = out(tmp_path / "OUT"), tmp_path / "kept.json"
    for path in folder.glob("runs/oar-p/*/run.json"):
        change(path, fingerprints__rollouts="r1")
    with pytest.raises(InputError, match=r"add --allow fingerprints\.rollouts"):
        take(folder)
    write_baseline(kept, take(folder, ["rollouts"]), "made", {}, None)
    found = held(kept, folder, allow=["fingerprints.rollouts"])
    assert (found.code, len(found.checks)) == (0, 4 * 3 + 2)
    assert "step-time" not in {c.metric for c in found.checks}


def test_a_setting_of_sampling_is_named_by_itself(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("**/results.json"):
        change(path, settings__temperature=0.6)
    assert held(kept, folder).unlike[0].startswith("settings.temperature is 1.0 in the baseline")


def test_another_start_is_unlike_and_when_allowed_not_checked_itself(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("runs/*/*/run.json"):
        change(path, fingerprints__start="st2")
    change(folder / "start" / "eval" / "arithmetic" / "results.json", fingerprints__model="m-other")
    assert held(kept, folder).unlike[0].startswith("fingerprints.start is st1 in the baseline")
    found = held(kept, folder, allow=["start"])
    assert found.code == 0
    assert "start" not in {c.method for c in found.checks}
    assert any("the start is another model" in note for note in found.notes)


def test_other_problems_are_unlike_whatever_is_allowed(base, kept, tmp_path):
    folder = out(tmp_path / "few", problems=50)
    found = held(kept, folder, allow=["problems", "data"])
    assert found.code == 2
    assert found.unlike[0].startswith("problems is 60 (")
    assert "--allow" not in found.unlike[0]


def test_changed_training_is_told_and_not_refused(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("runs/*/*/run.json"):
        change(path, settings__train__lr=0.001)
    found = held(kept, folder)
    assert found.code == 0
    assert "settings" not in " ".join(found.unlike)
    assert "train.lr is 0.0003 in the baseline but 0.001 here" in found.notes


def test_a_result_that_is_gone_keeps_a_reproduction_from_passing(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    change(folder / "runs" / "oar-p" / "seed-1" / "run.json", status="running")
    found = held(kept, folder)
    assert (found.verdict, found.code) == ("unlike", 2)
    assert found.missing[0] == "oar-p, seed 1 has no finished result on arithmetic"
    assert "training is unfinished" in found.missing[1]
    told = held(kept, folder, allow=["missing"])
    assert told.code == 0
    assert of(told, "drop", "oar-p").seeds == (0, 2)


def test_a_new_method_is_said_not_to_be_checked(base, kept, tmp_path):
    folder = out(tmp_path / "more", methods=("grpo", "oar-p", "shuffled"))
    found = held(kept, folder)
    assert "not in the baseline, not checked: shuffled on arithmetic" in found.notes
    assert found.code == 0


def test_a_new_seed_of_an_old_method_is_named(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    shutil.rmtree(folder / "runs" / "oar-p" / "seed-2")
    fewer = tmp_path / "fewer.json"
    write_baseline(fewer, take(folder), "two seeds of one", {}, None)
    found = held(fewer, base)
    assert "not in the baseline, not checked: oar-p, seed 2 on arithmetic" in found.notes
    assert of(found, "drop", "oar-p").seeds == (0, 1)


def test_one_run_and_one_evaluation_are_checked_against_their_own_seed(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in (folder / "runs/oar-p/seed-1", folder / "runs/oar-p/seed-1/eval/arithmetic"):
        found = held(kept, path)
        assert found.code == 0
        assert {c.method for c in found.checks} == {"oar-p"}
        assert {c.seeds for c in found.checks} == {(1,)}
    whole = held(kept, folder / "runs" / "oar-p")
    assert {c.seeds for c in whole.checks} == {(0, 1, 2)}


def test_a_bare_evaluation_matches_a_baseline_of_one(tmp_path):
    p = np.linspace(0.1, 0.9, 80)
    make_evaluation(tmp_path / "a" / "sum", "sum", p, np.random.default_rng(1), 8, "base")
    make_evaluation(tmp_path / "b" / "sum", "sum", p - 0.1, np.random.default_rng(2), 8, "tuned")
    write_baseline(tmp_path / "one.json", take(tmp_path / "a"), "one model", {}, None)
    found = held(tmp_path / "one.json", tmp_path / "b" / "sum", truncated="off", tokens="off")
    assert of(found, "drop", "model").verdict == "regression"
    assert found.code == 1


def test_what_is_nowhere_in_the_baseline_is_refused(base, kept, tmp_path):
    folder = out(tmp_path / "shuffled", methods=("shuffled",))
    with pytest.raises(InputError, match="nothing here is in the baseline, which has start on"):
        held(kept, folder / "runs" / "shuffled" / "seed-0")


def test_step_time_is_a_ratio_to_grpo_of_the_same_run(base, kept, tmp_path):
    everywhere = again(base, tmp_path / "slow")
    for method in ("grpo", "oar-p"):  # another machine, three times as slow
        for phase in ("rollout", "grading", "logprobs", "credit", "update"):
            slower(everywhere, method, 3.0, phase)
    assert of(held(kept, everywhere), "step-time", "oar-p").verdict == "pass"
    only = again(base, tmp_path / "credit")
    slower(only, "oar-p", 2.5)
    found = of(held(kept, only), "step-time", "oar-p")
    assert found.verdict == "regression"
    # rollout .18, grading .01, logprobs .05, update .23; credit 1.1 is now 2.75
    assert found.change == pytest.approx(3.22 / 1.57 - 1, abs=0.05)
    off = held(kept, only, **{"step-time": "off"})
    assert off.code == 0
    assert "not checked (off): step time / grpo" in off.notes


def test_one_slow_step_does_not_decide(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    path = folder / "runs" / "oar-p" / "seed-0" / "timing.jsonl"
    rows = [json.loads(line) for line in path.open()]
    for row in rows:
        row["seconds"] *= 100 if row["step"] in (5, 6) else 1
    write_rows(path, rows)
    found = of(held(kept, folder), "step-time", "oar-p")
    assert found.verdict == "pass"
    assert abs(found.change) < 0.05


def test_one_seed_of_timings_is_said_not_to_be_enough(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for seed in (0, 1):
        write_rows(folder / "runs" / "oar-p" / f"seed-{seed}" / "timing.jsonl", [])
    found = held(kept, folder)
    assert found.code == 0
    assert any("step time of oar-p isn't checked: two seeds" in note for note in found.notes)


def test_memory_goes_by_its_limit(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("runs/grpo/seed-*/timing.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        write_rows(path, [{**row, "peak_memory_mb": 900.0} for row in rows])
    found = held(kept, folder)
    assert (found.code, of(found, "memory", "grpo").change) == (1, 0.5)
    assert held(kept, folder, memory="50%").code == 0


def test_longer_answers_are_caught(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("runs/oar-p/*/eval/arithmetic/samples.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        write_rows(path, [{**r, "response_tokens": 2 * r["response_tokens"]} for r in rows])
    found = held(kept, folder)
    assert found.code == 1
    assert of(found, "tokens", "oar-p").change == pytest.approx(1.0)
    assert of(found, "tokens", "grpo").identical


def test_without_samples_only_the_scores_are_checked(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("**/samples.jsonl"):
        path.unlink()
    found = held(kept, folder)
    assert found.code == 0
    assert {c.metric for c in found.checks} == {"drop", "no-answer", "step-time", "memory"}


def test_samples_of_another_evaluation_are_refused(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    path = folder / "runs" / "grpo" / "seed-0" / "eval" / "arithmetic" / "samples.jsonl"
    rows = [json.loads(line) for line in path.open()]
    write_rows(path, rows[:-1])
    with pytest.raises(InputError, match=r"holds other samples than scores\.jsonl"):
        take(folder)
    write_rows(path, [rows[0], rows[0], *rows[2:]])  # as many rows, one of them twice
    with pytest.raises(InputError, match=r"holds other samples than scores\.jsonl"):
        take(folder)
    write_rows(path, [{**rows[0], "problem": "x"}, *rows[1:]])
    with pytest.raises(InputError, match="isn't of this evaluation"):
        take(folder)
    for tokens in (-1, 10**30, 1.5, float("nan"), "12"):
        write_rows(path, [{**rows[0], "response_tokens": tokens}, *rows[1:]])
        with pytest.raises(InputError, match="is no number of tokens"):
            take(folder)


def test_a_suite_is_checked_member_by_member(base, tmp_path):
    again(base, tmp_path / "suite" / "one")
    with pytest.raises(InputError, match=r"suite of 1 reproductions; check each .*one"):
        take(tmp_path / "suite")
