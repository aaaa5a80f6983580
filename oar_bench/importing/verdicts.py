"""The rows of an import: scores.jsonl, samples.jsonl, problems.jsonl, and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.rows import Seen
from oar_bench.identity import fingerprint
from oar_bench.importing.bounded import MIB
from oar_bench.importing.found import Found, Sample
from oar_bench.importing.regrade import Regrader
from oar_bench.records import SCHEMA, JsonlWriter, dumps, read_jsonl, write_text

BATCH = 256
MAX_TEXTS = 512 * MIB
"""Characters of all prompts and golds of one task."""

Tick = Callable[[int], None]


@dataclass
class Written:
    """What is known after the rows are through, a few hundred bytes a problem."""

    seen: Seen = field(default_factory=Seen)
    orders: dict[str, tuple[int, str]] = field(default_factory=dict)
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    unscored: set[str] = field(default_factory=set)
    characters: int = 0
    binary: bool = True
    texts: bool = True
    shares: bool = True

    def in_order(self) -> list[str]:
        """The problems in the order of their set."""
        return sorted(self.orders, key=lambda name: (self.orders[name], name))

    def prints(self) -> dict[str, str]:
        """Fingerprints of the problems and their prompts, made as `tasks.registry` makes them."""
        rows = [self.problems[name] for name in self.in_order()]
        if all("doc_hash" in row and "prompt_hash" in row for row in rows):
            return {"data": fingerprint([row["doc_hash"] for row in rows]),
                    "prompt": fingerprint([row["prompt_hash"] for row in rows])}  # fmt: skip
        golds = [
            [row["problem"], row.get("gold"), *([row["tolerance"]] if "tolerance" in row else [])]
            for row in rows
        ]
        found = {"data": fingerprint(golds)}
        if all("prompt" in row for row in rows):
            found["prompt"] = fingerprint([row["prompt"] for row in rows])
        return found


def write_rows(found: Found, stage: Path, judge: Regrader | None, tick: Tick) -> Written:
    """Write scores.jsonl and, while each sample has its text, samples.jsonl into `stage`.

    Raises:
        InputError: the source is damaged, or a (problem, sample) stands there twice.
    """
    assert found.rows is not None
    written, done = Written(), 0
    rows = found.rows(judge is not None)
    mark = mark_of(found)
    grader = judge.fingerprint if judge else found.own_prints["grader"]
    with (
        JsonlWriter(stage / "scores.jsonl") as scores,
        JsonlWriter(stage / "samples.jsonl") as samples,
    ):
        while batch := list(islice(rows, BATCH)):
            for sample in batch:
                _note(sample, written, found, judged=judge is not None)
            done += len(batch)
            batch = [sample for sample in batch if not sample.failed]
            verdicts = judge.verdicts(batch, found) if judge else [_own(s, found) for s in batch]
            scores.write(
                ({"schema": SCHEMA, "task": found.task, "problem": s.problem, "sample": s.sample,
                  **verdict, "grader": grader, "model": mark}
                 for s, verdict in zip(batch, verdicts, strict=True)), sync=False,
            )  # fmt: skip
            if written.texts:
                samples.write((_sample_row(s, found, mark) for s in batch), sync=False)
            tick(done)
    if not done:
        raise InputError("there are no samples in it", found.where)
    return written


def _note(sample: Sample, written: Written, found: Found, *, judged: bool) -> None:
    name = sample.problem
    if not written.seen.add({"problem": name, "sample": sample.sample}):
        raise InputError(f"sample {sample.sample} of problem {name!r} occurs twice", found.where)
    written.orders.setdefault(name, sample.order)
    if sample.failed:
        written.unscored.add(name)
        written.problems.setdefault(name, {})
        return
    written.texts &= sample.response is not None
    if not written.problems.get(name):
        written.problems[name] = _problem(sample)
        written.characters += len(sample.prompt or "") + len(sample.gold or "")
        if written.characters > MAX_TEXTS:
            raise InputError(f"its prompts are over {MAX_TEXTS // MIB} MiB in all", found.where)
    if judged:
        return
    value = sample.value
    if value is not None and math.isnan(value):
        written.unscored.add(name)
        return
    written.binary &= value in (0.0, 1.0)
    written.shares &= value is not None and 0 <= value <= 1
    total, count = written.sums.get(name, (0.0, 0))
    written.sums[name] = (total + (value or 0.0), count + 1)


def _problem(sample: Sample) -> dict[str, Any]:
    """A row of problems.jsonl: prompt and gold, or the tool's own hashes of them."""
    row: dict[str, Any] = {"schema": SCHEMA, "problem": sample.problem}
    if sample.prompt is None:
        gold = {} if sample.gold is None else {"gold": sample.gold}
        return {**row, **sample.identity, **gold}
    row |= {"prompt": sample.prompt, "gold": sample.gold}
    return row if sample.tolerance is None else {**row, "tolerance": sample.tolerance}


def _own(sample: Sample, found: Found) -> dict[str, Any]:
    """The tool's verdict as ours are written."""
    correct = sample.value == 1.0
    status = "correct" if correct else "no_answer" if sample.no_answer else "wrong"
    return {"status": status, "correct": correct, "extracted": sample.extracted,
            "how": found.metric, "stage": found.tool}  # fmt: skip


def _sample_row(sample: Sample, found: Found, mark: str) -> dict[str, Any]:
    finish = None if sample.truncated is None else "length" if sample.truncated else "stop"
    return {
        "schema": SCHEMA, "task": found.task, "problem": sample.problem, "sample": sample.sample,
        "response": sample.response, "gold": sample.gold, "finish_reason": finish,
        "response_tokens": sample.tokens, "model": mark,
    }  # fmt: skip


def leave_out(path: Path, gone: Iterable[str]) -> None:
    """Rewrite a file of rows without those of some problems, as a stream."""
    if not path.exists():
        return
    without, kept = set(gone), path.with_suffix(".kept")
    with JsonlWriter(kept) as rows:
        for row in read_jsonl(path):
            if row["problem"] not in without:
                rows.write([row], sync=False)
    kept.replace(path)


def write_problems(stage: Path, written: Written) -> None:
    """problems.jsonl, in the order of the set."""
    rows = (written.problems[name] for name in written.in_order())
    write_text(stage / "problems.jsonl", "".join(dumps(row) + "\n" for row in rows))


def mark_of(found: Found) -> str:
    """Names the model; its weights aren't known."""
    return fingerprint(["imported", found.tool, found.model])
