"""lm-eval's results_DATE.json and samples_TASK_DATE.jsonl.

Written by lm-eval 0.4.x; where the files lie and what is in them is set in its
`loggers/evaluation_tracker.py`. A row of the samples file is one document under one filter of the
task: its metric stands in the row under the metric's own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.formats import final_answer
from oar_bench.evaluation.stock import INVALID, RIGHT_OR_WRONG, first_metric
from oar_bench.identity import fingerprint
from oar_bench.importing.bounded import finite, inside, mapping, members, rows_of, text_of
from oar_bench.importing.found import Found, Options, Sample
from oar_bench.tasks.registry import grading_settings

TOOL = "lm-eval"
DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
RESULTS = re.compile(rf"(?:results|.*)_(?P<date>{DATE})\.json")
SAMPLES = re.compile(rf"samples_(?P<task>.+)_(?P<date>{DATE})\.jsonl")
_CONFIG = ("model", "model_args", "model_revision", "model_sha", "model_dtype", "batch_size",
           "limit", "gen_kwargs", "random_seed", "numpy_seed", "torch_seed",
           "fewshot_seed")  # fmt: skip
_TOP = ("lm_eval_version", "transformers_version", "git_hash", "model_source", "model_name",
        "system_instruction", "fewshot_as_multiturn", "chat_template_sha",
        "max_length")  # fmt: skip
_TASK = ("dataset_path", "dataset_name", "test_split", "output_type", "num_fewshot", "repeats",
         "generation_kwargs", "metric_list", "filter_list", "metadata")  # fmt: skip


def is_results(top: Mapping[str, Any]) -> bool:
    """Whether the top-level members of a JSON file are those of lm-eval's results."""
    return isinstance(top.get("results"), dict) and "configs" in top and "n-shot" in top


def read_results(
    path: Path, top: Mapping[str, Any], samples: Mapping[str, Path], options: Options
) -> list[Found]:  # fmt: skip
    """Every task of a results file; `samples` are the files of its responses by task.

    Groups are left out: they are means of tasks that stand there too.

    Raises:
        InputError: a field is of another type than lm-eval's, or names nothing to import.
    """
    where = str(path)
    results = mapping(top["results"], "results", where)
    groups = {*(inside(top, "groups") or {})}
    groups |= {name for name, of in (inside(top, "group_subtasks") or {}).items() if of}
    tasks = {name: of for name, of in results.items() if name not in groups}
    name = options.model or text_of(top.get("model_name") or "", "model_name", where)
    if not name:
        raise InputError("it doesn't name its model", where, "name it by --model")
    return [
        _task(path, top, task, mapping(of, f"results of {task}", where), samples.get(task), name,
              options.metric)
        for task, of in tasks.items() if options.wants(task)
    ]  # fmt: skip


def read_samples(path: Path, options: Options) -> list[Found]:
    """A file of samples without its results: what the rows say, and nothing of the settings."""
    match = SAMPLES.fullmatch(path.name)
    if options.model is None:
        raise InputError(
            "no results file beside these samples, so their model isn't known", str(path),
            "name it by --model, or give the folder that holds both",
        )  # fmt: skip
    first = next((row for _, row in rows_of(path)), None)
    if first is None:
        raise InputError("there is no row in this file", str(path))
    listed = first.get("metrics")
    names = [str(item) for item in listed] if isinstance(listed, list) else []
    judging = next((m for m in RIGHT_OR_WRONG if m in names), names[0] if names else None)
    chosen = options.metric or judging
    if chosen is None:
        raise InputError("its rows don't name their metrics", str(path), "name one by --metric")
    name, _, kind = chosen.partition(",")
    kind = kind or str(first.get("filter", "none"))
    task = match["task"] if match else path.stem
    found = _found(path, {}, task, f"{name},{kind}", path, options.model, {})
    return [found]


def _task(
    path: Path, top: Mapping[str, Any], task: str, of: Mapping[str, Any], samples: Path | None,
    model: str, metric: str | None,
) -> Found:  # fmt: skip
    keys = [key for key in of if "," in key and "_stderr" not in key]
    numeric = {k: of[k] for k in keys if isinstance(of[k], int | float)}
    if metric is None:
        chosen = ",".join(first_metric(numeric)) if numeric else ""
    else:
        chosen = next((k for k in keys if metric in (k, k.partition(",")[0])), "")
    if not chosen:
        asked = f"metric {metric!r}" if metric else "number"
        raise InputError(
            f"task {task} has no {asked}", str(path),
            f"use one of {', '.join(keys)}" if keys else "evaluate again",
        )  # fmt: skip
    return _found(path, top, task, chosen, samples, model, of)


def _found(
    path: Path, top: Mapping[str, Any], task: str, chosen: str, samples: Path | None, model: str,
    of: Mapping[str, Any],
) -> Found:  # fmt: skip
    where = f"{path}, task {task}"
    name, _, kind = chosen.partition(",")
    config = inside(top, "configs", task) or {}
    version = top.get("lm_eval_version")
    version = None if version is None else str(version)
    effective = inside(top, "n-samples", task, "effective")
    numbers, dropped = {}, []
    for key, value in of.items():
        if isinstance(value, int | float) and "," in key:
            try:
                numbers[key] = finite(value, key, where)
            except InputError:
                dropped.append(key)
    stderr = of.get(f"{name}_stderr,{kind}")
    metadata: Any = config.get("metadata")
    grading = isinstance(metadata, dict) and "answer_type" in metadata
    generates = config.get("output_type", "generate_until") == "generate_until"
    rows = None
    if samples is not None:
        rows = partial(_rows, samples, task, name, kind, generates)
    problems = effective if isinstance(effective, int) and effective > 0 else None
    return Found(
        TOOL, version, model, task, chosen,
        finite(of[chosen], chosen, where) if chosen in of else None,
        tuple(dict.fromkeys([path, *([samples] if samples else [])])),
        stderr=numbers.get(f"{name}_stderr,{kind}") if isinstance(stderr, int | float) else None,
        problems=problems, rows=rows, mean_of_rows=_is_mean(config, name),
        sampling=_sampling(config.get("generation_kwargs")) if generates and config else {},
        seed=inside(top, "config", "random_seed"),
        grading=grading_settings(metadata, task) if grading else {},
        original={
            **{key: top[key] for key in _TOP if key in top},
            "config": {k: v for k, v in (inside(top, "config") or {}).items() if k in _CONFIG},
            "task": {k: config[k] for k in _TASK if k in config},
            "version": inside(top, "versions", task),
            "fewshot": inside(top, "n-shot", task),
        } if top else {},
        numbers=numbers, date=_date(path),
        own_prints={
            "task": fingerprint([TOOL, version, task]),
            "grader": fingerprint([TOOL, version, task, name, kind]),
        },
        notes=(
            *([f"not finite, left out: {', '.join(dropped)}"] if dropped else []),
            *([] if top else ["no results file: its settings and versions aren't known"]),
        ),
    )  # fmt: skip


def _date(path: Path) -> str | None:
    match = RESULTS.fullmatch(path.name) or SAMPLES.fullmatch(path.name)
    return match["date"] if match else None


def _is_mean(config: Mapping[str, Any], name: str) -> bool:
    """Whether a task's number is the mean of its rows' metric."""
    listed = config.get("metric_list")
    of = next(
        (m for m in listed if isinstance(m, dict) and m.get("metric") == name), {}
    ) if isinstance(listed, list) else {}  # fmt: skip
    return bool(of.get("aggregation", "mean") == "mean")


def _sampling(given: Any) -> dict[str, Any]:
    """The generation settings in the words of our own: greedy is temperature 0."""
    given = given if isinstance(given, dict) else {}
    until = given.get("until") or []
    sampled = given.get("do_sample", (given.get("temperature") or 0) > 0)
    return {
        "temperature": float(given.get("temperature") or 1.0) if sampled else 0.0,
        "top_p": float(given.get("top_p") or 1.0) if sampled else 1.0,
        "max_new_tokens": given.get("max_gen_toks"),
        "stop": [until] if isinstance(until, str) else list(until),
    }


def _rows(
    path: Path, task: str, metric: str, kind: str, generates: bool, judged: bool
) -> Iterator[Sample]:
    """The rows of the chosen filter; with `judged` every response of a document for itself."""
    some = False
    for number, row in rows_of(path):
        where = f"{path}: line {number}"
        if "doc_id" not in row:
            raise InputError("no field 'doc_id': no sample of lm-eval", where)
        if row.get("filter", kind) != kind:
            continue
        some = True
        if metric not in row:
            raise InputError(f"no field {metric!r}", where, "name another --metric")
        document = row.get("doc")
        own = document.get("id") if isinstance(document, dict) and task.startswith("oar_") else None
        place = row["doc_id"]
        value = finite(row[metric], metric, where)
        responses = _responses(row.get("resps"), where) if generates else None
        target = row.get("target")
        sample = Sample(
            problem=f"{task}-{place}" if own is None else str(own), sample=0, value=value,
            gold=None if target is None or not generates else final_answer(str(target)),
            prompt=_prompt(row) if generates else None,
            no_answer=not value and row.get("filtered_resps") == [INVALID],
            extracted=_extracted(row) if generates and kind != "none" else None,
            tolerance=_tolerance(document) if own is not None else None,
            order=(place, "") if isinstance(place, int) else (0, str(place)),
            identity={
                key: row[key] for key in ("doc_hash", "prompt_hash", "target_hash")
                if isinstance(row.get(key), str)
            },
        )  # fmt: skip
        yield from _each(sample, responses, judged)
    if not some:
        raise InputError(f"no row of the filter {kind!r}", str(path))


def _each(sample: Sample, responses: list[str] | None, judged: bool) -> Iterator[Sample]:
    """One sample for each response where we judge; else the verdict, which is on all of them."""
    if judged and responses is not None:
        single = len(responses) == 1
        for k, text in enumerate(responses):
            yield replace(
                sample, sample=k, response=text, value=sample.value if single else None,
                no_answer=False, extracted=None,
            )  # fmt: skip
        return
    alone = responses[0] if responses is not None and len(responses) == 1 else None
    yield replace(sample, response=alone)


def _responses(resps: Any, where: str) -> list[str]:
    flat = [item for of in resps for item in (of if isinstance(of, list) else [of])] if isinstance(
        resps, list
    ) else []  # fmt: skip
    if not flat or not all(isinstance(item, str) for item in flat):
        raise InputError("'resps' holds no texts", where)
    return flat


def _prompt(row: Mapping[str, Any]) -> str | None:
    given = row.get("arguments")
    if isinstance(given, list):  # before 0.4.3 they were lists
        given = {"gen_args_0": {"arg_0": given[0][0] if given and given[0] else None}}
    prompt = inside(given, "gen_args_0", "arg_0")
    return prompt if isinstance(prompt, str) else None


def _extracted(row: Mapping[str, Any]) -> str | None:
    kept = row.get("filtered_resps")
    first = kept[0] if isinstance(kept, list) and kept else None
    return first if isinstance(first, str) and first != INVALID else None


def _tolerance(document: Any) -> float | None:
    value = inside(document, "tolerance")
    return float(value) if isinstance(value, int | float) else None


def top_of(path: Path) -> dict[str, Any]:
    """The members of a results file."""
    return dict(members(path, ""))
