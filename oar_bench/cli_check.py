"""The command `oar-bench check`: a run against a baseline, for people and for CI."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from oar_bench.errors import InputError

Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        help="A field that may differ, such as grader, or `missing`; repeat for more.",
    ),
]


def check(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a whole `reproduce`, of one method, of one run, or of evaluations."
        ),
    ],
    baseline: Annotated[
        str,
        typer.Option(
            help="Baseline's file, such as here.json, or the name of a shipped one (smoke, tiny)."
        ),
    ],
    max_drop: Annotated[
        str | None,
        typer.Option(
            help="Accepted drop of accuracy in percentage points, such as 2pp, or off; default the "
            "baseline's, else 2pp."
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Accepted chance of either error, such as 0.05; default the baseline's, else 0.05."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Another accepted worsening, NAME=SIZE or NAME=off; repeat for more. Default the "
            "baseline's, else truncated=2pp, no-answer=2pp, tokens=10%, step-time=25%, memory=25%."
        ),
    ] = None,
    allow: Allow = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write RUN as the new baseline instead; see --reason.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="Why the baseline moves; kept in it with those before.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write a summary for a pull request to this file.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")] = None,
    annotations: Annotated[
        bool,
        typer.Option(
            "--annotations", help="Print GitHub's ::error lines (on by itself in GitHub Actions)."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Hold a run against a baseline, for CI.

    Exits with 0 for a pass, 1 for a regression, 2 for results that are unlike or too few to tell.
    Accuracy, truncation, missing answers and tokens are tested problem by problem, step time as a
    ratio to grpo of the same run, peak memory by its limit. A drop of --max-drop passes with a
    chance of at most --alpha; an equal re-run is called a regression with at most the same.

    Examples:

      oar-bench check results/smoke --baseline smoke

      oar-bench check results/tiny --baseline mine/tiny.json --max-drop 2pp --markdown check.md

      oar-bench check results/tiny --baseline mine/tiny.json --update --reason "longer training"
    """
    from oar_bench.regression.limits import DEFAULT_ALPHA, limit_texts, limits_of

    if alpha is not None and not (math.isfinite(alpha) and 0 < alpha < 0.5):
        raise InputError(f"{alpha} is no chance of error", "--alpha", "give one as 0.05")
    texts = limit_texts(max_drop, limit or ())
    if reason is not None and not update:
        raise InputError("there is nothing to give a reason for", "--reason", "add --update")
    if update and not (reason or "").strip():
        raise InputError("a reason is needed", "--update", "add --reason 'why the numbers move'")
    if annotations and as_json:
        raise InputError("both go to standard output", "--annotations", "leave it or --json out")
    for flag, file in (("--markdown", markdown), ("--junit", junit)):
        if file is not None and file.is_dir():
            raise InputError("a file is expected, not a folder", f"{flag} {file}")
    if update and (markdown or junit):
        raise InputError("it checks nothing", "--update", "leave --markdown and --junit out")
    from oar_bench.regression.baseline import baseline_path, is_name

    path = baseline_path(baseline)
    written = [of.resolve() for of in (path, markdown, junit) if of is not None]
    if len({*written}) < len(written):
        raise InputError(
            "one file for two things", "--baseline, --markdown, --junit", "name another for each"
        )
    if update and (is_name(baseline) or path.suffix != ".json"):
        raise InputError(
            "a file is needed to write to", f"--baseline {baseline}", "name one as here.json"
        )
    if update:
        _update(run, path, reason or "", texts, alpha, allow or (), as_json=as_json)
        return
    from oar_bench.records import write_text
    from oar_bench.regression import text
    from oar_bench.regression.baseline import read_baseline
    from oar_bench.regression.check import check as compare
    from oar_bench.regression.snapshot import take

    annotated = not as_json and (annotations or os.environ.get("GITHUB_ACTIONS") == "true")
    try:
        kept = read_baseline(path)
        level = alpha if alpha is not None else kept.alpha or DEFAULT_ALPHA
        now = take(run, allow or ())
        found = compare(kept, now, limits_of(kept.limits, texts), level, allow or ())
    except InputError as error:
        summary, suite, command = text.undone(str(error))
        with suppress(OSError):  # the reason itself is what must be heard
            for file, content in ((markdown, summary), (junit, suite)):
                if file is not None:
                    write_text(file, content)
        if annotated:
            print(command)
        raise
    if markdown is not None:
        write_text(markdown, text.as_markdown(found))
    if junit is not None:
        write_text(junit, text.as_junit(found))
    print(json.dumps(text.as_dict(found), indent=2) if as_json else text.plain(found))
    if annotated:
        print("\n".join(text.workflow_commands(found)))
    raise typer.Exit(found.code)


def _update(
    run: Path, path: Path, reason: str, limits: Mapping[str, str], alpha: float | None,
    allow: Sequence[str], *, as_json: bool,
) -> None:  # fmt: skip
    """Write a run as the new baseline, and say what is new, changed and gone."""
    from oar_bench.regression.alike import gone_from, known
    from oar_bench.regression.baseline import read_baseline, write_baseline
    from oar_bench.regression.snapshot import take
    from oar_bench.regression.text import one_line
    from oar_bench.reporting.likeness import check_allow
    from oar_bench.reporting.text import counted

    before = read_baseline(path) if path.exists() else None
    now = take(run, allow)
    check_allow(allow, known(now))
    entry = write_baseline(path, now, reason, limits, alpha, before)
    gone = gone_from(before.snapshot, now) if before else []
    if as_json:
        more = {"gone": gone, "left_out": [*now.left_out]}
        print(json.dumps({"baseline": str(path), **entry, **more}, indent=2))
        return
    for task, of in entry["scores"].items():
        for method, score in of.items():
            was = (before.latest["scores"] if before else {}).get(task, {}).get(method)
            old = "" if was is None else f" (was {100 * was:.1f} %)"
            print(f"  {one_line(task)}  {one_line(method):<12}{100 * score:5.1f} %{old}")
    for line in gone:
        print(f"no longer checked: {one_line(line)}")
    for line in now.left_out:
        print(f"left out: {one_line(line)}")
    print(f"{path}: {counted(len(now.results), 'result')}, {entry['date']}: {entry['reason']}")
