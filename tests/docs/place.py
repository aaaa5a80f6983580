"""The folder in which the documents' commands are run: what their placeholders stand for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from oar_bench.config import Recipe
from oar_bench.console import Progress
from oar_bench.reproduce import reproduce
from tests.docs.commands import ROOT

IMPORTS = ROOT / "tests" / "importing" / "data"
TABLE = "model,task,value,n\nsomebody,oar_sum,0.5,24\n"
ROWS = '{"id": "a", "response": "so 7 ; #### 7", "gold": "7"}\n'
ONE = {"base": "smoke", "train": {"steps": 1}, "reproduce": {"methods": ["grpo"], "seeds": 1}}


MINE = {"name": "mine", "data": {"name": "gsm8k"}, "model": {"path": "SmolLM2-135M-Instruct"}}


def problem(i: int) -> str:
    """A row of a set of problems, with its worked solution."""
    row = {"id": f"p{i}", "problem": f"Tom has {i} figs and buys {i + 3} more. How many has he?",
           "solution": f"He has {i} + {i + 3} = {2 * i + 3} figs.\n#### {2 * i + 3}",
           "answer": str(2 * i + 3)}  # fmt: skip
    return json.dumps(row) + "\n"


def furnish(place: Path, smoke: Recipe, start: Path, byte_model: Path) -> None:
    """Make what a reader of the documents would have, from one smoke reproduction."""
    methods = ["grpo", "oar-p", "oar-g", "shuffled"]
    made = reproduce(smoke, methods, [0, 1], place / "results" / "smoke", ["docs"], Progress())
    for copy in ("results/tiny", "results/mine", "OUT"):
        shutil.copytree(made, place / copy)
    shutil.copytree(made / "runs", place / "runs" / "tiny")
    run = place / "OUT" / "runs" / "grpo" / "seed-0"
    checkpoint, evaluation = sorted((run / "checkpoints").glob("step-*"))[-1], run / "eval"
    links = {
        "RUN": run, "CHECKPOINT": checkpoint, "MODEL": checkpoint, "TINY_SIZED": checkpoint,
        "EVAL": evaluation / "oar_sum", "FOLDER": evaluation / "oar_sum", "WARM_START": start,
        "SmolLM2-135M-Instruct": byte_model, "benchmarks": ROOT / "benchmarks",
        "lm-eval-output": IMPORTS / "lm-eval", "logs/gsm8k.eval": IMPORTS / "inspect_ai/sums.eval",
        "lighteval-output": IMPORTS / "lighteval", "baselines": ROOT / "baselines",
    }  # fmt: skip
    (place / "logs").mkdir()
    for name, target in links.items():
        (place / name).symlink_to(target)
    for name in ("evaluations/model/oar_sum", "A/TASK", "B/TASK"):
        shutil.copytree(evaluation / "oar_sum", place / name)
    (place / "DIR" / "gsm8k").mkdir(parents=True)
    for split in ("train", "test"):
        (place / "DIR" / "gsm8k" / f"{split}.jsonl").write_text("".join(map(problem, range(1319))))
    (place / "leaderboard.csv").write_text(TABLE)
    (place / "FILE").write_text(ROWS)
    for name in ("one", "two"):
        (place / f"{name}.yaml").write_text(yaml.safe_dump({**ONE, "name": name}))
    (place / "mine.yaml").write_text(yaml.safe_dump(MINE))
    both = {"name": "both", "recipes": [str(place / "one.yaml"), str(place / "two.yaml")]}
    (place / "both.yaml").write_text(yaml.safe_dump(both))
