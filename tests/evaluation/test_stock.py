"""Tasks of lm-eval by name, with stand-ins for their data: no hub is needed."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from oar_bench.errors import InputError
from oar_bench.evaluation.asking import Asking
from oar_bench.evaluation.generate import generate, sampling_of
from oar_bench.evaluation.score import score
from oar_bench.evaluation.stock import needs_lm_eval
from oar_bench.records import read_json, read_jsonl
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
    assert {"task", "model"} <= set(results["fingerprints"])
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


def test_data_out_of_reach_are_one_line(monkeypatch):
    def fails(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", fails)
    with pytest.raises(InputError, match=r"task gsm8k: its data can't be read \(no route to host"):
        load_task("gsm8k")
