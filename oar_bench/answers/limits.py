"""Named limits of the grader, and the errors that say one was reached.

Every limit keeps some stage linear (or bounded) in the size of a text that nobody vouches for.
They are checked before work is done, never by interrupting it.

>>> nesting_depth("{{1}}")
2
"""

from __future__ import annotations

import re

MAX_RESPONSE_CHARS = 4_000_000  # a longer response is cut at the front: answers stand at the end
MAX_ANSWER_CHARS = 12_000  # a longer answer is compared as a string only
MAX_PARSE_CHARS = 12_000  # a longer answer is not parsed
MAX_NESTING = 24  # brackets in brackets; real answers stay under 10
MAX_TOKENS = 4_000
MAX_EXACT_BITS = 120_000  # an integer above this is handled by residues, not written out
MAX_EXPONENT = 4_000  # an expanded power of a sum of terms
MAX_TERMS = 400  # terms of a polynomial
MAX_STEPS = 20_000  # term products spent on one comparison
MAX_NAME_CHARS = 4_000  # the name of one exponential in a normal form
MAX_FUNCTIONS = 6  # functions of functions: each may double the size of a normal form
MAX_LIST_ITEMS = 400
MAX_MATCH_ITEMS = 40  # items of an unordered list that are matched pair by pair
MAX_PM_SIGNS = 4  # plus-minus signs expanded in one answer
MAX_WORKER_CHARS = 2_000  # a longer answer is not sent to a symbolic worker
WORKER_MEMORY_BYTES = 2 * 1024**3
INT_CHUNK = 4_000  # digits converted at once: Python refuses to convert more than 4300

_BRACKETS = re.compile(r"[{}()\[\]]")


class AnswerError(ValueError):
    """Base of everything a stage may raise on a strange answer."""


class LimitError(AnswerError):
    """A named limit was reached."""


class ParseError(AnswerError):
    """The text is not in the grammar of our parser."""


class UndefinedValueError(AnswerError):
    """The expression has no value: a division by zero, infinity minus infinity."""


class UndecidedError(AnswerError):
    """This stage cannot decide; a later one may."""


def nesting_depth(text: str) -> int:
    """The deepest bracket nesting in a text, unbalanced closers ignored.

    >>> nesting_depth("((1), [2])")
    2
    """
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match.group() in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif depth:
            depth -= 1
    return deepest


def digits_to_int(digits: str) -> int:
    """An integer from any number of decimal digits (Python's own conversion stops at 4300).

    >>> digits_to_int("1" + "0" * 5000) == 10**5000
    True
    """
    if len(digits) <= INT_CHUNK:
        return int(digits)
    value = 0
    for start in range(0, len(digits), INT_CHUNK):
        chunk = digits[start : start + INT_CHUNK]
        value = value * 10 ** len(chunk) + int(chunk)
    return value
