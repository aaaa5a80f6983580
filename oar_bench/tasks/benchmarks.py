"""The problems of the public test sets: from a folder of jsonl files, or from the hub.

A folder has the layout DIR/<benchmark>/<split>.jsonl, one problem a line with at least `id`,
`problem` and `answer`. It is named by `--data-dir`, by `lm-eval run --metadata
'{"data_dir": "DIR"}'`, or by the environment variable OAR_BENCH_DATA_DIR, in this order. Without
one, the problems come from the hub at the revision that the task file pins.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oar_bench.answers.exact import plain_number
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.tasks.labels import LABELS, labels_of

if TYPE_CHECKING:
    import datasets

DATA_DIR = "OAR_BENCH_DATA_DIR"
MEND = f"give the folder of the problems by --data-dir or {DATA_DIR} (layout: docs/tasks.md)"

Row = Mapping[str, Any]


def benchmark(
    *,
    benchmark: str,
    rows: int | None = None,
    hub: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    answer_type: str = "math",
    extract: str = "auto",
    relative_tolerance: float | None = None,
    **_: Any,
) -> dict[str, datasets.Dataset]:
    """The test split of a benchmark, as lm-eval's `custom_dataset` wants it.

    Args:
        benchmark: the folder's name under the data folder, for example `gsm8k`.
        rows: how many problems the test set has; another number is refused.
        hub: `path`, `name`, `revision` (all 40 digits), `split`, and how to read a row there.
        data_dir: the data folder; else the environment's; else the hub.
        answer_type, extract: how the answers are graded; each document carries them.
        relative_tolerance: accepted share of a gold that is a number, for rounded constants.

    Further keywords are ignored: lm-eval passes the whole metadata of the task and of the model.

    Raises:
        InputError: no data, another number of problems than the test set has, or a broken row.
    """
    import datasets

    folder = data_folder(data_dir)
    if folder is not None:
        found = folder_rows(folder, benchmark, "test")
        where = str(folder / benchmark / "test.jsonl")
    else:
        found = hub_rows(benchmark, hub or {})
        where = f"hub data set {(hub or {})['path']}"
        rows = (hub or {}).get("rows", rows)
    if rows is not None and len(found) != rows:
        raise InputError(
            f"{len(found)} problems, the test set has {rows}", where,
            "mend the file; for a part of a test set use --limit",
        )  # fmt: skip
    documents = [
        {
            "id": row["id"],
            "problem": row["problem"],
            "answer": row["answer"],
            "solution": str(row.get("solution") or ""),
            "answer_type": answer_type,
            "extract": extract,
            **{name: labels_of(row).get(name, "") for name in LABELS},
            "tolerance": row_tolerance(row["answer"], row.get("tolerance"), relative_tolerance),
        }
        for row in found
    ]
    if len({document["id"] for document in documents}) != len(documents):
        raise InputError("two problems have one id", where, "give each problem its own")
    return {"test": datasets.Dataset.from_list(documents)}


def row_tolerance(gold: str, declared: object, relative: float | None) -> float | None:
    """The grader's tolerance t for one gold, so that |answer - gold| <= t max(1, |gold|) means

    - the row's own bound, if it declares one: |answer - gold| <= declared;
    - else a share of the gold, if the task gives one and the gold is a number:
      |answer - gold| <= relative |gold|. A gold of 1e-27 is not within 0.01 of everything small.

    >>> round(row_tolerance("4.2", "1e-1", None), 4)
    0.0238
    >>> row_tolerance("3e8", None, 0.01), row_tolerance("0.5", None, 0.01)
    (0.01, 0.005)
    >>> row_tolerance("\\\\sqrt{2}", None, 0.01) is None, row_tolerance("0", None, 0.01)
    (True, 0.0)
    """
    value = _number(gold)
    if value is None:
        return None
    if declared is not None:
        bound = _number(str(declared))
        # a hair more, so that the quotient's rounding doesn't shut the bound itself out
        return None if bound is None else bound / max(1.0, abs(value)) * (1 + 1e-9)
    return None if relative is None else relative * min(1.0, abs(value))


_SCIENTIFIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")


def _number(text: str) -> float | None:
    """The value of a plain or scientific decimal or a fraction, else None."""
    if _SCIENTIFIC.fullmatch(text.strip()):
        return float(text)
    plain = plain_number(text)
    return None if plain is None else float(plain)


def data_folder(given: str | Path | None) -> Path | None:
    """The data folder: the given one, else the environment's; None: the hub is asked."""
    folder = given or os.environ.get(DATA_DIR)
    return Path(folder) if folder else None


def folder_rows(folder: Path, benchmark: str, split: str) -> list[dict[str, Any]]:
    """The rows of DIR/<benchmark>/<split>.jsonl; checked against DIR/MANIFEST.json if it is there.

    The manifest names `rows` and `sha256` under "<benchmark>/<split>".
    """
    path = folder / benchmark / f"{split}.jsonl"
    if not folder.is_dir():
        raise InputError("no such data folder", str(folder), MEND)
    if not path.is_file():
        raise InputError("no such file of problems", str(path), MEND)
    manifest = folder / "MANIFEST.json"
    if manifest.is_file():
        wanted = read_json(manifest).get(f"{benchmark}/{split}", {}).get("sha256")
        if wanted not in (None, hashlib.sha256(path.read_bytes()).hexdigest()):
            raise InputError(
                "the file is not the one in MANIFEST.json (its SHA-256 differs)", str(path),
                "fetch it again, or correct the manifest if the change is meant",
            )  # fmt: skip
    return file_rows(path)


def file_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of problems, each checked for `id`, `problem` and `answer`."""
    return [_checked(row, f"{path}, line {line}") for line, row in enumerate(read_jsonl(path), 1)]


def _checked(row: Row, where: str) -> dict[str, Any]:
    """A row with its id, problem and gold as text; 0 is a good id and a good gold."""
    for key in ("id", "problem", "answer"):
        value = row.get(key)
        if value is None or not str(value).strip() or value == []:
            mend = "a row needs id, problem and answer"
            raise InputError(f"{key} is missing or empty", where, mend)
        values = value if isinstance(value, list) and key == "answer" else [value]
        if not all(_is_plain(v) for v in values):
            raise InputError(f"its {key} is neither text nor number", where, "mend that row")
    declared = row.get("tolerance")
    bound = _number(str(declared))
    if declared not in (None, "") and (bound is None or bound < 0):
        raise InputError(f"its tolerance {declared!r} is no number >= 0", where, "mend that row")
    return {**row, "id": str(row["id"]), "problem": str(row["problem"]), "answer": gold_of(row)}


def _is_plain(value: object) -> bool:
    """Whether it is a finite number, or a text that tokenizers take: without lone surrogates."""
    if isinstance(value, int | float):
        return not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def gold_of(row: Row, field: str = "answer") -> str:
    """The gold of a row as text: a list is joined, a worked solution ends in `#### gold`.

    >>> gold_of({"answer": "3 + 4 = 7\\n#### 7"}), gold_of({"answer": 27.0})
    ('7', '27')
    >>> gold_of({"final_answer": ["$1$", "$2$"]}, "final_answer")
    '1, 2'
    """
    value = row[field]
    values = value if isinstance(value, list) else [value]
    texts = [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
    texts = [text.rpartition("####")[2].strip() for text in texts]
    return ", ".join(_undollared(text) for text in texts) if isinstance(value, list) else texts[0]


def _undollared(text: str) -> str:
    """A formula without the pair of dollar signs around it."""
    inner = text[1:-1]
    return inner if text[:1] == text[-1:] == "$" and "$" not in inner else text


def hub_rows(benchmark: str, hub: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a data set on the hub at its pinned revision, with our fields.

    `hub` has `path`, `revision`, `split`; `name` (its configuration); `problem` and `answer` (the
    fields there); `id` (a template of the row's fields and `{row}`, its number);
    `tolerance` (the field of a row's own bound).
    """
    where = f"benchmark {benchmark}"
    if not hub.get("path"):
        raise InputError("its task names no data set on the hub", where, MEND)
    if not re.fullmatch(r"[0-9a-f]{40}", str(hub.get("revision"))):
        raise InputError(f"no full revision of {hub['path']} is pinned", where, MEND)
    import datasets

    try:
        found: Iterable[Row] = datasets.load_dataset(
            hub["path"], hub.get("name"), revision=hub["revision"], split=hub["split"]
        )
    except (OSError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(f"can't be read ({line})", f"hub data set {hub['path']}", MEND) from error
    rows = []
    for number, row in enumerate(found):
        place = f"hub data set {hub['path']}, row {number}"
        try:
            fields = {
                "id": str(hub["id"]).format(row=number, **row),
                "problem": row[hub.get("problem", "problem")],
                "answer": gold_of(row, hub.get("answer", "answer")),
                "tolerance": row.get(hub.get("tolerance", "tolerance")) or None,
                **labels_of(row),
            }
        except KeyError as error:
            raise InputError(f"there is no field {error}", place, MEND) from error
        rows.append(_checked(fields, place))
    return rows


def examples() -> list[dict[str, str]]:
    """Worked examples for few-shot prompts, written for this suite; from none of the test sets."""
    from oar_bench.resources import shipped

    text = (shipped("tasks") / "examples.json").read_text(encoding="utf-8")
    found: list[dict[str, str]] = json.loads(text)
    return found
