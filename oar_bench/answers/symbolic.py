r"""The last stage, run only inside a worker process: math-verify and sympy.

math-verify's own time limits use signals and are turned off here; the parent process enforces the
deadline by killing the worker. math-verify compares rounded values, so an agreement between
constants is confirmed at high precision before it counts.
"""

from __future__ import annotations

import logging
from typing import Any

_DIGITS = 60
_AGREE = 40


def _parsed(text: str) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    configs = (LatexExtractionConfig(), ExprExtractionConfig())
    return list(
        parse(
            f"${text}$",
            extraction_config=configs,
            fallback_mode="no_fallback",
            parsing_timeout=None,
            raise_on_error=False,
        )
    )


def _agree(left: Any, right: Any) -> bool:
    """Whether two sympy objects agree to `_AGREE` digits, where both are constants."""
    import sympy

    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return True
    if left.free_symbols or right.free_symbols:
        return True
    difference = sympy.N(left.doit() - right.doit(), _DIGITS)
    scale = max(1, abs(sympy.N(right, 15)))
    return bool(abs(difference) <= scale * sympy.Float(10) ** -_AGREE)


def _evaluates(left: Any, right: Any) -> bool:
    """Rule: sums, limits, integrals and derivatives are worked out before they are compared."""
    import sympy

    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return False
    kinds = (sympy.Sum, sympy.Limit, sympy.Integral, sympy.Derivative, sympy.Product)
    if not (left.has(*kinds) or right.has(*kinds)):
        return False
    difference = left.doit() - right.doit()
    return bool(difference == 0 or sympy.simplify(difference) == 0)


def judge(answer: str, gold: str) -> str:
    """ "correct", "wrong", "unparsed" or "gold_error" for two cleaned answers."""
    from math_verify import verify

    logging.disable(logging.CRITICAL)
    golds = _parsed(gold)
    if not golds:
        return "gold_error"
    answers = _parsed(answer)
    if not answers:
        return "unparsed"
    if _evaluates(golds[0], answers[0]):
        return "correct"
    if not verify(golds, answers, strict=True, timeout_seconds=None):
        return "wrong"
    return "correct" if _agree(golds[0], answers[0]) else "wrong"
