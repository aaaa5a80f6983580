"""What each phase of a step costs: wall-clock seconds and peak memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak() -> None:
    """Start a new peak, where the platform can (Linux, CUDA)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    elif _CLEAR.exists():
        try:
            _CLEAR.write_text("5")
        except PermissionError:
            return  # a locked-down container: the peak is then the process's since its start


def peak_memory_mb() -> float:
    """Peak memory since the last reset, in MiB: CUDA's where there is a GPU, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


@dataclass
class PhaseTimer:
    """Collects one row per phase of a step.

    >>> timer = PhaseTimer(step=1)
    >>> with timer.phase("rollout") as row:
    ...     row["tokens"] = 128
    >>> [(row["phase"], row["tokens"]) for row in timer.rows]
    [('rollout', 128)]
    """

    step: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[dict[str, Any]]:
        """Time the body; it may set `tokens` (processed by the phase) in the row it is given."""
        row: dict[str, Any] = {"step": self.step, "phase": name, "seconds": 0.0, "tokens": 0}
        reset_peak()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        yield row
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        row["seconds"] = time.perf_counter() - start
        row["peak_memory_mb"] = peak_memory_mb()
        self.rows.append(row)
