"""The loop of a symbolic worker: one JSON request a line in, one JSON reply a line out.

Started by `workers.py` as `python -m oar_bench.answers.worker_main`; ends with its input.
"""

from __future__ import annotations

import json
import os
import sys


def _cap_memory(limit: int) -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system: the deadline is the only guard
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serves requests until the input ends."""
    _cap_memory(int(sys.argv[1]))
    # Replies go to the real output; anything a library prints is dropped.
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    from oar_bench.answers.symbolic import judge

    judge("\\int_0^1 2x dx", "2")  # the first question loads most of sympy
    replies.write('"ready"\n')
    replies.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            reply = {"id": request["id"], "status": judge(request["answer"], request["gold"])}
        except Exception as error:  # noqa: BLE001  whatever a library raises on model text is a reply
            reply = {"id": request["id"], "status": "error", "error": f"{type(error).__name__}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
