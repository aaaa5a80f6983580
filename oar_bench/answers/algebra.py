r"""From a syntax tree to a value in normal form.

>>> from oar_bench.answers.parser import parse
>>> ctx = Context()
>>> equal(ctx, evaluate(ctx, parse("\\frac{\\sqrt{3}}{3}")), evaluate(ctx, parse("1/\\sqrt{3}")))
True
>>> equal(ctx, evaluate(ctx, parse("\\sin 2x")), evaluate(ctx, parse("2\\sin x\\cos x")))
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from oar_bench.answers.functions import FUNCTIONS_OF_VALUES, FUNCTIONS_OF_WHOLE_NUMBERS
from oar_bench.answers.limits import (
    MAX_EXACT_BITS,
    LimitError,
    ParseError,
    UndecidedError,
    UndefinedValueError,
)
from oar_bench.answers.nodes import Node, num
from oar_bench.answers.numeric import sign_of
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
    equal,
    exponential,
    multiply,
    plus,
    rational,
    real_power,
    value_of,
)

_CONSTANTS = {"pi": "#pi", "e": "#e", "i": "#i"}
_TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_PROPER_SETS = frozenset({"RR", "ZZ", "NN", "QQ", "CC", "oo"})


def evaluate(ctx: Context, node: Node) -> Ratio:
    """The value of a scalar expression.

    Raises `UndefinedValueError` where there is none, `LimitError` where it is too large to write
    out, and `UndecidedError` where the node is not a scalar.
    """
    ctx.spend(1)
    handler = _HANDLERS.get(node.kind)
    if handler is None:
        raise UndecidedError(f"{node.kind} is not a scalar")
    return handler(ctx, node)


def _number(ctx: Context, node: Node) -> Ratio:
    return rational(node.number if node.number is not None else 0)


def _symbol(ctx: Context, node: Node) -> Ratio:
    if node.text in _PROPER_SETS:
        raise UndecidedError("infinity and sets are not scalars")
    return Ratio(generator(_CONSTANTS.get(node.text, node.text)))


def _sum(ctx: Context, node: Node) -> Ratio:
    total = evaluate(ctx, node.args[0])
    for term in node.args[1:]:
        if term.kind == "neg":
            total = plus(ctx, total, evaluate(ctx, term.args[0]), -1)
        else:
            total = plus(ctx, total, evaluate(ctx, term))
    return total


def _product(ctx: Context, node: Node) -> Ratio:
    total = evaluate(ctx, node.args[0])
    for factor in node.args[1:]:
        total = multiply(ctx, total, evaluate(ctx, factor))
    return total


def _quotient(ctx: Context, node: Node) -> Ratio:
    return divide(ctx, evaluate(ctx, node.args[0]), evaluate(ctx, node.args[1]))


def _negative(ctx: Context, node: Node) -> Ratio:
    return multiply(ctx, rational(-1), evaluate(ctx, node.args[0]))


def _power(ctx: Context, node: Node) -> Ratio:
    base_node, exponent_node = node.args
    exponent = evaluate(ctx, exponent_node)
    number = value_of(exponent)
    if base_node.kind == "sym" and base_node.text == "e":
        return exponential(ctx, "e", exponent)
    base = evaluate(ctx, base_node)
    if number is not None:
        return real_power(ctx, base, number)
    return _symbolic_power(ctx, base, exponent)


def _symbolic_power(ctx: Context, base: Ratio, exponent: Ratio) -> Ratio:
    """Rule: a positive rational base splits into primes, a lone name stays, the rest is an atom."""
    value = value_of(base)
    if value is not None and value > 0:
        result = rational(1)
        for part, sign in ((value.numerator, 1), (value.denominator, -1)):
            for prime, count in factorize(part).items():
                scaled = multiply(ctx, exponent, rational(sign * count))
                result = multiply(ctx, result, exponential(ctx, str(prime), scaled))
        return result
    if base.den == ONE and exponent.den == ONE and len(base.num) == 1:
        ((mono, coefficient),) = base.num.items()
        if coefficient == 1 and len(mono) == 1 and mono[0][1] == 1 and mono[0][0][0] not in "@^#":
            result = rational(1)
            for term, factor in exponent.num.items():
                name = f"^{mono[0][0]} " + "*".join(f"{n}^{e}" for n, e in term)
                powered = generator(name if term else mono[0][0], factor)
                result = multiply(ctx, result, Ratio(powered))
            return result
    return _atom(ctx, "power", base, exponent)


def _atom(ctx: Context, name: str, *values: Ratio) -> Ratio:
    ctx.opaque = True
    text = " | ".join(f"{key(v.num)} / {key(v.den)}" for v in values)
    return Ratio(generator(f"@{name} {text}"))


def _degrees(ctx: Context, node: Node) -> Ratio:
    inner = evaluate(ctx, node.args[0])
    if ctx.degrees_as_radians:
        return multiply(ctx, inner, Ratio({(("#pi", Fraction(1)),): Fraction(1, 180)}))
    return inner


def _percent(ctx: Context, node: Node) -> Ratio:
    return multiply(ctx, evaluate(ctx, node.args[0]), rational(Fraction(1, 100)))


def _absolute(ctx: Context, node: Node) -> Ratio:
    value = evaluate(ctx, node.args[0])
    number = value_of(value)
    if number is not None:
        return rational(abs(number))
    real = _complex_modulus(ctx, value)
    if real is not None:
        return real
    try:
        sign = sign_of(node.args[0])
    except UndecidedError:
        leading = min(value.num)
        if value.num[leading] < 0:
            value = multiply(ctx, value, rational(-1))
        return _atom(ctx, "abs", value)
    return multiply(ctx, value, rational(sign))


def _complex_modulus(ctx: Context, value: Ratio) -> Ratio | None:
    """|a + bi| = sqrt(a^2 + b^2) for real numbers a and b without unknowns."""
    if value.den != ONE or not any(name == "#i" for mono in value.num for name, _ in mono):
        return None
    squares: Poly = {}
    for imaginary in (False, True):
        part: Poly = {}
        for mono, coefficient in value.num.items():
            if any(name[0] != "#" for name, _ in mono):
                return None
            if any(name == "#i" for name, _ in mono) == imaginary:
                part[tuple(p for p in mono if p[0] != "#i")] = coefficient
        squares = add(squares, ctx.mul(part, part))
    return real_power(ctx, Ratio(squares), Fraction(1, 2))


def _factorial(ctx: Context, node: Node) -> Ratio:
    return factorial(ctx, evaluate(ctx, node.args[0]))


def factorial(ctx: Context, value: Ratio) -> Ratio:
    """n! (rule: (m + c)! with a whole c is m! times the factors between)."""
    number = value_of(value)
    if number is not None:
        if number.denominator != 1 or number < 0:
            raise UndefinedValueError("a factorial of what is not a natural number")
        if number * max(1, int(number).bit_length()) > MAX_EXACT_BITS:
            raise LimitError("a factorial is too long to write out")
        return rational(math.factorial(int(number)))
    offset = value.num.get((), Fraction(0)) if value.den == ONE else Fraction(0)
    if offset.denominator != 1 or abs(offset) > 30:
        return _atom(ctx, "factorial", value)
    core = Ratio(add(value.num, constant(offset), -1), value.den)
    result = Ratio(generator(f"@factorial {key(core.num)} / {key(core.den)}"))
    ctx.opaque = True
    for step in range(1, int(offset) + 1):
        result = multiply(ctx, result, plus(ctx, core, rational(step)))
    for step in range(int(offset) + 1, 1):
        result = divide(ctx, result, plus(ctx, core, rational(step)))
    return result


def _binomial(ctx: Context, args: tuple[Ratio, ...]) -> Ratio:
    top, bottom = args
    n, k = value_of(top), value_of(bottom)
    if n is not None and k is not None:
        if n.denominator != 1 or k.denominator != 1 or n < 0:
            raise UndecidedError("a binomial coefficient of fractions")
        if not 0 <= k <= n:
            return rational(0)
        if n > 12_000:
            raise LimitError("a binomial coefficient is too long to write out")
        return rational(math.comb(int(n), int(k)))
    if k is not None and k.denominator == 1 and 0 <= k <= 12:
        result = rational(Fraction(1, math.factorial(int(k))))
        for step in range(int(k)):
            result = multiply(ctx, result, plus(ctx, top, rational(-step)))
        return result
    below = multiply(ctx, factorial(ctx, bottom), factorial(ctx, plus(ctx, top, bottom, -1)))
    return divide(ctx, factorial(ctx, top), below)


def _function(ctx: Context, node: Node) -> Ratio:
    name = node.text
    if name in _TRIGONOMETRIC:
        outer, ctx.degrees_as_radians = ctx.degrees_as_radians, True
        try:
            argument = evaluate(ctx, node.args[0])
        finally:
            ctx.degrees_as_radians = outer
        return FUNCTIONS_OF_VALUES[name](ctx, argument)
    if name.startswith("apply "):
        args = [evaluate(ctx, arg) for arg in node.args]
        text = " | ".join(f"{key(a.num)} / {key(a.den)}" for a in args)
        return Ratio(generator(f"{name} {text}"))
    if name == "det":
        return _determinant(ctx, node.args[0])
    values = tuple(evaluate(ctx, arg) for arg in node.args)
    if name == "root":
        degree = value_of(values[1])
        if degree is None or not degree:
            return _symbolic_power(ctx, values[0], divide(ctx, rational(1), values[1]))
        return real_power(ctx, values[0], 1 / degree)
    if name == "abs":
        return _absolute(ctx, node)
    if name == "binom" and len(values) == 2:
        return _binomial(ctx, values)
    if name == "factorial" and len(values) == 1:
        return factorial(ctx, values[0])
    if name in FUNCTIONS_OF_WHOLE_NUMBERS:
        numbers = [value_of(v) for v in values]
        if all(n is not None for n in numbers):
            return rational(FUNCTIONS_OF_WHOLE_NUMBERS[name]([n for n in numbers if n is not None]))
        return _atom(ctx, name, *values)
    if name == "logb" and len(values) == 2:
        ln = FUNCTIONS_OF_VALUES["ln"]
        return divide(ctx, ln(ctx, values[0]), ln(ctx, values[1]))
    if name in FUNCTIONS_OF_VALUES and len(values) == 1:
        return FUNCTIONS_OF_VALUES[name](ctx, values[0])
    if not values:
        raise ParseError("a function of nothing")
    return _atom(ctx, name, *values)


def _determinant(ctx: Context, matrix: Node) -> Ratio:
    """A determinant by expansion along the first row (at most 5 by 5)."""
    if matrix.kind != "matrix":
        raise UndecidedError("a determinant of what is not a matrix")
    rows, columns = map(int, matrix.text.split())
    if rows != columns or rows > 5:
        raise UndecidedError("a determinant that is not small and square")
    entries = [evaluate(ctx, entry) for entry in matrix.args]
    return _minor(ctx, [entries[r * rows : (r + 1) * rows] for r in range(rows)])


def _minor(ctx: Context, rows: list[list[Ratio]]) -> Ratio:
    if len(rows) == 1:
        return rows[0][0]
    total = rational(0)
    for column, entry in enumerate(rows[0]):
        rest = [row[:column] + row[column + 1 :] for row in rows[1:]]
        term = multiply(ctx, entry, _minor(ctx, rest))
        total = plus(ctx, total, term, -1 if column % 2 else 1)
    return total


def _group(ctx: Context, node: Node) -> Ratio:
    if len(node.args) != 1 or node.text not in ("[]", "()"):
        raise UndecidedError("a sequence is not a scalar")
    return evaluate(ctx, node.args[0])


def _opaque(ctx: Context, node: Node) -> Ratio:
    ctx.opaque = True
    return Ratio(generator(f"@opaque {node.text}"))


_HANDLERS: dict[str, Callable[[Context, Node], Ratio]] = {
    "num": _number,
    "base": _number,
    "sym": _symbol,
    "add": _sum,
    "mul": _product,
    "div": _quotient,
    "neg": _negative,
    "pow": _power,
    "deg": _degrees,
    "pct": _percent,
    "abs": _absolute,
    "fact": _factorial,
    "fn": _function,
    "seq": _group,
    "opaque": _opaque,
}

__all__ = ["Context", "as_rational", "equal", "evaluate", "num"]
