"""Runs as rows of a table: columns are dropped and rows left out where there is no room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from oar_bench.monitor.draw import STYLES, duration, shown, value
from oar_bench.monitor.view import RunView

GAP = 2
LEAST = 8  # cells of the runs' names at least


def _steps(run: RunView) -> str:
    return f"{run.step}/{run.steps}" if run.steps else str(run.step or "-")


def _quantity(key: str) -> Callable[[RunView], str]:
    return lambda run: value(key, run.quantity(key).latest)


# In the order shown; the number says which go first where the width is short.
COLUMNS: tuple[tuple[str, int, Callable[[RunView], str]], ...] = (
    ("state", 1, lambda run: run.state),
    ("step", 0, _steps),
    ("reward", 2, _quantity("reward")),
    ("KL", 4, _quantity("kl_start")),
    ("length", 5, _quantity("response_length")),
    ("truncated", 6, _quantity("truncated")),
    ("gradient", 7, _quantity("grad_norm")),
    ("s a step", 8, lambda run: "-" if run.step_seconds is None else f"{run.step_seconds:.3g}"),
    ("left", 3, lambda run: "" if run.state == "finished" else duration(run.left)),
)


def table(runs: Sequence[RunView], width: int, height: int | None = None) -> list[Text]:
    """A head and a line for each run, within `width` cells and about `height` lines."""
    columns = sorted(range(len(COLUMNS)), key=lambda place: COLUMNS[place][1])
    cells = {place: [COLUMNS[place][2](run) for run in runs] for place in columns}
    widths = {
        place: max(map(cell_len, [COLUMNS[place][0], *cells[place]]), default=0)
        for place in columns
    }
    names = [shown(run.label) for run in runs]
    longest = max(map(cell_len, ["run", *names]))
    while columns and width - sum(widths[p] + GAP for p in columns) < min(longest, 2 * LEAST):
        columns.pop()
    room = max(LEAST, min(longest, width - sum(widths[place] + GAP for place in columns)))
    kept = sorted(columns)
    lines = [_line("run", room, [(COLUMNS[place][0], widths[place]) for place in kept], "dim")]
    first, last = window(runs, None if height is None else height - 3)
    if first:
        lines.append(Text(f"{first} above", "dim"))
    for row in range(first, last):
        line = _line(names[row], room, [(cells[p][row], widths[p]) for p in kept])
        line.highlight_words([runs[row].state], STYLES[runs[row].state])
        lines.append(line)
    if last < len(runs):
        lines.append(Text(f"{len(runs) - last} below", "dim"))
    return lines


def _line(name: str, room: int, cells: Sequence[tuple[str, int]], style: str = "") -> Text:
    parts = [set_cell_size(name, room)]
    parts += [" " * (GAP + size - cell_len(cell)) + cell for cell, size in cells]
    return Text("".join(parts), style)


def window(runs: Sequence[RunView], rows: int | None) -> tuple[int, int]:
    """The rows to show, as a slice: all, or those around the first run that isn't finished."""
    if rows is None or len(runs) <= rows:
        return 0, len(runs)
    rows = max(1, rows)
    active = next((i for i, run in enumerate(runs) if run.state != "finished"), len(runs) - 1)
    first = min(max(0, active - rows // 2), len(runs) - rows)
    return first, first + rows
