r"""Matrix arithmetic on trees: sums, multiples, products and transposes of matrices.

>>> from oar_bench.answers.parser import parse
>>> as_matrix(parse("[[1, 2], [3, 4]]")).rows
2
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from oar_bench.answers.nodes import Node, walk


class Matrix(NamedTuple):
    """Entries row by row."""

    rows: int
    columns: int
    entries: tuple[Node, ...]


def _nested(node: Node) -> bool:
    return (
        node.kind == "seq"
        and node.text == "[]"
        and bool(node.args)
        and all(a.kind == "seq" and a.text == "[]" and a.args for a in node.args)
        and len({len(a.args) for a in node.args}) == 1
    )


def looks_like_matrix(node: Node) -> bool:
    """Whether a matrix stands in a node, outside a determinant."""
    if node.kind in ("list", "seq") and not _nested(node):
        return False
    if node.kind == "fn":
        return False
    return _nested(node) or node.kind == "matrix" or any(map(looks_like_matrix, node.args))


def as_matrix(node: Node) -> Matrix | None:
    """The matrix that an expression is, or None."""
    if node.kind == "matrix":
        rows, columns = map(int, node.text.split())
        return Matrix(rows, columns, node.args)
    if _nested(node):
        entries = tuple(entry for row in node.args for entry in row.args)
        return Matrix(len(node.args), len(node.args[0].args), entries)
    if node.kind == "neg":
        return _scale(Node("neg", (Node("num", (), "", _one()),)), as_matrix(node.args[0]))
    if node.kind == "add":
        return _sum([as_matrix(arg) for arg in node.args])
    if node.kind == "mul":
        return _product(node)
    if node.kind == "div" and looks_like_matrix(node.args[0]):
        return _scale(
            Node("div", (Node("num", (), "", _one()), node.args[1])), as_matrix(node.args[0])
        )
    if node.kind == "pow" and node.args[1].kind == "sym" and node.args[1].text == "T":
        inner = as_matrix(node.args[0])
        if inner is None and node.args[0].kind == "seq":
            inner = Matrix(1, len(node.args[0].args), node.args[0].args)
        return None if inner is None else _transpose(inner)
    return None


def _one() -> Fraction:
    return Fraction(1)


def _scale(factor: Node, matrix: Matrix | None) -> Matrix | None:
    if matrix is None:
        return None
    entries = tuple(Node("mul", (factor, entry)) for entry in matrix.entries)
    return matrix._replace(entries=entries)


def _sum(parts: list[Matrix | None]) -> Matrix | None:
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or len({part[:2] for part in known}) != 1:
        return None
    entries = tuple(Node("add", pair) for pair in zip(*(p.entries for p in known), strict=True))
    return known[0]._replace(entries=entries)


def _product(node: Node) -> Matrix | None:
    result: Matrix | None = None
    for factor in node.args:
        if not looks_like_matrix(factor):
            if any(n.kind in ("seq", "list", "text") for n in walk(factor)):
                return None
            continue
        matrix = as_matrix(factor)
        if matrix is None:
            return None
        result = matrix if result is None else _multiply(result, matrix)
        if result is None:
            return None
    for factor in node.args:
        if not looks_like_matrix(factor):
            result = _scale(factor, result)
    return result


def _multiply(a: Matrix, b: Matrix) -> Matrix | None:
    if a.columns != b.rows or a.columns > 6:
        return None
    entries = tuple(
        Node("add", tuple(
            Node("mul", (a.entries[row * a.columns + k], b.entries[k * b.columns + column]))
            for k in range(a.columns)
        ))
        for row in range(a.rows) for column in range(b.columns)
    )  # fmt: skip
    return Matrix(a.rows, b.columns, entries)


def _transpose(a: Matrix) -> Matrix:
    entries = tuple(a.entries[r * a.columns + c] for c in range(a.columns) for r in range(a.rows))
    return Matrix(a.columns, a.rows, entries)
