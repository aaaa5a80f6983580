r"""A small table of units, for answers that carry one on both sides.

>>> convert("minutes", "hours")
Fraction(1, 60)
>>> convert("cm", "kg"), convert("apples", "cm")
(Fraction(0, 1), None)
"""

from __future__ import annotations

import re
from fractions import Fraction

_F = Fraction
_TABLE: dict[str, tuple[str, Fraction]] = {}


def _define(dimension: str, size: Fraction | int, names: str) -> None:
    for name in names.split():
        _TABLE[name] = (dimension, _F(size))


_define("length", _F(1, 1000), "mm millimeter millimeters millimetre millimetres")
_define("length", _F(1, 100), "cm centimeter centimeters centimetre centimetres")
_define("length", 1, "m meter meters metre metres")
_define("length", 1000, "km kilometer kilometers kilometre kilometres")
_define("length", _F(254, 10000), "in inch inches")
_define("length", _F(3048, 10000), "ft foot feet")
_define("length", _F(9144, 10000), "yd yard yards")
_define("length", _F(1609344, 1000), "mi mile miles")
_define("mass", _F(1, 1000), "mg milligram milligrams")
_define("mass", 1, "g gram grams")
_define("mass", 1000, "kg kilogram kilograms kgs")
_define("mass", _F(45359237, 100000), "lb lbs pound pounds")
_define("mass", _F(45359237, 1600000), "oz ounce ounces")
_define("time", 1, "s sec secs second seconds")
_define("time", 60, "min mins minute minutes")
_define("time", 3600, "h hr hrs hour hours")
_define("time", 86400, "day days")
_define("time", 604800, "week weeks")
_define("money", _F(1, 100), "cent cents")
_define("money", 1, "dollar dollars usd")
_define("volume", _F(1, 1000), "ml milliliter milliliters")
_define("volume", 1, "l liter liters litre litres")

_CLEAN = re.compile(r"[\s~.]+")


def _name(unit: str) -> str:
    return _CLEAN.sub(" ", unit).strip().lower()


def convert(source: str, target: str) -> Fraction | None:
    """How many `target` one `source` is; 0 for different dimensions, None where unknown."""
    a, b = _TABLE.get(_name(source)), _TABLE.get(_name(target))
    if a is None or b is None:
        return None
    if a[0] != b[0]:
        return Fraction(0)
    return a[1] / b[1]


def is_percent(unit: str) -> bool:
    """Whether words mean a percent sign.

    >>> is_percent("percent"), is_percent("persons")
    (True, False)
    """
    return _name(unit) in ("percent", "per cent", "percentage", "pct", "percents")


def is_degree(unit: str) -> bool:
    """Whether words mean the degree sign."""
    return _name(unit) in ("degree", "degrees", "deg")


def is_radian(unit: str) -> bool:
    """Whether words mean radians."""
    return _name(unit) in ("radian", "radians", "rad")
