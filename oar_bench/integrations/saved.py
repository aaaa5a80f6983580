"""From a file of responses to a file of weights: `oar-bench credit weights`.

Rows are appended as they are made and kept when the command is run again. Which responses there
are and how they become tokens: responses.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.answers.extract import AnswerType
from oar_bench.config import CreditSettings
from oar_bench.console import Console
from oar_bench.credit.assign import CreditBatch, assign
from oar_bench.credit.files import check_row, credit_rows, name_of
from oar_bench.engines.hf import load_model, pad_id
from oar_bench.engines.tokens import response_text
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint, fingerprint_checkpoint
from oar_bench.integrations.responses import (
    Grading,
    Response,
    check_fit,
    grading_of,
    read_responses,
)
from oar_bench.records import SCHEMA, JsonlWriter, dumps, owned, read_jsonl, refuse_foreign_line
from oar_bench.training.model import pad_batch
from oar_bench.training.rollout import probed_batch

CHUNK = 64  # responses that are weighed and written together


def weigh_file(
    checkpoint: Path,
    path: Path,
    out: Path,
    method: str,
    settings: CreditSettings,
    answer_type: AnswerType | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Write the weights of a file of responses to `out`; rows that are there already are kept.

    Args:
        checkpoint: folder of the policy that sampled the responses.
        path: the responses.
        out: a file as `oar_bench.credit.files` describes it.
        method: a credit method of `oar_bench.config.METHODS`.
        settings: the credit section of a recipe.
        answer_type: what counts as an answer, instead of what `grading_of(path)` says.
        console: told of the progress.

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
    grading = grading_of(path, answer_type)
    made_by = fingerprint([
        method, settings.model_dump(mode="json", exclude={"save_weights", "memory_mib"}), *grading,
        fingerprint_checkpoint(checkpoint),
    ])  # fmt: skip
    name, found = f"weigh {path.name}", 0
    bar = nullcontext(_untold) if console is None else console.stage(name, len(responses))
    out.parent.mkdir(parents=True, exist_ok=True)
    begin = {"schema": SCHEMA, **responses[0].name, "method": method, "made_by": made_by}
    with owned(out.parent, name=f".{out.name}.lock"):
        # Before the file is opened for more rows, which cuts a torn last line off.
        refuse_foreign_line(out, dumps(begin)[:-1])
        done = _done(out, responses, made_by)
        missing = [r for r in responses if name_of(r.name) not in done]
        with JsonlWriter(out) as rows, bar as tick:
            tick(len(done), "")
            for part in _parts(missing, CHUNK):
                made, probed = _weigh(part, model, tokenizer, method, settings, grading, made_by)
                rows.write(made)
                found += probed
                done.update(name_of(r.name) for r in part)
                tick(len(done), "")
    return {
        "rows": len(responses),
        "made": len(missing),
        "encoded": sum(r.encoded for r in responses),
        "other_length": sum(r.other_length for r in responses),
        "frac_no_probe": 1 - found / len(missing) if missing else None,
        **grading._asdict(),
        "weights": str(out),
    }


def batch_of(
    responses: Sequence[Response],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    grading: Grading,
) -> CreditBatch:
    """What credit needs to know of some responses, on the model's device.

    The answer is looked for in what the ids decode to, as in training.
    """
    ids = [response.response_ids for response in responses]
    padded = pad_batch([r.prompt_ids for r in responses], ids, pad_id(tokenizer))
    rows, attention, mask = (part.to(model.device) for part in padded)
    texts = [response_text(tokenizer, own) for own in ids]
    seeds = [response.seed for response in responses]
    return probed_batch(tokenizer, texts, ids, (rows, attention, mask), seeds, *grading)


def _untold(done: int, note: str) -> None:
    pass


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
    grading: Grading,
    made_by: str,
) -> tuple[list[dict[str, Any]], int]:
    """The rows of some responses, and how many of them state an answer."""
    batch = batch_of(part, model, tokenizer, grading)
    ids = [r.response_ids for r in part]
    credit = assign(method, model, batch, settings, pad_id(tokenizer))
    names = [r.name for r in part]
    rows = credit_rows(credit, batch.response_mask, ids, names, method=method, made_by=made_by)
    return rows, int(batch.probe.found.sum())
