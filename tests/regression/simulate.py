"""Draws a baseline and a re-run of it, and counts what `decide` says: the gate's error rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from oar_bench.regression.decide import decide, measure, seed_noise

ALPHA = 0.05


@dataclass(frozen=True)
class Design:
    """Problems with difficulties as on a real test set, methods x seeds that scatter by `sd`.

    `sd` is that of a training seed's score; `shared` the part of it that baseline and re-run have
    in common (the same warm start and data order); `rare`: all problems are solved nearly always.
    """

    problems: int
    samples: int
    seeds: int = 1
    methods: int = 1
    sd: float = 0.0
    unequal: bool = False
    rare: bool = False

    def scores(self, rng, drop):
        """(M, S, P) shares: `drop` is what each method loses on average, (M,)."""
        logits = rng.normal(5.0 if self.rare else 0.8, 0.3 if self.rare else 2.0, self.problems)
        p = 1 / (1 + np.exp(-logits))
        sd = self.sd * (np.linspace(0.5, 1.5, self.methods) if self.unequal else 1.0)

        def draw(loss):
            shape = (self.methods, self.seeds, 1)
            luck = rng.normal(0, 1, shape) * np.reshape(sd * np.ones(self.methods), (-1, 1, 1))
            # of the problems that can still lose or win as much: the mean moves by it exactly
            weight = p * (1 - p) / (p * (1 - p)).mean()
            chance = np.clip(p + (luck - loss[:, None, None]) * weight, 0, 1)
            return rng.binomial(self.samples, chance) / self.samples

        return draw(np.zeros(self.methods)), draw(np.asarray(drop))


def checks_of(design, margin, drop, rng):
    """The accuracy checks of all methods of one re-run."""
    before, now = design.scores(rng, drop)
    cells = list(before - now)
    prior = seed_noise(list(before))
    return [
        measure(
            w, margin, cells=cells, prior=prior, own_prior=seed_noise([b]), step=1 / design.samples
        )
        for w, b in zip(cells, before, strict=True)
    ]


def whole(of):
    """The verdict on the whole run."""
    if "regression" in of:
        return "regression"
    return "too little data" if "too little data" in of else "pass"


def rates(design, margin, drop=0.0, draws=1000, seed=0):
    """Shares of pass, regression and too little data when one method (the first) loses `drop`."""
    rng = np.random.default_rng(seed)
    lost = np.zeros(design.methods)
    lost[0] = drop
    count = Counter(
        whole([d.verdict for d in decide(checks_of(design, margin, lost, rng), ALPHA)])
        for _ in range(draws)
    )
    return {name: count[name] / draws for name in ("pass", "regression", "too little data")}


def effect(design, draws=9, seed=1):
    """The median detectable effect of a design, all its methods side by side."""
    rng = np.random.default_rng(seed)
    none = np.zeros(design.methods)
    found = [checks_of(design, 0.05, none, rng) for _ in range(draws)]
    return float(np.median([max(c.detectable(ALPHA, len(cs)) for c in cs) for cs in found]))
