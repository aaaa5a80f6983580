"""Files that an earlier report wrote beside a new one, which doesn't have them: removed.

A report keeps the sums of what it wrote in WRITTEN. Only a file that still has its sum is removed:
one that somebody put or changed there is theirs, and so is whatever lies behind a link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from oar_bench.errors import InputError
from oar_bench.records import SCHEMA, read_json, write_json

WRITTEN = ".written.json"
FOLDERS = ("tables/", "figures/")


def replace_leftovers(out: Path, contents: Mapping[Path, bytes]) -> None:
    """Remove what an earlier report left in `out`, and note the sums of `contents` for a later one.

    To be called before they are written, so that a kill between leaves no file unnoted.
    """
    for name, sha256 in _noted(out / WRITTEN).items():
        path = out / name
        if path not in contents and _is_own(path, out, name) and _sum(path.read_bytes()) == sha256:
            path.unlink()
    sums = {path.relative_to(out).as_posix(): _sum(of) for path, of in sorted(contents.items())}
    write_json(out / WRITTEN, {"schema": SCHEMA, "files": sums})


def _noted(path: Path) -> dict[str, str]:
    """The sums that an earlier report noted; none where the file isn't as it was written."""
    try:
        files = read_json(path).get("files") if path.is_file() else None
    except InputError:
        return {}
    return files if isinstance(files, dict) else {}


def _is_own(path: Path, out: Path, name: str) -> bool:
    """Whether a name leads to a file in a folder of `out` itself, by no link and no `..`."""
    return name.startswith(FOLDERS) and path.is_file() and path.resolve() == out.resolve() / name


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
