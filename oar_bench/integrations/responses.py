"""The responses of a file as tokens, for the commands `oar-bench credit ...`.

They may be ours (samples.jsonl of an evaluation, rollouts.jsonl of a run) or any JSON lines with a
prompt and a response. Their token ids are those of the fields `prompt_ids` and `response_ids`
where a row has them; else the text is encoded, which may cut it into other tokens than were
sampled, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.credit.files import name_of
from oar_bench.engines.hf import context_limit
from oar_bench.engines.tokens import encode
from oar_bench.errors import InputError
from oar_bench.integrations.rows import Row, prompts_beside, row_name, sound_row, sound_text
from oar_bench.keyed import derive
from oar_bench.records import read_json, read_jsonl
from oar_bench.tasks.problems import ANSWER_TYPE


class Grading(NamedTuple):
    """What counts as an answer in a response, and where it is looked for."""

    answer_type: AnswerType = "math"
    extract: ExtractMode = "auto"

    @classmethod
    def of(cls, said: Mapping[str, Any], answer_type: AnswerType | None = None) -> Grading:
        """From what a task, an evaluation or a run says; an `answer_type` goes over that.

        >>> Grading.of({"answer_type": "number", "extract": "gsm8k", "tolerance": 0.1}, "exact")
        Grading(answer_type='exact', extract='gsm8k')
        """
        named = {key: said[key] for key in cls._fields if key in said}
        return cls(**named) if answer_type is None else cls(**{**named, "answer_type": answer_type})


@dataclass(frozen=True)
class Response:
    """One response of a file, as tokens."""

    name: dict[str, Any]
    """`problem`, `sample` and, in a training run, `step`"""
    prompt_ids: list[int]
    response_ids: list[int]
    seed: int
    encoded: bool
    """the ids come from the text and not from the file"""
    other_length: bool
    """the row says that the sampled response had another number of tokens"""


def read_responses(path: Path, tokenizer: PreTrainedTokenizerBase) -> list[Response]:
    """The responses of a file, in order.

    A row has `response_ids` or `response`, and `prompt_ids` or `prompt` (or its problem's prompt
    stands in problems.jsonl beside the file). `problem` defaults to the row's number, `sample` to
    the number of rows of that problem before it.

    Raises:
        InputError: no such file, an empty one, a row without prompt or response, or two rows of
            one name.
    """
    if not path.exists():
        raise InputError("no such file", str(path))
    prompts = prompts_beside(path)
    met: Counter[tuple[Any, Any]] = Counter()
    responses: list[Response] = []
    for number, row in enumerate(read_jsonl(path, unended=True), start=1):
        where = f"{path}: row {number}"
        name = row_name(row, number, met, where)
        sound = sound_row(row, prompts.get(name["problem"]), where)
        responses.append(as_tokens(sound, name, tokenizer))
    if not responses:
        raise InputError("there is no row in this file", str(path))
    double = [name for name, n in Counter(name_of(r.name) for r in responses).items() if n > 1]
    if double:
        _, problem, sample = double[0]
        raise InputError(f"two rows for problem {problem}, sample {sample}", str(path))
    return responses


def as_tokens(row: Row, name: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> Response:
    """A row from `sound_row` as tokens. A seed that is none is derived from the name."""
    ids, prompt_ids, seed = (row.get(k) for k in ("response_ids", "prompt_ids", "seed"))
    encoded = ids is None
    if ids is None:
        ids = tokenizer(row["response"], add_special_tokens=False)["input_ids"]
        if row.get("finish_reason") == "stop" and tokenizer.eos_token_id is not None:
            ids = [*ids, tokenizer.eos_token_id]
    if prompt_ids is None:
        prompt_ids = encode(tokenizer, row["prompt"])
    if type(seed) is not int or abs(seed) >= 2**63:
        seed = derive("saved", *(sound_text(v) if isinstance(v, str) else v for v in name.values()))
    counted = row.get("response_tokens", len(ids))
    return Response(name, list(prompt_ids), list(ids), seed, encoded, counted != len(ids))


def grading_of(path: Path, answer_type: AnswerType | None = None) -> Grading:
    """How answers are found in a file's responses: as its evaluation or run says, else `math`.

    An `answer_type` goes over what stands there.

    Raises:
        InputError: what stands there is unknown.
    """
    for name, default in (("generation.json", "math"), ("run.json", ANSWER_TYPE)):
        file = path.parent / name
        if file.is_file():
            said = read_json(file).get("grading", {})
            said = said if isinstance(said, dict) else {"answer_type": said}
            found = Grading.of({"answer_type": default, **said}, answer_type)
            if found.answer_type not in get_args(AnswerType):
                mend = "give --answer-type"
                raise InputError(f"{found.answer_type!r} is no answer type", str(file), mend)
            if found.extract not in get_args(ExtractMode):
                known = ", ".join(get_args(ExtractMode))
                raise InputError(f"{found.extract!r} is no extract", str(file), f"use {known}")
            return found
    return Grading(answer_type or "math")


def check_fit(response: Response, model: PreTrainedModel, where: str) -> None:
    """Refuse a response that the model can't read."""
    vocabulary = int(model.get_input_embeddings().weight.shape[0])  # type: ignore[index]
    context = context_limit(model)
    ids = [*response.prompt_ids, *response.response_ids]
    if not response.prompt_ids:
        raise InputError("the prompt has no token", where)
    if not all(type(i) is int and 0 <= i < vocabulary for i in ids):
        raise InputError(
            f"a token id is no number below {vocabulary}, the model's vocabulary", where,
            "give the checkpoint that sampled these responses",
        )  # fmt: skip
    if context is not None and len(ids) > context:
        raise InputError(
            f"prompt and response have {len(ids)} tokens, the model's context is {context}", where,
            "shorten that response or leave it out",
        )  # fmt: skip
