r"""High-precision evaluation: signs, and agreement where the normal form is not conclusive.

Values are computed to `DIGITS` decimal digits with guards that keep every step cheap. Two constants
that agree to `AGREE` digits are taken as equal: algebraic numbers as small as those in answers
differ much earlier (root separation) and no other coincidence is known; two that differ by more
than the working error are unequal. Binary floating point is never used.

>>> from oar_bench.answers.parser import parse
>>> sign_of(parse("\\sqrt{2}-1.4143"))
-1
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from oar_bench.answers.limits import LimitError, UndecidedError, UndefinedValueError
from oar_bench.answers.nodes import Node, free_symbols, walk
from oar_bench.answers.poly import Context, Poly
from oar_bench.answers.rational import Ratio

DIGITS = 150
AGREE = 100
_MAX_MAGNITUDE = 4_000  # decimal exponent of an intermediate value
_SAMPLES = (Fraction(17, 13), Fraction(-29, 31), Fraction(113, 37), Fraction(5, 59))

# Steps are flat between whole numbers: they are sampled further out, and at whole numbers for names
# of whole numbers.
_WHOLE_NAMES = frozenset("ijklmnpqrsKMNP")
_WHOLE_SAMPLES = tuple(map(Fraction, (7, 12, 101, 1000, 58, 9)))
_WIDE_SAMPLES = tuple(
    Fraction(a, b) for a, b in ((1717, 13), (-2929, 31), (11311, 37), (505, 59), (23, 7), (-15, 4))
)
_STEPS = frozenset({"floor", "ceil", "mod", "gcd", "lcm", "max", "min"})

_local = threading.local()


def _context() -> Any:
    """A multi-precision context of this thread (mpmath's global one is shared state)."""
    if not hasattr(_local, "mp"):
        from mpmath.ctx_mp import MPContext

        _local.mp = MPContext()
        _local.mp.dps = DIGITS
    return _local.mp


def _fraction(mp: Any, value: Fraction) -> Any:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 20_000:
        raise LimitError("a number is too long for the numerical stage")
    return mp.mpf(value.numerator) / value.denominator


def _check(mp: Any, value: Any) -> Any:
    if not mp.isfinite(value):
        raise UndefinedValueError("not a finite number")
    if value and abs(mp.mag(value)) > _MAX_MAGNITUDE * 4:
        raise LimitError("a number is too large or small for the numerical stage")
    return value


def _power(mp: Any, base: Any, exponent: Any) -> Any:
    if not base:
        if mp.re(exponent) <= 0:
            raise UndefinedValueError("zero to a power that is not positive")
        return mp.mpf(0)
    if abs(mp.mag(exponent)) > 60 and exponent:
        raise LimitError("an exponent is too large")
    if abs(exponent) * (abs(mp.mag(base)) + 1) > _MAX_MAGNITUDE * 4:
        raise LimitError("a power is too large")
    return mp.power(base, exponent)


def _root(mp: Any, base: Any, degree: Any) -> Any:
    # rule: an odd root of a negative real number is real
    if mp.im(base) == 0 and mp.re(base) < 0 and degree == int(degree) and int(degree) % 2:
        return -mp.root(-base, int(degree))
    return _power(mp, base, 1 / degree)


def _guarded(name: str) -> Callable[[Any, Any], Any]:
    def apply(mp: Any, value: Any) -> Any:
        if value and mp.mag(value) > 20:
            raise LimitError("an argument is too large")
        return getattr(mp, name)(value)

    return apply


def _log(mp: Any, value: Any) -> Any:
    if not value:
        raise UndefinedValueError("a logarithm of zero")
    return mp.log(value)


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: _guarded(name) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _guarded(name) for name in ("sinh", "cosh", "tanh")},
    **{"arc" + name: _guarded("a" + name) for name in ("sin", "cos", "tan")},
    "exp": lambda mp, v: _power(mp, mp.e, v),
    "ln": _log,
    "log": _log,
    "lg": lambda mp, v: _log(mp, v) / mp.log(10),
    "abs": lambda mp, v: abs(v),
}
_TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})


def value(node: Node, env: Mapping[str, Any], radians: bool = False) -> Any:
    """The value of a tree with numbers for its unknowns; an mpmath number."""
    mp = _context()
    kind = node.kind
    if kind in ("num", "base") and node.number is not None:
        return _fraction(mp, node.number)
    if kind == "sym":
        return _symbol(mp, node.text, env)
    if kind == "fn":
        return _check(mp, _function(mp, node, env, radians))
    if kind not in ("add", "mul", "neg", "div", "pow", "abs", "deg", "pct", "fact", "seq"):
        raise UndecidedError(f"{kind} has no numerical value")
    args = [value(arg, env, radians) for arg in node.args]
    if kind == "add":
        result = args[0]
        for term in args[1:]:
            result = result + term
    elif kind == "mul":
        result = args[0]
        for term in args[1:]:
            result = result * term
    elif kind == "neg":
        result = -args[0]
    elif kind == "div":
        if abs(args[1]) < mp.mpf(10) ** -AGREE:
            raise UndefinedValueError("a division by zero")
        result = args[0] / args[1]
    elif kind == "pow":
        exponent = node.args[1].number
        if exponent is None or exponent.denominator == 1:
            result = _power(mp, args[0], args[1])
        else:
            result = _root(mp, args[0], mp.mpf(exponent.denominator)) ** exponent.numerator
    elif kind == "abs":
        result = abs(args[0])
    elif kind == "deg":
        result = args[0] * mp.pi / 180 if radians else args[0]
    elif kind == "pct":
        result = args[0] / 100
    elif kind == "fact":
        if abs(args[0]) > 1000:
            raise LimitError("a factorial is too large")
        result = mp.gamma(args[0] + 1)
    elif len(args) == 1:
        result = args[0]
    else:
        raise UndecidedError("a sequence has no numerical value")
    return _check(mp, result)


def _symbol(mp: Any, name: str, env: Mapping[str, Any]) -> Any:
    if name == "pi":
        return +mp.pi
    if name == "e":
        return +mp.e
    if name == "i":
        return mp.mpc(0, 1)
    if name in env:
        return env[name]
    raise UndecidedError(f"{name} has no value")


def _function(mp: Any, node: Node, env: Mapping[str, Any], radians: bool) -> Any:
    name = node.text
    args = [value(arg, env, radians or name in _TRIGONOMETRIC) for arg in node.args]
    if name in _FUNCTIONS and len(args) == 1:
        return _FUNCTIONS[name](mp, args[0])
    if name == "root":
        return _root(mp, args[0], args[1])
    if name == "logb":
        return _log(mp, args[0]) / _log(mp, args[1])
    if name == "binom" and all(abs(a) < 1000 for a in args):
        return mp.binomial(*args)
    if name in ("floor", "ceil") and len(args) == 1:
        nearest = mp.nint(args[0])
        if abs(args[0] - nearest) < mp.mpf(10) ** -AGREE:
            return nearest
        return mp.floor(args[0]) if name == "floor" else mp.ceil(args[0])
    if name in ("max", "min"):
        return max(args) if name == "max" else min(args)
    raise UndecidedError(f"{name} has no numerical value")


def sign_of(node: Node) -> int:
    """The sign of a real constant: -1 or 1; `UndecidedError` where it may be zero or is unknown."""
    mp = _context()
    number = value(node, {})
    if mp.im(number) != 0:
        raise UndecidedError("not a real number")
    real = mp.re(number)
    if abs(real) < mp.mpf(10) ** -AGREE:
        raise UndecidedError("a sign too close to zero to tell")
    return 1 if real > 0 else -1


def agree(left: Node, right: Node) -> bool:
    r"""Whether two expressions agree to `AGREE` digits (at several points, if they have unknowns).

    >>> from oar_bench.answers.parser import parse
    >>> agree(parse("\\sqrt{3+2\\sqrt{2}}"), parse("1+\\sqrt{2}"))
    True
    >>> agree(parse("|x|"), parse("x"))
    False
    """
    mp = _context()
    names = sorted(free_symbols(left) | free_symbols(right))
    stepped = any(n.kind == "fn" and n.text in _STEPS for side in (left, right) for n in walk(side))
    size = len(_WIDE_SAMPLES if stepped else _SAMPLES)
    valid = 0
    for shift in range(size if names else 1):
        env = {}
        for place, name in enumerate(names):
            whole = stepped and name[0] in _WHOLE_NAMES
            samples = _WHOLE_SAMPLES if whole else _WIDE_SAMPLES if stepped else _SAMPLES
            env[name] = _fraction(mp, samples[(shift + place) % size] * (1 + place))
        try:
            a, b = value(left, env), value(right, env)
        except UndefinedValueError:
            continue
        valid += 1
        scale = max(abs(a), abs(b))
        if abs(a - b) > mp.mpf(10) ** -AGREE * max(1, scale):
            return False
        if a != b and mp.mpf(10) ** -AGREE / 2 > scale > mp.mpf(10) ** (3 - DIGITS):
            raise UndecidedError("both values are tiny")
    if not valid:
        raise UndecidedError("no sample point has a value")
    return True


def ratio_sign(ctx: Context, ratio: Ratio) -> int:
    """The sign of a real constant in normal form; `UndecidedError` where it cannot be told.

    >>> ratio_sign(Context(), Ratio({(("#2", Fraction(1, 2)),): Fraction(1), (): Fraction(-1)}))
    1
    """
    if not ratio.num:
        return 0
    top, bottom = _poly_value(ctx, ratio.num), _poly_value(ctx, ratio.den)
    mp = _context()
    if min(abs(top), abs(bottom)) < mp.mpf(10) ** -AGREE:
        raise UndecidedError("a sign too close to zero to tell")
    return 1 if (top > 0) == (bottom > 0) else -1


def _poly_value(ctx: Context, poly: Poly) -> Any:
    mp = _context()
    total = mp.mpf(0)
    for mono, coefficient in poly.items():
        term = _fraction(mp, coefficient)
        for name, exponent in mono:
            if name == "#pi":
                base = +mp.pi
            elif name == "#e":
                base = +mp.e
            elif name[0] == "#" and name[1:].isdigit():
                base = mp.mpf(int(name[1:]))
            elif name.startswith("@ln ") and name[4:].isdigit():
                base = mp.log(int(name[4:]))
            elif name in ctx.bases:
                base = _poly_value(ctx, ctx.bases[name])
                if base < 0:
                    raise UndecidedError("a root of a negative number")
            else:
                raise UndecidedError(f"{name} has no numerical value")
            term = term * _power(mp, base, _fraction(mp, exponent))
        total = total + term
    return total


def distance(left: Node, right: Node) -> tuple[Fraction, Fraction]:
    """|left - right| and |right| for two constants, as fractions good to `AGREE` digits."""
    mp = _context()
    a, b = value(left, {}), value(right, {})
    return _as_fraction(mp, abs(a - b)), _as_fraction(mp, abs(b))


def _as_fraction(mp: Any, number: Any) -> Fraction:
    sign, mantissa, exponent, _ = mp.re(number)._mpf_
    magnitude = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -magnitude if sign else magnitude
