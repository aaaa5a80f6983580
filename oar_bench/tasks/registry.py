"""The registry: task files in tasks/, and lm-eval's own, loaded with lm-eval's TaskManager.

The same Task objects serve `lm-eval run` and our runner, so documents, prompts and stop sequences
cannot differ between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast, get_args

from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint, fingerprint_files
from oar_bench.resources import shipped
from oar_bench.tasks.catalog import (
    OWN,
    check_task,
    file_of,
    files_of,
    group_members,
    group_names,
    is_stock,
    quieten,
    read_config,
    stock_manager,
    task_names,
)
from oar_bench.tasks.labels import labels_of

__all__ = ["GradingSettings", "LoadedTask", "Prompting", "Question", "check_task",
           "grading_settings", "load_task", "task_names"]  # fmt: skip

ChatTemplate = Callable[..., str]
"""(messages, add_generation_prompt=True) -> prompt, as a tokenizer's chat template makes it."""

FEWSHOT_SEED = 1234  # lm-eval's default; only tasks that draw their examples use it

NOT_IDENTITY = {"config_source", "data_dir"}  # where files lie; their contents are in `data`


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
    tolerance: float | None = None
    """This gold's own tolerance, where its row has one; see `Grader.grade`."""
    text: str = ""
    """The bare problem, without instruction, examples or template."""
    solution: str = ""
    """A worked solution as it would follow the prompt, where the data have one."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the data say of its kind (tasks/labels.py), by which reports are sliced."""


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
    probe: str | None = None
    """What is asked instead of an answer, for example `partial:0.6`; see evaluation/probe.py."""
    stock: bool = False
    """Whether it is lm-eval's own, which then also judges the responses."""


@dataclass(frozen=True)
class Prompting:
    """How a task is asked, where that isn't the task's own choice."""

    data_dir: Path | None = None
    """Folder of the problems, instead of OAR_BENCH_DATA_DIR or the hub."""
    fewshot: int | None = None
    """Worked examples before the problem."""
    chat_template: ChatTemplate | None = None
    system: str | None = None


def load_task(
    name: str,
    *,
    limit: int | None = None,
    split: str = "test",
    metadata: Mapping[str, Any] | None = None,
    prompting: Prompting | None = None,
) -> LoadedTask:
    """Load a task with its prompts.

    Args:
        name: a name of the registry, for example `oar_arithmetic` or `oar_math_chat/oar_gsm8k`.
        limit: the first so many problems only.
        split: `test` (held out) or `train`.
        metadata: settings of the documents, for example `{"seed": 1}` for a procedural task.
        prompting: data folder, few-shot examples, chat template, system prompt.

    Raises:
        InputError: unknown task, no data, or a limit beyond the task's problems.
    """
    asked = prompting or Prompting()
    settings = dict(metadata or {})
    if asked.data_dir is not None:
        settings["data_dir"] = str(asked.data_dir)
    task = task_object(name, settings)
    if task.OUTPUT_TYPE != "generate_until":
        raise InputError(
            f"it asks for {task.OUTPUT_TYPE}, not for text", f"task {name}",
            "run it with `oar-bench evaluate`, which leaves such tasks to lm-eval",
        )  # fmt: skip
    documents = list((task.eval_docs if split == "test" else task.training_docs()) or [])
    if not documents:
        raise InputError(f"it has no {split} split", f"task {name}")
    if limit is not None and limit > len(documents):
        raise InputError(
            f"{limit} problems asked for, {name} has {len(documents)}", "--limit", "use fewer"
        )
    description = "" if is_stock(name) else str(task.config.description or "")
    if asked.chat_template is None and description and not description[-1].isspace():
        raise InputError(
            "its request is a system prompt", f"task {name}", "add --chat-template"
        )  # fmt: skip
    shots = _shots(task, name, asked.fewshot)
    task.set_fewshot_seed(FEWSHOT_SEED)
    stock, questions = is_stock(name), []
    for index, document in enumerate(documents[:limit]):
        prompt = task.fewshot_context(
            document,
            num_fewshot=shots,
            system_instruction=asked.system,
            apply_chat_template=asked.chat_template is not None,
            fewshot_as_multiturn=asked.chat_template is not None,
            chat_template=asked.chat_template,
            gen_prefix=task.doc_to_prefix(document),
        )
        own_id = None if stock else document.get("id")
        questions.append(
            Question(
                f"{name}-{index}" if own_id is None else str(own_id),
                prompt,
                _gold(task, document),
                None if stock else document.get("tolerance"),
                str(document.get("problem") or document.get("question") or ""),
                "" if stock else _solution(task, document, prompt),
                labels_of(document),
            )
        )  # fmt: skip
    generation = dict(task.config.generation_kwargs or {})
    until = generation.get("until") or []
    settings = {k: v for k, v in (task.config.metadata or {}).items() if k not in NOT_IDENTITY}
    return LoadedTask(
        name=name,
        questions=tuple(questions),
        stop=tuple([until] if isinstance(until, str) else until),
        max_new_tokens=int(generation.get("max_gen_toks", 1024)),
        stock=stock,
        grading={} if stock else grading_settings(settings, name),
        fingerprints={
            "task": fingerprint({"files": _files_print(name), "metadata": settings}),
            "data": fingerprint(
                [[q.problem, q.gold, *([q.tolerance] if q.tolerance is not None else [])]
                 for q in questions]
            ),
            "prompt": fingerprint([q.prompt for q in questions]),
        },
    )  # fmt: skip


def task_object(name: str, metadata: Mapping[str, Any] | None = None) -> Any:
    """lm-eval's Task of a name, with its documents loaded."""
    check_task(name)
    if name in group_names():
        raise InputError("it is a group of several tasks", f"task {name}", "name one of its tasks")
    quieten()
    from lm_eval.tasks import TaskManager

    if is_stock(name):
        return _guarded(name, lambda: stock_manager().load([name])["tasks"][name])
    manager: Any = TaskManager(
        include_path=str(shipped("tasks")),
        include_defaults=False,
        metadata=dict(metadata) if metadata else None,
    )
    group, slash, member = name.partition("/")
    if not slash:
        return manager.load([name])["tasks"][name]
    # lm-eval builds a group's task from the task's file with the group's settings over it; a
    # group as a whole would load the data of all its tasks.
    changes = group_members(group, functions=True)[member]
    config = {**read_config(file_of("task", member), functions=True), **changes}
    return manager.load([{**config, "task": member}])["tasks"][member]


def _guarded(name: str, load: Callable[[], Any]) -> Any:
    """lm-eval's task, or one line on why its data can't be had."""
    try:
        return load()
    except (OSError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:200]
        mend = "run it once where the hub can be reached"
        if OWN + name in task_names():
            mend += f", or take {OWN + name}, which reads --data-dir"
        raise InputError(f"its data can't be read ({line})", f"task {name}", mend) from error


def _shots(task: Any, name: str, asked: int | None) -> int:
    """How many worked examples come before a problem."""
    shots = int(task.config.num_fewshot or 0) if asked is None else asked
    if not shots:
        return 0
    if not hasattr(task, "sampler") or len(task.sampler.df) < shots:
        have = len(task.sampler.df) if hasattr(task, "sampler") else 0
        raise InputError(f"{shots} examples asked for, {name} has {have}", "--fewshot", "use fewer")
    task.set_config("num_fewshot", shots)
    return shots


def _gold(task: Any, document: Mapping[str, Any]) -> str:
    """The gold as text; of several the first, which is how lm-eval shows it to a model."""
    target = task.doc_to_target(document)
    return str(target[0] if isinstance(target, list) and target else target)


def _solution(task: Any, document: Mapping[str, Any], prompt: str) -> str:
    """The document's worked solution, parted from the prompt as the task parts its answer."""
    solution = document.get("solution")
    if not solution:
        return ""
    return ("" if prompt[-1:].isspace() else str(task.config.target_delimiter)) + str(solution)


def _files_print(name: str) -> str:
    """Names the files that define a task; for one of lm-eval its version does."""
    if is_stock(name):
        from importlib.metadata import version

        return f"lm-eval {version('lm-eval')}"
    return fingerprint_files(files_of(name))
