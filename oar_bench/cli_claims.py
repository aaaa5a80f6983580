"""The command `oar-bench claims`: which claims about OAR the runs support."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

Evidence = Annotated[
    list[Path] | None,
    typer.Option(
        "--evidence", help="Folder of an overhead or fidelity measurement; repeat for more."
    ),
]


def claims(
    runs: Annotated[Path, typer.Argument(help="Folder that `reproduce` wrote, or its runs/.")],
    evidence: Evidence = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="A field that may differ, such as grader; repeat for more."),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--claims", help="Your own claims, like baselines/claims.yaml.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Judge each claim about OAR by finished runs.

    Supported, contradicted, inconclusive or not tested. Each has a named test and a margin in
    baselines/claims.yaml; docs/statistics.md tells how the verdicts are made. What was measured in
    RUNS/overhead and RUNS/fidelity counts too.

    Examples:

      oar-bench claims results/tiny

      oar-bench claims results/tiny --evidence overhead/tiny --evidence fidelity

      oar-bench claims results/tiny --json
    """
    from oar_bench.reporting import claims_text
    from oar_bench.reporting.claims_run import judge_runs

    found = judge_runs(runs, allow or (), evidence or (), spec)
    if as_json:
        print(json.dumps(claims_text.as_dict(found.verdicts), indent=2))
        return
    print(claims_text.plain(found.verdicts))
    if found.collection.reproduce.get("smoke"):
        print("This is a smoke run: its numbers mean nothing.")
    for item in found.collection.left_out:
        print(f"left out: {item.where}: {item.reason}")
    for note in found.allowed:
        print(f"allowed: {note}")
