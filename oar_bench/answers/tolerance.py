r"""Numerical tolerance, only for tasks that declare one.

Rule: |answer - gold| <= tolerance * max(1, |gold|), item by item and in order for lists.

>>> within("3.14", "\\pi", 0.001), within("3.2", "\\pi", 0.001)
(True, False)
>>> within("1,000.4", "1000", 0.001)
True
"""

from __future__ import annotations

from fractions import Fraction

from oar_bench.answers.decide import read
from oar_bench.answers.equations import named_value, settle
from oar_bench.answers.exact import plain_number
from oar_bench.answers.limits import AnswerError
from oar_bench.answers.nodes import Node
from oar_bench.answers.numeric import distance
from oar_bench.answers.scalars import quantity


def within(answer: str, gold: str, tolerance: float) -> bool:
    """Whether an answer lies within the tolerance of a gold; False where either is no number."""
    bound = Fraction(tolerance)
    left, right = plain_number(answer), plain_number(gold)
    if left is not None and right is not None:
        return abs(left - right) <= bound * max(Fraction(1), abs(right))
    first, second = read(answer).tree, read(gold).tree
    if first is None or second is None:
        return False
    items_a, items_b = _items(first), _items(second)
    if len(items_a) != len(items_b):
        return False
    try:
        return all(_near(a, b, bound) for a, b in zip(items_a, items_b, strict=True))
    except AnswerError:
        return False  # not numbers: the exact verdict stands


def _items(node: Node) -> list[Node]:
    node = settle(node)
    if node.kind in ("list", "seq") and node.args:
        return [item for arg in node.args for item in _items(arg)]
    named = named_value(node)
    return [node] if named is None else _items(named)


def _near(left: Node, right: Node, bound: Fraction) -> bool:
    a, b = quantity(left), quantity(right)
    difference, size = distance(a.value, b.value)
    if difference <= bound * max(Fraction(1), size):
        return True
    if a.percent == b.percent:
        return False
    scaled = Node("div", (a.value if a.percent else b.value, Node("num", (), "", Fraction(100))))
    difference, size = distance(*((scaled, b.value) if a.percent else (a.value, scaled)))
    return difference <= bound * max(Fraction(1), size)
