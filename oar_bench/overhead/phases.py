"""What each phase of a step costs: wall-clock seconds, peak memory, floating-point operations."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any

import torch

from oar_bench.overhead.counter import counter

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


def peak_source() -> str:
    """What `peak_memory_mb` tells here, in words."""
    if torch.cuda.is_available():
        return "CUDA memory allocated, the peak of the phase alone"
    try:
        _CLEAR.write_text("5")
    except OSError:
        return "resident memory of the process, the peak since its start"
    return "resident memory of the process (VmHWM, reset before each phase)"


@dataclass
class PhaseTimer:
    """Collects one row per phase of a step; with `counting`, its operations as `flops` too.

    A phase that comes again in the step adds to its row.

    Counting makes a phase slower: its seconds then mean nothing. `before` is called with the name
    of each phase that is about to begin; what it raises keeps the phase from beginning.

    >>> timer = PhaseTimer(step=1)
    >>> with timer.phase("rollout") as row:
    ...     row["tokens"] = 128
    >>> [(row["phase"], row["tokens"]) for row in timer.rows]
    [('rollout', 128)]
    """

    step: int
    counting: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    before: Callable[[str], None] = lambda name: None

    @contextmanager
    def phase(self, name: str) -> Iterator[dict[str, Any]]:
        """Time the body; it may set `tokens` (processed by the phase) in the row it is given."""
        row: dict[str, Any] = {"step": self.step, "phase": name, "seconds": 0.0, "tokens": 0}
        self.before(name)
        reset_peak()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        with counter() if self.counting else nullcontext() as counted:
            yield row
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        row["seconds"] = time.perf_counter() - start
        row["peak_memory_mb"] = peak_memory_mb()
        if counted is not None:
            row["flops"] = counted.get_total_flops()
        before = next((r for r in self.rows if r["phase"] == name), None)
        if before is None:
            self.rows.append(row)
            return
        for key in ("seconds", "tokens", "flops"):
            if key in row:
                before[key] += row[key]
        before["peak_memory_mb"] = max(before["peak_memory_mb"], row["peak_memory_mb"])


def merged(parts: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of a step from those of its processes.

    A phase takes as long as its slowest process; peak memory is the largest of one process; tokens
    and operations are all of them.

    >>> rows = [[{"phase": "update", "seconds": 1.0, "tokens": 5, "peak_memory_mb": 70.0}],
    ...         [{"phase": "update", "seconds": 2.0, "tokens": 4, "peak_memory_mb": 60.0}]]
    >>> merged(rows)
    [{'phase': 'update', 'seconds': 2.0, 'tokens': 9, 'peak_memory_mb': 70.0}]
    """
    joins: dict[str, Callable[[float, float], float]] = {
        "seconds": max, "peak_memory_mb": max, "tokens": add, "flops": add
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for row in chain.from_iterable(parts):
        whole = found.get(row["phase"])
        if whole is None:
            found[row["phase"]] = dict(row)
            continue
        for key, join in joins.items():
            if key in row:
                whole[key] = join(whole[key], row[key])
    return list(found.values())
