"""Verdicts on claims as words, CSV, JSON and LaTeX."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from oar_bench.claims.judge import Verdict
from oar_bench.claims.spec import Agreement, CostRatio, Mass, NonInferiority, Superiority
from oar_bench.claims.testing import Outcome
from oar_bench.evaluation.summary import finite
from oar_bench.reporting.latex import booktabs
from oar_bench.reporting.text import (
    NONE,
    Written,
    aligned,
    bracket,
    counted,
    listed,
    number,
    p_value,
    points,
    significant,
    visible,
)

WORDS = ("supported", "contradicted", "inconclusive", "not tested")
SCOPE = (
    "A verdict is about this model, this task and these settings alone: “contradicted” refutes "
    "nothing at another scale, and “supported” confirms nothing there."
)
HOW = (
    "A row is supported or contradicted where a one-sided test shows it; p values are adjusted by "
    "Holm over all rows with sampling error, for each direction by itself, and compared with "
    "{level}: the chance of any wrong verdict in this table is at most {alpha} %. Intervals are "
    "two-sided, 95 %, for each row alone and not adjusted. Counts that would settle a row hold for "
    "80 % power if the observed value is the true one. A claim of several rows holds as a whole "
    "when all of them do."
)


@dataclass(frozen=True)
class Line:
    """A verdict as it is shown: every field is text."""

    claim: str
    says: str
    on: str
    word: str
    effect: Written
    bounds: Written
    said: str
    test: str
    p: Written
    command: str


def lines(verdicts: Sequence[Verdict]) -> list[Line]:
    """What a page or a terminal shows of each verdict."""
    return [
        Line(
            _title(v.row), v.row.claim.says, v.row.on or NONE, v.word, *effect_words(v.row),
            said(v), words_of_test(v.row), p_words(v), v.row.command,
        )
        for v in verdicts
    ]  # fmt: skip


def notes(verdicts: Sequence[Verdict]) -> list[str]:
    """What a reader must know beside the table."""
    level = verdicts[0].level
    return [SCOPE, HOW.format(level=significant(level), alpha=significant(200 * level))]


def summary(verdicts: Sequence[Verdict]) -> str:
    """One sentence: how many rows got which verdict, and which."""
    by: dict[str, list[str]] = {word: [] for word in WORDS}
    titles = Counter(_title(v.row) for v in verdicts)
    for v in verdicts:
        title, (name, _, rest) = _title(v.row), v.row.on.partition(": ")
        place = name if rest else v.row.on
        by[v.word].append(f"{title} on {place}" if titles[title] > 1 else title)
    told = [f"{word}: {listed(list(dict.fromkeys(names)))}" for word, names in by.items() if names]
    text = "; ".join(told)
    return f"{text[:1].upper()}{text[1:]}."


_SCORES = (Superiority, NonInferiority)


def _title(row: Outcome) -> str:
    return f"{row.claim.id} ({row.test.name})" if row.test.name else row.claim.id


def effect_words(row: Outcome) -> tuple[Written, Written]:
    """The measured value in the unit of the test, and its interval (empty where there is none)."""
    e, test = row.effect, row.test
    empty = Written("")
    if e is None:
        return Written(NONE), empty
    if isinstance(test, _SCORES):
        shown = bracket(e, difference=True)
        return Written(f"{points(e.value)} points"), empty if shown == NONE else shown
    if isinstance(test, Mass):
        return Written(f"{significant(e.value, 2)} off 1"), empty
    value = Written(f"{number(e.value, 2)}{'×' if isinstance(test, CostRatio) else ''}")
    if math.isnan(e.low) or e.se == 0:
        return value, empty
    return value, Written(f"[{number(e.low, 2)}, {number(e.high, 2)}]")


def _points(share: float) -> str:
    """A margin in points.

    >>> _points(0.01), _points(0.015)
    ('1 point', '1.5 points')
    """
    shown = significant(100 * share)
    return f"{shown} point" + ("" if shown == "1" else "s")


def words_of_test(row: Outcome) -> str:
    """The name of the test, what it tests, and on how much."""
    test = row.test
    if isinstance(test, _SCORES):
        margin = _points(test.margin)
        name = (
            f"superiority of {test.a} to {test.b}, margin {margin}"
            if isinstance(test, Superiority)
            else f"non-inferiority of {test.a} to {test.b}, margin {margin}"
        )
        return f"{name}: one-sided paired t, seeds × problems{_size(row)}"
    if isinstance(test, Agreement):
        return (
            f"mean Spearman of {test.of} with exact oar-p against {number(test.at_least, 2)}: "
            f"one-sided t with Hall's correction{_size(row)}"
        )
    if isinstance(test, Mass):
        most = significant(test.tolerance)
        return f"largest distance of a step's mean weight from 1, at most {most}: no sampling error"
    what = "a step" if test.phase == "step" else test.phase
    at = "at the longest length" if test.lengths == "longest" else "at every length"
    at = "at the lengths of training" if row.unit == "seed" else at
    bound = number(test.at_most, 2)
    name = f"{test.measure} of {what} of {test.of} over {test.over}, at most {bound} {at}"
    if test.measure == "operations":
        return f"{name}: counted, no sampling error"
    return f"{name}: one-sided t on log ratios{_size(row)}"


def _size(row: Outcome) -> str:
    if not row.count:
        return ""
    size = counted(row.count, row.unit)
    if row.unit == "seed" and row.problems:
        size += f" × {counted(row.problems, 'problem')}"
    return f" ({size})"


def p_words(verdict: Verdict) -> Written:
    """Adjusted p for the claim and against it; a dash where there is nothing random."""
    if math.isnan(verdict.p_for):
        return Written(NONE)
    return Written(f"{p_value(verdict.p_for)} / {p_value(verdict.p_against)}")


def said(verdict: Verdict) -> str:
    """Why the verdict is what it is, and what would settle it if it is open."""
    row = verdict.row
    parts = [row.why or _shown(verdict), row.beside, _settling(verdict)]
    return "; ".join(part for part in parts if part)


def _shown(verdict: Verdict) -> str:
    test, word = verdict.row.test, verdict.word
    if isinstance(test, _SCORES):
        margin = _points(test.margin)
        noun = "gain" if isinstance(test, Superiority) else "loss"
        small = f", smaller than {margin}" if verdict.both else ""
        excluded = f"a {noun} of {margin} or more is ruled out"
        if word == "inconclusive":
            return f"neither a {noun} is shown, nor is one of {margin} or more ruled out"
        shown = (word == "supported") == isinstance(test, Superiority)
        return f"a {noun} is shown{small}" if shown else excluded
    if isinstance(test, Agreement):
        bound = number(test.at_least, 2)
        return {"supported": f"more than {bound} is shown", "contradicted": f"less than {bound} is "
                "shown"}.get(word, f"on neither side of {bound} for sure")  # fmt: skip
    if isinstance(test, CostRatio):
        bound, how = number(test.at_most, 2), "" if test.measure == "operations" else " is shown"
        return {"supported": f"at most {bound}{how}", "contradicted": f"more than {bound}{how}"
                }.get(word, f"on neither side of {bound} for sure")  # fmt: skip
    return "every step's mean weight is 1" if word == "supported" else "some step's is not"


def _settling(verdict: Verdict) -> str:
    settle, row = verdict.settle, verdict.row
    if settle is None:
        return ""
    noun = "paired seed" if settle.unit == "seed" else settle.unit
    if settle.count is None:
        rest = ", with these problems," if settle.unit == "seed" and row.problems else ""
        return f"more {noun}s alone{rest} would not settle it"
    return f"about {counted(settle.count, noun)} in all would settle it ({settle.word})"


def plain(verdicts: Sequence[Verdict]) -> str:
    """The verdicts for a terminal: a line each, why below it, then the notes."""
    shown = lines(verdicts)
    header = ["claim", "verdict", "measured", "p for / against", "on"]
    grid = [
        [line.claim, line.word, f"{line.effect} {line.bounds}".strip(), line.p, line.on]
        for line in shown
    ]
    body = aligned([header, *grid], ("claim", "verdict", "measured", "on")).splitlines()
    told = [body[0]]
    before = ""
    for line, row in zip(shown, body[1:], strict=True):
        if line.says != before:
            told += ["", f"{line.claim.partition(' (')[0]}: {visible(line.says)}"]
        before = line.says
        told += [visible(row), f"      {visible(line.said)}"]
        if line.command:
            told.append(f"      to test it: {visible(line.command)}")
    return "\n".join([*told, "", summary(verdicts), *notes(verdicts)])


def as_frame(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """A row for each verdict, numbers not rounded; shares as shares."""
    return pd.DataFrame([as_row(v) for v in verdicts]).astype({"settle_count": "Int64"})


def as_row(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain values, None where there is none."""
    row, settle, effect = verdict.row, verdict.settle, verdict.row.effect
    bounds = {
        name: finite(getattr(effect, field)) if effect else None
        for name, field in (("effect", "value"), ("low", "low"), ("high", "high"))
    }
    return {
        "claim": row.claim.id, "part": row.test.name, "says": row.claim.says,
        "source": row.claim.source, "on": row.on, "verdict": verdict.word, **bounds,
        "test": words_of_test(row), "p_for": finite(verdict.p_for),
        "p_against": finite(verdict.p_against), "level": verdict.level, "unit": row.unit,
        "count": row.count, "problems": row.problems, "why": said(verdict),
        "settle_unit": settle.unit if settle else None,
        "settle_count": settle.count if settle else None,
        "settle_verdict": settle.word if settle else None, "command": row.command,
    }  # fmt: skip


def as_dict(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Everything, for scripts."""
    counts = Counter(str(v.word) for v in verdicts)
    return {
        "alpha": 2 * verdicts[0].level,
        "counts": {word: counts[word] for word in WORDS},
        "verdicts": [as_row(v) for v in verdicts],
        "notes": notes(verdicts),
    }


def as_latex(verdicts: Sequence[Verdict]) -> str:
    """The table for a paper."""
    header = ["", "claim", "verdict", "measured", "why"]
    rows = [
        [line.claim, line.says, line.word, f"{line.effect} {line.bounds}".strip(), line.said]
        for line in lines(verdicts)
    ]
    return booktabs(header, rows, wide=("claim", "why"))
