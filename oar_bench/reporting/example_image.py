"""The example's shaded tokens as an image, as the template example.svg.j2 draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from oar_bench.reporting.figures import INK, saved
from oar_bench.reporting.text import visible

PIXELS = 100  # to the inch of the image
FONT = "DejaVu Sans"


def image_of_tokens(panels: Sequence[Mapping[str, Any]], size: tuple[int, int], most: str) -> bytes:
    """A PNG of `size` pixels of the page: each panel's method, and its boxes under it."""

    figure = Figure(figsize=(size[0] / PIXELS, size[1] / PIXELS))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, size[0])
    axes.set_ylim(size[1], 0)
    for panel in panels:
        title: Any = {"fontfamily": FONT, "fontsize": 10, "fontweight": "bold", "color": INK}
        axes.text(10, panel["top"] + 18, visible(str(panel["method"])), **title)
        for box in panel["boxes"]:
            _token(axes, box)
    legend = (
        f"orange: weight above 1, up to {most}; blue: below 1; underlined: answer (dashed: its "
        "prefix)"
    )
    axes.text(10, size[1] - 12, legend, fontfamily=FONT, fontsize=8, color="#57606a")
    return saved(figure, "example", "png")


def _token(axes: Axes, box: Mapping[str, Any]) -> None:
    x, y, width = box["x"], box["y"], box["width"]
    if box["fill"]:
        shade = Rectangle((x, y), width, 20, color=box["fill"], alpha=box["opacity"], linewidth=0)
        axes.add_patch(shade)
    if box["mark"]:
        line = "--" if box["mark"] == "prefix" else "-"
        across = [x + 1, x + width - 1]
        axes.plot(across, [y + 20, y + 20], color=INK, linewidth=1.4, linestyle=line)
    weight = "bold" if box["mark"] == "answer" else "normal"
    font: Any = {"fontfamily": "DejaVu Sans Mono", "fontsize": 9.3, "fontweight": weight,
                 "color": INK}  # fmt: skip
    axes.text(x, y + 15, box["text"], **font)
