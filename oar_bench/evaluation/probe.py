"""The contamination probe: does the model know the questions by heart?

`partial:0.6` gives the model the first 60 % of a question's text, bare and without instruction,
template or examples, and lets it go on greedily. A model that writes the rest word for word has
seen it. Source of the protocol: Wu et al. 2025, "Reasoning or Memorization?", arXiv 2507.10532.

A completion is exact when it begins with the whole rest of the question, runs of blanks counted
as one. The common prefix says how far it went: its share of the rest, averaged over problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oar_bench.engines.base import Sampling
from oar_bench.errors import InputError
from oar_bench.identity import environment, fingerprint
from oar_bench.records import SCHEMA, read_jsonl, write_json
from oar_bench.tasks.registry import LoadedTask

SLACK = 8  # tokens beyond the rest's own: another way to cut the same text into tokens


def parse_probe(text: str, where: str = "--probe") -> float:
    """The share of the question that is given, from `partial:SHARE`.

    >>> parse_probe("partial:0.6")
    0.6
    """
    kind, _, share = text.partition(":")
    try:
        value = float(share)
    except ValueError:
        value = 0.0
    if kind != "partial" or not 0 < value < 1:
        raise InputError(f"{text!r} is no probe", where, "use partial:0.6, a share between 0 and 1")
    return value


def split_question(text: str, share: float) -> tuple[str, str]:
    """A question's given part and its rest, cut at the blank next before `share` of its characters.

    The blank belongs to neither end of the given part: a model writes it with the next word.

    >>> split_question("How many eggs are left for Anna", 0.6)
    ('How many eggs are', ' left for Anna')
    """
    text = " ".join(text.split())
    place = text.rfind(" ", 0, max(1, round(share * len(text))) + 1)
    return text[:place] if place > 0 else "", text[place:] if place > 0 else text


def probe_task(task: LoadedTask, share: float) -> LoadedTask:
    """The task of completing the questions of `task`; the gold of a question is its rest.

    Raises:
        InputError: the questions have no bare text, or one of them can't be cut.
    """
    questions = []
    for question in task.questions:
        given, rest = split_question(question.text, share)
        if not given or not rest.strip():
            raise InputError(
                f"problem {question.problem!r} has no text that could be cut", f"task {task.name}",
                "the probe needs the `problem` field of a test set",
            )  # fmt: skip
        questions.append(replace(question, prompt=given, gold=rest, tolerance=None))
    name = f"partial:{share:g}"
    return replace(
        task,
        questions=tuple(questions),
        stop=(),
        grading={},
        probe=name,
        fingerprints={
            **task.fingerprints,
            "task": fingerprint([task.fingerprints["task"], name]),
            "prompt": fingerprint([q.prompt for q in questions]),
        },
    )


def probe_sampling(task: LoadedTask, count_tokens: Callable[[str], int]) -> Sampling:
    """Greedy decoding, with room for the longest rest of a question."""
    longest = max(count_tokens(question.gold) for question in task.questions)
    return Sampling(temperature=0.0, max_new_tokens=longest + SLACK)


def common_prefix(response: str, rest: str) -> int:
    """Characters of `rest` that `response` begins with; runs of blanks count as one.

    >>> common_prefix(" left  for Anne?", "left for Anna?")
    12
    """
    left, right = " ".join(response.split()), " ".join(rest.split())
    for place, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if ours != theirs:
            return place
    return min(len(left), len(right))


def score_probe(folder: Path, generation: Mapping[str, Any]) -> dict[str, Any]:
    """Write results.json (kind `probe`) of a folder that holds a probe's completions.

    Raises:
        InputError: there are no completions yet.
    """
    from oar_bench.evaluation.intervals import share_interval, wilson_interval
    from oar_bench.evaluation.summary import to_json

    lengths, shares = [], []
    for row in read_jsonl(folder / "samples.jsonl"):
        rest = " ".join(row["gold"].split())
        prefix = common_prefix(row["response"], rest)
        lengths.append(prefix)
        shares.append(prefix / len(rest))
    if not shares:
        raise InputError("there are no completions", str(folder), "run `oar-bench generate` again")
    exact = sum(share == 1 for share in shares)
    results = {
        "schema": SCHEMA,
        "kind": "probe",
        "probe": generation["probe"],
        "task": generation["task"],
        "model": generation["model"],
        "complete": len(shares) == generation["problems"],
        "metrics": {
            "n_problems": len(shares),
            "exact_completions": to_json(wilson_interval(exact / len(shares), len(shares))),
            "prefix_share": to_json(share_interval(shares)),
            "prefix_characters": sum(lengths) / len(lengths),
        },
        "fingerprints": dict(generation["fingerprints"]),
        "settings": {key: generation[key] for key in ("problems", "seed", "sampling")},
        "environment": environment(),
    }
    write_json(folder / "results.json", results)
    return results
