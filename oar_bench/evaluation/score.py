"""Stage `score`: samples.jsonl in, scores.jsonl and results.json out. Needs no model.

Grading only adds rows for samples that have none yet; with another grader than before all are
graded anew. results.json is derived from both files and written whole. Both files are read as
streams: memory holds a few numbers a sample, never the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.judges import Judge, judge_of
from oar_bench.evaluation.probe import score_probe
from oar_bench.evaluation.rows import Seen, checked, sample_marks, score_marks, scored_already
from oar_bench.evaluation.shards import merge_shards
from oar_bench.evaluation.summary import summarize
from oar_bench.identity import environment
from oar_bench.records import SCHEMA, JsonlWriter, owned, read_json, read_jsonl, write_json

BATCH = 256  # rows graded between two writes

Progress = Callable[[int, int], None]


def score(folder: Path, progress: Progress = lambda done, wanted: None) -> dict[str, Any]:
    """Grade an evaluation folder's samples and write scores.jsonl and results.json.

    While `generate` still runs, or was killed, what is there is graded and the numbers are those
    of the problems that have all their samples; `complete` is false then.

    Returns:
        The contents of results.json; see `oar_bench.evaluation.summary.summarize` for its metrics.

    Raises:
        InputError: the folder is no evaluation, no problem has all its samples yet, a shard is
            missing, or a row belongs to another evaluation.
    """
    generation = read_evaluation(folder)
    with owned(folder, name=".score.lock"):
        return _score(folder, generation, progress)


def _score(folder: Path, generation: dict[str, Any], progress: Progress) -> dict[str, Any]:
    if generation.get("engine") == "lm-eval":
        return read_json(folder / "results.json")
    problems = list(read_jsonl(folder / "problems.jsonl"))
    merge_shards(folder, generation, [row["problem"] for row in problems])
    if "probe" in generation:
        return score_probe(folder, generation)
    tolerances = {row["problem"]: row.get("tolerance") for row in problems}
    expected = generation["problems"] * generation["samples"]
    with judge_of(generation, tolerances) as judge:
        count = _grade(folder, generation, judge, lambda done: progress(done, expected))
        prints = {**generation["fingerprints"], "grader": judge.fingerprint}
    complete = count == expected
    path = folder / "scores.jsonl"
    scores = checked(
        read_jsonl(path), path, score_marks(generation["task"], prints),
        f"remove {path.name} and score again",
    )  # fmt: skip
    try:
        metrics = summarize(
            islice(_samples(folder, generation), count), scores,
            answer_type=generation["grading"].get("answer_type", "math"),
            cap=generation["sampling"].get("max_new_tokens"),
            k=None if complete else generation["samples"],
        )  # fmt: skip
    except ValueError as error:
        raise InputError(str(error), str(folder)) from error
    results = {
        "schema": SCHEMA,
        "kind": "evaluation",
        "task": generation["task"],
        "model": generation["model"],
        "complete": complete,
        "metrics": metrics,
        "fingerprints": prints,
        "settings": {
            key: generation[key] for key in ("problems", "samples", "seed", "sampling", "grading")
        },
        "environment": environment(),
    }
    write_json(folder / "results.json", results)
    return results


def _grade(
    folder: Path, generation: dict[str, Any], judge: Judge, progress: Callable[[int], None]
) -> int:
    """Append the verdicts that are missing; the number of samples that were there to grade."""
    path = folder / "scores.jsonl"
    name = judge.fingerprint
    done = scored_already(path, name)
    if done is None:
        path.unlink()  # verdicts of another grader
        done = Seen()
    count, kept = 0, len(done)
    met = Seen()

    def missing() -> Iterator[dict[str, Any]]:
        nonlocal count
        for sample in _samples(folder, generation):
            count += 1
            _refuse_malformed(sample, count, folder / "samples.jsonl")
            if not met.add(sample):
                raise InputError(
                    f"row {count}: sample {sample['sample']} of problem {sample['problem']!r} "
                    "occurs twice", str(folder / "samples.jsonl"), "remove one of them",
                )  # fmt: skip
            if sample not in done:
                yield sample

    todo = missing()
    with JsonlWriter(path) as rows:
        while batch := list(islice(todo, BATCH)):
            rows.write([_row(sample, judge, name) for sample in batch])
            kept += len(batch)
            progress(kept)
    if not count:
        raise InputError("there are no samples to score", str(folder), "run `oar-bench generate`")
    return count


NEEDED = ("task", "problem", "sample", "response", "gold", "finish_reason", "response_tokens")


def _refuse_malformed(sample: dict[str, Any], row: int, path: Path) -> None:
    lacking = [name for name in NEEDED if name not in sample]
    if lacking:
        raise InputError(f"row {row}: no field {lacking[0]!r}", str(path))
    for name in ("sample", "response_tokens"):
        if not isinstance(sample[name], int) or sample[name] < 0:
            raise InputError(f"row {row}: {name} is no whole number", str(path))


def _samples(folder: Path, generation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    path = folder / "samples.jsonl"
    marks = sample_marks(generation["task"], generation["fingerprints"])
    return checked(read_jsonl(path), path, marks, "keep each evaluation in a folder of its own")


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


def _row(sample: dict[str, Any], judge: Judge, grader_print: str) -> dict[str, Any]:
    """The row of scores.jsonl for a sample."""
    grade = judge.grade(sample)
    return {
        "schema": SCHEMA,
        "task": sample["task"],
        "problem": sample["problem"],
        "sample": sample["sample"],
        **grade.row(),
        "grader": grader_print,
        **{name: sample[name] for name in ("model", "fingerprint") if name in sample},
    }
