r"""One spelling for what means the same: unicode, LaTeX layout, thousands, units of typography.

`clean` removes what carries no meaning (sizes, colours, spacing, invisible characters, math
delimiters) and rewrites unicode signs as LaTeX commands. It never changes a value.

>>> clean("$\\displaystyle \\dfrac{1}{2}$.")
'\\frac{1}{2}'
>>> clean("x² ≤ 4½")
'x^{2} \\le  4 \\frac{1}{2}'
"""

from __future__ import annotations

import re

from oar_bench.answers.characters import plain_characters
from oar_bench.answers.limits import MAX_ANSWER_CHARS

_LAYOUT = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|middle|bigl|bigr|Bigl|Bigr"
    r"|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|large|Large|LARGE|huge|Huge|small|normalsize"
    r"|tiny|boldsymbol|bm|phantom|hfill|strut|unicode|noindent|bf|it|sf|tt)(?![A-Za-z])\.?"
)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?(?!begin|end)")
_FRACTIONS = re.compile(r"\\(?:[dtcs]|nice|flat|x)frac(?![A-Za-z])")
_OVER = re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}|^([^{}]*)\\over(?![A-Za-z])([^{}]*)$")
_PRIMES = re.compile(r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|\\prime(?![A-Za-z]))")
_NUMPY = re.compile(r"\b(?:np|numpy|math|sp|sympy|cmath)\.(?=[a-z])")
_POSITIVE = re.compile(
    r"\\mathbb\s*\{?R\}?\s*(?:[\^_]\s*\{?\s*(?:([+-])|(>|<|\\ge|\\le|\\geq|\\leq)\s*0)\s*\}?)"
)
_UNION_LETTER = re.compile(r"(?<=[\])])\s*U\s*(?=[\[(])")
_DEGREE_LETTER = re.compile(r"(?<=\d)\s*\^\s*(?:\{\s*o\s*\}|o(?![A-Za-z]))")
_US_DOLLAR = re.compile(r"\b(?:US|HK|NZ|AU|CA|A|C|S)\s*\\?\$")
# rule: a name of money before a number is a currency sign
_CURRENCY_NAME = re.compile(r"^\s*(?:Rs\.?|INR|USD|EUR|GBP|RMB|CNY|JPY|CAD|AUD)[\s~]*(?=\d)")
# rule: C or F behind a degree sign names the scale and does not count
_DEGREE_SCALE = re.compile(r"(\\circ\s*\}?)\s*(?:\\(?:text|mathrm)\s*\{~?\s*[CF]\s*\}|[CF])$")
# rule: a fraction of words behind a value is its unit
_UNIT_FRACTION = re.compile(
    r"(?<=[\d}])\s*\\frac\s*\{\\(?:text|mathrm)\s*\{([^{}\d]*)\}\}"
    r"\s*\{\\(?:text|mathrm)\s*\{([^{}\d]*)\}(?:\^\{?\d\}?)?\}$"
)
_TO_RATIO = re.compile(r"(\d+)\s*(?:\\text\s*\{\s*to\s*\}|to)\s*(\d+)")
_COLOR = re.compile(r"\\(?:textcolor|colorbox)\s*\{[^{}]*\}|\\color\s*(?:\{[^{}]*\}|\[[^\]]*\])")
_NEGATIVE_SPACE_COMMA = re.compile(r"(?<=\d),\\!\s*(?=\d{3})")
_BRACED_COMMA = re.compile(r"(?<=\d) ?\{,\s?\}(?:\\!)?\s*(?=\d{3})")
# rule: a power of ten in words behind a number is a factor
_SCALE = re.compile(
    r"(?<=\d)(?:\\?[ ~]|\\[,;])*(\\(?:text|mathrm)\s*\{)?\s*"
    r"(hundred|thousand|million|billion|trillion)s?\b"
)
_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# rule: a decimal that repeats its last digits before an ellipsis goes on like that
_ELLIPSIS = re.compile(r"(?<![\d.])(\d*\.\d*?)(\d{1,6}?)\2{2,}\s*\\ldots\s*$")
_ALIGNMENT = re.compile(
    r"\\(?:begin|end)\s*\{(?:aligned|align\*?|gathered|gather\*?|equation\*?|split|math|center)\}"
)
# rule: marks of layout and the end of a proof carry no value
_IDLE = re.compile(
    r"\\[vh]?phantom\s*\{[^{}]*\}|\\(?:checkmark|relax|blacksquare|square|qed|qedhere|null|protect"
    r"|pounds|euro|yen|texteuro|textdollar|textsterling|cent|allowbreak|nobreak|par)(?![A-Za-z])"
)
# rule: a sign that leads to a value is not part of it
_LEADING = re.compile(
    r"^(?:=(?!=)|\\(?:therefore|Rightarrow|implies|Longrightarrow)(?![A-Za-z])|\s)+"
)
_AMPERSAND = re.compile(r"\s\\?&\s")
_DERIVATIVE = re.compile(r"\bd([a-z])/d([a-z])\b")
_HTML = re.compile(r"</?(?:b|i|u|em|strong|span|p|br|code|center|div|mark)\s*/?>")
_TEXT_IS = re.compile(r"^(\\?[A-Za-z]+)\s*\\text\s*\{\s*(?:is|equals)\s*\}")
_OHM = re.compile(r"(?<=\d)(?:\\[ ,;]|~|\\mathrm|\s)+\{?(?:k|M|\\mu)?\s*\\Omega\s*\}?$")
_MICRO = re.compile(
    r"(?<=\d)(?:\\[ ,;]|~|\s)+\\mu\s*(?:\\(?:text|mathrm)\s*\{\s*([A-Za-z])\s*\}|([mgslFCA]))$"
)
_SPACED_DIGITS = re.compile(
    r"(?<![\d.,{])\d{1,3}(?:(?:\\[,;: ]|~| |\\thinspace |\{ \}|\\!)\d{3})+(?![\d])"
)
_SPACING = re.compile(
    r"\\(?:[,;:! ]|quad|qquad|thinspace|enspace|hspace\s*\{[^{}]*\}|hskip|kern|mathstrut)"
    r"(?![A-Za-z])|~"
)
_SPACING_LETTERS = re.compile(r"\\(?:[,;:! ])")
_REPEATING = re.compile(
    r"(?<![\d.])(\d*)\.(\d*)\s*\\(?:overline|bar|dot|overdot)\s*(?:\{(\d+)\}|(\d))"
)
_DELIMITERS = re.compile(r"\$\$|\\\(|\\\)|(?<!\\)\\\[|(?<!\\)\\\]")
_TIMES_X = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))|(?<=\d)\s+[xX]\s+(?=\d)")
_TAIL = " \t\r\n.,;:\\"
_FRENCH_INTERVAL = re.compile(r"^\]([^\[\]]*[,;][^\[\]]*)\[$")
_BOX = re.compile(r"^\\+(?:boxed|fbox)\s*\{(.*)\}$", re.DOTALL)
_ALIAS = re.compile(
    r"\\(leqslant|leqq|leq|geqslant|geqq|geq|neq|lt|gt|lvert|rvert|vert|mid|lbrace|rbrace|lbrack"
    r"|rbrack|dots|cdots|dotsc|dotsb|varnothing|times|ast|div|infin|backslash|dbinom|tbinom"
    r"|degree|land|wedge|lor|vee|colon|varepsilon|varphi|thicksim|approxeq|bigcup|bigcap|smallsetminus"
    r"|dim|deg|Pr|arg|lparen|rparen|exponentialE|imaginaryI|uppi|Reals)(?![A-Za-z])"
)
_ALIASES = {
    "leqslant": "\\le ", "leqq": "\\le ", "leq": "\\le ", "geqslant": "\\ge ", "geqq": "\\ge ",
    "geq": "\\ge ", "neq": "\\ne ", "lt": "<", "gt": ">", "lvert": "|", "rvert": "|",
    "vert": "|", "mid": "\\mid ", "lbrace": "\\{", "rbrace": "\\}", "lbrack": "[",
    "rbrack": "]", "dots": "\\ldots ", "cdots": "\\ldots ", "dotsc": "\\ldots ",
    "dotsb": "\\ldots ", "varnothing": "\\emptyset ", "times": "\\times ", "ast": "*",
    "div": "/", "infin": "\\infty ", "backslash": "\\setminus ", "dbinom": "\\binom",
    "tbinom": "\\binom", "degree": "^{\\circ}", "land": "\\text{ and }",
    "wedge": "\\text{ and }", "lor": "\\text{ or }", "vee": "\\text{ or }", "colon": ":",
    "varepsilon": "\\epsilon ", "varphi": "\\phi ", "thicksim": "\\approx ",
    "approxeq": "\\approx ", "bigcup": "\\cup ", "bigcap": "\\cap ",
    "smallsetminus": "\\setminus ", "dim": "\\text{dim}", "deg": "\\text{deg}", "Pr": "P",
    "arg": "\\text{arg}",
    "lparen": "(", "rparen": ")", "exponentialE": "e",
    "imaginaryI": "i", "uppi": "\\pi ", "Reals": "\\mathbb{R}",
}  # fmt: skip


def _repeating(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction (rule: 0.a(b) = (ab - a) / (10^|a| (10^|b| - 1)))."""
    whole, fixed = match.group(1) or "0", match.group(2)
    cycle = match.group(3) or match.group(4)
    if len(fixed) + len(cycle) > 60:
        return match.group()
    numerator = int(fixed + cycle) - int(fixed or "0")
    denominator = 10 ** len(fixed) * (10 ** len(cycle) - 1)
    return f"\\frac{{{int(whole) * denominator + numerator}}}{{{denominator}}}"


def _half_line(match: re.Match[str]) -> str:
    sign = match.group(1) or match.group(2)
    if sign in ("+", ">"):
        return "(0,\\infty)"
    if sign in ("-", "<"):
        return "(-\\infty,0)"
    return "[0,\\infty)" if sign.startswith("\\ge") else "(-\\infty,0]"


def _join_digits(match: re.Match[str]) -> str:
    return re.sub(r"\D", "", match.group())


def strip_wrappers(text: str) -> str:
    r"""Peels what surrounds a whole answer: dollars, a box, one pair of outer braces, `**`.

    >>> strip_wrappers("\\boxed{5}"), strip_wrappers("{5}"), strip_wrappers("$$42$$")
    ('5', '5', '42')
    >>> strip_wrappers("{1}+{2}")
    '{1}+{2}'
    """
    for _ in range(8):
        before = text
        text = text.strip()
        if len(text) > 1 and text[0] == "$" and text[-1] == "$" and text[-2] != "\\":
            text = text.strip("$")
        if text.startswith("**") and text.endswith("**") and len(text) > 4:
            text = text[2:-2]
        box = _BOX.match(text)
        if box is not None and balanced(box.group(1)):
            text = box.group(1)
        while len(text) > 1 and text[0] == "{" and text[-1] == "}" and balanced(text[1:-1]):
            inner = text[1:-1]
            runs = min(len(inner) - len(inner.lstrip("{")), len(inner) - len(inner.rstrip("}")))
            peeled = inner[runs : len(inner) - runs] if runs else inner
            text = peeled if balanced(peeled) else inner
            if "," in text:  # {1,2} is a set, not a group
                text = "\\{" + text + "\\}"
                break
        if (
            len(text) > 2
            and text[0] == text[-1]
            and text[0] in "\"'`_"
            and text[0] not in text[1:-1]
        ):
            text = text[1:-1]
        if text == before:
            break
    return text


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


_ALL_BRACKETS = re.compile(r"\\.|[{}()]", re.DOTALL)
_MINUS_RUN = re.compile(r"-{8,}")


def flatten(text: str) -> str:
    """A deeply nested text without doubled brackets and runs of minus signs.

    Rule: of two pairs of brackets that enclose the same, one is dropped; two minus signs cancel.

    >>> flatten("((((1))))+({2})"), flatten("-" * 9 + "2")
    ('(1)+({2})', '-2')
    """
    text = _MINUS_RUN.sub(lambda m: "-" if len(m.group()) % 2 else "+", text)
    opened: list[int] = []
    partner: dict[int, int] = {}
    for match in _ALL_BRACKETS.finditer(text):
        sign, place = match.group(), match.start()
        if sign in "({":
            opened.append(place)
        elif sign in ")}" and opened and text[opened[-1]] + sign in ("()", "{}"):
            partner[opened.pop()] = place
    dropped: set[int] = set()
    for place, other in partner.items():
        if partner.get(place + 1) == other - 1 and text[place] == text[place + 1]:
            dropped.update((place, other))
    return "".join(c for k, c in enumerate(text) if k not in dropped) if dropped else text


def balanced(text: str) -> bool:
    r"""Whether braces close in order (escaped braces do not count).

    >>> balanced("{a}{b}"), balanced("a}{b"), balanced("\\{")
    (True, False, True)
    """
    depth = 0
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth < 0:
                return False
    return depth == 0


def clean(text: str) -> str:
    r"""The canonical spelling of an answer, still LaTeX (see the module's docstring).

    >>> clean("11,\\! 111,\\! 100")
    '11111100'
    >>> clean("\\left(2,\\,5\\right]")
    '(2, 5]'
    >>> clean("3 x 10^8")
    '3\\times 10^8'
    """
    if len(text) > MAX_ANSWER_CHARS:
        return text.strip()
    text = strip_wrappers(plain_characters(text))
    if "..." in text:
        text = text.replace("...", "\\ldots ")
    if "." in text:
        text = _NUMPY.sub("", text)
    if "</" in text or "<b" in text:
        text = _HTML.sub("", text)
    if "on" in text or "sand" in text or "hund" in text:
        text = _SCALE.sub(
            lambda m: f"\\times 10^{{{_POWERS[m.group(2)]}}} {m.group(1) or ''}", text
        )
    if "\\" in text:
        text = text.replace("\\%", "%").replace("\\*", "*")
        text = _IDLE.sub(" ", text)
        if "ldots" in text:
            text = _ELLIPSIS.sub(r"\1\\overline{\2}", text)
        if "\\text" in text:
            text = _TEXT_IS.sub(r"\1=", text)
        if "Omega" in text or "mu" in text:
            text = _MICRO.sub(r" \\text{\1\2}", _OHM.sub(" ", text))
        if "begin" in text and _ALIGNMENT.search(text) is not None:
            text = _ALIGNMENT.sub(" ", text)
            if "\\begin" not in text:
                text = text.replace("&", "").strip().removesuffix("\\\\")
        if "mathbb" in text:
            text = _POSITIVE.sub(_half_line, text)
        # A doubled backslash ends a row of a matrix; before a letter elsewhere it is an escape.
        if "\\begin" in text:
            text = _ROW_END.sub(r"\\cr ", text)
        else:
            text = text.replace("\\\\", "\\")
        text = _COLOR.sub("", text)
        text = _LAYOUT.sub("", text)
        text = _FRACTIONS.sub(r"\\frac", text)
        if "prime" in text:
            text = _PRIMES.sub(lambda m: "'" * max(1, m.group().count("prime")), text)
        if "over" in text:
            text = _OVER.sub(
                lambda m: f"\\frac{{{m.group(1) or m.group(3)}}}{{{m.group(2) or m.group(4)}}}",
                text,
            )
        text = _ALIAS.sub(lambda m: _ALIASES[m.group(1)], text)
        text = _REPEATING.sub(_repeating, text)
        text = _NEGATIVE_SPACE_COMMA.sub("", text)
    if "{," in text:
        text = _BRACED_COMMA.sub("", text)
    if " " in text or "\\" in text or "~" in text:
        text = _SPACED_DIGITS.sub(_join_digits, text)
        if "\\" in text or "~" in text:
            text = text.replace("\\!", "")
            text = _SPACING_LETTERS.sub(" ", text)
            text = _SPACING.sub(" ", text)
            text = _DELIMITERS.sub(" ", text)
    if "$" in text:
        text = _US_DOLLAR.sub(" ", text)
        # An escaped dollar is a currency sign; any other one opens or closes a formula or is
        # a currency sign before a number: none of them carries a value.
        text = text.replace("\\$", " ").replace("$", " ")
    if "x" in text or "X" in text:
        text = _TIMES_X.sub(r"\\times ", text)
    if "U" in text:
        text = _UNION_LETTER.sub(r"\\cup ", text)
    if "^" in text and "o" in text:
        text = _DEGREE_LETTER.sub(r"^{\\circ}", text)
    if "((((" in text or "{{{{" in text or "--------" in text:
        text = flatten(text)
    if "+/-" in text:
        text = text.replace("+/-", "\\pm ")
    text = text.rstrip(_TAIL).lstrip()
    if text[:1] in "=\\":
        text = _LEADING.sub("", text)
    if "&" in text and "\\begin" not in text:
        text = _AMPERSAND.sub(", ", text)
    if "/d" in text:
        text = _DERIVATIVE.sub(r"\\frac{d\1}{d\2}", text)
    if text[:1].isupper():
        text = _CURRENCY_NAME.sub("", text)
    if text[-1:] in "CF}":
        text = _UNIT_FRACTION.sub(r" \\text{\1/\2}", _DEGREE_SCALE.sub(r"\1", text))
    if "to" in text and (ratio := _TO_RATIO.fullmatch(text)) is not None:
        text = f"{ratio.group(1)}:{ratio.group(2)}"
    text = _FRENCH_INTERVAL.sub(r"(\1)", text)
    return strip_wrappers(text)
