r"""Finding `\boxed{...}`: the last complete one, and whether it is one of several candidates.

>>> text = "First \\boxed{1}. Corrected: \\boxed{\\frac{1}{2}}."
>>> box = last_box(text, 0, len(text)).box
>>> text[box.start:box.end]
'\\frac{1}{2}'
"""

from __future__ import annotations

import re
from typing import NamedTuple

from oar_bench.answers.characters import INVISIBLE_CLASS
from oar_bench.answers.regions import code_ranges, inside

MAX_TRIES = 64  # boxes looked at from the right before giving up
MAX_JOINED = 8
_OPEN = re.compile(rf"\\(?:boxed|fbox|framebox){INVISIBLE_CLASS}*\{{")
_BARE = re.compile(rf"\\(?:boxed|fbox){INVISIBLE_CLASS}*(-?\d[\d,]*(?:\.\d+)?)")
_NAMES = ("\\boxed", "\\fbox", "\\framebox")
_BRACE = re.compile(r"\\[{}\\]|[{}]")
_NOTHING = re.compile(rf"\\(?:boxed|fbox)|[{{}}$]|{INVISIBLE_CLASS}|\x00")
_GAP = re.compile(
    r"(?:\\q?quad(?![a-z])|\\[,;:!)(\]\[]|[\s$.,;:*])*(?:\\(?:text|mathrm|textbf)\s*\{)?\s*"
    r"(?P<word>or(?:,?\s+(?:maybe|perhaps|possibly|else|even|alternatively))?|and|,|;|\\quad)"
    r"\s*\}?(?:\s|\\quad|\\qquad|\\[,;:()\[]|\$)*"
)


class Box(NamedTuple):
    """A box: where its command begins, and the range of its content."""

    mark: int
    start: int
    end: int


class Found(NamedTuple):
    """The last box, the ones joined to it (itself last), and how they are joined."""

    box: Box | None
    unclosed: int | None = None  # where a box begins that never closes, behind all complete ones
    joined: tuple[Box, ...] = ()
    hedged: bool = False


def _close(text: str, start: int, end: int) -> int | None:
    """The place of the brace that closes the group whose content begins at `start`."""
    depth = 1
    for match in _BRACE.finditer(text, start, end):
        brace = match.group()
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if not depth:
                return match.start()
    return None


def _marks(text: str, start: int, end: int) -> list[int]:
    """Places of box commands from the right, at most `MAX_TRIES`."""
    places: list[int] = []
    names = [name for name in _NAMES if text.find(name, start, end) >= 0]
    limit = end
    while names and len(places) < MAX_TRIES:
        place = max(text.rfind(name, start, limit) for name in names)
        if place < start:
            break
        places.append(place)
        limit = place
    return places


def last_box(text: str, start: int, end: int) -> Found:
    """The last complete, non-empty box in a range.

    Rule: the last one wins; a box inside a box is read through the outer one; a box in program
    code counts only where there is no other.
    """
    if text.find("box", start, end) < 0:
        return Found(None)
    marks = _marks(text, start, end)
    ranges = code_ranges(text, start, end) if marks else []
    fallback: Box | None = None
    for rank, place in enumerate(marks):
        box = _box_at(text, place, end)
        if box is None:
            if _OPEN.match(text, place, end) is not None:
                return Found(fallback, unclosed=place)
            continue
        if not _NOTHING.sub("", text[box.start : box.end]):
            continue
        box = _outermost(text, box, marks[rank + 1 : rank + 9], end)
        if inside(place, ranges):
            fallback = fallback or box
            continue
        joined, hedged = _neighbours(text, box, marks[rank + 1 :], end)
        return Found(box, None, joined, hedged)
    return Found(fallback)


def _box_at(text: str, place: int, end: int) -> Box | None:
    opening = _OPEN.match(text, place, end)
    if opening is not None:
        close = _close(text, opening.end(), end)
        return None if close is None else Box(place, opening.end(), close)
    bare = _BARE.match(text, place, end)
    return None if bare is None else Box(place, bare.start(1), bare.end(1))


def _outermost(text: str, box: Box, earlier: list[int], end: int) -> Box:
    for place in earlier:
        outer = _box_at(text, place, end)
        if outer is not None and outer.end > box.end:
            box = outer
        else:
            break
    return box


def _neighbours(text: str, box: Box, earlier: list[int], end: int) -> tuple[tuple[Box, ...], bool]:
    """Boxes joined to this one by nothing but "and", "or" or a comma."""
    joined = [box]
    hedged = False
    for place in earlier[: MAX_JOINED - 1]:
        if place >= joined[0].mark:
            continue
        other = _box_at(text, place, end)
        if other is None or other.end >= joined[0].mark or joined[0].mark - other.end > 80:
            break
        gap = _GAP.fullmatch(text, other.end + 1, joined[0].mark)
        if gap is None:
            break
        hedged = hedged or gap.group("word").startswith("or")
        joined.insert(0, other)
    return (tuple(joined), hedged) if len(joined) > 1 else ((), False)
