r"""Exact sums of products: the normal form behind equality.

A polynomial maps monomials to rational coefficients; a monomial is a sorted tuple of
(generator, exponent). Generators are strings:

==========  ==========================================================================
`x`, `a_1`  an unknown
`#i`        the imaginary unit (i * i = -1)
`#2`, `#3`  a prime; only exponents in (0, 1) occur, so `#2` with 1/2 is the root of two
`#pi #e`    the constants; independent of everything else as far as anyone knows
`@...`      an atom that is not understood further (a root of a sum, a logarithm)
`^...`      an exponential: base e or a prime, exponent a monomial
==========  ==========================================================================

Products of distinct prime roots, i, unknowns and exponentials of distinct monomials are linearly
independent over the rationals, so without atoms two values are equal exactly if their normal
forms are.

>>> ctx = Context()
>>> root2 = ctx.root_of_rational(Fraction(2), Fraction(1, 2))
>>> ctx.mul(root2, root2)
{(): Fraction(2, 1)}
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from oar_bench.answers.limits import (
    MAX_EXACT_BITS,
    MAX_STEPS,
    MAX_TERMS,
    LimitError,
    UndecidedError,
    UndefinedValueError,
)

Monomial = tuple[tuple[str, Fraction], ...]
Poly = dict[Monomial, Fraction]

ONE: Poly = {(): Fraction(1)}
_TRIAL_PRIMES = 2_000  # trial division up to this: enough for radicands people write


def constant(value: int | Fraction) -> Poly:
    """A rational number as a polynomial.

    >>> constant(0)
    {}
    """
    return {(): Fraction(value)} if value else {}


def generator(name: str, exponent: Fraction | int = 1) -> Poly:
    """One generator to a power."""
    return {((name, Fraction(exponent)),): Fraction(1)}


def add(left: Poly, right: Poly, factor: int | Fraction = 1) -> Poly:
    """left + factor * right.

    >>> add({(): Fraction(1)}, {(): Fraction(1)}, -1)
    {}
    """
    result = dict(left)
    for mono, coefficient in right.items():
        total = result.get(mono, 0) + factor * coefficient
        if total:
            result[mono] = Fraction(total)
        else:
            result.pop(mono, None)
    if len(result) > MAX_TERMS:
        raise LimitError("a sum of too many terms")
    return result


def factorize(value: int) -> dict[int, int]:
    """Prime powers of a positive integer; a large cofactor counts as one prime.

    >>> factorize(360)
    {2: 3, 3: 2, 5: 1}
    """
    factors: dict[int, int] = {}
    if value.bit_length() > 4096:
        raise LimitError("too large to factorize")
    candidate = 2
    while candidate * candidate <= value and candidate < _TRIAL_PRIMES:
        while value % candidate == 0:
            factors[candidate] = factors.get(candidate, 0) + 1
            value //= candidate
        candidate += 1 if candidate == 2 else 2
    if value > 1:
        if value > _TRIAL_PRIMES**2:
            root = _perfect_root(value)
            factors[root[0]] = factors.get(root[0], 0) + root[1]
        else:
            factors[value] = factors.get(value, 0) + 1
    return factors


def _perfect_root(value: int) -> tuple[int, int]:
    """(r, k) with r**k == value and k as large as the search finds."""
    for exponent in (12, 10, 8, 6, 5, 4, 3, 2):
        low, high = 1, 1 << (value.bit_length() // exponent + 1)
        while low < high:
            middle = (low + high) // 2
            if middle**exponent < value:
                low = middle + 1
            else:
                high = middle
        if low**exponent == value:
            return low, exponent
    return value, 1


class Context:
    """State of one comparison: the budget, the atoms' definitions, and whether any is opaque."""

    def __init__(self) -> None:
        self.steps = 0
        self.bases: dict[str, Poly] = {}  # what an atom's power 1 expands to, for roots of sums
        self.opaque = False  # an atom occurred: unequal normal forms prove nothing
        self.common_log = False  # reading of a bare "log": natural, or to base ten
        self.degrees_as_radians = False

    def spend(self, steps: int) -> None:
        """Counts work; `LimitError` at the end of the budget."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise LimitError("the comparison takes too many steps")

    def join(self, left: Monomial, right: Monomial) -> tuple[Fraction, Monomial, tuple[str, ...]]:
        """Product of monomials: a rational factor, the rest, and atoms to expand."""
        if not left:
            return Fraction(1), right, ()
        if not right:
            return Fraction(1), left, ()
        powers = dict(left)
        for name, exponent in right:
            powers[name] = powers.get(name, Fraction(0)) + exponent
        factor = Fraction(1)
        expand: list[str] = []
        kept: list[tuple[str, Fraction]] = []
        for name in sorted(powers):
            exponent = powers[name]
            if not exponent:
                continue
            if name[0] == "#" and name[1].isdigit():
                whole = floor(exponent)
                if whole:
                    factor *= Fraction(int(name[1:])) ** whole
                    exponent -= whole
            elif name == "#i":
                whole = int(exponent) % 4
                factor *= -1 if whole in (2, 3) else 1
                exponent = Fraction(whole % 2)
            elif name[0] == "@" and exponent >= 1 and name in self.bases:
                whole = floor(exponent)
                expand.extend([name] * whole)
                exponent -= whole
            elif name == "@zeta":
                whole = floor(exponent)
                factor *= -1 if whole % 2 else 1
                exponent -= whole
            if exponent:
                kept.append((name, exponent))
        return factor, tuple(kept), tuple(expand)

    def mul(self, left: Poly, right: Poly) -> Poly:
        """The product."""
        self.spend(len(left) * len(right) + 1)
        result: Poly = {}
        extra: Poly = {}
        for mono_a, a in left.items():
            for mono_b, b in right.items():
                factor, mono, expand = self.join(mono_a, mono_b)
                coefficient = a * b * factor
                if coefficient.numerator.bit_length() > MAX_EXACT_BITS:
                    raise LimitError("a coefficient is too long")
                if expand:
                    product: Poly = {mono: coefficient}
                    for name in expand:
                        product = self.mul(product, self.bases[name])
                    extra = add(extra, product)
                    continue
                total = result.get(mono, 0) + coefficient
                if total:
                    result[mono] = total
                else:
                    result.pop(mono, None)
        if len(result) > MAX_TERMS:
            raise LimitError("a product of too many terms")
        return add(result, extra) if extra else result

    def root_of_rational(self, value: Fraction, power: Fraction) -> Poly:
        """A rational number to a rational power (rule: an odd root of a negative is negative).

        >>> Context().root_of_rational(Fraction(8), Fraction(1, 3))
        {(): Fraction(2, 1)}
        >>> Context().root_of_rational(Fraction(-4), Fraction(1, 2))
        {(('#i', Fraction(1, 1)),): Fraction(2, 1)}
        """
        if not value:
            if power <= 0:
                raise UndefinedValueError("zero to a power that is not positive")
            return {}
        result = ONE
        if value < 0:
            if power.denominator % 2:
                if power.numerator % 2:
                    result = constant(-1)
            elif power.denominator == 2:
                sign = power.numerator % 4
                result = {(("#i", Fraction(1)),): Fraction(1 if sign == 1 else -1)}
            else:
                raise UndecidedError("a root of a negative number")
        factors = factorize(abs(value.numerator))
        for prime, count in factorize(value.denominator).items():
            factors[prime] = factors.get(prime, 0) - count
        coefficient = Fraction(1)
        mono: list[tuple[str, Fraction]] = []
        for prime in sorted(factors, key=str):
            exponent = factors[prime] * power
            whole = floor(exponent)
            if abs(whole) * prime.bit_length() > MAX_EXACT_BITS:
                raise LimitError("a power is too long to write out")
            coefficient *= Fraction(prime) ** whole
            if exponent - whole:
                if prime > _TRIAL_PRIMES**2:
                    self.opaque = True
                mono.append((f"#{prime}", exponent - whole))
        mono.sort()
        return self.mul(result, {tuple(mono): coefficient})


def key(poly: Poly) -> str:
    """A canonical text of a polynomial, to name atoms by.

    >>> key({(("x", Fraction(1)),): Fraction(2), (): Fraction(1)})
    '1;2*x^1'
    """
    return ";".join(
        f"{coefficient}" + "".join(f"*{name}^{exponent}" for name, exponent in mono)
        for mono, coefficient in sorted(poly.items())
    )


def as_rational(poly: Poly) -> Fraction | None:
    """The rational number that a polynomial is, or None."""
    if not poly:
        return Fraction(0)
    if len(poly) == 1 and () in poly:
        return poly[()]
    return None
