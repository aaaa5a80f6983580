"""Our GRPO step and TRL's GRPOTrainer: seconds by phase and peak memory, side by side in one run.

    python benchmarks/training.py [--model FOLDER] [--lengths 32,64] [--group-sizes 4,8]

Both train the same checkpoint in one process, a step each in turn, whoever begins changing from
repeat to repeat; the first step of each is not timed. Both sample full-length responses (no early
end) to the same number of prompts, and every response gets an advantage, so that their work is the
same: loss `grpo`, one optimizer step, AdamW, no KL term, no pass for metrics. Micro-batches are of
`--micro-batch` rows in both.

TRL's phases: `rollout` is its `_generate`, `scoring` the rest of `_generate_and_score_completions`
(rewards, advantages), `update` what is left of a step. Ours: `scoring` is grading, advantages,
log-probabilities (none are needed here) and credit (none for grpo). Peak memory is taken in two
steps of each alone, in a process of its own: resident memory over what the process held when the
trainer was made (the model, not yet the optimizer's state). "ratio" is TRL's seconds over ours:
above 1 ours is faster. Without --model a Llama of tiny's sizes with random weights is made.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from oar_bench.answers import Grader
from oar_bench.config import load_recipe
from oar_bench.engines.hf import load_model
from oar_bench.overhead.phases import PhaseTimer, peak_memory_mb, reset_peak
from oar_bench.stages import numbers
from oar_bench.training.fixed import FixedSteps, still
from oar_bench.training.model import tiny_model, word_tokenizer
from oar_bench.training.trainer import Trainer

PHASES = ("rollout", "scoring", "update", "step")
Costs = dict[str, float]


def resident() -> float:
    return psutil.Process().memory_info().rss / 2**20


class Ours:
    """Steps of the built-in trainer."""

    def __init__(self, folder: Path, args: argparse.Namespace, length: int, group: int) -> None:
        recipe = load_recipe("tiny", {
            "model": {"threads": args.threads, "dtype": args.dtype},
            "train": {"micro_batch_size": args.micro_batch, "track": []},
        })  # fmt: skip
        recipe = still(recipe, args.prompts, group, length)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.trainer = Trainer(recipe, "grpo", 0, folder, device)
        self.grader = Grader(answer_type="exact")
        self.grader.__enter__()
        self.fixed = FixedSteps(self.trainer, self.grader, args.prompt_tokens, 4, [length])
        self.length, self.turn = length, 0

    def step(self) -> Costs:
        timer = PhaseTimer(self.turn)
        self.turn += 1
        self.fixed("grpo", self.length, timer)
        seconds = {row["phase"]: row["seconds"] for row in timer.rows}
        scoring = seconds["grading"] + seconds["logprobs"] + seconds["credit"]
        return {
            "rollout": seconds["rollout"], "scoring": scoring, "update": seconds["update"],
            "step": sum(seconds.values()),
            "peak": max(row["peak_memory_mb"] for row in timer.rows),
        }  # fmt: skip

    def prompt(self, number: int) -> str:
        ids = self.trainer.tokenizer(self.fixed._problems(number)[0].prompt)["input_ids"]
        count = self.fixed.prompt_tokens
        return str(self.trainer.tokenizer.decode((ids * count)[:count], skip_special_tokens=True))


class Timed(GRPOTrainer):
    """TRL's trainer, told apart by phase."""

    spent: defaultdict[str, float]

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        found = super()._generate(*args, **kwargs)
        self.spent["rollout"] += time.perf_counter() - start
        return found

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        found = super()._generate_and_score_completions(*args, **kwargs)
        self.spent["whole"] += time.perf_counter() - start
        return found


class Turns(TrainerCallback):
    """Runs one of our steps beside each of TRL's, before it or after it."""

    def __init__(self, ours: Callable[[], Costs] | None) -> None:
        self.ours, self.turn = ours, 0
        self.rows: list[dict[str, Any]] = []
        self.trainer: Any = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self.ours is not None and self.turn % 2 == 0:
            self._keep("ours", self.ours())
        self.trainer.spent = defaultdict(float)
        reset_peak()
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        whole, spent = time.perf_counter() - self.start, self.trainer.spent
        self._keep("trl", {
            "rollout": spent["rollout"], "scoring": spent["whole"] - spent["rollout"],
            "update": whole - spent["whole"], "step": whole,
            "peak": peak_memory_mb(),
        })  # fmt: skip
        if self.ours is not None and self.turn % 2:
            self._keep("ours", self.ours())
        self.turn += 1

    def _keep(self, name: str, costs: Costs) -> None:
        self.rows.append({"trainer": name, "turn": self.turn, **costs})


def trl_trainer(
    folder: Path, args: argparse.Namespace, ours: Ours, length: int, group: int, turns: Turns
) -> Timed:
    model, tokenizer = load_model(folder, args.dtype)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    rows = args.prompts * group
    micro = min(args.micro_batch, rows)
    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=micro, num_generations=group,
        gradient_accumulation_steps=rows // micro, max_completion_length=length,
        max_steps=args.repeats + 1, loss_type="grpo", beta=0.0, learning_rate=1e-20,
        temperature=1.0, report_to=[], bf16=False, use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True, save_strategy="no", logging_strategy="no", shuffle_dataset=False,
        generation_kwargs={"min_new_tokens": length}, gradient_checkpointing=False,
    )  # fmt: skip

    def reward(completions: list[str], **_: Any) -> list[float]:
        for text in completions:  # graded as ours are; the reward is set, so that work is equal
            ours.grader.grade(text, "7 7 7 7")
        return [float(i % 2) for i in range(len(completions))]

    data = Dataset.from_list([{"prompt": ours.prompt(i)} for i in range(args.prompts * 8)])
    trainer = Timed(
        model, reward, settings, data, processing_class=tokenizer, callbacks=[turns]
    )  # fmt: skip
    turns.trainer = trainer
    return trainer


def measure(folder: Path, args: argparse.Namespace, length: int, group: int) -> pd.DataFrame:
    ours = Ours(folder, args, length, group)
    turns = Turns(ours.step)
    trl_trainer(folder, args, ours, length, group, turns).train()
    ours.grader.__exit__(None, None, None)
    rows = pd.DataFrame(turns.rows)
    rows = rows[rows["turn"] > 0].assign(length=length, group=group)
    context = mp.get_context("spawn")
    for name in ("ours", "trl"):
        queue = context.Queue()
        process = context.Process(target=alone, args=(name, folder, args, length, group, queue))
        process.start()
        rows.loc[rows["trainer"] == name, "memory"] = queue.get()
        process.join()
    return rows


def alone(
    name: str, folder: Path, args: argparse.Namespace, length: int, group: int, queue: Any
) -> None:
    """Two steps of one trainer in this process; its peak over what it held at their beginning."""
    ours = Ours(folder, args, length, group)
    if name == "ours":
        before = resident()
        peaks = [ours.step()["peak"] for _ in range(2)]
    else:
        turns = Turns(None)
        args.repeats = 1
        trainer = trl_trainer(folder, args, ours, length, group, turns)
        ours.trainer.model.to("meta")  # what isn't used here is let go
        before = resident()
        trainer.train()
        peaks = [row["peak"] for row in turns.rows]
    queue.put(max(peaks) - before)


def table(rows: pd.DataFrame) -> str:
    lines = [
        "| length | group | phase | ours s | TRL s | ratio | ours MiB | TRL MiB |",
        "|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for (length, group), part in rows.groupby(["length", "group"]):
        for phase in PHASES:
            seconds = {n: part[part["trainer"] == n][phase].tolist() for n in ("ours", "trl")}
            mine, theirs = (statistics.median(seconds[n]) for n in ("ours", "trl"))
            # Within a turn, so that a machine that slows down doesn't decide.
            pairs = [b / a for a, b in zip(seconds["ours"], seconds["trl"], strict=True) if a > 0]
            ratio = f"{statistics.median(pairs):.2f}" if pairs else "-"
            memory = ["", ""]
            if phase == "step":
                memory = [
                    f"{part[part['trainer'] == n]['memory'].median():.0f}" for n in ("ours", "trl")
                ]
            lines.append(
                f"| {length} | {group} | {phase} | {mine:.3f} | {theirs:.3f} | {ratio} | "
                f"{memory[0]} | {memory[1]} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--lengths", type=numbers, default=[32, 64])
    parser.add_argument("--group-sizes", type=numbers, default=[8])
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=20)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.model
        if folder is None:
            folder = Path(temporary)
            tokenizer = word_tokenizer()
            tiny_model(load_recipe("tiny").model, tokenizer, 0).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        parts = [
            measure(folder, args, length, group)
            for length in args.lengths
            for group in args.group_sizes
        ]
    print(table(pd.concat(parts)))


if __name__ == "__main__":
    main()
