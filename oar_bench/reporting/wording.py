"""The verdict in plain words, every number of it taken from the tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from oar_bench.reporting.comparison import TWO_POINTS, Pair, Row, TaskTable
from oar_bench.reporting.costs import Cost
from oar_bench.reporting.frames import REFERENCE, START
from oar_bench.reporting.text import (
    MINUS,
    NONE,
    Written,
    bracket,
    counted,
    listed,
    number,
    p_value,
    percent,
    points,
)


def verdict_words(
    tables: list[TaskTable], costs: list[Cost], about: Mapping[str, Any]
) -> list[str]:
    """Short paragraphs: one a task (what was learnt, what separates, what would settle the rest),
    then what a step costs."""
    parts = [" ".join(_on_task(table)) for table in tables] + _prices(costs)
    if about.get("smoke") or about.get("recipe") == "smoke":
        parts.insert(0, "This is a smoke run: it shows that every stage works; its numbers mean "
                        "nothing.")  # fmt: skip
    return [_unbroken(part) for part in parts]


def _unbroken(text: str) -> str:
    """No line break inside an interval or before a percent sign."""
    return re.sub(rf" (?=%)|(?<=\d,) (?=[+{MINUS}\d])", "\N{NO-BREAK SPACE}", text)


def _on_task(table: TaskTable) -> list[str]:
    reference = table.row(REFERENCE)
    design = f"On {table.task} ({counted(table.problems, 'problem')} × {counted(table.k, 'sample')}"
    if reference is None:
        return [f"{design}) no {REFERENCE} run was evaluated, so nothing is compared with it."]
    parts = [
        f"{design}, {counted(len(reference.seeds), 'training seed')}) {REFERENCE} solves "
        f"{percent(reference.mean.value)} % {bracket(reference.mean)}{_gain(table)}."
    ]
    pairs = [row.pair for row in table.rows if row.pair and row.method != START]
    for word in ("better", "worse"):
        parts += _separated([p for p in pairs if p.verdict == word], word)
    parts += _open(pairs)
    apart = [
        row.method for row in table.rows if not row.pair and row.method not in (REFERENCE, START)
    ]
    if apart:
        parts.append(
            f"Without a training seed in common with {REFERENCE}, and so not compared: "
            f"{listed(apart)}."
        )
    parts += [_control(pair, table.row(pair.a)) for pair in table.pairs if pair.b == "shuffled"]
    if any(pair.holds_for == "checkpoints" for pair in [*pairs, *table.pairs]) or (
        len(reference.seeds) == 1
    ):
        parts.append(
            "With one training seed the luck of training isn't covered by any interval: what is "
            "said of such a pair holds for these checkpoints, not for the methods."
        )
    return parts


def _separated(pairs: list[Pair], word: str) -> list[str]:
    """Sentences on the pairs with the verdict `word`: methods apart from mere checkpoints."""
    found = {
        whose: [_said(p) for p in pairs if p.holds_for == whose]
        for whose in ("methods", "checkpoints")
    }
    sentences = []
    if found["methods"]:
        sentences.append(f"{listed(found['methods'])}: {word} than {REFERENCE}.")
    if found["checkpoints"]:
        sentences.append(
            f"{listed(found['checkpoints'])}: one checkpoint that scores {word} than "
            f"{REFERENCE}'s, which says nothing of another training run."
        )
    return sentences


def _gain(table: TaskTable) -> str:
    start = table.row(START)
    if start is None or start.pair is None:
        return ""
    gain = -start.pair.test.difference.value
    word = {"worse": "", "better": "", "not separable": " (not separable from it)"}
    return (
        f", {points(gain)} points from the start's {percent(start.mean.value)} %"
        + word[start.pair.verdict]
    )


def _said(pair: Pair) -> str:
    return f"{pair.a} by {points(pair.test.difference.value)} points {_interval(pair)}"


def _interval(pair: Pair) -> str:
    return f"{_bounds(pair)}, p {p_value(pair.p)}"


def _bounds(pair: Pair) -> str:
    """The interval; for a difference that no problem and no seed departs from there is none."""
    if math.isnan(pair.test.difference.low):
        return "everywhere, which leaves no spread to judge it by"
    return bracket(pair.test.difference, difference=True)


def _open(pairs: list[Pair]) -> list[str]:
    """Sentences on the pairs that don't separate: never "equal", always what would settle it."""
    same = [p.a for p in pairs if p.test.identical]
    unclear = [p for p in pairs if p.verdict == "not separable" and not p.test.identical]
    parts = []
    if same:
        is_are = "is" if len(same) == 1 else "are"
        parts.append(f"{listed(same)} {is_are} identical to {REFERENCE}.")
    if not unclear:
        return parts
    said = [f"{p.a} ({points(p.test.difference.value)} {_bounds(p)})" for p in unclear]
    all_of = len(unclear) == len(pairs) and len(unclear) > 1
    opening = "No method is separable from" if all_of else "Not separable from"
    parts.append(f"{opening} {REFERENCE}: {listed(said)}.")
    reach = [p.test.detectable for p in unclear if not math.isnan(p.test.detectable)]
    if reach:
        span = number(100 * min(reach)), number(100 * max(reach))
        words = span[0] if span[0] == span[1] else f"{span[0]} to {span[1]}"
        parts.append(
            f"This is no proof of equality: the design finds true differences of {words} points "
            f"or more with 80 % power; {_settling(unclear)}."
        )
    return parts


def _settling(pairs: list[Pair]) -> str:
    needs = [p.for_two for p in pairs if p.for_two is not None]
    size = number(100 * TWO_POINTS, 0)
    if not needs:
        alone = "more seeds alone, with these problems, would not settle"
        unknown = "with one seed it can't be said how many would settle"
        known = any(not math.isnan(p.test.parts.var_seed) for p in pairs)
        return f"{alone if known else unknown} a true difference of {size} points"
    span = f"{min(needs)}" if min(needs) == max(needs) else f"{min(needs)} to {max(needs)}"
    return f"a true difference of {size} points would take about {span} paired seeds"


def _control(pair: Pair, row: Row | None) -> str:
    """What the shuffled control says about a gain, or about there being none."""
    against = row.pair if row else None
    one = pair.holds_for == "checkpoints"
    if pair.verdict == "better":
        gain = f"its shuffled control by {points(pair.test.difference.value)} " \
               f"points {_interval(pair)}"  # fmt: skip
        if one:
            return (
                f"{pair.a}'s checkpoint beats that of {gain}; one seed can't tell whether where "
                "the weights lie matters."
            )
        return f"{pair.a} beats {gain}: where the weights lie matters."
    if against and against.verdict == "better":
        return (
            f"But {pair.a} is not better than its shuffled control "
            f"({points(pair.test.difference.value)} {_interval(pair)}): that gain is no evidence "
            "of credit assignment."
        )
    if pair.verdict == "worse":
        whose = f"{pair.a}'s checkpoint" if one else pair.a
        return f"{whose} is worse than its own weights shuffled ({_interval(pair)})."
    return (
        f"{pair.a} is not separable from its own weights shuffled "
        f"({points(pair.test.difference.value)} {_bounds(pair)})."
    )


def _prices(costs: list[Cost]) -> list[str]:
    said = [
        f"{cost.method} {number(cost.ratio.value, 2)}×"
        for cost in costs
        if cost.ratio is not None and cost.method != REFERENCE
    ]
    return [f"A training step takes, against {REFERENCE}'s: {listed(said)}."] if said else []


def seeds_words(row: Row) -> Written:
    """The cell "seeds": how many, and how many of them have a partner where these are fewer."""
    if not row.seeds:
        return Written(NONE)
    paired = len(row.pair.seeds) if row.pair else len(row.seeds)
    return Written(f"{len(row.seeds)}" + (f" ({paired} paired)" if paired < len(row.seeds) else ""))


def settle_words(pair: Pair) -> Written:
    """The cell "seeds to settle": for the observed difference, and for two points.

    A dash where nothing is open.
    """
    if pair.test.identical or pair.verdict != "not separable":
        return Written(NONE)
    if math.isnan(pair.test.parts.var_seed):
        return Written("unknown (one seed)")
    return Written(f"{_count(pair.to_settle)} / {_count(pair.for_two)}")


def _count(seeds: int | None) -> str:
    return ">1000" if seeds is None else str(seeds)


def verdict_word(pair: Pair) -> Written:
    """The cell "verdict"; one that rests on one training seed says so."""
    if pair.test.identical:
        return Written("identical")
    one = pair.holds_for == "checkpoints" and pair.verdict != "not separable"
    return Written(f"{pair.verdict} (one seed)" if one else pair.verdict)


def detectable_words(pair: Pair) -> Written:
    """The cell "detectable": the smallest difference found with 80 % power, in points."""
    return percent(pair.test.detectable)
