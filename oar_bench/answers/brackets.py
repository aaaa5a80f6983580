r"""Access to tokens, and what stands in brackets: groups, tuples, sets, matrices.

>>> from oar_bench.answers.parser import parse
>>> parse("\\{1, 2\\}").text, parse("[1, 2)").text
('{}', '[)')
"""

from __future__ import annotations

from oar_bench.answers.lexer import Token
from oar_bench.answers.limits import MAX_LIST_ITEMS, LimitError, ParseError
from oar_bench.answers.nodes import Node

_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "Vmatrix", "array",
                       "smallmatrix"})  # fmt: skip


class BracketParser:
    """Token access and bracketed groups; what stands inside comes from the subclasses."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.index = 0
        self.bars = 0  # open absolute values
        self.in_builder = False

    def answer(self) -> Node:
        raise NotImplementedError

    def items_until(self, closer: str | None) -> Node:
        raise NotImplementedError

    def relation(self) -> Node:
        raise NotImplementedError

    def sum(self) -> Node:
        raise NotImplementedError

    def signed(self) -> Node:
        raise NotImplementedError

    # Token access ---------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token | None:
        place = self.index + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise ParseError("the answer ends too early")
        self.index += 1
        return token

    def at(self, kind: str, text: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token is not None and token.kind == kind and token.text == text

    def accept(self, kind: str, text: str) -> bool:
        if self.at(kind, text):
            self.index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept("op", text):
            raise ParseError(f"expected {text!r}")

    # Brackets -------------------------------------------------------------------------------

    def bracket(self, opener: str) -> Node:
        if opener == "{":
            node = self.items_until("}")
            self.expect("}")
            return Node("seq", node.args, "{}") if node.kind == "list" else node
        if opener == "|":
            self.bars += 1
            inner = self.sum()
            self.bars -= 1
            self.expect("|")
            if inner.kind == "matrix":
                return Node("fn", (inner,), "det")
            return Node("abs", (inner,))
        if opener in ("(", "[", "\\{", "\\langle"):
            return self.sequence(opener)
        raise ParseError(f"unexpected {opener!r}")

    def sequence(self, opener: str) -> Node:
        """A tuple, interval, set or a mere group in parentheses."""
        closers = {"(": ")]", "[": ")]", "\\{": "\\}", "\\langle": "\\rangle"}[opener]
        bars, self.bars = self.bars, 0
        builder, self.in_builder = self.in_builder, opener == "\\{"
        items: list[Node] = []
        commas = 0
        while True:
            token = self.peek()
            if token is None:
                raise ParseError("a bracket that never closes")
            if token.kind == "op" and token.text in closers and (len(token.text) > 1 or token.text):
                break
            if token.kind == "sep":
                commas += 1
                self.take()
                continue
            if len(items) > commas:
                if opener == "\\{" and len(items) == 1 and self.builder_bar(token):
                    return self.builder(items[0], bars, builder)
                raise ParseError("items side by side")
            items.append(self.relation())
            if len(items) > MAX_LIST_ITEMS:
                raise LimitError("too many items")
        closer = self.take().text
        self.bars, self.in_builder = bars, builder
        if opener == "\\{":
            return Node("seq", tuple(items), "{}")
        if opener == "\\langle":
            return Node("seq", tuple(items), "()")
        if (
            len(items) == 1
            and not commas
            and (opener + closer == "()" or items[0].kind == "matrix")
        ):
            return items[0]
        return Node("seq", tuple(items), opener + closer)

    def builder_bar(self, token: Token) -> bool:
        return (token.kind == "op" and token.text in "|:") or (
            token.kind == "cmd" and token.text == "mid"
        )

    def builder(self, variable: Node, bars: int, outer: bool) -> Node:
        self.take()
        self.in_builder = False
        condition = self.items_until("\\}")
        self.expect("\\}")
        self.bars, self.in_builder = bars, outer
        return Node("builder", (variable, condition))

    def environment(self, name: str) -> Node:
        """A matrix; `vmatrix` is a determinant."""
        kind = name.rstrip("*")
        if kind not in _MATRICES:
            raise ParseError(f"an unknown environment {name!r}")
        if kind == "array" and self.accept("op", "{"):
            while not self.accept("op", "}"):
                self.take()
        rows: list[list[Node]] = [[]]
        while not self.accept("cmd", f"end {name}"):
            if self.accept("op", "&"):
                continue
            if self.accept("cmd", "cr"):
                rows.append([])
            elif self.accept("cmd", "hline"):
                continue
            else:
                rows[-1].append(self.sum())
        rows = [row for row in rows if row]
        if not rows or len({len(row) for row in rows}) != 1:
            raise ParseError("a ragged matrix")
        if kind == "array" and len(rows) == len(rows[0]) == 1:
            return rows[0][0]  # rule: an array of one entry is its entry
        entries = tuple(entry for row in rows for entry in row)
        node = Node("matrix", entries, f"{len(rows)} {len(rows[0])}")
        return Node("fn", (node,), "det") if kind == "vmatrix" else node
