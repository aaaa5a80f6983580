"""What a page and a terminal show of one response's credit: tokens with every method's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oar_bench.errors import InputError
from oar_bench.reporting.example import STEPS, Token, example_of, shade
from oar_bench.reporting.text import aligned, number, significant, visible

LONGEST = 200  # characters of one token that are shown
TIP = 24  # characters of it in a tip
PARTS = {"prefix": "answer prefix"}


@dataclass(frozen=True)
class Cell:
    """One method's view of one token.

    `depth` is a class name, i1..i5 by the importance's share of the method's largest, i0 below;
    `shade` one for the weight, see `oar_bench.reporting.example.Token`.
    """

    importance: float
    rank: int | None
    """1 is the most important of the scored tokens; None where nothing is ranked."""
    weight: float
    depth: str
    shade: str


@dataclass(frozen=True)
class Line:
    """A token of the response: `place` in it, `position` in the whole sequence, both from 0."""

    place: int
    position: int
    id: int
    text: str
    special: bool
    """It adds no text: `text` is its name in the vocabulary."""
    section: str
    cells: list[Cell]
    """One for each method."""
    tip: str
    """Everything about it in a few lines."""


@dataclass(frozen=True)
class Summary:
    """A method over the whole response."""

    method: str
    empty: bool
    """It gives no importance and only weights of 1."""
    largest: float
    """Importance."""
    lightest: float
    heaviest: float
    """Weights."""


@dataclass(frozen=True)
class CreditView:
    """The response, its tokens and methods; weight shades share one scale up to `most`."""

    lines: list[Line]
    methods: list[Summary]
    scored: int
    answer: str
    found: bool
    most: float

    @property
    def scale(self) -> list[tuple[str, float]]:
        """Shades of the weights with a weight of each, for the legend."""
        reached = [1 + (self.most - 1) * step / STEPS for step in (1, 3, STEPS)]
        weights = [0.0, 0.5, 1.0, *(reached if self.most > 1 else [])]
        return [(shade(weight, self.most), weight) for weight in weights]


def credit_view(found: Mapping[str, Any], where: str = "credit") -> CreditView:
    """The view of what `oar_bench.reporting.credit_show.show` returned.

    Raises InputError when its lists don't fit each other.
    """
    example = example_of(found, where)
    if example is None:
        raise InputError("there are no tokens", where)
    try:
        ids, names, scored = found["ids"], found["names"], found["scored"]
        before = int(found["prompt_tokens"])
        lists = {"ids": ids, "names": names, "scored": scored}
        unlike = [key for key, value in lists.items() if len(value) != len(found["pieces"])]
    except (KeyError, TypeError) as error:
        raise InputError(f"lacks or misshapes {error}", where) from error
    if unlike:
        raise InputError(f"{unlike[0]} doesn't fit the {len(found['pieces'])} tokens", where)
    by_name = {view.method: view for view in example.methods}
    asked = [by_name[name] for name in found["methods"]]  # in the order asked for
    columns = [_cells(view.tokens, scored) for view in asked]
    methods = [_summary(v.method, c) for v, c in zip(asked, columns, strict=True)]
    lines = []
    for i, token in enumerate(asked[0].tokens if asked else []):
        cells = [column[i] for column in columns]
        text = token.text or str(names[i])
        line = Line(
            i, before + i, int(ids[i]), clipped(text, LONGEST), not token.text,
            PARTS.get(token.section, token.section), cells, "",
        )  # fmt: skip
        lines.append(Line(**{**vars(line), "tip": _tip(line, methods, sum(scored))}))
    answer = "".join(
        piece
        for piece, part in zip(found["pieces"], found["sections"], strict=True)
        if part == "answer"
    )
    return CreditView(
        lines, methods, sum(scored), answer.strip(), bool(found.get("found")), example.most
    )


def _cells(tokens: Sequence[Token], scored: Sequence[bool]) -> list[Cell]:
    known = [t.importance for t, yes in zip(tokens, scored, strict=True) if yes]
    places = ranks(known)
    largest = max((v for v in known if math.isfinite(v)), default=0.0)
    ranked = iter(places)
    return [
        Cell(
            token.importance, next(ranked) if yes else None, token.weight,
            depth(token.importance, largest), token.shade,
        )
        for token, yes in zip(tokens, scored, strict=True)
    ]  # fmt: skip


def ranks(values: Sequence[float]) -> list[int | None]:
    """Rank of each value, 1 the largest, equal ones sharing the best; None where all are equal.

    >>> ranks([0.1, 0.5, 0.1, float("nan")])
    [2, 1, 2, None]
    >>> ranks([0.0, 0.0])
    [None, None]
    """
    falling = sorted((v for v in values if math.isfinite(v)), reverse=True)
    if not falling or falling[0] == falling[-1]:
        return [None] * len(values)
    first: dict[float, int] = {}
    for place, value in enumerate(falling, start=1):
        first.setdefault(value, place)
    return [first.get(v) for v in values]


def depth(importance: float, largest: float) -> str:
    """The class of an importance: each step is half the one above, the top one from half up.

    Importances spread over orders of magnitude: in even steps all but a few tokens would be blank.

    >>> [depth(v, 2.0) for v in (2.0, 1.0, 0.9, 0.1, 0.05, 0.0)]
    ['i5', 'i5', 'i4', 'i1', 'i0', 'i0']
    """
    if not (largest > 0 and importance > 0 and math.isfinite(importance)):
        return "i0"
    share, step = importance / largest, STEPS
    while step and share < 0.5:
        share, step = 2 * share, step - 1
    return f"i{step}"


def _summary(method: str, cells: Sequence[Cell]) -> Summary:
    importances = [c.importance for c in cells if math.isfinite(c.importance)]
    weights = [c.weight for c in cells if math.isfinite(c.weight)] or [1.0]
    empty = not any(importances) and all(w == 1 for w in weights)
    return Summary(
        method, empty, max(importances, default=0.0), min(weights), max(weights)
    )  # fmt: skip


def _tip(line: Line, methods: Sequence[Summary], scored: int) -> str:
    """What hovering says: two lines on the token, then one for each method."""
    text = clipped(line.text, TIP).replace("\n", "↵")
    grid = [["", "weight", "importance", "rank"]]
    for summary, cell in zip(methods, line.cells, strict=True):
        rank = "–" if cell.rank is None else f"{cell.rank}/{scored}"
        grid.append([clipped(summary.method, TIP), number(cell.weight, 2),
                     significant(cell.importance), rank])  # fmt: skip
    return (
        f"token {line.place}: “{visible(text)}”, {line.section}\n"
        f"id {line.id}, position {line.position}\n{aligned(grid, ('',))}"
    )


def clipped(text: str, most: int) -> str:
    """At most so many characters of a text, and how many more there are.

    >>> clipped("abcdef", 3), clipped("abc", 3)
    ('abc… (3 more)', 'abc')
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more)"
