"""What the commands do with their checked words: call the stages in turn, print what came out.

Nothing heavy is imported before a stage needs it: `oar-bench --help` reads this file too.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oar_bench.engines.loaders import EngineChoice, load_engine
from oar_bench.errors import InputError, nearest
from oar_bench.evaluation.asking import Asking

if TYPE_CHECKING:
    from oar_bench.config import Recipe
    from oar_bench.engines.base import Sampling
    from oar_bench.evaluation.formats import Fields
    from oar_bench.evaluation.score_file import Graders
    from oar_bench.tasks.registry import LoadedTask


def choice(value: Any, known: tuple[str, ...], where: str) -> Any:
    """`value` when it is one of the known words, or None; else InputError."""
    if value is not None and value not in known:
        raise InputError(f"unknown value {value!r}", where, nearest(str(value), list(known)))
    return value


def this_command() -> list[str]:
    """The words that this process was started with, as a user would type them."""
    return ["oar-bench", *sys.argv[1:]]


def numbers(text: str) -> list[int]:
    """The whole numbers of a comma-separated option; ValueError where a word is none.

    >>> numbers("64,128")
    [64, 128]
    """
    return [int(word) for word in text.split(",")]


def split_words(text: str, where: str) -> list[str]:
    """The words of a comma-separated option, without repeats.

    >>> split_words("grpo, oar-p,grpo", "--methods")
    ['grpo', 'oar-p']
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError("nothing is given", where, "write one or more, separated by commas")
    return list(dict.fromkeys(words))


@dataclass(frozen=True)
class Job:
    """What `generate` and `evaluate` are asked to do, as their options say it."""

    model: Path
    tasks: str
    samples: int
    temperature: float
    top_p: float
    seed: int
    limit: int | None
    max_new_tokens: int | None
    batch_size: int
    out: Path | None
    engine: EngineChoice = EngineChoice()  # noqa: RUF009  frozen
    asking: Asking = Asking()  # noqa: RUF009  frozen


def run_generation(job: Job) -> list[Path]:
    """The stage `generate` for each task; the evaluation folders."""
    from oar_bench.engines.base import check_samples
    from oar_bench.tasks.catalog import expand

    model, samples, asking = job.model, job.samples, job.asking
    names = expand(split_words(job.tasks, "--tasks"))
    asking.check(samples)
    if asking.probe is None:
        check_samples(samples, job.temperature)
    job.engine.check()
    from oar_bench.console import Progress
    from oar_bench.evaluation.generate import generate as run
    from oar_bench.evaluation.stock import evaluate_by_lm_eval, needs_lm_eval

    others = [name for name in names if asking.elsewhere and needs_lm_eval(name)]
    asking.check_others(others, samples, job.engine.name)
    loaded = asking.load(
        [name for name in names if name not in others], model, limit=job.limit,
        temperature=job.temperature, top_p=job.top_p, max_new_tokens=job.max_new_tokens,
    )  # fmt: skip
    if asking.dry_run:
        print_plans(asking, loaded, samples, model)
        return []
    made = load_engine(model, job.engine, job.batch_size)  # also says what is wrong with it
    base = job.out or Path("evaluations") / model.resolve().name
    console, folders = Progress(), []
    for task, sampling in loaded:
        folder = asking.folder(base, task)
        with console.stage(f"generate {task.name}", len(task.questions) * samples) as tick:
            run(
                made.engine, made.model, made.fingerprint, task, folder, samples=samples,
                sampling=sampling, seed=job.seed, shard=asking.part(),
                progress=lambda done, _: tick(done, ""),
            )  # fmt: skip
        folders.append(folder)
    for name in others:
        folder = base / name
        evaluate_by_lm_eval(
            name, model, folder, limit=job.limit, batch_size=job.batch_size, asking=asking
        )
        folders.append(folder)
    return folders


def print_plans(
    asking: Asking, loaded: list[tuple[LoadedTask, Sampling]], samples: int, model: Path
) -> None:
    """`--dry-run`: what would be asked of each task; nothing is generated or written."""
    from oar_bench.evaluation.asking import token_counter
    from oar_bench.evaluation.plan import format_plan, plan

    count = token_counter(model, "--dry-run")
    for task, sampling in loaded:
        print(format_plan(plan(task, samples, sampling, count, asking.part())))


def run_compare(
    paths: list[Path], allow: list[str], out: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Compare results; prints the tables or JSON, and writes `out` as Markdown or CSV."""
    if out is not None and out.suffix not in (".md", ".csv"):
        raise InputError("no such format", f"--out {out}", "name a file that ends in .md or .csv")
    from oar_bench.records import write_text
    from oar_bench.reporting import headtohead_text as text
    from oar_bench.reporting.headtohead import head_to_head

    found = head_to_head(paths, allow)
    if out is not None:
        write_text(out, text.as_csv(found) if out.suffix == ".csv" else text.as_markdown(found))
    print(json.dumps(text.as_dict(found), indent=2) if as_json else text.plain(found))


def is_evaluation(path: Path) -> bool:
    """Whether a file is the samples.jsonl of an evaluation folder."""
    return path.name == "samples.jsonl" and (path.parent / "generation.json").is_file()


def run_scoring(folders: list[Path], as_json: bool) -> None:
    """The stage `score` for each folder; prints a summary."""
    from oar_bench.evaluation.score import score as run

    every: list[dict[str, Any]] = []
    for folder in folders:
        results = run(folder)
        every.append(results)
        if not as_json:
            print_results(results, folder)
    if as_json:
        print(json.dumps(every if len(every) > 1 else every[0], indent=2))


def print_results(results: dict[str, Any], folder: Path) -> None:
    """A few lines on one evaluation, or on one probe."""
    metrics, count = results["metrics"], results["settings"]
    if results["kind"] == "probe":
        print_probe(results, folder)
        return
    if results.get("engine") == "lm-eval":
        print(f"{results['task']}: {metrics['n_problems']} problems, by lm-eval")
        for name, value in metrics["lm_eval"].items():
            print(f"  {name:<24}{value:.4f}")
        print(f"  {folder / 'results.json'}")
        return
    from oar_bench.reporting.text import counted

    problems, samples = counted(metrics["n_problems"], "problem"), counted(metrics["k"], "sample")
    print(f"{results['task']}: {problems} x {samples}")
    for name, value in metrics.items():
        if isinstance(value, dict) and "low" in value:
            low, high = value["low"], value["high"]
            print(f"  {name:<18}{100 * value['value']:6.1f} %   95 % [{_pp(low)}, {_pp(high)}]")
    if metrics.get("run_sd") is not None:
        print(f"  {'run-to-run SD':<18}{100 * metrics['run_sd']:6.1f} points")
    for name in ("truncated", "no_answer"):
        print(f"  {name:<18}{100 * metrics[name]:6.1f} %")
    tokens = metrics["tokens"]
    print(
        f"  {'tokens':<18}{tokens['mean']:6.1f}     median {tokens['median']:.0f}, "
        f"90 % within {tokens['p90']:.0f}"
    )
    curve = ", ".join(f"{cap}: {100 * share:.1f} %" for cap, share in metrics["budget"])
    print(f"  {'if capped at':<18}{curve}")
    if not results["complete"]:
        print(
            f"  incomplete: {metrics['n_problems']} of {count['problems']} problems have all their "
            "samples; run `oar-bench generate` again"
        )
    print(f"  {folder / 'results.json'}")


def print_probe(results: dict[str, Any], folder: Path) -> None:
    """A few lines on one contamination probe."""
    metrics = results["metrics"]
    exact, prefix = metrics["exact_completions"], metrics["prefix_share"]
    print(f"{results['task']}: {metrics['n_problems']} questions, probe {results['probe']}")
    for name, found in (("exact completions", exact), ("common prefix", prefix)):
        low, high = _pp(found["low"]), _pp(found["high"])
        print(f"  {name:<18}{100 * found['value']:6.1f} %   95 % [{low}, {high}]")
    print(f"  {'':<18}{metrics['prefix_characters']:6.1f} characters")
    if not results["complete"]:
        print("  incomplete: run the same command again")
    print(f"  {folder / 'results.json'}")


def _pp(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def data_changes(data_dir: Path | None) -> dict[str, Any]:
    """`--data-dir` as a change to a recipe; InputError when there is no such folder."""
    if data_dir is None:
        return {}
    if not data_dir.is_dir():
        raise InputError("no such folder", f"--data-dir {data_dir}")
    return {"data_dir": str(data_dir)}


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` is asked for besides the recipe; None: what the recipe says."""

    methods: list[str] | None
    seeds: int | None
    steps: int | None
    command: list[str]
    data_dir: Path | None = None
    log: tuple[str, ...] = ()


def run_reproduction(name: str, asked: Reproduction, out: Path | None) -> None:
    """Reproduce a recipe into `out`, or every recipe of a suite into a folder of `out` each."""
    from oar_bench.config import suite_of

    members = suite_of(name)
    # Everything that can be wrong with any of them is said before the first begins.
    recipes = [_checked(member, asked) for member in members or [name]]
    if members is None:
        folder = out or Path("results") / recipes[0].name
        _reproduce(recipes[0], asked, folder)
        print_comparison(folder)
        return
    from oar_bench.reporting.suite import write_suite

    names = [recipe.name for recipe in recipes]
    if len({*names}) < len(names):
        raise InputError(f"two recipes have one name ({', '.join(names)})", name)
    title = Path(name).stem
    base = out or Path("results") / title
    for recipe in recipes:
        _reproduce(recipe, asked, base / recipe.name)
    markdown, page = write_suite(base, names, title, shlex.join(asked.command))
    for member in names:
        print(f"\n{member}\n")
        print_comparison(base / member)
    print(f"\nall together: {page} and {markdown}")


def _checked(name: str, asked: Reproduction) -> Recipe:
    from oar_bench.config import check_method, load_recipe
    from oar_bench.tasks.registry import check_task

    changes = data_changes(asked.data_dir)
    if asked.steps is not None:
        changes["train"] = {"steps": asked.steps}
    recipe = load_recipe(name, changes)
    for method in asked.methods or ():
        check_method(method, "--methods")
    check_task(recipe.evaluation.task, f"recipe {recipe.name}: evaluation.task")
    for task in recipe.data.overlap if recipe.data else ():
        check_task(task, f"recipe {recipe.name}: data.overlap")
    return recipe


def _reproduce(recipe: Recipe, asked: Reproduction, folder: Path) -> None:
    from oar_bench.console import Progress
    from oar_bench.reproduce import reproduce

    methods = asked.methods or list(recipe.reproduce.methods)
    seeds = list(range(asked.seeds or recipe.reproduce.seeds))
    reproduce(recipe, methods, seeds, folder, asked.command, Progress(), asked.log)


def print_comparison(folder: Path) -> None:
    """The report's comparison table and where the report lies."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    print(text.partition("\n## Comparison")[2].partition("\n## ")[0].strip())
    print(f"\nreport: {folder / 'index.html'} and {folder / 'report.md'}")


def score_responses(
    path: Path, out: Path, graders: Graders, fields: Fields, *, expect: bool, diff: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Score a file of responses into `out`; print a summary, and what `expect` and `diff` ask."""
    from oar_bench.answers.corpus import format_report
    from oar_bench.console import Progress, printable
    from oar_bench.evaluation.formats import read_items
    from oar_bench.evaluation.score_file import (
        changes,
        count_items,
        counts,
        expectations,
        refuse_absent,
        score_file,
    )
    from oar_bench.records import read_jsonl

    if diff is not None:
        refuse_absent(diff)
        if diff.resolve() == out.resolve():
            raise InputError(
                "this is the file that the new scores go to", "--diff", "choose an --out"
            )
    total = count_items(path, fields)
    with graders, Progress().stage(f"score {path.name}", total) as tick:
        score_file(path, out, graders, fields, lambda done: tick(done, ""))
    changed = changes(diff, out) if diff is not None else None
    report = expectations(read_items(path, fields), read_jsonl(out)) if expect else None
    summary = {**counts(read_jsonl(out)), "scores": str(out)}
    if as_json:
        extra: dict[str, Any] = {}
        if report is not None:
            extra["expected"] = report.as_dict()
        if changed is not None:
            extra["changed"] = [vars(change) for change in changed]
        print(json.dumps({**summary, **extra}, indent=2))
        return
    print(f"{summary['correct']} of {summary['rows']} correct")
    for name in ("statuses", "stages"):
        counted = sorted(summary[name].items(), key=lambda pair: -pair[1])
        print(f"  {name:<9} {', '.join(f'{key} {count}' for key, count in counted)}")
    print(f"  slowest   {summary['slowest_ms']:.1f} ms")
    print(f"  {out}")
    if report is not None:
        print(format_report(report))
        print(f"false positives: {' '.join(report.overall.false_positives) or 'none'}")
        print(f"false negatives: {' '.join(report.overall.false_negatives) or 'none'}")
    if changed is not None:
        for change in changed:
            before, after = (
                "nothing" if text is None else repr(printable(text[:200]))
                for text in (change.extracted_before, change.extracted_after)
            )
            print(f"{change.id}: {change.before} ({before}) -> {change.after} ({after})")
        print(f"{len(changed)} verdicts changed")
