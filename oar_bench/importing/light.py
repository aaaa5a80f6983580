"""lighteval's results_DATE.json and details_TASK_DATE.parquet (0.10 and later).

`{OUT}/results/MODEL/results_DATE.json` and, with `--save-details`, a parquet file for each task in
`{OUT}/details/MODEL/DATE/`: a row for each document with the columns `doc`, `model_response` and
`metric`. A metric over several responses (avg@n:n=4) is a share of them: how many were right is
known then, but not which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.importing.bounded import MIB, TORN, finite, inside, mapping, text_of
from oar_bench.importing.found import Found, Options, Sample

TOOL = "lighteval"
DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
RESULTS = re.compile(rf"results_(?P<date>{DATE})\.json")
DETAILS = re.compile(rf"details_.+_(?P<date>{DATE})\.parquet")
COLUMNS = ("doc", "model_response", "metric")
LEAVES = ("doc.query", "doc.choices", "doc.gold_index", "doc.id", "doc.task_name",
          "model_response.text", "model_response.output_tokens", "metric")  # fmt: skip
MAX_ROW_GROUP = 4096 * MIB
BATCH = 16  # documents in memory at once
COUNTED = re.compile(r"(?:avg@n|pass@k):(?:k=1&)?n=(?P<n>\d+)")
_JUDGING = ("em", "extractive_match", "exact_match", "acc", "pass@k:k=1&n=1")
_GENERAL = ("lighteval_sha", "num_fewshot_seeds", "max_samples", "model_config", "model_name")


def is_results(top: Mapping[str, Any]) -> bool:
    """Whether the top-level members of a JSON file are those of lighteval's results."""
    return isinstance(top.get("results"), dict) and isinstance(top.get("config_general"), dict)


def task_of(path: Path) -> str:
    """The task of a details file, as its rows name it.

    Raises:
        InputError: no parquet file, a damaged one, or not of lighteval's columns.
    """
    for row in _documents(path):
        return text_of(inside(row, "doc", "task_name"), "doc.task_name", str(path))
    raise InputError("there is no row in this file", str(path))


def read_results(
    path: Path, top: Mapping[str, Any], details: Mapping[str, Path], options: Options
) -> list[Found]:  # fmt: skip
    """Every task of a results file; `details` are the files of its documents by task.

    Means over tasks (`all`, `NAME:_average`) are left out.
    """
    where = str(path)
    results = mapping(top["results"], "results", where)
    name = options.model or text_of(
        inside(top, "config_general", "model_name"), "model_name", where
    )
    tasks = [task for task in results if task != "all" and ":_average" not in task]
    plain = [_plain(task) for task in tasks]
    # one task with several numbers of examples keeps them in its name
    names = {
        task: short if plain.count(short) == 1 else task.replace("|", "-")
        for task, short in zip(tasks, plain, strict=True)
    }
    return [
        _task(
            path, top, task, mapping(results[task], f"results of {task}", where),
            details.get(task), name, options.metric, short,
        )
        for task, short in names.items() if options.wants(short)
    ]  # fmt: skip


def _task(
    path: Path, top: Mapping[str, Any], task: str, of: Mapping[str, Any], details: Path | None,
    model: str, metric: str | None, short: str,
) -> Found:  # fmt: skip
    where = f"{path}, task {task}"
    numbers = {
        k: float(v) for k, v in of.items()
        if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
    }  # fmt: skip
    names = [key for key in of if not key.endswith("_stderr")]
    judging = [n for n in names if n in _JUDGING or COUNTED.fullmatch(n)]
    chosen = metric or next(iter([*judging, *names]), None)
    if chosen is None or chosen not in of:
        raise InputError(
            f"no metric {metric!r}" if metric else "no metric", where,
            f"use one of {', '.join(names)}" if names else "evaluate again",
        )  # fmt: skip
    config = inside(top, "config_tasks", task) or {}
    general = mapping(top["config_general"], "config_general", where)
    given = inside(general, "model_config", "generation_parameters") or {}
    count = config.get("effective_num_docs")
    version = inside(top, "config_general", "lighteval_sha")
    known = isinstance(version, str) and version not in ("?", "")
    own = next((m for m in config.get("metrics") or []
                if isinstance(m, dict) and m.get("metric_name") == chosen), {})  # fmt: skip
    return Found(
        TOOL, str(version) if known else None, model, short, chosen,
        finite(of[chosen], chosen, where), (path, *([details] if details else [])),
        stderr=numbers.get(f"{chosen}_stderr"),
        problems=count if isinstance(count, int) and count > 0 else None,
        rows=partial(_rows, details, short, chosen) if details else None,
        mean_of_rows=own.get("corpus_level_fn", "mean") == "mean",
        sampling={
            "temperature": given.get("temperature"), "top_p": given.get("top_p"),
            "max_new_tokens": given.get("max_new_tokens") or config.get("generation_size"),
            "stop": given.get("stop_tokens") or config.get("stop_sequence") or [],
        },
        seed=given.get("seed"), protocol={"fewshot": config.get("num_fewshots")},
        original={"general": {k: general[k] for k in _GENERAL if k in general}, "task": config},
        numbers=numbers, date=_date(path),
        own_prints={
            "task": fingerprint([TOOL, task, config.get("version"), config.get("prompt_function")]),
            "grader": fingerprint([TOOL, chosen, own.get("sample_level_fn")]),
        },
        notes=() if known else ("lighteval doesn't say its version",),
    )  # fmt: skip


def _plain(task: str) -> str:
    """A task without suite and number of examples.

    >>> _plain("gsm8k|5"), _plain("lighteval|gsm8k|5|0")
    ('gsm8k', 'gsm8k')
    """
    parts = task.split("|")
    return parts[1] if len(parts) > 2 else parts[0]


def _date(path: Path) -> str | None:
    match = RESULTS.fullmatch(path.name)
    return match["date"] if match else None


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a details file, a few at a time, only the columns that are used."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            if missing := [name for name in COLUMNS if name not in names]:
                raise InputError(
                    f"no column {missing[0]!r} (it has {', '.join(names)[:80]})", str(path),
                    "details of lighteval 0.10 or later are needed",
                )  # fmt: skip
            for group in range(file.metadata.num_row_groups):
                if file.metadata.row_group(group).total_byte_size > MAX_ROW_GROUP:
                    raise InputError(f"a row group is over {MAX_ROW_GROUP // MIB} MiB", str(path))
            for batch in file.iter_batches(batch_size=BATCH, columns=[*LEAVES]):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        line = " ".join(str(error).split())[:120]
        raise InputError(f"no readable parquet file ({line})", str(path), TORN) from error


def _rows(path: Path, task: str, metric: str, judged: bool) -> Iterator[Sample]:
    counted = COUNTED.fullmatch(metric)
    for number, row in enumerate(_documents(path), start=1):
        where = f"{path}: row {number}"
        if metric not in (row.get("metric") or {}):
            raise InputError(f"no metric {metric!r}", where, "name another --metric")
        value = finite(inside(row, "metric", metric), metric, where)
        own = inside(row, "doc", "id")
        place = str(own) if own else str(number - 1)
        texts = inside(row, "model_response", "text") or []
        tokens = inside(row, "model_response", "output_tokens") or []
        lengths = [len(of) if isinstance(of, list) else None for of in tokens]
        lengths += [None] * (len(texts) - len(lengths))

        def sample(
            k: int, value: float | None, text: str | None, length: int | None,
            place: str = place, row: Mapping[str, Any] = row,
        ) -> Sample:  # fmt: skip
            return Sample(
                problem=f"{task}-{place}", sample=k, value=value, response=text,
                gold=_gold(row), prompt=inside(row, "doc", "query"), tokens=length,
                order=(int(place), "") if place.isdecimal() else (0, place),
            )  # fmt: skip

        single = len(texts) == 1
        if judged or (single and not (counted and int(counted["n"]) > 1)):
            for k, (text, length) in enumerate(zip(texts, lengths, strict=False)):
                yield sample(k, value if single else None, text, length)
        elif counted:
            yield from _counted(value, int(counted["n"]), where, sample)
        else:
            yield sample(0, value, None, None)


def _counted(value: float, n: int, where: str, sample: Any) -> Iterator[Sample]:
    """n verdicts of which a share is right; which ones isn't known, and no figure depends on it."""
    right = round(value * n)
    if n > 1 << 16 or abs(value * n - right) > 1e-6 * n or not 0 <= right <= n:
        raise InputError(f"{value} is no share of {n} responses", where)
    for k in range(n):
        yield sample(k, float(k < right), None, None)


def _gold(row: Mapping[str, Any]) -> str | None:
    """The one gold; None where there are several or none."""
    index, choices = inside(row, "doc", "gold_index"), inside(row, "doc", "choices")
    index = index[0] if isinstance(index, list) and len(index) == 1 else index
    if isinstance(index, int) and isinstance(choices, list) and 0 <= index < len(choices):
        return str(choices[index]).strip()
    return None
