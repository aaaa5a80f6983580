"""Training sets: files, folders, and the hub by a stand-in."""

from __future__ import annotations

import json
import re
from typing import get_args

import datasets
import pytest

from oar_bench.answers import Grader
from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.config import PROMPTS, DataSet, DataSettings
from oar_bench.errors import InputError
from oar_bench.tasks.registry import Prompting, load_task
from oar_bench.tasks.sets import SETS, TEMPLATES, load_set, prompt_of
from tests.tasks.test_benchmarks import DATA

MATH = 7  # the subjects of the set `math`, each a configuration of its own on the hub


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ROWS = [{"id": "a", "problem": "1 + 1?", "answer": "2"}, {"id": 7, "problem": "2?", "answer": 2.0}]


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("OAR_BENCH_DATA_DIR", raising=False)


def test_names_and_values_are_those_of_the_settings():
    assert set(SETS) == set(get_args(DataSet))
    assert set(TEMPLATES) == set(PROMPTS)
    fields = DataSettings.model_fields
    for name, values in (("answer_type", AnswerType), ("extract", ExtractMode)):
        assert get_args(get_args(fields[name].annotation)[0]) == get_args(values)


@pytest.mark.parametrize("name", SETS)
def test_every_known_set_is_pinned(name):
    assert re.fullmatch("[0-9a-f]{40}", SETS[name].hub["revision"])


def test_gsm8k_is_pinned_where_its_test_set_is(data_dir):
    from oar_bench.tasks.registry import task_object

    hub = task_object("oar_gsm8k", {"data_dir": str(data_dir)}).config.metadata["hub"]
    ours = SETS["gsm8k"]
    for key in ("path", "revision", "problem"):
        assert ours.hub[key] == hub[key]
    assert ours.parts == (hub["name"],)


def test_the_boxed_prompt_is_the_one_of_the_test_sets(data_dir):
    task = load_task("oar_gsm8k", limit=3, prompting=Prompting(data_dir))
    for question in task.questions:
        assert question.prompt == prompt_of("boxed", question.text)


def test_a_file_of_ones_own(tmp_path):
    path = lines(tmp_path / "mine.jsonl", [*ROWS, {**ROWS[0], "id": "b", "tolerance": "0.5"}])
    found = load_set(DataSettings(path=str(path)))
    assert [(r.id, r.problem, r.answer) for r in found.rows] == [
        ("a", "1 + 1?", "2"), ("7", "2?", "2"), ("b", "1 + 1?", "2"),
    ]  # fmt: skip
    assert [r.tolerance for r in found.rows] == [None, None, pytest.approx(0.25)]
    assert (found.answer_type, found.extract, found.source) == ("math", "auto", str(path))
    with Grader(tolerance=None) as grader:
        tolerance = found.rows[2].tolerance
        assert grader.grade("It is 2.4.", "2", tolerance=tolerance).status == "correct"
        assert grader.grade("It is 2.6.", "2", tolerance=tolerance).status == "wrong"


def test_a_folder_comes_before_the_hub_and_the_option_before_the_environment(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    one = lines(tmp_path / "one" / "gsm8k" / "train.jsonl", ROWS).parents[1]
    two = lines(tmp_path / "two" / "gsm8k" / "train.jsonl", ROWS[:1]).parents[1]
    settings = DataSettings(name="gsm8k")
    monkeypatch.setenv("OAR_BENCH_DATA_DIR", str(two))
    found = load_set(settings)
    assert (len(found.rows), found.answer_type, found.extract) == (1, "number", "gsm8k")
    assert len(load_set(settings, one).rows) == 2
    own = load_set(DataSettings(name="gsm8k", answer_type="exact", extract="boxed"), one)
    assert (own.answer_type, own.extract) == ("exact", "boxed")
    with pytest.raises(InputError, match=r"math/train\.jsonl: no such file of problems"):
        load_set(DataSettings(name="math"), one)
    with pytest.raises(InputError, match=r"data\.revision: a revision is given, but"):
        load_set(DataSettings(name="gsm8k", revision="a" * 40), one)
    with pytest.raises(InputError, match="no such data folder"):
        load_set(settings, tmp_path / "none")


HUB_ROWS = {
    "gsm8k": {"question": "Sum {i}?", "answer": "worked out\n#### {i}"},
    "math": {"problem": "Sum {i}?", "solution": "It is $\\boxed{{{i}}}$.", "level": "Level 1"},
    "dapo-17k": {"prompt": "Sum {i}?", "solution": "{i}"},
    "deepmath": {"question": "Sum {i}?", "final_answer": "{i}", "difficulty": "3"},
}


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the hub with three rows in each set; what it was asked for."""
    asked = []

    def load(path, config=None, *, revision, split):
        asked.append((path, config, revision, split))
        name = next(name for name, known in SETS.items() if known.hub["path"] == path)
        rows = [{key: value.format(i=i) for key, value in HUB_ROWS[name].items()} for i in range(3)]
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


@pytest.mark.parametrize("name", SETS)
def test_the_hub_is_asked_at_the_pinned_revision(name, hub):
    found = load_set(DataSettings(name=name))
    known = SETS[name]
    assert hub == [
        (known.hub["path"], part, known.hub["revision"], "train") for part in known.parts
    ]
    assert [row.problem for row in found.rows] == ["Sum 0?", "Sum 1?", "Sum 2?"] * len(known.parts)
    assert [row.answer for row in found.rows[:3]] == ["0", "1", "2"]
    assert len({row.id for row in found.rows}) == len(found.rows)
    assert known.hub["revision"] in found.source
    hub.clear()
    load_set(DataSettings(name=name, revision="b" * 40))
    assert {asked[2] for asked in hub} == {"b" * 40}


def test_ids_on_the_hub_are_those_of_a_folder(hub):
    assert load_set(DataSettings(name="gsm8k")).rows[2].id == "gsm8k-train-2"
    ids = [row.id for row in load_set(DataSettings(name="math")).rows]
    assert ids[3] == "math-train-counting_and_probability-0"
    assert len(ids) == 3 * MATH


def test_a_solution_without_a_box_is_left_out_and_counted(hub, monkeypatch):
    monkeypatch.setitem(HUB_ROWS["math"], "solution", "It is {i}.")
    with pytest.raises(InputError, match="no problem in it"):
        load_set(DataSettings(name="math"))
    rows = [
        {"problem": "A?", "solution": "So $\\boxed{\\frac12}$."},
        {"problem": "B?", "solution": "Left to the reader."},
    ]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(rows))
    found = load_set(DataSettings(name="math"))
    assert found.without_gold == MATH
    assert [row.answer for row in found.rows] == ["\\frac12"] * MATH


def test_the_instruction_around_a_problem_is_taken_off(hub, monkeypatch):
    before, after = SETS["dapo-17k"].around
    monkeypatch.setitem(HUB_ROWS["dapo-17k"], "prompt", f"{before}Sum {{i}}?{after}")
    assert load_set(DataSettings(name="dapo-17k")).rows[1].problem == "Sum 1?"


def test_a_hub_out_of_reach_is_one_line(monkeypatch):
    def fails(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    with pytest.raises(
        InputError, match=r"DeepMath-103K: can't be read \(no route to host\); give"
    ):
        load_set(DataSettings(name="deepmath"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no problem in it"),
        ('{"id": "a", "problem": "x"}\n', "line 1: answer is missing or empty"),
        ('{"id": "a", "problem": " ", "answer": "3"}\n', "line 1: problem is missing or empty"),
        ('{"problem": "x", "answer": "3"}\n', "line 1: id is missing or empty"),
        ('{"id": "a", "problem": "x", "answer": []}\n', "line 1: answer is missing or empty"),
        ('{"id": "a", "problem": "x", "answer": {"a": 1}}\n', "neither text nor number"),
        ('{"id": "a", "problem": "x", "answer": NaN}\n', "answer is neither text nor number"),
        ('{"id": true, "problem": "x", "answer": 1}\n', "line 1: its id is neither"),
        ('{"id": "a", "problem": "\\ud800", "answer": 1}\n', "line 1: its problem is neither"),
        ('{"id": "a", "problem": "x", "answer": 1, "tolerance": "1%"}\n', "tolerance '1%' is no"),
        ('{"id": "a", "problem": "x", "answer": 1, "tolerance": -1}\n', "is no number >= 0"),
        ('{"id": "a", "problem": "x", "answer": "3"}\n{]\n', "line 2 is not JSON"),
        ("[1]\n", "line 1 is not a JSON object"),
        ('{"id": "a", "problem": "x", "answer": "3"}', "the last line has no end"),
        ('{"id": "a", "problem": "x", "answer": "3"}\n' * 2, "two problems have one id"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, said):
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        load_set(DataSettings(path=str(path)))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_file(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(InputError, match="no such file of problems"):
            load_set(DataSettings(path=str(path)))


@pytest.mark.skipif(not (DATA / "gsm8k" / "train.jsonl").is_file(), reason="the set is not here")
def test_the_real_training_set():
    found = load_set(DataSettings(name="gsm8k"), DATA)
    assert len(found.rows) == 7473
    with Grader(answer_type=found.answer_type, extract=found.extract) as grader:
        for row in found.rows[:60]:
            assert grader.grade(f"So it is.\n#### {row.answer}", row.answer).correct
            assert grader.grade(f"It is $\\boxed{{{row.answer}}}$.", row.answer).correct


def test_zero_is_an_id_and_an_answer(tmp_path):
    rows = [{"id": i, "problem": "x", "answer": a} for i, a in enumerate([0, 0.0, "0", [0, 1]])]
    found = load_set(DataSettings(path=str(lines(tmp_path / "mine.jsonl", rows))))
    assert [(row.id, row.answer) for row in found.rows] == [
        ("0", "0"), ("1", "0"), ("2", "0"), ("3", "0, 1")
    ]  # fmt: skip
