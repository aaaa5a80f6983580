"""Results on several sets of problems, compared on the problems that all of them have.

Only on demand (`--allow problems`): a score on other problems is another score. What results of
unlike sets must differ in (how many problems, the fingerprints of all their golds and prompts) is
left aside then, and each common problem is checked by itself instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oar_bench.errors import InputError
from oar_bench.evaluation.metrics import Correctness, avg_at_k
from oar_bench.evaluation.statistics import share_interval
from oar_bench.evaluation.summary import summarize, to_json
from oar_bench.identity import fingerprint
from oar_bench.records import read_jsonl
from oar_bench.reporting.evaluations import METRICS, Evaluation
from oar_bench.tasks.labels import LABELS

OF_THE_SET = {"settings": ("problems", "limit"), "fingerprints": ("data", "prompt")}
"""Fields that hold the whole set of problems, and so differ between two sets."""
UNASKED = ("schema", *LABELS)
"""Fields of a problem that neither the model nor the grader sees."""


def on_common_problems(
    evaluations: Sequence[Evaluation],
) -> tuple[list[Evaluation], list[str]]:
    """The evaluations of one task cut to the problems that all have, and what to say of it.

    Their metrics are made anew from the rows of those problems. Evaluations of the same problems
    come back as they are.

    Raises:
        InputError: no problem is in common, or one has another prompt or gold in two of them.
    """
    first = evaluations[0]
    if all(e.matrix.problems == first.matrix.problems for e in evaluations):
        return [*evaluations], []
    common = set(first.matrix.problems).intersection(*(e.matrix.problems for e in evaluations))
    if not common:
        raise InputError(
            "these results have no problem in common", first.where, "evaluate on the same ones"
        )
    known = _refuse_other_texts(evaluations, common)
    each = ", ".join(f"{len(e.matrix.problems)} in {e.where}" for e in evaluations)
    note = f"problems: {each}; compared on the {len(common)} in common"
    return [_cut(e, common, known) for e in evaluations], [note]


def _refuse_other_texts(evaluations: Sequence[Evaluation], common: set[str]) -> bool:
    """Refuse a common problem that isn't the same everywhere; whether that could be checked."""
    found = [_identities(e.folder / "problems.jsonl", common) for e in evaluations]
    if not all(len(identities) == len(common) for identities in found):
        return False  # a folder without its problems: the fingerprints of the sets are compared
    for evaluation, identities in zip(evaluations[1:], found[1:], strict=True):
        other = next((p for p in sorted(common) if identities[p] != found[0][p]), None)
        if other is not None:
            raise InputError(
                f"problem {other!r} has another prompt or gold than in {evaluations[0].where}",
                evaluation.where, "compare results of the same prompts",
            )  # fmt: skip
    return True


def _identities(path: Path, common: set[str]) -> dict[str, str]:
    """What each common problem asks and accepts, as a fingerprint."""
    return {
        str(row["problem"]): fingerprint({k: v for k, v in row.items() if k not in UNASKED})
        for row in read_jsonl(path)
        if str(row.get("problem")) in common
    }


def _cut(evaluation: Evaluation, common: set[str], known: bool) -> Evaluation:
    """One evaluation with only the common problems."""
    matrix = evaluation.matrix
    keep = np.array([name in common for name in matrix.problems])
    cut = evaluation.tally.only(keep)
    settings, prints = dict(evaluation.settings), dict(evaluation.fingerprints)
    for name in OF_THE_SET["settings"]:
        settings.pop(name, None)
    for name in OF_THE_SET["fingerprints"] if known else ():
        prints.pop(name, None)
    metrics = _metrics(evaluation, cut.matrix, common)
    return replace(evaluation, tally=cut, metrics=metrics, settings=settings, fingerprints=prints)


def _metrics(evaluation: Evaluation, cut: Correctness, common: set[str]) -> Mapping[str, Any]:
    """The metrics over the common problems; without samples only the score is known."""
    if not (evaluation.folder / "samples.jsonl").is_file():
        unknown = dict.fromkeys(METRICS)
        return {**unknown, "n_samples": cut.values.size, "statuses": {},
                "avg@k": to_json(share_interval(avg_at_k(cut.values)))}  # fmt: skip

    def rows(name: str) -> Iterator[dict[str, Any]]:
        path = evaluation.folder / name
        return (row for row in read_jsonl(path) if str(row["problem"]) in common)

    grading = evaluation.settings.get("grading", {})
    sampling = evaluation.settings.get("sampling", {})
    return summarize(
        rows("samples.jsonl"), rows("scores.jsonl"),
        answer_type=grading.get("answer_type", "math"), cap=sampling.get("max_new_tokens"),
    )  # fmt: skip
