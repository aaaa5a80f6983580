"""One scored evaluation folder in memory: who solved what, and its results.json."""

from __future__ import annotations

import math
from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.metrics import Correctness, avg_at_k
from oar_bench.evaluation.rows import score_marks
from oar_bench.evaluation.tally import Tally, tally
from oar_bench.records import SCHEMA, read_json
from oar_bench.reporting.stated import WHY, is_stated
from oar_bench.reporting.text import visible

METRICS = ("n_samples", "statuses", "truncated", "no_answer", "response_tokens",
           "equal_completions")  # fmt: skip
MIXED = "score again, or allow it by --allow FIELD"


@dataclass(frozen=True)
class Evaluation:
    """One model on one task: who solved what (P, K), and its results.json."""

    task: str
    where: str
    tally: Tally
    metrics: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    settings: Mapping[str, Any]
    folder: Path
    files: tuple[str, ...] = ()
    """Sums of the files that it was imported from."""

    @property
    def matrix(self) -> Correctness:
        """Which samples of which problems are right."""
        return self.tally.matrix


def load_evaluation(folder: Path, where: str, allow: Names[str] = ()) -> Evaluation:
    """One scored evaluation folder; `where` is what to call it.

    Raises InputError when a file is broken, the two files don't belong together, or a score row
    carries another identity than results.json (fields in `allow` apart).
    """
    results_file, scores_file = folder / "results.json", folder / "scores.jsonl"
    results = read_json(results_file)
    check_schema(results, results_file)
    need(results, "metrics", results_file)
    metrics = mapping(results, "metrics", results_file)
    marks = score_marks(
        str(need(results, "task", results_file)), mapping(results, "fingerprints", results_file)
    )
    try:
        found = tally(scores_file)
        found.check(scores_file, marks, MIXED, allow)
        stated = float(metrics["avg@k"]["value"])
    except ValueError as error:
        raise InputError(str(error), str(scores_file), "score again") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"a row or metric lacks {error}", str(folder), "score again") from error
    for key in METRICS:
        need(metrics, key, results_file)
    _check_numbers(metrics, results_file)
    if not math.isclose(stated, float(avg_at_k(found.matrix.values).mean()), abs_tol=1e-9):
        raise InputError(
            "results.json does not belong to scores.jsonl (other avg@k)", str(folder), "score again"
        )
    return Evaluation(
        visible(str(need(results, "task", results_file))),
        where,
        found,
        metrics,
        mapping(results, "fingerprints", results_file),
        mapping(results, "settings", results_file),
        folder,
        _files(results, results_file),
    )


def _files(results: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    files = mapping(results, "imported", path).get("files")
    listed = (
        [file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else []
    )
    return tuple(sorted(str(file.get("sha256")) for file in listed))


def refuse_copies(by_seed: Mapping[int, Evaluation]) -> None:
    """InputError where one result was imported under two training seeds: it is one training run."""
    seen: dict[tuple[str, ...], Evaluation] = {}
    for evaluation in by_seed.values():
        twin = seen.setdefault(evaluation.files, evaluation) if evaluation.files else evaluation
        if twin is not evaluation:
            raise InputError(
                f"{twin.where} and {evaluation.where} were imported from the same files",
                str(evaluation.folder), "import each training seed's own results",
            )  # fmt: skip


def _check_numbers(metrics: Mapping[str, Any], path: Path) -> None:
    """Refuse metrics of other types than a report counts with; null is what isn't known."""
    counts = {f"statuses.{k}": v for k, v in mapping(metrics, "statuses", path).items()}
    for key, value in {**{k: metrics[k] for k in METRICS if k != "statuses"}, **counts}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{key} is {str(value)[:40]!r}, no number", str(path), "score again")


def unpaired(folder: Path) -> str | None:
    """Why the results in a folder can't be set against others problem by problem; None if so."""
    results = read_json(folder / "results.json")
    if results.get("kind") == "probe":
        return "this is a contamination probe, not an evaluation"
    if is_stated(results, folder):
        return WHY
    if results.get("engine") == "lm-eval" and not (folder / "scores.jsonl").is_file():
        return "lm-eval ran this task, and none of its metrics is right or wrong for each problem"
    return None


def need(row: Mapping[str, Any], key: str, path: Path) -> Any:
    """A field that must be there; InputError names it and the file otherwise."""
    if key not in row:
        raise InputError(f"lacks the field {key!r}", str(path))
    return row[key]


def check_schema(about: Mapping[str, Any], path: Path) -> None:
    """Refuse a file of another schema than this version reads."""
    if about.get("schema") != SCHEMA:
        raise InputError(
            f"schema {about.get('schema')!r}, but this version reads {SCHEMA}",
            str(path),
            "make it again, or use the version of oar-bench that wrote it",
        )


def mapping(about: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    """An object in a file's content, empty where it is absent; InputError when it is none."""
    value = about.get(key, {})
    if not isinstance(value, Mapping):
        raise InputError(f"{key!r} is not an object", str(path))
    return value
