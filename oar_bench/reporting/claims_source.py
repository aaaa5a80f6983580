"""The evidence on claims: from runs, and from measurements of overhead and fidelity beside them."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, cast

import numpy as np
import pandas as pd

from oar_bench.claims.evidence import Cell, Commands, Costs, Evidence, Masses, Ranks, Scores
from oar_bench.config import shipped_recipes
from oar_bench.errors import InputError
from oar_bench.evaluation.metrics import avg_at_k
from oar_bench.evaluation.statistics import Floats
from oar_bench.records import read_json
from oar_bench.reporting.costs import replays, step_seconds, weights
from oar_bench.reporting.evaluations import need
from oar_bench.reporting.fidelity_table import problem_means
from oar_bench.reporting.frames import Collection, LeftOut, Run
from oar_bench.reporting.history import Made, made_by, out_of
from oar_bench.reporting.likeness import allowed
from oar_bench.reporting.overhead import STEP, table
from oar_bench.reporting.text import visible

FILES = ("overhead.json", "fidelity.json")
SECTION = "evidence"
"""What `--allow` calls the fields that measurements and runs must agree in: evidence.model, ..."""
OF_CREDIT = ("probe", "pfinal", "replacement", "sigma", "sigma_scale", "noise_draws",
             "fisher_top_k", "mediator_count", "mediators", "span", "exact_share")  # fmt: skip
SIZES = ("layers", "hidden", "heads", "intermediate")


@dataclass(frozen=True)
class Gathered:
    """The evidence, the measurements left out of it and why, and the differences allowed.

    `made` are the commands that measured what lies beside the runs.
    """

    evidence: Evidence
    left_out: list[LeftOut] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)


def about_evidence(word: str) -> bool:
    """Whether a word of `--allow` is about measurements beside the runs.

    >>> about_evidence("evidence.model"), about_evidence("train.lr")
    (True, False)
    """
    return word.partition(".")[0] == SECTION


def beside(out: Path) -> list[Path]:
    """The measurements in a reproduction's folder, or in a folder of it."""
    return sorted(path for name in FILES for path in (*out.glob(name), *out.glob(f"*/{name}")))


def named(places: Iterable[Path]) -> list[Path]:
    """The measurements in the places that `--evidence` names: files, folders, folders of these.

    Raises:
        InputError: there is none.
    """
    found = []
    for place in places:
        files = [place] if place.name in FILES and place.is_file() else beside(place)
        if not files:
            raise InputError(
                f"no {' or '.join(FILES)} here", f"--evidence {place}",
                "give the --out of `oar-bench overhead` or `oar-bench credit fidelity`",
            )  # fmt: skip
        found += files
    return found


def gather(
    collection: Collection, out: Path, places: Sequence[Path] = (), allow: Names[str] = ()
) -> Gathered:
    """The evidence of a reproduction: its runs, what lies beside them in `out`, and in `places`.

    A measurement of another model or other credit settings than the runs' is refused when it was
    named, and left out when it was only found; `--allow evidence.FIELD` takes it all the same.

    Raises:
        InputError: a broken file, or one of `places` holds nothing or is unlike the runs.
    """
    asked = {path.resolve(): path for path in named(places)}
    paths = {**{path.resolve(): path for path in beside(out)}, **asked}
    ranks, costs, left_out, notes, made = [], [], [], [], []
    for real, path in paths.items():
        about = read_json(path)
        label = f"{path.parent.name}/{path.name}"
        for name, theirs, mine in unlike(about, path, collection):
            said = f"{name} is {theirs} in {label} but {mine} in the runs"
            if allowed(name, allow):
                notes.append(said)
                continue
            if real in asked:
                raise InputError(
                    f"unlike evidence: {said}", f"--evidence {path}",
                    f"measure the runs' own, or add --allow {name}",
                )  # fmt: skip
            left_out.append(LeftOut(label, f"unlike the runs: {said}"))
            break
        else:
            try:
                if about.get("kind") == "fidelity":
                    ranks.append(_ranks(about, path))
                else:
                    costs.append(_bench(about, path))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InputError(
                    f"not as oar-bench writes it ({type(error).__name__}: {error})", str(path),
                    "measure again",
                ) from error  # fmt: skip
            if about.get("command"):
                place = out_of(collection.reproduce)
                made.append(made_by(str(about["command"]), real.parent, out.resolve(), place))
    first = collection.runs[0]
    return Gathered(
        Evidence(
            control_of=str(_credit(first).get("control_of", "oar-p")),
            scores=[_scores(collection, task) for task in collection.tasks],
            costs=[*costs, *_training(collection)],
            ranks=ranks,
            masses=_masses(collection),
            commands=_commands(collection),
        ),
        left_out,
        notes,
        made,
    )


def unlike(
    about: Mapping[str, Any], path: Path, collection: Collection
) -> Iterable[tuple[str, str, str]]:
    """(field, value there, value in the runs) of everything that doesn't fit the runs."""
    prints = need(about, "fingerprints", path)
    model = str(prints.get("model")) if isinstance(prints, Mapping) else "None"
    run = collection.runs[0]
    if model not in _models(collection) and not _same_sizes(about, run):
        yield f"{SECTION}.model", model, "none of theirs"
    fidelity = about.get("kind") == "fidelity"
    there = about.get("settings") if fidelity else (about.get("recipe") or {}).get("credit")
    here = _credit(run)
    for key in OF_CREDIT:
        if isinstance(there, Mapping) and key in there and key in here and there[key] != here[key]:
            yield f"{SECTION}.credit.{key}", str(there[key]), str(here[key])


def _models(collection: Collection) -> set[str]:
    """Fingerprints of the weights that the runs began from and ended with."""
    evaluations = [e for run in collection.runs for e in run.evaluations.values()]
    evaluations += [e for starts in collection.start.values() for e in starts.values()]
    found = {str(run.fingerprints.get("start")) for run in collection.runs}
    return (found | {str(e.fingerprints.get("model")) for e in evaluations}) - {"None"}


def _same_sizes(about: Mapping[str, Any], run: Run) -> bool:
    """Whether costs were measured on random weights of the runs' own sizes: costs don't depend on
    what the weights are."""
    settings, recipe = about.get("settings"), about.get("recipe")
    if about.get("kind") != "overhead" or not isinstance(settings, Mapping):
        return False
    if not isinstance(recipe, Mapping) or Path(str(settings.get("model"))).stem != str(
        settings.get("recipe")
    ):
        return False  # a checkpoint's sizes aren't those of a recipe
    there, here = recipe.get("model") or {}, run.settings.get("model") or {}
    return all(here.get(key) is not None and there.get(key) == here[key] for key in SIZES)


def _credit(run: Run) -> Mapping[str, Any]:
    found = run.settings.get("credit")
    return found if isinstance(found, Mapping) else {}


def _scores(collection: Collection, task: str) -> Scores:
    found: dict[str, dict[int, Floats]] = {}
    runs = [run for run in collection.runs if task in run.evaluations]
    for run in sorted(runs, key=lambda run: run.seed):
        of = found.setdefault(run.method, {})
        of[run.seed] = avg_at_k(run.evaluations[task].matrix.values)
    return Scores(
        task, found,
        unseeded={run.method for run in runs if not run.seed_known},
        numbers={item.where.partition("/")[0] for item in collection.left_out
                 if item.stated is not None and item.stated.task == task},
    )  # fmt: skip


def _training(collection: Collection) -> list[Costs]:
    """Median seconds of a step and of its phases, by training seed; of a replay its phases alone,
    since a step that samples nothing is no whole one."""
    cells: dict[tuple[str, str], dict[int, float]] = {}
    for run in collection.runs:
        if not len(run.timing):
            continue
        steps = step_seconds(run)
        for phase in steps.columns:
            of = cells.setdefault((run.method, str(phase)), {})
            of[run.seed] = float(steps[phase].median())
        if not replays(run):
            cells.setdefault((run.method, STEP), {})[run.seed] = float(steps.sum(axis=1).median())
    found = [Cell(None, method, phase, of) for (method, phase), of in cells.items()]
    return [Costs("in training", "seed", found)] if found else []


def _bench(about: Mapping[str, Any], path: Path) -> Costs:
    """An overhead.json: seconds by repeat, operations as counted."""
    frame, cells = table(about["rows"]), []
    groups = frame.groupby(["length", "method", "phase"], sort=False)
    for (length, method, phase), group in cast("Iterable[tuple[Any, pd.DataFrame]]", groups):
        timed = group[group["repeat"] > 0]
        counted = group[group["repeat"] == 0]["flops"].sum(min_count=1)
        cells.append(Cell(
            int(length), str(method), str(phase),
            {int(r): float(s) for r, s in zip(timed["repeat"], timed["seconds"], strict=True)},
            None if np.isnan(counted) else float(counted),
        ))  # fmt: skip
    return Costs(_where(about, path), "repeat", cells)


def _ranks(about: Mapping[str, Any], path: Path) -> Ranks:
    """A fidelity.json: the problem means of each method's rank correlation."""
    responses = about["responses"]
    methods = list(dict.fromkeys(method for row in responses for method in row["methods"]))
    means = {
        visible(method): np.array(problem_means(
            [(row["problem"], row["methods"][method]) for row in responses], "spearman"
        ))
        for method in methods
    }  # fmt: skip
    return Ranks(visible(str(about["source"])), means)


def _where(about: Mapping[str, Any], path: Path) -> str:
    return f"{path.stem} of {visible(str(about['model']))}"


def _masses(collection: Collection) -> list[Masses]:
    found = []
    for logged in weights(collection):
        runs = collection.of(logged.method)
        steps = sum(int(r.metrics["weight_mean"].notna().sum()) for r in runs
                    if "weight_mean" in r.metrics)  # fmt: skip
        kept = all(_credit(run).get("preserve_mass", True) for run in runs)
        found.append(Masses(logged.method, steps, logged.drift, kept))
    return found


def _commands(collection: Collection) -> Commands:
    """Commands that would measure the rest, at the sizes of the runs' own steps."""
    first = collection.runs[0]
    settings = first.settings
    name = str(collection.reproduce.get("recipe") or settings.get("name") or "RECIPE")
    # a run knows the name of its recipe, not its file: most likely they are the same
    recipe = quote(name if name in ("RECIPE", *shipped_recipes()) else f"{name}.yaml")
    train = settings.get("train") or {}
    cap = train.get("max_new_tokens")
    lengths = f" --lengths {cap // 2},{cap}" if isinstance(cap, int) and cap > 15 else ""
    prompts, group = train.get("prompts_per_step"), train.get("group_size")
    sizes = f" --prompts {prompts} --group-size {group}" if prompts and group else ""
    steps = train.get("steps")
    step = f"step-{steps:06d}" if isinstance(steps, int) else "STEP"
    checkpoint = quote(f"OUT/runs/{first.where}/checkpoints/{step}")
    task = quote(collection.tasks[0]) if collection.tasks else "TASK"
    return Commands(
        f"oar-bench reproduce {recipe} --out OUT",
        len({run.seed for run in collection.runs}),
        f"oar-bench overhead {recipe}{lengths}{sizes} --out OUT/overhead",
        f"oar-bench credit fidelity {checkpoint} --task {task} --recipe {recipe} "
        "--problems 64 --out OUT/fidelity",
    )
