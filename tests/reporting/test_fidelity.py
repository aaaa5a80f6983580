"""The command `credit fidelity` from end to end, its table by hand, and each wrong way to ask."""

from __future__ import annotations

import csv
import json

import pytest

from oar_bench.evaluation.statistics import t_interval
from oar_bench.reporting.fidelity import OTHER, rows_of
from oar_bench.reporting.fidelity_table import summary
from oar_bench.tasks.registry import load_task
from tests.credit.batches import PROMPTS, RESPONSES
from tests.reporting.synthetic import write_rows


def record(problem: str, **spearmans: float | None) -> dict:
    return {
        "problem": problem,
        "methods": {
            name: {"spearman": rho, "top": None if rho is None else (rho + 1) / 2, "draws": None,
                   "deletion": None if rho is None else [0.0, 1.0, 2.0 + rho],
                   "insertion": None if rho is None else [3.0, 0.0, 0.0]}
            for name, rho in spearmans.items()
        },
    }  # fmt: skip


def test_the_problem_is_the_unit_and_the_undefined_are_counted():
    records = [record("a", exact=1.0, other=0.2), record("a", exact=1.0, other=0.6),
               record("b", exact=1.0, other=0.8), record("b", exact=1.0, other=None)]  # fmt: skip
    exact, other = summary(["exact", "other"], records, {"exact": 8.0, "other": 2.0})
    expected = t_interval([0.4, 0.8])
    assert other["spearman"]["value"] == pytest.approx(0.6)
    assert other["spearman"]["low"] == pytest.approx(max(expected.low, -1.0))
    assert other["spearman"]["n"] == 2
    assert (other["responses"], other["undefined"]) == (3, 1)
    assert other["top"]["value"] == pytest.approx((0.7 + 0.9) / 2)
    # a: (0 + 1 + 2.2) / 3 and (0 + 1 + 2.6) / 3; b: (0 + 1 + 2.8) / 3
    assert other["deletion"]["value"] == pytest.approx((3.4 / 3 + 3.8 / 3) / 2)
    assert other["insertion"]["value"] == 1.0
    assert [p["value"] for p in other["curves"]["deletion"]] == pytest.approx([0, 1, 2.6])
    assert other["draws"] is None
    assert (exact["seconds"], other["seconds"], other["speed"]) == (2.0, 0.5, 4.0)
    assert exact["spearman"]["value"] == exact["spearman"]["low"] == 1.0


def test_a_method_that_never_ranks_has_no_agreement_rather_than_0():
    records = [record("a", exact=1.0, flat=None)]
    _, flat = summary(["exact", "flat"], records, {"exact": 1.0, "flat": 1.0})
    assert (
        flat["spearman"] is flat["top"] is flat["deletion"] is flat["curves"]["insertion"] is None
    )
    assert (flat["responses"], flat["undefined"]) == (0, 1)


def test_exact_and_position_are_always_there():
    assert rows_of(["entropy"]) == ["oar-p", "entropy", "position"]
    assert rows_of(["position", "oar-p"]) == ["oar-p", "position"]


@pytest.fixture(scope="module")
def task() -> tuple[str, ...]:
    return "--task", "oar_sum", "--problems", "6"


def test_table_figure_and_numbers(call, start, tmp_path, task):
    out = tmp_path / "fidelity"
    done = call("credit", "fidelity", str(start), *task, "--samples", "2", "--recipe", "smoke",
                "--method", "oar-d,oar-g,oar-p-sample", "--out", str(out))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "fidelity.json").read_text())
    names = ["oar-p", "oar-d", "oar-g", "oar-p-sample", "position", OTHER]
    assert [row["method"] for row in found["rows"]] == names
    rows = {row["method"]: row for row in found["rows"]}
    assert rows["oar-p"]["spearman"]["value"] == pytest.approx(1)
    assert rows["oar-p"]["top"]["value"] == 1
    # Reasoning this short has few tokens beyond eight mediators.
    assert rows["oar-d"]["spearman"]["value"] > 0.9
    assert rows[OTHER]["spearman"]["value"] < 0.999
    assert [name for name in names if rows[name]["draws"]] == ["oar-g", "oar-p-sample"]
    assert rows["oar-g"]["draws"]["value"] < 1
    # Exact importances delete more and restore sooner than a count of positions.
    assert rows["oar-p"]["deletion"]["value"] > rows["position"]["deletion"]["value"]
    assert rows["oar-p"]["insertion"]["value"] < rows["position"]["insertion"]["value"]
    counts = found["counts"]
    assert counts["used"] + counts["no_answer"] + counts["too_short"] == 12
    assert counts["responses"] == 12
    assert len(found["responses"]) == counts["used"]
    assert {"model", "credit", "task", "data", "prompt", "sampling"} <= set(found["fingerprints"])
    assert found["tokens"]["replacement"] == {"id": 0, "token": "<pad>"}
    with (out / "fidelity.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["method"] for row in table] == names
    assert float(table[1]["spearman_low"]) <= float(table[1]["spearman"])
    assert "<svg" in (out / "fidelity.svg").read_text()
    text = (out / "fidelity.md").read_text()
    for name in names:
        assert f"| {name} |" in text
        assert name in done.stdout


def test_it_goes_on_with_what_was_kept_and_refuses_what_is_another(call, start, tmp_path, task):
    out = tmp_path / "fidelity"
    common = ("credit", "fidelity", str(start), *task, "--samples", "5", "--recipe", "smoke",
              "--out", str(out))  # fmt: skip
    asked = (*common, "--method", "oar-g,entropy")
    assert call(*asked).returncode == 0
    whole = json.loads((out / "fidelity.json").read_text())
    lines = (out / "fidelity.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == len(whole["responses"]) > 17  # two batches
    # Killed in the middle of writing; the table was never made.
    for name in ("fidelity.json", "fidelity.md", "fidelity.csv", "fidelity.svg"):
        (out / name).unlink()
    (out / "fidelity.jsonl").write_text("".join(lines[:16]) + lines[16][:300])
    assert call(*asked).returncode == 0
    again = json.loads((out / "fidelity.json").read_text())
    assert (out / "fidelity.jsonl").read_text().startswith("".join(lines[:16]))
    assert again["counts"] == whole["counts"]
    assert again["responses"][:16] == whole["responses"][:16]
    for a, b in zip(again["responses"], whole["responses"], strict=True):
        assert (a["problem"], a["sample"], a["tokens"]) == (b["problem"], b["sample"], b["tokens"])
    for a, b in zip(again["rows"], whole["rows"], strict=True):
        assert a["spearman"]["value"] == pytest.approx(b["spearman"]["value"], abs=1e-3)
        assert a["seconds"] > 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for other, said in (
        (("--method", "oar-g"), "methods oar-p,oar-g,entropy,position, not oar-p,oar-g,position"),
        (("--method", "oar-g,entropy", "--no-curves"), "curves True, not False"),
        (("--method", "oar-g,entropy", "--seed", "3"), "another measurement is kept there"),
    ):
        done = call(*common, *other)
        assert done.returncode == 2
        assert said in done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    (out / "fidelity.jsonl").unlink()
    done = call(*asked)
    assert done.returncode == 2
    assert "fidelity.md of another measurement stands there" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--samples", "3"], "--samples: a file's responses are its own; leave it out"),
        (["--temperature", "0.5"], "--temperature: a file's responses are its own"),
        (["--seed", "1"], "--seed: a file's responses are its own"),
        (["--max-new-tokens", "9"], "--max-new-tokens: a file's responses are its own"),
        (["--data-dir", "."], "--data-dir: a file's responses are its own"),
        (["--chat-template"], "--chat-template: a file's responses are its own"),
        (["--max-tokens", "2"], "use a larger --max-tokens"),
        (["--answer-type", "choice"], "give a file with other responses, or another --answer-type"),
        (["--out", "/proc/x"], "/proc/x: "),
    ],
)
def test_options_that_a_file_makes_moot_are_refused(call, start, tmp_path, options, said):
    rows = [{"prompt": p, "response": r} for p, r in zip(PROMPTS, RESPONSES, strict=False)]
    write_rows(tmp_path / "x.jsonl", rows)
    done = call("credit", "fidelity", str(start), "--responses", str(tmp_path / "x.jsonl"),
                "--method", "position", *options)  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_worked_solutions_are_taken_as_responses(call, start, tokenizer, task):
    done = call("credit", "fidelity", str(start), *task, "--gold", "--method", "entropy", "--json")
    found = json.loads(done.stdout)
    assert found["counts"] == {"responses": 6, "used": 6, "no_answer": 0, "too_short": 0,
                               "too_long": 0, "problems": 6}  # fmt: skip
    questions = load_task("oar_sum", limit=6).questions
    lengths = [len(tokenizer(q.solution.partition("####")[0])["input_ids"]) for q in questions]
    assert [response["tokens"] for response in found["responses"]] == lengths


def test_responses_of_a_file_those_without_answer_left_out(call, start, tmp_path):
    rows = [{"problem": i, "prompt": p, "response": r} for i, (p, r) in
            enumerate(zip(PROMPTS, [*RESPONSES[:3], "4 #### 4"], strict=True))]  # fmt: skip
    write_rows(tmp_path / "x.jsonl", rows)
    common = ("credit", "fidelity", str(start), "--responses", str(tmp_path / "x.jsonl"))
    done = call(*common, "--answer-type", "exact", "--method", "attention", "--json",
                "--replacement-other", "5")  # fmt: skip
    found = json.loads(done.stdout)
    assert found["counts"] == {"responses": 4, "used": 2, "no_answer": 1, "too_short": 1,
                               "too_long": 0, "problems": 2}  # fmt: skip
    assert [response["tokens"] for response in found["responses"]] == [7, 13]
    assert found["tokens"]["other"]["id"] == 5
    printed = call(*common, "--answer-type", "exact", "--method", "attention").stdout
    assert "1 state no answer and are left out" in printed
    assert "1 have fewer than two tokens to rank and are left out" in printed
    done = call(*common, "--answer-type", "exact", "--method", "entropy", "--json",
                "--max-tokens", "7", "--no-curves")  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["counts"]["used"], found["counts"]["too_long"]) == (1, 1)
    assert found["rows"][0]["deletion"] is found["rows"][1]["curves"]["insertion"] is None
    done = call(*common, "--answer-type", "exact", "--max-tokens", "6")
    assert done.returncode == 2
    assert "has so few tokens to rank as --max-tokens says" in done.stderr


def test_a_figure_without_curves(call, start, tmp_path, task):
    done = call("credit", "fidelity", str(start), *task, "--gold", "--no-curves", "--out",
                str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "answer moved" not in (tmp_path / "fidelity.svg").read_text()


def test_numbers_do_not_depend_on_the_batch(start, task, monkeypatch, call):
    """Chunks of one response and of all give the same records."""
    from oar_bench.reporting import fidelity

    asked = ("credit", "fidelity", str(start), *task, "--gold", "--json",
             "--method", "oar-g,oar-p-sample")  # fmt: skip
    whole = json.loads(call(*asked).stdout)
    monkeypatch.setattr(fidelity, "CHUNK", 1)
    single = json.loads(call(*asked).stdout)
    for one, other in zip(whole["responses"], single["responses"], strict=True):
        for name, values in one["methods"].items():
            for key, value in values.items():
                if value is not None:
                    assert other["methods"][name][key] == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "oar-x"], "no importance is called 'oar-x'"),
        (["--method", "shuffled"], "no importance is called 'shuffled'"),
        (["--method", ","], "nothing is given"),
        (["--responses", "x.jsonl"], "a task or a file of responses is needed, and not both"),
        (["--replacement-other", "pad"], "'pad' is no token id"),
        (["--replacement-other", "0"], "0 is the replacement itself"),
        (["--replacement-other", "999"], "999 is no token of this model"),
        (["--gold", "--samples", "2"], "a problem has one worked solution"),
        (["--gold", "--seed", "2"], "--seed: worked solutions aren't sampled"),
        (["--samples", "2", "--temperature", "0"], "2 samples at temperature 0"),
        (["--answer-type", "maths"], "unknown value 'maths'"),
        (["--problems", "5000"], "5000 problems asked for"),
        (["--recipe", "smokey"], "unknown recipe 'smokey'"),
        (["--data-dir", "nowhere"], "no such folder"),
    ],
)
def test_bad_input_is_one_line(call, start, options, said):
    done = call("credit", "fidelity", str(start), "--task", "oar_sum", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_models_tasks_files_and_folders(call, start, tmp_path):
    (tmp_path / "taken").write_text("x")
    write_rows(tmp_path / "silent.jsonl", [{"prompt": PROMPTS[2], "response": RESPONSES[2]}])
    write_rows(tmp_path / "empty.jsonl", [])
    of_file = ("credit", "fidelity", str(start), "--responses")
    for arguments, said in (
        (("credit", "fidelity", str(tmp_path), "--task", "oar_sum"), "no config.json"),
        (("credit", "fidelity", str(start)), "a task or a file of responses is needed"),
        (("credit", "fidelity", str(start), "--task", "oar_sums"), "oar_sum"),
        ((*of_file, str(tmp_path / "silent.jsonl")), "no response states an answer"),
        ((*of_file, str(tmp_path / "empty.jsonl")), "no row"),
        ((*of_file, str(tmp_path / "none.jsonl")), "no such file"),
        ((*of_file, str(tmp_path / "silent.jsonl"), "--gold"), "a file's responses are its own"),
        ((*of_file, "x", "--out", str(tmp_path / "taken")), "a folder is expected"),
    ):
        done = call(*arguments)
        assert done.returncode == 2, arguments
        assert said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_a_task_without_solutions_says_so(call, start, tmp_path):
    rows = [{"id": str(i), "problem": "1 + 1 =", "answer": "2"} for i in range(30)]
    (tmp_path / "aime24").mkdir()
    write_rows(tmp_path / "aime24" / "test.jsonl", rows)
    done = call("credit", "fidelity", str(start), "--task", "oar_aime24", "--data-dir",
                str(tmp_path), "--gold")  # fmt: skip
    assert done.returncode == 2
    assert "problem 0 has no worked solution" in done.stderr
