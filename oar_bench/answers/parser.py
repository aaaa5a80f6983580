r"""A recursive-descent parser for mathematics as people write it in answers.

From loosest to tightest: lists (`,` `;` and, or) > relations > unions > ratios > sums > products
(also by juxtaposition) > signs > powers > postfix (`!`, `%`, degrees) > primaries.

>>> parse("x \\le 3").text
'<='
>>> parse("1\\frac{4}{5}").number
Fraction(9, 5)
"""

from __future__ import annotations

from oar_bench.answers.lexer import Token, tokenize
from oar_bench.answers.limits import (
    MAX_FUNCTIONS,
    MAX_LIST_ITEMS,
    MAX_NESTING,
    LimitError,
    ParseError,
    nesting_depth,
)
from oar_bench.answers.nodes import Node
from oar_bench.answers.primaries import PrimaryParser
from oar_bench.answers.words import RELATION_COMMANDS

_RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!="})


class Parser(PrimaryParser):
    """Lists, relations, set operations, sums and products; primaries are in the base class."""

    def answer(self) -> Node:
        """The whole text as one answer; every token must be used."""
        node = self.items_until(None)
        if self.peek() is not None:
            raise ParseError("something is left over")
        return node

    def items_until(self, closer: str | None) -> Node:
        """A list, or its only item."""
        items: list[Node] = []
        words: set[str] = set()
        while True:
            token = self.peek()
            if token is None or (closer and token.kind == "op" and token.text in closer):
                break
            if token.kind == "sep":
                words.add(token.text)
                self.take()
                continue
            items.append(self.relation())
            if len(items) > MAX_LIST_ITEMS:
                raise LimitError("too many items")
            token = self.peek()
            if (
                token is not None
                and token.kind != "sep"
                and not (closer and token.kind == "op" and token.text in closer)
            ):
                raise ParseError(f"unexpected {token.text!r}")
        if not items:
            raise ParseError("nothing to read")
        if len(items) == 1:
            return items[0]
        kind = "or" if "or" in words else "and" if "and" in words and "," not in words else ","
        return Node("list", tuple(items), kind)

    def relation_text(self, token: Token | None) -> str | None:
        if token is None:
            return None
        if token.kind == "op" and token.text in _RELATIONS:
            return token.text
        if token.kind == "op" and token.text in ("->", "=>"):
            return token.text
        if token.kind == "cmd":
            return RELATION_COMMANDS.get(token.text)
        return None

    def relation(self) -> Node:
        """A chain of relations, or an expression."""
        sides = [self.union()]
        operators: list[str] = []
        while (operator := self.relation_text(self.peek())) is not None:
            self.take()
            operators.append(operator)
            sides.append(self.union())
        if not operators:
            return sides[0]
        return Node("rel", tuple(sides), " ".join(operators))

    def union(self) -> Node:
        node = self.ratio()
        while True:
            token = self.peek()
            if token is None or token.kind != "cmd" or token.text not in ("cup", "cap", "setminus"):
                return node
            self.take()
            node = Node(token.text, (node, self.ratio()))

    def ratio(self) -> Node:
        first = self.sum()
        if self.in_builder or not self.at("op", ":"):
            return first
        parts = [first]
        while self.accept("op", ":"):
            parts.append(self.sum())
        return Node("ratio", tuple(parts))

    def sum(self) -> Node:
        token = self.peek()
        if token is not None and token.kind == "cmd" and token.text in ("pm", "mp"):
            self.take()
            node = Node("pm", (Node("num", (), "", _ZERO), self.product()), _SIGN[token.text])
        else:
            node = self.product()
        while (token := self.peek()) is not None:
            if token.kind == "op" and token.text in "+-":
                self.take()
                right = self.product()
                if token.text == "-":
                    right = Node("neg", (right,))
                terms = node.args if node.kind == "add" else (node,)
                node = Node("add", (*terms, right))
            elif token.kind == "cmd" and token.text in ("pm", "mp"):
                self.take()
                node = Node("pm", (node, self.product()), _SIGN[token.text])
            else:
                break
        return node

    def product(self) -> Node:
        node = self.signed()
        while (token := self.peek()) is not None:
            if (token.kind == "op" and token.text == "*") or (
                token.kind == "cmd" and token.text in ("times", "cdot")
            ):
                self.take()
                node = _times(node, self.signed())
            elif token.kind == "op" and token.text == "/":
                self.take()
                node = Node("div", (node, self.signed()))
            elif token.kind == "cmd" and token.text in ("mod", "bmod", "pmod"):
                self.take()
                node = Node("fn", (node, self.signed()), "mod")
            elif token.kind == "cmd" and token.text == "choose":
                self.take()
                node = Node("fn", (node, self.signed()), "binom")
            elif self.starts_factor(token):
                if token.kind == "num" and self.tokens[self.index - 1].kind == "num":
                    raise ParseError("two numbers side by side")
                node = _times(node, self.power())
            else:
                break
        return node

    def signed(self) -> Node:
        # rule: an even number of minus signs cancels
        negative = False
        while (token := self.peek()) is not None and token.kind == "op" and token.text in "+-":
            self.take()
            negative ^= token.text == "-"
        if token is not None and token.kind == "cmd" and token.text in ("pm", "mp"):
            raise ParseError("a sign after a sign")
        node = self.power()
        return Node("neg", (node,)) if negative else node


def _times(left: Node, right: Node) -> Node:
    factors = left.args if left.kind == "mul" else (left,)
    return Node("mul", (*factors, right))


from fractions import Fraction  # noqa: E402

_ZERO = Fraction(0)
_SIGN = {"pm": "+", "mp": "-"}


def parse(text: str) -> Node:
    r"""The tree of a cleaned answer.

    Raises `ParseError` for what is not in the grammar and `LimitError` for what is too deep or
    long.

    >>> parse("(1, 2]").text
    '(]'
    """
    if nesting_depth(text) > MAX_NESTING:
        raise LimitError("brackets are nested too deeply")
    tokens = tokenize(text)
    tree = Parser(tokens).answer()
    calls = sum(t.kind == "fn" or t.text == "binom" for t in tokens)
    if calls > MAX_FUNCTIONS and _function_depth(tree) > MAX_FUNCTIONS:
        raise LimitError("functions are nested too deeply")
    return tree


def _function_depth(tree: Node) -> int:
    """The deepest nesting of functions other than roots and mere applications."""
    deepest, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node.kind == "fn" and node.text != "root":
            depth += 1
        deepest = max(deepest, depth)
        waiting.extend((arg, depth) for arg in node.args)
    return deepest
