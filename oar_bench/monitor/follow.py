"""Follow a jsonl file that another process writes, without ever writing to it.

The file may grow, have a torn last line (the writer was killed, or is in the middle of a write),
be cut back and written anew from an earlier step (a run resumed), or not be there yet.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

REMEMBERED = 4096  # bytes before the place read up to that must still be there the next time


@dataclass(frozen=True)
class Update:
    """What a look at a file found.

    `rows` are new ones; `restarted`: forget the rows from before, the file was begun anew;
    `damaged`: complete lines that are no JSON object and were left out.
    """

    rows: list[dict[str, Any]]
    restarted: bool = False
    damaged: int = 0


class Follower:
    """Reads what was added to a jsonl file since the last look.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> follower = Follower(file)
    >>> _ = file.write_text('{"step": 1}\\n{"step": 2}\\n{"st')
    >>> follower.poll().rows
    [{'step': 1}, {'step': 2}]
    >>> _ = file.write_text('{"step": 1}\\n')  # resumed from step 1
    >>> follower.poll()
    Update(rows=[{'step': 1}], restarted=True, damaged=0)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed: float | None = None
        """When the file was last written to, in seconds since the epoch; None: not there yet."""
        self._read = 0
        self._before = b""
        self._identity: tuple[int, int] | None = None

    def poll(self) -> Update:
        """Read on. An absent file is an empty one; OSError when it can't be read."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            known = self._read > 0
            self._read, self._before, self._identity, self.changed = 0, b"", None, None
            return Update([], known)
        with file:
            restarted = not self._continues(file)
            if restarted:
                self._read, self._before = 0, b""
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        self._before = (self._before + complete)[-REMEMBERED:]
        rows, damaged = parse(complete)
        return Update(rows, restarted, damaged)

    def _continues(self, file: BinaryIO) -> bool:
        """Whether the file still has what was read of it; a first look always goes on."""
        about = os.fstat(file.fileno())
        identity = (about.st_dev, about.st_ino)
        same = self._identity in (None, identity)
        self._identity, self.changed = identity, about.st_mtime
        if not self._read:
            return True
        # Rewritten files are renamed into place, but a number of a file may be used again, and a
        # file that was cut may have grown past the place since.
        if not same or about.st_size < self._read:
            return False
        file.seek(self._read - len(self._before))
        return file.read(len(self._before)) == self._before


def parse(lines: bytes) -> tuple[list[dict[str, Any]], int]:
    """Rows of complete lines, and how many lines were no JSON object.

    >>> parse(b'{"step": 1}\\n[2]\\n{broken\\n')
    ([{'step': 1}], 2)
    """
    rows, damaged = [], 0
    for line in lines.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            damaged += 1
    return rows, damaged
