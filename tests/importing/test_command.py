"""`oar-bench import`, and what `compare` and `report` make of what it wrote."""

import json

import pytest

from oar_bench.identity import fingerprint
from tests.importing.conftest import JSON_LOG, LM_EVAL, LOG, change, imports, rows


def test_the_command_says_what_it_found_and_what_is_missing(call, tmp_path):
    done = call("import", str(LM_EVAL), "--out", str(tmp_path / "o"))
    assert done.returncode == 0
    assert "warm-start on oar_sum: 12 problems x 1 sample, by lm-eval 0.4.13" in done.stdout
    assert "33.3 %   95 % [" in done.stdout
    assert "note: not known: token counts" in done.stdout
    done = call("import", str(LOG), "--out", str(tmp_path / "o"), "--json", "--regrade")
    [results] = json.loads(done.stdout)
    assert results["imported"]["regraded"]["known"] == 8


def test_one_result_under_two_training_seeds_is_one_training_run(call, tmp_path):
    for seed in ("0", "1"):
        words = ("--out", str(tmp_path / "o"), "--method", "grpo", "--seed", seed)
        assert call("import", str(LOG), *words).returncode == 0
    imports(LOG, tmp_path / "o", model="other")
    grpo, other = str(tmp_path / "o/runs/grpo"), str(tmp_path / "o/other")
    for words in (("report", str(tmp_path / "o")), ("compare", grpo, other)):
        done = call(*words)
        assert done.returncode == 2
        assert "were imported from the same files; import each training seed's" in done.stderr


def test_a_trained_run_keeps_what_is_known_of_its_training(call, tmp_path):
    about = tmp_path / "o/runs/grpo/seed-0/run.json"
    about.parent.mkdir(parents=True)
    about.write_text(trained := '{"schema": 1, "method": "grpo", "seed": 0, "status": "finished"}')
    words = ("import", str(LOG), "--out", str(tmp_path / "o"), "--method", "grpo")
    done = call(*words)
    assert done.returncode == 2
    assert "results of training seed 0 are there; give --seed 0 if these are of" in done.stderr
    assert not about.with_name("eval").exists()
    assert call(*words, "--seed", "0").returncode == 0
    assert about.read_text() == trained
    assert about.with_name("eval").joinpath("sums/results.json").is_file()


def test_a_seed_once_named_is_not_forgotten(call, tmp_path):
    words = ("import", str(LOG), "--out", str(tmp_path / "o"), "--method", "grpo")
    about = tmp_path / "o/runs/grpo/seed-0/run.json"
    for seed, code, known in ((), 0, None), (("--seed", "0"), 0, 0), ((), 2, 0):
        assert call(*words, *seed).returncode == code
        assert json.loads(about.read_text())["imported"]["seed"] == known


def test_two_imports_are_paired_like_our_own(call, tmp_path):
    """One verdict changed by hand: one win, seven ties of the eight halves over four problems."""
    better = tmp_path / "better.json"
    better.write_bytes(JSON_LOG.read_bytes())

    def right(top):
        sample = next(s for s in top["samples"] if s["id"] == "sum-2" and s["epoch"] == 1)
        sample["scores"]["match"]["value"] = "C"
        top["results"]["scores"][0]["metrics"]["accuracy"]["value"] = 0.75

    change(better, right)
    imports(LOG, tmp_path / "o")
    imports(better, tmp_path / "o", model="better")
    a, b = str(tmp_path / "o" / "mockllm__model"), str(tmp_path / "o" / "better")
    done = call("compare", a, b, "--json")
    assert done.returncode == 0, done.stderr
    [pair] = json.loads(done.stdout)["tasks"][0]["pairs"]
    assert pair["difference"]["value"] == pytest.approx(0.125)
    assert (pair["wins"], pair["losses"], pair["ties"]) == (1, 0, 3)


def test_numbers_stand_beside_what_is_tested(call, tmp_path):
    table = tmp_path / "numbers.csv"
    table.write_text("model,task,value,n\npaper,sums,90%,1000\n")
    out = tmp_path / "o"
    imports(LOG, out)
    imports(JSON_LOG, out, model="other")
    imports(table, out)
    names = ("mockllm__model", "other", "paper")
    done = call("compare", *(str(out / name) for name in names), "--json")
    [task] = json.loads(done.stdout)["tasks"]
    assert [(r["name"], r["place"]) for r in task["results"]] == [
        ("mockllm__model", "tied"), ("other", "tied"), ("paper", "not tested"),
    ]  # fmt: skip
    assert task["results"][2]["avg@k"]["value"] == 0.9
    assert len(task["pairs"]) == 1
    shown = call("compare", str(out / "other"), str(out / "paper")).stdout
    assert "paper/sums: imported numbers, no verdict on each response: no paired test" in shown
    assert "against" not in shown.partition("note:")[0]


def test_unlike_imports_are_refused_by_field(call, tmp_path):
    cooler = tmp_path / "cooler.json"
    cooler.write_bytes(JSON_LOG.read_bytes())
    change(cooler, lambda top: top["plan"]["config"].update(temperature=0.1))
    imports(LOG, tmp_path / "o")
    imports(cooler, tmp_path / "o", model="cooler")
    paths = [str(tmp_path / "o" / name) for name in ("mockllm__model", "cooler")]
    done = call("compare", *paths)
    assert done.returncode == 2
    assert "settings.sampling.temperature is 0.7" in done.stderr
    allow = "sampling.temperature"
    assert call("compare", *paths, "--allow", allow).returncode == 0


def test_a_report_of_imported_runs(call, tmp_path):
    for method in ("grpo", "oar-p"):
        done = call("import", str(LM_EVAL), "--out", str(tmp_path), "--method", method)
        assert done.returncode == 0, done.stderr
    done = call("report", str(tmp_path))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.md").read_text()
    assert "2 finished runs of 2 methods on oar\\_sum (12 problems × 1 sample)" in text
    assert "| oar-p | 1 | 33.3 |" in text


def test_an_import_again_is_the_same_and_another_is_refused(call, tmp_path):
    first = imports(LOG, tmp_path / "o")["sums"].results
    assert imports(LOG, tmp_path / "o")["sums"].results == first
    done = call("import", str(JSON_LOG), "--out", str(tmp_path / "o"))
    assert done.returncode == 2
    assert "another result is there, not this one of mockllm/model on sums" in done.stderr


def test_prompts_and_golds_name_the_problems_as_ours_do(tmp_path):
    one = imports(LM_EVAL, tmp_path)["oar_sum"]
    problems = rows(one, "problems.jsonl")
    prints = one.results["fingerprints"]
    assert prints["prompt"] == fingerprint([row["prompt"] for row in problems])
    assert prints["data"] == fingerprint([[row["problem"], row["gold"]] for row in problems])
    assert problems[0]["prompt"] == "1 + 1 ="
