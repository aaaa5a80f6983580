"""The figures of a report: SVG by matplotlib, the same bytes for the same numbers.

Text stays text, sizes fit a phone, and every method has a colour (Okabe and Ito's and Tol's
colour-blind-safe sets) and a marker of its own. No pyplot: nothing global is touched.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from oar_bench.evaluation.statistics import Interval
from oar_bench.reporting.comparison import TaskTable
from oar_bench.reporting.costs import Cost
from oar_bench.reporting.frames import REFERENCE, START, Collection
from oar_bench.reporting.text import number, percent, points, short

INK, LINE, PAPER = "#1f2328", "#d8dee4", "#ffffff"
WIDTH = 5.0  # inches: 480 px, so that 10 pt is still legible at the 330 px of a phone
DPI = {"svg": 72, "png": 200}
STYLE: dict[str, tuple[str, str]] = {
    START: ("#8c959f", "s"),
    "grpo": ("#57606a", "o"),
    "oar-p": ("#0072b2", "D"),
    "oar-g": ("#d55e00", "^"),
    "shuffled": ("#009e73", "v"),
    "uniform": ("#56b4e9", "P"),
    "random": ("#cc79a7", "X"),
    "inverted": ("#e69f00", "<"),
}
MORE = ("#332288", "#882255", "#999933", "#44aa99", "#aa4499", "#117733")
MORE_MARKERS = ("h", "*", "p", "d", ">", "8", "H")  # 7 and 6: a pair returns after 42 methods
PHASE_COLOURS = {"rollout": "#4477aa", "grading": "#ccbb44", "logprobs": "#66ccee",
                 "credit": "#ee6677", "update": "#228833"}  # fmt: skip
DARK = {  # what the page shows instead where the reader prefers dark
    INK: "#e6edf3", LINE: "#30363d", PAPER: "#0d1117", "#57606a": "#b1bac4",
    "#8c959f": "#8b949e", "#0072b2": "#4db3f0", "#d55e00": "#ff8c42", "#009e73": "#2fc99b",
    "#332288": "#8f80e8", "#882255": "#d0679d", "#117733": "#4fb477", "#aa4499": "#d27ac4",
    "#228833": "#3fae54", "#4477aa": "#6a9fd4",
}  # fmt: skip


def style(method: str, methods: list[str]) -> tuple[str, str]:
    """Colour and marker of a method; unknown ones take the spare colours in their order."""
    if method in STYLE:
        return STYLE[method]
    others = [name for name in methods if name not in STYLE]
    place = others.index(method)
    return MORE[place % len(MORE)], MORE_MARKERS[place % len(MORE_MARKERS)]


class Drawing(str):
    """A figure as an SVG document; `png()` is the same figure as an image, made when asked."""

    png: Callable[[], bytes]


def drawing(svg: str, png: Callable[[], bytes]) -> Drawing:
    """An SVG document with what makes its image."""
    made = Drawing(svg)
    made.png = png
    return made


def draw(name: str, height: float, paint: Callable[[Figure], None]) -> Drawing:
    """The figure that `paint` draws: no date, fixed ids, text as text."""
    with _settings(name):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        paint(figure)
    svg = saved(figure, name, "svg").decode()
    figure.set_layout_engine("none")  # where everything lies is known now
    # matplotlib leaves blanks at line ends, which other tools trim
    tidy = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return drawing(tidy, lambda: saved(figure, name, "png"))


@contextmanager
def _settings(name: str) -> Iterator[None]:
    """matplotlib's settings for a figure; nothing global stays changed."""
    settings: Any = {
        "svg.hashsalt": name, "svg.fonttype": "none", "text.parse_math": False,
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 10,
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.edgecolor": LINE, "grid.color": LINE, "axes.spines.top": False,
        "axes.spines.right": False, "axes.axisbelow": True, "legend.frameon": False,
        "axes.unicode_minus": True, "figure.facecolor": PAPER, "axes.facecolor": "none",
    }  # fmt: skip
    with mpl.rc_context(settings), warnings.catch_warnings():
        # a character that the font lacks is drawn as a box, and is text in the SVG
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def saved(figure: Figure, name: str, kind: Literal["svg", "png"]) -> bytes:
    """A figure as a file, without dates and programs' names: the same bytes for the same figure."""
    buffer = io.BytesIO()
    unwanted = ("Date", "Creator", "Format", "Type") if kind == "svg" else ("Software",)
    with _settings(name):
        figure.savefig(buffer, format=kind, metadata=dict.fromkeys(unwanted), dpi=DPI[kind])
    return buffer.getvalue()


def learning(curves: pd.DataFrame, methods: list[str]) -> Drawing:
    """Training reward against step: every seed faint, their mean strong."""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for method in methods:
            of = curves[curves["method"] == method]
            colour, marker = style(method, methods)
            for name in [c for c in of.columns if c.startswith("seed ")]:
                axes.plot(of["step"], 100 * of[name], color=colour, alpha=0.25, linewidth=0.8)
            _line(axes, of["step"], of["mean"], method, colour, marker)
        axes.set_xlabel("training step")
        axes.set_ylabel("sampled answers right, %")
        axes.grid(axis="y", linewidth=0.6)
        legend(figure, len(methods))

    return draw("learning", 3.5, paint)


def _line(axes: Axes, x: Any, shares: pd.Series, method: str, colour: str, marker: str) -> None:
    axes.plot(x, 100 * shares, color=colour, linewidth=1.8, marker=marker, markersize=5,
              markevery=max(1, len(shares) // 6), label=short(method))  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def legend(figure: Figure, entries: int, handles: list[Any] | None = None) -> None:
    """A legend above the panels; without `handles` it holds every labelled line."""
    figure.legend(handles=handles, loc="outside upper left", ncols=min(4, max(entries, 1)),
                  fontsize=9, handlelength=1.8, columnspacing=1.2)  # fmt: skip


def scores(tables: list[TaskTable], methods: list[str]) -> Drawing:
    """Every method's score with its 95 % interval, a panel for each task."""
    panels = [
        (table.task, [(row.method, row.mean) for row in table.rows], f"avg@{table.k}, %")
        for table in tables
    ]
    return _intervals("scores", panels, methods, percent)


def differences(tables: list[TaskTable], methods: list[str]) -> Drawing:
    """Every paired difference to GRPO with its 95 % interval, and the line of no difference."""
    panels = [
        (
            table.task,
            [(row.method, row.pair.test.difference) for row in table.rows
             if row.pair and row.method != START],
            f"points more than {REFERENCE}",
        )
        for table in tables
    ]  # fmt: skip
    return _intervals("differences", [p for p in panels if p[1]], methods, points, zero=True)


Panel = tuple[str, list[tuple[str, Interval]], str]


def _intervals(
    name: str,
    panels: list[Panel],
    methods: list[str],
    write: Callable[[float], str],
    zero: bool = False,
) -> Drawing:
    def paint(figure: Figure) -> None:
        sizes = [len(panel[1]) + 1.2 for panel in panels]
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=sizes)
        for (task, items, label), axes in zip(panels, grid[:, 0], strict=True):
            dots(axes, items, methods, write)
            if zero:
                axes.axvline(0, color=INK, linewidth=1, zorder=0.5)
            axes.set_title(short(task), loc="left", fontsize=10)
            axes.set_xlabel(label)

    return draw(name, 0.25 + sum(0.34 * len(panel[1]) + 0.95 for panel in panels), paint)


def dots(
    axes: Axes,
    items: list[tuple[str, Interval]],
    methods: list[str],
    write: Callable[[float], str],
    scale: float = 100,
) -> None:
    """A line for each method: its value, written by `write`, and its interval, times `scale`."""
    for place, (method, interval) in enumerate(items):
        colour, marker = style(method, methods)
        if not math.isnan(interval.low):
            axes.plot([scale * interval.low, scale * interval.high], [place, place], color=colour,
                      linewidth=2, solid_capstyle="round")  # fmt: skip
        axes.plot([scale * interval.value], [place], color=colour, marker=marker, markersize=7)
        axes.annotate(write(interval.value), (scale * interval.value, place), (0, 6),
                      textcoords="offset points", ha="center", fontsize=9)  # fmt: skip
    axes.set_yticks(range(len(items)), [short(method) for method, _ in items])
    axes.set_ylim(len(items) - 0.5, -0.75)
    axes.tick_params(left=False)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", linewidth=0.6)
    axes.margins(x=0.08)


def overhead(costs: list[Cost]) -> Drawing:
    """Median seconds of a step, stacked by phase, with the ratio to GRPO's step."""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        _stacked(axes, costs)
        axes.set_xlabel("seconds a training step (median)")
        legend(figure, 3)

    return draw("overhead", 1.35 + 0.42 * len(costs), paint)


def overhead_by_length(by: dict[int, list[Cost]]) -> Drawing:
    """The same with a panel, and a scale, for each response length."""

    def paint(figure: Figure) -> None:
        sizes = [len(costs) + 1.2 for costs in by.values()]
        grid = figure.subplots(len(by), 1, squeeze=False, height_ratios=sizes)
        for (length, costs), axes in zip(by.items(), grid[:, 0], strict=True):
            _stacked(axes, costs)
            axes.set_title(f"responses of {length} tokens", loc="left", fontsize=10)
        grid[-1, 0].set_xlabel("seconds a training step (median)")
        # The panels share their phases: one legend, of the first.
        legend(figure, 3, grid[0, 0].get_legend_handles_labels()[0])

    height = 0.9 + sum(0.42 * len(costs) + 0.6 for costs in by.values())
    return draw("overhead-by-length", height, paint)


def _stacked(axes: Axes, costs: list[Cost]) -> None:
    names = list(dict.fromkeys(name for cost in costs for name in cost.phases))
    left = [0.0] * len(costs)
    for number_of, name in enumerate(names):
        widths = [cost.phases[name].seconds if name in cost.phases else 0.0 for cost in costs]
        colour = PHASE_COLOURS.get(name, MORE[number_of % len(MORE)])
        axes.barh(range(len(costs)), widths, 0.62, left, color=colour, label=short(name),
                  edgecolor=PAPER, linewidth=0.8)  # fmt: skip
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, cost in enumerate(costs):
        ratio = f" ({number(cost.ratio.value, 2)}×)" if cost.ratio else ""
        axes.annotate(f"{number(cost.step_seconds, 2)} s{ratio}", (left[place], place), (5, 0),
                      textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    axes.set_yticks(range(len(costs)), [short(cost.method) for cost in costs])
    axes.set_ylim(len(costs) - 0.4, -0.6)
    axes.set_xlim(0, max(left, default=0.0) * 1.32 or 1.0)
    axes.tick_params(left=False)
    axes.grid(axis="x", linewidth=0.6)


def weights(collection: Collection) -> Drawing:
    """How concentrated the weights are: effective share of tokens (ESS/T) by step."""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        methods = collection.methods
        shown = 0
        for method in methods:
            series = [run.metrics.groupby("step")["weight_ess"].last()
                      for run in collection.of(method) if "weight_ess" in run.metrics]  # fmt: skip
            mean = pd.concat(series, axis=1).mean(axis=1).dropna() if series else pd.Series()
            if mean.empty:
                continue
            colour, marker = style(method, methods)
            _line(axes, mean.index, mean, method, colour, marker)
            shown += 1
        axes.set_xlabel("training step")
        axes.set_ylabel("effective share of tokens, %")
        axes.set_ylim(0, 104)
        axes.grid(axis="y", linewidth=0.6)
        legend(figure, shown)

    return draw("weights", 3.2, paint)
