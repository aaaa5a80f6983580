"""The rows of a file of responses: what names each, and text that a tokenizer takes.

Loads neither torch nor a model: what is wrong with a row is said before that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.records import read_jsonl

Row = Mapping[str, Any]


def row_name(
    row: Row, number: int, met: Counter[tuple[Any, Any]], where: str
) -> dict[str, Any]:  # fmt: skip
    """What names a row of a file: `problem`, `sample` and, in a training run, `step`.

    Args:
        row: a row of the file. number: its number, from 1, its problem's name if it has none.
        met: how many rows of each (step, problem) came before; this one is added.
        where: the row, for an error.

    >>> met = Counter()
    >>> row_name({"problem": "a"}, 1, met, "x"), row_name({"problem": "a"}, 2, met, "x")
    ({'problem': 'a', 'sample': 0}, {'problem': 'a', 'sample': 1})
    """
    for field in ("step", "problem", "sample"):
        if isinstance(row.get(field), list | dict):
            raise InputError(f"its `{field}` is no name", where, "write a text or a number")
    problem, step = row.get("problem", str(number)), row.get("step")
    name = {"problem": problem, "sample": row.get("sample", met[step, problem])}
    met[step, problem] += 1
    return name if step is None else {"step": step, **name}


def sound_row(row: Row, prompt: str | None, where: str) -> dict[str, Any]:
    """A row whose prompt and response are lists of ids, or text that a tokenizer takes.

    Args:
        row: of a file; lone surrogates in its texts become replacement characters.
        prompt: its problem's, for a row that has none.
        where: the row, for an error.

    >>> sound_row({"response": "7", "prompt_ids": [5]}, None, "x")
    {'response': '7', 'prompt_ids': [5]}
    """
    sound = dict(row)
    if prompt is not None and "prompt" not in row:
        sound["prompt"] = prompt
    for field in ("prompt", "response"):
        ids, text = row.get(f"{field}_ids"), sound.get(field)
        if isinstance(text, str):
            sound[field] = sound_text(text)
        elif ids is None:
            told = f"its fields are {', '.join(sorted(row))[:200] or 'none'}"
            beside = ", nor has problems.jsonl one beside it" if field == "prompt" else ""
            raise InputError(f"it has no text `{field}`", where, told + beside)
        if ids is not None and not isinstance(ids, list):
            raise InputError(f"its `{field}_ids` are no token ids", where, "write a list of them")
    return sound


def sound_text(text: str) -> str:
    """The text with lone surrogates, which no tokenizer takes, as replacement characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def prompts_beside(path: Path) -> dict[Any, str]:
    """The prompts of the problems.jsonl in a file's folder, by problem; none without it."""
    return {
        row["problem"]: row["prompt"]
        for row in read_jsonl(path.parent / "problems.jsonl")
        if isinstance(row.get("problem"), str | int) and isinstance(row.get("prompt"), str)
    }
