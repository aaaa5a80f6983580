"""`train --dry-run`: everything that can be checked and estimated before a run takes a GPU.

Data are read, filtered and counted, prompts are tokenised, and the model's sizes are taken from
its config.json: its weights need not be there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig

from oar_bench.config import Recipe
from oar_bench.credit.memory import Sizes
from oar_bench.engines.base import Sampling
from oar_bench.engines.tokens import (
    check_checkpoint,
    check_length,
    encode_all,
    load_config,
    load_tokenizer,
)
from oar_bench.overhead.flops import Work
from oar_bench.training.model import tiny_config, word_tokenizer
from oar_bench.training.plan import adapter_parameters, as_rows, memory_plan, parameters
from oar_bench.training.plan import step_operations as operations_of
from oar_bench.training.sources import source_of


def estimate(recipe: Recipe, method: str, seed: int, tflops: float) -> dict[str, Any]:
    """What a run needs, JSON-ready.

    Args:
        recipe, method, seed: of the run.
        tflops: 10^12 operations a second that the device sustains, for the hours.

    Raises:
        InputError: what training would raise for the recipe's data and model, weights aside.
    """
    config, tokenizer = _config(recipe)
    source = source_of(recipe)
    problems = source.of_step(recipe.train.prompts_per_step, seed, 1)
    lengths = [len(ids) for ids in encode_all(tokenizer, [p.prompt for p in problems]).values()]
    longest = max(lengths)
    response = recipe.train.max_new_tokens
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    check_length(longest, Sampling(max_new_tokens=response), limit)
    saved = getattr(config.get_text_config(), "dtype", None) or torch.float32
    dtype = saved if recipe.model.dtype == "auto" else getattr(torch, recipe.model.dtype)
    sizes = Sizes.of(config, dtype)
    tied = bool(getattr(config.get_text_config(), "tie_word_embeddings", False))
    memory = memory_plan(recipe, sizes, tied, longest + response)
    prompt = round(sum(lengths) / len(lengths))
    found = operations_of(recipe, Work.of(sizes), method, prompt, response)
    known = {phase: value for phase, value in found.items() if value is not None}
    step, steps = sum(known.values()), recipe.train.steps
    whole = parameters(sizes, tied)
    lora = recipe.model.lora
    return {
        "recipe": recipe.name,
        "method": method,
        "data": source.summary,
        "model": {
            "parameters": whole,
            "trained": whole if lora is None else adapter_parameters(sizes, lora.rank),
            "dtype": str(dtype).removeprefix("torch."),
        },
        "tokens": {
            "prompt_mean": prompt, "prompt_longest": longest, "response_at_most": response,
            "a_step_at_most": sum(lengths) * recipe.train.group_size
            + response * recipe.train.group_size * len(problems),
        },
        "memory_gib": as_rows(memory),
        "operations_a_step": {**found, "total": step},
        "operations": step * steps,
        "hours": step * steps / (tflops * 1e12) / 3600,
        "tflops": tflops,
        "steps": steps,
    }  # fmt: skip


def _config(recipe: Recipe) -> tuple[PreTrainedConfig, Any]:
    """Configuration and tokenizer of the model that a recipe trains; no weights."""
    if recipe.model.path is None:
        tokenizer = word_tokenizer()
        return tiny_config(recipe.model, tokenizer), tokenizer
    folder = check_checkpoint(Path(recipe.model.path))
    return load_config(folder), load_tokenizer(folder)


def as_text(found: dict[str, Any]) -> str:
    """The estimate for a reader: data, tokens, memory, operations, hours."""
    model, tokens = found["model"], found["tokens"]
    data = ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in found["data"].items()
        if isinstance(value, int | str)
    )
    lines = [
        f"{found['recipe']}, {found['method']}, {found['steps']} steps: nothing was trained",
        f"data        {data}",
        f"model       {model['parameters'] / 1e6:.2f} M parameters in {model['dtype']}, "
        f"{model['trained'] / 1e6:.2f} M trained",
        f"tokens      prompts of {tokens['prompt_mean']} ({tokens['prompt_longest']} at most), "
        f"responses of at most {tokens['response_at_most']}, "
        f"{tokens['a_step_at_most']} a step at most",
        "memory      of one process that holds everything, during the update:",
        *(f"  {name:<14}{_size(value):>12}" for name, value in found["memory_gib"].items()),
        "operations  a step, every response being of the greatest length:",
        *(
            f"  {phase:<14}" + ("  no closed form" if value is None else f"{value / 1e12:10.3f} T")
            for phase, value in found["operations_a_step"].items()
        ),
        f"time        {_time(found['hours'])} for {found['steps']} steps at {found['tflops']:g} "
        "TFLOP/s sustained (--tflops)",
    ]
    return "\n".join(lines)


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 3600:.2g} s"
