r"""Equality of expressions that are too large to write out, by residues.

A whole-number expression is mapped to its residue modulo a prime, a homomorphism; towers of powers
use Euler's theorem on the exponents. Unequal residues prove inequality; equal residues modulo
three primes near 2^31 leave a chance of about 2^-90 that unequal values collide, and the primes
were fixed before any answer was written.

>>> from oar_bench.answers.parser import parse
>>> same_residues(parse("(29^{11})^7"), parse("29^{77}"))
True
>>> same_residues(parse("9^{9^{9^9}}"), parse("9^{9^{9^8}}"))
False
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial

from oar_bench.answers.limits import UndecidedError, UndefinedValueError
from oar_bench.answers.nodes import Node

PRIMES = (2147483647, 2147483629, 2147483587)
_EXACT_EXPONENT_BITS = 4_096


@lru_cache(maxsize=4096)
def totient(number: int) -> int:
    """Euler's function by trial division.

    >>> totient(10)
    4
    """
    result, rest, candidate = number, number, 2
    while candidate * candidate <= rest:
        if rest % candidate == 0:
            result -= result // candidate
            while rest % candidate == 0:
                rest //= candidate
        candidate += 1 if candidate == 2 else 2
    if rest > 1:
        result -= result // rest
    return result


@lru_cache(maxsize=1024)
def _stand_in(name: str) -> int:
    """The whole number that stands for an unknown (the same one modulo everything)."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") | 1 << 60


def small_integer(node: Node) -> int | None:
    """The exact value of a whole-number expression of moderate size, or None.

    >>> from oar_bench.answers.parser import parse
    >>> small_integer(parse("2^{10}-1"))
    1023
    """
    if node.kind == "num" and node.number is not None:
        return int(node.number) if node.number.denominator == 1 else None
    if node.kind not in ("add", "mul", "neg", "pow", "fact"):
        return None
    parts = [small_integer(arg) for arg in node.args]
    if any(part is None for part in parts):
        return None
    values = [part for part in parts if part is not None]
    if node.kind == "neg":
        return -values[0]
    if node.kind == "add":
        return sum(values)
    if node.kind == "fact":
        return factorial(values[0]) if 0 <= values[0] <= 400 else None
    if node.kind == "mul":
        result = 1
        for factor in values:
            result *= factor
            if result.bit_length() > _EXACT_EXPONENT_BITS:
                return None
        return result
    base, exponent = values
    if exponent < 0 or base.bit_length() * exponent > _EXACT_EXPONENT_BITS:
        return None
    return int(base**exponent)


def residue(node: Node, modulus: int) -> int:
    """The value of an expression modulo a number; `UndecidedError` on anything unknown."""
    kind, args = node.kind, node.args
    if kind in ("num", "base") and node.number is not None:
        return _fraction(node.number, modulus)
    if kind == "sym":
        if node.text in ("pi", "e", "i", "oo", "RR"):
            raise UndecidedError("a constant that is not rational")
        return _stand_in(node.text) % modulus
    if kind == "add":
        return sum(residue(arg, modulus) for arg in args) % modulus
    if kind == "neg":
        return -residue(args[0], modulus) % modulus
    if kind == "mul":
        result = 1
        for arg in args:
            result = result * residue(arg, modulus) % modulus
        return result
    if kind == "div":
        return residue(args[0], modulus) * _inverse(residue(args[1], modulus), modulus) % modulus
    if kind == "pow":
        return _power(residue(args[0], modulus), args[1], modulus)
    if kind == "fact":
        count = small_integer(args[0])
        if count is None or not 0 <= count <= 12_000:
            raise UndecidedError("a factorial that is too large")
        return factorial(count) % modulus
    if kind == "fn" and node.text == "binom" and len(args) == 2:
        top, bottom = small_integer(args[0]), small_integer(args[1])
        if top is None or bottom is None or not 0 <= bottom <= top <= 20_000:
            raise UndecidedError("a binomial coefficient that is too large")
        return comb(top, bottom) % modulus
    raise UndecidedError(f"{kind} has no residue")


def _fraction(value: Fraction, modulus: int) -> int:
    if value.denominator == 1:
        return value.numerator % modulus
    return value.numerator * _inverse(value.denominator % modulus, modulus) % modulus


def _inverse(value: int, modulus: int) -> int:
    try:
        return pow(value, -1, modulus)
    except ValueError as error:
        raise UndefinedValueError("a division by zero, or by a multiple of the modulus") from error


def _power(base: int, exponent: Node, modulus: int) -> int:
    if exponent.kind == "neg":
        return _inverse(_power(base, exponent.args[0], modulus), modulus)
    exact = small_integer(exponent)
    if exact is not None:
        return pow(base, exact, modulus) if exact >= 0 else _inverse(
            pow(base, -exact, modulus), modulus
        )  # fmt: skip
    if modulus == 1:
        return 0
    # Euler: for exponents of at least log2(modulus), a^e = a^(e mod phi + phi) modulo anything.
    cycle = totient(modulus)
    return pow(base, residue(exponent, cycle) + cycle, modulus)


def same_residues(left: Node, right: Node) -> bool:
    """Whether two expressions agree modulo every prime of `PRIMES`."""
    return all(residue(left, prime) == residue(right, prime) for prime in PRIMES)
