r"""Quotients of polynomials, with powers, roots and exponentials: values in normal form.

>>> ctx = Context()
>>> x = Ratio(generator("x"))
>>> equal(ctx, divide(ctx, multiply(ctx, x, x), x), x)
True
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

from oar_bench.answers.limits import (
    MAX_EXACT_BITS,
    MAX_EXPONENT,
    MAX_NAME_CHARS,
    LimitError,
    UndecidedError,
    UndefinedValueError,
)
from oar_bench.answers.poly import (
    ONE,
    Context,
    Monomial,
    Poly,
    add,
    as_rational,
    constant,
    generator,
    key,
)


class Ratio(NamedTuple):
    """A numerator and a denominator that is not zero."""

    num: Poly
    den: Poly = ONE


def rational(value: int | Fraction) -> Ratio:
    """A rational number."""
    return Ratio(constant(value))


def value_of(ratio: Ratio) -> Fraction | None:
    """The rational number that a ratio is, where both parts are rational.

    >>> value_of(Ratio(constant(1), constant(2)))
    Fraction(1, 2)
    """
    top, bottom = as_rational(ratio.num), as_rational(ratio.den)
    if top is None or bottom is None:
        return None
    return top / bottom


def plus(ctx: Context, left: Ratio, right: Ratio, factor: int = 1) -> Ratio:
    """left + factor * right."""
    if left.den == right.den:
        return Ratio(add(left.num, right.num, factor), left.den)
    return Ratio(
        add(ctx.mul(left.num, right.den), ctx.mul(right.num, left.den), factor),
        ctx.mul(left.den, right.den),
    )


def multiply(ctx: Context, left: Ratio, right: Ratio) -> Ratio:
    """The product."""
    if left.den is ONE and right.den is ONE:
        return Ratio(ctx.mul(left.num, right.num))
    return Ratio(ctx.mul(left.num, right.num), ctx.mul(left.den, right.den))


def invertible(name: str) -> bool:
    """Whether a generator may stand with a negative exponent."""
    return not (name.startswith("@") and name != "@zeta")


def invert(ctx: Context, ratio: Ratio) -> Ratio:
    """One over a ratio; a single term moves into the numerator with negative exponents."""
    if not ratio.num:
        raise UndefinedValueError("a division by zero")
    if len(ratio.num) == 1:
        ((mono, coefficient),) = ratio.num.items()
        if all(invertible(name) for name, _ in mono):
            inverse: Poly = {(): 1 / coefficient}
            for name, exponent in mono:
                inverse = ctx.mul(inverse, _unit_power(ctx, name, -exponent))
            return Ratio(ctx.mul(inverse, ratio.den))
    return Ratio(ratio.den, ratio.num)


def _unit_power(ctx: Context, name: str, exponent: Fraction) -> Poly:
    """A generator to any power, reduced (through a product with one more generator)."""
    return ctx.mul({((name, exponent / 2),): Fraction(1)}, {((name, exponent / 2),): Fraction(1)}) \
        if name not in ("#i",) else ctx.mul(
            {((name, Fraction(3)),): Fraction(1)}, {((name, Fraction(4)),): Fraction(1)}
        )  # fmt: skip


def divide(ctx: Context, left: Ratio, right: Ratio) -> Ratio:
    """The quotient; `UndefinedValueError` on a division by zero."""
    return multiply(ctx, left, invert(ctx, right))


def equal(ctx: Context, left: Ratio, right: Ratio) -> bool:
    """Whether the normal forms agree (cross-multiplied)."""
    if left.den == right.den:
        return left.num == right.num
    return not add(ctx.mul(left.num, right.den), ctx.mul(right.num, left.den), -1)


def integer_power(ctx: Context, base: Ratio, exponent: int) -> Ratio:
    """A ratio to a whole power."""
    if exponent < 0:
        return integer_power(ctx, invert(ctx, base), -exponent)
    if exponent == 0:
        return rational(1)
    number = value_of(base)
    if number is not None:
        bits = max(number.numerator.bit_length(), number.denominator.bit_length())
        if abs(number) != 1 and number and bits * exponent > MAX_EXACT_BITS:
            return _huge_power(ctx, number, exponent)
        return rational(number**exponent)
    if len(base.num) == 1 and base.den == ONE:
        ((mono, coefficient),) = base.num.items()
        if not any(name[0] in "#@" for name, _ in mono) and abs(coefficient) == 1:
            raised = tuple((name, power * exponent) for name, power in mono)
            return Ratio({raised: coefficient**exponent})
    if exponent > MAX_EXPONENT:
        raise LimitError("a power of a sum is too large to expand")
    result, square = rational(1), base
    while exponent:
        if exponent & 1:
            result = multiply(ctx, result, square)
        exponent >>= 1
        if exponent:
            square = multiply(ctx, square, square)
    return result


def _huge_power(ctx: Context, number: Fraction, exponent: int) -> Ratio:
    raise LimitError("a power is too long to write out")


def real_power(ctx: Context, base: Ratio, power: Fraction) -> Ratio:
    r"""A ratio to a rational power.

    Rule: a root of one product of rationals, constants and single unknowns is taken factor by
    factor; a root of a sum is an atom whose power is the sum again.
    """
    if power.denominator == 1:
        return integer_power(ctx, base, power.numerator)
    if power < 0:
        return invert(ctx, real_power(ctx, base, -power))
    if not base.num:
        return rational(0)
    whole, part = divmod(power, 1)
    if whole:
        return multiply(ctx, integer_power(ctx, base, int(whole)), real_power(ctx, base, part))
    if base.den != ONE:
        bottom = as_rational(base.den)
        if bottom is not None:
            base = Ratio(ctx.mul(base.num, constant(1 / bottom)))
        else:
            top = real_power(ctx, Ratio(base.num), power)
            return divide(ctx, top, real_power(ctx, Ratio(base.den), power))
    if len(base.num) == 1:
        ((mono, coefficient),) = base.num.items()
        if all(_splits(name, exponent, power) for name, exponent in mono):
            result = ctx.root_of_rational(coefficient, power)
            for name, exponent in mono:
                result = ctx.mul(result, _unit_power(ctx, name, exponent * power))
            return Ratio(result)
    return _root_atom(ctx, base.num, power)


def _splits(name: str, exponent: Fraction, power: Fraction) -> bool:
    if name[0] == "@" or name == "#i":
        return False
    if name[0] in "#^":
        return "#i" not in name
    return bool(power.denominator % 2) or bool(exponent.numerator % 2)


def _root_atom(ctx: Context, poly: Poly, power: Fraction) -> Ratio:
    """A root of a sum: its rational content is taken out, the rest is an atom."""
    top = gcd(*(c.numerator for c in poly.values()))
    bottom = lcm(*(c.denominator for c in poly.values()))
    content = Fraction(top, bottom)
    if all(c < 0 for c in poly.values()) and power.denominator % 2:
        content = -content
    primitive: Poly = {mono: c / content for mono, c in poly.items()}
    name = f"@root {key(primitive)}"
    ctx.opaque = True
    ctx.bases[name] = primitive
    outside = ctx.root_of_rational(content, power)
    return Ratio(ctx.mul(outside, generator(name, power)))


def exponential(ctx: Context, base: str, exponent: Ratio) -> Ratio:
    """A prime or e to an exponent in normal form (rule: a sum of exponents is a product).

    >>> ctx = Context()
    >>> two_k = exponential(ctx, "2", Ratio(generator("k")))
    >>> four_k = exponential(ctx, "2", Ratio({(("k", Fraction(1)),): Fraction(2)}))
    >>> equal(ctx, multiply(ctx, two_k, two_k), four_k)
    True
    """
    if exponent.den != ONE:
        bottom = as_rational(exponent.den)
        if bottom is None:
            ctx.opaque = True
            name = f"^{base} {key(exponent.num)} / {key(exponent.den)}"
            if len(name) > MAX_NAME_CHARS:  # functions of functions double it at every level
                raise LimitError("functions are nested too deeply")
            return Ratio(generator(name))
        exponent = Ratio(ctx.mul(exponent.num, constant(1 / bottom)))
    result: Poly = ONE
    for mono, coefficient in exponent.num.items():
        result = ctx.mul(result, _exponential_term(ctx, base, mono, coefficient))
    return Ratio(result)


def _exponential_term(ctx: Context, base: str, mono: Monomial, coefficient: Fraction) -> Poly:
    if not mono:
        if base == "e":
            return generator("#e", coefficient)
        if abs(coefficient) * int(base).bit_length() > MAX_EXACT_BITS:
            raise LimitError("a power is too long to write out")
        return ctx.root_of_rational(Fraction(int(base)), coefficient)
    if base == "e" and mono == (("#i", Fraction(1)), ("#pi", Fraction(1))):
        return root_of_unity(ctx, coefficient)
    if sum(len(n) for n, _ in mono) > MAX_NAME_CHARS:
        raise LimitError("functions are nested too deeply")
    name = f"^{base} " + "*".join(f"{n}^{e}" for n, e in mono)
    if any(n[0] == "@" for n, _ in mono):
        ctx.opaque = True
    return generator(name, coefficient)


def root_of_unity(ctx: Context, turns: Fraction) -> Poly:
    """e^(i pi turns) in radicals where the denominator divides 12 or is 5, else an atom.

    >>> root_of_unity(Context(), Fraction(1))
    {(): Fraction(-1, 1)}
    """
    turns %= 2
    cosine, sine = half_turn_cosine(ctx, turns), half_turn_cosine(ctx, turns - Fraction(1, 2))
    if cosine is None or sine is None:
        ctx.opaque = True
        return ctx.mul(generator("@zeta", turns / 2), generator("@zeta", turns / 2))
    return add(cosine, ctx.mul(sine, generator("#i")))


_TABLE: dict[Fraction, tuple[tuple[Fraction, int], ...]] = {
    Fraction(0): ((Fraction(1), 1),),
    Fraction(1, 12): ((Fraction(1, 4), 6), (Fraction(1, 4), 2)),
    Fraction(1, 6): ((Fraction(1, 2), 3),),
    Fraction(1, 4): ((Fraction(1, 2), 2),),
    Fraction(1, 3): ((Fraction(1, 2), 1),),
    Fraction(5, 12): ((Fraction(1, 4), 6), (Fraction(-1, 4), 2)),
    Fraction(1, 2): (),
}


def half_turn_cosine(ctx: Context, turns: Fraction) -> Poly | None:
    """cos(pi turns) in radicals, or None."""
    turns = abs(turns) % 2
    if turns > 1:
        turns = 2 - turns
    sign = 1
    if turns > Fraction(1, 2):
        turns, sign = 1 - turns, -1
    terms = _TABLE.get(turns)
    if terms is None:
        return None
    total: Poly = {}
    for coefficient, radicand in terms:
        root = ctx.root_of_rational(Fraction(radicand), Fraction(1, 2))
        total = add(total, root, coefficient * sign)
    return total


__all__ = [
    "Context", "Monomial", "Poly", "Ratio", "UndecidedError", "divide", "equal", "exponential",
    "generator", "integer_power", "invert", "key", "multiply", "plus", "rational", "real_power",
    "root_of_unity", "value_of",
]  # fmt: skip
