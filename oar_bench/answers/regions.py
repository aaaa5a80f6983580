r"""Which part of a response counts: after the reasoning, before the end of the turn.

>>> text = "<think>\\boxed{1}</think> It is 2.<|im_end|> 3"
>>> start, end = answer_region(text)
>>> text[start:end]
' It is 2.'
>>> answer_region("<think> never closed") is None
True
"""

from __future__ import annotations

import re

_NAMES = (
    r"(?:think|thinking|thought|thoughts|reason|reasoning|reflection|scratchpad|analysis"
    r"|seed:think)"
)
_CLOSE = re.compile(
    rf"</\s*{_NAMES}\s*>|◁/think▷|\[/THINK\]|<\|end_of_thought\|>|<\|/think\|>"
    r"|<\|channel\|>final<\|message\|>|<\|end_thinking\|>|<\|END_THINKING\|>",
    re.IGNORECASE,
)
_OPEN = re.compile(
    rf"<\s*{_NAMES}\s*>|◁think▷|\[THINK\]|<\|begin_of_thought\|>|<\|think\|>"
    r"|<\|start_thinking\|>|<\|channel\|>analysis",
    re.IGNORECASE,
)
_END = re.compile(
    r"<\|(?:im_end|im_start|endoftext|eot_id|end|end_of_text|user|return|eom_id|start_header_id)\|>"
    r"|</s>|<end_of_turn>|<eos>|<｜end▁of▁sentence｜>|<\uff5c[^\uff5c]{0,40}\uff5c>"
)
# rule: a new question after an answer is not part of it
_NEXT = re.compile(
    r"\n[ \t]{0,8}(?:\*\*)?(?:Question|Problem|Q|User|Human|Instruction) {0,2}\d{0,4} {0,2}:"
)


def answer_region(text: str) -> tuple[int, int] | None:
    """The range in which an answer is looked for, or None while reasoning is still open.

    Rule: everything up to the last closing tag of reasoning is reasoning; a block that opens
    after it and never closes leaves no answer.
    """
    start, end = 0, len(text)
    if "<" in text or "◁" in text or "[/THINK]" in text or "[THINK]" in text:
        for match in _CLOSE.finditer(text):
            start = match.end()
        if _OPEN.search(text, start) is not None:
            return None
        for match in _END.finditer(text, start):
            if text[start : match.start()].strip():
                end = match.start()
                break
            start = match.end()
    return start, end


def before_next_question(text: str, start: int, end: int) -> int:
    r"""The place of the first new question after some text, or `end`.

    >>> before_next_question("#### 4\n\nQuestion: how many?", 0, 28)
    7
    """
    if "\n" not in text:
        return end
    while start < end and text[start].isspace():
        start += 1
    match = _NEXT.search(text, start, end)
    return end if match is None else match.start()


_FENCE = re.compile(r"```([A-Za-z+]*)")
_CODE = frozenset({"python", "py", "cpp", "c", "java", "javascript", "js", "bash", "sh", "sql",
                   "python3", "sympy", "julia", "rust", "go", "matlab", "c++"})  # fmt: skip


def code_ranges(text: str, start: int, end: int) -> list[tuple[int, int]]:
    r"""Ranges of fenced program code (fences without a language may hold an answer).

    >>> code_ranges("```python\nx = 7\n``` 8", 0, 21)
    [(0, 19)]
    """
    if "```" not in text:
        return []
    ranges: list[tuple[int, int]] = []
    opened: int | None = None
    language = ""
    for match in _FENCE.finditer(text, start, end):
        if opened is None:
            opened, language = match.start(), match.group(1).lower()
        else:
            if language in _CODE:
                ranges.append((opened, match.start() + 3))
            opened = None
    if opened is not None and language in _CODE:
        ranges.append((opened, end))
    return ranges


def inside(place: int, ranges: list[tuple[int, int]]) -> bool:
    """Whether a place lies in one of the ranges."""
    return any(low <= place < high for low, high in ranges)
