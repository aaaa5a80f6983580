"""One page over several reproductions: their comparisons side by side, judged as one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oar_bench.records import write_text
from oar_bench.reporting import claims_run, render
from oar_bench.reporting.comparison import TaskTable, compare_all
from oar_bench.reporting.frames import REFERENCE, load
from oar_bench.reporting.likeness import refuse_unlike
from oar_bench.reporting.text import counted
from oar_bench.reporting.wording import verdict_words

NOTE = (
    "p values are adjusted by Holm over every pair of this page, so a pair may separate in its own "
    "report and not here. Intervals are 95 % and for each pair alone."
)


@dataclass(frozen=True)
class Member:
    """One reproduction of a suite."""

    name: str
    tables: list[TaskTable]


def write_suite(out: Path, names: Sequence[str], title: str, command: str) -> tuple[Path, Path]:
    """Write report.md and index.html of the reproductions OUT/NAME to `out`.

    Raises:
        InputError: one of them holds nothing finished, a broken file or unlike runs.
    """
    collections = [load(out / name) for name in names]
    for collection in collections:
        refuse_unlike(collection)
    folders = [out / name for name in names]
    judged = claims_run.judge_together(dict(zip(folders, collections, strict=True)))
    tables = compare_all(collections)
    members, first = [], 0
    for name, collection in zip(names, collections, strict=True):
        last = first + len(collection.tasks)
        members.append(Member(name, tables[first:last]))
        first = last
    runs = sum(len(collection.runs) for collection in collections)
    view = {
        "title": f"oar-bench report: {title}",
        "subtitle": f"{counted(runs, 'finished run')} in {counted(len(names), 'reproduction')}",
        "verdict": verdict_words(tables, [], {}),
        **claims_run.view(judged),
        "members": members,
        "reference": REFERENCE,
        "note": NOTE,
        "commands": command,
    }
    paths = out / "report.md", out / "index.html"
    write_text(paths[0], render.page("suite.md.j2", view))
    write_text(
        paths[1],
        render.document(
            "suite.html.j2",
            view,
            render.shipped_text("report.css"),
            render.shipped_text("report.js"),
        ),
    )
    return paths
