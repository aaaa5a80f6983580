"""The figures of score against number of samples and against token cap; see `figures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from oar_bench.reporting.budgets import Budget
from oar_bench.reporting.comparison import TaskTable
from oar_bench.reporting.figures import INK, Drawing, draw, legend, style
from oar_bench.reporting.text import short

T = TypeVar("T")


def budget(found: list[Budget], methods: list[str]) -> Drawing:
    """Score against a smaller token cap, a panel for each task: seeds faint, their mean strong."""

    def panel(axes: Axes, task: Budget) -> None:
        for curve in task.curves:
            colour, marker = style(curve.method, methods)
            for shares in curve.seeds.values() if len(curve.seeds) > 1 else ():
                axes.plot(task.caps, 100 * shares, color=colour, alpha=0.25, linewidth=0.8)
            axes.plot(task.caps, 100 * curve.mean, color=colour, marker=marker, markersize=5,
                      linewidth=1.8)  # fmt: skip
        _doubling(axes, task.caps)
        axes.set_xlabel("token cap")
        axes.set_ylabel("score, %")

    names = [curve.method for curve in max((task.curves for task in found), key=len)]
    panels = [(task.task, task) for task in found]
    return _curves("budget", panels, panel, [_key(name, methods) for name in names])


def samples(tables: list[TaskTable], methods: list[str]) -> Drawing:
    """pass@k (solid) and maj@k (dashed) against k, a panel for each task, mean over seeds."""

    def panel(axes: Axes, table: TaskTable) -> None:
        for row in table.rows:
            colour, marker = style(row.method, methods)
            passes = {k: interval.value for k, interval in row.passes.items()}
            for shares, line in ((passes, "-"), (row.majorities, "--")):
                axes.plot([*shares], [100 * share for share in shares.values()], color=colour,
                          linestyle=line, marker=marker, markersize=5, linewidth=1.8)  # fmt: skip
        _doubling(axes, max((tuple(row.passes) for row in table.rows), key=len))
        axes.set_xlabel("k, samples a problem")
        axes.set_ylabel("pass@k, maj@k, %")

    names = [row.method for row in max((table.rows for table in tables), key=len)]
    lines: list[Key] = [("pass@k", INK, "", "-"), ("maj@k", INK, "", "--")]
    panels = [(table.task, table) for table in tables]
    return _curves("samples", panels, panel, [*(_key(n, methods) for n in names), *lines])


Line = Literal["-", "--"]
Key = tuple[str, str, str, Line]
"""An entry of a legend: label, colour, marker, line."""


def _key(method: str, methods: list[str]) -> Key:
    return method, *style(method, methods), "-"


def _curves(
    name: str, panels: list[tuple[str, T]], paint: Callable[[Axes, T], None], keys: list[Key]
) -> Drawing:
    """A panel of lines for each task under one legend."""

    def whole(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, squeeze=False)
        for (title, content), axes in zip(panels, grid[:, 0], strict=True):
            paint(axes, content)
            axes.set_title(short(title), loc="left", fontsize=10)
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", linewidth=0.6)
        handles = [Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=5,
                          linewidth=1.8, label=short(label))
                   for label, colour, marker, line in keys]  # fmt: skip
        legend(figure, len(keys), handles)

    return draw(name, 0.7 + 2.7 * len(panels), whole)


def _doubling(axes: Axes, places: Sequence[int]) -> None:
    """A horizontal axis on which each doubling is a step, with a mark at every place."""
    axes.set_xscale("log", base=2)
    # the last place is no power of two and may stand too near to the one before it
    near = len(places) > 1 and places[-1] < 1.4 * places[-2]
    shown = [*places[:-2], places[-1]] if near else [*places]
    axes.set_xticks(shown, [str(place) for place in shown])
    axes.xaxis.set_minor_locator(NullLocator())
