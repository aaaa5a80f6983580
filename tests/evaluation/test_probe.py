"""The contamination probe and the dry run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.engines.base import Completion, Sampling
from oar_bench.errors import InputError
from oar_bench.evaluation.generate import generate
from oar_bench.evaluation.plan import format_plan, plan
from oar_bench.evaluation.probe import (
    SLACK,
    common_prefix,
    parse_probe,
    probe_sampling,
    probe_task,
    split_question,
)
from oar_bench.evaluation.score import score
from oar_bench.evaluation.shards import Shard
from oar_bench.records import read_json, read_jsonl
from oar_bench.tasks.registry import LoadedTask, Question

TEXTS = [f"Anna has {i} red pens and {i + 1} blue ones. How many has she now?" for i in range(10)]
TASK = LoadedTask(
    "oar_test",
    tuple(Question(f"p{i}", f"{t}\nAnswer:", str(i), None, t) for i, t in enumerate(TEXTS)),
    ("\n",), 64, {"answer_type": "number"}, {"task": "t", "data": "d", "prompt": "p"},
)  # fmt: skip


class Memory:
    """An engine that knows the first `known` questions by heart, and half the rest of others."""

    name = "hf"

    def __init__(self, known: int) -> None:
        self.known, self.asked = known, []

    def generate(self, requests, sampling):
        assert sampling.temperature == 0
        for request in requests:
            self.asked.append(request.prompt)
            number = int(request.problem[1:])
            rest = TEXTS[number][len(request.prompt) :]
            text = rest + " She has" if number < self.known else rest[: len(rest) // 2] + "#"
            yield Completion(request, text, "length", 5, 9)


@given(st.text(min_size=1), st.floats(0.05, 0.95))
def test_the_parts_are_the_question(text, share):
    given_part, rest = split_question(text, share)
    assert given_part + rest == " ".join(text.split())
    assert len(given_part) <= max(1, round(share * len(" ".join(text.split()))))
    assert not given_part.endswith(" ")


@pytest.mark.parametrize("text", ["partial", "partial:", "partial:0", "partial:1", "partial:nan",
                                  "whole:0.6", "partial:60%", ""])  # fmt: skip
def test_what_is_no_probe(text):
    with pytest.raises(InputError, match=r"use partial:0\.6"):
        parse_probe(text)


def test_known_questions_are_counted(tmp_path):
    task = probe_task(TASK, 0.6)
    engine = Memory(known=3)
    sampling = probe_sampling(task, len)
    assert sampling.max_new_tokens == max(len(q.gold) for q in task.questions) + SLACK
    generate(engine, "m", "w", task, tmp_path, samples=1, sampling=sampling)
    results = score(tmp_path)
    assert results == read_json(tmp_path / "results.json")
    assert (results["kind"], results["probe"], results["complete"]) == (
        "probe",
        "partial:0.6",
        True,
    )
    exact = results["metrics"]["exact_completions"]
    assert (exact["value"], exact["n"], exact["method"]) == (0.3, 10, "Wilson")
    assert exact["low"] == pytest.approx(0.1078, abs=1e-4)
    assert exact["high"] == pytest.approx(0.6032, abs=1e-4)
    rests = [len(q.gold.strip()) for q in task.questions]
    found = [r if i < 3 else common_prefix(_half(q), q.gold) for i, (r, q) in
             enumerate(zip(rests, task.questions, strict=True))]  # fmt: skip
    assert results["metrics"]["prefix_characters"] == pytest.approx(sum(found) / 10)
    share = sum(f / r for f, r in zip(found, rests, strict=True)) / 10
    assert results["metrics"]["prefix_share"]["value"] == pytest.approx(share)
    assert not (tmp_path / "scores.jsonl").exists()


def _half(question: Question) -> str:
    rest = question.gold
    return rest[: len(rest) // 2] + "#"


def test_the_model_gets_the_bare_first_part(tmp_path):
    task = probe_task(TASK, 0.6)
    engine = Memory(known=0)
    generate(engine, "m", "w", task, tmp_path, samples=1, sampling=probe_sampling(task, len))
    assert engine.asked[0] == "Anna has 0 red pens and 1 blue"
    assert all(TEXTS[i].startswith(prompt) for i, prompt in enumerate(engine.asked))
    assert score(tmp_path)["metrics"]["exact_completions"]["value"] == 0
    other = probe_task(TASK, 0.5)
    with pytest.raises(InputError, match="another task"):
        generate(engine, "m", "w", other, tmp_path, samples=1, sampling=probe_sampling(other, len))


def test_questions_without_text_are_refused():
    bare = LoadedTask("oar_test", (Question("p0", "x", "1"),), (), 4, {}, TASK.fingerprints)
    with pytest.raises(InputError, match="no text that could be cut"):
        probe_task(bare, 0.6)


def test_prefixes_count_blanks_as_one():
    assert common_prefix("a  b\nc", "a b c") == 5
    assert common_prefix("", "a") == 0
    assert common_prefix("a b c d", "a b") == 3


def test_a_plan_counts_what_generate_would_ask(tmp_path):
    found = plan(TASK, 4, Sampling(1.0, 1.0, 50, ()), len)
    lengths = [len(q.prompt) for q in TASK.questions]
    assert (found.problems, found.requests, found.most_tokens) == (10, 40, 2000)
    assert found.prompt_tokens_min, found.prompt_tokens_max == (min(lengths), max(lengths))
    assert found.prompt_tokens_mean == pytest.approx(sum(lengths) / 10)
    assert found.prompts == (TASK.questions[0].prompt, TASK.questions[1].prompt)
    third = plan(TASK, 4, Sampling(1.0, 1.0, 50, ()), len, Shard.parse("1/3"))
    assert (third.problems, third.requests) == (3, 12)
    assert third.prompts[0] == TASK.questions[1].prompt
    assert math.isfinite(plan(TASK, 1, Sampling(), len, Shard.parse("11/12")).prompt_tokens_mean)


def test_a_plan_shows_control_characters():
    task = LoadedTask("t", (Question("p", "a\x1b[31m", "1"),), (), 4, {}, {})
    assert "\x1b" not in format_plan(plan(task, 1, Sampling(), len))


def test_probe_rows_are_on_disk(tmp_path):
    task = probe_task(TASK, 0.6)
    generate(Memory(2), "m", "w", task, tmp_path, samples=1, sampling=probe_sampling(task, len))
    assert len(list(read_jsonl(tmp_path / "samples.jsonl"))) == 10
