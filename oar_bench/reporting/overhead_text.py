"""An overhead measurement as Markdown, CSV, JSON and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from oar_bench.evaluation.statistics import Interval
from oar_bench.reporting import figures
from oar_bench.reporting.costs import PHASES, Cost, Phase
from oar_bench.reporting.frames import REFERENCE
from oar_bench.reporting.overhead import (
    STEP,
    Claim,
    Growth,
    Measured,
    counted_ratio,
)
from oar_bench.reporting.text import listed, markdown, number, significant

NOTES = """\
- A repeat does one step of every method at every length, the methods of a length one after the
  other and in an order that begins with another one each time; ratios are taken within a repeat.
  Seconds are medians over the repeats; the interval of seconds and ratios is Student's t on their
  logarithms, 95 %. One warm-up step of each goes before, and counts the operations.
- The step is the trainer's own on sampled responses of a fixed length whose last tokens were
  replaced by a stated answer, right in half of them: every response has an advantage and a probe,
  so no credit is saved (in training, groups without a signal cost none). The learning rate is too
  small to change what the model says, so the methods of a repeat see equal responses.
- Rollout is batched sampling token by token by the built-in engine. A faster sampler makes the
  step shorter, and so every ratio larger.
- Operations: matrix products and attention, counted by torch's FlopCounterMode and by the formulas
  of `oar_bench/overhead/flops.py`; counted / formula is above 1 where branches of unequal length
  share a pass. tokens/s of a whole step are sampled tokens.
- Exponent: k in cost ~ length^k, fitted to each repeat; the interval is over repeats. Operations
  don't vary, so theirs has none."""


def verdict_words(claims: Sequence[Claim], repeats: int) -> list[str]:
    """A line for each verdict: wall clock and operations apart, OAR-G's claim first."""
    lines = []
    for claim in sorted(claims, key=lambda c: c.method != "oar-g"):
        limit = number(1 + claim.margin, 2)
        said = (
            f"\"{claim.method}'s overhead is negligible\" (a step costs at most {limit} × grpo's)"
        )
        clock = listed([f"{_ratio(i)} at {length}" for length, i in claim.clock.items()])
        work = listed([f"{number(v, 2)} at {length}" for length, v in claim.counted.items()])
        above = f"; the lower bound is above at {listed(claim.dearer)}" if claim.dearer else ""
        lines += [
            f"{said}, in wall clock on this machine: **{claim.in_clock}** "
            f"({clock} tokens, {repeats} repeats{above}).",
            f"{said}, in operations: **{claim.in_flops}** ({work} tokens).",
        ]
    return lines


def _ratio(interval: Interval) -> str:
    return f"{number(interval.value, 2)} [{number(interval.low, 2)}, {number(interval.high, 2)}]"


def _seconds(interval: Interval) -> str:
    low, high = significant(interval.low), significant(interval.high)
    return f"{significant(interval.value)} [{low}, {high}]"


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first two columns are words, the others numbers."""
    rule = ["---" if i < 2 else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def steps_table(cells: Sequence[Measured]) -> str:
    """Whole steps: seconds, ratio to GRPO, operations, speed and memory."""
    header = ("length", "method", "s a step", "ratio to grpo", "GFLOP counted", "counted / formula",
              "FLOP ratio", "tokens/s", "peak MiB")  # fmt: skip
    return _grid(header, [
        (str(c.length), c.method, _seconds(c.seconds),
         _ratio(c.ratio) if c.ratio else number(1 if c.method == REFERENCE else None, 0),
         significant(c.counted / 1e9),
         number(c.counted / c.formula if c.formula else None, 3),
         number(counted_ratio(cells, c.method, c.length), 2),
         significant(c.speed), number(c.peak_mb, 0))
        for c in cells if c.phase == STEP
    ])  # fmt: skip


def phases_table(cells: Sequence[Measured]) -> str:
    """Median seconds of each phase, and credit's share of GRPO's step."""
    by = {(c.length, c.method, c.phase): c for c in cells}
    rows = []
    for length, method in dict.fromkeys((c.length, c.method) for c in cells):
        parts = [by.get((length, method, phase)) for phase in PHASES]
        base, credit = by.get((length, REFERENCE, STEP)), by.get((length, method, "credit"))
        share = credit.seconds.value / base.seconds.value if base and credit else None
        rows.append(
            [
                str(length),
                method,
                *(_seconds(part.seconds) if part else number(None) for part in parts),
                number(share, 3),
            ]
        )
    return _grid(("length", "method", *PHASES, "credit / grpo's step"), rows)


def growth_table(found: Sequence[Growth]) -> str:
    """Exponents with length."""
    return _grid(("method", "phase", "exponent of seconds", "exponent of operations"), [
        (g.method, g.phase, _ratio(g.seconds), number(g.flops, 2)) for g in found
    ])  # fmt: skip


def as_markdown(
    about: Mapping[str, Any], cells: Sequence[Measured], grown: Sequence[Growth],
    claims: Sequence[Claim],
) -> str:  # fmt: skip
    """overhead.md"""
    settings = about["settings"]
    repeats = int(settings["repeats"])
    told = ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in settings.items()
        if isinstance(value, str | int | float)
    )
    verdict = verdict_words(claims, repeats) or [f"Without {REFERENCE} nothing is compared."]
    parts = [
        f"# Overhead of {markdown(str(about['model']))}",
        f"`{about['command'].replace('`', '')}`",
        f"{markdown(told)}; {markdown(str(about['device']))}.",
        "## Verdict", *verdict,
        "## Whole steps", steps_table(cells),
        "## Phases",
        "Median seconds with their interval; overhead.csv has tokens a second and memory of each.",
        phases_table(cells), "![Seconds of each phase](overhead.svg)",
    ]  # fmt: skip
    if grown:
        parts += ["## Growth with length", growth_table(grown)]
    memory = f"- Peak memory: {about['peak_memory']}."
    return "\n\n".join([*parts, "## How it was measured", NOTES + "\n" + memory]) + "\n"


def as_frame(cells: Sequence[Measured]) -> pd.DataFrame:
    """A row for each length, method and phase."""
    return pd.DataFrame([
        {"length": c.length, "method": c.method, "phase": c.phase,
         "seconds": c.seconds.value, "seconds_low": c.seconds.low, "seconds_high": c.seconds.high,
         "repeats": c.seconds.n, "tokens": c.tokens, "tokens_per_second": c.speed,
         "peak_memory_mb": c.peak_mb, "flops_counted": c.counted, "flops_formula": c.formula,
         "ratio": c.ratio.value if c.ratio else None, "ratio_low": c.ratio.low if c.ratio else None,
         "ratio_high": c.ratio.high if c.ratio else None}
        for c in cells
    ])  # fmt: skip


def as_dict(
    about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], cells: Sequence[Measured],
    grown: Sequence[Growth], claims: Sequence[Claim],
) -> dict[str, Any]:  # fmt: skip
    """overhead.json: what was asked, every repeat, and what was made of them."""
    found: dict[str, Any] = _plain({
        **about,
        "verdicts": [
            {"method": c.method, "margin": c.margin, "wall_clock": c.in_clock,
             "flops": c.in_flops,
             "ratios": [{"length": n, **asdict(i)} for n, i in c.clock.items()],
             "flop_ratios": [{"length": n, "value": v} for n, v in c.counted.items()]}
            for c in claims
        ],
        "growth": [asdict(g) for g in grown],
        "cells": [asdict(c) for c in cells],
        "rows": list(rows),
    })  # fmt: skip
    return found


def _plain(value: Any) -> Any:
    """The value with NaN and infinity as null, which JSON has."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure(cells: Sequence[Measured]) -> str:
    """overhead.svg: a panel for each length, methods stacked by phase."""
    by: dict[int, list[Cost]] = {}
    for step in (c for c in cells if c.phase == STEP):
        own = [c for c in cells if (c.length, c.method) == (step.length, step.method)]
        phases = {c.phase: Phase(c.seconds.value, c.speed) for c in own if c.phase != STEP}
        by.setdefault(step.length, []).append(Cost(
            step.method, (), step.seconds.n, step.seconds.value, step.ratio, phases, math.nan,
            step.peak_mb,
        ))  # fmt: skip
    return figures.overhead_by_length(by)
