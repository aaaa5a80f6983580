"""One response with its tokens shaded by weight, methods side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oar_bench.errors import InputError
from oar_bench.reporting.frames import method_order
from oar_bench.reporting.text import number, significant, visible

SECTIONS = ("reasoning", "prefix", "answer", "rest")
STEPS = 5  # shades above 1; four below
HEAVIEST = 8
COLUMNS = 58  # characters a line of the figure


@dataclass(frozen=True)
class Token:
    """A token as shown: `shade` is a class name, b1..b5 above weight 1, s1..s4 below, n at 1."""

    place: int
    text: str
    section: str
    importance: float
    weight: float
    shade: str

    @property
    def title(self) -> str:
        """What hovering says."""
        return (
            f"token {self.place}, {self.section}: "
            f"weight {number(self.weight, 2)}, importance {significant(self.importance)}"
        )


@dataclass(frozen=True)
class Shaded:
    """A method's view of the response."""

    method: str
    tokens: list[Token]
    heaviest: list[Token]


@dataclass(frozen=True)
class Example:
    """The response and every method's weights on it; shades share one scale up to `most`."""

    prompt: str
    response: str
    gold: str
    model: str
    methods: list[Shaded]
    most: float


def example_of(about: Mapping[str, Any], where: str = "credit_example.json") -> Example | None:
    """The example from credit_example.json; None when there is none.

    Raises InputError when lists don't fit the tokens.
    """
    if not about:
        return None
    try:
        pieces, sections, methods = about["pieces"], about["sections"], about["methods"]
        columns = {m: (list(v["importance"]), list(v["weight"])) for m, v in methods.items()}
        texts = [str(about[key]) for key in ("prompt", "response", "gold", "model")]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"lacks or misshapes {error}", where) from error
    for name, length in [("sections", len(sections))] + [
        (f"{method}'s list", len(of)) for method, two in columns.items() for of in two
    ]:
        if length != len(pieces):
            raise InputError(f"{name} has {length} entries for {len(pieces)} tokens", where)
    most = max((_finite(w) for _, weights in columns.values() for w in weights), default=1.0)
    shaded = [
        _shaded(method, pieces, sections, *columns[method], most)
        for method in sorted(columns, key=method_order)
    ]
    return Example(texts[0], texts[1], texts[2], texts[3], shaded, most)


def _shaded(
    method: str,
    pieces: list[str],
    sections: list[str],
    importance: list[Any],
    weights: list[Any],
    most: float,
) -> Shaded:
    tokens = [
        Token(
            i,
            str(pieces[i]),
            sections[i] if sections[i] in SECTIONS else "rest",
            _finite(importance[i]),
            _finite(weights[i]),
            shade(_finite(weights[i]), most),
        )
        for i in range(len(pieces))
    ]
    heaviest = sorted((t for t in tokens if t.weight > 1), key=lambda t: -t.weight)[:HEAVIEST]
    return Shaded(method, tokens, heaviest)


def _finite(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def shade(weight: float, most: float) -> str:
    """The class of a weight: boosts in fifths of the way from 1 to `most`, cuts in quarters.

    >>> [shade(w, 3.0) for w in (3.0, 1.1, 1.0, 0.8, 0.1)]
    ['b5', 'b1', 'n', 's1', 's4']
    """
    if math.isnan(weight) or abs(weight - 1) < 0.02:
        return "n"
    if weight > 1:
        return f"b{min(STEPS, max(1, math.ceil(STEPS * (weight - 1) / max(most - 1, 1e-9))))}"
    return f"s{min(4, max(1, math.ceil(4 * (1 - weight))))}"


@dataclass(frozen=True)
class Cell:
    """A token's box in the figure: `x`, `y`, `width` in characters and lines."""

    token: Token
    x: int
    y: int
    width: int
    text: str


def lay_out(shaded: Shaded, columns: int = COLUMNS, lines: int = 40) -> tuple[list[Cell], int]:
    """Boxes of the tokens in lines of `columns` characters; what is beyond `lines` is left out.

    Returns the boxes and the number of lines used: fewer boxes than tokens say that it was cut.
    """
    cells: list[Cell] = []
    x = y = 0
    for token in shaded.tokens:
        text = visible(token.text).replace("\n", "↵")
        text = text if len(text) <= columns else text[: columns - 1] + "…"
        if x + len(text) > columns:
            x, y = 0, y + 1
        if y >= lines:
            return cells, lines
        cells.append(Cell(token, x, y, max(len(text), 1), text))
        x += max(len(text), 1)
        if token.text.endswith("\n"):
            x, y = 0, y + 1
    return cells, y + (x > 0)
