"""The common form of what is imported: one model on one task, whatever tool measured it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_TEST = "no samples: no paired test"


@dataclass(frozen=True)
class Options:
    """How to read: a name for the model instead of the files' own, the metric and the tasks."""

    model: str | None = None
    metric: str | None = None
    tasks: tuple[str, ...] = ()

    def wants(self, task: str) -> bool:
        """Whether a task is to be imported."""
        return not self.tasks or task in self.tasks


@dataclass(frozen=True)
class Sample:
    """One response to one problem, as its tool logged it; None is what the tool doesn't say."""

    problem: str
    sample: int
    value: float | None
    """The tool's verdict: 1 right, 0 wrong, anything else is no verdict."""
    no_answer: bool = False
    response: str | None = None
    gold: str | None = None
    prompt: str | None = None
    extracted: str | None = None
    tokens: int | None = None
    truncated: bool | None = None
    failed: bool = False
    """Its run broke off before there was anything to judge: its problem is left out."""
    tolerance: float | None = None
    """The gold's own tolerance, where a task of ours has one."""
    order: tuple[int, str] = (0, "")
    """Place of the problem in its set."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """What names problem and prompt where the tool hashed them itself."""


@dataclass(frozen=True)
class Found:
    """One model on one task in a source. Shares are 0..1."""

    tool: str
    version: str | None
    model: str
    task: str
    metric: str
    value: float | None
    """The metric as the tool states it; None when it states none and the samples must tell."""
    files: tuple[Path, ...]
    stderr: float | None = None
    problems: int | None = None
    """How many problems it was measured on."""
    rows: Callable[[bool], Iterator[Sample]] | None = None
    """Called with whether our grader will judge; None: there are numbers only."""
    mean_of_rows: bool = True
    """Whether `value` is the mean over the rows, so that it can be checked against them."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: Any = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    """What else two results must agree in to be compared."""
    grading: Mapping[str, Any] = field(default_factory=dict)
    """How our grader has to judge the task, where it says so."""
    original: Mapping[str, Any] = field(default_factory=dict)
    """The tool's own settings, kept as they are."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Every number that the tool states about model and task."""
    date: str | None = None
    source: str | None = None
    """Where the number was published, in the user's words."""
    own_prints: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints that the tool's own words fix (task, grader)."""
    notes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """What to call it in a message."""
        return f"{self.files[0]}, task {self.task}"
