"""Numbers that others reported, with their protocol and how far to trust them.

baselines/reported/*.yaml, one file a source. They are shown beside measured numbers and never
enter a test: protocols differ, and the same published checkpoint has been scored from 25.7 to 43.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from oar_bench.config import Section, read_mapping, validated
from oar_bench.reporting.comparison import Row, TaskTable
from oar_bench.reporting.evaluations import Evaluation
from oar_bench.reporting.frames import Collection
from oar_bench.reporting.text import bracket, number, percent
from oar_bench.resources import shipped

Benchmark = Literal[
    "aime24", "aime25", "amc23", "amc83", "math500", "minerva_math", "olympiadbench", "gsm8k",
    "math", "countdown", "mean5", "mean8", "training_time",
]  # fmt: skip
"""amc23 has 40 problems, amc83 the 83 of Dr. GRPO's set; mean5 and mean8 are averages over sets."""
Quantity = Literal["score", "gain", "run SD", "cost ratio", "seconds"]
"""Scores are in percent, gains and SDs in points."""
Trust = Literal["high", "medium", "low", "none"]
"""high: result files or a common protocol with spread; medium: the authors' own word; low: a third
party, or no protocol; none: withdrawn or contradicted, never a target."""
Text = Annotated[str, Field(min_length=1)]
NOT_STATED = "not stated"


class Protocol(Section):
    """How a score was made; what the source doesn't state is absent."""

    samples: Annotated[int, Field(gt=0)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    template: Text | None = None
    engine: Text | None = None
    note: Text | None = None

    def words(self) -> str:
        """The protocol on one line.

        >>> Protocol(samples=1, temperature=0).words()
        '1 sample, T 0, top-p, max tokens, template and engine not stated'
        """
        named: dict[str, str | None] = {
            "samples": None if self.samples is None else f"{self.samples} sample"
            + ("" if self.samples == 1 else "s"),
            "T": None if self.temperature is None else f"T {self.temperature:g}",
            "top-p": None if self.top_p is None else f"top-p {self.top_p:g}",
            "max tokens": None if self.max_tokens is None else f"{self.max_tokens} tokens",
            "template": None if self.template is None else f"template {self.template}",
            "engine": self.engine,
        }  # fmt: skip
        stated = [value for value in named.values() if value is not None]
        absent = [name for name, value in named.items() if value is None]
        if absent:
            *first, last = absent
            joined = f"{', '.join(first)} and {last}" if first else last
            stated.append(f"{joined} {NOT_STATED}")
        return ", ".join([*stated, *([self.note] if self.note else [])])


class Value(Section):
    """A number, with its SD over runs, or a range of numbers."""

    value: float | None = None
    sd: Annotated[float, Field(ge=0)] | None = None
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Value:
        single, ranged = self.value is not None, self.low is not None and self.high is not None
        if single == ranged or (self.sd is not None and not single):
            raise ValueError("a value (with its sd), or low and high, are expected")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError("low is above high")
        return self

    def words(self) -> str:
        """As it was reported, with its own digits.

        >>> Value(value=11.3, sd=3.6).words(), Value(low=26.7, high=30.0).words()
        ('11.3 ± 3.6 (SD)', '26.7 to 30')
        """
        if self.value is None:
            return f"{self.low:g} to {self.high:g}"
        return f"{self.value:g}" + ("" if self.sd is None else f" ± {self.sd:g} (SD)")


class Entry(Section):
    """One line of a source's table."""

    model: Text
    method: Text
    metric: Text = "pass@1"
    quantity: Quantity = "score"
    training: Text | None = None
    protocol: Protocol
    values: Annotated[dict[Benchmark, float | Value], Field(min_length=1)]

    @model_validator(mode="after")
    def _scores_are_percent(self) -> Entry:
        for value in self.numbers().values() if self.quantity == "score" else ():
            if any(x is not None and not 0 <= x <= 100 for x in (value.value, value.low,
                                                                  value.high)):  # fmt: skip
                raise ValueError("a score is a percentage, 0 to 100")
        return self

    def numbers(self) -> dict[str, Value]:
        """The values by benchmark, each as a `Value`."""
        return {
            name: found if isinstance(found, Value) else Value(value=found)
            for name, found in self.values.items()
        }


class Source(Section):
    """A source with all that is taken from it."""

    source: Text
    kind: Literal["authors", "third party", "re-run", "index", "withdrawn"]
    trust: Trust
    why: Text
    rows: tuple[Entry, ...] = ()
    findings: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _holds_something(self) -> Source:
        if not self.rows and not self.findings:
            raise ValueError("rows or findings are expected")
        return self


def load_reported(folder: Path | None = None) -> dict[str, Source]:
    """Every source by its file's name; of baselines/reported/ if no folder is given.

    Raises:
        InputError: a file is not YAML, has an unknown key or a value out of range.

    >>> load_reported()["oar-readme"].trust
    'none'
    """
    place = folder or shipped("baselines") / "reported"
    return {
        path.stem: validated(Source, read_mapping(path, "source"), str(path))
        for path in sorted(place.glob("*.yaml"))
    }


def benchmark_of(task: str) -> str | None:
    """The benchmark that one of our tasks asks, whatever its prompt.

    >>> benchmark_of("oar_math500_chat"), benchmark_of("oar_arithmetic")
    ('math500', None)
    """
    name = task.removeprefix("oar_")
    known = ("aime24", "aime25", "amc23", "math500", "minerva_math", "olympiadbench", "gsm8k")
    if name == task:
        return None  # lm-eval's own task of that name may be another set
    return next((b for b in known if name == b or name.startswith(f"{b}_")), None)


@dataclass(frozen=True)
class BesideLine:
    """A line of the table: ours (`measured`) or another's, as text."""

    measured: bool
    whose: str
    method: str
    value: str
    protocol: str
    trust: str


@dataclass(frozen=True)
class Beside:
    """Measured and reported numbers of one model on one task."""

    task: str
    model: str
    lines: list[BesideLine]


def reported_beside(
    collection: Collection, tables: Iterable[TaskTable], sources: Mapping[str, Source]
) -> list[Beside]:
    """A table for each task of which others reported scores with the model that was trained."""
    path = (collection.runs[0].settings.get("model") or {}).get("path")
    if not path:
        return []  # a model made here, which nobody else has
    model, found = Path(str(path)).name, []
    for table in tables:
        benchmark = benchmark_of(table.task)
        others = [
            BesideLine(
                False, source.source, entry.method,
                f"{entry.numbers()[benchmark].words()} ({entry.metric})",
                entry.protocol.words(), f"{source.trust}: {source.why}",
            )
            for source in sources.values()
            for entry in source.rows
            if benchmark in entry.values and entry.quantity == "score"
            and entry.model.casefold() == model.casefold()
        ]  # fmt: skip
        if benchmark and others:
            ours = [_measured(row, table, collection) for row in table.rows]
            found.append(Beside(table.task, model, [*ours, *others]))
    return found


def _measured(row: Row, table: TaskTable, collection: Collection) -> BesideLine:
    protocol = _protocol(next(
        r.evaluations[table.task] for r in collection.runs if table.task in r.evaluations
    ), table.k)  # fmt: skip
    value = f"{percent(row.mean.value)} {bracket(row.mean)} (avg@{table.k})"
    seeds = f"{number(len(row.seeds), 0)} training seeds" if row.seeds else "the start"
    return BesideLine(True, "measured here", row.method, value, protocol.words(), seeds)


def _protocol(evaluation: Evaluation, samples: int) -> Protocol:
    found: Any = evaluation.settings.get("sampling")
    sampling: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    return Protocol.model_construct(
        samples=samples, temperature=sampling.get("temperature"), top_p=sampling.get("top_p"),
        max_tokens=sampling.get("max_new_tokens"), template=f"of {evaluation.task}",
        engine=evaluation.fingerprints.get("engine"),
    )  # fmt: skip
