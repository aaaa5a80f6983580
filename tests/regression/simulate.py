"""Draws a baseline and a re-run of it, and counts what `decide` says: the gate's error rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from oar_bench.regression.baseline import Baseline
from oar_bench.regression.check import check
from oar_bench.regression.counts import Counts
from oar_bench.regression.decide import decide, measure, seed_noise
from oar_bench.regression.limits import limits_of
from oar_bench.regression.snapshot import Result, Snapshot, TaskOf

ALPHA = 0.05


@dataclass(frozen=True)
class Design:
    """Problems with difficulties as on a real test set, methods x seeds that scatter by `sd`.

    `sd` is that of a training seed's score, `unequal`: it is 0.5 to 1.5 times that, by method;
    `rare`: all problems are solved nearly always.
    """

    problems: int
    samples: int
    seeds: int = 1
    methods: int = 1
    sd: float = 0.0
    unequal: bool = False
    rare: bool = False
    of: int | None = None

    def scores(self, rng, drop):
        """(M, S, P) shares, before and now: `drop` is what each method loses on average, (M,).

        With `of` the problems are those of that seed.
        """
        draws = rng if self.of is None else np.random.default_rng(self.of)
        logits = draws.normal(5.0 if self.rare else 0.8, 0.3 if self.rare else 2.0, self.problems)
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
            w,
            margin,
            cells=cells,
            prior=prior,
            own_prior=seed_noise([b]),
            redrawn=True,
            step=1 / design.samples,
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


def reproduction(design, rng, model, slowdown=0.0):
    """A snapshot with every check: accuracy, truncation, no answer, tokens, step time, memory."""
    _, shares = design.scores(rng, np.zeros(design.methods))
    k, names = design.samples, ["grpo", "oar-p", "oar-g", "shuffled"][: design.methods]
    results, steps, memory = {}, {}, {}
    for name, of in zip(names, shares, strict=True):
        for seed, row in enumerate(of):
            correct = np.rint(row * k).astype(int)
            lost = rng.binomial(k - correct, 0.05)
            tokens = rng.normal(40 * k, 12 * np.sqrt(k), correct.size).astype(int)
            counts = Counts(k, correct, lost, rng.binomial(k - correct - lost, 0.05), tokens)
            results["sum", name, seed] = Result(counts, model)
            memory[name, seed] = 600.0 + rng.normal(0, 5)
            if name != "grpo":
                steps[name, seed] = float(np.exp(1 + slowdown + rng.normal(0, 0.02)))
    tasks = {"sum": TaskOf(design.problems, "n", k, {"fingerprints.task": "t"})}
    return Snapshot("run", "reproduction", tasks, results, steps, memory, {}, {})


def whole_check(design, limits, draws, seed=0):
    """Verdicts on all checks of `draws` equal re-runs together."""
    rng = np.random.default_rng(seed)
    count = Counter()
    for _ in range(draws):
        state = rng.integers(2**32)  # the same problems in both
        before, now = (reproduction(replace(design, of=int(state)), rng, m) for m in "ab")
        baseline = Baseline(before, {}, None, ({"date": "", "reason": ""},))
        count[check(baseline, now, limits_of(limits), ALPHA).verdict] += 1
    return {name: count[name] / draws for name in ("pass", "regression", "too little data")}
