"""The registry: task files in tasks/ loaded with lm-eval's own TaskManager.

The same Task objects serve `lm-eval run` and our runner, so documents, prompts and stop sequences
cannot differ between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast, get_args

from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.errors import InputError, nearest
from oar_bench.identity import fingerprint, fingerprint_files
from oar_bench.resources import shipped


class GradingSettings(TypedDict, total=False):
    """How a task's answers are graded, from its metadata; each key is a keyword of `Grader`."""

    answer_type: AnswerType
    extract: ExtractMode
    tolerance: float


def grading_settings(metadata: Mapping[str, Any], name: str) -> GradingSettings:
    """The grading part of a task's metadata.

    Raises:
        InputError: a value that the grader doesn't know.

    >>> grading_settings({"version": 1, "answer_type": "number", "tolerance": 0.01}, "mine")
    {'answer_type': 'number', 'tolerance': 0.01}
    """
    known = {"answer_type": get_args(AnswerType), "extract": get_args(ExtractMode)}
    for key, values in known.items():
        if key in metadata and metadata[key] not in values:
            raise InputError(
                f"{metadata[key]!r} is no {key}", f"task {name}", f"use one of {', '.join(values)}"
            )
    if not isinstance(metadata.get("tolerance", 0.0), int | float):
        raise InputError(f"{metadata['tolerance']!r} is no tolerance", f"task {name}")
    found = {key: metadata[key] for key in GradingSettings.__annotations__ if key in metadata}
    return cast(GradingSettings, found)


@dataclass(frozen=True)
class Question:
    """One problem of a task: the prompt as the model gets it, and the gold answer."""

    problem: str
    prompt: str
    gold: str


@dataclass(frozen=True)
class LoadedTask:
    """A task ready to be asked."""

    name: str
    questions: tuple[Question, ...]
    stop: tuple[str, ...]
    max_new_tokens: int
    grading: GradingSettings
    fingerprints: Mapping[str, str]
    """`task` (its file and settings), `data` (problems and golds), `prompt` (the exact prompts)."""


def task_names() -> dict[str, str]:
    """Names of the shipped tasks, each with the first comment line of its file.

    >>> sorted(task_names())
    ['oar_arithmetic', 'oar_digits', 'oar_sum']
    """
    found = {}
    for path in sorted(shipped("tasks").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("task:"))
        found[name] = lines[0].lstrip("# ") if lines[0].startswith("#") else ""
    return found


def check_task(name: str, where: str = "--tasks") -> None:
    """Raise InputError, naming the nearest task, when `name` is not in the registry."""
    if name not in task_names():
        raise InputError(f"unknown task {name!r}", where, nearest(name, sorted(task_names())))


def load_task(
    name: str,
    *,
    limit: int | None = None,
    split: str = "test",
    metadata: Mapping[str, Any] | None = None,
) -> LoadedTask:
    """Load a task with its prompts.

    Args:
        name: a name of the registry, for example `oar_arithmetic`.
        limit: the first so many problems only.
        split: `test` (held out) or `train`.
        metadata: settings of a procedural task, for example `{"seed": 1}`.

    Raises:
        InputError: unknown task, or a limit beyond the task's problems.
    """
    check_task(name)
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    from lm_eval.tasks import TaskManager

    folder = shipped("tasks")
    manager = TaskManager(
        include_path=str(folder),
        include_defaults=False,
        metadata=dict(metadata) if metadata else None,
    )
    task: Any = manager.load([name])["tasks"][name]
    documents = list(task.test_docs() if split == "test" else task.training_docs())
    if limit is not None and limit > len(documents):
        raise InputError(
            f"{limit} problems asked for, {name} has {len(documents)}", "--limit", "use fewer"
        )
    questions = []
    for index, document in enumerate(documents[:limit]):
        prompt = task.fewshot_context(
            document,
            num_fewshot=task.config.num_fewshot or 0,
            gen_prefix=task.doc_to_prefix(document),
        )
        gold = str(task.doc_to_target(document))
        questions.append(Question(str(document.get("id", f"{name}-{index}")), prompt, gold))
    generation = dict(task.config.generation_kwargs or {})
    until = generation.get("until") or []
    settings = dict(task.config.metadata or {})
    return LoadedTask(
        name=name,
        questions=tuple(questions),
        stop=tuple([until] if isinstance(until, str) else until),
        max_new_tokens=int(generation.get("max_gen_toks", 1024)),
        grading=grading_settings(settings, name),
        fingerprints={
            "task": fingerprint(
                {"files": fingerprint_files(_files_of(folder, name)), "metadata": settings}
            ),
            "data": fingerprint([[q.problem, q.gold] for q in questions]),
            "prompt": fingerprint([q.prompt for q in questions]),
        },
    )


def _files_of(folder: Path, name: str) -> list[Path]:
    """The files that define a task: its YAML, and the functions that it calls."""
    own = [p for p in sorted(folder.glob("*.yaml")) if f"task: {name}\n" in p.read_text("utf-8")]
    return [*own, folder / "utils.py"]
