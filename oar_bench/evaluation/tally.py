"""Who solved what and what the grader said, as arrays: read from scores.jsonl once, then kept.

A report needs a few bytes of every score row, and the rows are many: 20 models on 7 tasks with 64
samples a problem are 9 million. So a large file's tally is written beside it (`.tally.npz`) with
the size and time of the file that it was made from; of another file it is made anew.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oar_bench.errors import InputError
from oar_bench.evaluation.metrics import Correctness, correctness
from oar_bench.evaluation.rows import checked
from oar_bench.records import read_jsonl, write_bytes

Bytes = NDArray[np.uint8]

FILE = ".tally.npz"
FORMAT = 1  # raised when the content changes: older files are made anew
LEAST_BYTES = 1_000_000  # a smaller file is read again as fast
SETTLED = 2.0  # seconds: a file that is younger may yet change within one tick of its clock
IDENTITY = ("task", "model", "fingerprint", "grader")
UNKNOWN = "–"
MOST_NAMES = 255


@dataclass(frozen=True)
class Tally:
    """The verdicts on P problems by K samples.

    `matrix` says which are right; `status` and `how` are (P, K) uint8, places in `statuses` (the
    grader's verdicts) and in `hows` (the form in which the answer was found, – where none was).
    `first` holds the first row of each identity that occurs in the file, with its number.
    """

    matrix: Correctness
    status: Bytes
    how: Bytes
    statuses: tuple[str, ...]
    hows: tuple[str, ...]
    first: tuple[tuple[int, Mapping[str, Any]], ...]

    def only(self, keep: NDArray[np.bool_]) -> Tally:
        """The tally of the problems that `keep`, (P,) bool, wants."""
        names = tuple(n for n, k in zip(self.matrix.problems, keep, strict=True) if k)
        matrix = Correctness(names, self.matrix.values[keep])
        return replace(self, matrix=matrix, status=self.status[keep], how=self.how[keep])

    def share(self, status: str, rows: NDArray[np.bool_] | None = None) -> float:
        """The share of samples with a status, of all problems or of those in `rows`, (P,)."""
        found = self.status if rows is None else self.status[rows]
        if status not in self.statuses or not found.size:
            return 0.0 if found.size else float("nan")
        return float((found == self.statuses.index(status)).mean())

    def check(self, path: Path, marks: Mapping[str, str], mend: str, allow: Names[str]) -> None:
        """InputError at the first row that is of another evaluation; see `rows.checked`."""
        for number, row in self.first:
            for _ in checked([row], path, marks, mend, allow, first=number):
                pass


def tally(path: Path) -> Tally:
    """The tally of a scores.jsonl, from what is kept beside it where that is of this very file.

    Raises:
        InputError: a line is no JSON object.
        KeyError: a row lacks a field.
        ValueError: no rows, a sample scored twice, or unequal numbers of samples.
    """
    stamp = _stamp(path)
    kept = _kept(path, stamp)
    if kept is not None:
        return kept
    made = tally_of(read_jsonl(path))
    if stamp and stamp[1] >= LEAST_BYTES and stamp == _stamp(path):
        _keep(path, stamp, made)
    return made


def tally_of(rows: Iterable[Mapping[str, Any]]) -> Tally:
    """The tally of score rows.

    >>> rows = [{"problem": "a", "sample": k, "correct": k > 0, "how": "boxed" if k else None,
    ...          "status": "correct" if k else "no_answer"} for k in range(3)]
    >>> found = tally_of(rows)
    >>> found.statuses, found.status.tolist(), found.hows
    (('no_answer', 'correct'), [[0, 1, 1]], ('–', 'boxed'))
    >>> round(found.share("correct"), 2), found.share("timeout")
    (0.67, 0.0)
    """
    codes: dict[str, dict[int, tuple[int, int]]] = {}
    statuses: dict[str, int] = {}
    hows: dict[str, int] = {}
    first: dict[tuple[Any, ...], tuple[int, Mapping[str, Any]]] = {}

    def noted() -> Iterator[Mapping[str, Any]]:
        for number, row in enumerate(rows, start=1):
            identity = tuple(row.get(name) for name in IDENTITY)
            if identity not in first:
                first[identity] = number, {name: row[name] for name in IDENTITY if name in row}
            status, how = str(row.get("status", UNKNOWN)), str(row.get("how") or UNKNOWN)
            code = _place(statuses, status), _place(hows, how)
            codes.setdefault(str(row["problem"]), {})[row["sample"]] = code
            yield row

    matrix = correctness(noted())
    both = np.array(
        [[of[k] for k in sorted(of)] for of in (codes[name] for name in matrix.problems)],
        dtype=np.uint8,
    )
    ordered = tuple(sorted(first.values(), key=lambda found: found[0]))
    return Tally(matrix, both[..., 0], both[..., 1], tuple(statuses), tuple(hows), ordered)


def _place(names: dict[str, int], name: str) -> int:
    return names.setdefault(name, min(len(names), MOST_NAMES))


def keep_tallies(paths: Sequence[Path], workers: int) -> None:
    """Make the missing tallies of large files in so many processes; what fails is left undone.

    A broken file is told of by `tally` itself, by whoever wants it.
    """
    todo = [path for path in paths if (stamp := _stamp(path)) and stamp[1] >= LEAST_BYTES
            and _kept(path, stamp) is None]  # fmt: skip
    if len(todo) < 2 or workers < 2:
        return
    # A new interpreter each, since a fork would take over the locks of the libraries' threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(_try, todo))


def _try(path: Path) -> None:
    with suppress(InputError, KeyError, ValueError, TypeError):
        tally(path)


def _stamp(path: Path) -> list[int] | None:
    """What tells a file from another of its name: format of the tally, size, time."""
    try:
        about = path.stat()
    except OSError:
        return None
    return [FORMAT, about.st_size, about.st_mtime_ns]


def _kept(path: Path, stamp: list[int] | None) -> Tally | None:
    """What is kept beside the file; None where there is nothing, or it is of another file."""
    try:
        with np.load(path.with_name(FILE), allow_pickle=False) as found:
            about = json.loads(found["about"].tobytes())
            if about["stamp"] != stamp:
                return None
            matrix = Correctness(tuple(about["problems"]), found["correct"])
            return Tally(
                matrix, found["status"], found["how"], tuple(about["statuses"]),
                tuple(about["hows"]), tuple((n, row) for n, row in about["first"]),
            )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _keep(path: Path, stamp: list[int], made: Tally) -> None:
    """Write the tally beside its file, where that can be done and the file has settled."""
    if time.time_ns() - stamp[2] < SETTLED * 1e9 or max(len(made.statuses), len(made.hows)) > 200:
        return
    about = {"stamp": stamp, "problems": made.matrix.problems, "statuses": made.statuses,
             "hows": made.hows, "first": made.first}  # fmt: skip
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        correct=made.matrix.values, status=made.status, how=made.how,
    )  # fmt: skip
    with suppress(OSError):  # a folder that may only be read is read each time
        write_bytes(path.with_name(FILE), buffer.getvalue())
