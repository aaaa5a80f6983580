"""The commands that train: `oar-bench reproduce` and `oar-bench train`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from oar_bench.cli_evaluation import DataDir, Seed, Set
from oar_bench.cli_watch import Log, trackers
from oar_bench.errors import InputError
from oar_bench.stages import (
    Reproduction,
    data_changes,
    run_reproduction,
    split_words,
    this_command,
)

Steps = Annotated[int | None, typer.Option(min=1, help="Training steps, instead of the recipe's.")]


def reproduce(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (tiny) or a YAML file.")],
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Train each method under so many seeds; default the recipe's."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Such as grpo,oar-p,shuffled, separated by commas; default the recipe's."
        ),
    ] = None,
    steps: Steps = None,
    data_dir: DataDir = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of runs and report; default results/RECIPE.")
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Every stage in under a minute; numbers mean nothing.")
    ] = False,
    log: Log = None,
) -> None:
    """Train, evaluate and report, in one command. Run it again to resume.

    Examples:

      oar-bench reproduce tiny

      oar-bench reproduce tiny --methods grpo,oar-p,inverted --seeds 5 --out results/inverted

      oar-bench reproduce tiny --smoke --out /tmp/smoke

      oar-bench reproduce tiny-credit
    """
    asked = Reproduction(
        split_words(methods, "--methods") if methods is not None else None, seeds, steps,
        this_command(), data_dir, trackers(log),
    )  # fmt: skip
    if smoke:
        if recipe not in ("tiny", "smoke"):
            raise InputError("it runs a recipe of its own", "--smoke", "give it with recipe tiny")
        recipe = "smoke"
    run_reproduction(recipe, asked, out)


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (tiny) or a YAML file.")],
    method: Annotated[
        str, typer.Option(help="grpo, uniform, oar-p, oar-g, shuffled, ...")
    ] = "grpo",
    seed: Seed = 0,
    steps: Steps = None,
    data_dir: DataDir = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default runs/RECIPE/METHOD/seed-SEED.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run begun before.")
    ] = False,
    rollouts: Annotated[
        Path | None,
        typer.Option(help="Learn from the responses of this rollouts.jsonl; nothing is sampled."),
    ] = None,
    changes: Set = None,
    log: Log = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check data and model and say what it would cost.")
    ] = False,
    tflops: Annotated[
        float,
        typer.Option(min=0.001, help="For --dry-run: the device's 10^12 operations a second."),
    ] = 400.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="For --dry-run: print JSON for scripts.")
    ] = False,
) -> None:
    """Train one method under one seed. `oar-bench watch RUN` follows it from another terminal.

    Examples:

      oar-bench train tiny --method oar-p --seed 1

      oar-bench train tiny --method oar-p --seed 1 --resume

      oar-bench train tiny --log tensorboard

      oar-bench train tiny --method oar-g --rollouts runs/tiny/grpo/seed-0/rollouts.jsonl

      oar-bench train tiny --set train.lr=1e-4 --set train.loss_type=dapo

      oar-bench train my.yaml --data-dir DIR

      accelerate launch --multi_gpu --num_processes 2 -m oar_bench train tiny

      oar-bench train qwen2.5-math-7b-oar --method oar-g --dry-run
    """
    from oar_bench.config import changes_of, check_method, load_recipe
    from oar_bench.training.processes import joined

    with joined() as processes:
        sets = [*(changes or ()), *([] if steps is None else [f"train.steps={steps}"])]
        chosen = load_recipe(recipe, {**changes_of(sets), **data_changes(data_dir)})
        if data_dir is not None and chosen.data is None:
            raise InputError("the recipe trains on built-in problems", "--data-dir", "leave it out")
        check_method(method, "--method")
        replay = None
        if rollouts is not None:
            from oar_bench.training.replay import Replay

            replay = Replay.of_run(rollouts, chosen)  # here, so that it is checked before all else
        if dry_run:
            from oar_bench.training.dry_run import as_text, estimate

            replayed = replay is not None
            found = processes.by_first(
                lambda: estimate(chosen, method, seed, tflops, replayed=replayed)
            )
            if processes.is_first:
                print(json.dumps(found, indent=2) if as_json else as_text(found))
            return
        to = trackers(log)
        folder = out or Path("runs") / chosen.name / method / f"seed-{seed}"
        from oar_bench.console import Progress
        from oar_bench.monitor.live import training_report
        from oar_bench.reproduce import starting_point
        from oar_bench.training.run import refuse_begun
        from oar_bench.training.trainer import train as run

        processes.by_first(lambda: refuse_begun(folder, resume=resume))
        console = Progress()
        start = processes.by_first(lambda: starting_point(chosen, seed, console))
        name = f"{method}, seed {seed}"
        with ExitStack() as shown:
            given: dict[str, Any] = {}
            if processes.is_first:
                told = training_report(console, name, folder, chosen.train.steps, to)
                given["report"] = shown.enter_context(told)
            final = run(
                chosen, method, seed, start, folder, resume=resume, rollouts=replay,
                processes=processes, **given,
            )  # fmt: skip
        if processes.is_first:
            print(final)
