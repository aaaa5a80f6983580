"""A CSV or JSON of numbers: what a paper or a leaderboard states, a row for each model and task.

Needed: model, task, value. May be there: metric, n (problems), k (samples a problem), stderr,
source, date, protocol. `value` is a share (0.532) or percent with its sign (53.2%); stderr is in
the same unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError, nearest
from oar_bench.identity import fingerprint
from oar_bench.importing.bounded import MIB, finite, inside, text_of, whole
from oar_bench.importing.found import Found, Options

TOOL = "table"
NEEDED = ("model", "task", "value")
OPTIONAL = ("metric", "n", "k", "stderr", "source", "date", "protocol")
MAX_TABLE = 64 * MIB
MAX_ROWS = 100_000
MAX_HEADER = MIB


def is_table(path: Path) -> bool:
    """Whether the header line of a CSV file has the needed columns."""
    with path.open("rb") as file:
        line = file.readline(MAX_HEADER).decode("utf-8-sig", errors="replace")
    try:
        header = next(csv.reader([line]), [])
    except csv.Error:
        return False
    return {*NEEDED} <= {name.strip() for name in header}


def read_csv(path: Path, options: Options) -> list[Found]:
    """Every row of a CSV file with a header line.

    Raises:
        InputError: a needed column is absent, a column is unknown, or a row holds no such number.
    """
    if path.stat().st_size > MAX_TABLE:
        raise InputError(f"over {MAX_TABLE // MIB} MiB", str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in rows.fieldnames or []]
        rows.fieldnames = header
        listed = [(rows.line_num, row) for row in rows]
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text", str(path)) from error
    except csv.Error as error:
        raise InputError(f"no CSV ({error})", str(path)) from error
    _check_columns(header, str(path))
    found = []
    for line, row in listed:
        if None in row or None in row.values():
            raise InputError(f"it has {_width(row)} fields, the header {len(header)}",
                             f"{path}: line {line}")  # fmt: skip
        cells = {key: str(value).strip() for key, value in row.items()}
        found.append((line, {key: value for key, value in cells.items() if value}))
    return _all(path, found, "line", options)


def read_json(path: Path, options: Options) -> list[Found]:
    """Every object of a JSON list, or of the list `results` in a JSON object."""
    value = whole(path)
    listed = value if isinstance(value, list) else inside(value, "results")
    if not isinstance(listed, list):
        raise InputError(
            "no results of lm-eval, lighteval or inspect_ai, and no list of numbers", str(path),
            f"a list of objects with {', '.join(NEEDED)} is read too",
        )  # fmt: skip
    rows = []
    for number, row in enumerate(listed, start=1):
        where = f"{path}: entry {number}"
        if not isinstance(row, dict):
            raise InputError("no object", where)
        _check_columns([*row], where)
        rows.append((number, {k: v for k, v in row.items() if v is not None}))
    return _all(path, rows, "entry", options)


def _width(row: Mapping[Any, Any]) -> int:
    return sum(value is not None for key, value in row.items() if key is not None) + len(
        row.get(None) or []
    )


def _check_columns(names: list[str], where: str) -> None:
    known = [*NEEDED, *OPTIONAL]
    for name in names:
        if name not in known:
            raise InputError(f"unknown column {name!r}", where, nearest(name, known))
    if len(set(names)) < len(names):
        raise InputError("a column stands there twice", where)
    if missing := [name for name in NEEDED if name not in names]:
        raise InputError(
            f"no column {missing[0]!r}", where,
            f"needed are {', '.join(NEEDED)}; {', '.join(OPTIONAL)} may be there",
        )  # fmt: skip


def _all(
    path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]], word: str, options: Options
) -> list[Found]:
    found: list[Found] = []
    for number, row in rows:
        if len(found) >= MAX_ROWS:
            raise InputError(f"over {MAX_ROWS} rows", str(path))
        found.append(_one(path, row, f"{path}: {word} {number}", options.model))
    if not found:
        raise InputError("there is no row in this file", str(path))
    return found


def _one(path: Path, row: Mapping[str, Any], where: str, model: str | None) -> Found:
    for name in NEEDED:
        if row.get(name, "") == "":
            raise InputError(f"no {name}", where)
    own, task = (text_of(row[name], name, where) for name in ("model", "task"))
    value, percent = _share(row["value"], "value", where)
    if not 0 <= value <= 1:
        raise InputError(
            f"value {row['value']} is no share", where, "write 0.532, or 53.2% with its sign"
        )
    stderr = None
    if "stderr" in row:
        stderr, signed = _share(row["stderr"], "stderr", where)
        if signed != percent or not 0 <= stderr <= 1:
            raise InputError(
                "stderr is no share, or in another unit than value", where,
                "write both as shares, or both with %",
            )  # fmt: skip
    metric, protocol = str(row.get("metric", "accuracy")), row.get("protocol")
    samples = _whole(row["k"], "k", where) if "k" in row else None
    return Found(
        TOOL, None, model or own, task, metric, value, (path,), stderr=stderr,
        problems=_whole(row["n"], "n", where) if "n" in row else None,
        protocol={"protocol": protocol} if protocol is not None else {},
        original=dict(row), numbers={metric: value},
        date=str(row["date"]) if "date" in row else None,
        source=str(row["source"]) if "source" in row else None,
        own_prints={
            "task": fingerprint([TOOL, task]), "grader": fingerprint([TOOL, metric, protocol]),
        },
        notes=(*(() if "source" in row else ("no source is named",)),
               *(() if samples is None else (f"stated over {samples} samples a problem",))),
    )  # fmt: skip


def _share(given: Any, what: str, where: str) -> tuple[float, bool]:
    """A share, and whether it was given in percent."""
    if not isinstance(given, str):
        return finite(given, what, where) + 0.0, False  # no -0.0
    percent = given.endswith("%")
    try:
        number = float(given.removesuffix("%"))
    except ValueError as error:
        raise InputError(f"{what} is {given[:40]!r}, no number", where) from error
    return finite(number, what, where) / (100 if percent else 1) + 0.0, percent


def _whole(given: Any, what: str, where: str) -> int:
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"{what} is {text[:40]!r}, no whole number", where)
    if not int(text):
        raise InputError(f"{what} is 0", where, "leave it empty where it isn't known")
    return int(text)
