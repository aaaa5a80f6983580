"""The command `import`: other tools' results in our schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oar_bench.cli_evaluation import AsJson
from oar_bench.stages import choice, split_words

if TYPE_CHECKING:
    from oar_bench.importing.run import Imported


def import_results(
    sources: Annotated[list[Path], typer.Argument(help="Files, or folders that are searched.")],
    out: Annotated[Path, typer.Option(help="Folder of the results: OUT/MODEL/TASK.")],
    model: Annotated[
        str | None, typer.Option(help="Name of the model, instead of the files' own.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Only these tasks, separated by commas.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The metric (inspect_ai: score) to take, of several.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Put them where `report` looks: OUT/runs/METHOD/seed-SEED."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Training seed, with --method; absent: not known.")
    ] = None,
    regrade: Annotated[
        bool, typer.Option("--regrade", help="Grade the responses by our grader, where golds are.")
    ] = False,
    answer_type: Annotated[
        str | None, typer.Option(help="With --regrade: math, number, choice or exact.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring in results of other tools.

    Of lm-eval, lighteval, inspect_ai, or a table of numbers. `compare` and `report` then take them
    like our own. With the tool's samples every problem is there and results are paired; with
    numbers alone there is an interval from n, and no test.

    Examples:

      oar-bench import lm-eval-output --out imported

      oar-bench import logs/2026-01-31_gsm8k.eval --out imported --regrade

      oar-bench import lighteval-output/results/org/model/results_DATE.json --out imported

      oar-bench import leaderboard.csv --out imported

      oar-bench compare imported/MODEL-A imported/MODEL-B
    """
    from oar_bench.console import Progress
    from oar_bench.importing.found import Options
    from oar_bench.importing.run import Job, run_import

    options = Options(model, metric, tuple(split_words(tasks, "--tasks")) if tasks else ())
    kind = choice(answer_type, ("math", "number", "choice", "exact"), "--answer-type")
    job = Job(sources, out, options, method, seed, regrade, kind)
    done = run_import(job, Progress().stage)
    if as_json:
        print(json.dumps([one.results for one in done], indent=2))
        return
    for one in done:
        print_imported(one)


def print_imported(imported: Imported) -> None:
    """A few lines on one imported result, what is missing among them."""
    from oar_bench.console import printable
    from oar_bench.reporting.text import counted, visible

    results, about = imported.results, imported.results["imported"]
    metrics = results["metrics"]
    value = metrics["avg@k"]
    count = "number of problems unknown"
    if metrics["n_problems"] is not None:
        k = f" x {counted(metrics['k'], 'sample')}" if metrics["k"] else ""
        count = f"{counted(metrics['n_problems'], 'problem')}{k}"
    lines = [f"{results['model']} on {results['task']}: {count}, by {about['tool']} "
             f"{about['version'] or '(version unknown)'}"]  # fmt: skip
    low, high = value["low"], value["high"]
    interval = "no interval" if low is None else f"95 % [{100 * low:.1f}, {100 * high:.1f}]"
    figure = "-" if value["value"] is None else f"{100 * value['value']:6.1f} %"
    name = "avg@k, regraded" if "regraded" in about else about["metric"]
    lines.append(f"  {name:<18}{figure}   {interval}")
    if "regraded" in about:
        change = about["regraded"]
        lines.append(
            f"  {about['tool']}'s {about['metric']}: "
            + (f"{100 * about['value']:.1f} %" if about["value"] is not None else "not stated")
            + f"; of {change['known']} verdicts {change['to_correct']} became right, "
            f"{change['to_wrong']} wrong"
        )
    lines += [f"  note: {note}" for note in about["notes"]]
    for line in lines:
        print(printable(visible(line)))
    print(f"  {imported.folder / 'results.json'}")
