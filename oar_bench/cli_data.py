"""The command `data`: a recipe's training problems, counted and checked before a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from oar_bench.cli_evaluation import AsJson, DataDir, Set


def data(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe or a YAML file.")],
    data_dir: DataDir = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            help="Test tasks to look for, instead of the recipe's: oar_gsm8k,oar_math500."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for data.json and overlap.json; default none.")
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, help="Print so many prompts as the model gets them.")
    ] = 0,
    changes: Set = None,
    as_json: AsJson = False,
) -> None:
    """Say what a recipe trains on.

    Rows, doubles, overlap with the test sets, and what the filters leave.

    Examples:

      oar-bench data my.yaml --data-dir DIR

      oar-bench data my.yaml --data-dir DIR --overlap oar_math --out checked

      oar-bench data my.yaml --set data.max_prompt_tokens=256 --show 2
    """
    from oar_bench.config import changes_of, load_recipe
    from oar_bench.console import Progress, printable
    from oar_bench.stages import data_changes, split_words

    sets = list(changes or ())
    if overlap is not None:
        sets.append(f"data.overlap={json.dumps(split_words(overlap, '--overlap'))}")
    chosen = load_recipe(recipe, {**changes_of(sets), **data_changes(data_dir)})
    from oar_bench.records import refuse_foreign
    from oar_bench.training.data import prepare, write_data

    if out is not None:
        refuse_foreign(out, "data.json")
    with Progress().stage("data", 1) as tick:
        found = prepare(chosen, lengths=True)
        tick(1, f"{found.summary['kept']} problems")
    if out is not None:
        write_data(out, found)
    if as_json:
        print(json.dumps({**found.about(), "overlap": found.overlap}, indent=2))
        return
    print("\n".join(table(found.summary)))
    if found.overlap is not None:
        print("\n" + "\n".join(overlap_table(found.overlap)))
    for problem in found.problems[:show]:
        print(f"\n{problem.id}  (gold {printable(problem.answer)})\n{printable(problem.prompt)}")


def table(summary: Mapping[str, Any]) -> list[str]:
    """The summary's lines: what the set has, what each filter took, what is left.

    >>> print("\\n".join(table({"source": "mine.jsonl", "rows": 9, "duplicates": 2, "kept": 7})))
    mine.jsonl
      rows                   9
      duplicates             2
      kept                   7
    """
    lines = [str(summary["source"])]
    names = {
        "rows": "rows", "without_gold": "without a gold", "duplicates": "duplicates",
        "other_answer": "  with another gold", "overlap": "in a test set",
        "too_hard": "too hard", "too_easy": "too easy", "no_pass_rate": "without a pass rate",
        "too_long": "prompt too long", "kept": "kept",
    }  # fmt: skip
    for key, name in names.items():
        if key in summary and (summary[key] or key not in ("without_gold", "other_answer")):
            stays = key == "overlap" and not summary["overlap_dropped"]
            lines.append(f"  {name:<20}{summary[key]:>4}{'  (kept)' if stays else ''}")
    if summary.get("prompt_tokens"):
        tokens = ", ".join(f"{name} {value}" for name, value in summary["prompt_tokens"].items())
        lines.append(f"  {'prompt tokens':<20}{tokens}")
    return lines


def overlap_table(report: Mapping[str, Any]) -> list[str]:
    """The lines of an overlap report, a test set each."""
    head = ("test set", "problems", f"under {report['ngram']} words", "equal", "n-gram",
            "training rows", "test problems")  # fmt: skip
    keys = ("problems", "short", "exact", "ngram", "rows_found", "problems_found")
    lines = [f"{head[0]:<28}" + "".join(f"{name:>16}" for name in head[1:])]
    for task, counts in report["tasks"].items():
        lines.append(f"{task:<28}" + "".join(f"{counts[key]:>16}" for key in keys))
    lines.append(f"{report['rows_found']} of {report['rows']} training rows overlap")
    return lines
