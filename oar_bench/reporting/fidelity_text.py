"""What `oar-bench credit fidelity` found: a table for terminal, Markdown and CSV, and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from oar_bench.errors import InputError
from oar_bench.evaluation.statistics import Interval
from oar_bench.records import write_json, write_text
from oar_bench.reporting.fidelity_measure import ROWS
from oar_bench.reporting.figures import dots, draw, legend, style
from oar_bench.reporting.tables import csv
from oar_bench.reporting.text import (
    NONE,
    aligned,
    counted,
    markdown,
    number,
    percent,
    significant,
    visible,
)

Found = Mapping[str, Any]
HEAD = ["method", "Spearman", "top 20 %", "two draws", "deletion", "insertion", "s/response",
        "speed", "responses", "undefined"]  # fmt: skip
CURVES = {"deletion": "replaced", "insertion": "restored"}
NOTES = [
    "Mean over problems with the 95 % interval. Spearman and the overlap of the top 20 % of tokens "
    "(by chance: 20 %) are with exact OAR-P within a response; the position row uses no model.",
    "Two draws: Spearman between two draws of a method that draws.",
    "Deletion: how far the answer moves (nats, mean over the curve) when the most important tokens "
    "are replaced first: more is better. Insertion: how far it still is when all are replaced and "
    "the most important restored first: less is better.",
    "Speed: as a multiple of exact OAR-P's. Undefined: responses on which a method, or exact "
    "OAR-P, ranks nothing; they are left out.",
]


def _grid(found: Found) -> list[list[str]]:
    """Header and rows of the table, as text."""
    rows = [HEAD]
    for row in found["rows"]:
        speed = NONE if row["speed"] is None else f"{significant(row['speed'])}×"
        rows.append([
            row["method"], _cell(row["spearman"], _two), _cell(row["top"], percent),
            _cell(row["draws"], _two), _cell(row["deletion"], _two), _cell(row["insertion"], _two),
            str(significant(row["seconds"])), speed, str(row["responses"]), str(row["undefined"]),
        ])  # fmt: skip
    return rows


def _two(value: float | None) -> str:
    return number(value, 2)


def _cell(interval: Mapping[str, Any] | None, write: Any) -> str:
    """A value with its interval, as `0.87 [0.81, 0.92]`."""
    if interval is None:
        return NONE
    if interval["low"] is None:
        return str(write(interval["value"]))
    low, high = (write(interval[end]) for end in ("low", "high"))
    return f"{write(interval['value'])} [{low}, {high}]"


def about(found: Found) -> list[str]:
    """What was measured, in a few lines."""
    counts, tokens = found["counts"], found["tokens"]
    used = f"{counts['used']} of {counted(counts['responses'], 'response')}"
    lines = [
        f"{found['model']}: {found['source']}; {used} to {counted(counts['problems'], 'problem')} "
        "used"
    ]
    if counts["no_answer"]:
        lines.append(f"{counts['no_answer']} state no answer and are left out")
    if counts["too_short"]:
        lines.append(f"{counts['too_short']} have fewer than two tokens to rank and are left out")
    if counts["too_long"]:
        lines.append(f"{counts['too_long']} have more tokens to rank than asked for, left out")
    first, other = (f"{t['token']!r} ({t['id']})" for t in tokens.values())
    lines.append(f"replacement {first}; other token {other}")
    return [visible(line) for line in lines]


def plain(found: Found) -> str:
    """The table for a terminal."""
    return "\n".join([*about(found), "", aligned(_grid(found), ("method",))])


def as_markdown(found: Found, command: str) -> str:
    """The table with what it needs to be read, as Markdown."""
    head, *rows = _grid(found)
    lines = ["# Fidelity of token importances", "", f"`{visible(command)}`", ""]
    lines += [f"- {markdown(line)}" for line in about(found)]
    lines += ["", f"| {' | '.join(head)} |", f"|---{'|--:' * (len(head) - 1)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", *(f"- {note}" for note in NOTES), ""]
    prints = ", ".join(f"{name} {value}" for name, value in found["fingerprints"].items())
    lines += [f"Fingerprints: {prints}.", "", "![The same as a figure](fidelity.svg)", ""]
    return "\n".join(lines)


def as_csv(found: Found) -> str:
    """A row for each method; shares as shares, not rounded."""
    rows = []
    for row in found["rows"]:
        flat = {"method": row["method"]}
        for key in ("spearman", "top", "draws", "deletion", "insertion"):
            interval = row[key] or dict.fromkeys(("value", "low", "high", "n"))
            flat |= {key: interval["value"], f"{key}_low": interval["low"],
                     f"{key}_high": interval["high"]}  # fmt: skip
        flat |= {key: row[key] for key in ("seconds", "speed", "responses", "undefined")}
        flat["problems"] = found["counts"]["problems"]
        rows.append(flat)
    return csv(pd.DataFrame(rows))


def figure(found: Found) -> str:
    """Agreement with exact OAR-P, and both curves, one panel each, as SVG."""
    rows = found["rows"]
    names = [row["method"] for row in rows]
    agree = [(row["method"], _of_json(row["spearman"])) for row in rows[1:] if row["spearman"]]
    curves = [row for row in rows if row["curves"]["deletion"]]

    def paint(figure: Figure) -> None:
        heights = [0.34 * len(agree) + 0.95, *([2.6] * len(CURVES) if curves else [])]
        axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        dots(axes[0], agree, names, _two, scale=1)
        axes[0].axvline(0, color="#8c959f", linewidth=1, zorder=0.5)
        axes[0].set_xlabel("Spearman with exact OAR-P")
        for panel, (key, words) in zip(axes[1:], CURVES.items(), strict=bool(curves)):
            for row in curves:
                colour, marker = style(row["method"], names)
                values = [point["value"] for point in row["curves"][key]]
                panel.plot([100 * share for share in found["shares"]], values, color=colour,
                           marker=marker, markersize=5, linewidth=1.4, alpha=0.9,
                           label=row["method"] if key == "deletion" else None)  # fmt: skip
            panel.set_xlabel(f"tokens {words}, most important first, %")
            panel.set_ylabel("answer moved, nats")
            panel.grid(axis="y", linewidth=0.6)
        if curves:
            legend(figure, 3)

    below = 5.2 + 0.22 * math.ceil(len(curves) / 3) if curves else 0.0
    return draw("fidelity", 1.2 + 0.34 * len(agree) + below, paint)


def _of_json(values: Mapping[str, Any]) -> Interval:
    fields: dict[str, Any] = {k: math.nan if v is None else v for k, v in values.items()}
    return Interval(**fields)


FILES = ("fidelity.md", "fidelity.csv", "fidelity.svg", "fidelity.json")


def check_out(out: Path) -> None:
    """Refuse what can't be a folder, and one with a table whose responses' numbers aren't there.

    The folder is made now: where that can't be done, nothing should have been measured first.
    """
    if out.exists() and not out.is_dir():
        raise InputError("a folder is expected, not a file", f"--out {out}", "choose another")
    there = [name for name in FILES if (out / name).exists()]
    if there and not (out / ROWS).exists():
        raise InputError(
            f"{there[0]} of another measurement stands there", f"--out {out}", "choose another"
        )
    out.mkdir(parents=True, exist_ok=True)


def write(out: Path, found: Found, command: str) -> Sequence[Path]:
    """Write the table, the figure and the numbers into a folder; what was there is replaced."""
    texts = (as_markdown(found, command), as_csv(found), figure(found))
    for name, text in zip(FILES, texts, strict=False):
        write_text(out / name, text)
    write_json(out / FILES[-1], {**found, "command": command})
    return [out / name for name in FILES]
