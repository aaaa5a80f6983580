"""Lines drawn from views: their content at several widths, and what hostile text can't do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from oar_bench.monitor.draw import IDLE, compact, detail, fit, snapshot
from oar_bench.monitor.folder import Snapshot
from oar_bench.monitor.table import table, window
from oar_bench.monitor.view import Rows, RunView, project_view, run_view
from tests.monitor.runs import about, metrics
from tests.monitor.test_view import rows

HOSTILE = "x\x1b[2J\x1b]0;owned\x07\r\n[bold red]\u202e\u200bevil[/bold red] 汉字漢字"


def view(label="oar-p/seed-1", state="running", steps=3, **other) -> RunView:
    return run_view(label, about(**other), rows(*range(1, steps + 1)), state, idle=65.0)


def plain(lines) -> str:
    return "\n".join(line.plain for line in lines)


def test_a_run_in_whole_on_a_wide_terminal():
    assert plain(fit(detail(view(), 200), 200)).splitlines() == [
        "oar-p, seed 1  tiny  running",
        f"step 3 of 4  {'━' * 30}{'─' * 10}  4 s left",
        "20 s in steps, 4 s each, last one 1:05 ago",
        "reward               0.375  mean     0.250  ▁▅█",
        "KL to the start      0.003  mean     0.002  ▁▅█",
        "response length       33.0  mean      32.0  ▁▅█",
        "truncated           25.0 %  mean    25.0 %  ▁▁▁",
        "gradient norm        0.333  mean     0.611  █▃▁",
        "rollout 75 %   update 25 %",
    ]


def test_a_run_on_a_narrow_terminal_says_the_same_in_less():
    assert plain(fit(detail(view(), 40), 40)).splitlines() == [
        "oar-p, seed 1  tiny  running",
        "step 3 of 4  ━━━━━━━━━━━━─────  4 s left",
        "20 s in steps, 4 s each, last one 1:05 …",
        "reward               0.375",
        "KL to the start      0.003",
        "response length       33.0",
        "truncated           25.0 %",
        "gradient norm        0.333",
        "rollout 75 %   update 25 %",
    ]


def test_three_lines_for_a_stage_among_many():
    lines = plain(fit(compact(view(), 120), 120)).splitlines()
    assert lines[0] == "oar-p, seed 1  tiny  running"
    assert lines[2] == (
        "reward 0.375  KL 0.003  length 33.0  truncated 25.0 %  gradient 0.333"
    )  # fmt: skip
    assert lines[3:] == ["rollout 75 %   update 25 %"]


def test_the_gap_to_another_sampler_is_shown_where_there_is_one():
    gaps = Rows({step: metrics(step, logprob_gap=3e-7 * step) for step in (1, 2)}, {})
    seen = run_view("a", about(), gaps, "running")
    assert "gap to sampler       6e-07  mean   4.5e-07  ▁█" in plain(detail(seen, 100))
    assert plain(compact(seen, 120)).splitlines()[2].endswith("gradient 0.5  gap 6e-07")
    assert "gap" not in plain(detail(view(), 100)) + plain(compact(view(), 120))


def test_an_interrupted_run_says_how_to_go_on():
    text = plain(detail(view(state="interrupted"), 100))
    assert "interrupted" in text
    assert "no process is at work on it" in text
    assert "no process" not in plain(detail(view(), 100))
    narrow = plain(fit(detail(view(state="interrupted"), 40), 40))
    assert narrow.replace("\n", " ").endswith(IDLE)
    assert detail(view(state="interrupted"), 0)  # a terminal that tells no size


def test_a_run_that_is_not_begun():
    text = plain(detail(run_view("a", None, rows(), "starting"), 100))
    assert text == "a  starting\nstep 0  - left"


def test_ascii_where_the_terminal_has_no_more():
    assert plain(detail(view(), 100, ascii_only=True)).isascii()


def test_a_table_has_the_columns_that_fit():
    runs = [view("grpo/seed-0"), view("oar-p/seed-0", "finished", 4), view("oar-g/seed-0")]
    wide, narrow = (plain(table(runs, width)).splitlines() for width in (200, 40))
    assert wide[0].split() == [
        "run", "state", "step", "reward", "KL", "length", "truncated", "gradient", "s", "a", "step",
        "left",
    ]  # fmt: skip
    assert wide[1].split() == [
        "grpo/seed-0", "running", "3/4", "0.375", "0.003", "33.0", "25.0", "%", "0.333", "4", "4",
        "s",
    ]  # fmt: skip
    assert narrow[0].split() == ["run", "state", "step", "reward"]
    assert narrow[2].split() == ["oar-p/seed-0", "finished", "4/4", "0.500"]


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_short_terminal_shows_the_runs_at_work(place):
    runs = [view(str(i), "finished" if i < place else "not begun") for i in range(7)]
    first, last = window(runs, 3)
    assert last - first == 3
    assert first <= place < last
    text = plain(table(runs, 80, 6))
    assert len(text.splitlines()) <= 6
    assert (f"{first} above" in text) == (first > 0)
    assert (f"{7 - last} below" in text) == (last < 7)
    assert window(runs, None) == (0, 7)


def everything(label: str, width: int) -> list:
    run = view(label, "interrupted", method=label, recipe=label)
    run = replace(run, note=label, damaged=2)
    timed = run_view(label, about(method=label, recipe=label), rows(1), "running")
    named = replace(timed, phases=tuple(replace(p, name=label) for p in timed.phases))
    alone = project_view("", [run], planned=False, held=False)
    many = project_view(label, [run, named], planned=True, held=True)
    return [
        *snapshot(Snapshot((alone, many)), width, 30),
        *fit(compact(named, width), width),
        *fit(detail(named, width), width),
    ]


@pytest.mark.parametrize("width", [40, 200])
def test_hostile_names_command_nothing_and_break_no_line(width):
    for line in everything(HOSTILE, width):
        assert line.plain.isprintable()
        assert cell_len(line.plain) <= width
    text = plain(everything(HOSTILE, 200))
    assert "[bold red]" in text  # shown, not obeyed
    assert "\\x1b[2J" in text


@given(st.text(max_size=30), st.integers(1, 220))
def test_every_line_fits_its_width(label, width):
    for line in everything(label, width):
        assert cell_len(line.plain) <= width
        assert "\n" not in line.plain
