"""Every command line in the documents is one that this version takes; every link has an end."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from oar_bench.cli import app
from tests.docs.commands import DOCUMENTS, in_blocks, in_prose, words_of

OURS = re.compile(r"(?:^|.*-m |\S+=\S+ )oar[-_]bench (.+)$")


def cases() -> list[Any]:
    """What follows `oar-bench` in every command line of every document."""
    lines = [
        (path, part.strip())
        for path, text in ((path, path.read_text("utf-8")) for path in DOCUMENTS)
        for line in [*in_blocks(text), *in_prose(text)]
        for part in line.split("&&")
    ]
    found = dict.fromkeys((path, m[1]) for path, part in lines if (m := OURS.match(part)))
    return [pytest.param(line, id=f"{path.name}: {line[:60]}") for path, line in found]


@pytest.mark.parametrize("line", cases())
def test_the_command_line_is_taken(line):
    words = words_of(re.sub(r"\[([^\]]*)\]", "", line))
    words = [word for word in words if word != "..."]
    command: Any = typer.main.get_command(app)
    context = command.make_context("oar-bench", [], resilient_parsing=True)
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name.startswith("-"):
            return  # an option of the program itself
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
        context = command.make_context(name, [], resilient_parsing=True, parent=context)
    known = {word for option in command.params for word in [*option.opts, *option.secondary_opts]}
    takes = {
        word: not getattr(option, "is_flag", False)
        for option in command.params
        for word in [*option.opts, *option.secondary_opts]
    }
    free = [p for p in command.params if p.param_type_name == "argument"]
    given = 0
    while words:
        word = words.pop(0)
        if word.startswith("-") and len(word) > 1:
            flag, equals, _ = word.partition("=")
            assert flag in known, f"{command.name} has no option {flag}"
            if takes[flag] and not equals:
                assert words, f"{flag} needs a value"
                words.pop(0)
        else:
            given += 1
    if not any(p.nargs == -1 for p in free):
        assert given <= len(free)


def test_commands_were_found():
    assert len(cases()) > 60


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_within_the_repository_lead_somewhere(path):
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, place = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{target} is not there"
        if place and found.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", found.read_text("utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}
            assert place in slugs, f"{target}: no heading #{place}"
