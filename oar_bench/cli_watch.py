"""The command `oar-bench watch`, and the option `--log` of the commands that train."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oar_bench.errors import InputError
from oar_bench.stages import split_words

if TYPE_CHECKING:
    from oar_bench.monitor.folder import Snapshot, Watcher

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log", help="Also show each step in tensorboard, wandb or jsonl; repeat for more."
    ),
]
SETTLED = 2.0
"""Seconds after which runs that are all finished are looked at again: the next may be begun."""


def trackers(words: list[str] | None) -> tuple[str, ...]:
    """The trackers that `--log` names; InputError when one is unknown or its package missing."""
    from oar_bench.monitor.trackers import check_trackers

    return check_trackers([name for word in words or () for name in split_words(word, "--log")])


def watch(
    run: Annotated[
        Path, typer.Argument(help="A run's folder, what `reproduce` writes, or any with runs.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Print how it stands now, and end.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for a run to begin there.")] = False,
    every: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON for scripts: a line for each change.")
    ] = False,
) -> None:
    """Follow training from another terminal; reads only.

    Ends when all is finished, or by Ctrl-C. Says what is running (a process holds its folder),
    interrupted (none does) and finished.

    Examples:

      oar-bench watch results/tiny

      oar-bench watch runs/tiny/grpo/seed-0 --once

      oar-bench watch results/mine --wait --json
    """
    if not math.isfinite(every):
        raise InputError("it is no number of seconds", "--every")
    try:
        _watch(run, once=once, wait=wait, every=every, as_json=as_json)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The reader of our lines has enough; what Python would still flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _watch(run: Path, *, once: bool, wait: bool, every: float, as_json: bool) -> None:
    from oar_bench.monitor.folder import Watcher

    watcher = Watcher(run)
    first = watcher.look()
    if not first.projects and not wait:
        raise InputError(
            "no run has begun there", str(run), "name a run's folder, or wait for it with --wait"
        )
    if not first.projects:
        from oar_bench.console import printable, say

        say(f"waiting for a run in {printable(str(run))}")
        first = _begun(watcher, every)
    for found in first.runs if len(first.runs) == 1 else ():
        if found.state == "unreadable":
            raise InputError(found.note)
    looks = iter([first]) if once else _looks(first, watcher, every)
    if as_json:
        _print_json(looks)
    elif once:
        _print_once(first)
    elif not sys.stdout.isatty():
        _print_lines(looks)
    else:
        _draw(looks)


def _begun(watcher: Watcher, every: float) -> Snapshot:
    while True:
        time.sleep(every)
        found = watcher.look()
        if found.projects:
            return found


def _looks(found: Snapshot, watcher: Watcher, every: float) -> Iterator[Snapshot]:
    """One look after the other until all is finished, the last one included."""
    while True:
        yield found
        if found.finished and len(found.runs) == 1:
            return
        time.sleep(max(every, SETTLED) if found.finished else every)
        before, found = found, watcher.look()
        if found.finished and before.finished and len(found.runs) == len(before.runs):
            return


def _print_json(looks: Iterator[Snapshot]) -> None:
    from oar_bench.monitor.plain import as_json, without_clock

    said = None
    for found in looks:
        content = as_json(found)
        if without_clock(content) != said:
            said = without_clock(content)
            print(json.dumps(content), flush=True)


def _print_lines(looks: Iterator[Snapshot]) -> None:
    from oar_bench.monitor.plain import Lines

    lines = Lines()
    for found in looks:
        for line in lines.of(found, time.monotonic()):
            print(line, flush=True)


def _print_once(found: Snapshot) -> None:
    from oar_bench.monitor.draw import snapshot

    width = shutil.get_terminal_size((120, 24)).columns
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    print("\n".join(line.plain for line in snapshot(found, width, ascii_only=plain)))


def _draw(looks: Iterator[Snapshot]) -> None:
    from rich.console import Console

    from oar_bench.monitor.draw import snapshot
    from oar_bench.monitor.live import Drawn, on_terminal

    found = next(looks)
    drawn = Drawn(lambda width, height, plain: snapshot(found, width, height, ascii_only=plain))
    with on_terminal(drawn, Console(), often=0) as live:
        live.refresh()
        for look in looks:
            found = look
            live.refresh()
