r"""The choice letter that a response settles on.

>>> text = "(A) is wrong. (C) is wrong. The answer is (B). (D) is a trap."
>>> low, high, mark, how = choice_span(text, 0, len(text))
>>> text[low:high], how
('B', 'statement')
"""

from __future__ import annotations

import re

from oar_bench.answers.statements import MAX_STATEMENT_CHARS
from oar_bench.answers.textual import choice_letter

_LETTERS = "A-HJ"  # "I" is a pronoun; it counts in brackets or alone
# Possessive runs: blanks without end must not be split in every way.
_FILL = r"[\s:*_\"'“”$\\(\[{]*+(?:\\?(?:text|textbf|mathrm|mathbf|boxed)\s*+\{)?[\s(*$]*+"
_TAIL = r"(?![A-Za-z0-9'’])"
_NEXT = re.compile(
    rf"{_FILL}(?:(?:option|choice|letter|answer)\s++)?[\s(\[*$\"']*+([A-Ja-j]){_TAIL}"
)
_TOKEN = re.compile(rf"(?<![A-Za-z0-9'’\\])\(?([{_LETTERS}])\)?{_TAIL}")
_ARTICLE = re.compile(r"\s+[a-z]")
_AFTER_LETTER = re.compile(
    r"\s+(?:because|since|as|and|or|for|with|which|is|was|in|on|by|but|so|if|due|that|based|rather"
    r"|instead|from|not|fits|works|holds|given|after|where|while|would|could|being|to)\b"
)
_ALSO = re.compile(
    r"[)\]\s*$}.]*(?:,|/|&|\+|\band\b|\bor\b|\\text\s*\{\s*(?:and|or)\s*\})(?:\s*(?:maybe|perhaps|also"
    rf"|possibly|option|choice))*[\s(\[*$]*([{_LETTERS}])(?![A-Za-z0-9'’])"
)
_ANSWER = re.compile(
    r"answer\b[*_\"\s]*(?:[^.:\n]{0,60}?\b(?:is|be|seems like|would be|must be)\b|[:：=]|-|—|\))"
    r"[\s:*_]*(?:most likely|probably|definitely|clearly|therefore|thus|then|hence|indeed"
    r"|for sure|without(?: a)? doubt|undoubtedly|still|actually|really|likely|now|always|only"
    r"|simply|just|certainly|surely|obviously)?",
    re.IGNORECASE,
)
_SETTLED = re.compile(
    r"(?:\b(?:it is|it['’]s|it must be|it has to be|must be|should be|that is|that['’]s|i say"
    r"|i choose|i pick|i select|i go with|going with|go with|choose|select|pick|picking"
    r"|choosing|settle on|conclude with|leaves|leaving|left with)"
    r"|\b(?:choice|option|letter|pick|solution|selection|alternative)\s*(?:is|would be|must be|:)"
    r"|\b(?:correct|right|best|final|only)\s+(?:one|choice|option|letter|answer)\s*(?:is|:))"
    r"\s*:?\s*(?:the\s+)?(?:definitely\s+|clearly\s+|probably\s+|option\s+|choice\s+|letter\s+|answer\s+)*",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    rf"(?<![A-Za-z])(?:option |choice |answer )?\(?([{_LETTERS}])\)?\s+is\s+(?:the\s+)?"
    r"(?:correct|right|best|true|valid|the answer|our answer|only)\b"
)
_IT_IS = re.compile(rf"(?<![A-Za-z])\(?([{_LETTERS}])\)? it is\b")
_CONCLUDED = re.compile(
    rf"\b(?:[Tt]hus|[Ss]o|[Tt]herefore|[Hh]ence|[Cc]onclusion),?:?\s*\(?([{_LETTERS}])\)?[.!]?\s*(?:\n|$)"
)
_FOREIGN = re.compile(
    r"(?:答案|正确答案|选项|故选|应选|选择|答え|정답|Ответ|ответ|Antwort|[Rr]éponse|[Rr]espuesta|[Rr]isposta|[Rr]esposta"
    r"|الجواب|الإجابة)[\s*_]*(?:是|为|為|は|은|는|ist|lautet|est|es|è|é|هو|هي)?[\s:：*]*(?:选项|选)?"
)
_LEADING = re.compile(
    rf"\s*[*_]*(?:\(([A-J])\)|([{_LETTERS}]))\s*[*_]*(?:[).:,。，、：]|—|–|-\s|\n|$|(?=[\u4e00-\u9fff]))"
)
_LONE = re.compile(r"[\s*_$\"']*+\(?\s*+([A-Za-z])\s*+\)?[\s.*_$\"']*+")
_NEGATED = re.compile(r"\b(?:not|never|neither|nor|cannot|except)\b|n['’]t\b")
_STOP = re.compile(r"[.\n]")
_BRACKETED = re.compile(r"\(([A-J])\)")


def _letter_after(text: str, place: int, end: int) -> tuple[int, int] | None:
    """The single letter that a sentence names right after a mark, or None.

    Rule: "a" before a lower-case word is an article; two joined letters are no choice.
    """
    match = _NEXT.match(text, place, end)
    if match is not None and _counts(text, match, end):
        return None if _ALSO.match(text, match.end(1), end) else match.span(1)
    return None


def _counts(text: str, match: re.Match[str], end: int) -> bool:
    letter = match.group(1)
    before = text[match.start(1) - 1 : match.start(1)]
    if letter.islower() and before not in ("(", "[", "*", "$", '"', "'", "{"):
        tail = text[match.end(1) : match.end(1) + 1]
        return (letter not in "ai" and (not tail or tail in ".)\n,:*")) or (
            (letter == "a" and bool(tail) and tail in ".)\n*") or not tail
        )
    if letter in "AI" and before not in ("(", "[", "*", "$", "{"):
        return not (
            _ARTICLE.match(text, match.end(1), end)
            and not _AFTER_LETTER.match(text, match.end(1), end)
        )
    return True


def choice_span(text: str, start: int, end: int) -> tuple[int, int, int, str] | None:
    """(low, high, mark, how) of the letter in a response without a box, or None.

    Rule: the last explicit statement counts, then a leading letter with a label mark, then a
    lone letter on the last line, then the only bracketed letter.
    """
    lone = _LONE.fullmatch(text, start, end)
    if lone is not None:
        return (*lone.span(1), lone.start(1), "choice")
    best: tuple[int, int, int, str] | None = None
    low_limit = max(start, end - 20 * MAX_STATEMENT_CHARS)
    for pattern, needs_capital in ((_ANSWER, False), (_SETTLED, True), (_FOREIGN, False)):
        for match in pattern.finditer(text, low_limit, end):
            if _NEGATED.search(match.group()):
                continue  # rule: what the answer is not is no statement
            span = _letter_after(text, match.end(), end)
            if span is None or (needs_capital and text[span[0]].islower()):
                if pattern is _ANSWER:
                    also = _later_letter(text, match.end(), end)
                    if also is not None and (best is None or match.start() >= best[2]):
                        best = (*also, match.start(), "statement")
                continue
            weight = match.start()
            if best is None or weight >= best[2] or pattern is _ANSWER:
                best = (*span, weight, "statement")
        if best is not None and pattern is _ANSWER:
            return best
    for match in _IS_RIGHT.finditer(text, low_limit, end):
        if best is None or match.start(1) > best[2]:
            best = (*match.span(1), match.start(), "statement")
    for match in (
        *_IT_IS.finditer(text, low_limit, end),
        *_CONCLUDED.finditer(text, low_limit, end),
    ):
        if best is None or match.start(1) > best[2]:
            best = (*match.span(1), match.start(), "statement")
    if best is not None:
        return best
    leading = _LEADING.match(text, start, end)
    if leading is not None and _ALSO.match(text, leading.end() - 1, end) is None:
        group = 1 if leading.group(1) else 2
        return (*leading.span(group), leading.start(group), "choice")
    last_line = text.rfind("\n", start, len(text[start:end].rstrip()) + start) + 1
    lone = _LONE.fullmatch(text, max(start, last_line), end)
    if lone is not None:
        return (*lone.span(1), lone.start(1), "choice")
    whole = text[start:end].strip()
    letter = choice_letter(whole) if len(whole) <= 80 else None
    if letter is not None:
        for match in re.finditer(rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])", whole, re.IGNORECASE):
            low = text.index(whole, start) + match.start()
            return low, low + 1, low, "choice"
    letters = list(_BRACKETED.finditer(text, low_limit, end))
    if letters and len({m.group(1) for m in letters}) == 1:
        return (*letters[-1].span(1), letters[-1].start(), "choice")
    return None


def _later_letter(text: str, place: int, end: int) -> tuple[int, int] | None:
    """The only standalone capital letter in the rest of a statement's sentence."""
    end = min(end, place + 400)
    stop = _STOP.search(text, place, end)
    high = stop.start() if stop is not None else end
    tokens = [
        m for m in _TOKEN.finditer(text, place, high)
        if not (m.group(1) == "A" and _ARTICLE.match(text, m.end(1), high)
                and not _AFTER_LETTER.match(text, m.end(1), high))
    ]  # fmt: skip
    if len({m.group(1) for m in tokens}) != 1 or _NEGATED.search(text, place, tokens[0].start()):
        return None
    return tokens[0].span(1)
