"""Time and peak memory of score, compare and report on results folders of many samples.

    python benchmarks/scale.py [--problems 10000] [--samples 64] [--characters 400] [--keep DIR]
    python benchmarks/scale.py --models 20 --tasks 7 --problems 1000 [--samples 64]

Two models with that many samples each, as `generate` writes them (responses of 100 to 600 words
that end in a box; integers, fractions and algebra; every problem has some truncated and some empty
ones). Each command runs in a process of its own, whose peak resident memory the kernel keeps.
`score` is run twice: grading every sample, and again with nothing to grade (aggregation only).
With --models, so many models on --tasks tasks are made with their verdicts (nothing is graded) and
reported twice: from the rows, and with the tallies that the first report kept beside them. Memory
is that of the command and of the processes that it starts, together. Exits with 1 when a command
took more than --limit-mb.
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
from contextlib import suppress
from pathlib import Path

import psutil

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


STATUSES = ("correct", "wrong", "no_answer", "truncated")


def make_verdicts(folder: Path, task: str, model: str, options: argparse.Namespace) -> None:
    """An evaluation as `score` leaves it: problems, samples, scores, results."""
    rng = random.Random(f"{model} {task}")
    prints = {"task": "t", "data": task, "prompt": "p", "sampling": "s", "model": model}
    mark = fingerprint(prints)
    counts, tokens, n = dict.fromkeys(STATUSES, 0), 0, options.problems * options.samples
    folder.mkdir(parents=True)
    with (folder / "problems.jsonl").open("w", encoding="utf-8") as file:
        for i in range(options.problems):
            file.write(dumps({
                "schema": SCHEMA, "problem": f"{task}-{i:06d}", "gold": answer_of(i, 0),
                "prompt": f"Problem {i}. {SENTENCE}", "level": i % 5 + 1,
                "subject": f"subject {i % 7}",
            }) + "\n")  # fmt: skip
    samples = (folder / "samples.jsonl").open("w", encoding="utf-8")
    scores = (folder / "scores.jsonl").open("w", encoding="utf-8")
    filler = SENTENCE * 200
    with samples, scores:
        for i in range(options.problems):
            chance, gold = min(max(rng.gauss(0.5, 0.3), 0), 1), json.dumps(answer_of(i, 0))
            wrong = json.dumps(answer_of(i, 1))
            for k in range(options.samples):
                draw = rng.random()
                right = draw < chance
                status = "correct" if right else STATUSES[1 + (draw > 0.9) + (draw > 0.95)]
                counts[status] += 1
                start, length = rng.randrange(len(filler) // 2), rng.randrange(100, 1000)
                tokens += length
                answer = gold if right else wrong
                # by hand: a row made by json.dumps takes five times as long
                own = f'{{"schema": {SCHEMA}, "task": "{task}", "problem": "{task}-{i:06d}", ' \
                      f'"sample": {k}, '  # fmt: skip
                text = filler[start : start + int(options.characters * rng.uniform(0.5, 1.5))]
                samples.write(
                    f'{own}"seed": 1, "response": "{text}", "gold": {gold}, "finish_reason": '
                    f'"stop", "prompt_tokens": 90, "response_tokens": {length}, '
                    f'"model": "{model}", "fingerprint": "{mark}"}}\n'
                )
                scores.write(
                    f'{own}"status": "{status}", "correct": {str(right).lower()}, "extracted": '
                    f'{answer}, "how": "boxed", "stage": "exact", "milliseconds": 0.1, '
                    f'"grader": "g", "model": "{model}", "fingerprint": "{mark}"}}\n'
                )
    write_json(folder / "results.json", {
        "schema": SCHEMA, "kind": "evaluation", "task": task, "model": model, "settings": {},
        "metrics": {"n_samples": n, "statuses": counts, "avg@k": {"value": counts["correct"] / n},
                    "truncated": counts["truncated"] / n, "no_answer": counts["no_answer"] / n,
                    "response_tokens": tokens / n, "equal_completions": 0.0},
        "fingerprints": {**prints, "grader": "g"}, "environment": {},
    })  # fmt: skip


def report_at_scale(out: Path, options: argparse.Namespace) -> float:
    """Make the models' verdicts and report them; the largest peak in MB."""
    for place in range(options.models):
        name = "grpo" if place == 0 else f"model-{place:02d}"
        make_run(out / "runs" / name / "seed-0", name)
        for number in range(options.tasks):
            task = f"task-{number}"
            make_verdicts(out / "runs" / name / "seed-0" / "eval" / task, task, name, options)
    rows = options.models * options.tasks * options.problems * options.samples
    files = [path.stat().st_size for path in out.rglob("*.jsonl")]
    print(f"{options.models} models x {options.tasks} tasks x {options.problems} problems x "
          f"{options.samples} samples: {rows:,} rows, {sum(files) / 1e9:.1f} GB")  # fmt: skip
    time.sleep(3)  # so that the files have settled, as they have where somebody reports later
    worst = 0.0
    for label in ("report, from the rows", "report, from tallies"):
        seconds, busy, peak = measured("report", str(out), "--out", str(out / "report"))
        worst = max(worst, peak)
        size = (out / "report" / "index.html").stat().st_size / 1e6
        print(f"{label:<26}{seconds:8.1f} s {busy:8.1f} s of CPU {peak:8.0f} MB peak, "
              f"page {size:.1f} MB", flush=True)  # fmt: skip
    return worst


def measured(*arguments: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds, peak resident MB of one `oar-bench` command with its processes."""
    start, peak = time.perf_counter(), 0.0
    process = subprocess.Popen(
        [sys.executable, "-m", "oar_bench", *arguments], stdout=subprocess.DEVNULL
    )
    parent, ended = psutil.Process(process.pid), 0
    while not ended:
        with suppress(psutil.Error):
            every = [parent, *parent.children(recursive=True)]
            peak = max(peak, sum(one.memory_info().rss for one in every) / 1e6)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"oar-bench {' '.join(arguments)} ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    # the kernel keeps the peak of the largest process, the looks that of all together
    peak = max(peak, usage.ru_maxrss * unit / 1e6)
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--characters", type=int, default=400, help="mean length of a response")
    parser.add_argument("--models", type=int, help="report so many models, without grading")
    parser.add_argument("--tasks", type=int, default=7, help="with --models")
    parser.add_argument("--keep", type=Path, help="make the folders here and leave them")
    parser.add_argument("--limit-mb", type=float, default=1000)
    options = parser.parse_args()
    out = options.keep or Path(tempfile.mkdtemp(prefix="oar-bench-scale-"))
    if options.models:
        try:
            return int(report_at_scale(out, options) > options.limit_mb)
        finally:
            if options.keep is None:
                shutil.rmtree(out)
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
            seconds, busy, peak = measured(*arguments)
            worst = max(worst, peak)
            print(
                f"{label:<26}{seconds:8.1f} s {busy:8.1f} s of CPU {peak:8.0f} MB peak", flush=True
            )
        metrics = json.loads((folders["grpo"] / "results.json").read_text())["metrics"]
        print(f"votes: {metrics['maj_votes']}")
        return int(worst > options.limit_mb)
    finally:
        if options.keep is None:
            shutil.rmtree(out)


if __name__ == "__main__":
    sys.exit(main())
