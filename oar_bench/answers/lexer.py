r"""Tokens of a cleaned answer.

Kinds: `num` (a decimal literal), `cmd` (a LaTeX command, without its backslash), `sym` (one name),
`fn` (a function's name), `text` (words), `sep` ("," ";" "and" "or"), `op` (everything else).

>>> [(t.kind, t.text) for t in tokenize("2\\pi x")]
[('num', '2'), ('sym', 'pi'), ('sym', 'x')]
>>> [t.text for t in tokenize("1,234")], [t.text for t in tokenize("(1,234)")]
(['1234'], ['(', '1', ',', '234', ')'])
"""

from __future__ import annotations

import re
from typing import NamedTuple

from oar_bench.answers.limits import MAX_PARSE_CHARS, MAX_TOKENS, LimitError, ParseError
from oar_bench.answers.words import (
    CONNECTIVES,
    CONSTANT_WORDS,
    FONT_COMMANDS,
    FUNCTION_ALIASES,
    FUNCTIONS,
    GREEK,
    SETS,
    UNIT_LETTERS,
    UNIT_WORDS,
    split_letters,
)


class Token(NamedTuple):
    """A token; `spaced` says that white space stands before it."""

    kind: str
    text: str
    spaced: bool


_SPACE = re.compile(r"[\s]+")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,]*\d)")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_SPEED = re.compile(
    r"(?:m|km|cm|g|kg|L|J|N|W|V|mi|ft)\s*/\s*(?:s|h|hr|min|kg|m|L|day|ft|cm)"
    r"(?:\s*\^?\s*\{?\d\}?)?\s*$"
)
_WORD = re.compile(r"[A-Za-z]+")
_OPERATOR = re.compile(r"\*\*|==|<=|>=|=<|!=|->|=>|<>|''+|[-+*/^_=<>!%(){}\[\]|:&']")
_OPERATOR_ALIASES = {"**": "^", "==": "=", "=<": "<=", "<>": "!="}
_INNER_NUMBER = re.compile(r"[-+]?\s*[\d.,]+")
# rule: a connective inside \text{} separates items, whatever words stand around it
_TEXT_CONNECTIVE = re.compile(r"(?:^|[\s,])(?:and|or|AND|OR)(?:$|[\s,])")
# rule: numbers in words' font that only connectives separate are a list
_NUMBERS = re.compile(r"-?[\d.]+(?:(?:,\s*(?:and |or )?| and | or )-?[\d.]+)+")
# rule: "or more" and its like bound a number, and are no connective
_BOUND = re.compile(
    r"(?:or|and) (?:more|less|fewer|greater|higher|lower|above|below|so|over|under|up)"
)
# rule: a number and words in words' font are the number with its unit
_AMOUNT = re.compile(
    r"(-?\d+(?:,\d{3})*(?:\.\d+)?) ((?!and\b|or\b|to\b|of\b)[A-Za-z]+(?: (?!and\b|or\b)[A-Za-z]+)*)"
)
# rule: words before a connective belong to the number before them
_UNIT_AND = re.compile(r"([A-Za-z][A-Za-z ]*?),? (and|or)")
MAX_PRODUCT_LETTERS = 3  # a longer run of bare letters is a word, not a product of names


def braced(text: str, start: int) -> tuple[str, int]:
    r"""The content of the brace group that opens at `start`, and the place behind it.

    >>> braced("{a{b}}c", 0)
    ('a{b}', 6)
    """
    depth = 0
    position = start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position], position + 1
        position += 1
    raise ParseError("a brace that never closes")


class _Lexer:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_PARSE_CHARS:
            raise LimitError("the answer is too long to parse")
        self.text = text
        self.tokens: list[Token] = []
        self.depth = 0  # of brackets in which a comma separates coordinates
        self.position = 0
        self.spaced = False

    def add(self, kind: str, text: str) -> None:
        if len(self.tokens) >= MAX_TOKENS:
            raise LimitError("the answer has too many tokens")
        self.tokens.append(Token(kind, text, self.spaced))
        self.spaced = False

    def run(self) -> list[Token]:
        text, length = self.text, len(self.text)
        while self.position < length:
            char = text[self.position]
            if char.isspace():
                match = _SPACE.match(text, self.position)
                self.position = match.end() if match else self.position + 1
                self.spaced = True
            elif char == "\\":
                self.command()
            elif char in "0123456789." and self.number():
                pass
            elif char.isascii() and char.isalpha():
                self.word()
            elif char in ",;":
                self.add("sep", ",")
                self.position += 1
            elif (match := _OPERATOR.match(text, self.position)) is not None:
                self.operator(match.group())
                self.position = match.end()
            elif char == "." and len(text) > self.position + 2 and text[self.position + 1] == ".":
                self.add("cmd", "ldots")
                while self.position < length and text[self.position] == ".":
                    self.position += 1
            else:
                raise ParseError(f"a character that is not mathematics: {char!r}")
        return self.tokens

    def operator(self, text: str) -> None:
        if text in "([":
            self.depth += 1
        elif text in ")]":
            self.depth = max(0, self.depth - 1)
        self.add("op", _OPERATOR_ALIASES.get(text, text))

    def number(self) -> bool:
        # rule: groups of three after a comma are one number, except between coordinates
        if not self.depth:
            match = _GROUPED.match(self.text, self.position)
            if match is not None:
                self.add("num", match.group().replace(",", ""))
                self.position = match.end()
                return True
        match = _NUMBER.match(self.text, self.position)
        if match is None or self.text.startswith("..", self.position):
            return False
        literal = match.group()
        if literal.endswith(".") and self.text.startswith("..", match.end()):
            literal = literal[:-1]
        self.add("num", literal)
        self.position += len(literal)
        return True

    def word(self) -> None:
        match = _SPEED.match(self.text, self.position) or _WORD.match(self.text, self.position)
        if match is None:
            raise ParseError("not a word")
        word = match.group()
        # rule: a known short unit, or a last word of three letters, after a number is its unit
        if self.after_number() and (
            word in UNIT_WORDS
            or "/" in word
            or (
                len(word) == 3
                and self.spaced
                and word.islower()
                and self.is_last(match.end(), word)
            )
        ):
            self.add("text", word)
            self.position = match.end()
            return
        self.letters(match.group())
        self.position = match.end()

    def is_last(self, end: int, word: str) -> bool:
        return not self.text[end:].strip() and not (
            word in FUNCTIONS or word in GREEK or word in CONNECTIVES or word in ("mod",)
        )

    def letters(self, word: str, bare: bool = True) -> None:
        if word in CONNECTIVES:
            self.add("sep", CONNECTIVES[word])
        elif FUNCTION_ALIASES.get(word):
            self.add("fn", FUNCTION_ALIASES[word])
        elif word in FUNCTIONS:
            self.add("fn", word)
        elif word in CONSTANT_WORDS:
            self.add("sym", CONSTANT_WORDS[word])
        elif word in GREEK or len(word) == 1:
            self.add("sym", word)
        elif word in ("not", "no", "non", "nor"):
            self.add("text", word)  # rule: a denial is never a product of names
        elif word in ("mod", "choose"):
            self.add("cmd", word)
        elif word in ("cup", "U"):
            self.add("cmd", "cup")
        else:
            parts = split_letters(word)
            if bare and len(parts) == len(word) and len(word) > MAX_PRODUCT_LETTERS:
                self.add("text", word)
                return
            for part in parts:
                self.letters(part)

    def after_number(self) -> bool:
        if not self.tokens:
            return False
        last = self.tokens[-1]
        if last.kind in ("num", "text") or (last.kind == "op" and last.text in "!)}"):
            return True
        return last.text == "/" and len(self.tokens) > 1 and self.tokens[-2].kind == "text"

    def command(self) -> None:
        match = _COMMAND.match(self.text, self.position)
        if match is None:
            raise ParseError("a lone backslash")
        name = match.group(1)
        self.position = match.end()
        if name in FONT_COMMANDS:
            self.font(name)
        elif name in "{}":
            self.depth = max(0, self.depth + (1 if name == "{" else -1))
            self.add("op", "\\" + name)
        elif name in ("mathbb", "mathds", "Bbb"):
            self.blackboard()
        elif name in ("langle", "rangle"):
            self.depth = max(0, self.depth + (1 if name == "langle" else -1))
            self.add("op", "\\" + name)
        elif name in ("begin", "end"):
            skip = len(self.text) - len(self.text[self.position :].lstrip())
            content, self.position = braced(self.text, skip)
            self.add("cmd", f"{name} {content.strip()}")
        elif FUNCTION_ALIASES.get(name):
            self.add("fn", FUNCTION_ALIASES[name])
        elif name in FUNCTIONS and name not in ("binom",):
            self.add("fn", name)
        elif name in CONSTANT_WORDS:
            self.add("sym", CONSTANT_WORDS[name])
        elif name in GREEK:
            self.add("sym", name)
        elif name == "imath":
            self.add("sym", "i")
        elif name in "|":
            self.add("op", "|")
        else:
            self.add("cmd", name)

    def blackboard(self) -> None:
        rest = self.text[self.position :].lstrip()
        offset = len(self.text) - len(rest)
        if rest.startswith("{"):
            content, self.position = braced(self.text, offset)
        else:
            content, self.position = rest[:1], offset + 1
        content = content.strip()
        if content not in SETS:
            raise ParseError("an unknown set")
        self.add("sym", SETS[content])

    def font(self, name: str) -> None:
        start = self.position
        while start < len(self.text) and self.text[start].isspace():
            start += 1
        if start < len(self.text) and self.text[start] == "{":
            content, self.position = braced(self.text, start)
        elif name == "rm":
            return
        else:
            content, self.position = self.text[start : start + 1], start + 1
        self.content(content, name)

    def content(self, content: str, name: str) -> None:
        bare = re.sub(r"\\[a-zA-Z]+\s*\{([^{}]*)\}", r"\1", content).replace("~", " ").strip()
        if not bare:
            self.spaced = True
        elif self.after_number() and (bare in ("min", "max") or bare in UNIT_LETTERS):
            self.add("text", bare)  # rule: an upright letter after a number is its unit
        elif bare == "R" and name in ("mathbf", "textbf"):
            self.add("sym", "RR")
        elif (
            (len(bare) == 1 and bare.isalpha())
            or bare in FUNCTIONS
            or bare in GREEK
            or bare in CONSTANT_WORDS
            or bare in ("mod",)
        ):
            self.letters(bare)
        elif _INNER_NUMBER.fullmatch(bare) or (
            name not in ("text", "mbox", "textbf", "textit", "hbox") and any(map(str.isdigit, bare))
        ):
            inner = _Lexer(bare)
            inner.depth = self.depth
            for token in inner.run():
                self.add(token.kind, token.text)
        elif _BOUND.fullmatch(bare):
            self.add("text", bare)
        elif (amount := _AMOUNT.fullmatch(bare)) is not None:
            for token in _Lexer(amount.group(1)).run():
                self.add(token.kind, token.text)
            self.add("text", amount.group(2))
        elif (joint := _UNIT_AND.fullmatch(bare)) is not None and self.after_number():
            self.add("text", joint.group(1))
            self.add("sep", joint.group(2))
        elif _NUMBERS.fullmatch(bare):
            for token in _Lexer(bare).run():
                self.add(token.kind, token.text)
        elif _TEXT_CONNECTIVE.search(bare) or bare in (",", ";"):
            words = re.findall(r"\b(and|or)\b", bare.lower())
            self.add("sep", words[0] if words else ",")
        else:
            self.add("text", bare)


def tokenize(text: str) -> list[Token]:
    r"""The tokens of a cleaned answer; `ParseError` on a character outside the grammar.

    >>> [t.text for t in tokenize("\\text{42}")]
    ['42']
    >>> [(t.kind, t.text) for t in tokenize("6 \\text{ and } 8")]
    [('num', '6'), ('sep', 'and'), ('num', '8')]
    """
    return _Lexer(text).run()
