"""How often the whole of the verdicts is wrong, and how often it is right, by simulation.

`python -m pytest tests/claims/test_error_rates.py -rP` prints the figures of docs/statistics.md.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from oar_bench.claims.judge import judge
from oar_bench.claims.spec import load_claims
from tests.claims.worlds import World, draw

DRAWS = 1000
CLAIMS = load_claims()


def rates(world: World, draws: int = DRAWS) -> tuple[dict[str, float], Counter[tuple[str, str]]]:
    """How often any row has each word, and each row each word; rows without chance left out."""
    rng, anywhere, each = np.random.default_rng(11), Counter(), Counter()
    for _ in range(draws):
        found = [v for v in judge(CLAIMS, [draw(world, rng)], settle=False) if v.row.fixed is None]
        assert len(found) == 7
        anywhere.update({v.word for v in found})
        each.update((v.row.claim.id, v.word) for v in found)
    return {word: anywhere[word] / draws for word in ("supported", "contradicted")}, each


def bound(level: float, draws: int = DRAWS) -> float:
    """What a rate of `level` stays below but once in 700 simulations of so many draws."""
    return level + 3 * math.sqrt(level * (1 - level) / draws)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_no_claim_is_falsely_supported_more_often_than_half_of_alpha(seeds):
    """Every claim false, each by as little as can be: scores at the bounds, ratios at 1.10 and
    0.5, correlations at 0.8."""
    found, _ = rates(World(oar_p=-0.01, oar_g=0.0, shuffled=-0.01, seeds=seeds))
    print(f"{seeds} seeds: any false `supported` in {100 * found['supported']:.1f} % of {DRAWS}")
    assert found["supported"] <= bound(CLAIMS.alpha / 2)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_no_claim_is_falsely_contradicted_more_often_than_half_of_alpha(seeds):
    """Every claim true, each by as little as can be."""
    found, _ = rates(World(oar_p=0.01, oar_g=0.01, shuffled=0.0, seeds=seeds))
    print(f"{seeds} seeds: any false `contradicted` in {100 * found['contradicted']:.1f} % "
          f"of {DRAWS}")  # fmt: skip
    assert found["contradicted"] <= bound(CLAIMS.alpha / 2)


@pytest.mark.parametrize("sd", [0.0, 0.06])
def test_the_spread_over_seeds_changes_nothing_about_that(sd):
    false, _ = rates(World(oar_p=-0.01, oar_g=0.0, shuffled=-0.01, seed_sd=sd, seeds=4), 500)
    true, _ = rates(World(oar_p=0.01, oar_g=0.01, shuffled=0.0, seed_sd=sd, seeds=4), 500)
    assert false["supported"] <= bound(CLAIMS.alpha / 2, 500)
    assert true["contradicted"] <= bound(CLAIMS.alpha / 2, 500)


GOOD = World(oar_p=0.05, oar_g=0.05, ratio=1.0, credit_ratio=0.3, rho_g=0.95, rho_d=0.95,
             repeats=10)  # fmt: skip
"""Every claim true by far, but for C1, whose methods are equal."""
BAD = World(oar_p=-0.05, oar_g=0.0, ratio=1.3, credit_ratio=0.8, rho_g=0.3, rho_d=0.5, repeats=10)
"""Every claim false by far, but for C2, whose methods are equal."""


@pytest.mark.parametrize(
    ("world", "word", "found_by"),
    [
        (GOOD, "supported", {"C2": 0.9, "C3": 0.9, "C4": 0.9, "C6": 0.85, "C7": 0.85}),
        (BAD, "contradicted", {"C1": 0.7, "C3": 0.7, "C4": 0.95, "C6": 0.99, "C7": 0.95}),
    ],
    ids=["true", "false"],
)
def test_power(world, word, found_by):
    draws = 500
    _, each = rates(world, draws)
    shares = {claim: each[claim, word] / draws for claim in ("C1", "C2", *[*found_by][1:])}
    shares["C7"] /= 2  # two rows with chance
    told = ", ".join(f"{claim} {100 * share:.0f} %" for claim, share in shares.items())
    print(f"{word} in {told} of {draws}")
    wrong = "contradicted" if word == "supported" else "supported"
    assert sum(n for (_, w), n in each.items() if w == wrong) <= bound(0.025, draws) * draws
    for claim, least in found_by.items():
        assert shares[claim] > least


def test_more_seeds_settle_two_equal_methods():
    """C1 and C2 at no difference at all: as good, and no gain of a point."""
    few, many = (rates(World(seeds=s), 200)[1] for s in (8, 100))
    told = [f"{100 * each[c, w] / 200:.0f} %" for each in (few, many)
            for c, w in (("C1", "supported"), ("C2", "contradicted"))]  # fmt: skip
    print(f"no difference: C1 supported, C2 contradicted with 8 seeds {told[:2]}, 100 {told[2:]}")
    assert many["C1", "supported"] > max(0.3 * 200, few["C1", "supported"])
    assert many["C2", "contradicted"] > max(0.3 * 200, few["C2", "contradicted"])
