"""Where training problems come from: the built-in families, or a data set of the recipe's."""

from __future__ import annotations

from typing import Protocol

from oar_bench.answers.extract import AnswerType
from oar_bench.config import Recipe
from oar_bench.identity import fingerprint
from oar_bench.keyed import derive
from oar_bench.tasks.problems import ANSWER_TYPE, Problem, distinct


class Source(Protocol):
    """The training problems, and how their answers are graded."""

    answer_type: AnswerType
    fingerprint: str
    """Names the problems: two runs on other problems are other runs."""

    def of_step(self, count: int, seed: int, step: int, again: int = 0) -> list[Problem]:
        """`count` different problems of a step: the same for every method of a seed.

        `again` numbers the draws of one step, where dynamic sampling wants more than one.
        """
        ...


class BuiltIn:
    """Problems of a built-in family, drawn by key and without an end."""

    answer_type: AnswerType = ANSWER_TYPE

    def __init__(self, family: str) -> None:
        self.family = family
        self.fingerprint = fingerprint(["built-in", family])

    def of_step(self, count: int, seed: int, step: int, again: int = 0) -> list[Problem]:
        """See `Source`; every method of a seed meets the same problems, so runs are paired."""
        key = derive("prompts", seed, step, again) if again else derive("prompts", seed, step)
        return distinct(self.family, "train", count, key)


def source_of(recipe: Recipe) -> Source:
    """The problems that a recipe trains on."""
    return BuiltIn(recipe.family)
