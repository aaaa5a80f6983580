"""`write_report`: a folder of finished runs in, a report that can be checked out."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from oar_bench.records import write_bytes
from oar_bench.reporting import (
    claims_run,
    claims_text,
    curves,
    figures,
    latex_tables,
    render,
    tables,
)
from oar_bench.reporting.budgets import budgets
from oar_bench.reporting.comparison import compare
from oar_bench.reporting.costs import overhead, rewards_of, weights
from oar_bench.reporting.drilldown import MOST_SHOWN, drill
from oar_bench.reporting.example import example_of
from oar_bench.reporting.frames import START, Collection
from oar_bench.reporting.leftovers import replace_leftovers
from oar_bench.reporting.reported import load_reported, reported_beside
from oar_bench.reporting.slices import as_frame, problems_of, slices
from oar_bench.reporting.view import Findings, phases_of, view_of


@dataclass(frozen=True)
class ReportPaths:
    """Where a report was written; `tables` and `figures` are the files in those folders.

    `figures` are the SVG documents; beside each lies its image (PNG).
    """

    markdown: Path
    html: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]


def write_report(
    runs: Path, out: Path, allow: Names[str] = (), evidence: Sequence[Path] = ()
) -> ReportPaths:
    """Compare the runs in `runs` and write report.md, index.html, tables/ and figures/ to `out`.

    `runs` is the `--out` of `oar-bench reproduce` or its runs folder. Runs must be alike but for
    method and seed; `allow` names fields that may differ all the same (the report says so). Claims
    are judged by the runs, by overhead.json and fidelity.json in OUT or a folder of it, and by
    those in the folders `evidence`. Same input, same bytes: no dates, no paths of this machine.

    Raises InputError when there is nothing finished, a file is broken, or runs are unlike; then
    nothing is written.
    """
    judged = claims_run.judge_runs(runs, allow, evidence)
    found = _findings(judged.collection)
    drawn = _figures(found)
    view = {
        **view_of(found, judged.allowed),
        **claims_run.view(judged.verdicts),
        "commands": "\n".join(judged.commands),
        "reported": reported_beside(found.collection, found.compared, load_reported()),
    }
    documents = {
        out / "tables" / name: content
        for name, content in {
            **_sheets(found),
            "claims.csv": tables.csv(claims_text.as_frame(judged.verdicts)),
            "claims.tex": claims_text.as_latex(judged.verdicts),
        }.items()
    }
    pictures = {out / "figures" / f"{name}.svg": svg for name, svg in drawn.items()}
    pages = {
        out / "report.md": render.markdown_page(view, drawn),
        out / "index.html": render.html_page(view, drawn),
    }
    contents = {
        **{path: text.encode() for path, text in {**documents, **pictures, **pages}.items()},
        **{path.with_suffix(".png"): picture.png() for path, picture in pictures.items()},
    }
    replace_leftovers(out, contents)
    for path, content in contents.items():
        write_bytes(path, content)
    return ReportPaths(out / "report.md", out / "index.html", tuple(documents), tuple(pictures))


def _findings(collection: Collection) -> Findings:
    """Everything that is computed before anything is written."""
    tasks = collection.tasks
    rows = {task: problems_of(collection.evaluations_of(task)) for task in tasks}
    most = max(3, MOST_SHOWN // len(tasks))
    return Findings(
        collection,
        compare(collection),
        budgets(collection),
        overhead(collection),
        rewards_of(collection),
        weights(collection),
        example_of(collection.example),
        [slices(collection, task, rows[task]) for task in tasks],
        [drill(collection, task, rows[task], most) for task in tasks],
    )


def _sheets(found: Findings) -> dict[str, str]:
    """The tables by file name: every number as CSV, those for a paper as LaTeX too."""
    frames = {
        "comparison": tables.comparison(found.compared),
        "pairs": tables.pairs(found.compared),
        "overhead": tables.overhead(found.costs),
        "budget": tables.budget(found.capped),
        "weights": tables.weights(found.weights),
        "curves": found.rewards,
        "slices": as_frame(found.slices),
        "numbers": tables.numbers(found.collection.left_out),
        "problems": pd.concat([of.every for of in found.problems]),
    }
    papers = {
        "comparison": latex_tables.comparison(found.compared),
        "pairs": latex_tables.pairs(found.compared),
        "overhead": latex_tables.overhead(found.costs, phases_of(found.costs)),
        "budget": latex_tables.budget(found.capped),
        "weights": latex_tables.weights(found.weights),
        "slices": latex_tables.slices(found.slices),
    }
    kept = {name: frame for name, frame in frames.items() if len(frame)}
    return {
        **{f"{name}.csv": tables.csv(frame) for name, frame in kept.items()},
        **{f"{name}.tex": paper for name, paper in papers.items() if name in kept},
    }


def _figures(found: Findings) -> dict[str, figures.Drawing]:
    """The figures by name; those without data are left out."""
    collection, methods = found.collection, found.collection.methods
    drawn = {"scores": figures.scores(found.compared, methods)}
    if any(row.pair for table in found.compared for row in table.rows if row.method != START):
        drawn["differences"] = figures.differences(found.compared, methods)
    if several := [table for table in found.compared if table.k > 1]:
        drawn["samples"] = curves.samples(several, methods)
    if found.capped:
        drawn["budget"] = curves.budget(found.capped, methods)
    if len(found.rewards):
        drawn["learning"] = figures.learning(found.rewards, methods)
    if found.costs:
        drawn["overhead"] = figures.overhead(found.costs)
    if any("weight_ess" in run.metrics and len(run.metrics) for run in collection.runs):
        drawn["weights"] = figures.weights(collection)
    if found.example:
        drawn["example"] = render.example_figure(found.example)
    return drawn
