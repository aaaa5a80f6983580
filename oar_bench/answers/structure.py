r"""Equality of whole answers: lists, tuples, sets, intervals, matrices, equations, ratios.

>>> from oar_bench.answers.parser import parse
>>> same_answer(parse("3, 5, 7"), parse("7, 5, 3")), same_answer(parse("(2,4)"), parse("(4,2)"))
(True, False)
>>> same_answer(parse("1 \\pm \\sqrt{19}"), parse("\\frac{2 \\pm \\sqrt{76}}{2}"))
True
"""

from __future__ import annotations

from oar_bench.answers.equations import (
    equivalent_equations,
    is_equation,
    named_value,
    settle,
)
from oar_bench.answers.expand import expand_signs
from oar_bench.answers.limits import (
    MAX_MATCH_ITEMS,
    LimitError,
    UndecidedError,
    UndefinedValueError,
)
from oar_bench.answers.matrices import Matrix, as_matrix, looks_like_matrix
from oar_bench.answers.nodes import Node, num, walk
from oar_bench.answers.scalars import same_quantity
from oar_bench.answers.setwise import is_set, match, same_relations, same_sets


def same_answer(left: Node, right: Node) -> bool:
    """Whether two parsed answers mean the same.

    Raises `UndecidedError` where only words or a symbolic worker can tell.
    """
    if left == right:
        return True
    left, right = settle(left), settle(right)
    if is_equation(left) or is_equation(right):
        return _same_equations(left, right)
    if looks_like_matrix(left) or looks_like_matrix(right):
        return _same_matrices(left, right)
    if is_set(left) or is_set(right):
        return same_sets(left, right, same_answer)
    left_items, right_items = _items(left), _items(right)
    if left_items is not None or right_items is not None:
        return _same_lists(left, right, left_items, right_items)
    if left.kind == "seq" or right.kind == "seq":
        return _same_tuples(left, right)
    if left.kind == "ratio" or right.kind == "ratio":
        return _same_ratios(left, right)
    if left.kind == "rel" or right.kind == "rel":
        return same_relations(left, right, same_answer)
    if left.kind == "dots" or right.kind == "dots":
        return left.kind == right.kind
    if _unwritten(left) or _unwritten(right):
        raise UndecidedError("an ellipsis inside an expression")
    return same_quantity(left, right)


def _unwritten(node: Node) -> bool:
    return any(n.kind == "dots" for n in walk(node))


# Equations ------------------------------------------------------------------------------------


def _same_equations(left: Node, right: Node) -> bool:
    if is_equation(left) and is_equation(right):
        open_left = any(n.kind == "sym" for n in walk(left))
        open_right = any(n.kind == "sym" for n in walk(right))
        if open_left != open_right:
            return False
        a, b = named_value(left), named_value(right)
        if a is not None and b is not None and same_answer(a, b):
            return True
        for chain, value in ((left, b), (right, a)):
            if len(chain.args) > 2 and value is not None and value.kind == "seq":
                return _same_equations(chain, value)
        try:
            return equivalent_equations(left, right)
        except UndefinedValueError:
            return False
        except LimitError:
            return False  # both were read; neither form shows that they are equal
        except UndecidedError:
            return _same_sides(left, right)
    equation, other = (left, right) if is_equation(left) else (right, left)
    value = named_value(equation)
    if value is None:
        return False
    names = equation.args[:-1]
    if other.kind == "seq" and len(other.args) == len(names) > 1:
        # rule: x = y = 1 gives every name the value
        return all(n.kind == "sym" for n in names) and all(
            same_answer(value, item) for item in other.args
        )
    return same_answer(value, other)


def _same_sides(left: Node, right: Node) -> bool:
    """Rule: equations that are not polynomial are compared side by side, in either direction."""
    if len(left.args) != len(right.args):
        return False
    pairs = list(zip(left.args, right.args, strict=True))
    if all(same_answer(a, b) for a, b in pairs):
        return True
    return len(left.args) == 2 and (
        same_answer(left.args[0], right.args[1]) and same_answer(left.args[1], right.args[0])
    )


# Matrices -------------------------------------------------------------------------------------


def _same_matrices(left: Node, right: Node) -> bool:
    a, b = as_matrix(left), as_matrix(right)
    if a is None or b is None:
        other = left if a is None else right
        known = b if a is None else a
        # rule: a column may be written as a tuple
        if known is None or other.kind != "seq" or other.text != "()" or known.columns != 1:
            return False
        a, b = known, Matrix(len(other.args), 1, other.args)
    return (
        (a.rows, a.columns) == (b.rows, b.columns)
        and all(same_answer(x, y) for x, y in zip(a.entries, b.entries, strict=True))
    )  # fmt: skip


# Lists ----------------------------------------------------------------------------------------


def _items(node: Node) -> list[Node] | None:
    """The items of an unordered answer, or None if it is a single one."""
    if node.kind == "list" or (node.kind == "seq" and node.text == "{}"):
        solutions = _solutions(node.args)
        if solutions is not None:
            return solutions
        values = [value for arg in node.args for value in expand_signs(settle(arg))]
        # rule: one value written in two ways is one value
        if (
            node.kind == "list" and node.text == "or" and len(values) == 2
            and all(v.kind in ("num", "div", "pct") for v in values) and same_answer(*values)
        ):  # fmt: skip
            return values[:1]
        return values
    values = expand_signs(node)
    return values if len(values) > 1 else None


def _solutions(items: tuple[Node, ...]) -> list[Node] | None:
    """Rule: assignments that repeat their names in order are a list of tuples, else None."""
    names: list[str] = []
    for item in items:
        if not is_equation(item) or len(item.args) != 2 or item.args[0].kind != "sym":
            return None
        names.append(item.args[0].text)
    size = len(set(names))
    if not 1 < size < len(names) or names != names[:size] * (len(names) // size):
        return None
    values = [item.args[1] for item in items]
    starts = range(0, len(values), size)
    return [Node("seq", tuple(values[k : k + size]), "()") for k in starts]


def _same_lists(
    left: Node, right: Node, left_items: list[Node] | None, right_items: list[Node] | None
) -> bool:
    # rule: a bare list equals a tuple only in the tuple's order
    for items, other in ((left_items, right), (right_items, left)):
        if other.kind == "seq" and other.text in ("()", "[]") and items and len(items) > 1:
            if (left if other is right else right).kind == "seq":
                return False  # a set is not a tuple
            if any(item.kind == "seq" for item in items):
                break
            bare = [named_value(item) or item for item in items]
            return len(bare) == len(other.args) and all(
                same_answer(a, b) for a, b in zip(bare, other.args, strict=True)
            )
    a = left_items if left_items is not None else [left]
    b = right_items if right_items is not None else [right]
    ordered = _unknowns(a), _unknowns(b)
    if ordered[0] is not None or ordered[1] is not None:
        return _same_assignments(a, b, ordered)
    if any(item.kind == "dots" for item in (*a, *b)):
        # rule: a list with an ellipsis is a sequence
        return len(a) == len(b) and all(same_answer(x, y) for x, y in zip(a, b, strict=True))
    a = [named_value(item) or item for item in a]
    b = [named_value(item) or item for item in b]
    units = [[n.text for n in walk(item) if n.kind == "text"] for item in a]
    if len({str(u) for u in units}) == len(a) > 1:
        # rule: amounts of different things are compared thing by thing
        others = [[n.text for n in walk(item) if n.kind == "text"] for item in b]
        if sorted(units) == sorted(others):
            b = [b[others.index(unit)] for unit in units]
            return all(same_answer(x, y) for x, y in zip(a, b, strict=True))
    if left.kind == "seq" or right.kind == "seq":  # rule: braces make a set, repeats do not count
        return _covers(a, b) and _covers(b, a)
    return match(a, b, same_answer)


def _unknowns(items: list[Node]) -> list[str] | None:
    """The different names that a list gives values to ("x = 2, y = 3"), or None."""
    names = []
    for item in items:
        if not is_equation(item) or item.args[0].kind != "sym":
            return None
        names.append(item.args[0].text)
    stems = {name.split("_")[0] for name in names}
    return names if len(stems) == len(names) > 1 else None


def _same_assignments(
    a: list[Node], b: list[Node], names: tuple[list[str] | None, list[str] | None]
) -> bool:
    """Rule: values of different unknowns belong to their names, or to the order written."""
    if len(a) != len(b):
        return False
    values_a = [named_value(item) or item for item in a]
    values_b = [named_value(item) or item for item in b]
    if names[0] is not None and names[1] is not None and set(names[0]) == set(names[1]):
        by_name = dict(zip(names[1], values_b, strict=True))
        values_b = [by_name[name] for name in names[0]]
    return all(same_answer(x, y) for x, y in zip(values_a, values_b, strict=True))


def _covers(a: list[Node], b: list[Node]) -> bool:
    if len(a) > MAX_MATCH_ITEMS and len(a) == len(b) and a != b:
        return match(a, b, same_answer)
    return all(any(same_answer(x, y) for y in b) for x in a)


# Tuples and ratios ----------------------------------------------------------------------------


def _same_tuples(left: Node, right: Node) -> bool:
    for node, other in ((left, right), (right, left)):
        if node.kind == "seq" and len(node.args) == 1 and node.text in ("[]", "()"):
            if other.kind == "seq":
                return len(other.args) == 1 and same_answer(node.args[0], other.args[0])
            return node.text == "[]" and same_answer(node.args[0], other)
    if left.kind != "seq" or right.kind != "seq" or len(left.args) != len(right.args):
        return False
    if left.text != right.text and {left.text, right.text} & {"(]", "[)"}:
        return False  # rule: half-open brackets are no tuple
    return all(same_answer(a, b) for a, b in zip(left.args, right.args, strict=True))


def _same_ratios(left: Node, right: Node) -> bool:
    """Rule: ratios of numbers are equal if proportional; a two-part ratio may be a fraction."""
    if left.kind != "ratio" or right.kind != "ratio":
        ratio, other = (left, right) if left.kind == "ratio" else (right, left)
        if len(ratio.args) != 2 or other.kind != "div":
            return False
        return all(same_quantity(a, b) for a, b in zip(ratio.args, other.args, strict=True))
    if len(left.args) != len(right.args):
        return False
    if any(arg.kind in ("dots", "text") for arg in (*left.args, *right.args)):
        return False
    if all(same_quantity(a, b) for a, b in zip(left.args, right.args, strict=True)):
        return True
    zero = num(0)
    if any(same_quantity(arg, zero) for arg in (*left.args, *right.args)):
        return False  # rule: a ratio with a zero is proportional to nothing else
    first_a, first_b = left.args[0], right.args[0]
    return all(
        same_quantity(Node("mul", (first_a, b)), Node("mul", (first_b, a)))
        for a, b in zip(left.args[1:], right.args[1:], strict=True)
    )
