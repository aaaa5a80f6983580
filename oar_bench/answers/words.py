r"""The vocabulary of the grammar: which letters are functions, names, connectives, constants.

>>> split_letters("sinx")
['sin', 'x']
>>> split_letters("ab")
['a', 'b']
"""

from __future__ import annotations

FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "arccot", "sinh",
    "cosh", "tanh", "ln", "log", "exp", "lg", "sqrt", "cbrt", "abs", "floor", "ceil", "gcd",
    "lcm", "cis", "max", "min", "det", "asin", "acos", "atan", "Re", "Im",
    "binom", "factorial",
})  # fmt: skip
FUNCTION_ALIASES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "ctg": "cot", "tg": "tan",
    "cosec": "csc", "arctg": "arctan", "ceiling": "ceil", "log10": "lg", "operatorname": "",
}  # fmt: skip
GREEK = frozenset({
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell",
    "hbar", "aleph", "Re", "Im",
})  # fmt: skip
CONSTANT_WORDS = {
    "pi": "pi", "infinity": "oo", "infty": "oo", "inf": "oo", "oo": "oo", "Infinity": "oo",
}  # fmt: skip
SETS = {"R": "RR", "Z": "ZZ", "N": "NN", "Q": "QQ", "C": "CC"}
CONNECTIVES = {"and": "and", "or": "or", "AND": "and", "OR": "or", "And": "and", "Or": "or"}
# Commands that say nothing about the value: their argument is the value.
FONT_COMMANDS = frozenset({
    "mathrm", "mathbf", "mathit", "mathsf", "mathtt", "mathcal", "mathscr", "mathfrak",
    "mathnormal", "rm", "operatorname", "text", "textbf", "textit", "textrm", "textsf",
    "texttt", "mbox", "hbox", "textnormal", "emph", "underline", "mathop", "textup", "textsc",
    "bold", "ensuremath", "mathbfit", "pmb",
})  # fmt: skip
DECORATIONS = frozenset({"overline", "vec", "hat", "bar", "tilde", "overrightarrow", "widehat",
                         "dot", "ddot", "widetilde", "overleftrightarrow"})  # fmt: skip
RELATION_COMMANDS = {
    "le": "<=", "ge": ">=", "ne": "!=", "in": "in", "approx": "~", "equiv": "==", "to": "->",
    "rightarrow": "->", "Rightarrow": "=>", "implies": "=>", "sim": "~", "notin": "notin",
    "subset": "sub", "subseteq": "sub", "simeq": "~", "propto": "prop", "cong": "cong",
    "iff": "=>", "Leftrightarrow": "=>", "leftrightarrow": "->", "longrightarrow": "->",
    "mapsto": "->", "ll": "<<", "gg": ">>", "parallel": "par", "perp": "perp",
}  # fmt: skip
BASE_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16, "binary": 2, "octal": 8,
    "decimal": 10, "hex": 16,
}  # fmt: skip

UNIT_LETTERS = frozenset("mgsLhJNWVACKFlH")
UNIT_WORDS = frozenset({
    "cm", "mm", "km", "kg", "mg", "lb", "lbs", "oz", "ft", "in", "yd", "mi", "hr", "hrs", "min",
    "mins", "sec", "secs", "mph", "kph", "mL", "ml", "USD", "EUR", "GBP", "RMB", "deg", "rad",
    "sq", "cu", "Hz", "kHz", "MHz", "Pa", "kPa", "eV", "keV", "MeV", "kJ", "kW", "kWh", "nm",
    "dm", "ms", "ns", "yr", "yrs", "mol", "cc", "pt", "qt", "gal", "bps", "AU", "ly", "pc", "erg",
    "dyn", "Ω", "kcal", "cal", "th", "st", "nd", "rd", "am", "pm", "AM", "PM", "cents", "cent",
})  # fmt: skip

_PREFIXES = sorted(FUNCTIONS - {"abs", "Re", "Im", "det", "max", "min"}, key=len, reverse=True)


def split_letters(word: str) -> list[str]:
    """A run of letters as functions and one-letter names (rule: longest function first).

    >>> split_letters("theta"), split_letters("logx"), split_letters("xyz")
    (['theta'], ['log', 'x'], ['x', 'y', 'z'])
    """
    parts: list[str] = []
    while word:
        if word in FUNCTIONS or word in GREEK or word in CONSTANT_WORDS or word in FUNCTION_ALIASES:
            parts.append(word)
            break
        for prefix in _PREFIXES:
            if word.startswith(prefix):
                parts.append(prefix)
                word = word[len(prefix) :]
                break
        else:
            if word.startswith("pi"):
                parts.append("pi")
                word = word[2:]
            else:
                parts.append(word[0])
                word = word[1:]
    return parts
