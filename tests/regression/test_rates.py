"""The gate's error rates by simulation: `python -m pytest tests/regression/test_rates.py -rP`."""

import pytest

from tests.regression.simulate import ALPHA, Design, effect, rates, whole_check

DRAWS = 1000
NOISE = (
    0.016  # three standard errors of a share of 5 % (or 95 %) over 1000 draws, less Monte Carlo's
)

DESIGNS = {
    "500 problems x 4": (Design(500, 4), 0.04),
    "500 problems x 16": (Design(500, 16), 0.02),
    "1319 problems x 1": (Design(1319, 1), 0.05),
    "400 x 4, 3 seeds, 4 methods, seed SD 1 point": (Design(400, 4, 3, 4, 0.01), 0.08),
    "the same, methods scatter 0.5 to 1.5 points": (Design(400, 4, 3, 4, 0.01, True), 0.09),
    "400 x 4, 8 seeds, 6 methods, seed SD 2 points": (Design(400, 4, 8, 6, 0.02), 0.07),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_an_equal_rerun_passes_and_a_drop_of_the_margin_is_caught(name):
    """With a margin that the design can tell: 95 of 100 pass, at most 5 are called a regression,
    and of drops of the margin at most 5 pass."""
    design, margin = DESIGNS[name]
    equal, lost = (rates(design, margin, drop, DRAWS) for drop in (0.0, margin))
    twice = rates(design, margin, 2 * margin, 200)
    print(f"| {name} | {100 * margin:g} | {100 * effect(design):.1f} | {100 * equal['pass']:.1f} | "
          f"{100 * equal['regression']:.1f} | {100 * lost['pass']:.1f} | "
          f"{100 * lost['regression']:.1f} | {100 * twice['regression']:.1f} |")  # fmt: skip
    assert equal["pass"] >= 1 - ALPHA - NOISE
    assert equal["regression"] <= ALPHA + NOISE
    assert lost["pass"] <= ALPHA + NOISE
    assert lost["regression"] >= 0.85
    assert twice["pass"] == 0


@pytest.mark.parametrize(
    ("design", "margin"), [(Design(500, 4), 0.02), (Design(24, 2, 2, 4, 0.05), 0.2)]
)
def test_with_too_little_data_neither_error_grows(design, margin):
    """The margin is below what can be told: often that is said, and neither error grows."""
    equal, lost = (rates(design, margin, drop, DRAWS) for drop in (0.0, margin))
    print(f"| {design.problems} x {design.samples}, {design.seeds} seeds | {100 * margin:g} | "
          f"{100 * effect(design):.1f} | {100 * equal['pass']:.1f} | "
          f"{100 * equal['regression']:.1f} | {100 * lost['pass']:.1f} | "
          f"{100 * lost['regression']:.1f} | |")  # fmt: skip
    assert effect(design) > margin
    assert equal["too little data"] > 0.3
    assert equal["regression"] <= ALPHA + NOISE
    assert lost["pass"] <= ALPHA + NOISE


def test_rare_failures_stay_near_the_stated_error():
    """Problems solved 99 times of 100, one sample each: the worst case that we know of."""
    design = Design(400, 1, rare=True)
    equal, lost = (rates(design, 0.03, drop, DRAWS) for drop in (0.0, 0.03))
    print(f"rare: pass {equal['pass']}, a drop of the margin passes {lost['pass']}")
    assert equal["pass"] >= 1 - ALPHA - NOISE
    assert lost["pass"] <= 0.10 + NOISE


def test_an_equal_reproduction_passes_all_its_checks_at_once():
    """23 checks: four metrics of four methods, three step times, four peaks."""
    sizes = {"drop": "9pp", "truncated": "3pp", "no-answer": "3pp", "tokens": "10%"}
    found = whole_check(Design(400, 4, 3, 4, 0.01), sizes, 100)
    print(f"whole reproductions: {found}")
    assert found["pass"] >= 0.95
