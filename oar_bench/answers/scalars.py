r"""Equality of two scalar expressions, with percent signs, units and degrees.

>>> from oar_bench.answers.parser import parse
>>> same_quantity(parse("50%"), parse("0.5")), same_quantity(parse("0.5"), parse("50"))
(True, False)
>>> same_quantity(parse("2^{1000}-1"), parse("2^{1000}"))
False
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from oar_bench.answers.algebra import evaluate
from oar_bench.answers.limits import LimitError, UndecidedError, UndefinedValueError
from oar_bench.answers.modular import same_residues
from oar_bench.answers.nodes import Node, free_symbols, num, walk
from oar_bench.answers.numeric import agree
from oar_bench.answers.poly import Context
from oar_bench.answers.rational import equal
from oar_bench.answers.units import convert, is_degree, is_percent, is_radian

_SINGLE_LETTER_UNITS = frozenset("mgsLJNWV")
_QUALIFIERS = frozenset({
    "not", "no", "less", "more", "greater", "least", "most", "over", "under", "about", "around",
    "approximately", "roughly", "between", "than", "except", "without", "never", "minus", "nearly",
    "almost", "below", "above", "up", "non", "times", "or", "and", "to", "from", "negative", "half",
    "twice", "double", "triple", "root", "factorial", "plus",
    "assert", "return", "wrong", "false", "incorrect", "isn't", "can't", "cannot", "neither", "nor",
    "maybe", "dozen", "if", "unless", "multiples", "multiple",
})  # fmt: skip


class Quantity(NamedTuple):
    """A value with what was written around it."""

    value: Node
    unit: str = ""
    percent: bool = False
    degrees: bool = False


def quantity(node: Node) -> Quantity:
    r"""Separates a value from its unit (rule: words beside a number are its unit).

    Raises `UndecidedError` where words stand alone or change the meaning ("not", "at least").

    >>> from oar_bench.answers.parser import parse
    >>> quantity(parse("3 \\text{ cm}")).unit
    'cm'
    """
    words: list[str] = []
    core = _without_text(node, words)
    if core is None:
        raise UndecidedError("words without a number")
    if words:
        if not any(n.kind in ("num", "base") for n in walk(core)):
            raise UndecidedError("words without a number")
        if any(word in _QUALIFIERS for word in " ".join(words).lower().split()):
            raise UndecidedError("words that change the meaning")
    unit = " ".join(words)
    if core.kind == "pct" or is_percent(unit):
        return Quantity(core.args[0] if core.kind == "pct" else core, unit, True)
    negative = core.kind == "neg"
    inner = core.args[0] if negative else core
    if inner.kind == "pct":
        return Quantity(Node("neg", (inner.args[0],)), unit, True)
    degrees = inner.kind == "deg" or is_degree(unit)
    return Quantity(core, unit, False, degrees)


def _without_text(node: Node, words: list[str]) -> Node | None:
    if node.kind == "text":
        if node.text == "of":
            raise UndecidedError("a part of something")
        words.append(node.text)
        return None
    if node.kind == "mul":
        kept = [part for arg in node.args if (part := _without_text(arg, words)) is not None]
        if not kept:
            return None
        return kept[0] if len(kept) == 1 else Node("mul", tuple(kept))
    if node.kind == "div":
        if _only_text(node.args[1]):
            _without_text(node.args[1], words)
            return _without_text(node.args[0], words)
        top = _without_text(node.args[0], words)
        return None if top is None else Node("div", (top, node.args[1]))
    if node.kind == "pow" and _only_text(node.args[0]):
        words.append(node.args[0].text)
        return None
    if node.kind in ("neg", "pct", "deg"):
        inner = _without_text(node.args[0], words)
        return None if inner is None else Node(node.kind, (inner,))
    if node.kind == "add":
        last = _without_text(node.args[-1], words)
        return None if last is None else Node("add", (*node.args[:-1], last))
    if any(n.kind == "text" for n in walk(node)):
        raise UndecidedError("words inside an expression")
    return node


def _only_text(node: Node) -> bool:
    return node.kind == "text" or (
        node.kind in ("mul", "pow", "div")
        and any(n.kind == "text" for n in walk(node))
        and _only_text(node.args[0])
    )


def same_value(left: Node, right: Node) -> bool:
    """Whether two expressions have the same value.

    The normal form decides where it is complete; residues where values are too large to write out;
    high-precision agreement where roots of sums or logarithms are involved. Raises
    `UndecidedError` only for what a symbolic worker may still decide.
    """
    if left == right:
        return True
    if any(n.kind == "opaque" for node in (left, right) for n in walk(node)):
        raise UndecidedError("a sum, integral or limit")
    readings = (False, True) if _has_plain_log(left) or _has_plain_log(right) else (False,)
    # rule: a bare "log" may be natural or to base ten; either reading may make the answers equal
    return any(_same_under(left, right, common) for common in readings)


def _has_plain_log(node: Node) -> bool:
    return any(n.kind == "fn" and n.text == "log" for n in walk(node))


def _same_under(left: Node, right: Node, common_log: bool) -> bool:
    ctx = Context()
    ctx.common_log = common_log
    try:
        if equal(ctx, evaluate(ctx, left), evaluate(ctx, right)):
            return True
        if not ctx.opaque:
            return False
    except UndefinedValueError:
        return False
    except LimitError:
        return _same_large(left, right)
    except UndecidedError:
        return _same_infinite(left, right)
    if common_log:
        return False
    try:
        return agree(left, right)
    except (LimitError, UndecidedError, UndefinedValueError):
        return False  # no stage can show that they are equal


def _same_large(left: Node, right: Node) -> bool:
    try:
        return same_residues(left, right)
    except (UndecidedError, UndefinedValueError):
        pass  # roots, functions or unknown denominators: try precision next
    try:
        return agree(left, right)
    except (LimitError, UndecidedError, UndefinedValueError):
        return False  # too large for every stage: equality cannot be shown


def _same_infinite(left: Node, right: Node) -> bool:
    signs = [_infinity_sign(node) for node in (left, right)]
    return signs[0] == signs[1] != 0


def _infinity_sign(node: Node) -> int:
    if node.kind == "sym" and node.text == "oo":
        return 1
    if node.kind == "neg":
        return -_infinity_sign(node.args[0])
    return 0


def same_quantity(left: Node, right: Node) -> bool:
    """Equality of values that may carry percent signs, units or degrees; see the rules inside."""
    if left == right:
        return True
    if left.kind == "base" or right.kind == "base":
        return _same_numeral(left, right)
    a, b = quantity(left), quantity(right)
    # rule: a percent sign on one side only may mean the number itself or a hundredth of it
    if a.percent != b.percent:
        bare, marked = (a.value, b.value) if b.percent else (b.value, a.value)
        return same_value(marked, bare) or same_value(Node("div", (marked, num(100))), bare)
    if a.percent:
        return same_value(a.value, b.value)
    # rule: units are compared where both are known, and ignored where one is missing
    scale = convert(a.unit, b.unit)
    if scale is not None:
        if scale == 0:
            return False
        scaled = a.value if scale == 1 else Node("mul", (a.value, num(scale)))
        return same_value(scaled, b.value)
    if a.degrees != b.degrees and _mixes_radians(a, b):
        return same_value(_as_radians(a), _as_radians(b))
    if same_value(a.value, b.value):
        return True
    # rule: a single letter after a number may be its unit if the other side has no unknowns
    for marked, bare in ((a.value, b.value), (b.value, a.value)):
        core = _without_unit_letter(marked)
        if core is not None and not free_symbols(bare):
            return same_value(core, bare)
    return False


def _mixes_radians(a: Quantity, b: Quantity) -> bool:
    other = b if a.degrees else a
    return is_radian(other.unit) or any(
        n.kind == "sym" and n.text == "pi" for n in walk(other.value)
    )


def _as_radians(q: Quantity) -> Node:
    if not q.degrees:
        return q.value
    return Node("mul", (q.value, Node("div", (Node("sym", (), "pi"), num(180)))))


def _without_unit_letter(node: Node) -> Node | None:
    if node.kind != "mul" or free_symbols(node) - _SINGLE_LETTER_UNITS:
        return None
    last = node.args[-1]
    letter = last.args[0] if last.kind == "pow" else last
    if letter.kind != "sym" or letter.text not in _SINGLE_LETTER_UNITS:
        return None
    rest = node.args[:-1]
    if any(free_symbols(part) for part in rest):
        return None
    return rest[0] if len(rest) == 1 else Node("mul", rest)


def _same_numeral(left: Node, right: Node) -> bool:
    """Rule: numerals with a base agree in digits and base; a missing base is any base."""
    if left.kind == right.kind == "base":
        return left.text == right.text
    based, plain = (left, right) if left.kind == "base" else (right, left)
    if plain.kind == "num":
        digits = based.text.split()[0]
        return plain.text.lstrip("0") == digits or plain.number == based.number
    return same_value(based, plain)


__all__ = ["Fraction", "Quantity", "quantity", "same_quantity", "same_value"]
