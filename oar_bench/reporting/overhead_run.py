"""Measure what methods cost on a model, and write it down: the command `oar-bench overhead`."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from oar_bench.answers import Grader
from oar_bench.config import Recipe, load_recipe
from oar_bench.console import Progress
from oar_bench.errors import InputError
from oar_bench.identity import environment, fingerprint, fingerprint_checkpoint
from oar_bench.overhead.bench import measure
from oar_bench.overhead.flops import Work, step_flops
from oar_bench.overhead.phases import peak_source
from oar_bench.records import SCHEMA, JsonlWriter, owned, refuse_foreign, write_json, write_text
from oar_bench.reporting import overhead_text as text
from oar_bench.reporting import tables
from oar_bench.reporting.kept import kept_row, kept_rows
from oar_bench.reporting.overhead import claims, growth, summarize
from oar_bench.tasks.problems import ANSWER_TYPE
from oar_bench.training.fixed import FixedSteps, still
from oar_bench.training.model import tiny_model, word_tokenizer
from oar_bench.training.trainer import Trainer

RESULT, ROWS = "overhead.json", "overhead.jsonl"


@dataclass(frozen=True)
class Asked:
    """What is measured, as the command's options say it."""

    model: str
    methods: tuple[str, ...]
    lengths: tuple[int, ...]
    prompt_tokens: int
    answer_tokens: int
    prompts: int
    group_size: int
    repeats: int
    margin: float
    recipe: str | None = None
    memory_mib: int | None = None
    threads: int | None = None
    dtype: str | None = None

    def settings(self) -> Recipe:
        """The recipe: the named one, else the model's own, else the defaults."""
        named = self.recipe or (None if Path(self.model).is_dir() else self.model)
        recipe = load_recipe(named) if named else Recipe(name="defaults")
        if self.memory_mib is not None:
            credit = recipe.credit.model_copy(update={"memory_mib": self.memory_mib})
            recipe = recipe.model_copy(update={"credit": credit})
        dtype = self.dtype or ("bfloat16" if torch.cuda.is_available() else "float32")
        changed = {"dtype": dtype, "threads": self.threads or recipe.model.threads}
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=changed)})
        return still(recipe, self.prompts, self.group_size, max(self.lengths))


@contextmanager
def _checkpoint(asked: Asked, recipe: Recipe) -> Iterator[Path]:
    """The model's folder; for a recipe that makes its model, one with random weights."""
    if Path(asked.model).is_dir():
        yield Path(asked.model)
        return
    made = load_recipe(asked.model).model
    if made.path is not None:
        yield Path(made.path)
        return
    with tempfile.TemporaryDirectory(prefix="oar-bench-") as folder:
        tokenizer = word_tokenizer()
        tiny_model(made, tokenizer, 0).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield Path(folder)


def run(asked: Asked, out: Path, command: str, console: Progress) -> dict[str, Any]:
    """Measure and write overhead.json, .md, .csv and .svg into `out`; the content of the first.

    Every repeat is appended to overhead.jsonl once it is done. Called again with the same things
    asked, those that are there aren't measured again; `repeats` may grow and `margin` change.

    Raises:
        InputError: no such model or recipe, lengths beyond its context, a foreign folder, or one
            that holds another measurement.
    """
    if len(set(asked.lengths)) < len(asked.lengths):
        raise InputError("a length is given twice", "--lengths")
    if not math.isfinite(asked.margin):
        raise InputError(f"{asked.margin} is no margin", "--margin", "use a number such as 0.1")
    refuse_foreign(out, ROWS)
    recipe = asked.settings()
    with _checkpoint(asked, recipe) as folder, owned(out):
        cuda = torch.cuda.is_available()
        made_by = _made_by(asked, recipe, folder)
        kept = {row["repeat"]: row for row in kept_rows(out / ROWS, made_by, FIELDS)}
        kept = {repeat: row for repeat, row in kept.items() if repeat <= asked.repeats}
        trainer = Trainer(recipe, asked.methods[0], 0, folder, "cuda" if cuda else "cpu")
        steps = len(asked.lengths) * len(asked.methods) * (asked.repeats + 1)
        with Grader(answer_type=ANSWER_TYPE) as grader, JsonlWriter(out / ROWS) as writer:
            fixed = FixedSteps(
                trainer, grader, asked.prompt_tokens, asked.answer_tokens, asked.lengths
            )

            def keep(repeat: int, phases: list[dict[str, Any]]) -> None:
                told = {"repeat": repeat, "replaced": fixed.replaced[repeat], "phases": phases}
                writer.write([kept_row(made_by, **told)])
                kept[repeat] = told

            with console.stage("overhead", steps) as tick:
                rows = measure(
                    fixed, asked.methods, asked.lengths, asked.repeats, tick,
                    known={repeat: row["phases"] for repeat, row in kept.items()}, keep=keep,
                )  # fmt: skip
        work = Work.of_model(trainer.model)
        fused = trainer.model.config._attn_implementation != "eager"
        responses = asked.prompts * asked.group_size
        formulas = {
            (method, length): step_flops(
                work, fixed.layout(length), method, responses, recipe.train, recipe.credit, fused
            )
            for method in asked.methods
            for length in asked.lengths
        }
        given, name = asdict(asked), Path(asked.model).resolve().name
        about = {
            "schema": SCHEMA, "kind": "overhead", "model": name,
            "command": command,
            "settings": {
                **given, "model": name, "threads": recipe.model.threads,
                "memory_mib": recipe.credit.memory_mib, "dtype": recipe.model.dtype,
                "attention": trainer.model.config._attn_implementation,
                "recipe": recipe.name,
            },
            "recipe": recipe.settings(),
            "replaced_reasoning": sum(row["replaced"] for row in kept.values()),
            "peak_memory": peak_source(),
            "device": made_by["device"],
            "fingerprints": {
                "model": made_by["model"], "recipe": made_by["recipe"],
                "asked": fingerprint({**given, "model": None}),
            },
            "environment": environment(),
        }  # fmt: skip
    return write(about, rows, formulas, asked.margin, out)


FIELDS = ("repeat", "replaced", "phases")


def _made_by(asked: Asked, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """What the numbers of a repeat depend on, in the order in which a difference is told."""
    where = environment()
    packages = where["packages"]
    return {
        "model": fingerprint_checkpoint(folder),
        "methods": asked.methods, "lengths": asked.lengths, "prompt_tokens": asked.prompt_tokens,
        "answer_tokens": asked.answer_tokens, "prompts": asked.prompts,
        "group_size": asked.group_size, "dtype": recipe.model.dtype,
        "threads": recipe.model.threads, "memory_mib": recipe.credit.memory_mib,
        "recipe": fingerprint(recipe.settings()),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else where["cpu"],
        **{name: packages.get(name) for name in ("oar-bench", "torch", "transformers")},
    }  # fmt: skip


def write(
    about: dict[str, Any], rows: Sequence[dict[str, Any]], formulas: Any, margin: float, out: Path
) -> dict[str, Any]:
    """Write the four files of a measurement."""
    cells, grown = summarize(rows, formulas), growth(rows)
    judged = claims(cells, margin)
    found = text.as_dict(about, rows, cells, grown, judged)
    write_text(out / "overhead.csv", tables.csv(text.as_frame(cells)))
    write_text(out / "overhead.svg", text.figure(cells))
    write_text(out / "overhead.md", text.as_markdown(about, cells, grown, judged))
    write_json(out / RESULT, found)
    return found
