"""Progress for people: rich bars on a terminal, plain lines elsewhere, model text made harmless."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

PLAIN_EVERY = 15.0  # seconds between two plain lines of one stage


def printable(text: str) -> str:
    """Text with control characters shown as escapes, so that it can't command a terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


class Console(Protocol):
    """What the stages tell of their progress; the command line draws it."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Callable[[int, str], None]]:
        """A named stage of `total` units; the value is called with the units done and a note."""
        ...


class Progress:
    """Draws stages one after the other on standard error."""

    def __init__(self) -> None:
        self.fancy = sys.stderr.isatty()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int, str], None]]:
        """A stage of `total` units; call the value with the units done and a short note."""
        drawn = self._bar(name, total) if self.fancy else self._lines(name, total)
        with drawn as tick:
            yield tick

    @contextmanager
    def _bar(self, name: str, total: int) -> Iterator[Callable[[int, str], None]]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description:<24}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        with Bars(*columns, console=Console(stderr=True)) as bars:
            bar = bars.add_task(printable(name), total=total, note="")

            def tick(done: int, note: str) -> None:
                bars.update(bar, completed=done, note=printable(note))

            yield tick

    @contextmanager
    def _lines(self, name: str, total: int) -> Iterator[Callable[[int, str], None]]:
        start = last = time.monotonic()
        begun: int | None = None
        latest = ""

        def tick(done: int, note: str) -> None:
            nonlocal last, latest, begun
            now = time.monotonic()
            latest = note
            if begun is None:
                begun = done
            if now - last >= PLAIN_EVERY and done < total:
                last = now
                made = max(1, done - begun)
                left = (now - start) / made * (total - done)
                say(f"{name}: {done}/{total} {note} (about {left:.0f} s left)")

        yield tick
        say(f"{name}: done in {time.monotonic() - start:.1f} s{f', {latest}' if latest else ''}")


def say(line: str) -> None:
    """One line to standard error, where progress belongs; results go to standard output."""
    print(printable(line), file=sys.stderr, flush=True)
