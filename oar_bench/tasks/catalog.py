"""Which tasks there are: ours in tasks/, groups of them, and lm-eval's own by name.

A name on the command line is one of

    oar_gsm8k                     a task of ours
    oar_math                      a group of ours: all its tasks
    oar_math_fewshot/oar_gsm8k    one task with the prompt of a group that changes it
    gsm8k                         a task of lm-eval; its 14,000 are only indexed for such a name
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError, nearest
from oar_bench.resources import shipped

OWN = "oar_"  # every task and group of ours begins so, and none of lm-eval's does

_GROUP_KEYS = {"group", "group_alias", "task", "aggregate_metric_list", "metadata", "include"}


def task_names() -> dict[str, str]:
    """Names of the shipped tasks, each with the first comment line of its file.

    >>> names = task_names()
    >>> "oar_sum" in names, names["oar_aime24"]
    (True, 'AIME 2024, I and II: answers are whole numbers from 0 to 999 (30).')
    """
    return dict(sorted(_declared("task").items()))


def group_names() -> dict[str, str]:
    """Names of the shipped groups, each with the first comment line of its file.

    >>> sorted(group_names())
    ['oar_math', 'oar_math_chat', 'oar_math_fewshot']
    """
    return dict(sorted(_declared("group").items()))


def expand(names: list[str], where: str = "--tasks") -> list[str]:
    """The tasks that names stand for: groups become their tasks; repeats are left out.

    Raises:
        InputError: a name is neither a task nor a group, of ours or of lm-eval.

    >>> expand(["oar_sum", "oar_math_chat"])[:2]
    ['oar_sum', 'oar_math_chat/oar_gsm8k']
    """
    found: list[str] = []
    for name in names:
        check_task(name, where)
        group, _, member = name.partition("/")
        if group in group_names() and not member:
            members = group_members(group)
            found += [f"{group}/{task}" if changes else task for task, changes in members.items()]
        else:
            found.append(name)
    return list(dict.fromkeys(found))


def check_task(name: str, where: str = "--tasks") -> None:
    """Raise InputError, naming the nearest, when `name` is no task or group."""
    group, slash, member = name.partition("/")
    if slash and group in group_names():
        if member not in group_members(group):
            raise InputError(
                f"the group {group} has no task {member!r}", where,
                nearest(member, sorted(group_members(group))),
            )  # fmt: skip
        return
    known = {*task_names(), *group_names()}
    if name in known:
        return
    if name.startswith(OWN) or not stock_tasks().get(name):
        mend = nearest(name, sorted(known))
        if name in stock_tasks_if_loaded():
            mend = "it is a group of lm-eval: name its tasks one by one"
        raise InputError(f"unknown task {name!r}", where, mend)


def is_stock(name: str) -> bool:
    """Whether a checked name is a task of lm-eval and not of ours."""
    return not name.startswith(OWN)


@lru_cache(maxsize=1)
def stock_manager() -> Any:
    """lm-eval's TaskManager over its own tasks; indexing them takes some seconds, once."""
    quieten()
    from lm_eval.tasks import TaskManager

    return TaskManager()


@lru_cache(maxsize=1)
def stock_tasks() -> dict[str, bool]:
    """Every name that lm-eval's own index has; whether it is a task (and no group or tag)."""
    manager = stock_manager()
    tasks = set(manager.all_subtasks)
    return {name: name in tasks for name in manager.all_tasks}


def stock_config(name: str) -> dict[str, Any]:
    """The settings of one of lm-eval's tasks, functions as text; none for one written in Python."""
    path = stock_manager().task_index[name].yaml_path
    return read_config(path) if path else {}


def stock_tasks_if_loaded() -> dict[str, bool]:
    """lm-eval's names, if they were needed already; else none."""
    return stock_tasks() if stock_tasks.cache_info().currsize else {}


def group_members(group: str, *, functions: bool = False) -> dict[str, dict[str, Any]]:
    """The tasks of a shipped group, each with the settings that the group changes in it."""
    config = read_config(file_of("group", group), functions=functions)
    common = {key: value for key, value in config.items() if key not in _GROUP_KEYS}
    members = {}
    for item in config["task"]:
        own = {"task": item} if isinstance(item, str) else dict(item)
        name = own.pop("task")
        members[name] = {**common, **own}
    return members


def files_of(name: str) -> list[Path]:
    """The files that define a task: its YAML, what that includes, its group's, the functions."""
    group, slash, member = name.partition("/")
    files = _with_includes(file_of("task", member if slash else name))
    if slash:
        files += _with_includes(file_of("group", group))
    if any(path.name.startswith("_") for path in files):
        files.append(shipped("tasks") / "examples.json")
    return [*dict.fromkeys(files), shipped("tasks") / "utils.py"]


def read_config(path: Path, *, functions: bool = False) -> dict[str, Any]:
    """A task file with what it includes; its `!function` names as text or as the functions."""
    from lm_eval.tasks._yaml_loader import load_yaml

    found: dict[str, Any] = load_yaml(path, resolve_func=functions)
    return found


def file_of(kind: str, name: str) -> Path:
    """The shipped file that declares a `task` or a `group`."""
    for path in sorted(shipped("tasks").glob("*.yaml")):
        if f"\n{kind}: {name}\n" in "\n" + path.read_text(encoding="utf-8"):
            return path
    raise InputError(f"no file declares the {kind} {name!r}", str(shipped("tasks")))


def quieten() -> None:
    """Keep lm-eval's and the libraries' notes off the terminal; faults still come as exceptions."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)


def _declared(kind: str) -> dict[str, str]:
    """Name and comment of each shipped file that declares a task, or a group."""
    found = {}
    for path in sorted(shipped("tasks").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        heads = dict(line.split(":", 1) for line in lines if line[:1].isalpha() and ":" in line)
        if kind in heads and (kind == "group" or "group" not in heads):
            found[heads[kind].strip()] = lines[0].lstrip("# ") if lines[0][:1] == "#" else ""
    return found


def _with_includes(path: Path) -> list[Path]:
    """A task file and, in order, the files that it includes."""
    found = [path]
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("include:"):
            found += _with_includes(path.parent / line.partition(":")[2].strip())
    return found
