"""Problem by problem: who solved it how often, and responses with what the grader said and why.

All problems are in tables/problems.csv; a page shows those on which the methods differ most, and
responses to the first of these. Every bound is a constant below and is told on the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oar_bench.errors import InputError
from oar_bench.evaluation.tally import UNKNOWN
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import START, Collection
from oar_bench.reporting.text import NONE, visible
from oar_bench.tasks.labels import LABELS

MOST_ROWS = 200
"""Problems of a task in the table."""
MOST_SHOWN = 60
"""Problems with responses in a report, shared by its tasks."""
MOST_METHODS = 8
"""Methods whose responses are shown; their scores are shown whatever their number."""
HEAD, TAIL = 360, 360
"""Characters of a text that are shown: from its beginning, and from its end with the answer."""

HOWS = {"boxed": "in a box", "hedge": "in one of several boxes", "hash": "after ####",
        "tag": "in an answer tag", "statement": "in a statement", "closing": "closing the response",
        "bare": "the response alone", "choice": "a letter"}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A response of a method, cut to size, and the grader's reason."""

    method: str
    seed: str
    sample: int
    right: bool
    status: str
    why: str
    response: str


@dataclass(frozen=True)
class Solved:
    """A problem: what kind it is, and the share of samples right under each method."""

    problem: str
    kind: str
    shares: list[float]


@dataclass(frozen=True)
class Shown:
    """A problem with its prompt, gold and responses."""

    solved: Solved
    prompt: str
    gold: str
    answers: list[Answer]


@dataclass(frozen=True)
class TaskProblems:
    """One task: every problem's shares, (P, methods), and what a page shows of them."""

    task: str
    methods: list[str]
    every: pd.DataFrame
    rows: list[Solved]
    shown: list[Shown]
    unshown: list[str]
    """Methods of which no response is shown."""


def drill(
    collection: Collection, task: str, rows: Mapping[str, Mapping[str, Any]], most: int
) -> TaskProblems:
    """The problems of a task, with responses to `most` of them.

    `rows` are those of problems.jsonl by problem; without them prompts and golds are not shown.

    Raises:
        InputError: a line of a file that is shown from is no JSON object.
    """
    by_method = collection.evaluations_of(task)
    first = next(iter(next(iter(by_method.values())).values()))
    shares = np.stack(
        [np.mean([e.matrix.values.mean(axis=1) for e in of.values()], axis=0)
         for of in by_method.values()], axis=1,
    )  # fmt: skip
    names = first.matrix.problems
    trained = [place for place, method in enumerate(by_method) if method != START]
    apart = np.ptp(shares[:, trained], axis=1)
    middle = np.abs(shares[:, trained].mean(axis=1) - 0.5)
    order = np.lexsort((np.arange(len(names)), middle.round(9), -apart.round(9)))
    solved = [
        Solved(names[i], _kind(rows.get(names[i], {})), shares[i].tolist())
        for i in order[:MOST_ROWS]
    ]
    chosen = [one.problem for one in solved[:most]]
    speakers = [method for method in by_method if method != START][:MOST_METHODS]
    answers: dict[str, list[Answer]] = {name: [] for name in chosen}
    for method in speakers:
        seed, evaluation = next(iter(by_method[method].items()))
        for name, answer in _answers(method, str(seed), evaluation, chosen):
            answers[name].append(answer)
    every = pd.DataFrame(shares, columns=[*by_method])
    every.insert(0, "problem", [visible(name) for name in names], allow_duplicates=True)
    every.insert(0, "task", task, allow_duplicates=True)
    shown = [_shown(one, rows.get(one.problem, {}), answers[one.problem]) for one in solved[:most]]
    return TaskProblems(
        task, [*by_method], every, solved, [one for one in shown if one.answers or one.prompt],
        [m for m in by_method if m not in speakers],
    )  # fmt: skip


def _kind(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {row[name]}" if name == "level" else str(row[name])
                     for name in LABELS if row.get(name))  # fmt: skip


def _shown(solved: Solved, row: Mapping[str, Any], answers: list[Answer]) -> Shown:
    prompt, gold = str(row.get("prompt") or ""), str(row.get("gold") or "")
    return Shown(solved, excerpt(prompt), excerpt(gold), answers)


def _answers(
    method: str, seed: str, evaluation: Evaluation, chosen: Sequence[str]
) -> Iterator[tuple[str, Answer]]:
    """For each chosen problem the first right response and the first that isn't."""
    picked: dict[tuple[str, int], dict[str, Any]] = {}
    kinds: set[tuple[str, bool]] = set()
    for row in rows_about(evaluation.folder / "scores.jsonl", chosen):
        kind = str(row["problem"]), bool(row.get("correct"))
        if kind not in kinds:
            kinds.add(kind)
            picked[kind[0], row["sample"]] = row
    names = {name for name, _ in picked}
    texts = {
        (str(row["problem"]), row["sample"]): excerpt(str(row.get("response") or ""))
        for row in rows_about(evaluation.folder / "samples.jsonl", names)
        if (str(row["problem"]), row.get("sample")) in picked
    }
    for (name, sample), row in sorted(picked.items(), key=lambda item: not item[1].get("correct")):
        if (name, sample) in texts:
            right, status = bool(row.get("correct")), visible(str(row.get("status", NONE)))
            text = texts[name, sample]
            yield name, Answer(method, seed, sample, right, status, why(row), text)


def rows_about(path: Path, problems: Sequence[str] | set[str]) -> Iterator[dict[str, Any]]:
    """The rows of some problems from a file of ours; other lines aren't parsed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = file.write_text('{"problem": "a", "n": 1}\\n{"problem": "b", "n": 2}\\n')
    >>> list(rows_about(file, ["b"]))
    [{'problem': 'b', 'n': 2}]
    """
    wanted = {json.dumps(name)[1:-1].encode(): name for name in problems}
    mark = b'"problem": "'
    if not wanted or not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            # An unescaped quote can't stand within a string, so this is the field itself.
            place = line.find(mark)
            if place >= 0:
                end = line.find(b'"', place + len(mark))
                if line[end - 1 : end] != b"\\" and line[place + len(mark) : end] not in wanted:
                    continue
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"line {number} is not JSON ({error})", str(path)) from error
            if isinstance(row, dict) and str(row.get("problem")) in wanted.values():
                yield row


def excerpt(text: str) -> str:
    """The text as shown: whole where it is short, else its beginning and its end.

    >>> excerpt("short"), len(excerpt("x" * 1_000_000)) < 800
    ('short', True)
    """
    if len(text) <= HEAD + TAIL:
        shown = visible(text)
        if len(shown) <= 2 * (HEAD + TAIL):
            return shown
    head, tail = visible(text[:HEAD])[:HEAD], visible(text[-TAIL:])[-TAIL:]
    return f"{head}\n[… cut here; the whole has {len(text):,} characters …]\n{tail}"


def form_words(how: str) -> str:
    """The form in which an answer was found, in words.

    >>> form_words("boxed"), form_words("–")
    ('in a box', 'none')
    """
    return HOWS.get(how, "none" if how == UNKNOWN else visible(how))


def why(row: Mapping[str, Any]) -> str:
    """What the grader found and why it said so, in one sentence.

    >>> why({"status": "wrong", "extracted": "12", "how": "boxed", "stage": "exact"})
    'read “12” (in a box), which is not the gold (stage exact)'
    >>> why({"status": "no_answer", "extracted": None, "how": None, "stage": "extract"})
    'no answer was found in the response'
    """
    status, answer = str(row.get("status")), row.get("extracted")
    how = str(row.get("how") or "")
    place = f" ({form_words(how)})" if how else ""
    read = f"read “{excerpt(str(answer))}”{place}" if answer is not None else "no answer was read"
    stage = f"stage {visible(str(row['stage']))}" if row.get("stage") else "no stage named"
    return {
        "correct": f"{read}, which is the gold ({stage})",
        "wrong": f"{read}, which is not the gold ({stage})",
        "no_answer": "no answer was found in the response",
        "truncated": "the response was cut off before its end, so it counts as not right",
        "timeout": f"{read}; the comparison ran out of time",
        "gold_error": "the gold itself could not be read",
    }.get(status, f"{read}: {visible(status)}")
