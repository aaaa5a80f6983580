"""What a check still accepts: the margins of `oar-bench check`, as a user writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from oar_bench.errors import InputError, nearest

OFF = "off"
DEFAULT_ALPHA = 0.05


@dataclass(frozen=True)
class Metric:
    """Something that is checked: its unit (pp: percent points; %: of the baseline's own value)."""

    title: str
    unit: Literal["pp", "%"]
    default: str


METRICS = {
    "drop": Metric("accuracy", "pp", "2pp"),
    "truncated": Metric("truncated", "pp", "2pp"),
    "no-answer": Metric("no answer", "pp", "2pp"),
    "tokens": Metric("tokens", "%", "10%"),
    "step-time": Metric("step time / grpo", "%", "25%"),
    "memory": Metric("peak memory", "%", "25%"),
}
"""By the name that limits go by. `drop` is `--max-drop`; the others are named by `--limit`."""

_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(pp|%)\s*", re.ASCII)


def parse_limit(text: str, unit: str, where: str) -> float | None:
    """A margin as a share; None for `off`.

    >>> parse_limit("2pp", "pp", "--max-drop"), parse_limit("12.5 %", "%", "--limit tokens")
    (0.02, 0.125)
    >>> parse_limit("off", "pp", "--max-drop") is None
    True
    >>> parse_limit("0.02", "pp", "--max-drop")
    Traceback (most recent call last):
    ...
    oar_bench.errors.InputError: --max-drop: '0.02' is no limit; write it as 2pp, or off
    """
    if text.strip() == OFF:
        return None
    found = _SIZE.fullmatch(text)
    size = float(found[1]) / 100 if found and found[2] == unit else 0.0
    largest = 1.0 if unit == "pp" else 100.0
    if not 0 < size <= largest or not math.isfinite(size):
        example = "2pp" if unit == "pp" else "10%"
        raise InputError(f"{text!r} is no limit", where, f"write it as {example}, or off")
    return size


def limit_texts(max_drop: str | None, named: Iterable[str]) -> dict[str, str]:
    """`--max-drop` and every `--limit NAME=SIZE` as written, by metric; all checked.

    >>> limit_texts("1pp", ["tokens=5%", "memory=off"])
    {'drop': '1pp', 'tokens': '5%', 'memory': 'off'}
    """
    found = {} if max_drop is None else {"drop": max_drop.strip()}
    if max_drop is not None:
        parse_limit(max_drop, METRICS["drop"].unit, "--max-drop")
    others = [name for name in METRICS if name != "drop"]
    for word in named:
        name, equals, size = word.partition("=")
        where = f"--limit {word}"
        if not equals:
            raise InputError("NAME=SIZE is expected", where, "write --limit tokens=10%")
        if name not in others:
            raise InputError(f"nothing is called {name!r}", where, nearest(name, others))
        parse_limit(size, METRICS[name].unit, where)
        found[name] = size.strip()
    return found


def limits_of(*layers: Mapping[str, str]) -> dict[str, float | None]:
    """The limit of every metric as a share; later layers go before earlier ones and the defaults.

    >>> limits_of({"drop": "5pp"}, {"tokens": "off"})["drop"]
    0.05
    """
    texts = {name: metric.default for name, metric in METRICS.items()}
    for layer in layers:
        texts |= layer
    return {name: parse_limit(texts[name], METRICS[name].unit, name) for name in METRICS}
