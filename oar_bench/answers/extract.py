r"""Where in a response its answer stands.

>>> extract_answer("So $x=\\boxed{\\frac{1}{2}}$.").text
'\\frac{1}{2}'
>>> extract_answer("The answer is 50 dollars.").how
'statement'
>>> extract_answer("<think>it is 4") is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from oar_bench.answers.boxes import Box, last_box
from oar_bench.answers.choices import choice_span
from oar_bench.answers.limits import MAX_RESPONSE_CHARS
from oar_bench.answers.phrases import NUMBER
from oar_bench.answers.regions import answer_region, before_next_question, code_ranges
from oar_bench.answers.statements import closing_value, hash_line, last_statement, last_tag
from oar_bench.answers.textual import foreign_script, has_words

AnswerType = Literal["math", "number", "choice", "exact"]
ExtractMode = Literal["auto", "boxed", "gsm8k"]

MAX_BARE_CHARS = 300


@dataclass(frozen=True)
class Extraction:
    """An answer and its place: `response[start:end] == text`."""

    text: str
    start: int
    end: int
    mark_start: int  # where the opening mark begins; == start if there is none
    how: str  # "boxed", "hedge", "hash", "tag", "statement", "closing", "bare", "choice"
    joined: tuple[str, ...] = ()  # contents of neighbouring boxes, this one last
    complete: bool = True  # whether something marks the end of the answer


def extract_answer(
    response: str, *, answer_type: AnswerType = "math", extract: ExtractMode = "auto"
) -> Extraction | None:
    r"""The answer of a response, or None.

    Rules, in order: text up to the last `</think>` never counts; the last complete box; an
    `<answer>` tag; the explicit statement or `####`; the closing formula or number. An unfinished
    box, tag or sentence is no answer. For `number` and `gsm8k` the first `####` comes first.

    >>> extract_answer("#### 42 (because 40+2)", answer_type="number").text
    '42 (because 40+2)'
    >>> extract_answer("It cannot be A. I say it's B", answer_type="choice").text
    'B'
    """
    offset = max(0, len(response) - MAX_RESPONSE_CHARS)
    region = answer_region(response[offset:] if offset else response)
    if region is None:
        return None
    start, end = region[0] + offset, region[1] + offset
    if answer_type == "exact":
        return _exact(response, start, end)
    if extract == "gsm8k" or answer_type == "number":
        found = hash_line(response, start, end, True, False)
        if found is not None:
            return _make(response, found, "hash", end)
        if extract == "gsm8k":
            end = before_next_question(response, start, end)
    boxed = last_box(response, start, end)
    if boxed.box is not None and boxed.unclosed is None:
        return _boxed(response, boxed.box, boxed.joined, boxed.hedged)
    if extract == "boxed":
        return None
    if boxed.unclosed is not None:
        return _after_unclosed(response, boxed.unclosed, end)
    tag = last_tag(response, start, end)
    if tag is not None:
        return _make(response, tag, "tag", len(response) + 1)
    if answer_type == "choice":
        choice = choice_span(response, start, end)
        if choice is None:
            return None
        low, high, mark, how = choice
        return Extraction(response[low:high], low, high, min(mark, low), how)
    return _unboxed(response, start, end, answer_type)


def _boxed(response: str, box: Box, joined: tuple[Box, ...], hedged: bool) -> Extraction:
    parts = tuple(response[b.start : b.end] for b in joined)
    if hedged:
        first = joined[0]
        text = response[first.start : box.end]
        return Extraction(text, first.start, box.end, first.mark, "hedge", parts)
    return Extraction(response[box.start : box.end], box.start, box.end, box.mark, "boxed", parts)


def _make(response: str, found: tuple[int, int, int], how: str, end: int) -> Extraction | None:
    low, high, mark = found
    if low >= high:
        return None
    complete = (
        how in ("tag",) or bool(response[high:end].strip(" \t*_`\"'$")) or "$" in response[high:end]
    )
    return Extraction(response[low:high], low, high, mark, how, (), complete)


def _after_unclosed(response: str, place: int, end: int) -> Extraction | None:
    """Rule: behind a box that never closes only a later explicit statement counts."""
    line = response.find("\n", place, end)
    if line < 0:
        return None
    found = last_statement(response, line, end)
    return None if found is None else _make(response, found, "statement", end)


def _unboxed(response: str, start: int, end: int, answer_type: str) -> Extraction | None:
    ranges = code_ranges(response, start, end)
    stop = before_next_question(response, start, end)
    if stop < end:
        early = _explicit(response, start, stop, ranges)
        if early is not None:
            return early if early.end > early.start else None
    found = _explicit(response, start, end, ranges)
    if found is not None:
        return found if found.end > found.start else None
    bare = _bare(response, start, end)
    if bare is not None:
        return bare
    if _DANGLING.search(response, max(start, end - 200), end):
        return None
    closing = closing_value(response, start, end, ranges)
    if closing is None:
        return None
    low, high = closing
    if low >= high:
        return None
    return Extraction(response[low:high], low, high, low, "closing", (), False)


def _explicit(
    response: str, start: int, end: int, ranges: list[tuple[int, int]]
) -> Extraction | None:
    """The last explicit statement; empty (start == end) where it is unfinished."""
    statement = last_statement(response, start, end, ranges)
    mark = hash_line(response, start, end, False, True)
    if mark is not None and (statement is None or mark[2] > statement[2]):
        return _make(response, mark, "hash", end)
    if statement is None:
        return None
    low, high, place = statement
    if low >= high or _UNFINISHED.fullmatch(response, low, high):
        return Extraction("", end, end, place, "statement", (), False)
    return _make(response, statement, "statement", end)


# rule: a command cut off in the middle is an unfinished sentence
_UNFINISHED = re.compile(r"[\s$(\[{]*\\(?:b|bo|box|boxe|boxed|f|fr|fra|frac|s|sq|sqr|sqrt)?[\s{]*")


# rule: a text that ends in a word or sign which cannot end a sentence is unfinished
_DANGLING = re.compile(
    r"(?:(?<![\\A-Za-z])(?:where|and|or|the|an|of|with|for|if|then|that|namely|because|since|is|are|was"
    r"|equals|by|from|which|when|whose|let|consider|plus|minus|times|to|we|must|than)|[=+<([{]|\\times"
    r"|\\cdot)\s*\Z"
)


_LABEL = re.compile(r"(?:A|Ans|ans|ANS|Sol|Solution)\s*[:.]\s*(?=\S)")


def _bare(response: str, start: int, end: int) -> Extraction | None:
    """A response that is nothing but an answer."""
    text = response[start:end]
    stripped = text.strip()
    if not stripped or len(stripped) > MAX_BARE_CHARS or "\n" in stripped:
        return None
    if has_words(stripped) and not (
        len(stripped.split()) <= 2 and "`" not in stripped and stripped[-1:].isalpha()
    ):
        return None
    # rule: letters of other scripts are running words, Greek ones may be names
    if foreign_script(stripped):
        return None
    low = start + text.index(stripped)
    label = _LABEL.match(stripped)
    if label is not None:
        low, stripped = low + label.end(), stripped[label.end() :]
    return Extraction(stripped, low, low + len(stripped), low, "bare", (), False)


def _exact(response: str, start: int, end: int) -> Extraction | None:
    """For built-in tasks: the rest of the line after `####`, else the last box."""
    found = hash_line(response, start, end, True, False)
    if found is not None:
        return _make(response, found, "hash", end)
    boxed = last_box(response, start, end)
    if boxed.box is None or boxed.unclosed is not None:
        return None
    return _boxed(response, boxed.box, (), False)


_NO_NUMBER = re.compile(
    r"(?:\b(?:not|cannot|never)|n['’]t)(?:\s+be)?\s+[$]?\d|^[\s$]*-?[\d.,]+\s+or\s+[$]?-?\d"
)


def first_number(text: str) -> str | None:
    """The number in an extracted answer of a number task.

    Rule: after the last "=", else the first number.

    >>> first_number("42 (because 40+2)"), first_number("x = 5")
    ('42', '5')
    """
    # rule: a denied number and a choice of numbers are no number
    if _NO_NUMBER.search(text):
        return None
    tail = text.rsplit("=", 1)[-1]
    match = NUMBER.search(tail) or NUMBER.search(text)
    return None if match is None else match.group()
