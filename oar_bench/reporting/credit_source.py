"""Which response `oar-bench credit show` looks at: one given in words, or a row of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.integrations.rows import prompts_beside, row_name, sound_row, sound_text
from oar_bench.records import read_jsonl


@dataclass(frozen=True)
class Chosen:
    """A row with a response, and what is known about it."""

    row: Mapping[str, Any]
    """`response` or `response_ids`, `prompt` or `prompt_ids`, and whatever else the file says."""
    name: dict[str, Any]
    """What names it in its file: `problem`, `sample` and, in a training run, `step`."""
    source: str
    """Where it comes from, in words."""
    file: Path | None = None


def choose(
    prompt: str | None,
    response: str | None,
    file: Path | None,
    row: int | None,
    problem: str | None,
    sample: int | None,
) -> Chosen:
    """The response that the options name.

    Args:
        prompt, response: the texts themselves; both or neither.
        file: JSON lines with a response each: rollouts.jsonl, samples.jsonl, or any rows with
            `prompt` and `response`. Without a `prompt` field it is that of problems.jsonl beside.
        row: number of the row, from 1 (the default).
        problem, sample: its problem, and the sample's number among that problem's, from 0;
            instead of `row`.

    Raises:
        InputError: options that don't go together, no such row, or a row without the fields.
    """
    if file is not None:
        if prompt is not None or response is not None:
            raise InputError("a file and a text are given", "--responses", "give only one of them")
        if problem is None and sample is not None:
            raise InputError("no problem is named", "--sample", "name it by --problem")
        if problem is not None and row is not None:
            raise InputError("a row and a problem are given", "--row", "give only one of them")
        return _find(file, 1 if row is None else row, problem, sample or 0)
    for name, value in (("--row", row), ("--problem", problem), ("--sample", sample)):
        if value is not None:
            raise InputError("there is no file", name, "name it by --responses FILE")
    if prompt is None and response is None:
        raise InputError(
            "nothing to show", "credit show",
            "give --prompt TEXT --response TEXT, or --responses FILE --row N",
        )  # fmt: skip
    if prompt is None or response is None:
        missing = "--prompt" if prompt is None else "--response"
        raise InputError("it is missing", missing, "give both --prompt and --response")
    texts = {"prompt": sound_text(prompt), "response": sound_text(response), "seed": 0}
    return Chosen(texts, {}, "--response")


def _find(file: Path, row: int, problem: str | None, sample: int) -> Chosen:
    """The wanted row; only one row is in memory at a time."""
    if not file.exists():
        raise InputError("no such file", str(file))
    number = of_problem = 0
    met: Counter[tuple[Any, Any]] = Counter()
    for number, content in enumerate(read_jsonl(file, unended=True), start=1):
        where = f"{file}: row {number}"
        # Rows may not number the responses to a problem: they stand in their order.
        name = row_name(content, number, met, where)
        mine = problem is not None and str(name["problem"]) == problem
        of_problem += mine
        if (mine and name["sample"] == sample) or (problem is None and number == row):
            return _chosen(file, where, content, name)
    if not number:
        raise InputError("there is no row in this file", str(file))
    if problem is None:
        raise InputError(
            f"row {row} is not in this file of {number} rows", str(file), f"use --row 1..{number}"
        )
    if not of_problem:
        raise InputError(f"no row is of problem {problem!r}", str(file))
    raise InputError(f"problem {problem} has {of_problem} samples, none is {sample}", str(file))


def _chosen(file: Path, where: str, content: Mapping[str, Any], name: dict[str, Any]) -> Chosen:
    prompt = prompts_beside(file).get(name["problem"])
    row = sound_row(content, prompt, where)
    about = [f"{key} {content[key]}" for key in ("problem", "sample", "step") if key in content]
    return Chosen(row, name, ", ".join([where, *about]), file)
