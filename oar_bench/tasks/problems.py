"""The built-in problems: multi-step arithmetic with its reasoning written out.

They need no download and are small enough that a model of 0.3 M parameters learns them, yet hard
enough that a response can be right or wrong, which is all that credit assignment needs. Three
families; all write words separated by single spaces, so that a word is a token:

- `arithmetic`: five sums `a op b` modulo 10; the answer lists the five results.
- `digits`: the sum of two four-digit numbers, digit by digit with carries.
- `sum`: one sum modulo 10, learned in seconds; for smoke runs and tests.

Reasoning is interspersed with filler words that carry no information: tokens that should get
little credit, by construction.

A problem is drawn by key, so that a family, a split and a seed name the same problems forever;
whether it is held out is decided by a hash of its text, so that no seed mixes the splits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from oar_bench.errors import InputError
from oar_bench.keyed import derive

Split = Literal["train", "test"]

FILLERS = ("so", "well", "now", "then", "next", "hmm", "okay", "let", "us", "see",
           "we", "think", "about", "this", "one", "right")  # fmt: skip
FILLER_PROBABILITY = 0.5
MOST_FILLERS = 4  # in a row, so that a response has a known greatest length
ANSWER_MARK = "####"
ANSWER_TYPE: Literal["exact"] = "exact"  # digits by position: "0 4" is not "4"
STEPS = 5
DIGITS = 4
HELD_OUT_SHARE = 8  # one text in eight is held out
VOCABULARY = (*"0123456789", "+", "-", "*", "=", ";", ",", ANSWER_MARK, *FILLERS)


@dataclass(frozen=True)
class Problem:
    """One problem: `prompt` is asked, `solution` is one right response, `answer` is the gold."""

    id: str
    prompt: str
    answer: str
    solution: str
    tolerance: float | None = None
    """This gold's own tolerance, where its row has one; see `Grader.grade`."""


def _fillers(rng: random.Random) -> list[str]:
    """No, one or a few words that say nothing."""
    words: list[str] = []
    while len(words) < MOST_FILLERS and rng.random() < FILLER_PROBABILITY:
        words.append(FILLERS[int(rng.random() * len(FILLERS))])
    return words


def _with_fillers(steps: list[str], rng: random.Random) -> str:
    words: list[str] = []
    for step in steps:
        words += [*_fillers(rng), step]
    return " ".join(words)


def _sums(rng: random.Random, count: int) -> tuple[str, list[str], str]:
    """Prompt, reasoning steps and answer of `count` independent sums modulo 10."""
    sums, steps, results = [], [], []
    for _ in range(count):
        a, b, op = int(rng.random() * 10), int(rng.random() * 10), "+-*"[int(rng.random() * 3)]
        result = {"+": a + b, "-": a - b, "*": a * b}[op] % 10
        sums.append(f"{a} {op} {b}")
        steps.append(f"{a} {op} {b} = {result} ;")
        results.append(str(result))
    return " , ".join(sums) + " =", steps, " ".join(results)


def _digits(rng: random.Random) -> tuple[str, list[str], str]:
    """Prompt, reasoning steps and answer of adding two four-digit numbers from the right."""
    left = [int(rng.random() * 10) for _ in range(DIGITS)]
    right = [int(rng.random() * 10) for _ in range(DIGITS)]
    carry, steps, results = 0, [], []
    for a, b in zip(reversed(left), reversed(right), strict=True):
        total = a + b + carry
        steps.append(f"{a} + {b} + {carry} = {total // 10} {total % 10} ;")
        carry = total // 10
        results.append(str(total % 10))
    results.append(str(carry))
    prompt = " ".join([*map(str, left), "+", *map(str, right), "="])
    return prompt, steps, " ".join(reversed(results))


FAMILIES: dict[str, Callable[[random.Random], tuple[str, list[str], str]]] = {
    "arithmetic": partial(_sums, count=STEPS),
    "digits": _digits,
    "sum": partial(_sums, count=1),
}


def split_of(prompt: str) -> Split:
    """The split a prompt belongs to, by its hash alone.

    >>> {split_of(f"{a} + {b} =") for a in range(10) for b in range(10)} == {"train", "test"}
    True
    """
    return "test" if derive("split", prompt) % HELD_OUT_SHARE == 0 else "train"


def draw(family: str, index: int, seed: int = 0) -> Problem:
    """Problem number `index` of a family, of either split.

    >>> problem = draw("digits", 0)
    >>> problem.prompt
    '3 8 7 2 + 5 9 2 6 ='
    >>> problem.answer
    '0 9 7 9 8'
    """
    # random() is the only method whose values Python promises to keep between versions.
    rng = random.Random(derive("problem", family, seed, index))
    prompt, steps, answer = FAMILIES[family](rng)
    solution = f"{_with_fillers(steps, rng)} {ANSWER_MARK} {answer}"
    return Problem(f"{family}-{seed}-{index}", prompt, answer, solution)


def problems(family: str, split: Split, seed: int = 0, start: int = 0) -> Iterator[Problem]:
    """The endless sequence of a family's problems of one split, from index `start` on."""
    index = start
    while True:
        problem = draw(family, index, seed)
        if split_of(problem.prompt) == split:
            yield problem
        index += 1


def distinct(family: str, split: Split, count: int, seed: int = 0) -> list[Problem]:
    """The first `count` problems of a split with different prompts.

    Raises:
        InputError: the family doesn't have so many.

    >>> len(distinct("sum", "test", 24))
    24
    """
    found: dict[str, Problem] = {}
    if count < 1:
        raise InputError(f"{count} problems asked for", family, "ask for at least 1")
    for tries, problem in enumerate(problems(family, split, seed)):
        found.setdefault(problem.prompt, problem)
        if len(found) == count:
            break
        if tries > 20 * count + 1000:
            raise InputError(
                f"{count} different problems asked for, its {split} split has {len(found)}", family
            )
    return list(found.values())
