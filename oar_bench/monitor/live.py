"""What a user sees of training while it runs, and where its rows go besides the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console as Terminal
from rich.console import ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from oar_bench.console import Console, Progress
from oar_bench.monitor.draw import compact, detail, fit
from oar_bench.monitor.folder import RunReader
from oar_bench.monitor.trackers import Tracking
from oar_bench.monitor.view import Rows, run_view, state_of

Report = Callable[[int, int, dict[str, Any]], None]
Draw = Callable[[int, int | None, bool], list[Text]]
"""Lines for a width and a height (None: no limit), in ASCII only or not."""


class Drawn:
    """Lines that are made anew for the terminal's size whenever they are drawn."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def __rich_console__(self, console: Terminal, options: ConsoleOptions) -> RenderResult:
        yield from self.draw(options.max_width, options.size.height, options.ascii_only)


@contextmanager
def training_report(
    console: Console, name: str, folder: Path, steps: int, log: Sequence[str] = (), *,
    brief: bool = False,
) -> Iterator[Report]:  # fmt: skip
    """The `report` to train a run of `steps` steps with, in `folder`.

    On a terminal a live view of the run (three lines if `brief`), elsewhere plain lines; the
    trackers named in `log` get every step.
    """
    reader = RunReader(folder, name)
    tracking = Tracking(reader, log)
    with ExitStack() as stack:
        fancy = isinstance(console, Progress) and console.fancy
        if fancy:
            draw = stack.enter_context(_live(reader, steps, brief=brief))
        else:
            tick = stack.enter_context(console.stage(f"train {name}", steps))

        def report(step: int, count: int, row: dict[str, Any]) -> None:
            if fancy or log:
                reader.read_rows()
            tracking.upto(step)
            if fancy:
                draw()
            else:
                tick(step, f"reward {row['reward']:.2f}")

        try:
            yield report
        except BaseException:
            tracking.close(complete=False)
            raise
        tracking.close(complete=True)


@contextmanager
def on_terminal(drawn: Drawn, terminal: Terminal, *, often: float) -> Iterator[Live]:
    """A live display, drawn anew `often` times a second (0: only when told to)."""
    live = Live(drawn, console=terminal, auto_refresh=often > 0, refresh_per_second=often or 1)
    try:
        with live:
            yield live
    finally:
        live.stop()  # Ctrl-C while it begins would leave the terminal without its cursor


@contextmanager
def _live(reader: RunReader, steps: int, *, brief: bool) -> Iterator[Callable[[], None]]:
    """A live view on standard error; the value draws what the reader has."""
    lines = compact if brief else detail
    view = run_view(reader.label, None, Rows({}, {}), "starting")

    def look() -> None:
        nonlocal view
        about = reader.about() or {"settings": {"train": {"steps": steps}}}
        state = state_of(about, held=True)
        view = run_view(reader.label, about, Rows(reader.metrics, reader.timing), state)

    look()
    drawn = Drawn(lambda width, _, plain: fit(lines(view, width, ascii_only=plain), width))
    with on_terminal(drawn, Terminal(stderr=True), often=2) as live:
        try:
            yield look
        except BaseException:
            view = replace(view, state="interrupted")
            raise
        reader.read_rows()
        look()
        live.refresh()
