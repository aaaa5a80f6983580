r"""Elementary functions of values in normal form.

Trigonometric and hyperbolic functions become exponentials, whose products are normal forms, so
that addition theorems hold by computation; logarithms of rationals become sums over primes.

>>> ctx = Context()
>>> value_of(cosine(ctx, Ratio({(("#pi", Fraction(1)),): Fraction(1, 3)})))
Fraction(1, 2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from oar_bench.answers.limits import UndecidedError, UndefinedValueError
from oar_bench.answers.poly import (
    ONE,
    Context,
    Poly,
    add,
    as_rational,
    constant,
    factorize,
    generator,
    key,
)
from oar_bench.answers.rational import (
    Ratio,
    divide,
    exponential,
    multiply,
    plus,
    rational,
    value_of,
)

_HALF = Fraction(1, 2)


def exp(ctx: Context, value: Ratio) -> Ratio:
    """e to a value."""
    return exponential(ctx, "e", value)


def _imaginary(ctx: Context, value: Ratio, sign: int) -> Ratio:
    turned = ctx.mul(value.num, {(("#i", Fraction(1)),): Fraction(sign)})
    return exponential(ctx, "e", Ratio(turned, value.den))


def cosine(ctx: Context, value: Ratio) -> Ratio:
    """cos x = (e^(ix) + e^(-ix)) / 2."""
    total = plus(ctx, _imaginary(ctx, value, 1), _imaginary(ctx, value, -1))
    return multiply(ctx, total, rational(_HALF))


def sine(ctx: Context, value: Ratio) -> Ratio:
    """sin x = (e^(ix) - e^(-ix)) / (2i)."""
    total = plus(ctx, _imaginary(ctx, value, 1), _imaginary(ctx, value, -1), -1)
    return multiply(ctx, total, Ratio({(("#i", Fraction(1)),): -_HALF}))


def tangent(ctx: Context, value: Ratio) -> Ratio:
    """sin x / cos x."""
    return divide(ctx, sine(ctx, value), cosine(ctx, value))


def hyperbolic(ctx: Context, value: Ratio, sign: int) -> Ratio:
    """(e^x + sign * e^(-x)) / 2."""
    negative = multiply(ctx, value, rational(-1))
    total = plus(ctx, exp(ctx, value), exp(ctx, negative), sign)
    return multiply(ctx, total, rational(_HALF))


def _reciprocal(function: Callable[[Context, Ratio], Ratio]) -> Callable[[Context, Ratio], Ratio]:
    return lambda ctx, value: divide(ctx, rational(1), function(ctx, value))


def logarithm(ctx: Context, value: Ratio) -> Ratio:
    """The natural logarithm (rule: of one product of constants it is the sum over its factors).

    >>> ctx = Context()
    >>> value_of(logarithm(ctx, Ratio({(("#e", Fraction(2)),): Fraction(1)})))
    Fraction(2, 1)
    """
    if value.den != ONE:
        bottom = as_rational(value.den)
        if bottom is None:
            return plus(ctx, logarithm(ctx, Ratio(value.num)), logarithm(ctx, Ratio(value.den)), -1)
        value = Ratio(ctx.mul(value.num, constant(1 / bottom)))
    if not value.num:
        raise UndefinedValueError("a logarithm of zero")
    if len(value.num) == 1:
        ((mono, coefficient),) = value.num.items()
        if coefficient > 0 and all(name[0] == "#" and name != "#i" for name, _ in mono):
            total = _log_rational(coefficient)
            for name, exponent in mono:
                if name == "#e":
                    total = add(total, constant(exponent))
                elif name == "#pi":
                    total = add(total, generator("@ln pi"), exponent)
                else:
                    total = add(total, _log_rational(Fraction(int(name[1:]))), exponent)
            return Ratio(total)
        if coefficient == 1 and len(mono) == 1 and mono[0][0].startswith("^e "):
            ctx.opaque = True
    ctx.opaque = True
    return Ratio(generator(f"@ln {key(value.num)}"))


def _log_rational(value: Fraction) -> Poly:
    total: Poly = {}
    for prime, count in factorize(value.numerator).items():
        total = add(total, generator(f"@ln {prime}"), count)
    for prime, count in factorize(value.denominator).items():
        total = add(total, generator(f"@ln {prime}"), -count)
    return total


def common_logarithm(ctx: Context, value: Ratio) -> Ratio:
    """The logarithm to base ten."""
    return divide(ctx, logarithm(ctx, value), logarithm(ctx, rational(10)))


def plain_log(ctx: Context, value: Ratio) -> Ratio:
    """`log` without a base: natural or to base ten, whichever reading the comparison tries."""
    return common_logarithm(ctx, value) if ctx.common_log else logarithm(ctx, value)


def inverse(name: str) -> Callable[[Context, Ratio], Ratio]:
    """An inverse trigonometric function: an atom (constants are compared numerically later)."""

    def apply(ctx: Context, value: Ratio) -> Ratio:
        ctx.opaque = True
        if not value.num and name in ("arcsin", "arctan"):
            return rational(0)
        return Ratio(generator(f"@{name} {key(value.num)} / {key(value.den)}"))

    return apply


FUNCTIONS_OF_VALUES: dict[str, Callable[[Context, Ratio], Ratio]] = {
    "exp": exp,
    "sin": sine,
    "cos": cosine,
    "tan": tangent,
    "cot": lambda ctx, v: divide(ctx, cosine(ctx, v), sine(ctx, v)),
    "sec": _reciprocal(cosine),
    "csc": _reciprocal(sine),
    "sinh": lambda ctx, v: hyperbolic(ctx, v, -1),
    "cosh": lambda ctx, v: hyperbolic(ctx, v, 1),
    "tanh": lambda ctx, v: divide(ctx, hyperbolic(ctx, v, -1), hyperbolic(ctx, v, 1)),
    "ln": logarithm,
    "log": plain_log,
    "lg": common_logarithm,
    "arcsin": inverse("arcsin"),
    "arccos": inverse("arccos"),
    "arctan": inverse("arctan"),
}


def _whole(values: Sequence[Fraction]) -> list[int]:
    if any(v.denominator != 1 for v in values):
        raise UndecidedError("a function of whole numbers on fractions")
    return [int(v) for v in values]


def _modulo(values: Sequence[Fraction]) -> Fraction:
    value, modulus = values
    if not modulus:
        raise UndefinedValueError("modulo zero")
    return value % modulus


FUNCTIONS_OF_WHOLE_NUMBERS: dict[str, Callable[[Sequence[Fraction]], Fraction]] = {
    "gcd": lambda v: Fraction(math.gcd(*_whole(v))),
    "lcm": lambda v: Fraction(math.lcm(*_whole(v))),
    "max": lambda v: max(v),
    "min": lambda v: min(v),
    "floor": lambda v: Fraction(math.floor(v[0])),
    "ceil": lambda v: Fraction(math.ceil(v[0])),
    "mod": _modulo,
}

__all__ = ["FUNCTIONS_OF_VALUES", "FUNCTIONS_OF_WHOLE_NUMBERS", "value_of"]
