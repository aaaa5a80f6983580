"""Measure what methods cost on a model, and write it down: the command `oar-bench overhead`."""

from __future__ import annotations

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
from oar_bench.records import SCHEMA, owned, refuse_foreign, write_json, write_text
from oar_bench.reporting import overhead_text as text
from oar_bench.reporting import tables
from oar_bench.reporting.overhead import claims, growth, summarize
from oar_bench.tasks.problems import ANSWER_TYPE
from oar_bench.training.fixed import FixedSteps, still
from oar_bench.training.model import tiny_model, word_tokenizer
from oar_bench.training.trainer import Trainer

RESULT = "overhead.json"


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

    Raises:
        InputError: no such model or recipe, lengths beyond its context, a foreign folder.
    """
    if len(set(asked.lengths)) < len(asked.lengths):
        raise InputError("a length is given twice", "--lengths")
    refuse_foreign(out, RESULT)
    recipe = asked.settings()
    with _checkpoint(asked, recipe) as folder, owned(out):
        cuda = torch.cuda.is_available()
        trainer = Trainer(recipe, asked.methods[0], 0, folder, "cuda" if cuda else "cpu")
        steps = len(asked.lengths) * len(asked.methods) * (asked.repeats + 1)
        with Grader(answer_type=ANSWER_TYPE) as grader:
            fixed = FixedSteps(
                trainer, grader, asked.prompt_tokens, asked.answer_tokens, asked.lengths
            )
            with console.stage("overhead", steps) as tick:
                rows = measure(fixed, asked.methods, asked.lengths, asked.repeats, tick)
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
            "replaced_reasoning": fixed.replaced,
            "peak_memory": peak_source(),
            "device": torch.cuda.get_device_name() if cuda else environment()["cpu"],
            "fingerprints": {
                "model": fingerprint_checkpoint(folder), "recipe": fingerprint(recipe.settings()),
                "asked": fingerprint({**given, "model": None}),
            },
            "environment": environment(),
        }  # fmt: skip
    return write(about, rows, formulas, asked.margin, out)


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
