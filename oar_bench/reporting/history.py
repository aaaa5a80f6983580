"""The commands that made a report: from reproduce.json, and from what was measured beside the runs.

They are to be run as they stand, so paths are those of the reproduction's own `--out`; a path of
the machine that measured is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from oar_bench.config import suite_of
from oar_bench.errors import InputError
from oar_bench.reporting.text import listed

NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(?<!\.yaml)(?<!\.yml)")


@dataclass(frozen=True)
class Made:
    """How a measurement was made: its command, and its folder if that isn't in the runs' own."""

    command: str
    outside: str | None = None


def commands_of(about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The commands that made a reproduction, each with the methods and seeds that it added.

    One from before there was a list has the one command that was last given.

    >>> commands_of({"command": "oar-bench reproduce tiny", "methods": ["grpo"], "seeds": [0]})
    [{'command': 'oar-bench reproduce tiny', 'methods': ['grpo'], 'seeds': [0]}]
    """
    if isinstance(about.get("commands"), list):
        entries = list(about["commands"])
        if not all(isinstance(e, Mapping) and isinstance(e.get("command"), str) for e in entries):
            raise InputError("a command is no text", "reproduce.json", "mend or move it away")
        return entries
    if not about.get("command"):
        return []
    return [{key: about.get(key) for key in ("command", "methods", "seeds")}]


def command_lines(about: Mapping[str, Any]) -> list[str]:
    """The commands one a line; behind each after the first, what it added.

    >>> first = {"command": "oar-bench reproduce tiny", "methods": ["grpo"], "seeds": [0, 1]}
    >>> then = {"command": "oar-bench reproduce tiny --seeds 3", "methods": [], "seeds": [2]}
    >>> command_lines({"commands": [first, then]})
    ['oar-bench reproduce tiny', 'oar-bench reproduce tiny --seeds 3  # added seed 2']
    """
    lines = []
    for place, entry in enumerate(commands_of(about)):
        added = [
            f"{noun}{'s' if len(entry[key]) > 1 else ''} {listed(entry[key])}"
            for key, noun in (("methods", "method"), ("seeds", "seed"))
            if place and entry.get(key)
        ]
        note = f"  # added {listed(added)}" if added else ""
        lines.append(f"{entry['command']}{note}")
    return lines


def out_of(about: Mapping[str, Any]) -> str:
    """The folder of a reproduction, as its command names it; that of a suite has one for each.

    >>> out_of({"recipe": "tiny", "commands": [{"command": "oar-bench reproduce tiny"}]})
    'results/tiny'
    >>> about = {"recipe": "tiny-credit-digits", "command": "oar-bench reproduce tiny-credit"}
    >>> out_of(about)
    'results/tiny-credit/tiny-credit-digits'
    """
    made = commands_of(about)
    if not made:
        return "RUNS"
    given = [_option(_words(entry["command"]), "--out") for entry in reversed(made)]
    base, recipe = next(filter(None, given), None), str(about.get("recipe"))
    suite = next((word for word in _words(made[0]["command"]) if _is_suite(word)), None)
    if suite is not None:
        return str(PurePath(base or PurePath("results", PurePath(suite).stem), recipe))
    return base or f"results/{recipe}"


def made_by(command: str, folder: Path, out: Path, place: str) -> Made:
    """How the measurement in `folder` was made, told for runs in `place` (now in `out`).

    >>> made_by("oar-bench overhead m --out /a/b/tiny/overhead", Path("/x/overhead"), Path("/x"),
    ...         "results/tiny").command
    'oar-bench overhead m --out results/tiny/overhead'
    """
    words = _words(command)
    own = _option(words, "--out") or f"overhead/{folder.name}"  # the only default that keeps one
    inside = folder.is_relative_to(out)
    if inside:
        tail = folder.relative_to(out).parts
        base = PurePath(own).parts[: len(PurePath(own).parts) - len(tail)]
        words = [_moved(word, base, place) for word in words]
    words = [_nameless(word) for word in words]
    return Made(shlex.join(words), None if inside else _nameless(own))


def report_lines(
    about: Mapping[str, Any], made: Iterable[Made] = (), allow: Sequence[str] = (),
    imported: bool = False,
) -> list[str]:  # fmt: skip
    """Every command from nothing to the report, one a line.

    >>> report_lines({"recipe": "tiny", "command": "oar-bench reproduce tiny"}, allow=["git"])
    ['oar-bench reproduce tiny', 'oar-bench report results/tiny --allow git']
    """
    first = ("# import the results by oar-bench import --method" if imported
             else "# train and evaluate the runs of the settings above")  # fmt: skip
    measured = list(made)
    outside = [one.outside for one in measured if one.outside is not None]
    last = ["oar-bench", "report", out_of(about)]
    last += [word for place in outside for word in ("--evidence", place)]
    last += [word for name in allow for word in ("--allow", name)]
    return [
        *(command_lines(about) or [first]), *(one.command for one in measured), shlex.join(last)
    ]  # fmt: skip


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _is_suite(name: str) -> bool:
    """Whether a word names a shipped suite; no file that a command names is opened."""
    try:
        return NAME.fullmatch(name) is not None and suite_of(name) is not None
    except InputError:
        return False


def _option(words: Sequence[str], name: str) -> str | None:
    """The value of an option, by either way to write it."""
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _moved(word: str, base: tuple[str, ...], place: str) -> str:
    """A path below `base` as one below `place`; any other word as it is.

    So is a word without a slash: it may be a command or a recipe that is called like the folder.
    """
    option, path = _split(word)
    parts = PurePath(path).parts
    if not base or len(parts) < 2 or parts[: len(base)] != base:
        return word
    return f"{option}{PurePath(place, *parts[len(base) :])}"


def _nameless(word: str) -> str:
    """An absolute path without its folders."""
    option, path = _split(word)
    return f"{option}.../{PurePath(path).name}" if PurePath(path).is_absolute() else word


def _split(word: str) -> tuple[str, str]:
    """An option written with its value, as both; any other word as value alone."""
    name, sign, value = word.partition("=")
    return (name + sign, value) if sign and word.startswith("--") else ("", word)
