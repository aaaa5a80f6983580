r"""The tight half of the parser: powers, postfix signs, numbers, names, functions, brackets.

>>> from oar_bench.answers.parser import parse
>>> parse("\\sqrt[3]{8}").text
'root'
>>> parse("2^{10}").kind
'pow'
"""

from __future__ import annotations

from fractions import Fraction

from oar_bench.answers.brackets import BracketParser
from oar_bench.answers.lexer import Token
from oar_bench.answers.limits import ParseError, digits_to_int
from oar_bench.answers.literals import literal_value, make_based
from oar_bench.answers.nodes import Node, num, sym
from oar_bench.answers.words import BASE_WORDS, DECORATIONS

_FACTOR_COMMANDS = frozenset({"frac", "binom", "ldots", "lfloor", "lceil", "emptyset", "over",
                              "infty", "angle", "triangle", "sum", "int",
                              "prod", "lim"})  # fmt: skip
_APPLIED = frozenset("fghFGHP")  # f(x) is an application; x(x-1) is a product
_OPAQUE = frozenset({"sum", "int", "prod", "lim", "iint", "oint", "partial"})


class PrimaryParser(BracketParser):
    """Powers, postfix signs, numbers, names and functions."""

    # Factors --------------------------------------------------------------------------------

    def starts_factor(self, token: Token) -> bool:
        """Whether a token right after a factor begins another one (juxtaposition)."""
        if token.kind in ("num", "sym", "fn", "text"):
            return True
        if token.kind == "op":
            if token.text == "|":
                return not self.bars and not self.in_builder
            return token.text in ("(", "{", "\\{", "\\langle") or (
                token.text == "[" and not self.in_builder
            )
        if token.kind == "cmd":
            return (
                token.text in _FACTOR_COMMANDS
                or token.text in DECORATIONS
                or token.text.startswith("begin")
            )
        return False

    def power(self) -> Node:
        base = self.postfix(self.primary())
        if not self.accept("op", "^"):
            return base
        if self.degrees():
            return self.postfix(Node("deg", (base,)))
        if self.at("op", "{") and self.at("text", "th", 1) and self.at("op", "}", 2):
            self.index += 3  # rule: the suffix of an ordinal number is not an exponent
            return base
        exponent = self.script()
        if exponent.kind == "text" and exponent.text in ("th", "st", "nd", "rd"):
            return base
        return self.postfix(Node("pow", (base, exponent)))

    def degrees(self) -> bool:
        if self.accept("cmd", "circ"):
            return True
        if self.at("op", "{") and self.at("cmd", "circ", 1) and self.at("op", "}", 2):
            self.index += 3
            return True
        return False

    def script(self) -> Node:
        """What stands after `^`: a group, or a signed factor (right-associative)."""
        if self.accept("op", "{"):
            node = self.relation()
            self.expect("}")
            if self.accept("op", "^"):
                return Node("pow", (node, self.script()))
            return node
        negative = False
        while self.at("op", "-") or self.at("op", "+"):
            negative ^= self.take().text == "-"
        node = self.primary()
        if self.accept("op", "^"):
            node = Node("pow", (node, self.script()))
        return Node("neg", (node,)) if negative else node

    def postfix(self, node: Node) -> Node:
        while True:
            if self.at("op", "!"):
                self.take()
                node = Node("fact", (node,))
            elif self.at("op", "%"):
                self.take()
                node = Node("pct", (node,))
            elif self.at("op", "_") and node.kind in ("num", "text", "fn", "mul", "seq", "group"):
                self.take()
                node = self.based(node)
            else:
                return node

    def based(self, node: Node) -> Node:
        """A numeral with a base as its subscript."""
        script = self.subscript()
        base = BASE_WORDS.get(script, 0) or (int(script) if script.isdigit() else 0)
        return make_based(node.text if node.kind != "seq" else "", base)

    def subscript(self) -> str:
        """The text of a subscript, blanks dropped: names are compared by it."""
        if not self.accept("op", "{"):
            return self.take().text
        depth = 1
        parts: list[str] = []
        while True:
            token = self.take()
            if token.kind == "op" and token.text == "{":
                depth += 1
            elif token.kind == "op" and token.text == "}":
                depth -= 1
                if not depth:
                    return "".join(parts)
            parts.append(token.text)

    # Primaries ------------------------------------------------------------------------------

    def primary(self) -> Node:
        token = self.take()
        if token.kind == "num":
            return self.number(token)
        if token.kind == "sym":
            return self.name(token)
        if token.kind == "fn":
            return self.function(token.text)
        if token.kind == "text":
            words = [token.text]
            while (following := self.peek()) is not None and following.kind == "text":
                words.append(self.take().text)
            return Node("text", (), " ".join(words))
        if token.kind == "cmd":
            return self.command(token.text)
        if token.kind == "op":
            return self.bracket(token.text)
        raise ParseError(f"unexpected {token.text!r}")

    def number(self, token: Token) -> Node:
        if self.at("op", "_"):
            self.take()
            script = self.subscript()
            base = BASE_WORDS.get(script, 0) or (int(script) if script.isdigit() else 0)
            return make_based(token.text, base)
        if not token.text.isdigit():
            return Node("num", (), token.text, literal_value(token.text))
        whole = Fraction(digits_to_int(token.text))
        fraction = self.proper_fraction()
        return Node("num", (), token.text, whole + fraction)

    def proper_fraction(self) -> Fraction:
        r"""The fraction of a mixed number that starts here, or 0.

        Rule: a whole number followed by a proper fraction of whole numbers is their sum.
        """
        digits: list[str] = []
        place = 0
        if self.at("cmd", "frac"):
            place = 1
            for _ in range(2):
                if self.at("op", "{", place):
                    inner = self.peek(place + 1)
                    if not self.at("op", "}", place + 2) or inner is None:
                        return Fraction(0)
                    place += 3
                else:
                    inner = self.peek(place)
                    place += 1
                if inner is None or inner.kind != "num" or not inner.text.isdigit():
                    return Fraction(0)
                digits.append(inner.text)
                if len(digits) == 1 and len(inner.text) == 2 and place == 2:
                    digits = [inner.text[0], inner.text[1]]  # \frac23
                    break
        else:
            first, last = self.peek(), self.peek(2)
            if (
                first is None or last is None or first.kind != "num" or last.kind != "num"
                or not self.at("op", "/", 1) or not first.spaced
                or not first.text.isdigit() or not last.text.isdigit()
            ):  # fmt: skip
                return Fraction(0)
            digits, place = [first.text, last.text], 3
        numerator, denominator = (digits_to_int(d) for d in digits)
        if not 0 < numerator < denominator:
            return Fraction(0)
        self.index += place
        return Fraction(numerator, denominator)

    def name(self, token: Token) -> Node:
        text = token.text
        if self.accept("op", "_"):
            text += "_" + self.subscript()
        while (mark := self.peek()) is not None and mark.kind == "op" and set(mark.text) == {"'"}:
            text += self.take().text
        # rule: a letter before "(0)" is a function at zero, not a product
        if self.at("op", "(") and (
            (text[0] in _APPLIED and len(text.rstrip("'")) == 1)
            or (self.at("num", "0", 1) and self.at("op", ")", 2))
        ):
            self.take()
            inner = self.items_until(")")
            self.expect(")")
            return Node("fn", inner.args if inner.kind == "list" else (inner,), "apply " + text)
        return sym(text)

    def function(self, name: str) -> Node:
        if name == "sqrt":
            return self.root()
        exponent: Node | None = None
        subscript: Node | None = None
        while self.at("op", "^") or self.at("op", "_"):
            if self.take().text == "^":
                exponent = self.script()
            else:
                subscript = self.script()
        node = self.applied(name, subscript, exponent)
        return node

    def applied(self, name: str, subscript: Node | None, exponent: Node | None) -> Node:
        inverse = exponent is not None and exponent == Node("neg", (num(1)._replace(text="1"),))
        if inverse and name in ("sin", "cos", "tan"):
            name, exponent = "arc" + name, None
        argument = self.argument()
        args = argument.args if argument.kind == "list" else (argument,)
        if name == "binom" and len(args) != 2:
            raise ParseError("a binomial of one number")
        if name == "cis":  # rule: cis t is cos t + i sin t
            turn = Node("mul", (sym("i"), Node("fn", args, "sin")))
            node = Node("add", (Node("fn", args, "cos"), turn))
            return node if exponent is None else Node("pow", (node, exponent))
        if name == "log" and subscript is not None:
            name, args = "logb", (*args, subscript)
        elif subscript is not None:
            raise ParseError("a subscript that is not a base")
        node = Node("fn", args, "root" if name == "cbrt" else name)
        if name == "cbrt":
            node = Node("fn", (*args, num(3)), "root")
        return node if exponent is None else Node("pow", (node, exponent))

    def argument(self) -> Node:
        """What a function is applied to: a bracket, or the product that follows."""
        if self.accept("op", "("):
            inner = self.items_until(")")
            self.expect(")")
            return inner
        if self.accept("op", "\\{"):
            raise ParseError("a function of a set")
        factors: list[Node] = []
        if self.accept("op", "-"):
            factors.append(num(-1))
        while (token := self.peek()) is not None and self.starts_factor(token):
            if factors and token.kind == "fn" and token.text != "sqrt":
                break
            if factors and token.kind in ("text",):
                break
            factors.append(self.power())
        if not factors:
            raise ParseError("a function of nothing")
        return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))

    def root(self) -> Node:
        degree: Node | None = None
        if self.accept("op", "["):
            degree = self.sum()
            self.expect("]")
        if self.accept("op", "{"):
            radicand = self.relation()
            self.expect("}")
        elif self.accept("op", "("):
            radicand = self.sum()
            self.expect(")")
        else:
            radicand = self.primary()
        return Node("fn", (radicand, degree if degree is not None else num(2)), "root")

    def group(self) -> Node:
        """An argument of a command: a brace group or a single character."""
        if self.accept("op", "{"):
            if self.at("op", "}"):
                raise ParseError("an empty group")
            node = self.items_until("}")
            self.expect("}")
            return node
        token = self.peek()
        if token is not None and token.kind == "num" and token.text[1:] and token.text[0] != ".":
            # rule: without braces an argument is one digit (\frac12 is one half)
            self.tokens[self.index] = Token("num", token.text[1:], False)
            return Node("num", (), token.text[0], literal_value(token.text[0]))
        return self.primary()

    def command(self, name: str) -> Node:
        if name == "frac":
            top = self.group()
            return Node("div", (top, self.group()))
        if name == "binom":
            top = self.group()
            return Node("fn", (top, self.group()), "binom")
        if name in ("ldots", "vdots", "ddots"):
            return Node("dots")
        if name == "emptyset":
            return Node("seq", (), "{}")
        if name in ("lfloor", "lceil"):
            inner = self.sum()
            if not self.accept("cmd", "r" + name[1:]):
                raise ParseError("a floor that never closes")
            return Node("fn", (inner,), "floor" if name == "lfloor" else "ceil")
        if name in DECORATIONS:
            return self.name(Token("sym", name + " " + "".join(self.subscript().split()), False))
        if name in ("angle", "triangle"):
            words = []
            while (token := self.peek()) is not None and token.kind == "sym":
                words.append(self.name(self.take()).text)
            return sym(name + " " + "".join(words))
        if name.startswith("begin "):
            return self.environment(name[6:])
        if name in _OPAQUE:
            words, depth = [name], 0
            while (token := self.peek()) is not None:
                depth += (token.text == "{") - (token.text == "}")
                if depth < 0 or (not depth and token.text in ("=", "<", ">", "<=", ">=")):
                    break
                words.append(self.take().text)
            return Node("opaque", (), " ".join(words))
        raise ParseError(f"an unknown command {name!r}")
