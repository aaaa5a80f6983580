"""What a smaller token cap would have given, method by method.

From the results.json of each run alone: no row is read again, no model is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oar_bench.evaluation.statistics import Floats
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import Collection

Points = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Curve:
    """A method's budget curve: the share right at C caps, (C,), under each training seed.

    A start that all seeds share stands under None.
    """

    method: str
    seeds: Mapping[int | None, Floats]

    @property
    def mean(self) -> Floats:
        """Mean over the training seeds, (C,)."""
        return np.asarray(np.mean([*self.seeds.values()], axis=0), dtype=np.float64)


@dataclass(frozen=True)
class Budget:
    """The budget curves of one task at common caps, in tokens; the last cap is the real one."""

    task: str
    caps: tuple[int, ...]
    curves: list[Curve]


def budgets(collection: Collection) -> list[Budget]:
    """The budget curves of every task whose results have them (`metrics.budget_curve`)."""
    found = []
    for task in collection.tasks:
        by_method = collection.evaluations_of(task)
        every = [e for of in by_method.values() for e in of.values()]
        if all(e.metrics.get("budget") for e in every):
            found.append(_budget(task, by_method))
    return found


def _budget(task: str, by_method: Mapping[str, Mapping[int | None, Evaluation]]) -> Budget:
    points = {
        method: {seed: e.metrics["budget"] for seed, e in of.items()}
        for method, of in by_method.items()
    }
    caps = common_caps([p for of in points.values() for p in of.values()])
    return Budget(task, caps, [
        Curve(method, {seed: at_caps(p, caps) for seed, p in of.items()})
        for method, of in points.items()
    ])  # fmt: skip


def common_caps(curves: Sequence[Points]) -> tuple[int, ...]:
    """Every power of two that a curve has, and the largest cap of all.

    >>> common_caps([[[8, 0.1], [16, 0.5], [20, 0.5]], [[16, 0.2], [30, 0.6]]])
    (8, 16, 30)
    """
    last = max(int(points[-1][0]) for points in curves)
    powers = {int(cap) for points in curves for cap, _ in points if int(cap).bit_count() == 1}
    return (*sorted(cap for cap in powers if cap < last), last)


def at_caps(points: Points, caps: Sequence[int]) -> Floats:
    """A curve of [cap, share] read at powers of two and at caps beyond its end.

    A curve has every power of two between its shortest and its longest response: below its first
    cap no response was complete, and beyond its last one nothing more would have come.

    >>> at_caps([[8, 0.25], [16, 0.5], [20, 0.75]], [4, 8, 16, 32]).tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    known = np.array([cap for cap, _ in points])
    shares = np.array([0.0, *(share for _, share in points)])
    return np.asarray(shares[np.searchsorted(known, caps, side="right")], dtype=np.float64)
