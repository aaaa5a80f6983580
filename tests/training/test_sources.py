"""Sources of training problems: each once an epoch, the same for the same arguments."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oar_bench.errors import InputError
from oar_bench.tasks.problems import Problem
from oar_bench.training.data import Prepared
from oar_bench.training.sources import Epochs


def source(size: int) -> Epochs:
    problems = [Problem(f"p{i}", f"{i}?", str(i), "") for i in range(size)]
    return Epochs(Prepared(problems, "math", "auto", "f", {}, None))


def ids(problems) -> list[str]:
    return [problem.id for problem in problems]


sizes = st.tuples(st.integers(1, 12), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1]))


@settings(max_examples=150)
@given(sizes=sizes, seed=st.integers(0, 3), epochs=st.integers(1, 6))
def test_each_problem_once_an_epoch_and_never_twice_a_step(sizes, seed, epochs):
    count, size = sizes
    made, steps = source(size), -(-epochs * size // count)
    drawn = [ids(made.of_step(count, seed, step)) for step in range(1, steps + 1)]
    assert all(len(set(names)) == count for names in drawn)
    flat = [name for names in drawn for name in names]
    for epoch in range(epochs):
        assert set(flat[epoch * size : (epoch + 1) * size]) == {f"p{i}" for i in range(size)}


@given(sizes=sizes, steps=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), max_size=8))
def test_a_step_depends_on_its_arguments_alone(sizes, steps):
    count, size = sizes
    used = source(size)
    for step, again in steps:  # any order, as after a resume
        fresh = source(size).of_step(count, 5, step, again)
        assert used.of_step(count, 5, step, again) == fresh


@given(sizes=sizes, step=st.integers(1, 20), draws=st.integers(1, 5))
def test_further_draws_of_a_step_go_on_until_the_data_are_used_up(sizes, step, draws):
    count, size = sizes
    made = source(size)
    drawn = [ids(made.of_step(count, 1, step, again)) for again in range(draws + 1)]
    left = [size - again * count for again in range(draws + 1)]
    assert [len(names) for names in drawn] == [max(0, min(count, rest)) for rest in left]
    met = [name for names in drawn for name in names]
    assert len(set(met)) == len(met)


def test_seeds_epochs_and_draws_have_orders_of_their_own():
    made = source(40)
    orders = {tuple(ids(made.of_step(40, seed, step))) for seed in range(3) for step in (1, 2)}
    assert len(orders) == 6
    assert ids(made.of_step(20, 0, 1, 1)) != ids(made.of_step(20, 0, 2))


def test_the_order_of_the_rows_does_not_matter():
    problems = [Problem(f"p{i}", f"{i}?", str(i), "") for i in range(9)]
    turned = Epochs(Prepared(problems[::-1], "math", "auto", "f", {}, None))
    assert [turned.of_step(4, 0, s) for s in range(1, 9)] == [
        source(9).of_step(4, 0, s) for s in range(1, 9)
    ]


def test_many_epochs_of_a_small_set_hang_together():
    made = source(1999)
    last = ids(made.of_step(1000, 0, 1500))
    assert len(set(last)) == 1000


def test_more_problems_a_step_than_there_are():
    with pytest.raises(InputError, match=r"prompts_per_step: 4 problems a step, the data have 3"):
        source(3).of_step(4, 0, 1)
