"""A command in a process of its own, forked from one that has everything imported already."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

from .dying import arm

PRELOADED = [
    "oar_bench.cli",
    "oar_bench.reproduce",
    "oar_bench.monitor.live",
    "oar_bench.engines.hf",
    "oar_bench.evaluation.score",
]


def context():
    """Processes that begin at once: importing torch takes longer than the whole run."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOADED)
    return found


def begin(arguments: list[str], log: Path, die: tuple[str, int, str] | None = None) -> BaseProcess:
    """The command line as a process, begun; see `arm` for where it dies, if it does."""
    cache = os.environ["OAR_BENCH_CACHE"]
    process = context().Process(target=work, args=(arguments, cache, str(log), die))
    process.start()
    return process


def work(arguments: list[str], cache: str, log: str, die: tuple[str, int, str] | None) -> None:
    """The command line with its output in a file."""
    from oar_bench.cli import main

    os.environ["OAR_BENCH_CACHE"] = cache
    with Path(log).open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    if die is not None:
        arm(*die)
    sys.argv = ["oar-bench", *arguments]
    main()
