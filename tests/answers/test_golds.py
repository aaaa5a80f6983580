"""Golds of the seven test sets: each equals itself, is read, and takes no time.

Runs where the data are: `OAR_BENCH_DATA_DIR`, or `../shared/data` beside the repository.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from oar_bench.answers import Grader
from oar_bench.answers.decide import read
from oar_bench.answers.textual import has_words

DATA = Path(
    os.environ.get("OAR_BENCH_DATA_DIR")
    or Path(__file__).resolve().parents[2].parent / "shared" / "data"
)
TASKS = ("gsm8k", "math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the test sets are not here")


def golds(task: str) -> list[str]:
    with (DATA / task / "test.jsonl").open(encoding="utf-8") as lines:
        return [str(json.loads(line)["answer"]) for line in lines]


@pytest.mark.parametrize("task", TASKS)
def test_every_gold_equals_itself(task: str) -> None:
    failed = []
    with Grader(answer_type="number" if task == "gsm8k" else "math") as grader:
        for gold in golds(task):
            for response in (gold, f"Thus we get $\\boxed{{{gold}}}$."):
                start = time.perf_counter()
                grade = (
                    grader.compare(response, gold)
                    if response is gold
                    else grader.grade(response, gold)
                )
                if not grade.correct or time.perf_counter() - start > 2:
                    failed.append((gold, grade))
            spaced = gold.replace("+", " + ").replace(",", ", ") if "," not in gold else gold
            if not grader.compare(spaced + ".", gold).correct:
                failed.append((gold, spaced))
    assert not failed


@pytest.mark.parametrize("task", TASKS)
def test_golds_are_read(task: str) -> None:
    """A gold is mathematics that the parser reads, or words."""
    unread = [
        gold
        for gold in golds(task)
        if (reading := read(gold)).tree is None and not has_words(reading.text)
    ]
    assert len(unread) <= 0.01 * len(golds(task)), unread
