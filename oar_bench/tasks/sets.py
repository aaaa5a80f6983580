"""Problem sets to train on: the known ones, from a folder or from the hub, and files of one's own.

The layout of a folder and the fields of a file are those of the test sets (benchmarks.py), with
the split `train`: DIR/gsm8k/train.jsonl. Each known set is pinned to a full revision of the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.answers.extract import AnswerType, ExtractMode, extract_answer
from oar_bench.config import DataSettings
from oar_bench.errors import InputError
from oar_bench.tasks.benchmarks import data_folder, file_rows, folder_rows, hub_rows, row_tolerance

TEMPLATES = {
    "boxed": "{problem}\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "gsm8k": '{problem}\nPlease reason step by step, and end with a line "#### " and the answer.',
    "plain": "{problem}",
}
"""The prompts by name; `boxed` is the one of the test sets."""


@dataclass(frozen=True)
class KnownSet:
    """Where a set lies on the hub and how a row there is read; `hub` is as `hub_rows` takes it."""

    hub: Mapping[str, Any]
    parts: tuple[str | None, ...] = (None,)
    """The hub's configurations, all of which belong to the set."""
    boxed: bool = False
    """Whether the gold is the last box of the field `answer`, a worked solution."""
    around: tuple[str, str] = ("", "")
    """An instruction before and after a problem, taken off where it is there."""
    answer_type: AnswerType = "math"
    extract: ExtractMode = "auto"


SETS: dict[str, KnownSet] = {
    "gsm8k": KnownSet(
        {
            "path": "openai/gsm8k",
            "revision": "740312add88f781978c0658806c59bc2815b9866",
            "split": "train",
            "id": "gsm8k-train-{row}",
            "problem": "question",
        },
        parts=("main",),
        answer_type="number",
        extract="gsm8k",
    ),
    "math": KnownSet(
        {
            "path": "EleutherAI/hendrycks_math",
            "revision": "21a5633873b6a120296cce3e2df9d5550074f4a3",
            "split": "train",
            "id": "math-train-PART-{row}",
            "answer": "solution",
        },
        parts=(
            "algebra",
            "counting_and_probability",
            "geometry",
            "intermediate_algebra",
            "number_theory",
            "prealgebra",
            "precalculus",
        ),
        boxed=True,
    ),
    "dapo-17k": KnownSet(
        {  # the original repeats each problem a hundred times; this copy has each once
            "path": "open-r1/DAPO-Math-17k-Processed",
            "revision": "31dd309567e3da778038cc87d868b6097a3ccf68",
            "split": "train",
            "id": "dapo-17k-{row}",
            "problem": "prompt",
            "answer": "solution",
        },
        parts=("all",),
        around=(
            "Solve the following math problem step by step. The last line of your response should "
            "be of the form Answer: $Answer (without quotes) where $Answer is the answer to the "
            "problem.\n\n",
            '\n\nRemember to put your answer on its own line after "Answer:".',
        ),
    ),
    "deepmath": KnownSet(
        {
            "path": "zwhe99/DeepMath-103K",
            "revision": "5cf055d1fe3d7a2eb19719ac020211469736ae44",
            "split": "train",
            "id": "deepmath-{row}",
            "problem": "question",
            "answer": "final_answer",
        },
    ),
}


@dataclass(frozen=True)
class Row:
    """One problem as its set has it, before any prompt is made of it."""

    id: str
    problem: str
    answer: str
    tolerance: float | None = None


@dataclass(frozen=True)
class LoadedSet:
    """The rows of a set in its order, and how its answers are graded."""

    rows: list[Row]
    without_gold: int
    """Rows that were left out, since their worked solution boxes no answer."""
    source: str
    """Where the rows come from, in words."""
    answer_type: AnswerType
    extract: ExtractMode


def load_set(settings: DataSettings, data_dir: str | Path | None = None) -> LoadedSet:
    """The rows that a recipe's section `data` names, before anything is filtered.

    Args:
        settings: the section; of its keys `name`, `path`, `revision`, `answer_type` and `extract`
            count here.
        data_dir: the data folder; else the environment's; else known sets come from the hub.

    Raises:
        InputError: no such file or set, a broken row, two rows of one id, or no row at all.
    """
    known = SETS[settings.name] if settings.name else KnownSet({})
    if settings.path is not None:
        path = Path(settings.path)
        if not path.is_file():
            raise InputError("no such file of problems", f"data.path {path}")
        source, found = str(path), file_rows(_whole(path))
    elif (folder := data_folder(data_dir)) is not None:
        if settings.revision is not None:
            raise InputError(
                "a revision is given, but the data come from a folder", "data.revision",
                "leave it out, or the data folder",
            )  # fmt: skip
        path = folder / str(settings.name) / "train.jsonl"
        source, found = str(path), folder_rows(folder, str(settings.name), "train")
        _whole(path)
    else:
        hub = {**known.hub, "revision": settings.revision or known.hub["revision"]}
        source = f"hub data set {hub['path']} at {hub['revision']}"
        found = list(_hub_rows(str(settings.name), known, hub))
    golds = [row for row in found if row["answer"]]
    if not golds:
        raise InputError("there is no problem in it", source)
    ids = {row["id"] for row in golds}
    if len(ids) < len(golds):
        raise InputError("two problems have one id", source, "give each problem its own")
    return LoadedSet(
        [
            Row(
                row["id"], row["problem"], row["answer"],
                row_tolerance(row["answer"], row.get("tolerance"), None),
            )
            for row in golds
        ],
        len(found) - len(golds),
        source,
        settings.answer_type or known.answer_type,
        settings.extract or known.extract,
    )  # fmt: skip


def _whole(path: Path) -> Path:
    """The path of a file whose last line is ended; else a row would be lost without a word."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        raise InputError(
            "the last line has no end, so it may be cut short", str(path), "end it with a newline"
        )
    return path


def _hub_rows(name: str, known: KnownSet, hub: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The rows of all parts of a known set, without the instruction around their problems."""
    before, after = known.around
    for part in known.parts:
        own = {**hub, "name": part, "id": str(hub["id"]).replace("PART", str(part))}
        for row in hub_rows(name, own):
            problem = row["problem"].removeprefix(before).removesuffix(after)
            answer = last_boxed(row["answer"]) if known.boxed else row["answer"]
            yield {**row, "problem": problem, "answer": answer}


def last_boxed(solution: str) -> str:
    r"""The gold that a worked solution boxes last; empty when it boxes none.

    >>> last_boxed("So $x = \\boxed{3}$ or rather $\\boxed{\\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    found = extract_answer(solution, extract="boxed")
    return found.text if found else ""


def prompt_of(template: str, problem: str) -> str:
    r"""A problem in a template by its name in TEMPLATES, or by its text with `{problem}` in it.

    >>> prompt_of("Q: {problem}\nA:", "1 + 1?")
    'Q: 1 + 1?\nA:'
    """
    return TEMPLATES.get(template, template).replace("{problem}", problem)
