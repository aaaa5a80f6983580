"""Rows of the jsonl files between the stages: append with fsync, read back, survive a torn tail.

Every file that one stage hands to the next goes through here. A jsonl file only grows; a process
killed in the middle of a write leaves at most one torn last line, which `JsonlWriter` cuts off
before it appends and `read_jsonl` leaves out. Whole files (json, text) are written beside their
target and renamed, so that a reader sees the old one or the new one, never half of either.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from oar_bench.errors import InputError

SCHEMA = 1
"""Version of every row and result file. Raised when a field changes its meaning."""


def dumps(row: Mapping[str, Any]) -> str:
    """One row as one ASCII line without its newline.

    ASCII, so that lone surrogates in model text stay representable as escapes; NaN is refused
    because JSON has none.

    >>> dumps({"text": "é", "n": 1})
    '{"text": "\\\\u00e9", "n": 1}'
    """
    return json.dumps(row, ensure_ascii=True, allow_nan=False)


def repair_tail(path: Path) -> int:
    """Cut a torn last line (no newline at its end) off `path`; returns the bytes removed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = file.write_text('{"a": 1}\\n{"a": 2')
    >>> repair_tail(file), file.read_text()
    (7, '{"a": 1}\\n')
    """
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
        return size - end


def read_jsonl(path: Path, *, unended: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of a jsonl file, in order; a torn last line is left out, an absent file is empty.

    With `unended` a last line that only lacks its newline counts: people's own files may end so.

    Raises InputError with the line number when a complete line isn't a JSON object.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = file.write_text('{"a": 1}\\n{"a": 2}')
    >>> list(read_jsonl(file)), list(read_jsonl(file, unended=True))
    ([{'a': 1}], [{'a': 1}, {'a': 2}])
    """
    return (row for _, row in read_placed(path, unended=unended))


def read_placed(path: Path, *, unended: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a jsonl file as by `read_jsonl`, each with the byte at which its line begins.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = file.write_text('{"a": 1}\\n{"a": 2}\\n')
    >>> list(read_placed(file))
    [(0, {'a': 1}), (9, {'a': 2})]
    """
    if path.is_dir():
        raise InputError("a file of JSON lines is expected, not a folder", str(path))
    if not path.exists():
        return
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            ended = line.endswith(b"\n")
            if not ended and not unended:
                return  # torn by a kill while it was being written
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                if not ended:
                    return
                raise InputError(
                    f"line {number} is not JSON ({error})", str(path), "mend or remove that line"
                ) from error
            if not isinstance(row, dict):
                raise InputError(f"line {number} is not a JSON object", str(path))
            yield place, row
            place += len(line)


def read_json(path: Path) -> dict[str, Any]:
    """A whole JSON file; InputError when it is absent, broken or no object."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError("no such file", str(path)) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", str(path), "mend or remove that file") from error
    if not isinstance(value, dict):
        raise InputError("not a JSON object", str(path))
    return value


def prints_of(content: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The fingerprints in a file's content; InputError when there are none: nothing to compare."""
    prints = content.get("fingerprints")
    if not isinstance(prints, dict) or not prints:
        raise InputError("it has no fingerprints", str(path), "choose another --out")
    return prints


def refuse_foreign(folder: Path, own: str) -> None:
    """Refuse a file, and a folder with files in it that isn't ours: ours has the file `own`."""
    if folder.exists() and not folder.is_dir():
        raise InputError("a folder is expected, not a file", str(folder), "choose another --out")
    if not folder.is_dir() or (folder / own).exists():
        return
    foreign = [path.name for path in folder.iterdir() if path.name != ".lock"]
    if foreign:
        raise InputError(
            f"the folder has other files in it ({foreign[0]})", str(folder),
            "choose an empty or a new --out",
        )  # fmt: skip


def refuse_foreign_line(path: Path, begin: str) -> None:
    """Refuse a file that is no file, or nothing but one unended line that isn't ours.

    `JsonlWriter` cuts such a line off. Ours, torn by a kill in the first write, begins as `begin`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = file.write_text('{"schema": 1, "prob')
    >>> refuse_foreign_line(file, '{"schema": 1, "problem": "a"')
    >>> _ = file.write_text("Dear Anna,")
    >>> try:
    ...     refuse_foreign_line(file, '{"schema": 1, "problem": "a"')
    ... except InputError as error:
    ...     error.message
    'something else stands in it'
    """
    if not path.exists():
        return
    if not path.is_file():
        raise InputError("a file is expected", str(path), "choose another --out")
    with path.open("rb") as file:
        line = file.readline(max(65536, len(begin) + 1))
    known = begin.encode()
    if not line.endswith(b"\n") and not (line.startswith(known) or known.startswith(line)):
        raise InputError("something else stands in it", str(path), "choose another --out")


@contextmanager
def owned(folder: Path, *, wait: bool = False, name: str = ".lock") -> Iterator[None]:
    """Hold a folder's lock, so that two processes never write one run; `wait` for it or refuse.

    `name` is the lock's file: stages that may work in one folder side by side have locks of their
    own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as lock:
        if wait:
            fcntl.flock(lock, fcntl.LOCK_EX)
        elif not any(_locked(lock, pause) for pause in LOOKS):
            raise InputError(
                "another process is working in this folder", str(folder), "wait for it or stop it"
            )
        yield


LOOKS = (0.0, 0.02, 0.2)
"""Seconds before each try for a lock: `is_owned` in another process holds it for an instant."""


def _locked(lock: IO[str], pause: float) -> bool:
    time.sleep(pause)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_owned(folder: Path, *, name: str = ".lock") -> bool:
    """Whether a process holds a folder's lock; writes nothing and never waits.

    A process on another machine is seen only where the file system shares its locks.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with owned(folder):
    ...     is_owned(folder)
    True
    >>> is_owned(folder)
    False
    """
    try:
        lock = (folder / name).open("rb")
    except OSError:
        return False
    with lock:
        try:
            # Shared, so that two who look don't take each other for the owner.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class JsonlWriter:
    """Appends rows to a jsonl file; each call of `write` outlives the process when it returns.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> with JsonlWriter(file) as rows:
    ...     rows.write([{"step": 1}, {"step": 2}])
    >>> list(read_jsonl(file))
    [{'step': 1}, {'step': 2}]
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        repair_tail(path)
        self._file = path.open("ab")

    def write(self, rows: Iterable[Mapping[str, Any]], *, sync: bool = True) -> None:
        """Append `rows` in one write, then fsync. On a full disk the torn tail is cut again.

        Without `sync` the rows survive a kill but not a power failure before the next sync or
        the end of the block: for rows that come one by one.
        """
        data = "".join(dumps(row) + "\n" for row in rows).encode()
        start = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(data)
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(start)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


def keep_rows(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a jsonl file with only the rows that `keep` wants (used when a run resumes).

    A file from which nothing has to go is not touched.
    """
    if not path.exists():
        return
    rows = list(read_jsonl(path))
    kept = [row for row in rows if keep(row)]
    if len(kept) < len(rows):
        write_text(path, "".join(dumps(row) + "\n" for row in kept))


def write_text(path: Path, text: str) -> None:
    """Write a whole text file atomically, as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file atomically; see `write_parts`."""
    write_parts(path, [content])


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """Write a whole file atomically: to a neighbour first, synced, then renamed over `path`.

    What is no file of its own, such as /dev/stdout or a pipe, is written to as it stands.
    """
    if path.parent == Path("/dev") or (path.exists() and not path.is_file()):
        with path.open("wb") as file:
            file.writelines(parts)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    neighbour = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with neighbour.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(path)
    finally:
        neighbour.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, indented, keys in the given order."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable (POSIX: the folder itself is synced)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
