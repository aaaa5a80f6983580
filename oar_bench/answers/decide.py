r"""One answer against one gold, in this process: every stage short of the symbolic workers.

>>> decide("\\frac{1}{2}", "0.5").verdict, decide("\\frac{1}{2}", "0.5").stage
(True, 'rational')
>>> decide("x(x+1)", "x^2+x").stage
'algebra'
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from oar_bench.answers.exact import same_fast
from oar_bench.answers.limits import (
    MAX_ANSWER_CHARS,
    MAX_WORKER_CHARS,
    LimitError,
    ParseError,
    UndecidedError,
    UndefinedValueError,
)
from oar_bench.answers.nodes import Node, free_symbols, walk
from oar_bench.answers.normalize import balanced, clean
from oar_bench.answers.parser import parse
from oar_bench.answers.structure import same_answer
from oar_bench.answers.textual import (
    ALL_REALS,
    ALL_REALS_BUT,
    SHORT_WORDS,
    arc,
    clock,
    drop_lead_words,
    has_words,
    mark_tail_words,
    numeral,
    same_clock,
    same_words,
    text_key,
)


class Decision(NamedTuple):
    """A verdict (None: the workers must tell), the stage that made it, and why."""

    verdict: bool | None
    stage: str
    reason: str


class Reading(NamedTuple):
    """A cleaned answer and its tree, or the error that the parser raised."""

    text: str
    words: str
    tree: Node | None
    error: str
    limited: bool


def read(text: str) -> Reading:
    """Cleans and parses one answer; never raises."""
    cleaned = clean(text)
    words = text_key(cleaned)
    tree = numeral(cleaned) or arc(cleaned)
    if tree is not None:
        return Reading(cleaned, words, tree, "", False)
    if "real" in words and ALL_REALS.fullmatch(words):
        return Reading(cleaned, words, Node("sym", (), "RR"), "", False)
    if "except" in words and (but := ALL_REALS_BUT.fullmatch(words)) is not None:
        cleaned = f"\\mathbb{{R}}\\setminus\\{{{but.group(1)}\\}}"
    try:
        return Reading(cleaned, words, parse(mark_tail_words(drop_lead_words(cleaned))), "", False)
    except LimitError as error:
        return Reading(cleaned, words, None, str(error), True)
    except ValueError as error:  # an AnswerError, or a number that Python refuses
        return Reading(cleaned, words, None, str(error), False)
    except RecursionError:
        return Reading(cleaned, words, None, "nested too deeply", True)


_read_cached = lru_cache(maxsize=4096)(read)


def decide(answer: str, gold: str, memo: bool = True) -> Decision:
    """The verdict on a bare answer, without workers; never raises."""
    answer, gold = answer.strip(), gold.strip()
    if not answer:
        return Decision(False, "limits", "the answer is empty")
    fast = same_fast(answer, gold)
    if fast is not None:
        return Decision(fast, "rational", "both are plain numbers")
    if answer == gold:
        return Decision(True, "exact", "the strings are equal")
    if len(answer) > MAX_ANSWER_CHARS or len(gold) > MAX_ANSWER_CHARS:
        return Decision(False, "limits", f"longer than {MAX_ANSWER_CHARS} characters")
    reader = _read_cached if memo else read
    left, right = reader(answer), reader(gold)
    if not left.text:
        return Decision(False, "limits", "the answer is empty")
    if left.text == right.text:
        return Decision(True, "exact", "the cleaned strings are equal")
    fast = same_fast(left.text, right.text)
    if fast is not None:
        return Decision(fast, "rational", "both are plain numbers")
    times = clock(left.text), clock(right.text)
    if times[0] is not None and times[1] is not None:
        return Decision(same_clock(times[0], times[1]), "text", "both are times of day")
    if (
        left.words == right.words
        and left.words
        and (has_words(left.text) or has_words(right.text) or "\\text" in left.text + right.text)
    ):
        return Decision(True, "text", "the same words")
    return _by_structure(left, right)


def _by_structure(left: Reading, right: Reading) -> Decision:
    if left.words in SHORT_WORDS and right.words.isalpha():
        return Decision(left.words == right.words, "text", "short words")
    if left.tree is None or right.tree is None:
        return _unparsed(left, right)
    if _one_letter(left.tree) and _one_letter(right.tree):
        # rule: a letter from A to E may label a choice; other letters are names, and case counts
        either = left.words if left.words in "abcde" else left.text.strip("()")
        other = right.words if right.words in "abcde" else right.text.strip("()")
        same = either == other
        return Decision(same, "text", "single letters")
    try:
        verdict = same_answer(_imaginary(left.tree, right.tree), right.tree)
        return Decision(verdict, "algebra", "compared in normal form")
    except UndecidedError as error:
        if any(n.kind == "opaque" for side in (left.tree, right.tree) for n in walk(side)):
            return _worker(left, right, str(error))
        return Decision(same_words(left.words, right.words), "text", str(error))
    except UndefinedValueError as error:
        return Decision(False, "algebra", str(error))
    except (LimitError, RecursionError) as error:
        return Decision(False, "limits", str(error))


def _one_letter(node: Node) -> bool:
    return node.kind == "sym" and len(node.text) == 1


def _imaginary(answer: Node, gold: Node) -> Node:
    """Rule: j or I is the imaginary unit where the gold is complex and has no such name."""
    for name in free_symbols(answer) & {"j", "I"}:
        if name not in free_symbols(gold) and any(
            n.kind == "sym" and n.text == "i" for n in walk(gold)
        ):
            return _rename(answer, name)
    return answer


def _rename(node: Node, name: str) -> Node:
    if node.kind == "sym" and node.text == name:
        return node._replace(text="i")
    args = tuple(_rename(arg, name) for arg in node.args)
    return node._replace(args=args) if args else node


def _unparsed(left: Reading, right: Reading) -> Decision:
    if left.words and _IDLE_SPACE.sub("", left.words) == _IDLE_SPACE.sub("", right.words):
        return Decision(True, "text", "the same text")
    error = left.error or right.error
    if left.limited or right.limited:
        return Decision(False, "limits", error)
    for side in (left, right):
        if side.tree is None and (has_words(side.text) or not _SYMBOLIC.search(side.text)):
            # rule: what is neither in the grammar nor a sum, integral, limit or derivative is
            # compared as text only: lenient parsers read a part of it and call that equal
            return Decision(False, "text", f"not mathematics that we read ({side.error})")
        if side.tree is not None and side.tree.kind == "text":
            return Decision(False, "text", "words against something else")
    return _worker(left, right, error)


_IDLE_SPACE = re.compile(r"(?<![\dA-Za-z]) | (?![\dA-Za-z])")
_SYMBOLIC = re.compile(
    r"\\(?:int|iint|sum|prod|lim|partial|begin\s*\{cases\}|frac\s*\{\s*d|oint|max|min|sup|inf)(?![a-z])"
)
_TOWER = re.compile(r"\^\s*\{?[^{}^]{0,20}\^\s*\{?(?:[^{}^]{0,20}\^|\s*[a-z])")
_INDEX = re.compile(r"\\(?:sum|prod)\s*_\s*\{\s*([a-z])\s*=")
_HIGH_POWER = re.compile(r"[A-Za-z)]\s*\^\s*\{?\s*\d{3,}|\b([a-z])\s*\^\s*\{?\s*\1\b")
_LONG_RANGE = re.compile(r"\^\s*\{?\s*(?:\d{6,}|\d+\s*\^)")


def _worker(left: Reading, right: Reading, reason: str) -> Decision:
    if max(len(left.text), len(right.text)) > MAX_WORKER_CHARS:
        return Decision(False, "limits", f"longer than {MAX_WORKER_CHARS} characters")
    for text in (left.text, right.text):
        # rule: towers of powers and sums over a million terms are beyond any symbolic stage
        if _TOWER.search(text) or _LONG_RANGE.search(text):
            return Decision(False, "limits", "too large for the symbolic stage")
        if _HIGH_POWER.search(text):
            # rule: powers over 99, and of a name by itself, are beyond any symbolic stage
            return Decision(False, "limits", "too large for the symbolic stage")
        index = _INDEX.search(text)
        if index is not None and re.search(
            rf"[A-Za-z]_\{{?[^{{}}]{{0,20}}{index.group(1)}", text[index.end() :]
        ):
            # rule: a sum over the terms of an unknown sequence is compared as text only
            return Decision(False, "text", "a sum over an unknown sequence")
        if not balanced(text):
            return Decision(False, "text", "a group that never closes")
    return Decision(None, "symbolic", reason)


__all__ = ["Decision", "ParseError", "Reading", "decide", "read"]
