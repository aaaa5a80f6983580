r"""Answers in words, clock times, numerals in a base, and choice letters.

>>> text_key("\\text{East.}"), text_key("odd $n$")
('east', 'odd n')
>>> choice_letter("\\text{(C)}"), choice_letter("b. 4"), choice_letter("B, C")
('C', 'B', None)
"""

from __future__ import annotations

import re
from fractions import Fraction

from oar_bench.answers.limits import ParseError
from oar_bench.answers.literals import make_based
from oar_bench.answers.nodes import Node
from oar_bench.answers.words import BASE_WORDS, CONSTANT_WORDS, FUNCTIONS, GREEK, UNIT_WORDS

_FONT = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mathit|mbox|operatorname|textrm|emph"
                   r"|mathsf|textsf|underline|mathcal|texttt)\s*(?=\{)")  # fmt: skip
_DROPPED = re.compile(r"[{}$*\"`]|\\[ ,;:!]")
_SPACES = re.compile(r"\s+")
_EMPTY_SET = frozenset({
    "no solution", "no solutions", "no real solution", "no real solutions", "empty set",
    "the empty set", "\\emptyset", "there is no solution", "there are no solutions",
})  # fmt: skip


# rule: "it is" before words does not count
_IT_IS = re.compile(r"^it(?:'s| is) (?=[a-z]{3})(?!not )")
# rule: these words name the set of real numbers
ALL_REALS = re.compile(
    r"(?:x\s*(?:is|\\in|:)\s*)?(?:the )?(?:set of )?(?:all|any|every)? ?"
    r"real(?:s| numbers?| values?)"
    r"(?: of)?(?: x)?|all reals?"
)
ALL_REALS_BUT = re.compile(
    r"(?:the )?(?:set of )?(?:all )?real(?:s| numbers?| values?) except(?: for)? "
    r"(?:x ?= ?)?(-?[\d.,/ -]+)"
)


def text_key(cleaned: str) -> str:
    """Words without fonts, case, outer punctuation and repeated blanks."""
    text = _FONT.sub("", cleaned)
    text = _DROPPED.sub("", text).replace("~", " ").replace("\\ ", " ")
    text = _SPACES.sub(" ", text).strip(" .,;:!").casefold()
    text = _IT_IS.sub("", text)
    if len(text) == 3 and text[0] == "(" and text[2] == ")":
        text = text[1]
    return "no solution" if text in _EMPTY_SET else text


# rule: these runs of letters are words, not products of names
SHORT_WORDS = frozenset({
    "no", "yes", "on", "odd", "one", "two", "six", "ten", "all", "any", "red", "tan", "up", "not",
    "may", "sun", "mon", "tue", "wed", "thu", "fri", "sat", "boy", "cat", "dog", "god", "man",
    "men", "new", "old", "low", "top", "car", "cow", "hen", "pig", "ant", "bee", "day", "won",
    "win", "tie", "sum", "she", "he", "dne", "none", "tom", "bob", "sam", "ann", "amy", "joe",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
})  # fmt: skip

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


def foreign_script(text: str) -> bool:
    """Whether letters of a script other than Latin and Greek occur: running words.

    >>> foreign_script("12π"), foreign_script("4000千克")
    (False, True)
    """
    return not text.isascii() and any(
        c.isalpha() and not c.isascii() and not "Ͱ" <= c <= "Ͽ" for c in text
    )


_COMMANDS = re.compile(r"\\[A-Za-z]+|_\{[^{}]*\}")


def has_words(cleaned: str) -> bool:
    r"""Whether a text contains words that are neither functions, names, units nor connectives.

    >>> has_words("odd n"), has_words("2\\sin x"), has_words("35 cm")
    (True, False, False)
    """
    bare = _COMMANDS.sub(" ", _FONT.sub("", cleaned))
    return any(
        not (
            word in FUNCTIONS or word in GREEK or word in CONSTANT_WORDS or word in UNIT_WORDS
            or word in ("and", "or", "mod")
        )
        for word in _WORD.findall(bare)
    )  # fmt: skip


_TAIL_WORDS = re.compile(r"(?<=[\d)}%!])(\s*)([A-Za-z]+\.?(?:[\s/]+[A-Za-z]+\.?)*)$")


def mark_tail_words(cleaned: str) -> str:
    r"""Running words behind a number as text.

    Rule: words at the end, one of them of three letters or a known unit, none of them a function,
    name or connective, describe the number before them.

    >>> mark_tail_words("25 sq. ft"), mark_tail_words("2 sin x")
    ('25 \\text{sq ft}', '2 sin x')
    """
    place = max(0, len(cleaned) - 80)
    match = _TAIL_WORDS.search(cleaned, place)
    if match is None or (place and match.start() == place):
        return cleaned
    words = re.split(r"[\s/.]+", match.group(2).strip("."))
    if len(words) == 1 and not (match.group(1) or words[0] in UNIT_WORDS):
        return cleaned
    if any(
        word in FUNCTIONS or word in GREEK or word in CONSTANT_WORDS
        or word.lower() in ("and", "or", "mod", "choose", "base", "cup", "to")
        for word in words
    ) or not any(len(word) >= 3 or word in UNIT_WORDS for word in words):  # fmt: skip
        return cleaned
    return f"{cleaned[: match.start()]} \\text{{{' '.join(words)}}}"


_LEAD_WORDS = re.compile(
    r"((?:[A-Za-z]+[\s,]+){0,12}(?:is|are|equals|was|be|answer|result|total|value)\s*:?)\s*"
    r"(?=[-+\d\\($])"
)


def drop_lead_words(cleaned: str) -> str:
    """The value after an introduction.

    Rule: words that end in "is", "are" or a colon say what the value is.

    >>> drop_lead_words("The answer is 9"), drop_lead_words("June 20")
    ('9', 'June 20')
    """
    match = _LEAD_WORDS.match(cleaned)
    if match is None or any(word in ("not", "no") for word in match.group(1).lower().split()):
        return cleaned
    return cleaned[match.end() :]


_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(?:([ap])\.?\s*m\.?)?", re.IGNORECASE)


def clock(cleaned: str) -> tuple[int, int, int, str] | None:
    """A time of day as (hour, minute, second, "a"/"p"/""), or None.

    >>> clock("03:30"), clock("1:58 am")
    ((3, 30, 0, ''), (1, 58, 0, 'a'))
    """
    text = _DROPPED.sub("", _FONT.sub("", cleaned)).replace("~", " ").strip()
    match = _CLOCK.fullmatch(re.sub(r"\s*:\s*", ":", text).strip(" ."))
    if match is None:
        return None
    hour, minute, second, half = match.groups()
    if int(minute) > 59:
        return None
    return int(hour), int(minute), int(second or 0), (half or "").lower()


def same_clock(left: tuple[int, int, int, str], right: tuple[int, int, int, str]) -> bool:
    """Rule: times agree in hour, minute and second; a missing half of the day is any half."""
    return left[:3] == right[:3] and (not left[3] or not right[3] or left[3] == right[3])


_WORD_SEPARATOR = re.compile(r"\s*,\s*(?:and\s+)?|\s*;\s*|\s+and\s+|\s+or\s+")


def same_words(left: str, right: str) -> bool:
    """Whether two texts are the same words (rule: a list of words is unordered).

    >>> same_words("alice and bob", "bob, alice"), same_words("alice", "bob")
    (True, False)
    """
    if left == right:
        return True
    return sorted(_WORD_SEPARATOR.split(left)) == sorted(_WORD_SEPARATOR.split(right))


# rule: blanks group the digits of a numeral and do not count
_BASED = re.compile(r"\(?([0-9A-Za-z]+|\d+(?: \d+)+)\)? ?_ ?(?:base[ -]?)?\(?([A-Za-z]+|\d+)\)?")
_BASED_WORDS = re.compile(r"\(?([0-9A-Z]+)\)?,?\s*\(?\s*(?:in )?base[\s-]*\{?([a-z]+|\d+)\}?\)?")


def numeral(cleaned: str) -> Node | None:
    r"""A whole answer that is a numeral with a base, or None.

    >>> numeral("\\text{BAD}_{16}").text, numeral("204_{\\text{five}}").text, numeral("x_1")
    ('BAD 16', '204 5', None)
    """
    if "_" not in cleaned and "base" not in cleaned:
        return None
    text = _FONT.sub("", cleaned).replace("{", " ").replace("}", " ")
    text = _SPACES.sub(" ", text).strip()
    match = _BASED.fullmatch(text) or _BASED_WORDS.fullmatch(text)
    if match is None:
        return None
    digits, script = match.group(1).replace(" ", ""), match.group(2)
    base = int(script) if script.isdigit() and len(script) < 4 else BASE_WORDS.get(script, 0)
    if digits.isalpha() and (len(digits) < 2 or base < 11 or not digits.isupper()):
        return None
    try:
        return make_based(digits, base)
    except ParseError:
        return None


_ARC = re.compile(
    r"(-?\d+(?:\.\d+)?)\s*\^\{?\\circ\s*\}?\s*(\d+(?:\.\d+)?)\s*(?:'|\^\{?\s*\\prime\s*\}?)"
    r"\s*(?:(\d+(?:\.\d+)?)\s*(?:''|\"|\^\{\s*\\prime\s*\\prime\s*\}))?"
)


def arc(cleaned: str) -> Node | None:
    r"""Degrees, minutes and seconds of arc as degrees (rule: 60 to one), or None.

    >>> arc("1^{\\circ} 30'").args[0].number
    Fraction(3, 2)
    """
    if "circ" not in cleaned:
        return None
    match = _ARC.fullmatch(cleaned)
    if match is None:
        return None
    degrees, minutes, seconds = match.groups()
    part = Fraction(minutes) / 60 + Fraction(seconds or 0) / 3600
    value = Fraction(degrees)
    value = value - part if degrees.startswith("-") else value + part
    return Node("deg", (Node("num", (), "", value),))


_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*\)?")
_LABELLED = re.compile(
    r"(?:\(([A-Za-z])\)\s*\S|([A-Za-z])\s*[.):]\s*\S|(?-i:([A-HJ])) (?=[A-Z][a-z]|\d)(?!And|Or)).*",
    re.DOTALL,
)
_NAMED = re.compile(
    r"(?:the\s+)?(?:answer|option|choice|letter|ans)\s*(?:is)?\s*:?\s*\(?([A-Za-z])\)?[.):]?",
    re.IGNORECASE,
)


def choice_letter(text: str) -> str | None:
    """The one choice letter that an answer names, upper case, or None.

    Rule: a lone letter, a letter with a label mark and text behind it, or "option X".
    """
    bare = text_key_cased(text)
    match = _LETTER.fullmatch(bare) or _NAMED.fullmatch(bare)
    if match is not None:
        return match.group(1).upper()
    match = _LABELLED.fullmatch(bare)
    if match is not None:
        return (match.group(1) or match.group(2) or match.group(3)).upper()
    return None


def text_key_cased(cleaned: str) -> str:
    """Like `text_key`, with the case kept."""
    text = _DROPPED.sub("", _FONT.sub("", cleaned)).replace("\\ ", " ").replace("~", " ")
    return _SPACES.sub(" ", text).strip(" .,;:!")
