"""The command line. Thin: each command checks its words, imports what it needs and calls it."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from oar_bench import __version__, cli_credit
from oar_bench.cli_check import check
from oar_bench.cli_claims import Evidence, claims
from oar_bench.cli_data import data
from oar_bench.cli_evaluation import AnswerType, AsJson, evaluate, generate
from oar_bench.cli_import import import_results
from oar_bench.cli_overhead import overhead
from oar_bench.cli_training import reproduce, train
from oar_bench.cli_watch import watch
from oar_bench.errors import InputError, os_line
from oar_bench.stages import (
    choice,
    is_evaluation,
    run_compare,
    run_scoring,
    score_responses,
)
from oar_bench.training.interrupts import Interrupted, terminable

app = typer.Typer(
    name="oar-bench",
    help="Reproduce, test and extend credit assignment in RL for math reasoning.\n\n"
    "Start with: oar-bench reproduce tiny",
    epilog="Exit codes: 0 done; 1 a regression, verdicts that differ, or a fault of oar-bench; "
    "2 bad input, told in one line, or too little data; 130 and 143 interrupted, with what was "
    "finished kept.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="A field that may differ, such as grader; repeat for more."),
]


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Reproduce, test and extend credit assignment in RL for math reasoning."""
    if version:
        print(f"oar-bench {__version__}")
        raise typer.Exit


app.command()(reproduce)
app.command()(train)
app.command()(data)
app.command()(generate)


@app.command()
def score(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Folders that `generate` wrote, or a file of responses (JSON lines)."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Scores of a file; default scores.jsonl beside it.")
    ] = None,
    response_field: Annotated[str, typer.Option(help="Field of the response.")] = "response",
    gold_field: Annotated[str, typer.Option(help="Field of the gold answer.")] = "gold",
    id_field: Annotated[str, typer.Option(help="Field that names a row.")] = "id",
    answer_type: AnswerType = None,
    extract: Annotated[
        str, typer.Option(help="Where the answer stands: auto, boxed or gsm8k (after ####).")
    ] = "auto",
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Accept |answer - gold| <= T max(1, |gold|); default exact."),
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.05, help="Seconds for one hard case.")] = 1.6,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Worker processes.")] = 1,
    expect: Annotated[
        bool, typer.Option("--expect", help="Compare with the rows' `expected` field.")
    ] = False,
    diff: Annotated[
        Path | None, typer.Option(help="Print each verdict that differs from this scores file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Grade responses; needs no model. Run it again to resume.

    A folder is an evaluation that `generate` wrote. A file may be our samples.jsonl, lm-eval's
    `--log_samples` file, any JSON lines with a response and a gold, or cases with an `expected`
    verdict; the grading options apply to files, since a folder's task has its own.

    Examples:

      oar-bench score evaluations/step-000030/oar_arithmetic

      oar-bench score samples_gsm8k.jsonl --answer-type number --out scores.jsonl

      oar-bench score mine.jsonl --response-field output --gold-field answer --workers 2

      oar-bench score cases.jsonl --expect

      oar-bench score mine.jsonl --out new.jsonl --diff scores.jsonl
    """
    folders = [path for path in paths if path.is_dir() or is_evaluation(path)]
    if len(folders) == len(paths):
        run_scoring([path if path.is_dir() else path.parent for path in paths], as_json)
        return
    if len(paths) > 1:
        raise InputError("several paths are given", "score", "give folders, or one file")
    from oar_bench.evaluation.formats import Fields
    from oar_bench.evaluation.score_file import Graders

    graders = Graders(
        choice(answer_type, ("math", "number", "choice", "exact"), "--answer-type"),
        choice(extract, ("auto", "boxed", "gsm8k"), "--extract"),
        tolerance, deadline, workers,
    )  # fmt: skip
    fields = Fields(response_field, gold_field, id_field)
    target = out or paths[0].parent / "scores.jsonl"
    score_responses(paths[0], target, graders, fields, expect=expect, diff=diff, as_json=as_json)


app.command()(evaluate)
app.command("import")(import_results)
app.add_typer(cli_credit.app)
app.command()(overhead)
app.command()(claims)
app.command()(watch)


@app.command()
def report(
    runs: Annotated[Path, typer.Argument(help="Folder that `reproduce` wrote, or its runs/.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the report; default RUNS.")] = None,
    evidence: Evidence = None,
    allow: Allow = None,
) -> None:
    """Write report.md and index.html from finished runs.

    Claims are judged by the runs, by RUNS/overhead and RUNS/fidelity if these are there, and by
    the folders that --evidence names.

    Examples:

      oar-bench report results/tiny --out reports/tiny

      oar-bench report results/tiny --evidence overhead/tiny --evidence fidelity
    """
    from oar_bench.reporting.report import write_report

    paths = write_report(runs, out or runs, allow or (), evidence or ())
    print(paths.html)
    print(paths.markdown)


@app.command()
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(help="Two or more: evaluations, folders of tasks, runs, or methods."),
    ],
    allow: Allow = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write the table here, as FILE.md or FILE.csv.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare results problem by problem.

    Gives difference, interval, p value (adjusted over tasks by Holm), wins and losses. Results must
    agree in task, data, prompt, sampling and grader; a difference is refused by name.

    Examples:

      oar-bench compare evaluations/base evaluations/tuned

      oar-bench compare results/tiny/runs/grpo results/tiny/runs/oar-p results/tiny/runs/oar-g

      oar-bench compare evaluations/a evaluations/b --allow sampling.temperature --out table.md
    """
    run_compare(results, allow or [], out, as_json)


app.command()(check)


@app.command()
def tasks(as_json: AsJson = False) -> None:
    """List the tasks and their groups.

    lm-eval's own go by their names too.

    Example:

      oar-bench tasks
    """
    from oar_bench.tasks.catalog import group_names, task_names

    names = {**task_names(), **group_names()}
    if as_json:
        print(json.dumps(names, indent=2))
        return
    for name, about in names.items():
        print(f"{name:<20}{about}")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can run.

    Versions, device, memory, and which engines work.

    Example:

      oar-bench doctor
    """
    from oar_bench.doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, item in value.items():
                print(f"  {key:<14}{item}")
        else:
            print(f"{name:<16}{value}")


def main() -> None:
    """Run the command line: exit 0 done, 1 a check failed or a fault of ours, 2 bad input (and what
    `check` can't decide), 130 and 143 interrupted."""
    # typer may carry its own copy of click; the base of its usage errors is found through it.
    click_error: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    # Threads that wait for each other by spinning stand still where cores are shared; a thousand
    # spins keep most of the speed of a quiet machine. Read by torch when it is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    code, told = None, "interrupted"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without the signs that tables use
    try:
        with terminable():
            code = typer.main.get_command(app).main(standalone_mode=False)
    except Interrupted as error:
        code, told = error.code, str(error)
    except InputError as error:
        fail(str(error))
    except click_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(2)
        from oar_bench.config.other_names import usage_line

        fail(usage_line(error))
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except ImportError as error:
        signalled = _interruption(error)
        if signalled is None:
            raise
        code, told = getattr(signalled, "code", 130), str(signalled) or told
    except OSError as error:
        line = os_line(error)
        if line is None:
            raise
        fail(line)
    if code in (130, 143):
        again = "with --resume" if sys.argv[1:2] == ["train"] else "again"
        print(f"\noar-bench: {told}; run the same command {again} to go on", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _interruption(error: BaseException | None) -> BaseException | None:
    """The signal that stands behind an error: transformers turns one into a failed import."""
    while error is not None and not isinstance(error, KeyboardInterrupt | Interrupted):
        error = error.__cause__ or error.__context__
    return error


def fail(line: str) -> None:
    """Say in one line why the input can't be used, and exit with code 2."""
    from oar_bench.console import printable

    print(f"oar-bench: {printable(' '.join(line.split()))}", file=sys.stderr)
    sys.exit(2)
