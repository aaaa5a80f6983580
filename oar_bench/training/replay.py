"""Training from saved rollouts: the same updates without a sampler.

A run's rollouts.jsonl holds the ids that were sampled, so a step can be done again, bit for bit,
or under another method on the very same responses. Rewards are graded anew; log-probabilities
before the update are those of the weights at hand, except that a sampler's own come from the file.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.config import Recipe
from oar_bench.engines.hf import Sampled, context_limit
from oar_bench.engines.tokens import encode_all
from oar_bench.errors import InputError
from oar_bench.records import read_placed
from oar_bench.tasks.problems import Problem
from oar_bench.training.processes import ALONE, Processes
from oar_bench.training.rollout import Rollout, gather, rows_of

FIELDS: Mapping[str, type] = {
    "problem": str, "prompt": str, "response": str, "gold": str, "seed": int,
    "response_ids": list, "finish_reason": str,
}  # fmt: skip


class Replay:
    """Rollouts of a file by step; only the rows of the step at hand are held."""

    def __init__(self, path: Path, group_size: int, last: int | None = None) -> None:
        """Read where each step lies, up to step `last` if it is given.

        Raises:
            InputError: it isn't the rollouts of a run.
        """
        self.path, self.group_size = path, group_size
        self._places: dict[int, list[int]] = {}
        if not path.is_file():
            said = "a folder is given" if path.is_dir() else "no such file"
            raise InputError(said, str(path), "give the rollouts.jsonl of a run's folder")
        for number, (place, row) in enumerate(read_placed(path, unended=True), start=1):
            step = row.get("step")
            if type(step) is not int or "response_ids" not in row:
                raise InputError(
                    f"line {number} is no rollout with a step and response_ids", str(path),
                    "give the rollouts.jsonl of a run's folder",
                )  # fmt: skip
            if last is not None and step > last:
                break
            if row.get("used", True):
                self._places.setdefault(step, []).append(place)

    @classmethod
    def of_run(cls, path: Path, recipe: Recipe) -> Replay:
        """The replay of a whole run, checked before anything costly is done.

        Raises:
            InputError: no such file, no rollouts, a step that the recipe trains is missing, or
                groups of another size.
        """
        replay = cls(path, recipe.train.group_size)
        for step in range(1, recipe.train.steps + 1):
            if len(replay._of(step)) % replay.group_size:
                raise replay._no_groups(step)
        return replay

    def has(self, step: int) -> bool:
        """Whether the file holds this step."""
        return step in self._places

    def of_step(
        self,
        step: int,
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        processes: Processes = ALONE,
    ) -> Rollout:
        """The responses that a step learned from, or this process's share of them.

        Raises:
            InputError: the step isn't there, its rows don't form groups of `group_size`, or they
                aren't of this model and tokenizer.
        """
        places = self._of(step)
        with self.path.open("rb") as file:
            rows = [_row_at(file, place) for place in places]
        vocabulary = int(model.config.get_text_config().vocab_size)
        for row in rows:
            self._check(row, step, vocabulary)
        self._check_groups(rows, step)
        places = rows_of(processes.share(len(rows) // self.group_size), self.group_size)
        rows = [rows[place] for place in places]
        encoded = encode_all(tokenizer, (row["prompt"] for row in rows))
        limit = context_limit(model)
        for row in rows:
            prompt = len(encoded[row["prompt"]])
            if not prompt:
                raise InputError(f"a prompt of step {step} has no token", str(self.path))
            if limit is not None and prompt + len(row["response_ids"]) > limit:
                raise InputError(
                    f"a prompt of step {step} and its response exceed the model's context of "
                    f"{limit} tokens", str(self.path), "they are another model's",
                )  # fmt: skip
        known = bool(rows) and all("sampler_logprobs" in row for row in rows)
        drawn = Sampled(
            [encoded[row["prompt"]] for row in rows],
            [row["response_ids"] for row in rows],
            [row["finish_reason"] == "stop" for row in rows],
            [row["sampler_logprobs"] for row in rows] if known else None,
        )
        asked = [
            Problem(row["problem"], row["prompt"], row["gold"], "", row.get("tolerance"))
            for row in rows
        ]
        seeds = [row["seed"] for row in rows]
        rollout = gather(tokenizer, asked, seeds, drawn, model.device, places)
        if any(text != row["response"] for text, row in zip(rollout.texts, rows, strict=True)):
            raise InputError(
                f"response_ids of step {step} don't spell its responses", str(self.path),
                "they are another tokenizer's, or the file was edited: ids are what is learned",
            )  # fmt: skip
        return rollout

    def _of(self, step: int) -> list[int]:
        """Where the rows of a step begin; InputError when it has none."""
        if step not in self._places:
            whole = step - 1 if step - 1 in self._places else 0
            raise InputError(
                f"it has no rollouts of step {step}", str(self.path),
                f"train --steps {whole}" if whole else "give the rollouts.jsonl of a run's folder",
            )  # fmt: skip
        return self._places[step]

    def _no_groups(self, step: int) -> InputError:
        return InputError(
            f"step {step} has no groups of {self.group_size} responses to a problem",
            str(self.path), "train with the group_size that it was sampled with",
        )  # fmt: skip

    def _check(self, row: Mapping[str, Any], step: int, vocabulary: int) -> None:
        """Refuse a row whose fields aren't what a step needs."""
        for name, kind in FIELDS.items():
            if not isinstance(row.get(name), kind):
                raise InputError(
                    f"a row of step {step} has no {name} that is a {kind.__name__}", str(self.path)
                )
        ids = row["response_ids"]
        if not ids or not all(type(i) is int and 0 <= i < vocabulary for i in ids):
            raise InputError(
                f"response_ids of step {step} aren't ids of this model", str(self.path),
                f"its vocabulary has {vocabulary} tokens",
            )  # fmt: skip
        if not isinstance(row.get("tolerance", 0.0), int | float):
            raise InputError(f"a tolerance of step {step} is no number", str(self.path))
        logprobs = row.get("sampler_logprobs", ids)
        if (
            not isinstance(logprobs, list)
            or len(logprobs) != len(ids)
            or not all(type(value) in (int, float) and math.isfinite(value) for value in logprobs)
        ):
            raise InputError(
                f"sampler_logprobs of step {step} aren't one for each token", str(self.path)
            )

    def _check_groups(self, rows: Sequence[Mapping[str, Any]], step: int) -> None:
        """Refuse rows that aren't whole groups, one problem after the other."""
        size = self.group_size
        groups = [rows[at : at + size] for at in range(0, len(rows), size)]
        whole = all(len(g) == size and len({r["problem"] for r in g}) == 1 for g in groups)
        # A step meets a problem once: more of it are a larger group's halves.
        if not whole or max(Counter(r["problem"] for r in rows).values()) > size:
            raise self._no_groups(step)


def _row_at(file: BinaryIO, place: int) -> dict[str, Any]:
    """The row whose line begins at a byte that `read_placed` gave."""
    file.seek(place)
    row: dict[str, Any] = json.loads(file.readline())
    return row
