"""`oar-bench credit weights` and `credit.save_weights`: weights in a file, from file or trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oar_bench.cli import app
from oar_bench.config import CreditSettings, load_recipe
from oar_bench.console import Progress
from oar_bench.credit.assign import assign
from oar_bench.credit.files import ids_sha256, load_credit
from oar_bench.engines.hf import load_model, pad_id
from oar_bench.errors import InputError
from oar_bench.integrations.responses import grading_of, read_responses
from oar_bench.integrations.saved import weigh_file
from oar_bench.records import read_jsonl
from oar_bench.reporting.credit_show import show
from oar_bench.reporting.credit_source import choose
from oar_bench.training.model import pad_batch
from oar_bench.training.rollout import probed_batch
from oar_bench.training.trainer import train

PROMPT, RIGHT, SILENT = "3 + 4 =", "so 3 + 4 = 7 ; #### 7", "hmm nothing"


def write(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(response: str = RIGHT, **more) -> dict:
    return {"prompt": PROMPT, "response": response, "finish_reason": "stop", **more}


@pytest.fixture
def weigh(start, tmp_path):
    def run(*rows, method="oar-p", **settings):
        path, out = write(tmp_path / "mine.jsonl", *rows), tmp_path / "weights.jsonl"
        done = weigh_file(start, path, out, method, CreditSettings(**settings), "exact")
        return done, list(read_jsonl(out))

    return run


def test_text_is_encoded_and_that_is_said(weigh, tokenizer):
    done, [first, second] = weigh(row(response_tokens=9), row(SILENT, response_tokens=3))
    assert (done["rows"], done["encoded"], done["other_length"]) == (2, 2, 1)
    assert done["frac_no_probe"] == 0.5
    ids = [*tokenizer(RIGHT)["input_ids"], tokenizer.eos_token_id]
    assert first["token_ids_sha256"] == ids_sha256(ids)
    assert first["tokens"] == len(first["weights"]) == len(first["importance"]) == 10
    assert (first["problem"], second["problem"], first["sample"]) == ("1", "2", 0)
    assert second["weights"] == [1.0] * second["tokens"]
    assert max(first["weights"]) > 1.2
    assert first["weights"][7:] == [1.0] * 3  # mark, answer, end
    assert sum(first["weights"]) == pytest.approx(10, abs=1e-5)


def test_sampled_ids_are_taken_as_they_are(weigh, tokenizer, start):
    """Also where encoding their text would give others, and with the trainer's own key."""
    ids = [*tokenizer("so 3 + 4 = 7 ; #### 7")["input_ids"], 2, 1]  # <unk> decodes to nothing
    prompt = tokenizer(PROMPT)["input_ids"]
    given = row("", prompt_ids=prompt, response_ids=ids, seed=5)
    done, [made] = weigh(given, method="shuffled")
    assert done["encoded"] == 0
    assert made["token_ids_sha256"] == ids_sha256(ids)
    model, own = load_model(start)
    padded = pad_batch([prompt], [ids], pad_id(own))
    batch = probed_batch(own, [RIGHT], [ids], padded, [5], "exact")
    expected = assign("shuffled", model, batch, CreditSettings(), pad_id(own))
    assert made["weights"] == pytest.approx(expected.weights[padded[2]].tolist(), abs=1e-6)
    back = load_credit(Path(done["weights"]), padded[2], [ids], [{"problem": "1", "sample": 0}])
    assert torch.allclose(back.weights, expected.weights, atol=1e-6)


def test_an_interrupted_file_goes_on(weigh, tmp_path):
    rows = [row("so " * n + RIGHT) for n in range(5)]
    _, whole = weigh(*rows)
    out = tmp_path / "weights.jsonl"
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:2]) + lines[2][:40])
    done, again = weigh(*rows)
    assert done["made"] == 3
    assert [(r["problem"], r["token_ids_sha256"]) for r in again] == [
        (r["problem"], r["token_ids_sha256"]) for r in whole
    ]
    for a, b in zip(again, whole, strict=True):
        assert a["weights"] == pytest.approx(b["weights"], abs=1e-3)


def test_weights_of_something_else_are_not_mixed(weigh):
    weigh(row())
    for change in ({"method": "oar-g"}, {"q": 0.3}):
        with pytest.raises(InputError, match="weights of another model, method, setting or file"):
            weigh(row(), **change)
    with pytest.raises(InputError, match="other token ids"):
        weigh(row("so 3 + 4 = 8 ; #### 8"))
    weigh(row(), memory_mib=1)  # changes no number


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "no row in this file"),
        ([{"prompt": PROMPT}], "row 1: it has no text `response`; its fields are prompt"),
        ([{"response": RIGHT}], "row 1: it has no text `prompt`; .*, nor has problems.jsonl"),
        ([row(), row(None)], "row 2: it has no text `response`"),
        ([row(7)], "row 1: it has no text `response`"),
        ([{"prompt": ["a"], "response": RIGHT}], "row 1: it has no text `prompt`"),
        ([row(problem=["a"])], "row 1: its `problem` is no name"),
        ([row(problem="a", sample={})], "row 1: its `sample` is no name"),
        ([row(step=[1])], "row 1: its `step` is no name"),
        ([row(response_ids=5)], "row 1: its `response_ids` are no token ids"),
        ([row(prompt_ids="12")], "row 1: its `prompt_ids` are no token ids"),
        ([row(response_ids=[True])], "a token id is no number"),
        ([row(response_ids=[5.0])], "a token id is no number"),
        ([row(problem="a", sample=0)] * 2, "two rows for problem a, sample 0"),
        ([row(prompt="")], "the prompt has no token"),
        ([row(response_ids=[10**6])], "the model's vocabulary; give the checkpoint"),
        ([row("so " * 500)], "the model's context is 48"),
    ],
)
def test_bad_files_are_refused_in_a_line(weigh, rows, match):
    with pytest.raises(InputError, match=match):
        weigh(*rows)


def test_whatever_text_and_seed_a_row_has_it_is_weighed(weigh):
    odd = [row("3 \udfff = \x1b[31m\u202e" + RIGHT, problem="\ud800", seed=seed) for seed in
           (None, "x", 1.5, 2**200, -5)]  # fmt: skip
    _, made = weigh(*odd, method="shuffled")
    assert len(made) == len(odd)
    for one in made:
        assert sum(one["weights"]) == pytest.approx(one["tokens"], abs=1e-4)


def test_the_last_line_needs_no_newline(start, tmp_path):
    path, out = tmp_path / "mine.jsonl", tmp_path / "weights.jsonl"
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row()))
    assert weigh_file(start, path, out, "position", CreditSettings())["rows"] == 2


@pytest.mark.parametrize("content", ["Dear Anna,", '{"schema": 1, "problem": "mine"}', "a\nb"])
def test_a_file_of_something_else_stays_as_it_is(start, tmp_path, content):
    """Opening a file for more rows cuts off a last line without a newline."""
    path, out = write(tmp_path / "mine.jsonl", row()), tmp_path / "letter.txt"
    out.write_text(content)
    with pytest.raises(InputError, match=r"letter\.txt"):
        weigh_file(start, path, out, "position", CreditSettings())
    assert out.read_text() == content


def test_weights_are_not_written_into_a_device(start, tmp_path):
    path = write(tmp_path / "mine.jsonl", row())
    with pytest.raises(InputError, match="/dev/null: a file is expected"):
        weigh_file(start, path, Path("/dev/null"), "position", CreditSettings())


def test_a_kill_in_the_first_write_is_gone_over(weigh, tmp_path):
    _, whole = weigh(row())
    out = tmp_path / "weights.jsonl"
    for cut in (0, 5, 90, len(out.read_text()) - 1):
        out.write_text(out.read_text()[:cut])
        assert weigh(row())[1] == whole


@pytest.mark.parametrize("grading", [[1], "x", {"answer_type": "zzz"}, {"answer_type": None}])
def test_an_unknown_answer_type_beside_the_file_is_told(tmp_path, grading):
    (tmp_path / "generation.json").write_text(json.dumps({"grading": grading}))
    with pytest.raises(InputError, match="is no answer type; give --answer-type"):
        grading_of(tmp_path / "samples.jsonl")


def test_the_answer_is_looked_for_where_the_run_looked(start, tmp_path):
    """`#### 7` is an answer where the run graded by it, none where it graded boxes alone."""
    file = write(tmp_path / "rollouts.jsonl", row())
    for extract, silent in (("gsm8k", 0), ("boxed", 1)):
        grading = {"answer_type": "math", "extract": extract}
        (tmp_path / "run.json").write_text(json.dumps({"grading": grading}))
        out = tmp_path / f"{extract}.jsonl"
        done = weigh_file(start, file, out, "oar-g", CreditSettings())
        assert (done["answer_type"], done["extract"]) == ("math", extract)
        assert done["frac_no_probe"] == silent
        shown = show(start, choose(None, None, file, 1, None, None), ["grpo"], CreditSettings(),
                     None, Progress())  # fmt: skip
        assert shown["found"] is not bool(silent)
        assert grading_of(file, "exact") == ("exact", extract)
    with pytest.raises(InputError, match="another model, method, setting"):
        weigh_file(start, file, tmp_path / "gsm8k.jsonl", "oar-g", CreditSettings())
    (tmp_path / "run.json").write_text('{"grading": {"extract": "last"}}')
    with pytest.raises(InputError, match="'last' is no extract"):
        grading_of(file)


def test_prompts_of_an_evaluation_stand_beside_its_samples(tokenizer, tmp_path):
    write(tmp_path / "problems.jsonl", {"problem": "p1", "prompt": PROMPT})
    samples = write(
        tmp_path / "samples.jsonl",
        *({"problem": "p1", "sample": k, "response": RIGHT, "seed": k} for k in (3, 4)),
    )
    first, second = read_responses(samples, tokenizer)
    assert first.prompt_ids == tokenizer(PROMPT)["input_ids"]
    assert (first.name, second.seed) == ({"problem": "p1", "sample": 3}, 4)
    assert len(first.response_ids) == 9  # no end token: it isn't said that there was one


@pytest.fixture(scope="module")
def run(start, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    recipe = load_recipe("smoke", {"train": {"steps": 2}, "credit": {"save_weights": True}})
    train(recipe, "oar-p", 0, start, out)
    return out


def test_a_run_saves_the_weights_it_trained_with(run: Path, start: Path, tmp_path):
    rows, rollouts = (list(read_jsonl(run / n)) for n in ("credit.jsonl", "rollouts.jsonl"))
    assert [(r["step"], r["problem"], r["sample"]) for r in rows] == [
        (r["step"], r["problem"], r["sample"]) for r in rollouts
    ]
    assert [r["tokens"] for r in rows] == [r["response_tokens"] for r in rollouts]
    for saved, rollout in zip(rows, rollouts, strict=True):
        if rollout["advantage"] == 0:
            assert saved["weights"] == [1.0] * saved["tokens"]
        assert sum(saved["weights"]) == pytest.approx(saved["tokens"], rel=1e-5)
    metrics = next(read_jsonl(run / "metrics.jsonl"))
    most = max(max(r["weights"]) for r in rows if r["step"] == 1)
    assert most == pytest.approx(metrics["weight_max"], rel=1e-7)
    # The first step's policy is the start: the file gives the same weights again.
    first = [r for r in rollouts if r["step"] == 1]
    again = weigh_file(
        start, write(tmp_path / "r.jsonl", *first), tmp_path / "w", "oar-p", CreditSettings(),
        "exact",
    )  # fmt: skip
    assert (again["other_length"], again["encoded"]) == (0, 0)  # the ids were saved
    for made, saved, rollout in zip(read_jsonl(tmp_path / "w"), rows, first, strict=False):
        assert made["token_ids_sha256"] == saved["token_ids_sha256"]
        if rollout["advantage"] != 0:
            assert made["weights"] == pytest.approx(saved["weights"], abs=2e-3)


def test_saving_changes_no_number_and_resumes(run: Path, start: Path, tmp_path):
    plain = tmp_path / "run"
    changes = {"train": {"steps": 2, "save_every": 1}}
    train(load_recipe("smoke", changes), "oar-p", 0, start, plain)
    step = "checkpoints/step-000002/model.safetensors"
    assert (plain / step).read_bytes() == (run / step).read_bytes()
    assert not (plain / "credit.jsonl").exists()


def test_a_resumed_run_has_each_row_once(run: Path, start: Path, tmp_path):
    out = tmp_path / "run"
    changes = {"train": {"steps": 2, "save_every": 1}, "credit": {"save_weights": True}}
    recipe = load_recipe("smoke", changes)
    train(recipe, "oar-p", 0, start, out)
    whole = (out / "credit.jsonl").read_bytes()
    # As killed in step 2: its rows were begun, its checkpoint was not.
    (out / "checkpoints/step-000002").rename(tmp_path / "gone")
    run_file = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**run_file, "status": "running"}))
    (out / "credit.jsonl").write_bytes(whole[:-100])
    train(recipe, "oar-p", 0, start, out, resume=True)
    assert (out / "credit.jsonl").read_bytes() == whole


def test_the_command(start: Path, tmp_path, capsys):
    from typer.testing import CliRunner

    path = write(tmp_path / "mine.jsonl", row(), row(SILENT))
    words = ["credit", "weights", str(start), "--responses", str(path), "--answer-type", "exact"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "w.jsonl")])
    assert done.exit_code == 0, done.output
    assert "2 responses, 2 of them weighed now by oar-p" in done.stdout
    assert "2 have no token ids in the file: their text was encoded" in done.stdout
    assert "50.0 % state no answer" in done.stdout
    again = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "w.jsonl"), "--json"])
    assert json.loads(again.stdout)["made"] == 0
    for more, match in (
        (["--method", "oar_p"], "did you mean 'oar-p'"),
        (["--out", str(path)], "this is the file of the responses"),
    ):
        bad = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "x"), *more])
        assert isinstance(bad.exception, InputError)
        assert match in str(bad.exception)
