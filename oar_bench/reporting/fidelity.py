"""The stage `oar-bench credit fidelity`: every method against exact OAR-P, response by response.

The problem is the unit: responses to one problem are averaged before anything else, and an
interval is over problems. What a method can't rank is left out and counted, never set to 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from oar_bench.config import IMPORTANCE_METHODS, CreditSettings
from oar_bench.console import Console
from oar_bench.credit.fidelity import SHARES
from oar_bench.credit.files import name_of
from oar_bench.credit.methods import replacement_of
from oar_bench.engines.hf import HFEngine, pad_id
from oar_bench.errors import InputError, nearest
from oar_bench.identity import environment, fingerprint, fingerprint_checkpoint
from oar_bench.integrations.responses import Response
from oar_bench.integrations.saved import batch_of
from oar_bench.records import SCHEMA, JsonlWriter, owned
from oar_bench.reporting.fidelity_measure import EXACT, FLOOR, OTHER, ROWS, Measured
from oar_bench.reporting.fidelity_source import Answers, Source, gather
from oar_bench.reporting.fidelity_table import summary
from oar_bench.reporting.kept import kept_row, kept_rows

CHUNK = 16  # responses that are scored together, and kept once they are


def rows_of(methods: Sequence[str]) -> list[str]:
    """The methods of the table: exact OAR-P first, then those asked for; position always.

    >>> rows_of(["oar-d", "oar-g"])
    ['oar-p', 'oar-d', 'oar-g', 'position']

    Raises:
        InputError: a method that gives no importance.
    """
    for method in methods:
        if method not in IMPORTANCE_METHODS:
            raise InputError(
                f"no importance is called {method!r}", "--method",
                nearest(method, list(IMPORTANCE_METHODS)),
            )  # fmt: skip
    return list(dict.fromkeys([EXACT, *methods, FLOOR]))


def other_token(word: str) -> int | None:
    """The id that `--replacement-other` names; None for `frequent`.

    Raises:
        InputError: neither `frequent` nor a number.
    """
    if word == "frequent":
        return None
    if not word.isascii() or not word.isdigit():
        raise InputError(
            f"{word!r} is no token id", "--replacement-other", "give a number, or frequent"
        )
    return int(word)


def fidelity(
    model: Path, source: Source, methods: Sequence[str], settings: CreditSettings, other: str,
    console: Console, curves: bool = True, out: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Agreement of each method with exact OAR-P, and its deletion and insertion curves.

    With a folder `out` each response's numbers are appended to fidelity.jsonl there. Called again
    with the same things asked, the responses that are there aren't measured again.

    Args:
        model: folder of the checkpoint whose answers are watched.
        source: which responses.
        methods: importances by their names.
        settings: a recipe's credit section.
        other: the second replacement token, see `other_token`.
        curves: whether deletion and insertion are measured, eleven passes a response and method.
        out: a folder to keep each response's numbers in.

    Returns:
        JSON-ready; `rows` as `oar_bench.reporting.fidelity_table.summary` makes them, `responses`
        with the numbers of each one, and what they were made of.

    Raises:
        InputError: an unknown method or token, no such checkpoint, task or file, no response
            with an answer and two tokens to score, or another measurement in `out`.
    """
    source.check()
    names, other_id = rows_of(methods), other_token(other)
    engine = HFEngine.load(model)
    with console.stage("responses", (source.problems or 1) * source.samples) as tick:
        answers = gather(source, model, engine, lambda done: tick(done, ""))
    tokenizer = engine.tokenizer
    pad = pad_id(tokenizer)
    used, left_out = _usable(engine, answers, settings, source.max_tokens)
    if not used:
        raise InputError(
            _why_none(left_out), answers.about, _mend_none(left_out, source)
        )  # fmt: skip
    first = replacement_of(settings, pad)
    if other_id is None:
        other_id = _frequent(engine, used, answers, settings, first)
    _check_ids(engine, first, other_id)
    prints = {
        "model": fingerprint_checkpoint(model),
        "credit": fingerprint(settings.model_dump(mode="json")),
        **answers.fingerprints,
    }
    device = str(engine.model.device)
    made_by = {
        "methods": names, "curves": curves, **answers.grading._asdict(),
        "replacement-other": other_id, **prints, "threads": torch.get_num_threads(),
        "device": device,
    }  # fmt: skip
    measured = Measured(engine, answers, settings, other_id, curves)
    rows = _measure(measured, used, names, made_by, out, console)
    seconds = {name: sum(row["seconds"][name] for row in rows) for name in (*names, OTHER)}
    tokens = {"replacement": first, "other": other_id}
    return {
        "schema": SCHEMA, "kind": "fidelity", "model": str(model), "source": answers.about,
        **answers.grading._asdict(),
        "counts": {"responses": len(answers.responses), "used": len(used), **left_out,
                   "problems": len({r.name["problem"] for r in used})},
        "tokens": {name: {"id": i, "token": str(tokenizer.convert_ids_to_tokens(i))}
                   for name, i in tokens.items()},
        "shares": list(SHARES),
        "rows": summary([*names, OTHER], rows, seconds),
        "responses": [{k: v for k, v in row.items() if k not in _KEPT} for row in rows],
        "settings": settings.model_dump(mode="json"), "fingerprints": prints,
        "environment": {**environment(), "threads": torch.get_num_threads(),
                        "device": device},
    }  # fmt: skip


_KEPT = {"schema", "made_by", "seconds"}


def _measure(
    measured: Measured, used: Sequence[Response], names: Sequence[str],
    made_by: Mapping[str, Any], out: Path | None, console: Console,
) -> list[dict[str, Any]]:  # fmt: skip
    """A record for each response, in their order: those kept in `out`, the others made now."""
    with ExitStack() as stack:
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        writer = None
        if out is not None:
            stack.enter_context(owned(out))
            fields = ("problem", "sample", "tokens", "methods", "seconds")
            rows = {name_of(row): row for row in kept_rows(out / ROWS, made_by, fields)}
            writer = stack.enter_context(JsonlWriter(out / ROWS))
        missing = [response for response in used if name_of(response.name) not in rows]
        parts = [missing[i : i + CHUNK] for i in range(0, len(missing), CHUNK)]
        tick = stack.enter_context(console.stage("fidelity", len(parts) * (len(names) + 1)))
        done = 0
        for part in parts:
            for name in measured.add(part, names):
                done += 1
                tick(done, name)
            if writer is not None:
                writer.write([kept_row(made_by, **record) for record in measured.records])
            rows |= {name_of(record): record for record in measured.records}
    return [rows[name_of(response.name)] for response in used]


def _mend_none(left_out: Mapping[str, int], source: Source) -> str:
    if left_out["too_long"]:
        return "use a larger --max-tokens, or leave it out"
    if source.file is not None:
        return "give a file with other responses, or another --answer-type"
    return "use more problems or samples, another --answer-type, or --gold"


def _why_none(left_out: Mapping[str, int]) -> str:
    if left_out["too_long"]:
        return "no response with an answer has so few tokens to rank as --max-tokens says"
    if left_out["too_short"]:
        return "no response states an answer behind two tokens of reasoning"
    return "no response states an answer"


def _usable(
    engine: HFEngine, answers: Answers, settings: CreditSettings, most: int | None
) -> tuple[list[Response], dict[str, int]]:
    """The responses with an answer and at least two tokens to rank, and why others are left out."""
    used, left_out = [], {"no_answer": 0, "too_short": 0, "too_long": 0}
    for response in answers.responses:
        if not response.response_ids:
            left_out["no_answer"] += 1
            continue
        batch = batch_of([response], engine.model, engine.tokenizer, answers.grading)
        if not bool(batch.probe.found[0]):
            left_out["no_answer"] += 1
        elif (count := int(batch.weighted(settings).sum())) < 2:
            left_out["too_short"] += 1
        elif most is not None and count > most:
            left_out["too_long"] += 1
        else:
            used.append(response)
    return used, left_out


def _frequent(
    engine: HFEngine,
    used: Sequence[Response],
    answers: Answers,
    settings: CreditSettings,
    not_id: int,
) -> int:
    """The most frequent of the scored tokens that isn't `not_id`; of equal ones the lowest id."""
    counts: Counter[int] = Counter()
    for response in used:
        batch = batch_of([response], engine.model, engine.tokenizer, answers.grading)
        counts.update(batch.input_ids[batch.weighted(settings)].tolist())
    counts.pop(not_id, None)
    if not counts:
        raise InputError(
            "no token but the replacement occurs", "--replacement-other", "give a token's id"
        )
    return min(counts, key=lambda i: (-counts[i], i))


def _check_ids(engine: HFEngine, first: int, other: int) -> None:
    vocabulary = int(engine.model.get_input_embeddings().weight.shape[0])  # type: ignore[index]
    for name, value in (("credit.replacement", first), ("--replacement-other", other)):
        if value >= vocabulary:
            raise InputError(
                f"{value} is no token of this model", name, f"use a number below {vocabulary}"
            )
    if first == other:
        raise InputError(
            f"{other} is the replacement itself", "--replacement-other", "give another token's id"
        )
