"""The schedule of a measurement: every method again and again, side by side in time.

A machine drifts: it warms up, others use it. So a repeat does one step of each (length, method),
the methods of a length one after the other, in an order rotated by the repeat; ratios are taken
within a repeat. Pass 0 is not timed: it warms up, and counts operations meanwhile.

Whole repeats are handed out as they come, to be kept: a measurement that is killed goes on with
the repeat it was in, after a pass that warms up and isn't kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oar_bench.overhead.phases import PhaseTimer

Step = Callable[[str, int, PhaseTimer], None]
"""Does one step of a method at a length; its phases go to the timer, whose `step` is the repeat."""


def rotated(methods: Sequence[str], turn: int) -> list[str]:
    """The methods in an order that begins with another one each turn.

    >>> [rotated(["a", "b", "c"], turn) for turn in (1, 2)]
    [['b', 'c', 'a'], ['c', 'a', 'b']]
    """
    shift = turn % len(methods)
    return [*methods[shift:], *methods[:shift]]


def schedule(
    methods: Sequence[str], lengths: Sequence[int], repeats: int
) -> Iterator[tuple[int, int, str]]:
    """(repeat, length, method) in the order in which steps are done; repeat 0 isn't timed.

    >>> list(schedule(["a", "b"], [8], 1))
    [(0, 8, 'a'), (0, 8, 'b'), (1, 8, 'b'), (1, 8, 'a')]
    """
    for repeat in range(repeats + 1):
        for length in lengths:
            for method in rotated(methods, repeat):
                yield repeat, length, method


def measure(
    step: Step,
    methods: Sequence[str],
    lengths: Sequence[int],
    repeats: int,
    progress: Callable[[int, str], None] = lambda done, note: None,
    *,
    known: Mapping[int, list[dict[str, Any]]] | None = None,
    keep: Callable[[int, list[dict[str, Any]]], None] = lambda repeat, rows: None,
) -> list[dict[str, Any]]:
    """Do all steps; a row for each phase of each.

    Args:
        step: does one.
        methods, lengths: what to measure.
        repeats: timed steps of each.
        progress: called after each step with the number done.
        known: rows of repeats that were measured before, which aren't done again.
        keep: called with each repeat done now, and its rows.

    Returns:
        Rows of repeat, length, method, phase, seconds, tokens and peak_memory_mb. Rows of repeat 0
        have `flops` instead of meaningful seconds.
    """
    found = dict(known or {})
    missing = [repeat for repeat in range(repeats + 1) if repeat not in found]
    done = (repeats + 1 - len(missing)) * len(methods) * len(lengths)
    if done and missing:
        for _, length, method in schedule(methods, lengths, 0):  # this process is cold
            step(method, length, PhaseTimer(0))
    for repeat in missing:
        found[repeat] = []
        for length in lengths:
            for method in rotated(methods, repeat):
                timer = PhaseTimer(repeat, counting=repeat == 0)
                step(method, length, timer)
                for row in timer.rows:
                    told = {key: value for key, value in row.items() if key != "step"}
                    about = {"repeat": repeat, "length": length, "method": method}
                    found[repeat].append(about | told)
                done += 1
                progress(done, f"{method} at {length}")
        keep(repeat, found[repeat])
    return [row for repeat in range(repeats + 1) for row in found[repeat]]
