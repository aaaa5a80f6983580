"""Every command line in the documents is one that this version takes; every link has an end."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from oar_bench.cli import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# `oar-bench` at the start of a code line, or after a prompt, a variable or another command.
LINE = re.compile(
    r"^\s*(?:\$ |[A-Z_]+=\S+ |.*(?:&&|-m oar_bench|\|) *)?(oar-bench|oar_bench) (.+)$"
)
INLINE = re.compile(r"`(oar-bench [^`]+)`")


def commands(text: str) -> list[str]:
    """The command lines of a document: of its code blocks, and those quoted in its prose."""
    found = []
    fenced, buffer = False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced or line.startswith("    "):
            if line.rstrip().endswith("\\"):
                buffer += line.rstrip()[:-1] + " "
                continue
            whole, buffer = buffer + line, ""
            if match := LINE.match(whole):
                found.append(f"oar-bench {match[2]}")
        else:
            found += INLINE.findall(line)
    return found


def cases() -> list[Any]:
    pairs = [(path, line) for path in DOCUMENTS for line in commands(path.read_text("utf-8"))]
    return [
        pytest.param(line, id=f"{path.name}: {line[:60]}") for path, line in dict.fromkeys(pairs)
    ]


def words_of(line: str) -> list[str]:
    """The words of a line as a shell would give them, without what is piped or a comment."""
    words = shlex.split(re.sub(r"\[([^\]]*)\]", "", line), comments=" #" in line)
    ends = (i for i, word in enumerate(words) if word[0] in "|>&" or word == "...")
    return words[1 : next(ends, None)]


@pytest.mark.parametrize("line", cases())
def test_the_command_line_is_taken(line):
    words = words_of(line)
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
