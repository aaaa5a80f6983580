"""One run in a process of its own, forked from one that has everything imported already."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

PRELOADED = ["oar_bench.cli", "oar_bench.reproduce", "oar_bench.monitor.live"]


def context():
    """Processes that begin at once: importing torch takes longer than the whole run."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOADED)
    return found


def work(arguments: list[str], cache: str, log: str) -> None:
    """The command line with its output in a file."""
    from oar_bench.cli import main

    os.environ["OAR_BENCH_CACHE"] = cache
    with Path(log).open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.argv = ["oar-bench", *arguments]
    main()
