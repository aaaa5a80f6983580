"""The metrics of an import: from its rows where it has them, else what its tool states."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation import metrics as measures
from oar_bench.evaluation.intervals import NAN, Interval, share_interval, wilson_interval
from oar_bench.evaluation.summary import finite, summarize, to_json
from oar_bench.importing.found import Found
from oar_bench.importing.verdicts import Written, leave_out, write_problems
from oar_bench.records import read_jsonl

UNKNOWN = ("run_sd", "truncated", "no_answer", "response_tokens", "equal_completions")
TOLERANCE = 1e-6
"""How far the mean over the rows may lie from the stated figure."""


def measure(
    found: Found, stage: Path, written: Written, judged: bool, notes: list[str]
) -> dict[str, Any]:
    """The metrics of what was written; files that mean nothing are removed again."""
    scores, samples = stage / "scores.jsonl", stage / "samples.jsonl"
    if not written.texts:
        samples.unlink()
        notes.append("no response stands behind each verdict: no texts are kept")
    gone = written.unscored
    if gone:
        plural = "" if len(gone) == 1 else "s"
        notes.append(f"{len(gone)} problem{plural} left out: the tool gave a sample no score")
        leave_out(scores, gone)
        leave_out(samples, gone)
        for name in gone:
            written.problems.pop(name)
            written.orders.pop(name)
            written.sums.pop(name, None)
    if not written.problems:
        raise InputError("no problem has a score for all its samples", found.where)
    if not judged and not written.binary:
        scores.unlink()
        samples.unlink(missing_ok=True)
        notes.append(f"{found.metric} isn't right or wrong for each response: no paired test")
        return _of_shares(found, written)
    write_problems(stage, written)
    try:
        if written.texts:
            numbers = summarize(read_jsonl(samples), read_jsonl(scores),
                                answer_type=found.grading.get("answer_type", "math"),
                                cap=found.sampling.get("max_new_tokens"))  # fmt: skip
        else:
            numbers = _of_verdicts(scores)
    except ValueError as error:
        raise InputError(str(error), found.where) from error
    if not judged:
        _check_stated(found, numbers["avg@k"]["value"], bool(gone))
    if found.problems is not None and not gone and numbers["n_problems"] != found.problems:
        raise InputError(
            f"{numbers['n_problems']} problems in the samples, {found.problems} in the results",
            found.where, "the samples are cut off, or of another run",
        )  # fmt: skip
    for key, what in (("response_tokens", "token counts"),
                      ("truncated", "whether a response hit its limit")):  # fmt: skip
        if numbers[key] is None:
            notes.append(f"not known: {what}")
    return numbers


def _check_stated(found: Found, value: float, partial: bool) -> None:
    if found.value is None or not found.mean_of_rows or partial:
        return
    if not math.isclose(found.value, value, abs_tol=TOLERANCE):
        raise InputError(
            f"its samples give {value:.6g}, its results say {found.value:.6g} for {found.metric}",
            found.where, "give results and samples of one run, whole",
        )  # fmt: skip


def _of_verdicts(scores: Path) -> dict[str, Any]:
    """The metrics that need no text."""
    matrix = measures.correctness(read_jsonl(scores)).values
    k = matrix.shape[1]
    numbers: dict[str, Any] = {"n_problems": len(matrix), "n_samples": matrix.size, "k": k}
    numbers["avg@k"] = to_json(share_interval(measures.avg_at_k(matrix)))
    for size in measures.powers(k):
        numbers[f"pass@{size}"] = to_json(share_interval(measures.pass_at_k(matrix, size)))
    numbers |= dict.fromkeys(UNKNOWN)
    numbers["run_sd"] = finite(measures.run_sd(matrix))
    statuses = Counter(str(row["status"]) for row in read_jsonl(scores))
    return {**numbers, "statuses": dict(statuses)}


def _of_shares(found: Found, written: Written) -> dict[str, Any]:
    """Problem means that are no verdicts: an interval over them where they are shares."""
    means = [total / count for total, count in written.sums.values()]
    n = sum(count for _, count in written.sums.values())
    interval = share_interval(means) if written.shares else _bare(found)
    return {
        "n_problems": len(means), "n_samples": n, "k": n // len(means),
        "avg@k": to_json(interval), **dict.fromkeys(UNKNOWN), "statuses": {},
    }  # fmt: skip


def _bare(found: Found) -> Interval:
    se = found.stderr if found.stderr is not None else NAN
    value = found.value if found.value is not None else NAN
    return Interval(value, NAN, NAN, se, NAN, found.problems or 0, "as stated: no interval")


def numbers_only(found: Found) -> dict[str, Any]:
    """A stated number: Wilson's interval where it is a share and n is known, else none."""
    interval = _bare(found)
    if found.problems is not None and found.value is not None and 0 <= found.value <= 1:
        made = wilson_interval(found.value, found.problems)
        interval = replace(made, se=found.stderr if found.stderr is not None else made.se)
    return {
        "n_problems": found.problems, "n_samples": None, "k": None, "avg@k": to_json(interval),
        **dict.fromkeys(UNKNOWN), "statuses": {},
    }  # fmt: skip
