"""From each response's numbers to a method's: means over problems with their intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from oar_bench.evaluation.statistics import Interval, share_interval, t_interval
from oar_bench.evaluation.summary import to_json

Record = Mapping[str, Any]


def summary(
    names: Sequence[str], records: Sequence[Record], seconds: Mapping[str, float]
) -> list[dict[str, Any]]:
    """A row for each method, exact OAR-P being the first of `names`.

    Args:
        records: a response each: `problem`, and under `methods` by name `spearman`, `top` (None
            where undefined), `draws` (None also where nothing is drawn), `deletion`, `insertion`.
        seconds: of each method, for all responses together.

    Returns:
        JSON-ready rows: `method`; `spearman`, `top`, `draws`, `deletion`, `insertion` (the AOPC
        of the curves) as intervals or None; the points of both curves as intervals under `curves`;
        `seconds` a response; `speed` as a multiple of exact OAR-P's; `responses` with a rank
        correlation, `undefined` without.
    """
    from oar_bench.credit.fidelity import aopc  # loads torch, which a report doesn't need

    exact, count = seconds[names[0]] / len(records), len(records)
    rows = []
    for name in names:
        own = [(record["problem"], record["methods"][name]) for record in records]
        defined = [values for _, values in own if values["spearman"] is not None]
        mine = seconds[name] / count
        row: dict[str, Any] = {"method": name}
        # Exact OAR-P agrees with itself by definition; an interval there would say nothing.
        row |= {key: _json(_interval(own, key, share=key == "top" and name != names[0]))
                for key in ("spearman", "top", "draws")}  # fmt: skip
        row |= {key: _json(_interval(own, key, fold=aopc)) for key in ("deletion", "insertion")}
        row["curves"] = {key: _points(own, key) for key in ("deletion", "insertion")}
        row |= {"seconds": mine, "speed": exact / mine if mine > 0 else None,
                "responses": len(defined), "undefined": count - len(defined)}  # fmt: skip
        rows.append(row)
    return rows


def problem_means(
    own: Iterable[tuple[Any, Mapping[str, Any]]], key: str, fold: Callable[[Any], float] = float
) -> list[float]:
    """The mean over each problem's responses of `fold` of a value, None values left out.

    >>> problem_means([("a", {"x": 1}), ("b", {"x": None}), ("a", {"x": 2})], "x")
    [1.5]
    """
    by_problem: dict[Any, list[float]] = defaultdict(list)
    for problem, values in own:
        if values[key] is not None:
            by_problem[problem].append(fold(values[key]))
    return [sum(values) / len(values) for values in by_problem.values()]


def _interval(
    own: Sequence[tuple[Any, Mapping[str, Any]]],
    key: str,
    *,
    share: bool = False,
    fold: Callable[[Any], float] = float,
) -> Interval | None:
    """The mean over problems of `fold` of a value, None values left out."""
    means = problem_means(own, key, fold)
    if not means:
        return None
    if share:
        return share_interval(means)
    interval = t_interval(means)
    return interval.clipped(-1.0, 1.0) if fold is float else interval.clipped(0.0, float("inf"))


def _points(own: Sequence[tuple[Any, Mapping[str, Any]]], key: str) -> list[Any] | None:
    """A curve's points, each with its interval."""
    lengths = {len(values[key]) for _, values in own if values[key] is not None}
    if not lengths:
        return None
    (length,) = lengths
    return [_json(_interval(own, key, fold=itemgetter(at))) for at in range(length)]


def _json(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else to_json(interval)
