"""Runs the command line and kills the process (SIGKILL) inside a chosen call of a function.

    python dying.py MODULE:NAME CALL WHEN ARGUMENTS...

WHEN is `before` or `after` the CALL-th call (1-based) of MODULE.NAME.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys


def arm(target: str, call: int, when: str) -> None:
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


if __name__ == "__main__":
    target, call, when, *arguments = sys.argv[1:]
    if target != "none":
        arm(target, int(call), when)
    sys.argv = ["oar-bench", *arguments]
    from oar_bench.cli import main

    main()
