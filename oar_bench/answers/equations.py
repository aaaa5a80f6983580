r"""Equations: when one is only a name for a value, and when two are equivalent.

>>> from oar_bench.answers.parser import parse
>>> named_value(parse("x=5")).number, named_value(parse("2x+z=1"))
(Fraction(5, 1), None)
>>> equivalent_equations(parse("3x+4y-5z=0"), parse("-3x-4y+5z=0"))
True
"""

from __future__ import annotations

from fractions import Fraction

from oar_bench.answers.algebra import evaluate
from oar_bench.answers.limits import AnswerError, UndecidedError
from oar_bench.answers.nodes import Node, free_symbols, walk
from oar_bench.answers.poly import Context, Poly
from oar_bench.answers.rational import plus
from oar_bench.answers.scalars import same_value

_NAMELIKE = frozenset({"sym", "mul", "div", "seq", "ratio", "abs", "text", "fn", "opaque", "neg"})


def is_equation(node: Node) -> bool:
    """Whether a node is a chain of `=` only."""
    return node.kind == "rel" and set(node.text.split()) == {"="}


def settle(node: Node) -> Node:
    r"""A chain with arrows or approximations as the part that is the answer.

    Rule: of an exact value and its approximation the exact one counts; of a chain of implications
    the last part.

    >>> from oar_bench.answers.parser import parse
    >>> settle(parse("\\sqrt{2} \\approx 1.41")).kind
    'fn'
    """
    if node.kind != "rel":
        return node
    operators = node.text.split()
    if "=>" in operators:
        place = len(operators) - operators[::-1].index("=>")
        rest = operators[place:]
        return Node("rel", node.args[place:], " ".join(rest)) if rest else node.args[-1]
    if "~" in operators:
        place = operators.index("~")
        left = node.args[: place + 1]
        if free_symbols(left[-1]) and len(left) == 1:
            return Node("rel", node.args, " ".join("=" if o == "~" else o for o in operators))
        return Node("rel", left, " ".join(operators[:place])) if place else left[0]
    return node


def is_name(node: Node, value: Node) -> bool:
    """Rule: what stands beside `=` is a name if it adds nothing up and has no coefficients.

    A single symbol or f(x) may name any expression without it; a product, quotient, ratio or
    tuple of symbols only a constant.
    """
    if node.kind == "sym":
        return node.text not in free_symbols(value) and node.text not in ("oo", "pi", "i", "e")
    if node.kind == "fn" and node.text.startswith("apply "):
        return all(n.text != node.text for n in walk(value))
    if node.kind == "seq" and node.args:
        return all(
            arg.kind in ("sym", "fn")
            or (
                arg.kind == "mul"
                and not free_symbols(value)
                and all(n.kind == "sym" for n in arg.args)
            )
            for arg in node.args
        )
    if free_symbols(value) and value.kind not in ("ratio", "seq", "list"):
        # p(x) = ... reads as a product of two names
        return (
            node.kind == "mul"
            and len(node.args) == 2
            and all(arg.kind == "sym" for arg in node.args)
            and node.args[0].text not in free_symbols(value)
        )
    if node.kind not in _NAMELIKE or not (
        free_symbols(node) or any(n.kind in ("text", "opaque") for n in walk(node))
    ):
        return False
    return not any(
        n.kind in ("num", "pm", "neg") or (n.kind == "add" and node.kind != "fn")
        for n in walk(node)
    ) or (node.kind == "fn" and node.text not in ("root", "binom"))


def named_value(node: Node) -> Node | None:
    """The value that an equation gives a name to, or None if it is a true equation."""
    if not is_equation(node):
        return None
    first, last = node.args[0], node.args[-1]
    if len(node.args) > 2:
        # rule: a chain of equalities ends in its value
        return last
    if is_name(first, last):
        return last
    if is_name(last, first):
        return first
    if (
        first.kind not in ("num", "sym")
        and last.kind != "sym"
        and (free_symbols(first) == free_symbols(last))
    ):
        # rule: a true computation or identity is its result
        try:
            return last if same_value(first, last) else None
        except AnswerError:
            return None
    return None


def _terms(ctx: Context, node: Node) -> Poly:
    """Left minus right as a polynomial, negative powers cleared."""
    difference = plus(ctx, evaluate(ctx, node.args[0]), evaluate(ctx, node.args[1]), -1)
    poly = difference.num
    lowest: dict[str, Fraction] = {}
    for mono in poly:
        for name, exponent in mono:
            lowest[name] = min(lowest.get(name, Fraction(0)), exponent)
    for name, exponent in lowest.items():
        if exponent < 0:
            poly = ctx.mul(poly, {((name, -exponent),): Fraction(1)})
    return poly


def equivalent_equations(left: Node, right: Node) -> bool:
    """Whether two equations say the same (rule: their differences are proportional).

    Raises `UndecidedError` where atoms leave it open.
    """
    if len(left.args) != 2 or len(right.args) != 2:
        raise UndecidedError("a chain of equations")
    ctx = Context()
    a, b = _terms(ctx, left), _terms(ctx, right)
    if not a or not b:
        return not a and not b
    lead = min(a, key=str)
    if lead in b:
        factor_a, factor_b = a[lead], b[lead]
        if {m: c / factor_a for m, c in a.items()} == {m: c / factor_b for m, c in b.items()}:
            return True
    if ctx.opaque:
        raise UndecidedError("atoms in an equation")
    return False
