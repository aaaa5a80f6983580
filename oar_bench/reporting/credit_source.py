"""Which response `oar-bench credit show` looks at: one given in words, or a row of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from oar_bench.answers.extract import AnswerType
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.tasks.problems import ANSWER_TYPE


@dataclass(frozen=True)
class Chosen:
    """A prompt and a response to it, and what is known about them."""

    prompt: str
    response: str
    source: str
    """Where it comes from, in words."""
    gold: str = ""
    seed: int = 0
    """Key of the sample; every method's own randomness is derived from it."""
    ended: bool = False
    """It ended itself, so that its last token is the end of sequence."""
    tokens: int | None = None
    """Tokens that were sampled, where the file says so."""
    model: str | None = None
    """Fingerprint of the checkpoint that sampled it, where the file says so."""
    answer_type: AnswerType = "math"
    """What counts as its answer: as its evaluation or training run says."""
    prompt_ids: list[int] | None = None
    response_ids: list[int] | None = None
    """The token ids themselves, where the file has them; no text is encoded then."""


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
        return _of_row(file, *_find(file, 1 if row is None else row, problem, sample or 0))
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
    return Chosen(_sound(prompt), _sound(response), "--response")


def _find(file: Path, row: int, problem: str | None, sample: int) -> tuple[int, Mapping[str, Any]]:
    """Number and content of the wanted row; only one row is in memory at a time."""
    if not file.exists():
        raise InputError("no such file", str(file))
    number = met = 0
    for number, content in enumerate(read_jsonl(file), start=1):
        if problem is None:
            if number == row:
                return number, content
        elif str(content.get("problem")) == problem:
            # Rollouts don't number the responses to a problem: they stand in their order.
            if content.get("sample", met) == sample:
                return number, content
            met += 1
    if problem is None:
        raise InputError(
            f"row {row} is not in this file of {number} rows", str(file), f"use --row 1..{number}"
        )
    if not met:
        raise InputError(f"no row is of problem {problem!r}", str(file))
    raise InputError(f"problem {problem} has {met} samples, none is {sample}", str(file))


def _of_row(file: Path, number: int, content: Mapping[str, Any]) -> Chosen:
    where = f"{file}: row {number}"
    response, prompt = content.get("response"), content.get("prompt")
    if response is None and "response_ids" in content:
        response = ""  # decoded from the ids
    if not isinstance(response, str):
        raise InputError("it has no text `response`", where)
    if prompt is None and "prompt_ids" in content:
        prompt = ""
    if prompt is None:
        prompt = _prompt_beside(file, content.get("problem"), where)
    if not isinstance(prompt, str):
        raise InputError("its `prompt` is no text", where)
    seed, tokens = content.get("seed"), content.get("response_tokens")
    about = f", problem {content['problem']}" if "problem" in content else ""
    numbered = {key: f", {key} {content[key]}" for key in ("sample", "step") if key in content}
    return Chosen(
        _sound(prompt), _sound(response), f"{where}{about}{''.join(numbered.values())}",
        gold=_sound(str(content.get("gold", ""))),
        seed=seed if isinstance(seed, int) and abs(seed) < 2**63 else 0,
        ended=content.get("finish_reason") == "stop",
        tokens=tokens if isinstance(tokens, int) else None,
        model=content["model"] if isinstance(content.get("model"), str) else None,
        answer_type=_answer_type(file),
        prompt_ids=_ids(content, "prompt_ids", where),
        response_ids=_ids(content, "response_ids", where),
    )  # fmt: skip


def _ids(content: Mapping[str, Any], name: str, where: str) -> list[int] | None:
    ids = content.get(name)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 2**31 for i in ids):
        raise InputError(f"its `{name}` are no token ids", where)
    return list(ids)


def _answer_type(file: Path) -> AnswerType:
    """What the evaluation or the training run says in whose folder a file lies, else `math`."""
    generation = file.parent / "generation.json"
    if generation.is_file():
        kind = read_json(generation).get("grading", {}).get("answer_type", "math")
        return kind if kind in get_args(AnswerType) else "math"
    return ANSWER_TYPE if (file.parent / "run.json").is_file() else "math"


def _prompt_beside(file: Path, problem: Any, where: str) -> Any:
    """The prompt of a row that has none, from problems.jsonl in the same folder."""
    problems = file.parent / "problems.jsonl"
    for row in read_jsonl(problems):
        if row.get("problem") == problem:
            return row.get("prompt")
    raise InputError("it has no `prompt`", where, f"nor has {problems.name} beside it")


def _sound(text: str) -> str:
    """The text with lone surrogates, which no tokenizer takes, as replacement characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
