"""How a head-to-head comparison is written: plain text, Markdown, CSV, JSON."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from oar_bench.evaluation.summary import finite, to_json
from oar_bench.reporting.comparison import Pair
from oar_bench.reporting.headtohead import Duel, HeadToHead, Meeting, Standing
from oar_bench.reporting.tables import csv
from oar_bench.reporting.text import (
    Grid,
    aligned,
    bracket,
    counted,
    markdown,
    number,
    p_value,
    percent,
    piped,
)
from oar_bench.reporting.text import points as in_points

NOTES = (
    "Intervals are 95 %, for each pair alone; p is two-sided and adjusted by Holm over every pair "
    "of every task; verdicts follow p.",
    "“Tied” is no proof of equality: “detectable” is the smallest true difference that these "
    "problems, samples and seeds find with 80 % power.",
)
CHECKPOINTS = (
    "One training seed on a side, or none that is known: verdicts and places hold for these "
    "checkpoints, not for the methods that made them."
)
WORDS = ("result", "pair", "the first is", "place")
"""Columns that hold words and are set to the left."""


def standings_grid(meeting: Meeting) -> Grid:
    """Header and a row for each result, all as text."""
    mean, majority = (f"{kind}@{meeting.k or 'k'}, %" for kind in ("avg", "maj"))
    rows: Grid = [["result", "seeds", mean, "95 % interval", majority, "truncated, %",
                   "no answer, %", "tokens", "place"]]  # fmt: skip
    return rows + [_standing(s) for s in meeting.standings]


def _standing(s: Standing) -> list[str]:
    return [s.name, str(s.seeds), percent(s.mean.value), bracket(s.mean), percent(s.majority),
            percent(s.truncated), percent(s.no_answer), number(s.tokens), s.place]  # fmt: skip


def duels_grid(meeting: Meeting) -> Grid:
    """Header and a row for each pair, all as text."""
    rows: Grid = [["pair", "difference, points", "95 % interval", "p (Holm)", "the first is",
                   "detectable, points", "wins", "losses", "ties"]]  # fmt: skip
    return rows + [_duel(d) for d in meeting.duels]


def _duel(d: Duel) -> list[str]:
    test = d.pair.test
    return [f"{d.pair.a} against {d.pair.b}", in_points(test.difference.value),
            bracket(test.difference, True), p_value(d.pair.p), _word(d), percent(test.detectable),
            str(d.wins), str(d.losses), str(d.ties)]  # fmt: skip


def _word(d: Duel) -> str:
    """The verdict; where it rests on one training seed it is on a checkpoint, and says so."""
    one = d.pair.holds_for == "checkpoints" and d.word in ("better", "worse")
    return f"{d.word} (checkpoint)" if one else d.word


def _title(meeting: Meeting) -> str:
    if not meeting.k:
        return f"{meeting.task}: numbers without samples, nothing to pair"
    problems, samples = counted(meeting.problems, "problem"), counted(meeting.k, "sample")
    return f"{meeting.task}: {problems} x {samples}"


def _grids(meeting: Meeting) -> list[Grid]:
    return [standings_grid(meeting), *([duels_grid(meeting)] if meeting.duels else [])]


def plain(found: HeadToHead) -> str:
    """The comparison for a terminal, columns aligned."""
    parts = []
    for meeting in found.meetings:
        parts.append(_title(meeting))
        for grid in _grids(meeting):
            parts += [aligned(grid, WORDS), ""]
    parts += [f"note: {line}" for line in _remarks(found)]
    return "\n".join([*parts, *NOTES])


def as_markdown(found: HeadToHead) -> str:
    """The comparison as a Markdown document."""
    parts = ["# Comparison", ""]
    for meeting in found.meetings:
        parts += [f"## {markdown(_title(meeting))}", ""]
        for grid in _grids(meeting):
            parts += [*piped(grid, WORDS), ""]
    parts += [f"- {markdown(line)}" for line in _remarks(found)]
    if _remarks(found):
        parts.append("")
    return "\n".join([*parts, "\n\n".join(NOTES)]) + "\n"


def as_csv(found: HeadToHead) -> str:
    """A row for each pair of each task, shares as shares, not rounded."""
    rows = []
    for meeting in found.meetings:
        of = {s.name: s for s in meeting.standings}
        for d in meeting.duels:
            a, b, test = of[d.pair.a], of[d.pair.b], d.pair.test
            rows.append({
                "task": meeting.task, "problems": meeting.problems, "k": meeting.k,
                "a": a.name, "b": b.name, "seeds": len(d.pair.seeds),
                "score_a": a.mean.value, "score_b": b.mean.value,
                "difference": test.difference.value, "low": test.difference.low,
                "high": test.difference.high, "p": test.p, "p_holm": d.pair.p, "verdict": d.word,
                "holds_for": d.pair.holds_for,
                "detectable": test.detectable, "wins": d.wins, "losses": d.losses, "ties": d.ties,
                "truncated_a": a.truncated, "truncated_b": b.truncated,
                "no_answer_a": a.no_answer, "no_answer_b": b.no_answer,
            })  # fmt: skip
    return csv(pd.DataFrame(rows))


def _remarks(found: HeadToHead) -> list[str]:
    pairs = [duel.pair for meeting in found.meetings for duel in meeting.duels]
    one = any(pair.holds_for == "checkpoints" for pair in pairs)
    return [
        *([CHECKPOINTS] if one else []),
        *(
            _constant(pair)
            for pair in pairs
            if math.isnan(pair.test.difference.low) and not math.isnan(pair.test.p)
        ),
        *(f"unlike, compared on demand: {note}" for note in found.allowed),
        *(f"not tested: {line}" for line in found.not_tested),
        *(f"left out: {line}" for line in found.left_out),
    ]


def _constant(pair: Pair) -> str:
    """A difference without any spread has no interval, and its p may be large all the same."""
    parts = pair.test.parts
    facets = (parts.seeds, "seed"), (parts.problems, "problem")
    n, unit = min(facet for facet in facets if facet[0] > 1)
    return (
        f"{pair.a} against {pair.b}: every problem and seed shows the same difference, so there is "
        f"no spread to judge it by, and p only counts the signs of {counted(n, unit)}"
    )


def as_dict(found: HeadToHead) -> dict[str, Any]:
    """The comparison ready for JSON; what the data can't tell is null."""
    return {
        "kind": "comparison",
        "allowed": found.allowed,
        "left_out": found.left_out,
        "not_tested": found.not_tested,
        "tasks": [
            {
                "task": m.task,
                "problems": m.problems or None,
                "k": m.k or None,
                "results": [
                    {"name": s.name, "seeds": s.seeds, "avg@k": to_json(s.mean),
                     "maj@k": s.majority, "truncated": finite(s.truncated),
                     "no_answer": finite(s.no_answer), "response_tokens": finite(s.tokens),
                     "place": s.place}
                    for s in m.standings
                ],
                "pairs": [
                    {"a": d.pair.a, "b": d.pair.b, "seeds": len(d.pair.seeds),
                     "difference": to_json(d.pair.test.difference), "p": finite(d.pair.test.p),
                     "p_holm": finite(d.pair.p), "verdict": d.word,
                     "holds_for": d.pair.holds_for,
                     "detectable": finite(d.pair.test.detectable),
                     "wins": d.wins, "losses": d.losses, "ties": d.ties}
                    for d in m.duels
                ],
            }
            for m in found.meetings
        ],
    }  # fmt: skip
