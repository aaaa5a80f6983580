"""Where a response states its answer: the text, its place, and how it was found."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Extraction:
    """An answer found in a response: `response[start:end]`, stripped, is `text`.

    `mark_start` is where the opening mark (`####`) begins, so that whatever precedes it is the
    reasoning; `how` names the rule that found it.
    """

    text: str
    start: int
    end: int
    mark_start: int
    how: str


_HASH = re.compile(r"####[^\S\n]*([^\n]*?)[^\S\n]*(?:\n|$)")


def extract_answer(response: str) -> Extraction | None:
    """The answer on the line of the first `####`, or None when there is none.

    >>> extract_answer("2 + 2 = 4 ; #### 4")
    Extraction(text='4', start=17, end=18, mark_start=12, how='hash')
    >>> extract_answer("2 + 2 = 4 ;") is None
    True
    """
    found = _HASH.search(response)
    if found is None or not found[1]:
        return None
    return Extraction(found[1], found.start(1), found.end(1), found.start(), "hash")
