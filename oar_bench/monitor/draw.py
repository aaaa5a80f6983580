"""Draw views as lines of a given width; the same lines with colours and without.

Every line fits the width in cells, and nothing of a file's text can command the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.text import Text

from oar_bench.console import printable
from oar_bench.monitor.folder import Snapshot
from oar_bench.monitor.view import (
    QUANTITIES,
    SHARES,
    ProjectView,
    Quantity,
    RunView,
    State,
)

STYLES: dict[State, str] = {
    "not begun": "dim", "starting": "cyan", "running": "cyan", "interrupted": "yellow",
    "finished": "green", "unreadable": "red",
}  # fmt: skip
SPARKS = "▁▂▃▄▅▆▇█"
NAMES = 17  # cells of the names of quantities
IDLE = "no process is at work on it; to go on, give its command again (train: with --resume)"
BAR = 40  # cells of a bar at most
SHORT = {"kl_start": "KL", "response_length": "length", "grad_norm": "gradient",
         "logprob_gap": "gap"}  # fmt: skip
"""Names of quantities where a run has one line for all of them."""


def shown(text: str) -> str:
    """Text of a file as one harmless line.

    >>> shown("a\\n\\x1b[31mb")
    'a\\\\n\\\\x1b[31mb'
    """
    return printable(text).replace("\n", "\\n")


def duration(seconds: float | None) -> str:
    """Seconds in words of a clock.

    >>> duration(7.4), duration(75), duration(7500), duration(200000), duration(None)
    ('7 s', '1:15', '2:05:00', '2 d 7:33', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24}:{minutes:02d}"
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}" if minutes else f"{rest} s"


def value(key: str, found: float | None) -> str:
    """A quantity's value in a few characters.

    >>> value("truncated", 0.125), value("reward", 0.5), value("kl_start", 0.00123456)
    ('12.5 %', '0.500', '0.00123')
    >>> value("grad_norm", float("inf")), value("reward", None), value("response_length", 1234.5)
    ('inf', '-', '1234.5')
    """
    if found is None:
        return "-"
    if not math.isfinite(found):
        return str(found)
    if key in SHARES:
        return f"{100 * found:.1f} %"
    if key == "reward":
        return f"{found:.3f}"
    if key == "response_length":
        return f"{found:.1f}" if abs(found) < 1e6 else f"{found:.3g}"
    return f"{found:.3g}"


def spark(series: Sequence[float | None], cells: int) -> str:
    """A line of blocks from the least to the largest value; several steps share a cell if needed.

    >>> spark([0, 1, 2, None, 7], 10), spark([0, 0, 6, 8], 2), spark([3, 3], 4)
    ('▁▂▃ █', '▁█', '▁▁')
    """
    count = min(len(series), cells)
    bins = []
    for place in range(count):
        part = series[place * len(series) // count : (place + 1) * len(series) // count]
        there = [v for v in part if v is not None]
        bins.append(math.fsum(there) / len(there) if there else None)
    known = [v for v in bins if v is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    if not high > low:
        return "".join(" " if v is None else SPARKS[0] for v in bins)
    top = len(SPARKS) - 1
    return "".join(
        " " if v is None else SPARKS[round(top * (v - low) / (high - low))] for v in bins
    )


def bar(done: int, total: int | None, cells: int, *, ascii_only: bool = False) -> Text:
    """A bar of `cells` cells; empty when the total isn't known.

    >>> bar(5, 10, 4).plain, bar(5, 10, 4, ascii_only=True).plain
    ('━━──', '##--')
    """
    share = min(1.0, done / total) if total else 0.0
    full = int(share * cells)
    return Text.assemble(
        ("#" if ascii_only else "━") * full,
        (("-" if ascii_only else "─") * (cells - full), "dim"),
    )


def head(view: RunView) -> Text:
    """Which run, and its state."""
    name = f"{view.method}, seed {view.seed}" if view.method else view.label
    about = Text(shown(name), "bold")
    if view.recipe:
        about.append(f"  {shown(view.recipe)}", "not bold")
    return about.append(f"  {view.state}", f"not bold {STYLES[view.state]}")


def progress(view: RunView, width: int, *, ascii_only: bool = False) -> Text:
    """Steps done, a bar where there is room, the time left."""
    done = f"step {view.step}" + (f" of {view.steps}" if view.steps else "")
    left = "" if view.state == "finished" else f"  {duration(view.left)} left"
    room = min(BAR, width - len(done) - len(left) - 2)
    line = Text(done)
    if room >= 8 and view.steps:
        line.append("  ").append(bar(view.step, view.steps, room, ascii_only=ascii_only))
    return line.append(left)


def times(view: RunView) -> str:
    """What the steps took, and when something was last heard of the run."""
    parts = [f"{duration(view.spent)} in steps"]
    if view.step_seconds is not None:
        parts.append(f"{view.step_seconds:.3g} s each")
    if view.idle is not None and view.state != "finished":
        parts.append(f"last one {duration(view.idle)} ago")
    return ", ".join(parts)


def amount(found: Quantity, width: int, *, ascii_only: bool = False) -> Text:
    """A quantity's name, latest value, recent mean, and its course where there is room."""
    line = Text(f"{QUANTITIES[found.key]:<{NAMES}}", "dim")
    line.append(f"{value(found.key, found.latest):>9}", "not dim")
    if width >= 60:
        line.append(f"  mean {value(found.key, found.recent):>9}")
        room = width - cell_len(line.plain) - 2
        if room >= 8 and not ascii_only:
            line.append("  ").append(spark(found.series, min(room, BAR)), "not dim cyan")
    return line


def phases(view: RunView, width: int) -> list[Text]:
    """The phases' shares of a step, the largest first; on as many lines as they need."""
    lines: list[str] = []
    for phase in sorted(view.phases, key=lambda phase: -phase.share):
        word = f"{shown(phase.name)} {100 * phase.share:.0f} %"
        if lines and cell_len(lines[-1]) + 3 + cell_len(word) <= width:
            lines[-1] += f"   {word}"
        else:
            lines.append(word)
    return [Text(line) for line in lines]


def detail(view: RunView, width: int, *, ascii_only: bool = False) -> list[Text]:
    """One run in whole."""
    lines = [head(view), progress(view, width, ascii_only=ascii_only)]
    if view.step:
        lines.append(Text(times(view), "dim"))
        lines += [amount(found, width, ascii_only=ascii_only) for found in view.quantities]
    lines += phases(view, width)
    return [*lines, *notes(view, width)]


def notes(view: RunView, width: int) -> list[Text]:
    """What a user should know or do, in whole: on as many lines as it needs."""
    found = []
    if view.note:
        found.append(shown(view.note))
    if view.state == "interrupted":
        found.append(IDLE)
    if view.damaged:
        found.append(f"{view.damaged} lines of its files can't be read and are left out")
    return [line for said in found for line in advice(said, width)]


def advice(said: str, width: int) -> list[Text]:
    """A sentence in whole; a terminal that tells no size has width 0."""
    return [Text(part, "yellow") for part in wrap(said, max(1, width))]


def compact(view: RunView, width: int, *, ascii_only: bool = False) -> list[Text]:
    """One run in three lines, for where it is one stage of many."""
    amounts = Text(overflow="ellipsis")
    for found in view.quantities:
        amounts.append(f"{'  ' if amounts else ''}{SHORT.get(found.key, found.key)} ", "dim")
        amounts.append(value(found.key, found.latest))
    lines = [head(view), progress(view, width, ascii_only=ascii_only)]
    return [*lines, *([amounts] if view.step else []), *phases(view, width)[:1]]


def fit(lines: Sequence[Text], width: int) -> list[Text]:
    """Lines cut to the width."""
    cut = []
    for line in lines:
        line = line.copy()
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
        line.rstrip()
        cut.append(line)
    return cut


def snapshot(
    found: Snapshot, width: int, height: int | None = None, *, ascii_only: bool = False
) -> list[Text]:
    """All that is watched: one run in whole, or a table for each project."""
    from oar_bench.monitor.table import table

    if not found.projects:
        return [Text("no run has begun here yet")]
    lines: list[Text] = []
    room = None if height is None else max(8, height // len(found.projects) - 1)
    for project in found.projects:
        if lines:
            lines.append(Text())
        if len(project.runs) == 1 and not project.planned:
            lines += detail(project.runs[0], width, ascii_only=ascii_only)
        else:
            lines += together(project, width, ascii_only=ascii_only)
            lines += table(project.runs, width, None if room is None else room - 4)
            lines += _active(project, width)
    return fit(lines, width)


def together(project: ProjectView, width: int, *, ascii_only: bool = False) -> list[Text]:
    """The state of a project and the steps of all its runs."""
    done = sum(run.state == "finished" for run in project.runs)
    line = Text(f"{shown(project.label)}  " if project.label else "", "bold")
    line.append(project.state, f"not bold {STYLES[project.state]}")
    line.append(f"  {done} of {len(project.runs)} runs finished", "not bold")
    lines = [line]
    if project.steps:
        left = "" if project.left in (None, 0.0) else f"  {duration(project.left)} of training left"
        words = f"step {project.step} of {project.steps}"
        room = min(BAR, width - len(words) - len(left) - 2)
        drawn = Text(words)
        if room >= 8:
            shape = bar(project.step, project.steps, room, ascii_only=ascii_only)
            drawn.append("  ").append(shape)
        lines.append(drawn.append(left))
    return lines


def _active(project: ProjectView, width: int) -> list[Text]:
    """What is at work in a project now, below its table."""
    running = [run for run in project.runs if run.state == "running"]
    if len(running) == 1:
        return phases(running[0], width)[:1]
    if not running and project.held:
        return [Text("at work on a warm start, an evaluation or the report", "dim")]
    if project.state == "interrupted":
        return advice(IDLE, width)
    return []
