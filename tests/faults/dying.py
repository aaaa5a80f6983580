"""Kills its own process (SIGKILL) inside a chosen call of a function."""

from __future__ import annotations

import importlib
import os
import signal


def arm(target: str, call: int, when: str) -> None:
    """Have this process die `before` or `after` the CALL-th call (1-based) of MODULE:NAME."""
    module_name, _, name = target.partition(":")
    owner = importlib.import_module(module_name)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original = getattr(owner, last)
    calls = 0

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, last, dying)
