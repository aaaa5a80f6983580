"""Tasks of lm-eval by name, with stand-ins for their data: no hub is needed."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from oar_bench.errors import InputError
from oar_bench.evaluation.asking import Asking
from oar_bench.evaluation.generate import generate, sampling_of
from oar_bench.evaluation.score import score
from oar_bench.evaluation.stock import lm_eval_metrics, needs_lm_eval, of_first_filter
from oar_bench.records import read_json, read_jsonl
from oar_bench.reporting.headtohead import head_to_head
from oar_bench.reporting.headtohead_text import as_dict, plain
from oar_bench.reporting.text import NONE
from oar_bench.stages import Job, run_generation, run_scoring
from oar_bench.tasks.catalog import check_task, expand
from oar_bench.tasks.registry import load_task
from tests.evaluation.answering import Answering
from tests.tasks.conftest import byte_model  # noqa: F401  a fixture

GSM = [
    {"question": f"What is {i} plus 1?", "answer": f"{i} + 1 = {i + 1}\n#### {i + 1}"}
    for i in range(12)
]
LAMBADA = [{"text": f"The cat sat on the mat and saw number {i}"} for i in range(6)]


@pytest.fixture
def hub(monkeypatch):
    """A hub that has the first rows of nothing real."""

    def stand_in(path, name=None, **_):
        rows = {"openai/gsm8k": GSM, "EleutherAI/lambada_openai": LAMBADA}[path]
        data = datasets.Dataset.from_list(rows)
        return datasets.DatasetDict({"train": data, "test": data})

    monkeypatch.setattr(datasets, "load_dataset", stand_in)


def test_names_of_lm_eval_are_found():
    check_task("gsm8k")
    assert expand(["gsm8k", "oar_sum"]) == ["gsm8k", "oar_sum"]
    assert not needs_lm_eval("oar_sum")
    assert not needs_lm_eval("gsm8k")
    assert needs_lm_eval("lambada_openai")
    assert needs_lm_eval("arc_easy")
    with pytest.raises(InputError, match="name its tasks one by one"):
        check_task("mmlu")
    with pytest.raises(InputError, match="unknown task 'gsm8kk'"):
        check_task("gsm8kk")


def test_a_task_of_text_runs_through_us(hub, tmp_path: Path):
    task = load_task("gsm8k", limit=8)
    assert task.stock
    assert task.questions[3].prompt.endswith("Question: What is 3 plus 1?\nAnswer:")
    assert task.questions[3].prompt.count("####") == 5  # its own five examples
    assert task.stop == ("Question:", "</s>", "<|im_end|>")
    engine = Answering(lambda problem, k: ["#### {}", "about {}", "none"][k].format(
        int(problem.rpartition("-")[2]) + (1 if k == 0 else 0)))  # fmt: skip
    sampling = sampling_of(task, temperature=1.0)
    generate(engine, "m", "w", task, tmp_path, samples=3, sampling=sampling)
    results = score(tmp_path)
    assert results["metrics"]["statuses"] == {"correct": 8, "no_answer": 16}
    assert results["metrics"]["avg@k"]["value"] == pytest.approx(1 / 3)
    [first, *_] = read_jsonl(tmp_path / "scores.jsonl")
    assert (first["stage"], first["how"], first["extracted"]) == ("lm-eval", "strict-match", "1")


def test_another_output_type_goes_through_lm_eval(hub, byte_model, tmp_path, capsys):  # noqa: F811
    words = (byte_model, "lambada_openai", 1, 1.0, 1.0, 0, 4, None, 4, tmp_path)
    with pytest.raises(InputError, match="asks for loglikelihood, not for text"):
        run_generation(Job(*words))
    asking = Asking(elsewhere=True)
    [folder] = run_generation(Job(*words, asking=asking))
    results = read_json(folder / "results.json")
    assert (results["kind"], results["engine"]) == ("evaluation", "lm-eval")
    assert results["task"] == "lambada_openai"
    assert results["metrics"]["n_problems"] == 4
    assert set(results["metrics"]["lm_eval"]) == {"perplexity,none", "acc,none"}
    assert {"task", "data", "prompt", "grader", "model"} <= set(results["fingerprints"])
    rows = list(read_jsonl(folder / "scores.jsonl"))
    assert [row["problem"] for row in rows] == [f"lambada_openai-{i}" for i in range(4)]
    right = sum(row["correct"] for row in rows) / 4
    assert (
        right == results["metrics"]["lm_eval"]["acc,none"] == results["metrics"]["avg@k"]["value"]
    )
    capsys.readouterr()
    run_scoring([folder], False)
    assert "perplexity,none" in capsys.readouterr().out
    before = (folder / "results.json").stat().st_mtime_ns
    assert run_generation(Job(*words, asking=asking)) == [folder]
    assert (folder / "results.json").stat().st_mtime_ns == before
    with pytest.raises(InputError, match="another evaluation"):
        run_generation(Job(*words[:6], 3, *words[7:], asking=asking))
    with pytest.raises(InputError, match="runs through lm-eval"):
        run_generation(Job(*words, asking=Asking(shard="0/2", elsewhere=True)))


def test_results_of_lm_eval_are_compared_problem_by_problem(hub, byte_model, tmp_path):  # noqa: F811
    folders = []
    for name, limit in (("a", 4), ("b", 4), ("c", 2)):
        job = Job(byte_model, "lambada_openai", 1, 1.0, 1.0, 0, limit, None, 4, tmp_path / name,
                  asking=Asking(elsewhere=True))  # fmt: skip
        folders += run_generation(job)
    rows = list(read_jsonl(folders[1] / "scores.jsonl"))
    flipped = [{**row, "correct": not row["correct"]} for row in rows[:1]] + rows[1:]
    (folders[1] / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flipped))
    results = read_json(folders[1] / "results.json")
    results["metrics"]["avg@k"]["value"] = sum(row["correct"] for row in flipped) / 4
    (folders[1] / "results.json").write_text(json.dumps(results))
    found = head_to_head(folders[:2])
    [duel] = found.meetings[0].duels
    assert (duel.wins + duel.losses, duel.ties) == (1, 3)
    assert NONE in plain(found)  # tokens and truncation, which lm-eval doesn't tell
    assert as_dict(found)["tasks"][0]["results"][0]["truncated"] is None
    with pytest.raises(InputError, match=r"other problems than a.* --allow problems"):
        head_to_head([folders[0], folders[2]])
    [meeting] = head_to_head([folders[0], folders[2]], ["problems"]).meetings
    assert (meeting.problems, meeting.duels[0].word) == (2, "identical")


def test_what_lm_eval_cannot_judge_by_problem_is_named(tmp_path):
    for name in "ab":
        about = {"schema": 1, "kind": "evaluation", "engine": "lm-eval", "task": "wikitext",
                 "metrics": {"avg@k": None}, "fingerprints": {}, "settings": {}}  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="none of its metrics is right or wrong"):
        head_to_head([tmp_path / "a", tmp_path / "b"])


def test_the_rows_of_other_filters_are_no_problems_of_their_own():
    results = {"exact_match,strict": 0.5, "exact_match,loose": 1.0}
    rows = [{"filter": f, "exact_match": v} for f, v in
            (("strict", 1.0), ("loose", 1.0), ("strict", 0.0), ("loose", 1.0))]  # fmt: skip
    kept = of_first_filter(results, rows)
    assert lm_eval_metrics(results, kept)["avg@k"]["value"] == 0.5
    assert lm_eval_metrics(results, kept)["statuses"] == {"correct": 1, "wrong": 1}


def test_data_out_of_reach_are_one_line(monkeypatch):
    def fails(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    with pytest.raises(InputError, match=r"task gsm8k: its data can't be read \(no route to host"):
        load_task("gsm8k")
