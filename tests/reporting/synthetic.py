"""Makes an OUT folder as `oar-bench reproduce` leaves it, from a seeded generator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from oar_bench.evaluation.summary import summarize

HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m",
    "\u202eevil\u2066",
    "lone \ud83d surrogate",
    '"><img src=http://x.example/a.png onerror=alert(2)>',
    "| a | b |\n# head ```` [x](http://x.example) $y$",
    "</style><style>*{display:none}",
)
EFFECTS = {"grpo": 0.0, "oar-p": -0.01, "oar-g": -0.02, "shuffled": -0.02}
COSTS = {"grpo": 0.0, "oar-p": 1.1, "oar-g": 0.22, "shuffled": 1.1}
SETTINGS = {
    "name": "tiny",
    "train": {"lr": 3e-4, "group_size": 8, "prompts": 16, "steps": 30, "temperature": 1.0},
    "credit": {"q": 0.4, "beta": 2.0, "floor": 0.1, "scope": "reasoning"},
}


def write_rows(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_object(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def make_evaluation(folder, task, p, rng, samples=4, model="m", fingerprints=None):
    """Answers to the problems with chances `p`; every seventh text is hostile."""
    rows, scores = [], []
    for i, chance in enumerate(p):
        for k in range(samples):
            right = bool(rng.random() < chance)
            status = "correct" if right else ("wrong", "no_answer", "truncated")[(i + k) % 3]
            text = HOSTILE[i % len(HOSTILE)] if i % 7 == 0 else f"answer {int(rng.integers(5))}"
            where = {"schema": 1, "task": task, "problem": f"p{i:04d}", "sample": k}
            rows.append({**where, "seed": 1, "response": text, "gold": "4",
                         "finish_reason": "length" if status == "truncated" else "stop",
                         "prompt_tokens": 21, "response_tokens": int(rng.integers(30, 58)),
                         "fingerprint": "aa"})  # fmt: skip
            scores.append({**where, "status": status, "correct": right, "extracted": text,
                           "how": None, "stage": "exact", "milliseconds": 0.1})  # fmt: skip
    write_rows(folder / "problems.jsonl", [
        {"schema": 1, "problem": f"p{i:04d}", "prompt": HOSTILE[i % len(HOSTILE)] + f" {i}",
         "gold": "4", "level": str(i % 3), "subject": HOSTILE[i % 2]}
        for i in range(len(p))
    ])  # fmt: skip
    write_rows(folder / "samples.jsonl", rows)
    write_rows(folder / "scores.jsonl", scores)
    marks = {"task": "t1", "data": "d1", "prompt": "p1", "sampling": "s1", "grader": "g1"}
    write_object(
        folder / "results.json",
        {"schema": 1, "kind": "evaluation", "task": task, "model": model,
         "metrics": summarize(rows, scores),
         "fingerprints": {**marks, "model": f"m-{model}", **(fingerprints or {})},
         "settings": {"temperature": 1.0}, "environment": {}},
    )  # fmt: skip


def make_run(
    out, method, seed, *, tasks=("arithmetic",), problems=60, samples=4, steps=30, shift=None,
    seed_sd=0.02, settings=None, fingerprints=None, eval_fingerprints=None, status="finished",
    evaluate=True, folder=None,
):  # fmt: skip
    """One run folder, as the trainer and the evaluation leave it."""
    folder = folder or out / "runs" / method / f"seed-{seed}"
    rng = np.random.default_rng([seed, *map(ord, method)])
    shift = EFFECTS.get(method, 0.0) if shift is None else shift
    write_object(
        folder / "run.json",
        {"schema": 1, "kind": "training", "method": method, "seed": seed, "recipe": "tiny",
         "status": status, "settings": {**(settings or SETTINGS), "method": method, "seed": seed},
         "fingerprints": {"recipe": f"r-{method}", "start": "st1", "task": "t1",
                          **(fingerprints or {})},
         "environment": {"python": "3.11.7", "packages": {"torch": "2.9.0", "numpy": "2.3.5"},
                         "platform": "Linux x86_64", "cpu": "A CPU", "device": "cpu",
                         "git": "abc123"}},
    )  # fmt: skip
    plain = method == "grpo"
    write_rows(folder / "metrics.jsonl", [
        {"step": t, "reward": float(np.clip(0.34 + (0.3 + shift) * (1 - np.exp(-t / 12))
                                            + rng.normal(0, 0.03), 0, 1)),
         "response_length": 44.1, "truncated": 0.01, "no_answer": 0.02, "frac_zero_std": 0.2,
         "frac_no_probe": 0.0 if plain else 0.01, "entropy": 0.5, "kl_start": 0.001,
         "clip_fraction": 0.0, "grad_norm": 1.0, "weight_mean": 1.0,
         "weight_max": 1.0 if plain else 3.1 + float(rng.normal(0, 0.1)),
         "weight_ess": 1.0 if plain else float(0.78 + 0.04 * t / steps + rng.normal(0, 0.01)),
         "lr": 3e-4, "loss": 0.0}
        for t in range(1, steps + 1)
    ])  # fmt: skip
    timing = []
    for t in range(1, steps + 1):
        slow = (8 if t == 1 else 1) * float(np.exp(rng.normal(0, 0.04)))
        phases = {"rollout": (0.18, 5600), "grading": (0.01, 0), "logprobs": (0.05, 5600),
                  "credit": (COSTS.get(method, 0.0), 5600), "update": (0.23, 5600)}  # fmt: skip
        if t % 10 == 0:
            phases["checkpoint"] = (0.4, 0)
        timing += [
            {"step": t, "phase": name, "seconds": s * slow, "tokens": tokens,
             "peak_memory_mb": 600.0 + 100 * COSTS.get(method, 0.0)}
            for name, (s, tokens) in phases.items() if s
        ]  # fmt: skip
    write_rows(folder / "timing.jsonl", timing)
    difficulty = np.random.default_rng(7).normal(0.8, 2.0, problems)
    luck = rng.normal(0, seed_sd)
    for task in tasks if evaluate else ():
        p = np.clip(1 / (1 + np.exp(-difficulty)) + shift + luck, 0, 1)
        make_evaluation(folder / "eval" / task, task, p, rng, samples, f"{method}-{seed}",
                        eval_fingerprints)  # fmt: skip
    return folder


def make_example(out, hostile=True):
    """A credit example whose tokens include hostile ones."""
    text = "3 + 4 = 7 ; then um 7 * 2 = 14 so mod 10 gives 4 ; well 4 - 9 = 5"
    words = text.split()
    pieces = [" " + word for word in words]
    if hostile:
        pieces[3:3] = [*HOSTILE, "\n", ""]
    sections = ["reasoning"] * len(pieces)
    pieces += ["\n", "The", " answer", " is", " ", "4", " 5", ".", "<eos>"]
    sections += ["prefix"] * 5 + ["answer"] * 2 + ["rest"] * 2
    rng = np.random.default_rng(3)
    methods = {}
    for method in ("oar-p", "oar-g"):
        weight = np.where(np.array(sections) == "reasoning", rng.gamma(1.2, 0.9, len(pieces)), 1.0)
        methods[method] = {"importance": (weight / 30).tolist(), "weight": weight.tolist()}
    write_object(
        out / "credit_example.json",
        {"schema": 1, "prompt": "Compute: 3+4, then 7*2\n" + (HOSTILE[0] if hostile else ""),
         "response": "".join(pieces), "gold": "4 5", "model": "the start", "pieces": pieces,
         "sections": sections, "methods": methods},
    )  # fmt: skip


def make_out(
    out, methods=tuple(EFFECTS), seeds=(0, 1, 2), start=True, example=True, smoke=False, **run
):
    """A whole OUT folder."""
    for method in methods:
        for seed in seeds:
            make_run(out, method, seed, **run)
    command = "oar-bench reproduce tiny --out OUT"
    write_object(out / "reproduce.json",
                 {"schema": 1, "recipe": "tiny", "methods": list(methods), "seeds": list(seeds),
                  "command": command, "smoke": smoke})  # fmt: skip
    if start:
        difficulty = np.random.default_rng(7).normal(0.8, 2.0, run.get("problems", 60))
        for task in run.get("tasks", ("arithmetic",)):
            make_evaluation(out / "start" / "eval" / task, task,
                            np.clip(1 / (1 + np.exp(-difficulty)) - 0.3, 0, 1),
                            np.random.default_rng(9), run.get("samples", 4), "start")  # fmt: skip
    if example:
        make_example(out)
    return out
