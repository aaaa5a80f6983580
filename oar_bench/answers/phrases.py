r"""From a phrase around an answer to the answer's own characters.

>>> text = "72, in all, so that is the income"
>>> low, high = reduce_phrase(text, 0, len(text))
>>> text[low:high]
'72'
"""

from __future__ import annotations

import re

_MATH = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\$)((?:\\.|[^$\\\n]){1,400}?)(?<!\\)\$"
    r"|\\\((.+?)\\\)|\\\[(.+?)\\\]",
    re.DOTALL,
)
_CURRENCY = re.compile(
    r"\s*\d[\d,.]*\s*(?:[A-Za-z]{2,}|[-+*/=,.;:]\s*$|and\b|[-+*/=]\s*$|\.\s|\s*$)"
)
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?:[\s,]+[A-Za-z]{2,}){2,}")
NUMBER = re.compile(
    r"(?:(?<![\w.)])[-−+]\s?)?(?:\\?[$€£¥]\s?)?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+(?![\w.])|\s?(?:\*|x|×|\\times|\\cdot)\s?10\s?(?:\^|\*\*)\s?\{?[-−+]?\d+\}?)?"
    r"(?:\s?/\s?\d+(?![\w.]*/)|:\d+(?::\d+)*|\s\d+/\d+)?"
    r"(?:\s?\\?%|\s(?:hundred|thousand|million|billion|trillion)\b)?"
)
_CLAUSE = re.compile(
    r"\s*(?:,|;|—|–|\()?\s+(?:because|since|which|where|therefore|hence|thus|"
    r"(?:so|such) that|not|rather than|instead of|in all|all told|in total|"
    r"as (?:required|desired|expected|needed|claimed|shown|well)|"
    r"and this|and that|and so|but|while|given that|meaning|making|assuming|"
    r"after|when|if|per|every|at the|on the|in the|is|was|would)\b"
    r"|\s*[,;]\s*(?:so|and then|as|for|with|by|in|or rather|giving|that)\s"
    r"|\s*,?\s*\b(?:i\.e\.|e\.g\.|viz\.|namely)"
    r"|\s+(?:—|–|--)\s+|\s+\((?=[a-z])|\s*[;]\s*(?=[a-z]{2})"
)
_LINK = re.compile(
    r"(?:^|(?<=[\s,:)$]))(?:is|are|equals?|equal to|becomes|gives|was|be|=|to be|makes|yields"
    r"|est|vaut|ist|son|es)"
    r"\s*:?\s+|[是为為]\s*|:\s+"
)
_WORDS_ONLY = re.compile(r"[\s,]*[^\W\d_]{2,}(?:[\s,'’()-]+[^\W\d_]+)*[\s.,!?)]*")
# rule: adverbs before the value do not change it
_FILLER = re.compile(
    r"(?:(?:approximately|about|roughly|around|exactly|simply|just|therefore|thus|then|hence|indeed"
    r"|clearly|equal to|given by|obviously|precisely|only|actually|now)"
    r"[,:]?\s+)+(?=[-+\d$\\(\[*A-Z])"
)
# rule: words of another script behind a value are its unit
_FOREIGN_UNIT = re.compile(
    r"(?<=[\d)}\]%])\s*[\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]+$"
)
_THIS = re.compile(r"(?:This|That|There|These) ")
_YES_NO = re.compile(r"(yes|no)\b[,;]", re.IGNORECASE)  # rule: what follows only explains it
_OTHERWISE = re.compile(r"\botherwise\b|\bif\b.*\bif\b")  # rule: an answer by cases is not cut
# rule: what "i.e." explains words with is the value
_THAT_IS = re.compile(r"[A-Za-z -]{1,40}, ?(?:i\.e\.|that is),? ?(?=[-+\d$\\])")
_TRIM_LEFT = re.compile(r"[\s:*_\"“”`>＊：]+")
_TRIM_RIGHT = ' \t\r\n*_"“”`.,;:!。，；：＊'


def math_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    r"""Contents of `$...$`, `$$...$$`, `\(...\)` and `\[...\]` in a range.

    Rule: dollars around running words, or a number and words, are amounts of money.

    >>> math_spans("It costs $100 before tax and $108 after.", 0, 40)
    []
    >>> math_spans("so $x=4$", 0, 8)
    [(4, 7)]
    """
    spans: list[tuple[int, int]] = []
    place = start
    while (match := _MATH.search(text, place, end)) is not None:
        group = match.lastindex or 0
        content = match.group(group) if group else ""
        if (
            group == 2
            and (_CURRENCY.match(content) or _PROSE.search(_without_text(content)))
            and (_PROSE.search(content) or not _closed_amount(content))
        ):
            place = match.start() + 1
            continue
        if content[:1] not in "?!" and content.strip():
            spans.append(match.span(group))
        place = match.end()
    return spans


def _closed_amount(content: str) -> bool:
    """A lone number between dollars is a formula, not money."""
    return re.fullmatch(r"\s*[-+]?\d[\d,.]*\s*(?:\\?%|[A-Za-z]{1,3})?\s*", content) is not None


def _without_text(content: str) -> str:
    return re.sub(r"\\(?:text|mathrm|mbox|textbf|operatorname)\s*\{[^{}]*\}", "", content)


_JOIN = re.compile(r"(?:\$|\\\)|\\\])\s*(?:,|;|,?\s*and|,?\s*or|&)\s*(?:\$|\\\(|\\\[)")


def joined_span(text: str, spans: list[tuple[int, int]], last: int) -> tuple[int, int]:
    """A formula with those before it that only "and", "or" or a comma separates from it."""
    low, high = spans[last]
    while last > 0 and _JOIN.fullmatch(text, spans[last - 1][1], low):
        last -= 1
        low = spans[last][0]
    return low, high


def trim(text: str, low: int, high: int) -> tuple[int, int]:
    """A range without blanks, markdown and final punctuation at its ends."""
    match = _TRIM_LEFT.match(text, low, high)
    if match is not None:
        low = match.end()
    while high > low and (
        text[high - 1] in _TRIM_RIGHT
        or (text[high - 1] > "\u2600" and not text[high - 1].isalnum())
    ):  # the second: emoji and ornaments
        if text[high - 1] in ".," and text[high - 2 : high - 1] == "\\":
            break
        high -= 1
    return low, high


def number_at(text: str, low: int, high: int) -> tuple[int, int] | None:
    """The number that a range begins with."""
    match = NUMBER.match(text, low, high)
    return None if match is None else match.span()


def reduce_phrase(text: str, low: int, high: int) -> tuple[int, int]:
    r"""The answer within the words after "the answer is".

    Rules: trailing clauses go; what follows the last "is" counts; a formula among words is the
    answer; a number followed by nothing but words is the answer.

    >>> text = "the greatest $n$ is 34"
    >>> text[slice(*reduce_phrase(text, 0, len(text)))]
    '34'
    """
    low, high = trim(text, low, high)
    that_is = _THAT_IS.match(text, low, high)
    if that_is is not None:
        low = that_is.end()
    filler = _FILLER.match(text, low, high)
    if filler is not None:
        low = filler.end()
    spans = math_spans(text, low, high)
    if spans and text[low:high].startswith(("$", "\\(", "\\[")):
        first = 0
        while first + 1 < len(spans) and _JOIN.fullmatch(
            text, spans[first][1], spans[first + 1][0]
        ):
            first += 1
        tail = text[spans[first][1] : high]
        # rule: a formula at the start is the answer, unless the sentence goes on to another value
        if spans[0][0] - low <= 2 and not re.match(
            r"(?:\$\$?|\\\)|\\\])\s*(?:is|are|=|equals)\s", tail
        ):
            return spans[0][0], spans[first][1]
    short = _YES_NO.match(text, low, high)
    if short is not None:
        return short.span(1)
    if not _in_spans(low, spans) and not _OTHERWISE.search(text, low, high):
        clause = _CLAUSE.search(text, low, high)
        while clause is not None and (
            clause.start() == low or _in_spans(clause.start(), spans)
            or re.match(r"\s*(?:is|was|would)\b", text[clause.start():clause.end()])
            or not re.search(r"[\d$\\]|[A-Z]", text[low : clause.start()])
        ):  # fmt: skip
            clause = _CLAUSE.search(text, clause.end(), high) if clause.end() < high else None
        if clause is not None and not _linked_later(text, clause.start(), high, spans):
            high = clause.start()
    # rule: a sentence about "this" without a number is an answer as a whole
    whole = _THIS.match(text, low, high) and not re.search(r"[\d$\\]", text[low:high])
    for match in () if whole else _LINK.finditer(text, low, high):
        if not _in_spans(match.start(), spans) and match.end() < high and match.start() > low:
            if match.group().strip() == "=" or text[match.start() - 1] == "=":
                continue
            low = match.end()
    low, high = trim(text, low, high)
    spans = math_spans(text, low, high)
    if spans:
        return joined_span(text, spans, len(spans) - 1)
    number = number_at(text, low, high)
    if number is not None and _WORDS_ONLY.fullmatch(text, number[1], high):
        return number
    foreign = _FOREIGN_UNIT.search(text, low, high)
    if foreign is not None:
        return low, foreign.start()
    return only_number(text, low, high) or (low, high)


# rule: beside these words a number is not the value of its sentence
_CHANGED = re.compile(
    r"(?:\b(?:not|no|never|than|least|most|of|root|minus|negative|times|plus|over|under|twice|half|log"
    r"|between|from|by|until|exceed|exceeds|below|above|base|cannot|divided|neither|nor|either)"
    r"|n['’]t|[+*/^=<>~√-])\s*$",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\s*(?:factorial|hundred|thousand|million|billion|dozen|squared|cubed|times|or|to|and|plus|minus"
    r"|more|less|fewer|choose|mod|modulo|divided|over|half|halves|thirds|is|are)\b|\s*[+*/^=<>~-]"
)
_RUNNING_WORD = re.compile(r"[^\W\d_]{2,}")


def only_number(text: str, low: int, high: int) -> tuple[int, int] | None:
    """Rule: the only number of a sentence is its value, unless a word beside it changes it.

    >>> text = "Janet has 220 dollars left"
    >>> text[slice(*only_number(text, 0, len(text)))]
    '220'
    >>> only_number("it is not 5", 0, 11) is None
    True
    """
    numbers = list(NUMBER.finditer(text, low, high))
    if len(numbers) != 1 or any(char in "\\$_{" for char in text[low : numbers[0].start()]):
        return None
    start, end = numbers[0].span()
    before = text[low:start]
    if len(_RUNNING_WORD.findall(before)) < 2 or text[start - 1 : start].isalnum():
        return None
    if _CHANGED.search(before) or _CHANGES.match(text, end, high) or text[end : end + 1].isalpha():
        return None
    return None if re.search(r"\b(?:not|never|no|cannot)\b|n['’]t", before) else (start, end)


def _in_spans(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(low <= place < high for low, high in spans)


def _linked_later(text: str, place: int, high: int, spans: list[tuple[int, int]]) -> bool:
    """Whether the answer itself comes after a clause ("the least n for which ... is 5")."""
    if re.search(r"\d", text[:place].rsplit("\n", 1)[-1][-12:]):
        return False
    return any(
        m.start() > place
        and not _in_spans(m.start(), spans)
        and m.group().strip(" :") in ("is", "are")
        for m in _LINK.finditer(text, place, high)
    )
