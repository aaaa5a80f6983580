"""The built-in problems: right golds, splits that never mix, known greatest lengths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.answers import Grader
from oar_bench.errors import InputError
from oar_bench.tasks.problems import FAMILIES, VOCABULARY, distinct, draw, split_of
from oar_bench.tasks.registry import load_task, task_names

FAMILY = st.sampled_from(sorted(FAMILIES))


def solve(family: str, prompt: str) -> str:
    """The answer by Python's own arithmetic."""
    if family == "digits":
        left, right = prompt.removesuffix(" =").split(" + ")
        total = int(left.replace(" ", "")) + int(right.replace(" ", ""))
        return " ".join(f"{total:05d}")
    results = []
    for term in prompt.removesuffix(" =").split(" , "):
        a, op, b = term.split()
        value = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]
        results.append(str(value % 10))
    return " ".join(results)


@given(FAMILY, st.integers(0, 10**6), st.integers(0, 100))
def test_golds_and_solutions_are_right(family, index, seed):
    problem = draw(family, index, seed)
    assert problem.answer == solve(family, problem.prompt)
    with Grader(answer_type="exact") as grader:
        assert grader.grade(problem.solution, problem.answer).correct
    assert set(f"{problem.prompt} {problem.solution}".split()) <= set(VOCABULARY)


@given(FAMILY, st.integers(0, 10**6))
def test_every_step_of_a_solution_is_right(family, index):
    steps = draw(family, index).solution.partition("####")[0]
    for step in steps.split(";")[:-1]:
        left, right = step.split("=")
        words = [w for w in left.split() if w in "0123456789+-*"]
        if family == "digits":
            a, b, carry = (int(w) for w in words if w != "+")
            assert right.split() == list(f"{a + b + carry:02d}")
        else:
            assert right.split() == [solve("sum", " ".join([*words, "="]))]


def test_splits_never_share_a_prompt():
    for family in FAMILIES:
        count = 20 if family == "sum" else 300
        train = {p.prompt for seed in range(3) for p in distinct(family, "train", count, seed)}
        test = {p.prompt for seed in range(3) for p in distinct(family, "test", count, seed)}
        assert not train & test
        assert {split_of(p) for p in test} == {"test"}


def test_solutions_fit_the_token_limits():
    limits = {"arithmetic": 58, "digits": 64, "sum": 16}
    for family, limit in limits.items():
        longest = max(len(draw(family, i).solution.split()) for i in range(3000))
        assert longest + 1 <= limit  # and the end of sequence
        task = load_task(f"oar_{family}", limit=3)
        assert task.max_new_tokens == limit


def test_too_many_different_problems_are_refused():
    with pytest.raises(InputError, match="its test split has"):
        distinct("sum", "test", 500)


def test_seeds_draw_other_problems():
    one = {q.prompt for q in load_task("oar_digits", limit=50).questions}
    two = {q.prompt for q in load_task("oar_digits", limit=50, metadata={"seed": 1}).questions}
    assert len(one & two) < 3


def test_loading_is_repeatable_and_fingerprinted():
    one, two = load_task("oar_arithmetic", limit=20), load_task("oar_arithmetic", limit=20)
    assert one == two
    other = load_task("oar_arithmetic", limit=20, metadata={"seed": 1})
    assert one.fingerprints["data"] != other.fingerprints["data"]
    assert one.fingerprints["task"] != other.fingerprints["task"]
    train = load_task("oar_arithmetic", limit=20, split="train")
    assert not {q.prompt for q in one.questions} & {q.prompt for q in train.questions}


def test_unknown_tasks_and_limits():
    assert {"oar_arithmetic", "oar_digits", "oar_sum"} <= set(task_names())
    with pytest.raises(InputError, match="did you mean 'oar_digits'"):
        load_task("oar_digit")
    with pytest.raises(InputError, match="5000 problems asked for, oar_digits has 1000"):
        load_task("oar_digits", limit=5000)
