"""Imported results that are numbers without samples: shown beside others, not tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.evaluation.intervals import NAN, Interval
from oar_bench.records import read_json
from oar_bench.reporting.text import visible

WHY = "imported numbers, no verdict on each response: no paired test, protocol not checked"


@dataclass(frozen=True)
class Stated:
    """A number as its tool or paper states it; its interval may be NaN."""

    task: str
    mean: Interval


def is_stated(results: Mapping[str, Any], folder: Path) -> bool:
    """Whether an imported result has no verdicts to pair."""
    return "imported" in results and not (folder / "scores.jsonl").is_file()


def load_stated(folder: Path) -> Stated | None:
    """The stated number of a folder; None where its results can be paired, or state none.

    Raises:
        InputError: results.json lacks a field.
    """
    results = read_json(folder / "results.json")
    if not is_stated(results, folder):
        return None
    try:
        found = results["metrics"]["avg@k"]
        task = visible(str(results["task"]))
        numbers = {
            key: NAN if found[key] is None else float(found[key])
            for key in ("value", "low", "high", "se", "df")
        }
        if found["value"] is None:
            return None
        return Stated(
            task, Interval(n=int(found["n"] or 0), method=str(found["method"]), **numbers)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"no number of an import ({error})", str(folder), "import it again") from (
            error
        )
