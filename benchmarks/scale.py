"""Time and peak memory of score, compare and report on results folders of many samples.

    python benchmarks/scale.py [--problems 10000] [--samples 64] [--characters 400] [--keep DIR]

Two models with that many samples each, as `generate` writes them (responses of 100 to 600 words
that end in a box; integers, fractions and algebra; every problem has some truncated and some empty
ones). Each command runs in a process of its own, whose peak resident memory the kernel keeps.
`score` is run twice: grading every sample, and again with nothing to grade (aggregation only).
Exits with 1 when a command took more than --limit-mb.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from oar_bench.identity import fingerprint
from oar_bench.records import SCHEMA, dumps, write_json

TASK = "synthetic"
SENTENCE = "so we see that the sum of all terms is then equal to twice this number and hence "


def make_evaluation(folder: Path, model: str, skill: float, options: argparse.Namespace) -> None:
    """generation.json and samples.jsonl of one model."""
    prints = {"task": "t", "data": "d", "prompt": "p", "sampling": "s", "model": model}
    write_json(folder / "generation.json", {
        "schema": SCHEMA, "kind": "generation", "task": TASK, "model": model,
        "problems": options.problems, "samples": options.samples, "seed": 0,
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 1024, "stop": []},
        "grading": {"answer_type": "math"}, "fingerprints": prints, "environment": {},
    })  # fmt: skip
    rng, mark = random.Random(model), fingerprint(prints)
    filler = SENTENCE * 200
    with (folder / "samples.jsonl").open("w", encoding="utf-8") as file:
        for i in range(options.problems):
            gold, chance = answer_of(i, 0), min(max(rng.gauss(skill, 0.3), 0), 1)
            for k in range(options.samples):
                tokens = min(int(rng.lognormvariate(5.5, 0.6)), 1024)
                start = rng.randrange(len(filler) // 2)
                text = filler[start : start + int(options.characters * rng.uniform(0.5, 1.5))]
                answer = gold if rng.random() < chance else answer_of(i, rng.choice(SPREAD))
                if tokens < 1024 and rng.random() > 0.02:
                    text += f" \\boxed{{{answer}}}."
                row = {
                    "schema": SCHEMA, "task": TASK, "problem": f"problem-{i:06d}", "sample": k,
                    "seed": rng.getrandbits(63), "response": text, "gold": gold,
                    "finish_reason": "length" if tokens == 1024 else "stop", "prompt_tokens": 90,
                    "response_tokens": tokens, "model": model, "fingerprint": mark,
                }  # fmt: skip
                file.write(dumps(row) + "\n")


SPREAD = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9)  # wrong answers, some far more common


def answer_of(problem: int, which: int) -> str:
    """The answer of a problem (0) or a wrong one, in the form of that problem."""
    n = 7 * problem % 1000 + which
    fraction, surd = f"\\frac{{{n}}}{{{problem % 9 + 2}}}", f"{n}\\sqrt{{{problem % 5 + 2}}}"
    return (str(n), fraction, surd, str(n), str(n))[problem % 5]


def make_run(folder: Path, method: str) -> None:
    """The least that `report` asks of a training run."""
    write_json(folder / "run.json", {
        "schema": SCHEMA, "kind": "training", "method": method, "seed": 0, "recipe": "scale",
        "status": "finished", "settings": {"name": "scale"}, "fingerprints": {}, "environment": {},
    })  # fmt: skip


def measured(*arguments: str) -> tuple[float, float]:
    """Wall seconds and peak resident MB of one `oar-bench` command."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "oar_bench", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"oar-bench {' '.join(arguments)} ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - start, usage.ru_maxrss * unit / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--characters", type=int, default=400, help="mean length of a response")
    parser.add_argument("--keep", type=Path, help="make the folders here and leave them")
    parser.add_argument("--limit-mb", type=float, default=1000)
    options = parser.parse_args()
    out = options.keep or Path(tempfile.mkdtemp(prefix="oar-bench-scale-"))
    runs = {name: out / "runs" / name / "seed-0" for name in ("grpo", "oar-p")}
    folders = {name: run / "eval" / TASK for name, run in runs.items()}
    try:
        for (name, folder), skill in zip(folders.items(), (0.5, 0.53), strict=True):
            make_run(runs[name], name)
            make_evaluation(folder, f"model-{name}", skill, options)
        size = (folders["grpo"] / "samples.jsonl").stat().st_size / 1e6
        print(f"{options.problems} problems x {options.samples} samples, {size:.0f} MB a model")
        worst = 0.0
        for label, arguments in (
            ("score, all to grade", ["score", str(folders["grpo"])]),
            ("score, all to grade", ["score", str(folders["oar-p"])]),
            ("score, aggregation only", ["score", str(folders["grpo"])]),
            ("compare", ["compare", *map(str, folders.values())]),
            ("report", ["report", str(out), "--out", str(out / "report")]),
        ):
            seconds, peak = measured(*arguments)
            worst = max(worst, peak)
            print(f"{label:<26}{seconds:8.1f} s {peak:8.0f} MB peak", flush=True)
        metrics = json.loads((folders["grpo"] / "results.json").read_text())["metrics"]
        print(f"votes: {metrics['maj_votes']}")
        return int(worst > options.limit_mb)
    finally:
        if options.keep is None:
            shutil.rmtree(out)


if __name__ == "__main__":
    sys.exit(main())
