"""What the task files in this folder call: documents, few-shot examples, grading by oar-bench."""

import datasets

from oar_bench.tasks.benchmarks import benchmark, examples
from oar_bench.tasks.documents import grade_document, procedural

__all__ = ["arithmetic", "benchmark", "digits", "examples", "grade", "single_sum"]


def arithmetic(**settings) -> dict[str, datasets.Dataset]:
    """Documents of the `arithmetic` family; settings come from the task's metadata."""
    return procedural("arithmetic", **settings)


def digits(**settings) -> dict[str, datasets.Dataset]:
    """Documents of the `digits` family; settings come from the task's metadata."""
    return procedural("digits", **settings)


def single_sum(**settings) -> dict[str, datasets.Dataset]:
    """Documents of the `sum` family; settings come from the task's metadata."""
    return procedural("sum", **settings)


def grade(doc: dict, results: list[str]) -> dict[str, float]:
    """Accuracy of one response, by the grader that `oar-bench score` uses."""
    return {"acc": grade_document(doc, results[0])}
