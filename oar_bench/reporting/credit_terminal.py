"""One response's credit on a terminal, tokens shaded, or as a plain table where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from oar_bench.console import printable
from oar_bench.reporting.credit_view import Cell, CreditView, Line, credit_view
from oar_bench.reporting.text import aligned, number, significant

# Ink and paper are both set, so that a shade reads the same on dark and light terminals.
STYLES = {
    "i1": "black on #d9efe7", "i2": "black on #b8e2d3", "i3": "black on #8fd3bb",
    "i4": "black on #59bf9d", "i5": "black on #1fa67c",
    "b1": "black on #fbe6d6", "b2": "black on #f5cdad", "b3": "black on #efb07e",
    "b4": "black on #e8914c", "b5": "black on #dd6d13",
    "s1": "black on #e3eff7", "s2": "black on #c3ddee", "s3": "black on #9cc7e3",
    "s4": "black on #70add5",
}  # fmt: skip
MARKS = {"answer prefix": "underline", "answer": "bold underline"}


def print_credit(found: Mapping[str, Any], file: TextIO | None = None) -> None:
    """Print what `oar_bench.reporting.credit_show.show` returned, to standard output if no file.

    Colours are for terminals: elsewhere, and with NO_COLOR set, it is a table.
    """
    console = Console(file=file, highlight=False)
    view = credit_view(found)
    for line in head(found, view):
        console.print(Text(line), soft_wrap=True)
    if console.color_system is None or console.no_color:
        console.file.write(table(view) + "\n")
        return
    for part in shaded(view):
        console.print(part)


def head(found: Mapping[str, Any], view: CreditView) -> list[str]:
    """What stands above the tokens."""
    about = [
        f"{found.get('model')}: {len(view.lines)} tokens, {view.scored} of them scored",
        f"source: {found.get('source')}",
        f"prompt: {found.get('prompt')}",
    ]
    if view.found:
        about.append(f"answer: {view.answer}")
    else:
        about.append("no answer was found in this response: every weight is 1")
    if view.found and not view.scored:
        about.append("no token stands before the answer: every weight is 1")
    if found.get("gold"):
        about.append(f"right answer: {found['gold']}")
    about += [f"note: {note}" for note in found.get("notes") or []]
    return [printable(line.replace("\n", "↵")) for line in about]


def shaded(view: CreditView) -> list[Text]:
    """The legend, then for each method the response shaded by importance and by weight."""
    parts = [_legend(view)]
    for place, method in enumerate(view.methods):
        if method.empty:
            parts.append(Text(f"\n{printable(method.method)}: every weight is 1", "bold"))
            parts.append(_tokens(view.lines, place, lambda cell: "n"))
            continue
        parts.append(
            Text(
                f"\n{printable(method.method)}: importance, at most "
                f"{significant(method.largest)}", "bold",
            )
        )  # fmt: skip
        parts.append(_tokens(view.lines, place, lambda cell: cell.depth))
        parts.append(
            Text(
                f"{printable(method.method)}: weight, {number(method.lightest, 2)} to "
                f"{number(method.heaviest, 2)}", "bold",
            )
        )  # fmt: skip
        parts.append(_tokens(view.lines, place, lambda cell: cell.shade))
    return parts


def _tokens(lines: list[Line], place: int, of: Callable[[Cell], str]) -> Text:
    text = Text(overflow="fold")
    for line in lines:
        style = f"{STYLES.get(of(line.cells[place]), '')} {MARKS.get(line.section, '')}".strip()
        text.append(_shown(line), style or None)
    return text


def _shown(line: Line) -> str:
    return printable(line.text).replace("\n", "↵\n")


def _legend(view: CreditView) -> Text:
    legend = Text("importance, of the method's largest: ")
    for step, share in enumerate(("1/32", "1/16", "1/8", "1/4", "1/2 and more"), start=1):
        legend.append(f" {share} ", STYLES[f"i{step}"])
    legend.append("  weight: ")
    for shade, weight in view.scale:
        legend.append(f" {number(weight, 2)} ", STYLES.get(shade))
    legend.append("  ")
    legend.append("answer prefix", MARKS["answer prefix"])
    legend.append("  ")
    return legend.append("answer", MARKS["answer"])


def table(view: CreditView) -> str:
    """A line for each token, columns aligned; the text, which may be long, comes last."""
    names = [printable(method.method) for method in view.methods]
    grid = [["token", "position", "id", "part",
             *(f"{name} {what}" for name in names for what in ("importance", "rank", "weight")),
             "text"]]  # fmt: skip
    for line in view.lines:
        numbers = [
            text
            for cell in line.cells
            for text in (
                significant(cell.importance), str(cell.rank or "–"), number(cell.weight, 3)
            )
        ]  # fmt: skip
        shown = printable(line.text).replace("\n", "↵")
        grid.append([str(line.place), str(line.position), str(line.id), line.section, *numbers,
                     shown if line.special else f'"{shown}"'])  # fmt: skip
    return aligned(grid, ("part", "text"))
