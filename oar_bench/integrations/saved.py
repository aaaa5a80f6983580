"""From a file of responses to a file of weights: `oar-bench credit weights`.

The responses may be ours (samples.jsonl of an evaluation, rollouts.jsonl of a run) or any JSON
lines with a prompt and a response. Their token ids are those of the fields `prompt_ids` and
`response_ids` where a row has them; else the text is encoded, which may cut it into other tokens
than were sampled, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.answers.extract import AnswerType
from oar_bench.config import CreditSettings
from oar_bench.credit.assign import CreditBatch, assign
from oar_bench.credit.files import check_row, credit_rows, name_of
from oar_bench.engines.hf import context_limit, load_model, pad_id
from oar_bench.engines.tokens import encode, response_text
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint, fingerprint_checkpoint
from oar_bench.keyed import derive
from oar_bench.records import JsonlWriter, read_json, read_jsonl
from oar_bench.tasks.problems import ANSWER_TYPE
from oar_bench.training.model import pad_batch
from oar_bench.training.rollout import probed_batch

Row = Mapping[str, Any]
CHUNK = 64  # responses that are weighed and written together


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
    prompts = {r["problem"]: r["prompt"] for r in read_jsonl(path.parent / "problems.jsonl")}
    met: Counter[tuple[Any, Any]] = Counter()
    responses: list[Response] = []
    for number, row in enumerate(read_jsonl(path), start=1):
        problem, step = row.get("problem", str(number)), row.get("step")
        name = {"problem": problem, "sample": row.get("sample", met[step, problem])}
        met[step, problem] += 1
        if step is not None:
            name = {"step": step, **name}
        try:
            responses.append(as_tokens(row, name, prompts.get(problem), tokenizer))
        except KeyError as error:
            raise InputError(
                f"row {number}: no field {error}; it has {', '.join(sorted(row))[:200]}", str(path)
            ) from error
    if not responses:
        raise InputError("there is no row in this file", str(path))
    double = [name for name, n in Counter(name_of(r.name) for r in responses).items() if n > 1]
    if double:
        _, problem, sample = double[0]
        raise InputError(f"two rows for problem {problem}, sample {sample}", str(path))
    return responses


def as_tokens(
    row: Row, name: dict[str, Any], prompt: str | None, tokenizer: PreTrainedTokenizerBase
) -> Response:
    """A row as tokens; `prompt` is its problem's, for a row that has none. KeyError: no text."""
    ids, prompt_ids = row.get("response_ids"), row.get("prompt_ids")
    encoded = ids is None
    if ids is None:
        ids = tokenizer(str(row["response"]), add_special_tokens=False)["input_ids"]
        if row.get("finish_reason") == "stop" and tokenizer.eos_token_id is not None:
            ids = [*ids, tokenizer.eos_token_id]
    if prompt_ids is None:
        text = row["prompt"] if prompt is None or "prompt" in row else prompt
        prompt_ids = encode(tokenizer, str(text))
    counted = row.get("response_tokens", len(ids))
    seed = row.get("seed", derive("saved", *name.values()))
    return Response(name, list(prompt_ids), list(ids), seed, encoded, counted != len(ids))


def answer_type_of(path: Path) -> AnswerType:
    """What counts as an answer in a file: as its evaluation or run says, else `math`."""
    for name, default in (("generation.json", "math"), ("run.json", ANSWER_TYPE)):
        file = path.parent / name
        if file.is_file():
            kind: AnswerType = read_json(file).get("grading", {}).get("answer_type", default)
            return kind
    return "math"


def weigh_file(
    checkpoint: Path,
    path: Path,
    out: Path,
    method: str,
    settings: CreditSettings,
    answer_type: AnswerType | None = None,
    progress: Callable[[int, int], None] = lambda done, wanted: None,
) -> dict[str, Any]:
    """Write the weights of a file of responses to `out`; rows that are there already are kept.

    Args:
        checkpoint: folder of the policy that sampled the responses.
        path: the responses.
        out: a file as `oar_bench.credit.files` describes it.
        method: a credit method of `oar_bench.config.METHODS`.
        settings: the credit section of a recipe.
        answer_type: what counts as an answer, instead of `answer_type_of(path)`.

    Returns:
        Numbers for a summary: rows, those of them encoded from text, those whose row tells of
        another number of tokens, and the share without a stated answer among rows made now.

    Raises:
        InputError: as `read_responses`; or `out` holds weights made otherwise.
    """
    if out.resolve() == path.resolve():
        raise InputError("this is the file of the responses", "--out", "choose another")
    model, tokenizer = load_model(checkpoint)
    responses = read_responses(path, tokenizer)
    for response in responses:
        check_fit(response, model, f"{path}, problem {response.name['problem']}")
    kind = answer_type or answer_type_of(path)
    made_by = fingerprint([
        method, settings.model_dump(mode="json", exclude={"save_weights", "memory_mib"}), kind,
        fingerprint_checkpoint(checkpoint),
    ])  # fmt: skip
    found = 0
    with JsonlWriter(out) as rows:
        done = _done(out, responses, made_by)
        missing = [r for r in responses if name_of(r.name) not in done]
        progress(len(done), len(responses))
        for part in _parts(missing, CHUNK):
            made, probed = _weigh(part, model, tokenizer, method, settings, kind, made_by)
            rows.write(made)
            found += probed
            done.update(name_of(r.name) for r in part)
            progress(len(done), len(responses))
    return {
        "rows": len(responses),
        "made": len(missing),
        "encoded": sum(r.encoded for r in responses),
        "other_length": sum(r.other_length for r in responses),
        "frac_no_probe": 1 - found / len(missing) if missing else None,
        "answer_type": kind,
        "weights": str(out),
    }


def batch_of(
    responses: Sequence[Response],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    answer_type: AnswerType,
) -> CreditBatch:
    """What credit needs to know of some responses, on the model's device.

    The answer is looked for in what the ids decode to, as in training.
    """
    ids = [response.response_ids for response in responses]
    padded = pad_batch([r.prompt_ids for r in responses], ids, pad_id(tokenizer))
    rows, attention, mask = (part.to(model.device) for part in padded)
    texts = [response_text(tokenizer, own) for own in ids]
    seeds = [response.seed for response in responses]
    return probed_batch(tokenizer, texts, ids, (rows, attention, mask), seeds, answer_type)


def check_fit(response: Response, model: PreTrainedModel, where: str) -> None:
    """Refuse a response that the model can't read."""
    vocabulary = int(model.get_input_embeddings().weight.shape[0])  # type: ignore[index]
    context = context_limit(model)
    ids = [*response.prompt_ids, *response.response_ids]
    if not response.prompt_ids:
        raise InputError("the prompt has no token", where)
    if not all(isinstance(i, int) and 0 <= i < vocabulary for i in ids):
        raise InputError(
            f"a token id is no number below {vocabulary}, the model's vocabulary", where,
            "give the checkpoint that sampled these responses",
        )  # fmt: skip
    if context is not None and len(ids) > context:
        raise InputError(
            f"prompt and response have {len(ids)} tokens, the model's context is {context}", where
        )


def _parts(responses: list[Response], size: int) -> Iterator[list[Response]]:
    return (responses[i : i + size] for i in range(0, len(responses), size))


def _done(out: Path, responses: Sequence[Response], made_by: str) -> set[tuple[Any, ...]]:
    """Names of the responses whose weights are there; InputError when others stand there."""
    ids = {name_of(r.name): r.response_ids for r in responses}
    done = set()
    for row in read_jsonl(out):
        name = name_of(row)
        if row.get("made_by") != made_by or name not in ids:
            raise InputError(
                "it holds weights of another model, method, setting or file", str(out),
                "choose another --out, or remove it",
            )  # fmt: skip
        check_row(row, ids[name], out)
        done.add(name)
    return done


def _weigh(
    part: Sequence[Response],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    method: str,
    settings: CreditSettings,
    kind: AnswerType,
    made_by: str,
) -> tuple[list[dict[str, Any]], int]:
    """The rows of some responses, and how many of them state an answer."""
    batch = batch_of(part, model, tokenizer, kind)
    ids = [r.response_ids for r in part]
    credit = assign(method, model, batch, settings, pad_id(tokenizer))
    names = [r.name for r in part]
    rows = credit_rows(credit, batch.response_mask, ids, names, method=method, made_by=made_by)
    return rows, int(batch.probe.found.sum())
