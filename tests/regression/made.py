"""Reproductions from a seeded generator, and re-runs of them that are equal but not identical."""

from __future__ import annotations

import json
import shutil

import numpy as np

from tests.reporting.synthetic import make_evaluation, make_out, write_object

P = np.clip(1 / (1 + np.exp(-np.random.default_rng(7).normal(0.8, 2.0, 60))), 0, 1)


def out(folder, methods=("grpo", "oar-p"), **more):
    return make_out(folder, methods=methods, example=False, **more)


def again(source, target):
    """A byte for byte copy."""
    shutil.copytree(source, target)
    return target


def redraw(folder, shift=0.0, seed=1, **more):
    """Sample every evaluation of the training runs anew, `shift` better."""
    for i, path in enumerate(sorted(folder.glob("runs/*/seed-*/eval/*"))):
        marks = json.loads((path / "results.json").read_text())["fingerprints"]
        make_evaluation(path, path.name, np.clip(P + shift, 0, 1), np.random.default_rng([seed, i]),
                        4, marks["model"], marks, **more)  # fmt: skip
    return folder


def change(path, **fields):
    """Set fields of a JSON file; a dotted name (with __) goes down."""
    content = json.loads(path.read_text())
    for name, value in fields.items():
        *way, last = name.split("__")
        place = content
        for key in way:
            place = place.setdefault(key, {})
        place[last] = value
    write_object(path, content)


def slower(folder, method, factor, phase="credit"):
    """Every step's `phase` of a method takes `factor` times as long."""
    for path in folder.glob(f"runs/{method}/seed-*/timing.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        for row in rows:
            row["seconds"] *= factor if row["phase"] == phase else 1.0
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
