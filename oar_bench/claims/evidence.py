"""What was measured, as arrays: all that a verdict on a claim rests on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from oar_bench.evaluation.statistics import Floats


@dataclass(frozen=True)
class Scores:
    """Every method on one task: by training seed the problem means (P,), shares.

    `unseeded` are methods whose results were imported without a training seed, `numbers` those of
    which a number without samples was imported.
    """

    task: str
    of: Mapping[str, Mapping[int, Floats]]
    unseeded: Collection[str] = ()
    numbers: Collection[str] = ()


@dataclass(frozen=True)
class Cell:
    """What a phase of a method (`step`: the whole step) cost at one response length.

    `seconds` by repeat, or by training seed; two cells are paired by these. `operations` are
    counted, None where they weren't. `length` in tokens, None for responses as they came.
    """

    length: int | None
    method: str
    phase: str
    seconds: Mapping[int, float]
    operations: float | None = None


@dataclass(frozen=True)
class Costs:
    """Costs measured in one place.

    `unit` is what `seconds` count by: `repeat` (methods in turns) or `seed` (whole runs one after
    the other).
    """

    where: str
    unit: str
    cells: Sequence[Cell]

    def find(self, method: str, phase: str) -> dict[int | None, Cell]:
        """The cells of a method's phase by length."""
        return {c.length: c for c in self.cells if (c.method, c.phase) == (method, phase)}


@dataclass(frozen=True)
class Ranks:
    """Rank correlation with exact OAR-P on one set of responses: by method, problem means (P,)."""

    where: str
    of: Mapping[str, Floats]


@dataclass(frozen=True)
class Masses:
    """A method's logged mean weights: how many steps, and the largest distance of one from 1.

    `kept` is the setting `preserve_mass`.
    """

    method: str
    steps: int
    drift: float
    kept: bool


@dataclass(frozen=True)
class Commands:
    """The commands that would measure what is missing, but for their methods.

    `seeds` is how many paired seeds there are.
    """

    reproduce: str = "oar-bench reproduce RECIPE --out OUT"
    seeds: int = 3
    overhead: str = "oar-bench overhead MODEL --out OUT/overhead"
    fidelity: str = "oar-bench credit fidelity CHECKPOINT --task TASK --out OUT/fidelity"

    def training(self, methods: Sequence[str], seeds: int = 0) -> str:
        """The command that adds methods to the runs, or seeds up to so many.

        >>> Commands(seeds=5).training(["oar-p", "oar-g"])
        'oar-bench reproduce RECIPE --out OUT --methods oar-p,oar-g --seeds 5'
        """
        return f"{self.reproduce} --methods {','.join(methods)} --seeds {max(seeds, self.seeds)}"


@dataclass(frozen=True)
class Evidence:
    """Everything that was measured on one model: one reproduction and what lies beside it.

    `name` tells it from others that are judged with it; `control_of` is the method whose weights
    its control `shuffled` rearranged. Of `costs` those by repeat decide where there are any.
    """

    name: str = ""
    control_of: str = "oar-p"
    scores: Sequence[Scores] = ()
    costs: Sequence[Costs] = ()
    ranks: Sequence[Ranks] = ()
    masses: Sequence[Masses] = ()
    commands: Commands = Commands()
