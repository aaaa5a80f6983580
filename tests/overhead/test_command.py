"""`oar-bench overhead` as a whole on small models, its fixed steps, and its refusals."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch

from oar_bench.answers import Grader
from oar_bench.config import load_recipe
from oar_bench.overhead.phases import PhaseTimer, peak_source
from oar_bench.tasks.problems import ANSWER_TYPE
from oar_bench.training.fixed import FixedSteps, still
from oar_bench.training.trainer import Trainer

SIZES = ("--prompts", "1", "--group-size", "2", "--repeats", "2", "--threads", "1")


@pytest.fixture(scope="module")
def steps(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    recipe = load_recipe("smoke", {"model": {"threads": 1}})
    trainer = Trainer(still(recipe, 2, 3, 24), "grpo", 0, folder, "cpu")
    with Grader(answer_type=ANSWER_TYPE) as grader:
        yield FixedSteps(trainer, grader, 10, 4, [16, 24])


@pytest.mark.parametrize("method", ["grpo", "oar-p", "oar-g", "shuffled"])
def test_a_step_has_its_size_and_every_response_its_credit(steps, method):
    before = [p.clone() for p in steps.trainer.model.parameters()]
    timer = PhaseTimer(1)
    steps(method, 24, timer)
    assert [row["phase"] for row in timer.rows] == [
        "rollout", "grading", "logprobs", "credit", "update"
    ]  # fmt: skip
    tokens = {row["phase"]: row["tokens"] for row in timer.rows}
    responses, region = 2 * 3, 1 + 4
    assert tokens["rollout"] == responses * 24
    assert tokens["logprobs"] == 2 * responses * (10 + 24)
    assert tokens["credit"] == responses * (24 - region)  # none was skipped
    assert tokens["update"] == responses * (10 + 24)
    for was, now in zip(before, steps.trainer.model.parameters(), strict=True):
        torch.testing.assert_close(now, was, rtol=0, atol=1e-15)


def test_the_methods_of_a_repeat_see_equal_responses(steps):
    seen = []
    learn = steps.trainer.learn
    steps.trainer.learn = lambda step, rollout, *rest: (
        seen.append(rollout) or learn(step, rollout, *rest)
    )
    try:
        for repeat, method in ((1, "grpo"), (1, "oar-g"), (2, "grpo")):
            steps(method, 16, PhaseTimer(repeat))
    finally:
        steps.trainer.learn = learn
    first, same, other = (s.input_ids for s in seen)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert seen[0].texts[0].endswith("#### 7 7 7 7")
    assert seen[0].texts[1].endswith("#### 3 3 3 3")


def test_the_command_writes_its_four_files(call, tmp_path):
    out = tmp_path / "o"
    done = call(
        "overhead", "smoke", "--methods", "grpo,oar-p,oar-g", "--lengths", "10,20",
        "--prompt-tokens", "8", *SIZES, "--out", str(out), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((out / "overhead.json").read_text())
    assert {row["repeat"] for row in found["rows"]} == {0, 1, 2}
    assert len(found["rows"]) == 3 * 2 * 3 * 5
    assert [v["method"] for v in found["verdicts"]] == ["oar-p", "oar-g"]
    assert found["environment"]["packages"]["torch"]
    assert set(found["fingerprints"]) == {"model", "recipe", "asked"}
    table = pd.read_csv(out / "overhead.csv")
    whole = table[table["phase"] == "step"].set_index(["length", "method"])
    assert len(table) == 2 * 3 * 6
    # Nothing but credit differs in operations, and OAR-P's grows the fastest.
    ratio = whole["flops_counted"] / whole["flops_formula"]
    assert ratio[:, "grpo"].tolist() == pytest.approx([1, 1])
    assert ratio[:, "oar-g"].tolist() == pytest.approx([1, 1])
    assert bool(((ratio[:, "oar-p"] >= 1) & (ratio[:, "oar-p"] < 1.1)).all())
    grown = {(g["method"], g["phase"]): g["flops"] for g in found["growth"]}
    assert grown["oar-p", "credit"] > grown["oar-g", "credit"]
    page = (out / "overhead.md").read_text()
    assert "in operations: **contradicted**" in page
    assert peak_source() in page
    assert (out / "overhead.svg").read_text().startswith("<?xml")


def test_a_checkpoint_is_measured_in_another_precision(call, start, tmp_path):
    done = call(
        "overhead", str(start), "--methods", "oar-g", "--lengths", "10", "--dtype", "bfloat16",
        *SIZES, "--out", str(tmp_path / "o"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Without grpo nothing is compared." in done.stdout
    assert json.loads((tmp_path / "o" / "overhead.json").read_text())["settings"]["dtype"] == (
        "bfloat16"
    )


def test_it_goes_on_with_what_was_kept_and_refuses_what_is_another(call, tmp_path):
    out = tmp_path / "o"
    common = ("overhead", "smoke", "--prompt-tokens", "8", "--prompts", "1", "--group-size", "2",
              "--threads", "1", "--out", str(out), "--json")  # fmt: skip
    asked = (*common, "--methods", "grpo,oar-g", "--lengths", "10")
    first = json.loads(call(*asked, "--repeats", "2").stdout)
    lines = (out / "overhead.jsonl").read_text().splitlines(keepends=True)
    assert [json.loads(line)["repeat"] for line in lines] == [0, 1, 2]
    # Killed in the middle of writing its last repeat.
    (out / "overhead.jsonl").write_text("".join(lines[:2]) + lines[2][:200])
    again = json.loads(call(*asked, "--repeats", "2").stdout)
    assert again["rows"][:20] == first["rows"][:20]  # two repeats, two methods, five phases
    assert {r["repeat"] for r in again["rows"]} == {0, 1, 2}
    # More repeats go on, fewer take the first ones, a margin is only a judgement.
    more = json.loads(call(*asked, "--repeats", "3", "--margin", "0.5").stdout)
    assert [r for r in more["rows"] if r["repeat"] < 3] == again["rows"]
    assert more["verdicts"][0]["margin"] == 0.5
    fewer = json.loads(call(*asked, "--repeats", "2").stdout)
    assert fewer["rows"] == again["rows"]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for other, said in (
        (("--methods", "grpo,oar-p", "--lengths", "10"), "methods grpo,oar-g, not grpo,oar-p"),
        (("--methods", "grpo,oar-g", "--lengths", "12"), "lengths 10, not 12"),
        (("--methods", "grpo,oar-g", "--lengths", "10", "--dtype", "bfloat16"), "dtype float32"),
    ):
        done = call(*common, "--repeats", "2", *other)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("line", ["{}", '{"made_by": 3}', "[]", '{"repeat": 0}', "Dear Anna,"])
def test_rows_of_something_else_are_refused(call, tmp_path, line):
    for ending in ("\n", ""):
        (tmp_path / "overhead.jsonl").write_text(line + ending)
        done = call("overhead", "smoke", "--lengths", "10", *SIZES, "--out", str(tmp_path))
        assert done.returncode == 2
        assert "overhead.jsonl: " in done.stderr
        assert (tmp_path / "overhead.jsonl").read_text() == line + ending


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["smoke", "--prompt-tokens", "9999", "--lengths", "10"], "--prompt-tokens: ; use at most"),
        (["smoke", "--margin", "inf"], "--margin: inf is no margin"),
        (["smoke", "--prompts", "100000000"], "--prompts"),
        (["smoke", "--lengths", ""], "--lengths: nothing is given; separated by commas"),
        (["tinny"], "unknown recipe 'tinny'; did you mean 'tiny'?"),
        (["no/such/folder"], "no such checkpoint folder"),
        (["smoke", "--methods", "oar-x"], "unknown method 'oar-x'"),
        (["smoke", "--lengths", "8,many"], "'many' is no number of tokens"),
        (["smoke", "--lengths", "0"], "'0' is no number of tokens"),
        (["smoke", "--lengths", "16,016"], "a length is given twice"),
        (["smoke", "--lengths", "100000"], "exceed the model's context; use at most"),
        (["smoke", "--lengths", "5"], "no room for reasoning; use at least"),
        (["smoke", "--dtype", "int3"], "unknown value 'int3'"),
        (["smoke", "--repeats", "1"], "--repeats"),
        (["smoke", "--recipe", "nope"], "unknown recipe 'nope'"),
    ],
)
def test_bad_input_is_one_line_and_2(call, tmp_path, options, said):
    done = call("overhead", *options, "--out", str(tmp_path / "o"))
    assert done.returncode == 2
    assert all(word in done.stderr for word in said.split("; "))
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_foreign_folder_is_left_alone(call, tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    done = call("overhead", "smoke", "--lengths", "10", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "letter.txt" in done.stderr
