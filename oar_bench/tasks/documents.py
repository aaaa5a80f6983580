"""The Python side of the task files: documents made on the spot, and grading.

lm-eval calls these through tasks/utils.py; nothing here is specific to our own runner, so that a
task gives the same problems and the same verdicts under both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oar_bench.answers import Grader
from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.tasks.problems import distinct

if TYPE_CHECKING:
    import datasets


def procedural(
    family: str,
    *,
    seed: int = 0,
    train_documents: int = 2000,
    test_documents: int = 1000,
    answer_type: str = "exact",
    **_: Any,
) -> dict[str, datasets.Dataset]:
    """The documents of a built-in family by split, as lm-eval's `custom_dataset` wants them.

    Further keywords are ignored: lm-eval passes the whole metadata of the task and of the model.

    >>> documents = procedural("digits", train_documents=3, test_documents=2)
    >>> [len(documents[split]) for split in ("train", "test")]
    [3, 2]
    >>> sorted(documents["test"][0])
    ['answer', 'answer_type', 'id', 'problem', 'solution']
    """
    import datasets

    def rows(split: Any, count: int) -> datasets.Dataset:
        return datasets.Dataset.from_list(
            [
                {
                    "id": problem.id,
                    "problem": problem.prompt,
                    "answer": problem.answer,
                    "solution": problem.solution,
                    "answer_type": answer_type,
                }
                for problem in distinct(family, split, count, seed)
            ]
        )

    return {"train": rows("train", train_documents), "test": rows("test", test_documents)}


@lru_cache(maxsize=8)
def _grader(answer_type: AnswerType, extract: ExtractMode) -> Grader:
    """One grader for all documents of a kind, so that its worker starts once."""
    return Grader(answer_type=answer_type, extract=extract)


def grade_document(doc: dict[str, Any], response: str) -> float:
    """1.0 when the response's answer is right for the document, else 0.0.

    The document says how: `answer_type`, and where it has them `extract` and `tolerance`.

    >>> grade_document({"answer": "4.2", "answer_type": "math", "tolerance": 0.03}, "It is 4.3.")
    1.0
    """
    grader = _grader(doc["answer_type"], doc.get("extract") or "auto")
    return float(grader.grade(response, doc["answer"], tolerance=doc.get("tolerance")).correct)
