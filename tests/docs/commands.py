"""The commands of the documents: lines of their shell blocks, and those quoted in their prose."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("oar-bench", "python", "accelerate", "vllm", "ruff", "tox", "tensorboard", "lm-eval",
            "lm_eval", "pip")  # fmt: skip
SHELL = ("", "sh", "bash", "console", "shell")
_FENCE = re.compile(r"^\s*```(\w*)")
_SETS = re.compile(r"[A-Z_]+=\S*")
_QUOTED = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def is_command(line: str) -> bool:
    """Whether a line begins with one of `PROGRAMS`, after settings of the environment."""
    words = line.removeprefix("$ ").split()
    while words and _SETS.fullmatch(words[0]):
        words.pop(0)
        if not words:
            return True
    return bool(words) and words[0] in PROGRAMS and len(words) > 1


def in_blocks(text: str) -> list[str]:
    """The command lines of a document's blocks; what ends in a backslash is joined to the next."""
    found, language, buffer = [], None, ""
    for line in text.splitlines():
        if fence := _FENCE.match(line):
            language = fence[1] if language is None else None
        elif language in SHELL:
            if line.rstrip().endswith("\\"):
                buffer += line.rstrip()[:-1]
                continue
            whole, buffer = re.sub(r"\s+", " ", buffer + line).strip(), ""
            if is_command(whole):
                found.append(whole.removeprefix("$ "))
    return found


def in_prose(text: str) -> list[str]:
    """The command lines quoted between backticks, where they may go over the end of a line."""
    prose = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M)
    quoted = (re.sub(r"\s+", " ", found) for found in _QUOTED.findall(prose))
    return [line for line in quoted if is_command(line)]


def words_of(line: str) -> list[str]:
    """The words of a line as a shell would give them, without a comment."""
    return shlex.split(line, comments=" #" in line)
