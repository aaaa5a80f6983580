r"""Answers that are sets of real numbers, or relations: as sets if possible, else by parts.

>>> from oar_bench.answers.parser import parse
>>> is_set(parse("x \\le 3")), is_set(parse("(1, 2)"))
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable

from oar_bench.answers.limits import (
    MAX_MATCH_ITEMS,
    LimitError,
    UndecidedError,
    UndefinedValueError,
)
from oar_bench.answers.nodes import Node, free_symbols, walk
from oar_bench.answers.poly import Context
from oar_bench.answers.reals import Reals, RealSet

Same = Callable[[Node, Node], bool]  # equality of two parsed answers

_ORDERS = frozenset({"<", ">", "<=", ">=", "!="})
_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def is_set(node: Node) -> bool:
    kind = node.kind
    if kind in ("cup", "cap", "setminus", "builder"):
        return True
    if kind == "sym":
        return node.text in ("RR", "ZZ", "NN", "QQ", "CC")
    if kind == "seq":
        if node.text == "{}":
            return not node.args
        return (len(node.args) == 2 and node.text in ("[]", "(]", "[)")) or (
            node.text == "()" and len(node.args) == 2
            and any(n.kind == "sym" and n.text == "oo" for a in node.args for n in walk(a))
        )  # fmt: skip
    if kind == "add":  # a set minus a set
        return any(is_set(arg) for arg in node.args)
    if kind == "rel":
        return bool(set(node.text.split()) & (_ORDERS | {"in"}))
    return kind == "list" and any(is_set(arg) for arg in node.args if arg.kind == "rel")


def same_sets(left: Node, right: Node, same: Same) -> bool:
    sets = Reals(Context())
    readings: list[tuple[str | None, RealSet] | None] = []
    for node in (left, right):
        try:
            readings.append(sets.read(_points(node)))
        except (UndecidedError, LimitError, UndefinedValueError):
            readings.append(None)
    if readings[0] is None and readings[1] is None:
        return same_symbolic_sets(left, right, same)
    if readings[0] is None or readings[1] is None:
        unread = left if readings[0] is None else right
        if free_symbols(unread) and unread.kind in ("seq", "cup"):
            return same_symbolic_sets(left, right, same)
        return False  # one is a set of real numbers, the other is not
    (name_a, set_a), (name_b, set_b) = readings[0], readings[1]
    if name_a is not None and name_b is not None and name_a != name_b:
        return False
    return sets.equal(set_a, set_b)


def _points(node: Node) -> Node:
    """Rule: a list of numbers beside a set means the set of them."""
    if node.kind == "list" and not any(arg.kind in ("rel", "seq") for arg in node.args):
        return Node("seq", node.args, "{}")
    if node.kind == "list" and all(
        (is_set(arg) and arg.kind != "rel") or (arg.kind == "seq" and len(arg.args) == 2)
        for arg in node.args
    ):
        result = node.args[0]
        for arg in node.args[1:]:
            result = Node("cup", (result, arg))
        return result
    return node


def same_symbolic_sets(left: Node, right: Node, same: Same) -> bool:
    """Sets with unknown ends: compared piece by piece."""
    left, right = _membership(left), _membership(right)
    if (left.kind == "rel") != (right.kind == "rel"):
        left, right = _as_interval(left), _as_interval(right)
    if left.kind == "rel" and right.kind == "rel":
        return same_relations(left, right, same)
    if left.kind != right.kind or len(left.args) != len(right.args):
        return False
    if left.kind == "sym":
        return left.text == right.text
    if left.kind == "cup":
        return match(_pieces(left), _pieces(right), same)
    if left.text != right.text:
        return False
    if left.kind == "list":
        return match(list(left.args), list(right.args), same)
    return all(same(a, b) for a, b in zip(left.args, right.args, strict=True))


def _membership(node: Node) -> Node:
    if node.kind == "rel" and node.text == "in":
        return node.args[1]
    return node


def _as_interval(node: Node) -> Node:
    """An inequality around one name as an interval (rule: its ends are what stands outside)."""
    if node.kind != "rel":
        return node
    operators = node.text.split()
    if any(o not in _MIRROR for o in operators):
        return node
    if len(operators) == 2 and operators[0][0] == operators[1][0]:
        low, name, high = node.args
        if operators[0][0] == ">":
            low, high, operators = high, low, operators[::-1]
    elif len(operators) == 1:
        name, bound = node.args
        operator = operators[0]
        if name.kind != "sym":
            name, bound, operator = bound, name, _MIRROR[operator]
        infinite = Node("sym", (), "oo")
        if operator[0] == "<":
            low, high, operators = Node("neg", (infinite,)), bound, ["<", operator]
        else:
            low, high, operators = bound, infinite, [operator, "<"]
    else:
        return node
    if name.kind != "sym":
        return node
    ends = ("[" if "=" in operators[0] else "(") + ("]" if "=" in operators[1] else ")")
    return Node("seq", (low, high), ends)


def _pieces(node: Node) -> list[Node]:
    if node.kind == "cup":
        return _pieces(node.args[0]) + _pieces(node.args[1])
    return [node]


def same_relations(left: Node, right: Node, same: Same) -> bool:
    """Relations that are no real sets: side by side, in either direction."""
    if left.kind != "rel" or right.kind != "rel" or len(left.args) != len(right.args):
        return False
    if left.text == right.text and all(
        same(a, b) and _modulus(a) == _modulus(b)
        for a, b in zip(left.args, right.args, strict=True)
    ):
        return True
    mirrored = [_MIRROR.get(o, o) for o in reversed(right.text.split())]
    if left.text.split() != mirrored:
        return False
    turned = zip(left.args, reversed(right.args), strict=True)
    return all(same(a, b) for a, b in turned)


def _modulus(node: Node) -> Node | None:
    """Rule: congruences agree only for the same modulus."""
    return node.args[1] if node.kind == "fn" and node.text == "mod" else None


def match(a: list[Node], b: list[Node], same: Same) -> bool:
    """Whether two unordered lists have the same items with the same multiplicities."""
    if len(a) != len(b):
        return False
    rest = list(b)
    if len(a) > MAX_MATCH_ITEMS:
        # Long lists: items are the same node for node, or stand in the same order.
        if sorted(map(repr, a)) == sorted(map(repr, b)):
            return True
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    for item in a:
        for place, other in enumerate(rest):
            if same(item, other):
                del rest[place]
                break
        else:
            return False
    return True
