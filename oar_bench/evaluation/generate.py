"""Stage `generate`: a model and a task in, samples.jsonl out.

    EVAL/problems.jsonl     one row a problem: its prompt and gold
    EVAL/generation.json    task, sampling, fingerprints, environment
    EVAL/samples.jsonl      one row a (problem, sample), appended as completions arrive;
                            with a shard, EVAL/samples.shard-i-of-n.jsonl

A killed run goes on where it was: rows that are there stay, the missing ones are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oar_bench.engines.base import Completion, Engine, Request, Sampling, check_samples
from oar_bench.errors import InputError
from oar_bench.evaluation.shards import MERGED, Shard, check_unmixed
from oar_bench.identity import differing, environment, fingerprint
from oar_bench.keyed import derive
from oar_bench.records import (
    SCHEMA,
    JsonlWriter,
    dumps,
    owned,
    prints_of,
    read_json,
    read_jsonl,
    write_json,
    write_text,
)
from oar_bench.tasks.registry import LoadedTask, Question

Progress = Callable[[int, int], None]
"""Called with rows done and rows wanted."""

SYNC_EVERY = 1.0  # seconds


def requests_of(task: LoadedTask, samples: int, seed: int) -> list[Request]:
    """Every request of an evaluation; each sample's seed is a key, never a position in a stream."""
    return [
        Request(q.problem, k, q.prompt, derive("evaluation", seed, task.name, q.problem, k))
        for q in task.questions
        for k in range(samples)
    ]


def sampling_of(
    task: LoadedTask, *, temperature: float, top_p: float = 1.0, max_new_tokens: int | None = None
) -> Sampling:
    """The task's token limit and stop sequences with the given temperature and top-p."""
    return Sampling(temperature, top_p, max_new_tokens or task.max_new_tokens, task.stop)


def generate(
    engine: Engine,
    model: str,
    model_fingerprint: str,
    task: LoadedTask,
    folder: Path,
    *,
    samples: int,
    sampling: Sampling,
    seed: int = 0,
    shard: Shard | None = None,
    progress: Progress = lambda done, wanted: None,
) -> Path:
    """Sample `samples` responses to each problem of a task into `folder`/samples.jsonl.

    Args:
        engine: makes the completions; not asked when all rows are there.
        model: what to call the model in the records, for example its folder.
        model_fingerprint: names its weights.
        seed: of the sampling keys.
        shard: only these problems, into the shard's own file.

    Raises:
        InputError: several samples at temperature 0, the folder holds another evaluation, or
            whole files and shards would mix.
    """
    check_samples(samples, sampling.temperature)
    if len({q.problem for q in task.questions}) != len(task.questions):
        raise InputError("two problems have one id", f"task {task.name}")
    wanted = {
        "schema": SCHEMA,
        "kind": "generation",
        "task": task.name,
        "model": model,
        "engine": engine.name,
        "problems": len(task.questions),
        "samples": samples,
        "seed": seed,
        "sampling": sampling.settings(),
        "grading": task.grading,
        "fingerprints": {
            **task.fingerprints,
            "sampling": fingerprint([sampling.settings(), samples, seed]),
            "model": model_fingerprint,
            "engine": engine.name,
        },
        "environment": environment(),
    }
    if task.probe is not None:
        wanted["probe"] = task.probe
    if task.stock:
        wanted["judge"] = "lm-eval"
    if folder.exists() and not folder.is_dir():
        raise InputError("a folder is expected, not a file", str(folder))
    # Shards are made side by side; each has a lock, as has the whole.
    lock = f".{shard.file}.lock" if shard else ".lock"
    with owned(folder, name=lock):
        return _generate(engine, wanted, task, folder, sampling, shard, progress)


def _generate(
    engine: Engine,
    wanted: dict[str, Any],
    task: LoadedTask,
    folder: Path,
    sampling: Sampling,
    shard: Shard | None,
    progress: Progress,
) -> Path:
    """Claim the folder for the evaluation `wanted` and make the samples that are missing."""
    golds = {q.problem: q.gold for q in task.questions}
    check_unmixed(folder, shard)
    _claim(folder, wanted)
    problems = folder / "problems.jsonl"
    if not problems.exists() or sum(1 for _ in read_jsonl(problems)) != len(golds):
        write_text(problems, "".join(dumps(_problem(q)) + "\n" for q in task.questions))
    path = folder / (shard.file if shard else MERGED)
    requests = requests_of(task, wanted["samples"], wanted["seed"])
    if shard is not None:
        own = {q.problem for number, q in enumerate(task.questions) if shard.has(number)}
        requests = [request for request in requests if request.problem in own]
    prints = wanted["fingerprints"]
    marks = {"model": prints["model"], "fingerprint": fingerprint(prints)}
    with JsonlWriter(path) as rows:
        done = {(row["problem"], row["sample"]) for row in read_jsonl(path)}
        missing = [r for r in requests if (r.problem, r.sample) not in done]
        progress(len(done), len(requests))
        synced = time.monotonic()
        for completion in engine.generate(missing, sampling):
            # Each row is written as it comes, so that neither a kill nor an error of the engine
            # takes a finished one with it; waiting for the disk once a second is enough.
            if sync := time.monotonic() - synced > SYNC_EVERY:
                synced = time.monotonic()
            gold = golds[completion.request.problem]
            rows.write([_row(task.name, completion, gold, marks)], sync=sync)
            done.add((completion.request.problem, completion.request.sample))
            progress(len(done), len(requests))
    return path


def _problem(question: Question) -> dict[str, Any]:
    """The row of problems.jsonl for a question."""
    row = {
        "schema": SCHEMA,
        "problem": question.problem,
        "prompt": question.prompt,
        "gold": question.gold,
        **question.labels,
    }
    return row if question.tolerance is None else {**row, "tolerance": question.tolerance}


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Write generation.json, or check that the folder's is of this very evaluation."""
    file = folder / "generation.json"
    if not any(path.stat().st_size for path in folder.glob("samples*.jsonl")):
        # Nothing was sampled yet: whatever was claimed before may be claimed anew.
        write_json(file, wanted)
        (folder / "problems.jsonl").unlink(missing_ok=True)
        return
    if not file.exists():
        raise InputError(
            "samples are there without their generation.json", str(folder), "choose another --out"
        )
    unlike = differing(wanted["fingerprints"], prints_of(read_json(file), file))
    if unlike:
        raise InputError(
            f"this folder holds an evaluation with another {unlike[0]}", str(folder),
            "choose another --out",
        )  # fmt: skip


def _row(task: str, completion: Completion, gold: str, marks: dict[str, str]) -> dict[str, Any]:
    """The row of samples.jsonl for a completion."""
    request = completion.request
    return {
        "schema": SCHEMA,
        "task": task,
        "problem": request.problem,
        "sample": request.sample,
        "seed": request.seed,
        "response": completion.response,
        "gold": gold,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "response_tokens": completion.response_tokens,
        **marks,
    }
