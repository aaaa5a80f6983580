r"""Unicode signs of mathematics as ASCII or LaTeX; invisible and control characters dropped.

>>> plain_characters("x² ≤ 4½")
'x^{2} \\le  4 \\frac{1}{2}'
"""

from __future__ import annotations

import re
import unicodedata

_SUPER = {"⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6",
          "⁷": "7", "⁸": "8", "⁹": "9", "⁺": "+", "⁻": "-", "⁽": "(", "⁾": ")",
          "ⁿ": "n", "ⁱ": "i"}  # fmt: skip
_SUB = {"₀": "0", "₁": "1", "₂": "2", "₃": "3", "₄": "4", "₅": "5", "₆": "6", "₇": "7",
        "₈": "8", "₉": "9", "₊": "+", "₋": "-", "ₙ": "n", "ₖ": "k"}  # fmt: skip
_VULGAR = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5),
           "⅖": (2, 5), "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7),
           "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
           "⅑": (1, 9), "⅒": (1, 10)}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi",
    "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ϕ": "phi", "χ": "chi",
    "ψ": "psi", "ω": "omega", "ℓ": "ell", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda",
    "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega", "ϵ": "epsilon",
    "∞": "infty", "∅": "emptyset", "∪": "cup", "∩": "cap", "∈": "in", "≤": "le", "≥": "ge",
    "⩽": "le", "⩾": "ge", "≠": "ne", "≈": "approx", "≡": "equiv", "±": "pm", "∓": "mp",
    "×": "times", "·": "cdot", "⋅": "cdot", "∙": "cdot", "•": "cdot", "∗": "cdot", "✕": "times",
    "✖": "times", "ℝ": "mathbb{R}", "ℤ": "mathbb{Z}", "ℕ": "mathbb{N}", "ℚ": "mathbb{Q}",
    "ℂ": "mathbb{C}", "…": "ldots", "⋯": "ldots", "⟨": "langle", "⟩": "rangle", "∖": "setminus",
    "⌊": "lfloor", "⌋": "rfloor", "⌈": "lceil", "⌉": "rceil", "∠": "angle", "→": "to",
    "∑": "sum", "∫": "int", "∏": "prod", "∣": "mid", "⊂": "subset", "∨": "lor", "∧": "land",
}  # fmt: skip
_PLAIN = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "‒": "-", "﹣": "-", "➖": "-",
    "÷": "/", "⁄": "/", "∕": "/", "∶": ":", "″": "''", "′": "'", "’": "'", "‘": "'",
    "“": '"', "”": '"', "°": "^{\\circ}", "º": "^{\\circ}", "。": ".", "、": ",", "《": "<",
    "√": "\\sqrt ", "∛": "\\sqrt[3]", "∜": "\\sqrt[4]", "«": "", "»": "", "⟦": "[", "⟧": "]",

    "€": " ", "£": " ", "¥": " ", "₹": " ", "¢": " ", "￥": " ",
    "〈": "\\langle ", "〉": "\\rangle ", "﹪": "%", "٪": "%", "➕": "+",
}  # fmt: skip
_INVISIBLE = (
    "\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061"
    "\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufeff\u00ad\ufe0e\ufe0f\u20e3"
)
_SPACES = (
    "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)

_TABLE: dict[int, str] = {}
_TABLE.update({ord(k): f" \\frac{{{a}}}{{{b}}}" for k, (a, b) in _VULGAR.items()})
_TABLE.update({ord(k): f"\\{v} " for k, v in _GREEK.items()})
_TABLE.update({ord(k): v for k, v in _PLAIN.items()})
_TABLE.update({ord(c): "" for c in _INVISIBLE})
_TABLE.update({ord(c): " " for c in _SPACES})
_TABLE.update({code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)})  # full-width ASCII

INVISIBLE_CLASS = "[" + _INVISIBLE + r"\s]"

_SUPER_RUN = re.compile("[" + "".join(_SUPER) + "]+")
_SUB_RUN = re.compile("[" + "".join(_SUB) + "]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MATH_LETTERS = re.compile("[\U0001d400-\U0001d7ff\u210a-\u2112\u2119-\u211c\u212c-\u2138]")


def plain_characters(text: str) -> str:
    r"""Unicode signs as ASCII or LaTeX, invisible and control characters dropped.

    >>> plain_characters("４２"), plain_characters("−5"), plain_characters("√5")
    ('42', '-5', '\\sqrt 5')
    >>> plain_characters("4²")
    '4^{2}'
    """
    if not text.isprintable():
        text = _ANSI.sub("", text)
        text = text.replace("\n", " ").replace("\t", " ").replace("\r", " ")
        text = _CONTROL.sub("", text)
    if text.isascii():
        return text
    if len(text) == 1 and "①" <= text <= "⑳":  # rule: a circled number counts alone
        return str(ord(text) - 0x245F)
    text = _SUPER_RUN.sub(lambda m: "^{" + "".join(_SUPER[c] for c in m.group()) + "}", text)
    text = _SUB_RUN.sub(lambda m: "_{" + "".join(_SUB[c] for c in m.group()) + "}", text)
    text = _MATH_LETTERS.sub(lambda m: unicodedata.normalize("NFKC", m.group()), text)
    return text.translate(_TABLE)
