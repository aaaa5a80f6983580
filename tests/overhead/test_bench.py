"""The schedule, with steps of a made-up clock; and the statistics and verdicts on their rows."""

from __future__ import annotations

import math

import pytest

from oar_bench.evaluation.statistics import Interval
from oar_bench.overhead.bench import measure, schedule
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.reporting.costs import PHASES
from oar_bench.reporting.overhead import (
    STEP,
    claims,
    equivalence,
    growth,
    slope,
    summarize,
)
from oar_bench.reporting.overhead_text import as_markdown, figure, verdict_words


class Clock:
    """Steps whose seconds are known: all phases 1 s, credit by method, all times the drift."""

    def __init__(self, credit: dict[str, float], power: float = 1.0, drift: float = 1.0) -> None:
        self.credit, self.power, self.drift = credit, power, drift
        self.done: list[tuple[int, int, str]] = []

    def __call__(self, method: str, length: int, timer: PhaseTimer) -> None:
        slow = self.drift ** len(self.done)  # the machine gets slower with every step
        self.done.append((timer.step, length, method))
        # A warm-up that took so long would show in any mean.
        slow *= 1000 if timer.counting else 1
        for phase in PHASES:
            seconds = self.credit[method] * length**self.power if phase == "credit" else 1.0
            row = {"step": timer.step, "phase": phase, "seconds": seconds * slow,
                   "tokens": length, "peak_memory_mb": 100.0}  # fmt: skip
            if timer.counting:
                row["flops"] = int(1000 * seconds)
            timer.rows.append(row)


def test_every_method_begins_a_repeat_once():
    found = list(schedule(["a", "b", "c"], [8, 16], 3))
    assert len(found) == 4 * 2 * 3
    firsts = [next(m for r, n, m in found if (r, n) == (repeat, 8)) for repeat in (1, 2, 3)]
    assert sorted(firsts) == ["a", "b", "c"]
    for repeat in range(4):  # the methods of a length stand together
        assert [n for r, n, _ in found if r == repeat] == [8, 8, 8, 16, 16, 16]


def test_the_schedule_is_followed_and_repeat_0_counts():
    clock = Clock({"grpo": 0.0, "oar-g": 0.0})
    told = []
    rows = measure(clock, ["grpo", "oar-g"], [8], 2, lambda done, note: told.append((done, note)))
    assert clock.done == list(schedule(["grpo", "oar-g"], [8], 2))
    assert told[-1] == (6, "oar-g at 8")
    assert {row["repeat"] for row in rows if "flops" in row} == {0}
    assert len(rows) == 6 * len(PHASES)


def test_a_measurement_goes_on_with_its_repeat_after_a_warm_up():
    args = ["grpo", "oar-g"], [8, 16], 3
    whole = measure(Clock({"grpo": 0.1, "oar-g": 0.2}), *args)
    kept: dict[int, list] = {}

    class Killed(Clock):
        def __call__(self, method, length, timer):
            if len(self.done) == 10:  # in the third pass of four steps each
                raise KeyboardInterrupt
            super().__call__(method, length, timer)

    with pytest.raises(KeyboardInterrupt):
        measure(Killed({"grpo": 0.1, "oar-g": 0.2}), *args, keep=kept.__setitem__)
    assert list(kept) == [0, 1]
    clock, told = Clock({"grpo": 0.1, "oar-g": 0.2}), []
    rows = measure(clock, *args, lambda done, note: told.append(done), known=dict(kept),
                   keep=kept.__setitem__)  # fmt: skip
    assert rows == whole
    assert sorted(kept) == [0, 1, 2, 3]
    # The warm-up is that of every method at every length, and is not told as a step.
    assert clock.done[:4] == [(0, 8, "grpo"), (0, 8, "oar-g"), (0, 16, "grpo"), (0, 16, "oar-g")]
    assert clock.done[4:] == [step for step in schedule(*args) if step[0] >= 2]
    assert told == list(range(9, 17))
    # Nothing is left to do: not even a warm-up.
    again = Clock({"grpo": 0.1, "oar-g": 0.2})
    assert measure(again, *args, known=kept) == whole
    assert not again.done


METHODS = ["grpo", "oar-g", "oar-p"]


def test_a_planted_slow_method_is_told_slow():
    clock = Clock({"grpo": 0.01, "oar-g": 0.011, "oar-p": 1.0}, drift=1.002)
    rows = measure(clock, METHODS, [8, 16], 6)
    found = {c.method: c for c in claims(summarize(rows, {}), 0.1)}
    assert set(found) == {"oar-g", "oar-p"}
    assert found["oar-p"].in_clock == found["oar-p"].in_flops == "contradicted"
    assert found["oar-g"].in_clock == found["oar-g"].in_flops == "supported"
    # 4 s and 8 x 1 s over 4 s and 8 x 0.01 s
    assert found["oar-p"].clock[8].value == pytest.approx(12 / 4.08, rel=0.02)
    assert found["oar-p"].counted[8] == pytest.approx(12 / 4.08, rel=1e-3)


def test_a_drift_of_the_machine_is_not_taken_for_a_difference():
    """Equal methods on a machine that slows down 2.4-fold (1.05^18) in the course of it."""
    clock = Clock(dict.fromkeys(METHODS, 0.01), drift=1.05)
    rows = measure(clock, METHODS, [8], 6)
    cells = summarize(rows, {})
    for cell in cells:
        if cell.phase == STEP and cell.ratio is not None:
            # Each method stands before and behind the others equally often.
            assert cell.ratio.value == pytest.approx(1, rel=1e-9)
            assert cell.ratio.low < 1 < cell.ratio.high
    seconds = next(c for c in cells if (c.method, c.phase) == ("grpo", STEP)).seconds
    assert seconds.high / seconds.low > 1.5  # while the seconds themselves scatter widely


def test_a_step_sums_its_phases():
    rows = measure(Clock({"grpo": 0.5}), ["grpo"], [4], 3)
    (step,) = [c for c in summarize(rows, {}) if c.phase == STEP]
    assert step.seconds.value == pytest.approx(4 + 2)
    assert step.counted == 4 * 1000 + 2000
    assert step.speed == pytest.approx(4 / 6)
    assert step.ratio is None
    assert claims([step], 0.1) == []


def test_formulas_are_summed_unless_one_is_unknown():
    rows = measure(Clock({"grpo": 0.5, "oar-g": 1.0}), ["grpo", "oar-g"], [4], 2)
    known = dict.fromkeys(PHASES, 10)
    cells = summarize(rows, {("grpo", 4): known, ("oar-g", 4): {**known, "credit": None}})
    found = {c.method: c.formula for c in cells if c.phase == STEP}
    assert found == {"grpo": 50, "oar-g": None}


def bounds(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.0, 4, 5, "")


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([(0.9, 1.1)], "supported"),  # the limit itself still counts as negligible
        ([(0.9, 1.1000001)], "inconclusive"),
        ([(1.1, 1.2)], "inconclusive"),
        ([(1.1000001, 1.2)], "contradicted"),
        ([(0.2, 0.5)], "supported"),  # faster is negligible too
        ([(0.9, 1.0), (0.9, 1.2)], "inconclusive"),  # one length can spoil it
        ([(0.9, 1.0), (1.2, 1.3)], "contradicted"),
        ([(0.9, 1.2), (1.2, 1.3)], "contradicted"),
        ([(math.nan, math.nan)], "inconclusive"),
        ([], "inconclusive"),
    ],
)
def test_the_verdict_at_its_borders(ratios, verdict):
    assert equivalence([bounds(*r) for r in ratios], 0.1) == verdict


def test_the_margin_is_an_option():
    assert equivalence([bounds(1.0, 1.4)], 0.5) == "supported"
    assert equivalence([bounds(1.0, 1.4)], 0.0) == "inconclusive"


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found_whatever_the_drift(power):
    clock = Clock({"grpo": 0.1, "oar-p": 0.3}, power=power, drift=1.01)
    rows = measure(clock, ["grpo", "oar-p"], [16, 64, 256], 6)
    (credit,) = [g for g in growth(rows) if (g.method, g.phase) == ("oar-p", "credit")]
    assert credit.flops == pytest.approx(power, abs=1e-3)
    assert credit.seconds.value == pytest.approx(power, abs=0.05)
    assert credit.seconds.low <= credit.seconds.value <= credit.seconds.high
    assert not [g for g in growth(rows) if (g.method, g.phase) == ("grpo", "credit")]
    assert slope([16, 64], [5.0, 5.0 * 4**power]) == pytest.approx(power)


def test_one_length_has_no_growth():
    assert growth(measure(Clock({"grpo": 0.1}), ["grpo"], [16], 2)) == []


def test_wall_clock_and_operations_are_worded_apart():
    rows = measure(Clock({"oar-p": 1.0, "oar-g": 0.01, "grpo": 0.01}), METHODS, [8, 16], 5)
    cells = summarize(rows, {})
    words = verdict_words(claims(cells, 0.1), 5)
    assert words[0].startswith('"oar-g\'s overhead is negligible"')
    assert "in wall clock on this machine: **supported**" in words[0]
    assert "in operations: **supported**" in words[1]
    assert "5 repeats)" in words[0]
    assert "5 repeats; the lower bound is above at 8 and 16)" in words[2]
    about = {"model": "a|b", "command": "oar-bench overhead `x`", "settings": {"repeats": 5},
             "device": "cpu", "peak_memory": "resident"}  # fmt: skip
    page = as_markdown(about, cells, growth(rows), claims(cells, 0.1))
    assert "# Overhead of a\\|b" in page
    assert page.count("**contradicted**") == 2
    svg = figure(cells)
    assert svg == figure(cells)
    assert svg.count("responses of") == 2
