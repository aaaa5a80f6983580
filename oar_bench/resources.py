"""Where the shipped folders lie: tasks/ and baselines/, in a wheel or in a checkout."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> Path:
    """The folder `tasks` or `baselines`: packed into the wheel, or at the top of a checkout.

    >>> (shipped("tasks") / "arithmetic.yaml").is_file()
    True
    """
    packed = _PACKAGE / "_shipped" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def cache_folder() -> Path:
    """Where warm starts are kept: $OAR_BENCH_CACHE, else the user's cache folder."""
    chosen = os.environ.get("OAR_BENCH_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "oar-bench"
