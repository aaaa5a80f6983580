"""Rows of a measurement that goes on where it was killed: each says what it was made by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.records import SCHEMA, dumps, read_jsonl, refuse_foreign_line


def kept_row(made_by: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A row of a measurement, as `kept_rows` reads it back."""
    return {"schema": SCHEMA, "made_by": dict(made_by), **fields}


def kept_rows(
    path: Path, made_by: Mapping[str, Any], fields: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows that an earlier call of the same command left.

    Args:
        path: a jsonl file, or nothing yet.
        made_by: everything that a measurement's numbers depend on, JSON-ready, by name.
        fields: what each row must have beside it.

    Raises:
        InputError: something else stands in the file, or another measurement, whose first
            differing part is named.
    """
    ours = json.loads(dumps(made_by))
    refuse_foreign_line(path, dumps(kept_row(made_by))[:-1])
    rows = []
    for number, row in enumerate(read_jsonl(path), start=1):
        theirs = row.get("made_by")
        if not isinstance(theirs, dict) or not all(field in row for field in fields):
            raise InputError(
                f"line {number} is no row of this measurement", str(path), "choose another --out"
            )
        for key, value in ours.items():
            if theirs.get(key) != value:
                raise InputError(
                    f"another measurement is kept there: {key} {_told(theirs.get(key))}, "
                    f"not {_told(value)}", str(path), "choose another --out, or remove that folder",
                )  # fmt: skip
        rows.append(row)
    return rows


def _told(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)[:200]
