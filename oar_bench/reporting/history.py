"""The commands that made a reproduction, from its reproduce.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oar_bench.reporting.text import listed


def commands_of(about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The commands that made a reproduction, each with the methods and seeds that it added.

    One from before there was a list has the one command that was last given.

    >>> commands_of({"command": "oar-bench reproduce tiny", "methods": ["grpo"], "seeds": [0]})
    [{'command': 'oar-bench reproduce tiny', 'methods': ['grpo'], 'seeds': [0]}]
    """
    if isinstance(about.get("commands"), list):
        return list(about["commands"])
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
