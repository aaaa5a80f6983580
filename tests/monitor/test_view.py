"""The view of a run from rows written by hand."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.monitor.view import (
    Rows,
    as_dict,
    phases_of,
    project_view,
    quantity,
    run_view,
    state_of,
)
from tests.monitor.runs import about, metrics, timing


def rows(*steps: int) -> Rows:
    return Rows(
        {step: metrics(step) for step in steps},
        {step: {row["phase"]: row["seconds"] for row in timing(step)} for step in steps},
    )


def test_a_view_by_hand():
    view = run_view("here", about(), rows(1, 2), "running", idle=3.0)
    assert (view.label, view.recipe, view.method, view.seed) == ("here", "tiny", "oar-p", 1)
    assert (view.step, view.steps) == (2, 4)
    reward = view.quantity("reward")
    assert (reward.latest, reward.recent, reward.series) == (0.25, 0.1875, (0.125, 0.25))
    assert view.quantity("kl_start").latest == 0.002
    assert view.quantity("response_length").recent == 31.5
    assert view.quantity("truncated").latest == 0.25
    assert view.quantity("grad_norm").series == (1.0, 0.5)
    # The first step (12 s) pays for warm-up: shares and pace are the second's (3 s + 1 s).
    assert [(p.name, p.seconds, p.share) for p in view.phases] == [
        ("rollout", 3.0, 0.75), ("update", 1.0, 0.25),
    ]  # fmt: skip
    assert view.step_seconds == 4.0
    assert view.left == 8.0
    assert view.spent == 16.0


def test_the_gap_to_another_sampler_is_a_quantity_of_runs_that_have_one():
    gaps = {1: metrics(1, logprob_gap=0.25), 2: metrics(2), 3: metrics(3, logprob_gap=0.75)}
    view = run_view("", about(), Rows(gaps, {}), "running")
    found = view.quantity("logprob_gap")
    assert (found.latest, found.recent, found.series) == (0.75, 0.5, (0.25, None, 0.75))
    assert as_dict(view)["metrics"]["logprob_gap"] == {"latest": 0.75, "recent": 0.5}
    alone = run_view("", about(), rows(1, 2), "running")
    assert "logprob_gap" not in [found.key for found in alone.quantities]


def test_a_single_step_is_better_than_none():
    view = run_view("", about(), rows(1), "running")
    assert (view.step_seconds, view.left) == (12.0, 36.0)


def test_only_the_newest_steps_say_how_long_one_takes():
    slow = {step: {"rollout": 100.0} for step in range(1, 11)}
    fast = {step: {"rollout": 2.0} for step in range(11, 31)}
    view = run_view("", about(steps=40), Rows({30: metrics(30)}, slow | fast), "running")
    assert (view.step_seconds, view.left, view.spent) == (2.0, 20.0, 1040.0)


def test_checkpoints_count_by_how_often_they_are_written():
    timings = {s: {"update": 1.0} | ({"checkpoint": 4.0} if s % 2 else {}) for s in range(1, 6)}
    # Steps 2 to 5: 4 s of updates, 8 s of two checkpoints.
    assert [(p.name, p.seconds) for p in phases_of(timings)] == [
        ("update", 1.0), ("checkpoint", 2.0),
    ]  # fmt: skip
    assert run_view("", about(steps=6), Rows({5: metrics(5)}, timings), "running").left == 3.0


def test_recent_is_a_mean_over_ten_steps():
    values = {step: {"reward": float(step)} for step in range(1, 16)}
    assert quantity("reward", values).recent == sum(range(6, 16)) / 10


@pytest.mark.parametrize("value", [None, "0.5", True, [1], {"a": 1}])
def test_what_is_no_number_is_none(value):
    found = quantity("reward", {1: {"reward": 0.5}, 2: {"reward": value}})
    assert (found.latest, found.recent, found.series) == (None, 0.5, (0.5, None))


def test_an_infinite_gradient_is_seen_but_spoils_no_mean():
    found = quantity("grad_norm", {1: {"grad_norm": 2.0}, 2: {"grad_norm": math.inf}})
    assert (found.latest, found.recent, found.series) == (math.inf, 2.0, (2.0, None))


def test_nothing_yet():
    view = run_view("a", None, Rows({}, {}), "not begun")
    assert (view.step, view.steps, view.left, view.phases) == (0, None, None, ())
    assert view.quantity("reward").latest is None


@pytest.mark.parametrize(
    ("content", "held", "state"),
    [
        (None, False, "not begun"),
        (None, True, "starting"),
        ({"status": "running"}, True, "running"),
        ({"status": "running"}, False, "interrupted"),
        ({}, False, "interrupted"),
        ({"status": "finished"}, False, "finished"),
        ({"status": "finished"}, True, "finished"),
    ],
)
def test_states(content, held, state):
    assert state_of(content, held) == state


def of(state, *steps):
    return run_view(state, None if state == "not begun" else about(), rows(*steps), state)


def test_a_project_by_hand():
    runs = [of("finished", 1, 2, 3, 4), of("running", 1, 2), of("not begun")]
    view = project_view("p", runs, planned=True, held=True)
    assert (view.state, view.step, view.steps) == ("running", 6, 12)
    assert view.left == 2 * 4.0 + 4 * 4.0  # the third has its fellows' steps and pace


@pytest.mark.parametrize(
    ("states", "planned", "held", "reported", "state"),
    [
        (["finished", "finished"], True, False, True, "finished"),
        (["finished", "finished"], True, False, False, "interrupted"),  # before its report
        (["finished", "finished"], True, True, False, "running"),  # evaluating
        (["finished", "finished"], False, False, False, "finished"),
        (["finished", "interrupted"], False, False, False, "interrupted"),
        (["interrupted", "running"], False, False, False, "running"),
        (["finished", "not begun"], True, False, False, "interrupted"),
        (["finished", "not begun"], True, True, False, "running"),
        (["unreadable", "finished"], False, False, False, "unreadable"),
        ([], True, False, False, "interrupted"),
    ],
)
def test_states_of_a_project(states, planned, held, reported, state):
    runs = [of(name) for name in states]
    view = project_view("", runs, planned=planned, held=held, reported=reported)
    assert view.state == state


@pytest.mark.parametrize("steps", [10**400, -1, 0, 2.5, "30", True, None])
def test_a_number_of_steps_that_is_none(steps):
    view = run_view("", about(steps=steps), rows(1, 2), "running")
    assert (view.steps, view.left) == (None, None)


def test_time_left_is_not_made_up():
    assert project_view("", [of("running")], planned=False, held=False).left is None
    assert project_view("", [of("not begun")], planned=True, held=True).left is None


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    row=st.dictionaries(
        st.sampled_from(["reward", "grad_norm", "truncated"]) | st.text(max_size=3), json_values
    ),
    content=st.dictionaries(
        st.sampled_from(["settings", "status", "method", "seed", "recipe"]), json_values
    ),
    seconds=st.floats(0, 1e150),
)
def test_whatever_a_file_holds_the_view_is_made_and_is_json(row, content, seconds):
    timings = {1: {"a": seconds, "b": seconds}, 2: {"a": seconds, "b": seconds}}
    view = run_view("x", content, Rows({7: row}, timings), "running")
    json.dumps(as_dict(view), allow_nan=False)
