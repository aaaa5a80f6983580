"""Where training problems come from: the built-in families, or a data set of the recipe's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.config import Recipe
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.keyed import derive
from oar_bench.tasks.problems import ANSWER_TYPE, Problem, distinct
from oar_bench.training.data import Prepared, prepare


class Source(Protocol):
    """The training problems, and how their answers are graded."""

    answer_type: AnswerType
    extract: ExtractMode
    fingerprint: str
    """Names the problems: two runs on other problems are other runs."""
    summary: dict[str, Any]
    """What the problems are, for run.json."""
    overlap: dict[str, Any] | None
    """What overlap.json holds, where test sets were asked for."""
    lengths: Sequence[int] | None
    """Tokens of each problem's prompt, where they are known."""

    def of_step(self, count: int, seed: int, step: int, again: int = 0) -> list[Problem]:
        """`count` different problems of a step: the same for every method of a seed.

        `again` numbers the draws of one step, where dynamic sampling wants more than one. They
        hold other problems than the draws before; data that are used up give fewer, or none.
        """
        ...


class BuiltIn:
    """Problems of a built-in family, drawn by key and without an end."""

    answer_type: AnswerType = ANSWER_TYPE
    extract: ExtractMode = "auto"
    overlap: dict[str, Any] | None = None
    lengths: Sequence[int] | None = None

    def __init__(self, family: str) -> None:
        self.family = family
        self.fingerprint = fingerprint(["built-in", family])
        self.summary: dict[str, Any] = {"source": f"built-in family {family}"}

    def of_step(self, count: int, seed: int, step: int, again: int = 0) -> list[Problem]:
        """See `Source`; every method of a seed meets the same problems, so runs are paired."""
        key = derive("prompts", seed, step, again) if again else derive("prompts", seed, step)
        return distinct(self.family, "train", count, key)


class Epochs:
    """Problems of a finite set: each once an epoch, in an order keyed by seed and epoch.

    What a step gets is a function of the arguments alone, so resumed and paired runs meet the
    same problems. Steps go on where the one before ended, also across the end of an epoch; there
    a problem that the step has already is put off until later in the new epoch. Further draws of
    a step (`again`) come from an order of their own: they take nothing from the epochs.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.answer_type = prepared.answer_type
        self.extract = prepared.extract
        self.fingerprint = prepared.fingerprint
        self.summary = prepared.summary
        self.overlap = prepared.overlap
        self.lengths: Sequence[int] | None = prepared.lengths
        # By id, so that the order of the rows in their file doesn't matter.
        self._problems = {problem.id: problem for problem in prepared.problems}
        self._shuffled = lru_cache(maxsize=8)(self._shuffle)
        self._ordered = lru_cache(maxsize=8)(self._arrange)

    def __len__(self) -> int:
        return len(self._problems)

    def of_step(self, count: int, seed: int, step: int, again: int = 0) -> list[Problem]:
        """See `Source`.

        Raises:
            InputError: more problems a step than there are.
        """
        size = len(self)
        if count > size:
            raise InputError(
                f"{count} problems a step, the data have {size}", "train.prompts_per_step",
                f"use at most {size}",
            )  # fmt: skip
        names = self._base(count, seed, step)
        if again:
            drawn = set(names)
            left = [name for name in self._shuffled("again", seed, step) if name not in drawn]
            names = left[(again - 1) * count : again * count]
        return [self._problems[name] for name in names]

    def _base(self, count: int, seed: int, step: int) -> list[str]:
        """The ids of a step's first draw: places (step - 1) count, ... of the endless sequence."""
        size, start = len(self), (step - 1) * count
        epoch, place = divmod(start, size)
        order = self._order(count, seed, epoch)
        names = order[place : place + count]
        if len(names) < count:
            names = [*names, *self._order(count, seed, epoch + 1)[: count - len(names)]]
        return list(names)

    def _order(self, count: int, seed: int, epoch: int) -> Sequence[str]:
        """The order of an epoch for steps of `count`: shuffled, its first step free of repeats."""
        size = len(self)
        if size < 2 * count:
            # Only in so small a set can an epoch's end be changed by its own beginning: the
            # orders hang together from the last epoch that began with a step.
            first = epoch
            while first * size % count:
                first -= 1
            for earlier in range(first, epoch):
                self._ordered(count, seed, earlier)
        return self._ordered(count, seed, epoch)

    def _arrange(self, count: int, seed: int, epoch: int) -> Sequence[str]:
        order = self._shuffled("epoch", seed, epoch)
        begun = epoch * len(self) % count  # problems of the step that the epoch before began
        if not begun:
            return order
        if len(self) < 2 * count:
            before = self._ordered(count, seed, epoch - 1)
        else:
            before = self._shuffled("epoch", seed, epoch - 1)
        taken = set(before[-begun:])
        free = [name for name in order if name not in taken][: count - begun]
        first = set(free)
        return (*free, *(name for name in order if name not in first))

    def _shuffle(self, *key: object) -> tuple[str, ...]:
        return tuple(sorted(self._problems, key=lambda name: derive("order", *key, name)))


def source_of(recipe: Recipe) -> Source:
    """The problems that a recipe trains on."""
    return BuiltIn(recipe.family) if recipe.data is None else Epochs(prepare(recipe, lengths=True))
