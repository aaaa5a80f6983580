"""A recipe's data: filters with hand-made counts, the command `data`, and a run on them."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from oar_bench.config import PassRateSettings, parse_recipe
from oar_bench.errors import InputError
from oar_bench.integrations.responses import grading_of
from oar_bench.records import read_json, read_jsonl
from oar_bench.tasks.sets import Row
from oar_bench.training.data import by_pass_rate, pass_rates, prepare, quantiles, without_doubles
from tests.tasks.conftest import byte_model, data_dir  # noqa: F401  fixtures


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("OAR_BENCH_DATA_DIR", raising=False)


SUMS = [
    {"id": f"s{i}", "problem": f"Tom has {i} nuts and Ann {i + 1}. How many are there in all?",
     "answer": str(2 * i + 1)}
    for i in range(8)
]  # fmt: skip


@pytest.fixture
def mine(tmp_path, byte_model):  # noqa: F811
    """A recipe as a dictionary: a file of eight sums, for a model over bytes."""
    return {
        "name": "mine",
        "model": {"path": str(byte_model)},
        "data": {"path": str(lines(tmp_path / "mine.jsonl", SUMS))},
        "train": {"steps": 2, "prompts_per_step": 3, "group_size": 2, "max_new_tokens": 6,
                  "save_every": 1},
        "evaluation": {"task": "oar_gsm8k", "problems": 2, "samples": 1, "max_new_tokens": 4},
        "reproduce": {"methods": ["grpo"], "seeds": 1},
    }  # fmt: skip


def prepared(mine, **data):
    return prepare(parse_recipe({**mine, "data": {**mine["data"], **data}}, "mine"), lengths=True)


# Filters -----------------------------------------------------------------------------------------


def test_doubles_keep_the_first_and_count_other_golds():
    rows = [
        Row("a", "What is $2+3$?", "5"), Row("b", "What is 2 + 3", "5"),
        Row("c", "What is 2-3?", "-1"), Row("d", "what is 2+3?", "6"),
    ]  # fmt: skip
    kept, doubles, other = without_doubles(rows)
    assert [row.id for row in kept] == ["a", "c"]
    assert (doubles, other) == (2, 1)


def test_the_bounds_of_the_pass_rate_belong_to_it(tmp_path):
    rates = {"a": 0.0, "b": 0.1, "c": 0.5, "d": 0.9, "e": 1.0, "other": 0.5}
    file = lines(tmp_path / "r.jsonl", [{"id": k, "pass_rate": v} for k, v in rates.items()])
    rows = [Row(name, name, "1") for name in "abcdef"]
    kept, counts = by_pass_rate(rows, PassRateSettings(file=str(file)))
    assert [row.id for row in kept] == ["b", "c", "d"]
    assert counts == {"too_hard": 1, "too_easy": 1, "no_pass_rate": 1}


def test_pass_rates_of_everything_that_a_stage_writes(tmp_path):
    scores = [
        {"problem": "a", "sample": 0, "correct": True, "status": "correct"},
        {"problem": "a", "sample": 1, "correct": False, "status": "wrong"},
        {"problem": "b", "sample": 0, "correct": False, "status": "timeout"},
        {"problem": "c", "sample": 0, "correct": False, "status": "truncated"},
    ]
    rollouts = [
        {"problem": "a", "step": 1, "reward": 1.0},
        {"problem": "a", "step": 2, "reward": 0.0},
    ]
    for name, rows in (("scores.jsonl", scores), ("rollouts.jsonl", rollouts)):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        lines(folder / name, rows)
    assert pass_rates(tmp_path / "scores") == {"a": 0.5, "c": 0.0}
    assert pass_rates(tmp_path / "scores" / "scores.jsonl") == {"a": 0.5, "c": 0.0}
    assert pass_rates(tmp_path / "rollouts") == {"a": 0.5}


def test_what_an_evaluation_wrote_filters_the_problems_it_asked(tmp_path, mine, call, byte_model):  # noqa: F811
    """From `generate` and `score` to a filter, by the ids of a test set used for training."""
    from oar_bench.tasks.registry import load_task

    out = tmp_path / "eval"
    done = call("evaluate", str(byte_model), "-t", "oar_sum", "--limit", "4", "-n", "2",
                "--max-new-tokens", "3", "--out", str(out))  # fmt: skip
    assert done.returncode == 0, done.stderr
    questions = load_task("oar_sum", limit=4).questions
    rows = [{"id": q.problem, "problem": q.text, "answer": q.gold} for q in questions]
    mine["data"] = {"path": str(lines(tmp_path / "sums.jsonl", [*rows, SUMS[0]]))}
    found = prepared(mine, pass_rate={"file": str(out / "oar_sum"), "low": 0.0, "high": 1.0})
    assert (found.summary["kept"], found.summary["no_pass_rate"]) == (4, 1)


def test_every_count_of_the_summary(tmp_path, mine, data_dir):  # noqa: F811
    twice = {**SUMS[0], "id": "t", "answer": "9"}
    test = {"id": "test", "problem": "what is 3 plus 6", "answer": "9"}  # stands in each test set
    long = {"id": "long", "problem": "Nuts! " * 60, "answer": "1"}
    lines(tmp_path / "mine.jsonl", [*SUMS, twice, test, long])
    rates = [{"id": row["id"], "pass_rate": 0.5} for row in [*SUMS[2:], long]]
    rates += [{"id": "s0", "pass_rate": 0.0}, {"id": "test", "pass_rate": 0.5}]
    file = str(lines(tmp_path / "rates.jsonl", rates))
    mine["data_dir"] = str(data_dir)
    found = prepared(
        mine, pass_rate={"file": file}, overlap=["oar_gsm8k", "oar_aime24"], drop_overlap=True,
        max_prompt_tokens=300, prompt="plain",
    )  # fmt: skip
    tokens = found.summary.pop("prompt_tokens")
    assert found.summary == {
        "source": str(tmp_path / "mine.jsonl"), "rows": 11, "without_gold": 0, "duplicates": 1,
        "other_answer": 1, "overlap": 1, "overlap_dropped": True, "too_hard": 1, "too_easy": 0,
        "no_pass_rate": 1, "too_long": 1, "kept": 6,
    }  # fmt: skip
    assert tokens["min"] == len(SUMS[2]["problem"]) == tokens["max"]  # a byte is a token
    assert [problem.id for problem in found.problems] == [f"s{i}" for i in range(2, 8)]
    assert [(m["task"], m["problem"]) for m in found.overlap["matches"]] == [
        ("oar_aime24", "aime24-3"), ("oar_gsm8k", "gsm8k-3"),
    ]  # fmt: skip
    kept = prepared(mine, overlap=["oar_gsm8k"])
    assert (kept.summary["overlap"], kept.summary["overlap_dropped"]) == (1, False)
    assert "test" in [problem.id for problem in kept.problems]


def test_a_group_of_test_sets_is_all_of_them(mine, data_dir):  # noqa: F811
    mine["data_dir"] = str(data_dir)
    found = prepared(mine, overlap=["oar_math"])
    assert [counts["problems"] for counts in found.overlap["tasks"].values()] == [
        1319, 500, 30, 30, 40, 272, 675
    ]  # fmt: skip
    assert found.overlap["rows_found"] == 0


def test_prompts_through_the_chat_template(mine):
    plain = prepared(mine, prompt="plain")
    assert plain.problems[0].prompt == SUMS[0]["problem"]
    chat = prepared(mine, prompt="Q: {problem}", chat_template=True, system="Be brief.")
    assert chat.problems[0].prompt == (
        f"<system>Be brief.</system>\n<user>Q: {SUMS[0]['problem']}</user>\n<assistant>"
    )
    assert plain.fingerprint != chat.fingerprint


def test_the_fingerprint_follows_contents_and_not_places(tmp_path, mine):
    one = prepared(mine)
    elsewhere = str(lines(tmp_path / "other.jsonl", SUMS[::-1]))
    assert prepared(mine, path=elsewhere).fingerprint == one.fingerprint
    changed = [{**SUMS[0], "answer": "5"}, *SUMS[1:]]
    other = prepared(mine, path=str(lines(tmp_path / "changed.jsonl", changed)))
    assert other.fingerprint != one.fingerprint


def test_quantiles_are_values_by_nearest_rank():
    values = list(range(1, 102))
    assert quantiles(values) == {"min": 1, "median": 51, "p90": 91, "p99": 100, "max": 101}
    assert quantiles([]) is None


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"name": "gsm"}, "data.name: input should be 'gsm8k', 'math', 'dapo-17k' or 'deepmath'"),
        ({}, "data: give either a name"),
        ({"name": "gsm8k", "path": "x"}, "data: give either a name"),
        ({"path": "x", "revision": "a" * 40}, "revision: only a set from the hub"),
        ({"name": "gsm8k", "revision": "main"}, "data.revision: string should match"),
        ({"name": "gsm8k", "answer_type": "text"}, "data.answer_type"),
        ({"name": "gsm8k", "extract": "first"}, "data.extract"),
        ({"name": "gsm8k", "prompt": "boxd"}, "has no {problem} in it, nor is it boxed, gsm8k"),
        ({"name": "gsm8k", "chat_template": "perhaps"}, "data.chat_template"),
        ({"name": "gsm8k", "system": "Hello"}, "a system prompt needs chat_template"),
        ({"name": "gsm8k", "system": "", "chat_template": True}, "data.system"),
        ({"name": "gsm8k", "dedup": 3}, "data.dedup"),
        ({"name": "gsm8k", "pass_rate": {"low": 0.2}}, "'data.pass_rate.file' is missing"),
        ({"name": "gsm8k", "pass_rate": {"file": "f", "low": 1.2}}, "data.pass_rate.low"),
        ({"name": "gsm8k", "pass_rate": {"file": "f", "low": 0.9, "high": 0.1}}, r"low \(0.9\) is"),
        ({"name": "gsm8k", "pass_rate": {"file": "f", "hi": 1}}, "did you mean 'high'"),
        ({"name": "gsm8k", "overlap": "oar_gsm8k"}, "data.overlap: input should be a valid list"),
        ({"name": "gsm8k", "overlap": [""]}, "data.overlap.0"),
        ({"name": "gsm8k", "ngram": 0}, "data.ngram"),
        ({"name": "gsm8k", "drop_overlap": True}, "there is no overlap to drop"),
        ({"name": "gsm8k", "max_prompt_tokens": 0}, "data.max_prompt_tokens"),
        ({"name": "gsm8k", "promt": "boxed"}, "did you mean 'prompt'"),
        ("gsm8k", "data: input should be"),
    ],
)
def test_a_mistake_in_the_section_is_named(data, said):
    with pytest.raises(InputError, match=said) as caught:
        parse_recipe({"name": "x", "model": {"path": "m"}, "data": data}, "file.yaml")
    assert "\n" not in str(caught.value)


def test_data_need_a_model_that_reads_them():
    with pytest.raises(InputError, match=r"^file.yaml: data: a model from scratch .* model.path$"):
        parse_recipe({"name": "x", "data": {"name": "gsm8k"}}, "file.yaml")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "zz", "pass_rate": 0.5}], "it has none of the 8 problems, such as 's0'"),
        ([{"id": "s0", "pass_rate": 1.5}], "row 1 has no id or no pass_rate from 0 to 1"),
        ([{"id": "s0", "pass_rate": 0.5}, {"id": "s1"}], "row 2 has no id or no pass_rate"),
        ([{"pass_rate": 0.5}], "row 1 has no id"),
        ([{"id": "s0", "pass_rate": 0.99}], "no problem is left .* too easy 1, no pass rate 7"),
        ([], "it has none of the 8 problems"),
    ],
)
def test_pass_rates_that_cannot_be_used(tmp_path, mine, rows, said):
    file = str(lines(tmp_path / "rates.jsonl", rows))
    with pytest.raises(InputError, match=said) as caught:
        prepared(mine, pass_rate={"file": file})
    assert "\n" not in str(caught.value)


def test_absent_files_tasks_and_templates(tmp_path, mine):
    for file in (tmp_path / "none", tmp_path):
        with pytest.raises(
            InputError, match=f"pass_rate.file {file}: (no such|it holds no scores)"
        ):
            prepared(mine, pass_rate={"file": str(file)})
    with pytest.raises(InputError, match=r"data.overlap: unknown task 'oar_gsm9k'; did you mean"):
        prepared(mine, overlap=["oar_gsm9k"])
    with pytest.raises(InputError, match="no problem is left after the filters"):
        prepared(mine, max_prompt_tokens=3)
    mine["model"]["path"] = str(tmp_path / "none")
    with pytest.raises(InputError, match=r"data\.chat_template needs its tokenizer"):
        prepared(mine, chat_template=True)
    assert "prompt_tokens" not in prepared(mine).summary  # counted only where they can be


def test_a_prompt_beyond_the_context_is_told_before_the_first_step(mine):
    long = {"id": "long", "problem": "Nuts! " * 700, "answer": "1"}
    lines(Path(mine["data"]["path"]), [*SUMS, long])
    said = r"data.max_prompt_tokens: the longest prompt \(4\d+ tokens\) .* out with 4090$"
    with pytest.raises(InputError, match=said):
        prepared(mine)
    assert prepared(mine, max_prompt_tokens=4090).summary["too_long"] == 1


# The command and a run ---------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path, mine):
    """Writes a recipe's file with other settings of its data; its path."""
    numbers = count()

    def write(**data) -> str:
        path = tmp_path / f"mine-{next(numbers)}.yaml"
        path.write_text(json.dumps({**mine, "data": {**mine["data"], **data}}))
        return str(path)

    return write


def test_the_command_prints_a_table(recipe, call, data_dir, tmp_path):  # noqa: F811
    out = tmp_path / "checked"
    done = call("data", recipe(), "--data-dir", str(data_dir), "--overlap", "oar_amc23,oar_aime24",
                "--out", str(out), "--show", "1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    assert table[0] == str(tmp_path / "mine.jsonl")
    assert [" ".join(line.split()) for line in table[1:5]] == [
        "rows 8", "duplicates 0", "in a test set 0 (kept)", "kept 8",
    ]  # fmt: skip
    assert "oar_amc23" in done.stdout
    assert "0 of 8 training rows overlap" in done.stdout
    assert SUMS[0]["problem"] in done.stdout
    assert read_json(out / "data.json")["kept"] == 8
    assert read_json(out / "overlap.json")["tasks"]["oar_amc23"]["problems"] == 40
    again = call("data", recipe(), "--out", str(out), "--json")
    found = json.loads(again.stdout)
    assert (found["kept"], found["overlap"], found["grading"]["answer_type"]) == (8, None, "math")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--overlap", "oar_gsm9k"], "data.overlap: unknown task 'oar_gsm9k'"),
        (["--overlap", ","], "--overlap: nothing is given"),
        (["--overlap", "oar_sum", "--set", "data=3"], "goes through a value that was set"),
        (["--set", "data.promt=x"], "unknown key 'data.promt'; did you mean 'prompt'?"),
        (["--data-dir", "/no/such"], "--data-dir /no/such: no such folder"),
        (["--out", __file__], "a folder is expected, not a file"),
        (["--show", "-1"], "Invalid value for '--show'"),
    ],
)
def test_bad_options_are_one_line(recipe, call, words, said):
    done = call("data", recipe(), *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_recipes_and_commands_without_data(recipe, call, tmp_path):
    for words, said in (
        (["data", "tiny"], "recipe tiny: it trains on built-in problems; add a section data"),
        (["train", "tiny", "--data-dir", str(tmp_path)], "--data-dir: the recipe trains on built"),
        (["train", recipe(), "--data-dir", "/no/such"], "--data-dir /no/such: no such folder"),
        (["reproduce", recipe(), "--data-dir", "/no/such"], "no such folder"),
        (["reproduce", recipe(overlap=["oar_gsm9k"])], "data.overlap: unknown task 'oar_gsm9k'"),
        (["train", recipe(path=str(tmp_path / "none")), "--out", str(tmp_path / "run")],
         "no such file of problems"),
    ):  # fmt: skip
        done = call(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert said in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_trains_on_the_data_and_resumes(recipe, call, data_dir, tmp_path):  # noqa: F811
    path = recipe(overlap=["oar_aime24"], answer_type="number", extract="gsm8k")
    out = tmp_path / "run"
    lines(tmp_path / "mine.jsonl", [{**row, "tolerance": "0.5"} for row in SUMS])
    words = ["train", path, "--method", "oar-g", "--data-dir", str(data_dir)]
    assert call(*words, "--steps", "2", "--out", str(out)).returncode == 0
    about = read_json(out / "run.json")
    assert about["data"]["kept"] == 8
    assert about["grading"] == {"answer_type": "number", "extract": "gsm8k"}
    assert grading_of(out / "rollouts.jsonl") == ("number", "gsm8k")
    assert read_json(out / "overlap.json")["tasks"]["oar_aime24"]["rows_found"] == 0
    rows = list(read_jsonl(out / "rollouts.jsonl"))
    assert all(0 < row["tolerance"] <= 0.5 + 1e-6 for row in rows)
    replayed = tmp_path / "replayed"  # the same responses, graded with the same tolerances
    assert call(*words, "--steps", "2", "--out", str(replayed), "--rollouts",
                str(out / "rollouts.jsonl")).returncode == 0  # fmt: skip
    assert list(read_jsonl(replayed / "rollouts.jsonl")) == rows
    asked = {step: {r["problem"] for r in rows if r["step"] == step} for step in (1, 2)}
    assert [len(names) for names in asked.values()] == [3, 3]
    assert not asked[1] & asked[2]  # eight problems: none again in the first epoch
    other = tmp_path / "other"  # another method of the seed meets the same problems
    grpo = ["train", path, "--data-dir", str(data_dir), "--steps", "2", "--out", str(other)]
    assert call(*grpo).returncode == 0
    same = [(r["step"], r["problem"]) for r in read_jsonl(other / "rollouts.jsonl")]
    assert same == [(r["step"], r["problem"]) for r in rows]
    lines(Path(about["settings"]["data"]["path"]), SUMS[:7])
    done = call(*grpo, "--resume")
    assert done.returncode == 2
    assert "this folder holds a run with other data" in done.stderr


def test_reproduce_evaluates_as_it_trains(recipe, call, data_dir, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    path = recipe(prompt="boxed", chat_template=True, system="Be brief.")
    done = call("reproduce", path, "--data-dir", str(data_dir), "--steps", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    files = ("runs/grpo/seed-0/rollouts.jsonl", "start/eval/oar_gsm8k/problems.jsonl")
    trained, asked = ([row["prompt"] for row in read_jsonl(out / name)] for name in files)
    assert len(trained) == 6
    assert len(asked) == 2
    for prompt in [*trained, *asked]:
        assert prompt.startswith("<system>Be brief.</system>\n<user>")
        assert prompt.endswith("within \\boxed{}.</user>\n<assistant>")


def test_scored_responses_of_any_engine_filter_too(tmp_path, mine, call):
    answers = {"s0": ["1", "1"], "s1": ["3", "4"], "s2": ["0", "0"]}
    rows = [
        {"id": name, "response": f"It is \\boxed{{{text}}}.", "gold": SUMS[int(name[1])]["answer"]}
        for name, texts in answers.items()
        for text in texts
    ]
    file = lines(tmp_path / "responses.jsonl", rows)
    assert call("score", str(file), "--out", str(tmp_path / "s.jsonl")).returncode == 0
    assert pass_rates(tmp_path / "s.jsonl") == {"s0": 1.0, "s1": 0.5, "s2": 0.0}
    found = prepared(mine, pass_rate={"file": str(tmp_path / "s.jsonl")})
    assert [problem.id for problem in found.problems] == ["s1"]


def test_dynamic_sampling_ends_when_the_problems_are_used_up(recipe, call, tmp_path):
    """A random model is never right: every draw is asked for, and there are three of 3, 3, 2."""
    out = tmp_path / "run"
    done = call("train", recipe(), "--steps", "1", "--set", "train.dynamic_sampling=9",
                "--out", str(out))  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = list(read_jsonl(out / "rollouts.jsonl"))
    assert sorted(r["problem"] for r in rows) == sorted([f"s{i}" for i in range(8)] * 2)
