r"""Answers stated without a box: "the answer is", "Answer:", `####`, `<answer>`, the closing value.

>>> text = "Answer: 12 would be wrong.\nAnswer: 15"
>>> low, high, mark = last_statement(text, 0, len(text))
>>> text[low:high]
'15'
"""

from __future__ import annotations

import re

from oar_bench.answers.phrases import (
    NUMBER,
    joined_span,
    math_spans,
    number_at,
    reduce_phrase,
    trim,
)
from oar_bench.answers.regions import inside
from oar_bench.answers.textual import foreign_script, has_words

MAX_STATEMENTS = 24  # marks looked at from the right
MAX_STATEMENT_CHARS = 2_000
MAX_CLOSING_LINES = 12

_LEAD = re.compile(
    r"(?:(?:the|so|our|my|and|a|an|your|this|its)\s+)*(?:(?:final|correct|right|best|corrected|required|"
    r"desired|numerical|exact)\s+)*$",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"answers?\b(?P<deco>[*_\" \t]*+)"
    r"(?P<about>(?:(?:to|of|for|in|as|here|choice|option|now|thus|then|therefore|hence)\b[^.:\n=$]{0,80}?)?)"
    r"(?:\s*+[*_]*+\s*+(?P<link>\b(?:is|are|was|would be|will be|must be|should be|becomes|equals|"
    r"comes out to(?: be)?|seems? (?:like|to be))\b\s*:?|[:：=]|-\s|—|–)"
    r"|(?=\s*+(?:\$|\\\(|\\\[))|(?P<line>[*_#\s]*\n))",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"(?:答案|答え|答|정답|답|Ответ|ответ|الجواب|الإجابة|Antwort|[Rr]éponse|[Rr]espuesta|[Rr]isposta"
    r"|[Rr]esposta|उत्तर|[Oo]dpowiedź|[Cc]evap|[Đđ]áp án|[Ll]ösung|[Ss]varet?|[Aa]ntwoord|Відповідь)"
    r"[*_\s]*(?:final|finale|finala|correcta)?[*_\s]*(?:是|为|為|は|은|는|هو|هي|ist|lautet|est|es|è|é|là|to|:|：)"
    r"[\s:：*]*"
)
_FOREIGN_HINT = re.compile(r"Antwort|espuesta|isposta|esposta|Antwoord|antwoord|cevap|Cevap|svar")
_SENTENCE_END = re.compile(
    r"(?<!i\.e)(?<!e\.g)(?<!\bvs)\.(?=\s|$|[*\"”'`)]|<)|(?<=[^\d\s])\.(?=[A-Z])|\n|<\||[。！]|[?!](?=\s+[A-Z]|\s*$)"
)
_EMPTY_WORDS = re.compile(
    r"(?:correct|right|wrong|incorrect|above|below|as follows|therefore|hence|thus|found|obtained|"
    r"that|this|what|so|verified|consistent|reasonable|indeed|clear|known|we|complete|also|indeed|"
    r"unique|given|in the form|written)\b[^\d$\\]*",
    re.IGNORECASE,
)


# rule: a statement that the next sentence calls wrong is passed over
_TAKEN_BACK = re.compile(
    r"[\s.$*)]*(?:\b(?:that|this|it|which)\s+(?:is|was)\s+"
    r"(?:false|wrong|incorrect|not (?:right|correct))\b)",
    re.IGNORECASE,
)


def _marks(text: str, start: int, end: int) -> list[int]:
    """Places of the word "answer" from the right."""
    spellings = [word for word in ("nswer", "NSWER") if text.find(word, start, end) >= 0]
    places: list[int] = []
    limit = end
    while spellings and len(places) < MAX_STATEMENTS:
        place = max(text.rfind(word, start, limit) for word in spellings)
        if place <= start:
            break
        places.append(place - 1)
        limit = place
    return places


def last_statement(
    text: str, start: int, end: int, ranges: list[tuple[int, int]] | None = None
) -> tuple[int, int, int] | None:
    """(low, high, mark) of the last explicit statement; low == high where it is unfinished.

    Rule: the last statement wins; one that only speaks about the answer is passed over.
    """
    found = None
    for place in _marks(text, start, end):
        if (place and text[place - 1].isalpha()) or (ranges and inside(place, ranges)):
            continue
        match = _STATED.match(text, place, end)
        if match is None:
            continue
        if match.group("line") and not _heading(text, start, place):
            continue
        low, high = _sentence(text, match.end(), end)
        if _TAKEN_BACK.match(text, high, end):
            continue
        own_line = match.group("link") == ":" and "\n" in text[match.end() : low]
        if low < high and not own_line and _EMPTY_WORDS.fullmatch(text, low, high):
            continue
        lead = _LEAD.search(text, max(start, place - 40), place)
        found = (low, high, lead.start() if lead else place)
        break
    if not text.isascii() or _FOREIGN_HINT.search(text, start, end):
        foreign = list(_FOREIGN.finditer(text, start, end))
        last = foreign[-1] if foreign else None
        if last is not None and (found is None or last.start() > found[2]):
            low, high = _sentence(text, last.end(), end)
            found = (low, high, last.start())
    return found


def _heading(text: str, start: int, place: int) -> bool:
    """Whether only decoration and "final" stand before a place on its line."""
    line = text[max(start, text.rfind("\n", start, place) + 1) : place]
    return re.fullmatch(r"[\s*_#>\-✅]*(?:(?:the\s+)?final\s+)?", line, re.IGNORECASE) is not None


def _sentence(text: str, place: int, end: int) -> tuple[int, int]:
    """The answer in the sentence that begins at a place."""
    end = min(end, place + MAX_STATEMENT_CHARS)
    low, _ = trim(text, place, end)
    if low >= end:
        return place, place
    if text.startswith(("$", "\\(", "\\["), low):
        spans = math_spans(text, low, end)
        if spans and spans[0][0] - low <= 2:
            stop = _stop(text, spans[0][1], end)
            return reduce_phrase(text, low, stop)
    stop = _stop(text, low, end)
    return reduce_phrase(text, low, stop)


def _stop(text: str, low: int, end: int) -> int:
    spans = math_spans(text, low, end)
    for match in _SENTENCE_END.finditer(text, low, end):
        if not any(a <= match.start() < b for a, b in spans):
            return match.start()
    return end


_HASH = re.compile(r"####[ \t]*([^\n]*)")
_ANSWERISH = re.compile(r"[\s$*(\\{\[\-−+]*[\d\\$(]|\s*[A-Za-z]\s*(?:=|$)")


def hash_line(
    text: str, start: int, end: int, first: bool, strict: bool
) -> tuple[int, int, int] | None:
    r"""(low, high, mark) of the text after `####`; low == high where nothing follows.

    Rule: the first mark counts where the task asks for it (text may run on into a new question),
    else the last; with `strict` the line must look like an answer, since `####` is a heading too.

    >>> hash_line("#### 42 apples", 0, 14, True, False)
    (5, 14, 0)
    """
    if text.find("####", start, end) < 0:
        return None
    best = None
    for match in _HASH.finditer(text, start, end):
        if strict and not _ANSWERISH.match(match.group(1)):
            continue
        best = match
        if first:
            break
    if best is None:
        return None
    low, high = trim(text, best.start(1), best.end(1))
    return (low, high, best.start()) if low < high else (best.end(), best.end(), best.start())


def last_tag(text: str, start: int, end: int) -> tuple[int, int, int] | None:
    """(low, high, mark) of the last complete `<answer>...</answer>`; low == high if it is open."""
    if text.find("nswer>", start, end) < 0:
        return None
    lower = text[start:end].lower() if end - start < 200_000 else text[start:end]
    close = lower.rfind("</answer>")
    open_ = lower.rfind("<answer>")
    if open_ > close:
        return start + open_ + 8, start + open_ + 8, start + open_
    if close < 0:
        return None
    open_ = lower.rfind("<answer>", 0, close)
    if open_ < 0:
        return None
    low, high = trim(text, start + open_ + 8, start + close)
    return low, high, start + open_


_INEQUALITY = re.compile(
    r"(?:-?\d[\d./]*\s*(?:<=?|≤|\\leq?|\\lt)\s*)?(?<![A-Za-z\\])[A-Za-z](?:_\w)?\s*"
    r"(?:<=|>=|<|>|≤|≥|≠|\\(?:leq?|geq?|lt|gt|neq?)(?![a-z]))\s*-?\d[\d./]*"
)
_VALUE = r"[-+−]?(?:\\?[$])?[\d./√^*()]*[\d)]"
# rule: assignments that only "and", "or" or a comma separates are one closing answer
_ASSIGNMENTS = re.compile(
    rf"(?<![A-Za-z\\])[A-Za-z]\s*=\s*{_VALUE}(?:\s*(?:,\s*(?:and\s|or\s)?|and\s|or\s|;)\s*"
    rf"[A-Za-z]\s*=\s*{_VALUE}){{1,8}}"
)
# rule: a number that a text denies is no answer
_DENIED = re.compile(
    r"(?:\b(?:not|cannot|never|neither|nor)|n['’]t|≠|!=|\\neq?)(?:\s+(?:be|equal|to|exactly|really))*\s*\$?$"
)
_DENIED_AFTER = re.compile(
    r"[\s*_$)]*(?:\?|(?:is|was|are|were)\s+(?:wrong|incorrect|false|impossible|not|invalid|extraneous)\b)"
)
_ROOT = re.compile(r"(?:\d[\d.,]*\s?)?√\s?\(?\Z")
_UNIT_WORDS = re.compile(r"(?:\s+(?!and\b|or\b|to\b)[A-Za-z]{2,})+[\s.!]*$")
_FACTOR = re.compile(r"\s?\*?\s?(?:π|\\pi(?![a-z])|√\s?\d+|\\sqrt\s*\{\d+\}|pi\b)")
_CLOSING_LINK = re.compile(r"(?<![<>!=])=(?!=)|\b(?:is|are|equals|becomes)\b\s*:?|[：是为]|:\s")


def closing_value(
    text: str, start: int, end: int, ranges: list[tuple[int, int]]
) -> tuple[int, int] | None:
    r"""The last formula or number of the last line that has one.

    >>> text = "It costs $100 before tax. With 8% tax it costs $108."
    >>> text[slice(*closing_value(text, 0, len(text), []))]
    '$108'
    """
    stop = end
    for _ in range(MAX_CLOSING_LINES):
        while stop > start and text[stop - 1].isspace():
            stop -= 1
        if stop <= start:
            return None
        line = max(start, text.rfind("\n", start, stop) + 1, stop - MAX_STATEMENT_CHARS)
        display = _display(text, start, line, stop)
        if display is not None:
            return display
        if not inside(line, ranges):
            found = _last_value(text, line, stop)
            if found is not None:
                return found
        stop = line
    return None


def _display(text: str, start: int, line: int, stop: int) -> tuple[int, int] | None:
    """A displayed formula that ends on this line and began on an earlier one."""
    for opener, closer in (("\\[", "\\]"), ("$$", "$$")):
        if text[line:stop].rstrip(" .").endswith(closer):
            close = text.rfind(closer, line, stop)
            open_ = text.rfind(opener, max(start, close - MAX_STATEMENT_CHARS), close)
            if open_ >= 0 and open_ < line:
                return trim(text, open_ + 2, close)
    return None


def _last_value(text: str, low: int, high: int) -> tuple[int, int] | None:
    spans = math_spans(text, low, high)
    last = None
    for match in NUMBER.finditer(text, low, high):
        last = match
    if last is not None and spans and last.start() < spans[-1][1]:
        last = None
    if last is None:
        return joined_span(text, spans, len(spans) - 1) if spans else None
    if not spans:
        for match in _ASSIGNMENTS.finditer(text, low, high):
            if match.end() >= last.end():
                return match.span()
        # rule: what follows the last "=", "is" or colon is the value, unless words stand in it
        link = low
        for match in _CLOSING_LINK.finditer(text, low, high):
            if match.end() < last.end():
                link = match.end()
        value = trim(text, link, high)
        unit = _UNIT_WORDS.search(text, max(value[0], last.end()), value[1])
        # rule: words behind a value are its unit
        if unit is not None and _SENTENCE_END.search(text, last.end(), unit.start()) is None:
            value = trim(text, value[0], unit.start())
        if (
            link > low
            and not foreign_script(text[slice(*value)])
            and not has_words(text[slice(*value)])
        ):
            return value
        for match in _INEQUALITY.finditer(text, low, high):
            if match.end() >= last.end():
                return trim(text, match.start(), match.end())
    if _DENIED_AFTER.match(text, last.end(), high):
        return last.start(), last.start()
    if _DENIED.search(text, max(low, last.start() - 60), last.start()):
        return last.start(), last.start()
    rooted = _ROOT.search(text, low, last.start())
    if rooted is not None:  # rule: the sign of a root before a number belongs to it
        return rooted.start(), last.end() + text.startswith(")", last.end())
    number = number_at(text, last.start(), high)
    factor = _FACTOR.match(text, last.end(), high)
    if factor is not None:  # rule: a constant or root right behind a number multiplies it
        return last.start(), factor.end()
    return trim(text, *(number or last.span()))
