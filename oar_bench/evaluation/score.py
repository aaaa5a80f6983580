"""Stage `score`: samples.jsonl in, scores.jsonl and results.json out. Needs no model.

Grading only adds rows for samples that have none yet; with another grader than before all are
graded anew. results.json is derived from both files and written whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.judges import Judge, judge_of
from oar_bench.evaluation.probe import score_probe
from oar_bench.evaluation.shards import merge_shards
from oar_bench.evaluation.summary import summarize
from oar_bench.identity import environment
from oar_bench.records import SCHEMA, JsonlWriter, read_json, read_jsonl, write_json

BATCH = 256  # rows graded between two writes

Progress = Callable[[int, int], None]


def score(folder: Path, progress: Progress = lambda done, wanted: None) -> dict[str, Any]:
    """Grade an evaluation folder's samples and write scores.jsonl and results.json.

    Returns:
        The contents of results.json; see `oar_bench.evaluation.summary.summarize` for its metrics.

    Raises:
        InputError: the folder is no evaluation, it has no samples, or a shard is missing.
    """
    generation = read_evaluation(folder)
    if generation.get("engine") == "lm-eval":
        return read_json(folder / "results.json")
    problems = list(read_jsonl(folder / "problems.jsonl"))
    merge_shards(folder, generation, [row["problem"] for row in problems])
    if "probe" in generation:
        return score_probe(folder, generation)
    tolerances = {row["problem"]: row.get("tolerance") for row in problems}
    samples = list(read_jsonl(folder / "samples.jsonl"))
    if not samples:
        raise InputError("there are no samples to score", str(folder), "run `oar-bench generate`")
    path = folder / "scores.jsonl"
    with judge_of(generation, tolerances) as grader:
        marker = folder / "grader.json"
        if marker.exists() and read_json(marker).get("grader") != grader.fingerprint:
            path.unlink(missing_ok=True)  # verdicts of another grader
        write_json(marker, {"grader": grader.fingerprint})
        with JsonlWriter(path) as rows:
            done = {(row["problem"], row["sample"]) for row in read_jsonl(path)}
            missing = [s for s in samples if (s["problem"], s["sample"]) not in done]
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                rows.write([_row(sample, grader) for sample in batch])
                progress(len(done) + start + len(batch), len(samples))
        grader_print = grader.fingerprint
    expected = generation["problems"] * generation["samples"]
    results = {
        "schema": SCHEMA,
        "kind": "evaluation",
        "task": generation["task"],
        "model": generation["model"],
        "complete": len(samples) == expected,
        "metrics": summarize(samples, read_jsonl(path)),
        "fingerprints": {**generation["fingerprints"], "grader": grader_print},
        "settings": {
            key: generation[key] for key in ("problems", "samples", "seed", "sampling", "grading")
        },
        "environment": environment(),
    }
    write_json(folder / "results.json", results)
    return results


def read_evaluation(folder: Path) -> dict[str, Any]:
    """generation.json of an evaluation folder; InputError when the folder isn't one."""
    if not folder.is_dir():
        raise InputError("no such evaluation folder", str(folder))
    if not (folder / "generation.json").is_file():
        raise InputError(
            "not an evaluation: it has no generation.json", str(folder),
            "give the folder that `oar-bench generate` wrote, such as OUT/oar_arithmetic",
        )  # fmt: skip
    return read_json(folder / "generation.json")


def _row(sample: dict[str, Any], judge: Judge) -> dict[str, Any]:
    """The row of scores.jsonl for a sample."""
    grade = judge.grade(sample)
    return {
        "schema": SCHEMA,
        "task": sample["task"],
        "problem": sample["problem"],
        "sample": sample["sample"],
        "status": grade.status,
        "correct": grade.correct,
        "extracted": grade.extracted,
        "how": grade.how,
        "stage": grade.stage,
        "milliseconds": round(grade.milliseconds, 3),
    }
