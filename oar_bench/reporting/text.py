"""How a report writes numbers, and how it shows text that a model wrote.

Model text is data. `visible` replaces whatever could hide, reorder or command (control
characters, bidirectional marks, lone surrogates) by a sign that shows it; the HTML templates
escape on top of that (jinja2 autoescape), the Markdown ones by `markdown`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection
from typing import Any

from oar_bench.evaluation.statistics import Interval

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"


class Written(str):
    """Text that this package wrote itself: needs no Markdown escapes (HTML escapes it still)."""


def visible(text: str) -> str:
    r"""The text with every invisible or unassigned character shown as its code point.

    That is: control and format characters (escapes, bidi marks, zero width), lone surrogates,
    private use, line and paragraph separators. Newlines stay.

    >>> visible("a\x1b[31m\u202eb\ud83d\n") == "a⟨U+001B⟩[31m⟨U+202E⟩b⟨U+D83D⟩\n"
    True
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible_character, text))


def _visible_character(c: str) -> str:
    if c == "\n" or unicodedata.category(c) not in HIDDEN:
        return c
    return f"⟨U+{ord(c):04X}⟩"


SHORT = 28  # characters of a name that a figure has room for


def short(name: str) -> str:
    """A name as a figure shows it: visible, in one line, cut where it is long.

    >>> short("oar-p"), short("x" * 100) == "x" * 27 + "…"
    ('oar-p', True)
    """
    shown = visible(name).replace("\n", "↵")
    return shown if len(shown) <= SHORT else f"{shown[: SHORT - 1]}…"


HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
MARKDOWN = re.compile(r"([\\`*_|~$]|(?<=\])\()")


def markdown(text: str) -> str:
    r"""Text from a file, safe in one line or cell of Markdown.

    >>> markdown("a|b <script> *x*\n")
    'a\\|b &lt;script&gt; \\*x\\*↵'
    """
    shown = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKDOWN.sub(r"\\\1", shown).replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}")


def fence(text: str) -> str:
    """A code fence longer than any run of backticks in the text.

    >>> fence("a ```` b")
    '`````'
    """
    runs = [len(run) for run in re.findall(r"`+", text)]
    return "`" * max(3, max(runs, default=0) + 1)


def number(value: float | None, digits: int = 1) -> Written:
    """A plain number with a true minus sign; a dash where there is none. Never "-0.0".

    >>> number(-1.25, 1), number(-0.01), number(float("nan"))
    ('−1.2', '0.0', '–')
    """
    if value is None or not math.isfinite(value):
        return Written(NONE)
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return Written(text.replace("-", MINUS))


def significant(value: float | None, digits: int = 3) -> Written:
    """A number of any size with so many significant figures.

    >>> significant(0.00012345), significant(0.64812), significant(None)
    ('0.000123', '0.648', '–')
    """
    if value is None or not math.isfinite(value):
        return Written(NONE)
    return Written(f"{value:.{digits}g}".replace("-", MINUS))


def percent(share: float | None, digits: int = 1) -> Written:
    """A share as percent without its sign.

    >>> percent(0.6391)
    '63.9'
    """
    return number(None if share is None else 100 * share, digits)


def points(difference: float | None, digits: int = 1) -> Written:
    """A difference of shares in percent points, always with its sign.

    >>> points(0.0123), points(-0.01), points(0.0)
    ('+1.2', '−1.0', '0.0')
    """
    text = percent(difference, digits)
    signed = text[0].isdigit() and difference is not None and float(text) > 0
    return Written(f"+{text}") if signed else text


def bracket(interval: Interval, difference: bool = False) -> Written:
    """The bounds in percent (points): [low, high]; a dash where they are unknown.

    >>> bracket(Interval(0.5, 0.41, 0.59, 0.04, 9, 10, ""))
    '[41.0, 59.0]'
    """
    if math.isnan(interval.low):
        return Written(NONE)
    write = points if difference else percent
    return Written(f"[{write(interval.low)}, {write(interval.high)}]")


def p_value(p: float | None) -> Written:
    """A p value to three digits.

    >>> p_value(0.0004), p_value(0.0316), p_value(1.0)
    ('<0.001', '0.032', '1.000')
    """
    if p is None or math.isnan(p):
        return Written(NONE)
    return Written("<0.001") if p < 0.001 else number(p, 3)


def listed(names: list[Any]) -> str:
    """Names as an English list.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    words = [str(name) for name in names]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {noun}" + ("" if n == 1 else "s")


Grid = list[list[str]]


def aligned(grid: Grid, words: Collection[str]) -> str:
    """A header and its rows in columns: those named in `words` to the left, numbers to the right.

    >>> print(aligned([["name", "n"], ["a", "10"]], ("name",)))
      name   n
      a     10
    """
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    return "\n".join(
        "  "
        + "  ".join(
            cell.ljust(width) if name in words else cell.rjust(width)
            for cell, width, name in zip(row, widths, grid[0], strict=True)
        ).rstrip()
        for row in grid
    )


def piped(grid: Grid, words: Collection[str]) -> list[str]:
    """A header and its rows as the lines of a Markdown table; columns in `words` to the left.

    >>> piped([["name", "n"], ["a|b", Written("10")]], ("name",))
    ['| name | n |', '| :-- | --: |', '| a\\\\|b | 10 |']
    """
    rule = [":--" if name in words else "--:" for name in grid[0]]
    body = [[c if isinstance(c, Written) else markdown(c) for c in row] for row in grid[1:]]
    return [f"| {' | '.join(row)} |" for row in (grid[0], rule, *body)]
