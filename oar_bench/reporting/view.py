"""What the templates of a report show, put together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from oar_bench.evaluation.summary import STATUSES
from oar_bench.reporting.budgets import Budget
from oar_bench.reporting.comparison import Row, TaskTable
from oar_bench.reporting.costs import PHASES, Cost, Weights, replays
from oar_bench.reporting.drilldown import HEAD, MOST_METHODS, TAIL, TaskProblems
from oar_bench.reporting.example import Example
from oar_bench.reporting.frames import REFERENCE, START, Collection
from oar_bench.reporting.likeness import flatten, shared_settings
from oar_bench.reporting.slices import MOST_VALUES, TaskSlices
from oar_bench.reporting.text import counted, listed
from oar_bench.reporting.wording import verdict_words

COMPARISON_NOTES = (
    "Intervals are 95 %. With several seeds, seeds and problems are both taken as drawn at random "
    "(crossed random effects): the wider of Satterthwaite's interval and the t interval over "
    "seeds. p values are two-sided and adjusted by Holm over every pair of this report, except "
    "the start's, which is a landmark. Intervals are for each pair alone, verdicts follow the "
    "adjusted p: an interval may leave out zero and its pair still not be separable.",
    "“Not separable” is not “equal”. “Detectable” is the smallest true difference that this "
    "design finds with 80 % power. “Seeds to settle” is how many paired seeds would find a true "
    "difference of the observed size, or of 2 points, with 80 % power, on these problems.",
    "Run-to-run SD is how far the score of one sample a problem moves when it is sampled again "
    "(the mean over k samples moves √k times less); it holds neither the choice of "
    "problems nor the training seed.",
)
BUDGET_NOTE = (
    "The share of samples that is right within the cap, %: a longer response counts as truncated "
    "and so as not right. From the saved rows, no model asked: exact for a model that is not told "
    "its cap, but for an answer that stood complete before it. The last cap is the real one."
)
SAMPLES_NOTE = (
    "pass@k is the chance that any of k samples is right, maj@k that the most frequent answer of k "
    "is (ties shared); both unbiased over all choices of k among the samples, mean over seeds."
)
NUMBERS_NOTE = (
    "A number without a verdict on each response can't be paired, so nothing here is tested "
    "against it, and its protocol isn't checked."
)
REPORTED_NOTE = (
    "Others' numbers are as they were reported, under their own protocols; no test here uses them, "
    "and a difference between a line of theirs and one of ours is no finding."
)
OVERHEAD_NOTES = (
    "Medians over steps, mean over seeds. The first step of every run is left out as warm-up. A "
    "whole step is the sum of its phases without writing checkpoints, so the phases' medians need "
    "not add up to it.",
)
WEIGHT_NOTE = (
    "The advantage mass is kept when the mean weight is 1 at every step (no drift). The effective "
    "share is (sum w)² / (T sum w²): 100 % when all tokens weigh the same."
)
SLICES_NOTE = (
    "Shares of samples, mean over problems and seeds, without tests: a slice is smaller than the "
    "whole and there are many, so that some differ by luck. Problems are sliced by what the data "
    "say of them (level, subject) and by how often the start solved them, which favours no "
    "trained method (the start's own column is then so by construction). "
    f"At most the {MOST_VALUES} largest slices of a kind are shown; tables/slices.csv has all."
)
PROBLEMS_NOTE = (
    "The problems on which the methods differ most come first: they are chosen for differing, so "
    "they are no evidence that methods differ. tables/problems.csv has every problem. Responses "
    f"are those of each method's first seed (the first {MOST_METHODS} methods): the first that is "
    f"right and the first that isn't. Of a longer text its first {HEAD} and last {TAIL} characters "
    "are shown; control and format characters appear as their code points."
)
LABELS = {
    "scores": "Scores by method with 95 % intervals",
    "differences": "Paired differences to GRPO with 95 % intervals",
    "samples": "pass@k and maj@k by number of samples for every method",
    "budget": "Scores under smaller token caps for every method",
    "learning": "Training reward by step for every method",
    "overhead": "Seconds of a training step by phase for every method",
    "weights": "Effective share of tokens by step for every method",
}


@dataclass(frozen=True)
class Findings:
    """Everything that a report's numbers are: one field a kind of table."""

    collection: Collection
    compared: list[TaskTable]
    capped: list[Budget]
    costs: list[Cost]
    rewards: pd.DataFrame
    weights: list[Weights]
    example: Example | None
    slices: list[TaskSlices]
    problems: list[TaskProblems]


def phases_of(costs: list[Cost]) -> list[str]:
    """The phases of all methods: the known order first, then by name."""
    phases = {name for cost in costs for name in cost.phases}
    return [*[p for p in PHASES if p in phases], *sorted(phases.difference(PHASES))]


def view_of(found: Findings, allowed: list[str]) -> dict[str, Any]:
    """Everything that the templates show; `allowed` tells the differences that were allowed."""
    collection, compared, costs = found.collection, found.compared, found.costs
    recipe = collection.reproduce.get("recipe") or collection.runs[0].settings.get("name")
    return {
        "title": f"oar-bench report: {recipe}" if recipe else "oar-bench report",
        "subtitle": _subtitle(collection, compared),
        "verdict": verdict_words(compared, costs, collection.reproduce),
        "left_out": [item for item in collection.left_out if item.stated is None],
        "numbers": [item for item in collection.left_out if item.stated is not None],
        "numbers_note": NUMBERS_NOTE,
        "allowed": allowed,
        "reference": REFERENCE,
        "tables": compared,
        "ks": {t.task: sorted({k for row in t.rows for k in row.passes}) for t in compared},
        "voted": {t.task: _voted(t) for t in compared},
        "budgets": {budget.task: budget for budget in found.capped},
        "budget_note": BUDGET_NOTE,
        "samples_note": SAMPLES_NOTE,
        "statuses": {t.task: _statuses(t.rows) for t in compared},
        "comparison_notes": COMPARISON_NOTES,
        "ends": _ends(compared, found.rewards, collection.methods),
        "costs": costs,
        "phases": phases_of(costs),
        "overhead_notes": [*OVERHEAD_NOTES, *_ratio_note(costs), *_replay_note(collection)],
        "weights": found.weights,
        "weight_note": WEIGHT_NOTE,
        "example": found.example,
        "example_note": _example_note(found.example),
        "fingerprints": _fingerprints(collection),
        "environment": _environment(collection),
        "settings": _every([shared_settings(run.settings) for run in collection.runs]),
        "labels": LABELS,
        "reported_note": REPORTED_NOTE,
        "slices": found.slices,
        "slices_note": SLICES_NOTE,
        "problems": found.problems,
        "problems_note": PROBLEMS_NOTE,
        "runs": _runs(collection),
    }


@dataclass(frozen=True)
class RunLine:
    """A run as the table of runs shows it."""

    where: str
    steps: int
    evaluated: list[str]
    model: str


def _runs(collection: Collection) -> list[RunLine]:
    return [
        RunLine(run.where, int(run.metrics["step"].max()) if len(run.metrics) else 0,
                [*run.evaluations], listed(list(dict.fromkeys(
                    e.fingerprints.get("model", "–") for e in run.evaluations.values()))))
        for run in collection.runs
    ]  # fmt: skip


def _subtitle(collection: Collection, compared: list[TaskTable]) -> str:
    tasks = [f"{t.task} ({counted(t.problems, 'problem')} × {counted(t.k, 'sample')})"
             for t in compared]  # fmt: skip
    runs = counted(len(collection.runs), "finished run")
    return f"{runs} of {counted(len(collection.methods), 'method')} on {listed(tasks)}"


def _voted(table: TaskTable) -> list[int]:
    """The k at which some method has maj@k."""
    return sorted({k for row in table.rows for k, v in row.majorities.items() if not math.isnan(v)})


def _statuses(rows: list[Row]) -> list[str]:
    found = {status for row in rows for status in row.statuses}
    return [*[s for s in STATUSES if s in found], *sorted(found.difference(STATUSES))]


@dataclass(frozen=True)
class Ends:
    """A method before and after: (start, end) of each task; training reward first and last."""

    method: str
    scores: list[tuple[float, float]]
    first: float
    last: float


def _ends(compared: list[TaskTable], rewards: pd.DataFrame, methods: list[str]) -> list[Ends]:
    found = []
    for method in methods:
        of = (
            rewards[rewards["method"] == method]["mean"] if len(rewards) else pd.Series(dtype=float)
        )
        scores = [(_score(t.row(START)), _score(t.row(method))) for t in compared]
        first, last = (float(of.iloc[0]), float(of.iloc[-1])) if len(of) else (math.nan, math.nan)
        found.append(Ends(method, scores, first, last))
    return found


def _score(row: Row | None) -> float:
    return row.mean.value if row else math.nan


def _ratio_note(costs: list[Cost]) -> list[str]:
    methods = {c.ratio.method for c in costs if c.ratio and c.method != REFERENCE}
    return [f"The ratio's interval: {listed(sorted(methods))}."] if methods else []


def _replay_note(collection: Collection) -> list[str]:
    methods = [m for m in collection.methods if any(replays(run) for run in collection.of(m))]
    return [
        f"Trained on saved rollouts, sampling nothing: {listed(methods)}. Such steps are compared "
        f"with no steps that sample."
    ] if methods else []  # fmt: skip


def _example_note(example: Example | None) -> str:
    if example is None:
        return ""
    return (
        f"A response of the model “{example.model}”, its tokens shaded by weight on one "
        f"scale for all methods; the gold answer is {example.gold}. The prompt:"
    )


def _fingerprints(collection: Collection) -> list[tuple[str, str]]:
    first = collection.runs[0]
    found = [(key, value) for key, value in first.fingerprints.items() if key != "recipe"]
    for task in collection.tasks:
        evaluation = next(r.evaluations[task] for r in collection.runs if task in r.evaluations)
        found += [(f"{task}: {key}", value) for key, value in evaluation.fingerprints.items()
                  if key != "model"]  # fmt: skip
    return found


def _environment(collection: Collection) -> list[tuple[str, str]]:
    flat = [flatten(run.environment) for run in collection.runs]
    return _every([{key: value.strip('"') for key, value in of.items()} for of in flat])


def _every(runs: list[dict[str, str]]) -> list[tuple[str, str]]:
    """One line a fact; where runs differ, every value that occurs.

    >>> _every([{"lr": "0.1", "torch": "2.9"}, {"lr": "0.1", "torch": "2.8"}])
    [('lr', '0.1'), ('torch', '2.8 and 2.9')]
    """
    values: dict[str, list[str]] = {}
    for run in runs:
        for key, value in run.items():
            if value not in values.setdefault(key, []):
                values[key].append(value)
    return [(key, listed(sorted(of))) for key, of in values.items()]
