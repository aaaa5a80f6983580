"""`oar-bench reproduce`: every stage from nothing to a report, each resumed where it was.

OUT/reproduce.json       what was asked
OUT/runs/METHOD/seed-S/  training runs, each with eval/TASK/
OUT/start/eval/TASK/     the warm start that all runs begin from, evaluated the same way
                         (OUT/start/seed-S/eval/TASK/ where each seed has its own)
OUT/credit_example.json  one response's tokens with the weights of OAR-P and OAR-G
OUT/report.md, index.html, tables/, figures/
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oar_bench.config import Recipe, check_method
from oar_bench.console import Console
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import HFEngine, load_model, sample
from oar_bench.engines.tokens import encode
from oar_bench.errors import InputError
from oar_bench.evaluation.generate import generate, sampling_of
from oar_bench.evaluation.score import score
from oar_bench.identity import differing, fingerprint, fingerprint_checkpoint
from oar_bench.integrations.responses import Grading
from oar_bench.monitor.live import training_report
from oar_bench.records import (
    SCHEMA,
    owned,
    prints_of,
    read_json,
    read_jsonl,
    refuse_foreign,
    write_json,
)
from oar_bench.tasks.chat import chat_template_of
from oar_bench.tasks.registry import LoadedTask, Prompting, load_task
from oar_bench.training.run import RunFolder
from oar_bench.training.token_credit import token_credit
from oar_bench.training.trainer import train
from oar_bench.training.warmstart import warm_start

EXAMPLE_METHODS = ("oar-p", "oar-d", "oar-g")


def evaluate_checkpoint(
    checkpoint: Path, task: LoadedTask, recipe: Recipe, folder: Path, console: Console, name: str
) -> dict[str, Any]:
    """Evaluate a checkpoint with the recipe's settings into `folder`; nothing when it is done."""
    results = folder / "results.json"
    if _is_complete(results):
        return read_json(results)
    settings = recipe.evaluation
    engine = HFEngine.load(checkpoint, settings.batch_size)
    sampling = sampling_of(
        task, temperature=settings.temperature, top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
    )  # fmt: skip
    with console.stage(f"evaluate {name}", settings.problems * settings.samples) as tick:
        generate(
            engine, name, fingerprint_checkpoint(checkpoint), task, folder,
            samples=settings.samples, sampling=sampling,
            progress=lambda done, wanted: tick(done, ""),
        )  # fmt: skip
        found = score(folder)
        tick(settings.problems * settings.samples, "")
    return found


def reproduce(
    recipe: Recipe, methods: list[str], seeds: list[int], out: Path, command: list[str],
    console: Console, log: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Train, evaluate and report every method under every seed; returns the folder `out`.

    What is finished is left as it is; a killed run goes on at its stage and step. `log` names
    trackers that get the steps made now.

    Raises:
        InputError: an unknown method or task, or `out` holds a reproduction with other settings.
    """
    from oar_bench.reporting.report import write_report

    for method in methods:
        check_method(method, "--methods")
    refuse_foreign(out, "reproduce.json")
    with owned(out):
        _claim(recipe, methods, seeds, out, command)
        runs = [(method, seed) for seed in seeds for method in methods]
        if _is_done(recipe, runs, out):
            return out
        task = load_task(
            recipe.evaluation.task, limit=recipe.evaluation.problems, prompting=_prompting(recipe)
        )
        evaluation = Path("eval") / task.name
        starts: dict[Path, Path] = {}

        def start_of(seed: int) -> Path:
            """The checkpoint that a seed begins from, evaluated; asked for once."""
            folder = _start_folder(recipe, seed, out)
            if folder not in starts:
                start = starting_point(recipe, seed, console)
                evaluate_checkpoint(start, task, recipe, folder / evaluation, console, "start")
                starts[folder] = start
            return starts[folder]

        for method, seed in runs:
            folder = _run_folder(out, method, seed)
            if not _is_complete(_results(_start_folder(recipe, seed, out), recipe)):
                start_of(seed)
            if _is_evaluated(folder, recipe):
                continue  # also when its checkpoints were removed to save space
            name = f"{method}, seed {seed}"
            first = _first_rollouts(out, methods, method, seed)
            final = _train(recipe, method, seed, start_of(seed), folder, console, name, log, first)
            evaluate_checkpoint(final, task, recipe, folder / evaluation, console, name)
        example = out / "credit_example.json"
        if not example.exists():
            folder = _start_folder(recipe, seeds[0], out) / evaluation
            write_json(example, credit_example(start_of(seeds[0]), recipe, folder))
        with console.stage("report", 1) as tick:
            write_report(out, out)
            tick(1, "")
    return out


def _first_rollouts(out: Path, methods: Sequence[str], method: str, seed: int) -> Path | None:
    """The responses of the seed's first run, if it isn't this one: step 1 is paired by them."""
    file = _run_folder(out, methods[0], seed) / "rollouts.jsonl"
    return file if method != methods[0] and file.is_file() else None


def _prompting(recipe: Recipe) -> Prompting:
    """Evaluation asks as training does: through the chat template, with the system prompt."""
    folder = Path(recipe.data_dir) if recipe.data_dir else None
    data = recipe.data
    if data is None or not data.chat_template:
        return Prompting(folder)
    template = chat_template_of(Path(str(recipe.model.path)))
    return Prompting(folder, chat_template=template, system=data.system)


def _run_folder(out: Path, method: str, seed: int) -> Path:
    return out / "runs" / method / f"seed-{seed}"


def _start_folder(recipe: Recipe, seed: int, out: Path) -> Path:
    """Where the evaluation of a seed's start lies."""
    shared = recipe.of_seed(seed) is recipe
    return out / "start" if shared else out / "start" / f"seed-{seed}"


def _is_evaluated(folder: Path, recipe: Recipe) -> bool:
    """Whether a run is trained to its end and all its samples are scored."""
    return RunFolder(folder).is_finished() and _is_complete(_results(folder, recipe))


def _results(folder: Path, recipe: Recipe) -> Path:
    return folder / "eval" / recipe.evaluation.task / "results.json"


def _is_complete(results: Path) -> bool:
    """Whether an evaluation's results are there and cover all its samples."""
    return results.is_file() and bool(read_json(results).get("complete"))


def _is_done(recipe: Recipe, runs: list[tuple[str, int]], out: Path) -> bool:
    """Whether every run is trained and evaluated, and the report newer than all of them."""
    report = out / "index.html"
    whole = (out / name for name in ("credit_example.json", "report.md", "tables", "figures"))
    if not report.is_file() or not all(path.exists() for path in whole):
        return False
    folders = [_run_folder(out, method, seed) for method, seed in runs]
    starts = list(dict.fromkeys(_start_folder(recipe, seed, out) for _, seed in runs))
    results = [_results(folder, recipe) for folder in (*starts, *folders)]
    return (
        all(_is_evaluated(folder, recipe) for folder in folders)
        and all(_is_complete(_results(folder, recipe)) for folder in starts)
        and all(path.stat().st_mtime_ns <= report.stat().st_mtime_ns for path in results)
    )


def starting_point(recipe: Recipe, seed: int, console: Console) -> Path:
    """The checkpoint that a seed's runs begin from: the recipe's own, or a (cached) warm start."""
    recipe = recipe.of_seed(seed)
    if recipe.model.path is not None:
        load_model(recipe.model.path)  # says what is wrong with it before anything is written
        return Path(recipe.model.path)
    total = recipe.warmstart.max_steps if recipe.warmstart else 1
    with console.stage("warm start", total) as tick:
        return warm_start(
            recipe, lambda step, cap, accuracy: tick(step, f"accuracy {accuracy:.2f}")
        )


def _train(
    recipe: Recipe, method: str, seed: int, start: Path, folder: Path, console: Console, name: str,
    log: Sequence[str], first: Path | None,
) -> Path:  # fmt: skip
    """Train one run, or go on with it; nothing is drawn for one that is finished."""
    run = RunFolder(folder)
    if run.is_finished():
        return train(recipe, method, seed, start, folder, resume=True)
    with training_report(console, name, folder, recipe.train.steps, log, brief=True) as report:
        return train(recipe, method, seed, start, folder, resume=True, report=report, first=first)


def _claim(
    recipe: Recipe, methods: list[str], seeds: list[int], out: Path, command: list[str]
) -> None:
    """Write reproduce.json; an existing one must be of the same recipe (methods may be added)."""
    from oar_bench.reporting.history import commands_of

    file = out / "reproduce.json"
    settings = {k: v for k, v in recipe.settings().items() if k != "reproduce"}
    wanted: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "reproduction",
        "recipe": recipe.name,
        "methods": methods,
        "seeds": seeds,
        "commands": [{"command": shlex.join(command), "methods": methods, "seeds": seeds}],
        "smoke": recipe.name == "smoke",
        "fingerprints": {"settings": fingerprint(settings)},
    }
    if file.exists():
        before = read_json(file)
        if differing(wanted["fingerprints"], prints_of(before, file)):
            raise InputError(
                "this folder holds a reproduction with other settings", str(out),
                "choose another --out, or repeat a command of its reproduce.json",
            )  # fmt: skip
        added = wanted["commands"][0]
        for key in ("methods", "seeds"):
            listed = before.get(key)
            if not isinstance(listed, list):
                raise InputError(f"{key} is no list", str(file), "choose another --out")
            added[key] = [item for item in wanted[key] if item not in listed]
            wanted[key] = [*listed, *added[key]]
        if not added["methods"] and not added["seeds"]:
            return
        wanted["commands"] = [*commands_of(before), added]
    write_json(file, wanted)


def credit_example(checkpoint: Path, recipe: Recipe, evaluation: Path) -> dict[str, Any]:
    """One right response of the warm start with its tokens' importances and weights by method."""
    model, tokenizer = load_model(checkpoint)
    prompts = {row["problem"]: row["prompt"] for row in read_jsonl(evaluation / "problems.jsonl")}
    right = {
        (r["problem"], r["sample"]) for r in read_jsonl(evaluation / "scores.jsonl") if r["correct"]
    }
    rows = list(read_jsonl(evaluation / "samples.jsonl"))
    chosen = next((r for r in rows if (r["problem"], r["sample"]) in right), rows[0])
    prompt = encode(tokenizer, prompts[chosen["problem"]])
    # Sampling is keyed: the same seed gives the very ids again, so no text is re-tokenised.
    generation = read_json(evaluation / "generation.json")
    settings = generation["sampling"]
    sampling = Sampling(**{**settings, "stop": tuple(settings["stop"])})
    [response] = sample(model, tokenizer, [prompt], [chosen["seed"]], sampling).responses
    found = token_credit(
        model, tokenizer, prompt, response, chosen["response"], chosen["seed"], EXAMPLE_METHODS,
        recipe.credit, **Grading.of(generation["grading"])._asdict(),
    )  # fmt: skip
    return {
        "schema": SCHEMA,
        "model": "start",
        "prompt": prompts[chosen["problem"]],
        "response": chosen["response"],
        "gold": chosen["gold"],
        **{key: found[key] for key in ("pieces", "sections", "methods")},
    }
