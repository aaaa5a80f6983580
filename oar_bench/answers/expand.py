r"""Plus-minus signs and lists: the separate values that one answer stands for.

>>> from oar_bench.answers.parser import parse
>>> len(expand_signs(parse("(\\pm 3, \\pm 2)"))), len(expand_signs(parse("1 \\pm \\sqrt{2}")))
(4, 2)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from oar_bench.answers.limits import MAX_PM_SIGNS, LimitError
from oar_bench.answers.nodes import Node, walk


def expand_signs(node: Node) -> list[Node]:
    r"""All readings of the plus-minus signs in a node.

    Rule: signs vary independently, except that a minus-plus ties all of them together.
    """
    marks = [n for n in walk(node) if n.kind == "pm"]
    if not marks:
        return [node]
    if len(marks) > MAX_PM_SIGNS:
        raise LimitError("too many plus-minus signs")
    if any(mark.text == "-" for mark in marks):
        choices = [tuple([sign] * len(marks)) for sign in (True, False)]
    else:
        choices = list(product((True, False), repeat=len(marks)))
    return [_choose(node, iter(choice)) for choice in choices]


def _choose(node: Node, signs: Iterator[bool]) -> Node:
    if node.kind == "pm":
        positive = next(signs) == (node.text == "+")
        left = _choose(node.args[0], signs)
        right = _choose(node.args[1], signs)
        right = right if positive else Node("neg", (right,))
        if left.kind == "num" and left.number == 0:
            return right
        return Node("add", (left, right))
    if not node.args:
        return node
    return node._replace(args=tuple(_choose(arg, signs) for arg in node.args))
