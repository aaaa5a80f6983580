r"""The fast path: exact strings and plain numbers, decided without a parser.

>>> plain_number("-1,234.50"), plain_number("\\frac{3}{4}"), plain_number("3/4")
(Fraction(-2469, 2), Fraction(3, 4), Fraction(3, 4))
>>> plain_number("1,2345") is None
True
"""

from __future__ import annotations

import re
from fractions import Fraction

from oar_bench.answers.limits import INT_CHUNK

_PLAIN = re.compile(
    r"\s*\$?\s*([-+]?)\s*(?:\\?\$)?\s*(\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.(\d*))?\s*\.?\$?\s*"
)
_FRACTION = re.compile(
    r"\s*\$?\s*([-+]?)\s*(?:\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(-?\d+)\s*\}|(\d+)\s*/\s*(\d+))"
    r"\s*\.?\$?\s*"
)


def plain_number(text: str) -> Fraction | None:
    """The value of a plain decimal or fraction, or None for anything else or anything long.

    Rule: signs, thousands in groups of three, a dollar sign and a final period are allowed.
    """
    if len(text) > INT_CHUNK:
        return None
    match = _PLAIN.fullmatch(text)
    if match is not None:
        sign, whole, decimals = match.groups()
        digits = whole.replace(",", "") + (decimals or "")
        value = Fraction(int(digits), 10 ** len(decimals)) if decimals else Fraction(int(digits))
        return -value if sign == "-" else value
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, top, bottom, plain_top, plain_bottom = match.groups()
    numerator, denominator = int(top or plain_top), int(bottom or plain_bottom)
    if not denominator:
        return None
    value = Fraction(numerator, denominator)
    return -value if sign == "-" else value


_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")


def same_fast(answer: str, gold: str) -> bool | None:
    r"""The verdict where both are short whole numbers or plain numbers, or None.

    >>> same_fast("42", "42"), same_fast("41", "42"), same_fast("1/2", "0.50"), same_fast("x", "y")
    (True, False, True, None)
    """
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return int(answer) == int(gold)
    left = plain_number(answer)
    if left is None:
        return None
    right = plain_number(gold)
    return None if right is None else left == right
