"""Do training problems stand in a test set? Equal texts, and runs of words in common.

Two measures, both on normalised text:

- exact: the two texts are equal but for case, blanks, dollar signs and TeX's spacing;
- n-gram: they share `n` words in a row (13 by default, as in Brown et al. 2020, appendix C), where
  a word is a run of letters or digits, a TeX command counting as its name.

A test problem of fewer than `n` words can only be found by the first: such are counted. A shared
n-gram may also be a common phrase, so each match says which share of the test problem's n-grams
the training problem has.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_SPACING = re.compile(r"\\(?:left|right)(?![a-z])|\\[,;:! ]|[$~]")


def words(text: str) -> list[str]:
    r"""The words of a text: its runs of letters and digits, in lower case.

    >>> words("Find $\\frac{1}{2}x$ for 3 Apples.")
    ['find', 'frac', '1', '2', 'x', 'for', '3', 'apples']
    """
    return _WORD.findall(_folded(text))


def normal_text(text: str) -> str:
    r"""A text without what doesn't change a problem: case, blanks, dollar signs, TeX's spacing.

    Signs stay: 2 + 3 is not 2 - 3.

    >>> normal_text("What is $2\\,+ 3$ ?") == normal_text("what  is 2+3")
    True
    >>> normal_text("What is 2 - 3?") == normal_text("What is 2 + 3?")
    False
    """
    tokens = _TOKEN.findall(_SPACING.sub(" ", _folded(text)))
    while tokens and tokens[-1] in ".?!":
        tokens.pop()
    return " ".join(tokens)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def ngrams(text: str, n: int) -> set[str]:
    """The runs of `n` words of a text.

    >>> sorted(ngrams("one two three four", 3))
    ['one two three', 'two three four']
    """
    found = words(text)
    return {" ".join(found[i : i + n]) for i in range(len(found) - n + 1)}


@dataclass(frozen=True)
class Match:
    """A training problem that was found in a test set, and the problem there."""

    row: str
    """Id of the training problem."""
    task: str
    problem: str
    """Id of the test problem."""
    exact: bool
    shared: int
    """n-grams in common"""
    share: float
    """of the test problem's n-grams; 1.0 for an exact match"""


class HeldOut:
    """The problems of test sets, indexed by their texts and n-grams.

    >>> index = HeldOut({"mine": {"t0": "How many apples does Ann have now?"}}, 4)
    >>> [match] = index.find("r7", "Tell me: how many apples does Bob eat?")
    >>> match.problem, match.exact, match.shared, round(match.share, 2)
    ('t0', False, 1, 0.25)
    """

    def __init__(self, tasks: Mapping[str, Mapping[str, str]], n: int) -> None:
        """Index the texts {task: {problem id: text}} by runs of `n` words."""
        self.n = n
        self.sizes = {task: len(problems) for task, problems in tasks.items()}
        self.short: Counter[str] = Counter()
        self._texts: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._grams: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._counts: dict[tuple[str, str], int] = {}
        for task, problems in tasks.items():
            for name, text in problems.items():
                grams = ngrams(text, n)
                self.short[task] += not grams
                self._counts[task, name] = len(grams)
                self._texts[normal_text(text)].append((task, name))
                for gram in grams:
                    self._grams[gram].append((task, name))

    def find(self, row: str, text: str) -> list[Match]:
        """The test problems that a training problem equals or shares an n-gram with."""
        shared: Counter[tuple[str, str]] = Counter(
            place for gram in ngrams(text, self.n) for place in self._grams.get(gram, ())
        )
        equal = set(self._texts.get(normal_text(text), ()))
        return [
            Match(
                row, *place, place in equal, shared[place],
                1.0 if place in equal else shared[place] / self._counts[place],
            )
            for place in sorted({*shared, *equal})
        ]  # fmt: skip

    def report(self, matches: Sequence[Match], rows: int, dropped: bool) -> dict[str, Any]:
        """The content of overlap.json, JSON-ready: counts for each task, then every match.

        Args:
            matches: of all training problems.
            rows: how many training problems were looked at.
            dropped: whether those found are left out of training.
        """
        return {
            "ngram": self.n,
            "rows": rows,
            "rows_found": len({m.row for m in matches}),
            "dropped": dropped,
            "tasks": {task: self._of_task(task, matches) for task in self.sizes},
            "matches": [
                {"id": m.row, "task": m.task, "problem": m.problem, "exact": m.exact,
                 "shared": m.shared, "share": round(m.share, 4)}
                for m in matches
            ],
        }  # fmt: skip

    def _of_task(self, task: str, matches: Sequence[Match]) -> dict[str, int]:
        own = [m for m in matches if m.task == task]
        return {
            "problems": self.sizes[task],
            "short": self.short[task],
            "exact": len({m.row for m in own if m.exact}),
            "ngram": len({m.row for m in own if m.shared}),
            "rows_found": len({m.row for m in own}),
            "problems_found": len({m.problem for m in own}),
        }
