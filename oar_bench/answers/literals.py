"""Literals: decimal numbers and numerals in a base, as exact values.

>>> literal_value("0.5")
Fraction(1, 2)
"""

from __future__ import annotations

from fractions import Fraction

from oar_bench.answers.limits import LimitError, ParseError, digits_to_int
from oar_bench.answers.nodes import Node

MAX_LITERAL_EXPONENT = 4_000


def literal_value(text: str) -> Fraction:
    """The exact value of a decimal literal, with or without an exponent.

    >>> literal_value("2.50"), literal_value("1e3"), literal_value(".5")
    (Fraction(5, 2), Fraction(1000, 1), Fraction(1, 2))
    """
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    scale = (int(exponent[:8]) if exponent else 0) - len(decimals)
    value = digits_to_int(whole + decimals)
    if abs(scale) > MAX_LITERAL_EXPONENT + len(mantissa):
        raise LimitError("the exponent of a literal is too large")
    return Fraction(value * 10**scale) if scale >= 0 else Fraction(value, 10**-scale)


def make_based(digits: str, base: int) -> Node:
    """A numeral in a base; `ParseError` where a digit does not exist in it.

    >>> make_based("204", 5).number
    Fraction(54, 1)
    """
    digits = digits.upper().lstrip("0") or "0"
    if not 2 <= base <= 36 or not digits.isalnum() or not digits.isascii() or len(digits) > 200:
        raise ParseError("not a numeral in a base")
    try:
        value = int(digits, base)
    except ValueError as error:
        raise ParseError("a digit that the base lacks") from error
    return Node("base", (), f"{digits} {base}", Fraction(value))
