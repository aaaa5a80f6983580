"""Runs the command line; in one of several processes a chosen call of a function goes wrong.

    accelerate launch ... dying.py RANK MODULE:NAME CALL WHAT ARGUMENTS...

WHAT is `kill` (SIGKILL before the CALL-th call) or `refuse` (an InputError there).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from oar_bench.errors import InputError


def arm(target: str, call: int, what: str) -> None:
    module_name, _, name = target.partition(":")
    owner = importlib.import_module(module_name)
    original = getattr(owner, name)
    calls = 0

    def armed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if calls == call:
            raise InputError("this process can't go on", "its own trouble", "mend it")
        return original(*args, **kwargs)

    setattr(owner, name, armed)


if __name__ == "__main__":
    rank, target, call, what, *arguments = sys.argv[1:]
    if os.environ["RANK"] == rank:
        arm(target, int(call), what)
    sys.argv = ["oar-bench", *arguments]
    from oar_bench.cli import main

    main()
