r"""Sets of real numbers as unions of intervals, with exact ends.

>>> from oar_bench.answers.parser import parse
>>> sets = Reals(Context())
>>> left = sets.read(parse("x<2 \\text{ or } x>3"))
>>> right = sets.read(parse("(-\\infty, 2) \\cup (3, \\infty)"))
>>> sets.equal(left[1], right[1])
True
"""

from __future__ import annotations

from fractions import Fraction
from functools import cmp_to_key
from typing import NamedTuple

from oar_bench.answers.algebra import evaluate
from oar_bench.answers.limits import UndecidedError
from oar_bench.answers.nodes import Node, free_symbols
from oar_bench.answers.numeric import ratio_sign
from oar_bench.answers.poly import ONE, Context, Poly, key
from oar_bench.answers.rational import Ratio, divide, equal, plus, rational, value_of


class End(NamedTuple):
    """An end: minus infinity (-1), a number (0) or infinity (1)."""

    infinite: int
    value: Ratio = Ratio({})


class Interval(NamedTuple):
    """low <= or < x <= or < high."""

    low: End
    low_closed: bool
    high: End
    high_closed: bool


RealSet = list[Interval]
BELOW, ABOVE = End(-1), End(1)
EVERYTHING: RealSet = [Interval(BELOW, False, ABOVE, False)]
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


class Reals:
    """Reading and arithmetic of real sets within one comparison."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    # Order ----------------------------------------------------------------------------------

    def compare(self, left: End, right: End) -> int:
        """-1, 0 or 1; exact where the values are equal or rational."""
        if left.infinite or right.infinite:
            return (left.infinite > right.infinite) - (left.infinite < right.infinite)
        a, b = value_of(left.value), value_of(right.value)
        if a is not None and b is not None:
            return (a > b) - (a < b)
        if equal(self.ctx, left.value, right.value):
            return 0
        return ratio_sign(self.ctx, plus(self.ctx, left.value, right.value, -1))

    def simplify(self, pieces: RealSet) -> RealSet:
        """Sorted, disjoint, as few as possible (rule: pieces that overlap or touch are one)."""
        kept = []
        for piece in pieces:
            order = self.compare(piece.low, piece.high)
            if order < 0 or (order == 0 and piece.low_closed and piece.high_closed):
                kept.append(piece)

        def by_low(a: Interval, b: Interval) -> int:
            return self.compare(a.low, b.low) or (b.low_closed - a.low_closed)

        kept.sort(key=cmp_to_key(by_low))
        merged: RealSet = []
        for piece in kept:
            if merged:
                last = merged[-1]
                gap = self.compare(last.high, piece.low)
                if gap > 0 or (gap == 0 and (last.high_closed or piece.low_closed)):
                    order = self.compare(last.high, piece.high)
                    high = last.high if order >= 0 else piece.high
                    closed = (
                        last.high_closed if order > 0
                        else piece.high_closed if order < 0
                        else last.high_closed or piece.high_closed
                    )  # fmt: skip
                    merged[-1] = Interval(last.low, last.low_closed, high, closed)
                    continue
            merged.append(piece)
        return merged

    def equal(self, left: RealSet, right: RealSet) -> bool:
        """Equality of simplified sets: the same ends, open or closed alike."""
        left, right = self.simplify(left), self.simplify(right)
        return len(left) == len(right) and all(
            a.low_closed == b.low_closed
            and a.high_closed == b.high_closed
            and not self.compare(a.low, b.low)
            and not self.compare(a.high, b.high)
            for a, b in zip(left, right, strict=True)
        )

    def intersect(self, left: RealSet, right: RealSet) -> RealSet:
        result: RealSet = []
        for a in left:
            for b in right:
                low_order, high_order = self.compare(a.low, b.low), self.compare(a.high, b.high)
                low = a if low_order > 0 or (low_order == 0 and not a.low_closed) else b
                high = a if high_order < 0 or (high_order == 0 and not a.high_closed) else b
                result.append(Interval(low.low, low.low_closed, high.high, high.high_closed))
        return self.simplify(result)

    def complement(self, pieces: RealSet) -> RealSet:
        result: RealSet = []
        low, closed = BELOW, False
        for piece in self.simplify(pieces):
            result.append(Interval(low, closed, piece.low, not piece.low_closed))
            low, closed = piece.high, not piece.high_closed
        result.append(Interval(low, closed, ABOVE, False))
        # An end at infinity is never in the set.
        return self.simplify([
            Interval(p.low, p.low_closed and not p.low.infinite,
                     p.high, p.high_closed and not p.high.infinite) for p in result
            if not (p.low.infinite == 1 or p.high.infinite == -1)
        ])  # fmt: skip

    # Reading --------------------------------------------------------------------------------

    def end(self, node: Node) -> End:
        sign = 1
        inner = node
        if inner.kind == "neg":
            sign, inner = -1, inner.args[0]
        if inner.kind == "sym" and inner.text == "oo":
            return End(sign)
        value = evaluate(self.ctx, node)
        if not is_constant(value):
            raise UndecidedError("an end that is not a constant")
        return End(0, value)

    def read(self, node: Node) -> tuple[str | None, RealSet]:
        """The unknown (None for a bare set) and its set; `UndecidedError` if it is no set."""
        kind = node.kind
        if kind == "seq" and len(node.args) == 2 and node.text in ("()", "[]", "(]", "[)"):
            low, high = self.end(node.args[0]), self.end(node.args[1])
            if self.compare(low, high) > 0:
                raise UndecidedError("the ends are in the wrong order")
            return None, [
                Interval(low, node.text[0] == "[" and not low.infinite,
                         high, node.text[1] == "]" and not high.infinite)
            ]  # fmt: skip
        if kind == "seq" and node.text == "{}":
            points = [self.end(arg) for arg in node.args]
            return None, self.simplify([Interval(p, True, p, True) for p in points])
        if kind == "sym" and node.text == "RR":
            return None, EVERYTHING
        if kind in ("cup", "cap", "setminus"):
            return self.combine(kind, [self.read(arg) for arg in node.args])
        if kind == "add" and len(node.args) == 2 and node.args[1].kind == "neg":
            parts = [self.read(node.args[0]), self.read(node.args[1].args[0])]
            return self.combine("setminus", parts)
        if kind == "rel":
            return self.relation(node)
        if kind == "list" and all(arg.kind == "rel" for arg in node.args):
            parts = [self.read(arg) for arg in node.args]
            if node.text == "or":
                return self.combine("cup", parts)
            unknown, both = self.combine("cap", parts)
            # rule: inequalities side by side are a union where they exclude each other
            if node.text == "," and not both:
                return self.combine("cup", parts)
            return unknown, both
        if kind == "builder":
            unknown, inside = self.read(node.args[1])
            if node.args[0].kind == "rel":
                _, outer = self.read(node.args[0])
                inside = self.intersect(inside, outer)
            return None, inside
        raise UndecidedError("not a set of real numbers")

    def combine(
        self, kind: str, parts: list[tuple[str | None, RealSet]]
    ) -> tuple[str | None, RealSet]:
        names = {name for name, _ in parts if name is not None}
        if len(names) > 1:
            raise UndecidedError("conditions on different unknowns")
        result = parts[0][1]
        for _, other in parts[1:]:
            if kind == "cup":
                result = self.simplify(result + other)
            elif kind == "cap":
                result = self.intersect(result, other)
            else:
                result = self.intersect(result, self.complement(other))
        return (names.pop() if names else None), result

    def relation(self, node: Node) -> tuple[str | None, RealSet]:
        operators = node.text.split()
        if operators[0] == "in" and len(operators) == 1:
            _, inside = self.read(node.args[1])
            return key(evaluate(self.ctx, node.args[0]).num), inside
        if any(operator not in _FLIPPED for operator in operators):
            raise UndecidedError("a relation without an order")
        parts = [
            self.half(operator, node.args[place], node.args[place + 1])
            for place, operator in enumerate(operators)
        ]
        return self.combine("cap", parts)

    def half(self, operator: str, left: Node, right: Node) -> tuple[str | None, RealSet]:
        """One relation as unknown and bound.

        Rule: all unknown terms go left and are divided by the first one's coefficient, which
        turns the relation around where it is negative.
        """
        for side, other, sign in ((left, right, operator), (right, left, _FLIPPED[operator])):
            if side.kind == "abs" and not free_symbols(other) and free_symbols(side):
                return self.absolute(sign, side.args[0], other)
        for side, other, flip in ((left, right, False), (right, left, True)):
            bare = other.args[0] if other.kind == "neg" else other
            if bare.kind == "sym" and bare.text == "oo":
                unknown = key(evaluate(self.ctx, side).num)
                bound = self.end(other)
                sign = _FLIPPED[operator] if flip else operator
                if (sign, bound.infinite) not in (("<", 1), (">", -1), ("<=", 1), (">=", -1)):
                    raise UndecidedError("beyond infinity")
                return unknown, EVERYTHING
        difference = plus(self.ctx, evaluate(self.ctx, left), evaluate(self.ctx, right), -1)
        if difference.den != ONE:
            if not is_constant(Ratio(difference.den)):
                raise UndecidedError("a relation with unknowns in a denominator")
            if ratio_sign(self.ctx, Ratio(difference.den)) < 0:
                operator = _FLIPPED[operator]
        constant_part: Poly = {m: c for m, c in difference.num.items() if constant_monomial(m)}
        unknown_part: Poly = {m: c for m, c in difference.num.items() if not constant_monomial(m)}
        if not unknown_part:
            raise UndecidedError("a relation without an unknown")
        leading = min(unknown_part, key=str)
        factor: Ratio = rational(unknown_part[leading])
        if len(unknown_part) == 1:
            fixed = tuple(p for p in leading if constant_monomial((p,)))
            free = tuple(p for p in leading if not constant_monomial((p,)))
            factor = Ratio({fixed: unknown_part[leading]})
            name = key({free: Fraction(1)})
        else:
            name = key({m: c / unknown_part[leading] for m, c in unknown_part.items()})
        if ratio_sign(self.ctx, factor) < 0:
            operator = _FLIPPED[operator]
        bound = End(0, divide(self.ctx, Ratio({m: -c for m, c in constant_part.items()}), factor))
        return name, self.bounded(operator, bound)

    def absolute(self, operator: str, inner: Node, bound: Node) -> tuple[str | None, RealSet]:
        """Rule: |e| < c is -c < e < c, and |e| > c is e > c or e < -c (likewise for the others)."""
        above = self.half(operator, inner, bound)
        below = self.half(_FLIPPED[operator], inner, Node("neg", (bound,)))
        return self.combine("cap" if operator[0] in "<!" else "cup", [above, below])

    def bounded(self, operator: str, bound: End) -> RealSet:
        if operator == "=":
            return [Interval(bound, True, bound, True)]
        if operator == "!=":
            return self.complement([Interval(bound, True, bound, True)])
        closed = "=" in operator
        if operator[0] == "<":
            return [Interval(BELOW, False, bound, closed)]
        return [Interval(bound, closed, ABOVE, False)]


def constant_monomial(mono: tuple[tuple[str, Fraction], ...]) -> bool:
    """Whether a monomial has no unknown: constants, logarithms and roots of constants only."""
    return all(
        (name[0] == "#" and name != "#i") or (name.startswith(("@ln ", "@root ")) and name.isascii()
        and not any(c.isalpha() for c in name.split(" ", 1)[1].replace("#pi", "").replace("#e", "")
                    .replace("@root", "").replace("@ln", "")))
        for name, _ in mono
    )  # fmt: skip


def is_constant(value: Ratio) -> bool:
    """Whether a ratio has no unknown and is real."""
    return all(constant_monomial(mono) for mono in (*value.num, *value.den))
