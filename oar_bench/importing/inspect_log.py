"""inspect_ai's logs: `.eval` (a zip of JSON files) and `.json` (one JSON object), version 2.

A `.eval` holds header.json (settings and results) and samples/ID_epoch_N.json, a file for each
sample; a `.json` log holds the header's members and `samples` in one object. Both are read sample
by sample. How a score's value becomes a number is inspect_ai's own rule (`value_to_float`):
C and true are 1, I, N and false are 0, P is a half; NaN is a sample that its scorer left unscored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.importing.archive import Archive
from oar_bench.importing.bounded import finite, inside, mapping, members, parsed, text_of
from oar_bench.importing.found import Found, Options, Sample

TOOL = "inspect_ai"
NO_ANSWER = "N"
CUT_OFF = ("max_tokens", "model_length")
_VALUES = {"C": 1.0, "I": 0.0, NO_ANSWER: 0.0, "P": 0.5, "yes": 1.0, "true": 1.0, "no": 0.0,
           "false": 0.0}  # fmt: skip
_SAMPLE = re.compile(r"samples/[^/]*_epoch_\d+\.json")
_ATTACHED = "attachment://"
_OF_EVAL = ("created", "task", "task_version", "task_args", "dataset", "model", "model_args",
            "model_generate_config", "config", "packages", "revision", "scorers")  # fmt: skip
_HEADLINE = ("accuracy", "mean")

Record = Mapping[str, Any]


def is_log(top: Mapping[str, Any]) -> bool:
    """Whether the top-level members of a JSON file are those of a log."""
    return isinstance(top.get("eval"), dict) and "status" in top and "version" in top


def read_archive(path: Path, options: Options) -> list[Found]:
    """The evaluation in a `.eval` file.

    Raises:
        InputError: no log, a damaged one, or one of an evaluation that didn't succeed.
    """
    with closing(Archive(path)) as archive:
        names = archive.names
        if "header.json" not in names:
            unfinished = "_journal/start.json" in names
            raise InputError(
                "its evaluation is unfinished (no header.json)" if unfinished
                else "a zip file, but no log of inspect_ai (no header.json)", str(path),
                "finish it by `inspect eval-retry`" if unfinished else "",
            )  # fmt: skip
        header = parsed(archive.read("header.json"), "header.json", str(path))
    some = any(_SAMPLE.fullmatch(name) for name in names)
    top = mapping(header, "header.json", str(path))
    return [_found(path, top, partial(_of_archive, path) if some else None, options)]


def read_json(path: Path, options: Options) -> list[Found]:
    """The evaluation in a `.json` log."""
    top, some = {}, False
    for key, value in members(path, "samples"):
        if key == "samples":
            some = True
        elif key != "reductions":
            top[key] = value
    return [_found(path, top, partial(_of_json, path) if some else None, options)]


def _of_archive(path: Path) -> Iterator[tuple[str, Record]]:
    with closing(Archive(path)) as archive:
        for name in archive.names:
            if _SAMPLE.fullmatch(name):
                where = f"{path}: {name}"
                yield where, mapping(parsed(archive.read(name), "it", where), "it", where)


def _of_json(path: Path) -> Iterator[tuple[str, Record]]:
    number = 0
    for key, value in members(path, "samples"):
        if key == "samples":
            number += 1
            where = f"{path}: sample {number}"
            yield where, mapping(value, "it", where)


def _found(
    path: Path, top: Record, records: Callable[[], Iterator[tuple[str, Record]]] | None,
    options: Options,
) -> Found:  # fmt: skip
    where = str(path)
    if not is_log(top):
        raise InputError("no log of inspect_ai of version 2", where)
    if top["status"] != "success":
        raise InputError(
            f"its evaluation ended as {top['status']!r}, not as 'success'", where,
            "finish it by `inspect eval-retry`",
        )  # fmt: skip
    about = mapping(top["eval"], "eval", where)
    task = text_of(about.get("task"), "eval.task", where)
    scores = inside(top, "results", "scores")
    scores = [s for s in scores if isinstance(s, dict)] if isinstance(scores, list) else []
    score = _chosen(scores, inside(top, "results", "headline"), options.metric, where)
    scorer = str(score.get("name"))
    stated, name = _stated(score, where)
    epochs = inside(about, "config", "epochs")
    epochs = epochs if isinstance(epochs, int) and epochs > 0 else 1
    reducer = score.get("reducer")
    config = {
        **(inside(about, "model_generate_config") or {}),
        **(inside(top, "plan", "config") or {}),
    }
    version = inside(about, "packages", "inspect_ai")
    version = None if version is None else str(version)
    stderr = inside(score, "metrics", "stderr", "value")
    given = next(
        (s.get("options") for s in about.get("scorers") or []
         if isinstance(s, dict) and s.get("name") == score.get("scorer")), None,
    )  # fmt: skip
    plain = name in _HEADLINE and (epochs == 1 or reducer in (None, "mean"))
    unscored = score.get("unscored_samples") or 0
    return Found(
        TOOL, version, options.model or text_of(about.get("model"), "eval.model", where),
        task, f"{scorer}/{name}", stated, (path,),
        stderr=finite(stderr, "stderr", where) if stderr is not None else None,
        problems=_count(about, score),
        rows=partial(_rows, records, task, scorer, where) if records else None,
        mean_of_rows=plain and not unscored,
        sampling={
            "temperature": config.get("temperature"), "top_p": config.get("top_p"),
            "max_new_tokens": config.get("max_tokens"), "stop": config.get("stop_seqs") or [],
        },
        seed=config.get("seed"),
        protocol={"solver": _solver(top), "scorer": {"name": scorer, "options": given or {}}},
        original={
            **{key: about[key] for key in _OF_EVAL if key in about}, "plan": top.get("plan"),
        },
        numbers=_numbers(scores), date=about.get("created"),
        own_prints={
            "task": fingerprint([TOOL, version, task, about.get("task_version")]),
            "grader": fingerprint([TOOL, version, scorer, given]),
        },
        notes=() if plain else (
            f"its {name} is the reducer {reducer!r} over {epochs} epochs, avg@k the mean over "
            "samples",
        ) if epochs > 1 else (),
    )  # fmt: skip


def _chosen(scores: list[Record], headline: Any, metric: str | None, where: str) -> dict[str, Any]:
    """The score that says right or wrong: the named one, the log's headline, or the first."""
    if not scores:
        raise InputError("the log has no scores", where, "score it by `inspect score`")
    wanted = metric or inside(headline, "score")
    found = next((s for s in scores if s.get("name") == wanted), None)
    if found is None and metric is not None:
        names = ", ".join(sorted({str(s.get("name")) for s in scores}))
        raise InputError(f"no score is called {metric!r}", where, f"use one of {names}")
    return dict(found or scores[0])


def _stated(score: Record, where: str) -> tuple[float | None, str]:
    metrics = mapping(score.get("metrics"), "metrics", where)
    name = next((n for n in _HEADLINE if n in metrics), next(iter(metrics), ""))
    value = inside(metrics, name, "value")
    return (None if value is None else finite(value, name, where)), name or "score"


def _count(about: Record, score: Record) -> int | None:
    """Problems: scored ones as the log counts them (after its epochs are reduced)."""
    for value in (score.get("scored_samples"), inside(about, "dataset", "samples")):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _solver(top: Record) -> list[Any]:
    steps = inside(top, "plan", "steps")
    return [
        {"solver": s.get("solver"), "params": s.get("params_passed") or {}}
        for s in (steps if isinstance(steps, list) else []) if isinstance(s, dict)
    ]  # fmt: skip


def _numbers(scores: list[Record]) -> dict[str, float]:
    found = {}
    for score in scores:
        for name, of in (inside(score, "metrics") or {}).items():
            value = inside(of, "value")
            if isinstance(value, int | float) and math.isfinite(value):
                found[f"{score.get('name')}/{name}"] = float(value)
    return found


def _rows(
    records: Callable[[], Iterator[tuple[str, Record]]], task: str, scorer: str, path: str,
    judged: bool,
) -> Iterator[Sample]:  # fmt: skip
    for where, record in records():
        epoch, name = record.get("epoch"), record.get("id")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 1 <= epoch <= 1 << 14:
            raise InputError(f"epoch is {epoch!r}, no whole number from 1", where)
        if isinstance(name, bool) or not isinstance(name, int | str):
            raise InputError(f"id is {name!r}, no number or text", where)
        score = inside(record, "scores", scorer)
        failed = score is None and bool(record.get("error"))
        if score is None and not judged and not failed:
            raise InputError(f"no score {scorer!r} for sample {name!r}", where)
        mapping(record.get("output") or {}, "output", where)
        attached = inside(record, "attachments") or {}
        target = record.get("target")
        value = None if score is None else value_of(inside(score, "value"))
        answer = inside(score, "answer")
        yield Sample(
            problem=str(name) if isinstance(name, str) and not name.isdecimal()
            else f"{task}-{name}",
            sample=epoch - 1, value=value, no_answer=inside(score, "value") == NO_ANSWER,
            response=_resolved(inside(record, "output", "completion"), attached),
            gold=target if isinstance(target, str)
            else str(target[0]) if isinstance(target, list) and len(target) == 1 else None,
            prompt=_prompt(record.get("input"), attached),
            extracted=answer if isinstance(answer, str) else None,
            tokens=_tokens(record), truncated=_truncated(record), failed=failed,
            order=(int(name), "") if str(name).isdecimal() else (0, str(name)),
        )  # fmt: skip


def value_of(value: Any) -> float | None:
    """A score's value as a number, by inspect_ai's rule; NaN for an unscored sample.

    None for what inspect_ai can't turn into one (lists, objects).

    >>> value_of("C"), value_of("P"), value_of(True), value_of("0.25"), value_of({"a": 1})
    (1.0, 0.5, 1.0, 0.25, None)
    """
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    if value in _VALUES or value.lower() in _VALUES:
        return _VALUES.get(value, _VALUES.get(value.lower()))
    try:
        return float(value)
    except ValueError:
        return None


def _resolved(text: Any, attached: Any) -> str | None:
    """A text, or the attachment that stands for a long one."""
    if isinstance(text, str) and text.startswith(_ATTACHED):
        text = inside(attached, text.removeprefix(_ATTACHED))
    return text if isinstance(text, str) else None


def _prompt(given: Any, attached: Any) -> str | None:
    """The input, or the text of its messages one below the other."""
    if isinstance(given, str):
        return _resolved(given, attached)
    parts = [inside(message, "content") for message in given] if isinstance(given, list) else []
    texts = [_resolved(part, attached) for part in parts]
    return "\n".join(text for text in texts if text is not None) or None


def _tokens(record: Record) -> int | None:
    tokens = inside(record, "output", "usage", "output_tokens")
    return tokens if isinstance(tokens, int) and 0 <= tokens < 1 << 40 else None


def _truncated(record: Record) -> bool | None:
    choices = inside(record, "output", "choices")
    reason = inside(choices[0], "stop_reason") if isinstance(choices, list) and choices else None
    return None if reason in (None, "unknown") else reason in CUT_OFF
