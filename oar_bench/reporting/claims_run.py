"""The verdicts on claims of one reproduction: the command `oar-bench claims`, and reports."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oar_bench.claims.judge import Verdict, judge
from oar_bench.claims.spec import load_claims
from oar_bench.reporting import claims_text
from oar_bench.reporting.claims_source import about_evidence, gather
from oar_bench.reporting.frames import Collection, load, locate
from oar_bench.reporting.history import report_lines
from oar_bench.reporting.likeness import refuse_unlike


def judge_together(collections: Mapping[Path, Collection]) -> list[Verdict]:
    """The claims judged on several reproductions as one family, each named by its folder.

    Raises:
        InputError: a broken file of a measurement.
    """
    found = [
        replace(gather(collection, folder).evidence, name=folder.name)
        for folder, collection in collections.items()
    ]
    return judge(load_claims(), found)


def view(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What the template of the section shows."""
    return {
        "claims": claims_text.lines(verdicts),
        "claims_summary": claims_text.summary(verdicts),
        "claims_notes": claims_text.notes(verdicts),
    }


@dataclass(frozen=True)
class JudgedRuns:
    """Runs with the verdicts on the claims.

    `allowed` tells the differences that were allowed, `commands` those from nothing to a report.
    """

    collection: Collection
    verdicts: list[Verdict]
    allowed: list[str]
    commands: list[str]


def judge_runs(
    runs: Path,
    allow: Names[str] = (),
    evidence: Sequence[Path] = (),
    claims: Path | None = None,
) -> JudgedRuns:
    """Read a folder of runs and judge the claims by it and by what was measured beside it.

    Args:
        runs: OUT of `oar-bench reproduce`, or OUT/runs.
        allow: fields that may differ between runs, or (`evidence.FIELD`) between runs and
            measurements.
        evidence: folders with an overhead.json or fidelity.json, besides those in OUT.
        claims: a file of claims; default: baselines/claims.yaml.

    Raises:
        InputError: nothing finished, a broken file, unlike runs or measurements.
    """
    spec = load_claims(claims)
    of_runs = [word for word in allow if not about_evidence(word)]
    collection = load(runs, of_runs)
    allowed = refuse_unlike(collection, of_runs)
    found = gather(collection, locate(runs)[0], evidence, allow)
    left_out = [*collection.left_out, *found.left_out]
    return JudgedRuns(
        replace(collection, left_out=left_out), judge(spec, [found.evidence]),
        [*allowed, *found.allowed],
        report_lines(collection.reproduce, found.made, list(allow),
                     all(run.imported for run in collection.runs)),
    )  # fmt: skip
