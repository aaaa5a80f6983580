"""A recipe's training problems, made ready: read, freed of doubles and of test problems, filtered.

In this order, each count in the summary:

    rows          as the set has them
    duplicates    the text of an earlier row (`dedup`)
    overlap       stands in a test set of `overlap`; left out with `drop_overlap`
    pass rate     outside [low, high], or unknown (`pass_rate`)
    too long      a prompt of more than `max_prompt_tokens`
    kept          what is trained on
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.config import DataSettings, PassRateSettings, Recipe
from oar_bench.engines.tokens import encode_all, load_config
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.records import SCHEMA, read_jsonl, write_json
from oar_bench.tasks.catalog import expand
from oar_bench.tasks.chat import chat_template_of, load_tokenizer
from oar_bench.tasks.overlap import HeldOut, normal_text
from oar_bench.tasks.problems import Problem
from oar_bench.tasks.registry import task_object
from oar_bench.tasks.sets import Row, load_set, prompt_of

UNGRADED = ("timeout", "gold_error")
"""Verdicts that say nothing about a response; see FAILURES in before.py."""
TOGETHER = 1000  # prompts that are encoded at once: their encodings take memory
QUANTILES = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Prepared:
    """Training problems with their prompts, and what became of the rows of their set."""

    problems: list[Problem]
    answer_type: AnswerType
    extract: ExtractMode
    fingerprint: str
    """Names the problems: ids, prompts, golds and tolerances, in any order."""
    summary: dict[str, Any]
    """The counts, JSON-ready."""
    overlap: dict[str, Any] | None
    """What overlap.json holds; None where no test set was asked for."""
    lengths: list[int] | None = None
    """Tokens of each prompt, where they were counted."""

    def about(self) -> dict[str, Any]:
        """The content of data.json."""
        return {
            "schema": SCHEMA, "kind": "data", **self.summary,
            "grading": {"answer_type": self.answer_type, "extract": self.extract},
            "fingerprints": {"data": self.fingerprint},
        }  # fmt: skip


def write_data(folder: Path, found: Prepared) -> None:
    """Write data.json, and overlap.json where test sets were asked for, into `folder`."""
    write_json(folder / "data.json", found.about())
    if found.overlap is not None:
        write_json(folder / "overlap.json", found.overlap)


def prepare(recipe: Recipe, *, lengths: bool = False) -> Prepared:
    """Read and filter the problems of a recipe's section `data`.

    Args:
        recipe: one with a section `data`.
        lengths: count the prompts' tokens, where the model's tokenizer is there: for the summary,
            and to refuse prompts that leave no room for a response.

    Raises:
        InputError: no such set, task, file of pass rates or chat template; a prompt beyond the
            model's context; or nothing is kept.
    """
    settings = recipe.data
    if settings is None:
        raise InputError(
            "it trains on built-in problems", f"recipe {recipe.name}", "add a section data"
        )
    tokenizer = _tokenizer_of(recipe)
    ask = _asking(settings, recipe, tokenizer)
    found = load_set(settings, recipe.data_dir)
    summary: dict[str, Any] = {"source": found.source, "rows": len(found.rows) + found.without_gold}
    summary["without_gold"] = found.without_gold
    rows = found.rows
    if settings.dedup:
        rows, summary["duplicates"], summary["other_answer"] = without_doubles(rows)
    overlap = None
    if settings.overlap:
        rows, overlap = _without_overlap(rows, settings, recipe.data_dir)
        summary["overlap"] = overlap["rows_found"]
        summary["overlap_dropped"] = overlap["dropped"]
    if settings.pass_rate is not None:
        rows, counts = by_pass_rate(rows, settings.pass_rate)
        summary.update(counts)
    problems = [
        Problem(row.id, ask(row.problem), row.answer, "", row.tolerance) for row in rows
    ]  # fmt: skip
    sizes: list[int] | None = None
    if settings.max_prompt_tokens is not None or (lengths and _has_tokenizer(recipe)):
        sizes = _lengths(problems, tokenizer("the length of a prompt"))
        if settings.max_prompt_tokens is not None:
            kept = [size <= settings.max_prompt_tokens for size in sizes]
            problems = [p for p, keep in zip(problems, kept, strict=True) if keep]
            summary["too_long"] = kept.count(False)
            sizes = [size for size, keep in zip(sizes, kept, strict=True) if keep]
        summary["prompt_tokens"] = quantiles(sizes)
        _check_context(max(sizes, default=0), recipe)
    if not problems:
        raise InputError("no problem is left after the filters", found.source, _of_counts(summary))
    summary["kept"] = len(problems)
    named = sorted([p.id, p.prompt, p.answer, p.tolerance] for p in problems)
    return Prepared(
        problems, found.answer_type, found.extract, fingerprint(["data", named]), summary, overlap,
        sizes,
    )  # fmt: skip


def without_doubles(rows: Sequence[Row]) -> tuple[list[Row], int, int]:
    """The first row of each text; how many others there were, and those with another gold.

    >>> rows = [Row("a", "1 + 1?", "2"), Row("b", "1+1 ?", "2"), Row("c", "1 + 1?", "3")]
    >>> kept, doubles, other = without_doubles(rows)
    >>> [row.id for row in kept], doubles, other
    (['a'], 2, 1)
    """
    first: dict[str, Row] = {}
    other = 0
    for row in rows:
        kept = first.setdefault(normal_text(row.problem), row)
        other += normal_text(kept.answer) != normal_text(row.answer)
    return list(first.values()), len(rows) - len(first), other


def by_pass_rate(
    rows: Sequence[Row], settings: PassRateSettings
) -> tuple[list[Row], dict[str, int]]:
    """The rows whose pass rate is within the bounds, which belong to it; and what became of all.

    Raises:
        InputError: no such file, or it knows none of the rows.
    """
    rates = pass_rates(Path(settings.file))
    if not any(row.id in rates for row in rows):
        raise InputError(
            f"it has none of the {len(rows)} problems, such as {rows[0].id if rows else '-'!r}",
            f"data.pass_rate.file {settings.file}", "its ids must be those of the training set",
        )  # fmt: skip
    known = [row for row in rows if row.id in rates]
    kept = [row for row in known if settings.low <= rates[row.id] <= settings.high]
    return kept, {
        "too_hard": sum(rates[row.id] < settings.low for row in known),
        "too_easy": sum(rates[row.id] > settings.high for row in known),
        "no_pass_rate": len(rows) - len(known),
    }


def pass_rates(path: Path) -> dict[str, float]:
    """The share of right responses to each problem, from what any of our stages wrote.

    Args:
        path: the folder of an evaluation (scores.jsonl) or of a training run (rollouts.jsonl); or
            a file of JSON lines, each with `id` or `problem`, and `pass_rate`, `correct` or
            `reward`. Several rows of a problem are averaged; rows whose grading failed don't count.

    Raises:
        InputError: no such file, a row without these fields, or a rate outside [0, 1].
    """
    file = path
    if path.is_dir():
        names = ("scores.jsonl", "rollouts.jsonl")
        file = next((path / name for name in names if (path / name).is_file()), path)
    if not file.is_file():
        said = "it holds no scores.jsonl" if path.is_dir() else "no such file or folder"
        raise InputError(
            said, f"data.pass_rate.file {path}",
            "give the folder of an evaluation, or JSON lines with id and pass_rate",
        )  # fmt: skip
    met: defaultdict[str, list[float]] = defaultdict(list)
    for number, row in enumerate(read_jsonl(file), start=1):
        name = row.get("id", row.get("problem"))
        rate = next((row[key] for key in ("pass_rate", "correct", "reward") if key in row), None)
        if name is None or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise InputError(
                f"row {number} has no id or no pass_rate from 0 to 1", str(file), "mend that row"
            )
        if row.get("status") not in UNGRADED:
            met[str(name)].append(float(rate))
    return {name: sum(rates) / len(rates) for name, rates in met.items()}


def held_out_texts(names: Sequence[str], data_dir: str | None) -> dict[str, dict[str, str]]:
    """The bare problems of tasks and groups by their ids: {task: {id: text}}."""
    found = {}
    for name in expand(list(names), "data.overlap"):
        task = task_object(name, {"data_dir": data_dir} if data_dir else None)
        documents: list[Mapping[str, Any]] = list(task.eval_docs)
        found[name] = {
            str(document.get("id", number)): str(
                document.get("problem") or document.get("question") or task.doc_to_text(document)
            )
            for number, document in enumerate(documents)
        }
    return found


def _without_overlap(
    rows: Sequence[Row], settings: DataSettings, data_dir: str | None
) -> tuple[list[Row], dict[str, Any]]:
    """The rows that stay, and the report on all of them."""
    held_out = HeldOut(held_out_texts(settings.overlap, data_dir), settings.ngram)
    matches = [match for row in rows for match in held_out.find(row.id, row.problem)]
    report = held_out.report(matches, len(rows), settings.drop_overlap)
    found = {match.row for match in matches} if settings.drop_overlap else set()
    kept = [row for row in rows if row.id not in found]
    return kept, {"schema": SCHEMA, "kind": "overlap", **report}


def _tokenizer_of(recipe: Recipe) -> Callable[[str], Any]:
    """The model's tokenizer, loaded once, when it is first asked for by whatever needs it."""
    held: list[Any] = []

    def tokenizer(needed_by: str) -> Any:
        if not held:
            held.append(load_tokenizer(Path(str(recipe.model.path)), needed_by))
        return held[0]

    return tokenizer


def _asking(
    settings: DataSettings, recipe: Recipe, tokenizer: Callable[[str], Any]
) -> Callable[[str], str]:
    """From a bare problem to the prompt that the model gets."""
    if not settings.chat_template:
        return lambda problem: prompt_of(settings.prompt, problem)
    asked = "data.chat_template"
    model = Path(str(recipe.model.path))
    apply = chat_template_of(model, asked, "data.system", tokenizer(asked))
    system = [{"role": "system", "content": settings.system}] if settings.system else []
    return lambda problem: apply(
        [*system, {"role": "user", "content": prompt_of(settings.prompt, problem)}]
    )


def _has_tokenizer(recipe: Recipe) -> bool:
    return recipe.model.path is not None and Path(recipe.model.path).is_dir()


def _lengths(problems: Sequence[Problem], tokenizer: Any) -> list[int]:
    """Tokens of each prompt under the model's tokenizer."""
    sizes = []
    for at in range(0, len(problems), TOGETHER):
        prompts = [problem.prompt for problem in problems[at : at + TOGETHER]]
        encoded = encode_all(tokenizer, prompts)
        sizes += [len(encoded[prompt]) for prompt in prompts]
    return sizes


def _check_context(longest: int, recipe: Recipe) -> None:
    """Refuse a prompt that some step would fail on, before the first step."""
    config = load_config(str(recipe.model.path))
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    room = recipe.train.max_new_tokens
    if limit and longest + room > limit:
        raise InputError(
            f"the longest prompt ({longest} tokens) and train.max_new_tokens ({room}) exceed the "
            f"model's context of {limit}", "data.max_prompt_tokens",
            f"leave longer prompts out with {limit - room}" if room < limit
            else "lower train.max_new_tokens",
        )  # fmt: skip


def quantiles(values: Sequence[int]) -> dict[str, int] | None:
    """Smallest, middle and largest values; nearest rank, so each is one of the values.

    >>> quantiles([5, 1, 3])
    {'min': 1, 'median': 3, 'p90': 5, 'p99': 5, 'max': 5}
    """
    ordered = sorted(values)
    if not ordered:
        return None
    last = len(ordered) - 1
    return {name: ordered[round(share * last)] for name, share in QUANTILES.items()}


def _of_counts(summary: Mapping[str, Any]) -> str:
    """The filters that took something, for an error."""
    counts = [f"{k} {v}" for k, v in summary.items() if isinstance(v, int) and v]
    return f"widen them ({', '.join(counts).replace('_', ' ')})"
