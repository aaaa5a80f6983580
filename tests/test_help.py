"""What `--help` says, of every command: nothing cut, nothing untold, one meaning for one name."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from oar_bench.cli import app

TOP: Any = typer.main.get_command(app)


def walk(command: Any, name: str) -> dict[str, Any]:
    """Every command that does something, by the words that call it."""
    if not hasattr(command, "commands"):
        return {name: command}
    return {
        k: v
        for word, sub in command.commands.items()
        for k, v in walk(sub, f"{name} {word}").items()
    }


COMMANDS = walk(TOP, "oar-bench")
OPTIONS = [(name, option) for name, command in COMMANDS.items()
           for option in command.params if option.name != "help"]  # fmt: skip


def test_the_list_of_commands_is_not_cut_off(call):
    for words in ([], ["credit"]):
        shown = call(*words, "--help").stdout
        assert "..." not in shown.partition("Commands:")[2]


def test_exit_codes_are_told_once(call):
    assert "Exit codes: 0 done; 1 " in call("--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_sentence_and_an_example(name):
    text = COMMANDS[name].help
    first = text.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 100
    assert f"      {name} " in text or f"      {name}\n" in f"{text}\n" or f"\n  {name}" in text


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=[f"{n} {o.name}" for n, o in OPTIONS])
def test_every_option_is_told(name, option):
    assert option.help, f"{name} {option.name} has no help"
    assert option.help.endswith((".", ").", "...")), option.help
    if option.opts == ["--out"] and not option.required:
        assert re.search("default|none|also", option.help.lower()), option.help


def test_one_name_is_one_thing(call):
    """An option of a name takes the same kind of value in every command that has it."""
    kinds: dict[str, set[str]] = {}
    for name in COMMANDS:
        shown = call(*name.split()[1:], "--help").stdout.partition("\nOptions:")[2]
        for word, kind in re.findall(
            r"^  (?:-\w, )?(--[a-z-]+)(?:, --[a-z]+)?(?: <([^>]+)>)?", shown, re.M
        ):
            kinds.setdefault(word, set()).add(kind)
    assert len(kinds) > 60
    kinds.pop("--limit")  # of problems; of `check` the limit of a worsening, NAME=SIZE
    assert {word: kind for word, kind in kinds.items() if len(kind) > 1} == {}
