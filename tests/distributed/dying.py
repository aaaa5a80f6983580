"""Runs the command line; in one of several processes a chosen call of a function goes wrong.

    accelerate launch ... dying.py RANK MODULE:NAME CALL WHAT ARGUMENTS...

WHAT is `kill` (SIGKILL before the CALL-th call), `refuse` (an InputError there) or `stop` (SIGTERM,
and the first process takes its time over checkpoints).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
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
        if calls == call and what == "stop":
            os.kill(os.getpid(), signal.SIGTERM)
        elif calls == call:
            raise InputError("this process can't go on", "its own trouble", "mend it")
        return original(*args, **kwargs)

    setattr(owner, name, armed)


def slow() -> None:
    """Have a checkpoint take longer than a launcher needs to see that another process ended."""
    from oar_bench.training import policy

    honest = policy.save_checkpoint

    def save(*args: Any, **kwargs: Any) -> None:
        time.sleep(8)
        honest(*args, **kwargs)

    policy.save_checkpoint = save


if __name__ == "__main__":
    rank, target, call, what, *arguments = sys.argv[1:]
    if os.environ["RANK"] == rank:
        arm(target, int(call), what)
    elif what == "stop":
        slow()
    sys.argv = ["oar-bench", *arguments]
    from oar_bench.cli import main

    main()
