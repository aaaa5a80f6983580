"""What a user sees of training while it runs, and where its rows go besides the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console as Terminal
from rich.console import ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from oar_bench.console import Console, Progress, say
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
    trackers named in `log` get every step. If none had a signal, a line at the end says so.
    """
    reader = RunReader(folder, name)
    tracking = Tracking(reader, log)
    signals: list[bool] = []
    last: dict[str, Any] = {}

    def tell() -> None:
        if signals and not any(signals):
            say(no_signal(name, len(signals), last))

    with ExitStack() as stack:
        stack.callback(tell)
        fancy = isinstance(console, Progress) and console.fancy
        if fancy:
            draw = stack.enter_context(_live(reader, steps, brief=brief))
        else:
            tick = stack.enter_context(console.stage(f"train {name}", steps))

        def report(step: int, count: int, row: dict[str, Any]) -> None:
            signals.append(row.get("frac_zero_std") != 1)
            last.update(row)
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


def no_signal(name: str, steps: int, row: Mapping[str, Any]) -> str:
    """The line for steps of which none had a group with a signal; `row` is the last one's metrics.

    >>> no_signal("grpo, seed 0", 6, {"reward": 0.0, "truncated": 1.0, "no_answer": 1.0})[-86:]
    "; of the last step's responses 0 % are right, 100 % truncated, 100 % without an answer"
    """
    names = {"reward": "are right", "truncated": "truncated", "no_answer": "without an answer"}
    shares = ", ".join(f"{100 * row[k]:.0f} % {said}" for k, said in names.items() if k in row)
    return (
        f"oar-bench: {name}: nothing was learned from rewards, since in these {steps} steps no "
        f"problem had both right and wrong responses; of the last step's responses {shares}"
    )


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
