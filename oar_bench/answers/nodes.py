"""The syntax tree of an answer.

One small immutable node type serves all kinds; `kind` says which:

=========== =====================================================================
kind        fields
=========== =====================================================================
num         number
sym         text: the name (with subscript and primes)
add, mul    args
neg         args[0]
div, pow    args[0], args[1]
pm          args[0] plus-minus args[1]; text is "+" or "-" (minus-plus)
fn          text: the function's name; args
fact, abs   args[0]
deg, pct    args[0] degrees, args[0] percent
text        text: words
seq         text: the two brackets, as "()" or "[)"; args: the items
list        text: ",", "and" or "or"; args: the items
rel         text: relations separated by blanks; args: one more than relations
cup, cap, setminus   args[0], args[1]
matrix      text: "rows cols"; args: entries row by row
base        text: "digits base"; number: the value
ratio       args
builder     args[0]: variable (or membership), args[1]: condition
dots        an ellipsis
opaque      text: something understood only as equal or unequal to itself
=========== =====================================================================

>>> num(3).number
Fraction(3, 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple


class Node(NamedTuple):
    """One node; see the table above."""

    kind: str
    args: tuple[Node, ...] = ()
    text: str = ""
    number: Fraction | None = None


def num(value: int | Fraction) -> Node:
    """A number."""
    return Node("num", (), "", Fraction(value))


def sym(name: str) -> Node:
    """A symbol."""
    return Node("sym", (), name)


def walk(node: Node) -> Iterator[Node]:
    """All nodes of a tree, parents first.

    >>> [n.kind for n in walk(Node("neg", (num(1),)))]
    ['neg', 'num']
    """
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.args)


CONSTANTS = frozenset({"pi", "e", "i", "oo"})


def free_symbols(node: Node) -> set[str]:
    """The names of unknowns in a tree.

    >>> sorted(free_symbols(Node("add", (sym("x"), sym("pi")))))
    ['x']
    """
    return {n.text for n in walk(node) if n.kind == "sym" and n.text not in CONSTANTS}
