"""Evidence drawn from a world whose truth is known: what verdicts are right is known too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oar_bench.claims.evidence import Cell, Costs, Evidence, Masses, Ranks, Scores

METHODS = ("grpo", "oar-p", "oar-g", "shuffled")


@dataclass(frozen=True)
class World:
    """True values: each method's score beyond GRPO's, the ratio of a step's seconds, correlations.

    `seed_sd`, `problem_sd`: of a method's own effect, over training seeds and over problems, beyond
    what all methods share (luck of a seed, difficulty of a problem).
    """

    oar_p: float = 0.0
    oar_g: float = 0.0
    shuffled: float = 0.0
    ratio: float = 1.10
    credit_ratio: float = 0.5
    rho_g: float = 0.8
    rho_d: float = 0.8
    seed_sd: float = 0.02
    problem_sd: float = 0.05
    seeds: int = 8
    problems: int = 400
    samples: int = 4
    repeats: int = 5
    ranked: int = 32


def draw(world: World, rng: np.random.Generator) -> Evidence:
    """One set of measurements."""
    shifts = {"oar-p": world.oar_p, "oar-g": world.oar_g, "shuffled": world.shuffled, "grpo": 0.0}
    # difficulties that leave room for every effect: a share cut at 0 or 1 would change the truth
    hard = rng.uniform(0.25, 0.75, world.problems)
    luck = rng.normal(0, 0.03, world.seeds)
    scores = {}
    for method in METHODS:
        own_seed = rng.normal(0, world.seed_sd / np.sqrt(2), world.seeds)
        own_problem = rng.normal(0, world.problem_sd / np.sqrt(2), world.problems)
        p = hard[None] + luck[:, None] + shifts[method] + own_seed[:, None] + own_problem[None]
        right = rng.binomial(world.samples, np.clip(p, 0, 1)) / world.samples
        scores[method] = dict(enumerate(right))
    return Evidence(
        scores=[Scores("a task", scores)],
        costs=[Costs("a bench", "repeat", _cells(world, rng))],
        ranks=[Ranks("responses", {"oar-g": _ranks(world.rho_g, world, rng),
                                   "oar-d": _ranks(world.rho_d, world, rng)})],
        masses=[Masses("oar-p", 30, 1e-7, True)],
    )  # fmt: skip


def _cells(world: World, rng: np.random.Generator) -> list[Cell]:
    cells = []
    for length in (32, 64):
        drift = rng.normal(0, 0.3, world.repeats + 1)[1:]  # a busy machine, the same for all
        for method, step, credit in (
            ("grpo", 1.0, 1e-3), ("oar-g", world.ratio, 0.1),
            ("oar-p", 3.0, 1.0), ("oar-d", 2.0, world.credit_ratio),
        ):  # fmt: skip
            for phase, seconds in (("step", step), ("credit", credit)):
                noise = np.exp(drift + rng.normal(0, 0.03, world.repeats)) * seconds
                cells.append(Cell(length, method, phase, dict(enumerate(noise)), None))
    return cells


def _ranks(rho: float, world: World, rng: np.random.Generator) -> np.ndarray:
    """Correlations of mean `rho` within -1 to 1, skewed rather more than measured ones are."""
    a = 20.0
    share = (1 + rho) / 2
    return 2 * rng.beta(a * share, a * (1 - share), world.ranked) - 1
