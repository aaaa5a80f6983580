"""The seven test sets: settings, data from a folder or the hub, prompts, grading."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import datasets
import pytest
import yaml

from oar_bench.answers import Grader
from oar_bench.errors import InputError
from oar_bench.resources import shipped
from oar_bench.tasks.benchmarks import benchmark, examples, gold_of, row_tolerance
from oar_bench.tasks.catalog import expand, files_of, group_members, group_names, task_names
from oar_bench.tasks.chat import chat_template_of
from oar_bench.tasks.documents import grade_document
from oar_bench.tasks.registry import Prompting, load_task, task_object
from tests.tasks.conftest import ROWS

DATA = Path(
    os.environ.get("OAR_BENCH_DATA_DIR")
    or Path(__file__).resolve().parents[2].parent / "shared" / "data"
)
OWN = [f"oar_{name}" for name in ROWS]


def load(name: str, data_dir: Path, **more):
    limit = more.pop("limit", None)
    return load_task(name, limit=limit, prompting=Prompting(data_dir, **more))


def test_the_catalog_has_tasks_groups_and_variants():
    assert {*OWN, "oar_sum"} <= set(task_names())
    assert set(group_names()) == {"oar_math", "oar_math_chat", "oar_math_fewshot"}
    assert expand(["oar_math", "oar_sum", "oar_gsm8k"]) == [*OWN, "oar_sum"]
    assert expand(["oar_math_fewshot"]) == [f"oar_math_fewshot/{name}" for name in OWN]
    for group in group_names():
        assert list(group_members(group)) == OWN
    for name, said in (
        ("oar_gsm9k", "did you mean 'oar_gsm8k'"),
        ("oar_math_chat/oar_gsm9k", "did you mean 'oar_gsm8k'"),
    ):
        with pytest.raises(InputError, match=said):
            expand([name])
    with pytest.raises(InputError, match="group of several tasks"):
        load_task("oar_math")


def test_task_files_are_short_and_say_what_they_are():
    for path in shipped("tasks").glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# "), path.name
        assert len(lines) < 30, path.name


@pytest.mark.parametrize("name", OWN)
def test_settings_and_counts(name, data_dir):
    task = load(name, data_dir)
    assert len(task.questions) == ROWS[name.removeprefix("oar_")]
    assert task.max_new_tokens >= (8192 if "aime" in name else 2048)
    assert task.stop == ()
    first = task.questions[0]
    assert first.text == "What is 0 plus 3?"
    assert first.prompt.startswith(first.text)
    assert first.prompt.endswith("put your final answer within \\boxed{}.")
    hub = task_object(name, {"data_dir": str(data_dir)}).config.metadata["hub"]
    assert re.fullmatch("[0-9a-f]{40}", hub["revision"])


def test_a_split_that_is_not_there(data_dir):
    with pytest.raises(InputError, match="it has no train split"):
        load_task("oar_aime24", split="train", prompting=Prompting(data_dir))


def test_every_file_of_a_task_is_in_its_fingerprint():
    names = [path.name for path in files_of("oar_math_fewshot/oar_aime24")]
    assert names == [
        "aime24.yaml", "_long.yaml", "_boxed.yaml", "math_fewshot.yaml", "_fewshot.yaml",
        "examples.json", "utils.py",
    ]  # fmt: skip


def test_fingerprints_follow_contents_and_not_places(data_dir, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(data_dir, copy)
    one = load("oar_aime24", data_dir)
    assert one == load("oar_aime24", copy)
    path = copy / "aime24" / "test.jsonl"
    path.write_text(path.read_text().replace('"answer": "3"', '"answer": "4"'))
    other = load("oar_aime24", copy)
    changed = [key for key in one.fingerprints if one.fingerprints[key] != other.fingerprints[key]]
    assert changed == ["data"]
    shots = load("oar_aime24", data_dir, fewshot=2)
    changed = [key for key in one.fingerprints if one.fingerprints[key] != shots.fingerprints[key]]
    assert changed == ["prompt"]
    own = load("oar_olympiadbench", data_dir)
    shutil.copytree(data_dir / "olympiadbench", copy / "olympiadbench", dirs_exist_ok=True)
    path = copy / "olympiadbench" / "test.jsonl"
    path.write_text(path.read_text().replace('"1e-1"', '"2e-1"'))
    assert load("oar_olympiadbench", copy).fingerprints["data"] != own.fingerprints["data"]


def test_fewshot_examples_are_right_and_come_first(data_dir):
    shown = examples()
    with Grader() as grader:
        for example in shown:
            assert grader.grade(example["solution"], example["answer"]).correct
    task = load("oar_math_fewshot/oar_gsm8k", data_dir, limit=3)
    assert task.name == "oar_math_fewshot/oar_gsm8k"
    prompt = task.questions[2].prompt
    assert prompt.endswith("Problem:\nWhat is 2 plus 5?\n\nSolution:")
    assert [prompt.count(e["solution"]) for e in shown] == [1, 1, 1, 1]
    assert task.stop == ("Problem:",)
    assert load("oar_math_fewshot/oar_aime25", data_dir).max_new_tokens == 8192
    two = load("oar_gsm8k", data_dir, fewshot=2, limit=1).questions[0].prompt
    assert two.count("\\boxed{}.") == 3
    with pytest.raises(InputError, match="5 examples asked for, oar_gsm8k has 4"):
        load("oar_gsm8k", data_dir, fewshot=5)


def test_chat_template_and_system_prompt(data_dir, byte_model):
    template = chat_template_of(byte_model)
    chat = load("oar_math_chat/oar_amc23", data_dir, chat_template=template, limit=1)
    request = "Please reason step by step, and put your final answer within \\boxed{}."
    assert chat.questions[0].prompt == (
        f"<system>{request}</system>\n<user>What is 0 plus 3?</user>\n<assistant>"
    )
    plain = load("oar_amc23", data_dir, chat_template=template, system="Be brief.", limit=1)
    assert plain.questions[0].prompt == (
        f"<system>Be brief.</system>\n<user>What is 0 plus 3?\n{request}</user>\n<assistant>"
    )
    shots = load("oar_amc23", data_dir, chat_template=template, fewshot=1, limit=1)
    assert shots.questions[0].prompt.count("<assistant>") == 2
    with pytest.raises(InputError, match="add --chat-template"):
        load("oar_math_chat/oar_amc23", data_dir)


def test_a_model_without_chat_template(start):
    with pytest.raises(InputError, match="no chat template"):
        chat_template_of(start)


def test_variants_ask_what_lm_eval_asks(data_dir, monkeypatch):
    """The group as lm-eval itself builds it, all seven at once, has the same prompts."""
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("OAR_BENCH_DATA_DIR", str(data_dir))
    manager = TaskManager(include_path=str(shipped("tasks")), include_defaults=False)
    theirs = manager.load(["oar_math_fewshot"])["tasks"]
    assert sorted(theirs) == sorted(OWN)
    for name, task in theirs.items():
        ours = load_task(f"oar_math_fewshot/{name}", limit=2)
        for question, document in zip(ours.questions, task.test_docs(), strict=False):
            assert question.prompt == task.fewshot_context(document, task.config.num_fewshot)
        generation = task.config.generation_kwargs
        assert generation["max_gen_toks"] == ours.max_new_tokens
        assert tuple(generation["until"]) == ours.stop


def test_golds_have_their_own_tolerance(data_dir):
    tolerances = [q.tolerance for q in load("oar_minerva_math", data_dir).questions[:4]]
    assert tolerances[1:] == [0.01, None, 0.01]
    assert tolerances[0] == pytest.approx(1.6e-21)
    documents = task_object("oar_minerva_math", {"data_dir": str(data_dir)}).test_docs()
    for response, right in (("1.605e-19", 1), ("1.7e-19", 0), ("0.003", 0), ("0", 0)):
        assert grade_document(documents[0], f"\\boxed{{{response}}}") == right, response
    [declared, absent] = load("oar_olympiadbench", data_dir).questions[:2]
    assert absent.tolerance is None
    with Grader() as grader:
        for answer, right in (("4.3", True), ("4.1", True), ("4.31", False), ("4.6", False)):
            assert grader.grade(answer, "4.2", tolerance=declared.tolerance).correct == right
        assert not grader.grade("4.29", "4.2").correct  # not remembered from the call before


def test_a_tolerance_that_means_nothing():
    assert row_tolerance("4", "much", None) is None
    assert row_tolerance("(1, 2)", "0.1", 0.01) is None


BROKEN = [
    ("", "0 problems, the test set has 30"),
    ('{"id": 1, "problem": "p", "answer": "4"}\n', "1 problems, the test set has 30"),
    ('{"id": 1, "problem": "p"}\n', "line 1: answer is missing or empty"),
    ('{"id": 1, "problem": " ", "answer": "4"}\n', "line 1: problem is missing or empty"),
    ("not json\n", "line 1 is not JSON"),
    ('{"id": 1, "problem": "p", "answer": "4"}\n' * 30, "two problems have one id"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN)
def test_broken_data_are_one_line(tmp_path, text, said):
    (tmp_path / "aime24").mkdir()
    (tmp_path / "aime24" / "test.jsonl").write_text(text)
    with pytest.raises(InputError, match=said) as error:
        load("oar_aime24", tmp_path)
    assert "\n" not in str(error.value)


def test_absent_data_name_the_mend(tmp_path):
    with pytest.raises(InputError, match=r"test\.jsonl: no such file.*--data-dir"):
        load("oar_aime24", tmp_path)
    with pytest.raises(InputError, match="no such data folder"):
        load("oar_aime24", tmp_path / "nowhere")


def test_a_manifest_is_held(data_dir, tmp_path):
    shutil.copytree(data_dir / "aime24", tmp_path / "aime24")
    path = tmp_path / "aime24" / "test.jsonl"
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest = tmp_path / "MANIFEST.json"
    manifest.write_text(json.dumps({"aime24/test": {"rows": 30, "sha256": right}}))
    assert len(load("oar_aime24", tmp_path).questions) == 30
    path.write_text(path.read_text().replace("plus", "and"))
    with pytest.raises(InputError, match="SHA-256 differs"):
        load("oar_aime24", tmp_path)


HUB_ROWS = {
    "oar_gsm8k": {"question": "Sum {i}?", "answer": "1 + 1 = 2\n#### {i}"},
    "oar_math500": {"problem": "Sum {i}?", "answer": "{i}", "unique_id": "test/{i}.json"},
    "oar_aime24": {"id": "{i}", "problem": "Sum {i}?", "answer": "{i}"},
    "oar_aime25": {"id": "{i}", "problem": "Sum {i}?", "answer": "{i}"},
    "oar_amc23": {"id": "{i}", "question": "Sum {i}?", "answer": "{i}"},
    "oar_minerva_math": {"question": "Sum {i}?", "answer": "{i}"},
    "oar_olympiadbench": {"id": "{i}", "question": "Sum {i}?", "error": None},
}


@pytest.mark.parametrize("name", OWN)
def test_the_hub_is_asked_at_the_pinned_revision(name, monkeypatch):
    """A stand-in for the hub: what is asked for, and how its rows become ours."""
    monkeypatch.delenv("OAR_BENCH_DATA_DIR", raising=False)
    hub = yaml.safe_load(
        next(
            p.read_text() for p in shipped("tasks").glob("*.yaml")
            if f"\ntask: {name}\n" in p.read_text()
        )
    )["metadata"]["hub"]  # fmt: skip
    asked = []

    def stand_in(path, config=None, *, revision, split):
        asked.append((path, config, revision, split))
        count = hub.get("rows", ROWS[name.removeprefix("oar_")])
        rows = [
            {key: value and value.format(i=i) for key, value in HUB_ROWS[name].items()}
            for i in range(count)
        ]
        if name == "oar_olympiadbench":
            rows = [{**row, "final_answer": [f"${i}$"]} for i, row in enumerate(rows)]
            rows[1]["error"] = "1e-1"
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", stand_in)
    task = load_task(name)
    assert asked == [(hub["path"], hub.get("name"), hub["revision"], hub["split"])]
    assert task.questions[1].text == "Sum 1?"
    assert task.questions[1].gold == "1"
    own = {"oar_minerva_math": 0.01, "oar_olympiadbench": 0.1}.get(name)
    assert task.questions[1].tolerance == (own and pytest.approx(own))
    with monkeypatch.context() as patched:
        patched.setattr(datasets, "load_dataset", lambda *a, **k: stand_in(*a, **k).select([0]))
        with pytest.raises(InputError, match=f"hub data set {hub['path']}: 1 problems"):
            load_task(name)


def test_a_hub_out_of_reach_is_one_line(monkeypatch):
    monkeypatch.delenv("OAR_BENCH_DATA_DIR", raising=False)

    def fails(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    with pytest.raises(InputError, match=r"openai/gsm8k: can't be read \(no route to host\); give"):
        load_task("oar_gsm8k")
    with pytest.raises(InputError, match="no full revision"):
        benchmark(benchmark="mine", hub={"path": "me/mine", "revision": "main", "split": "test"})
    with pytest.raises(InputError, match="names no data set"):
        benchmark(benchmark="mine")


def test_golds_of_lists_and_solutions():
    assert gold_of({"answer": ["$a$,$b$"]}) == "$a$,$b$"
    assert gold_of({"answer": 3}) == "3"


@pytest.mark.skipif(not DATA.is_dir(), reason="the test sets are not here")
@pytest.mark.parametrize("name", OWN)
def test_the_real_test_sets(name):
    """Counts, and that a response with the boxed gold is right under the task's own grading."""
    task = task_object(name, {"data_dir": str(DATA)})
    documents = list(task.test_docs())
    assert len(documents) == ROWS[name.removeprefix("oar_")]
    for document in documents[:60]:
        assert grade_document(document, f"It is $\\boxed{{{document['answer']}}}$.") == 1.0
