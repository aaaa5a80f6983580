"""Grading with default settings through one shared grader.

>>> equivalent("0.5", "1/2")
True
"""

from __future__ import annotations

import threading

from oar_bench.answers.grader import Grader
from oar_bench.answers.grades import Grade

_default: Grader | None = None
_default_lock = threading.Lock()


def _shared() -> Grader:
    global _default
    with _default_lock:
        if _default is None:
            _default = Grader()
        return _default


def grade(response: str, gold: str, *, truncated: bool = False, explain: bool = False) -> Grade:
    r"""Grades one response with default settings and a shared grader.

    >>> grade("The answer is \\boxed{(0, 1]}", "0 < x \\le 1").status
    'correct'
    """
    return _shared().grade(response, gold, truncated=truncated, explain=explain)


def equivalent(answer: str, gold: str) -> bool:
    r"""Whether a bare answer equals a gold.

    >>> equivalent("1.77 \\times 10^{-6}", "1.77e-6"), equivalent("(1,2]", "(1,2)")
    (True, False)
    """
    return _shared().compare(answer, gold).correct
