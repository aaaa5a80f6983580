"""`train --dry-run`: everything that can be checked and estimated before a run takes a GPU.

Data are read, filtered and counted, prompts are tokenised, and the model is made from its
config.json without memory: its weights need not be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig

from oar_bench.config import Recipe
from oar_bench.credit.memory import Sizes
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import empty_model
from oar_bench.engines.tokens import (
    check_checkpoint,
    check_length,
    encode_all,
    load_config,
    load_tokenizer,
)
from oar_bench.overhead.flops import Work
from oar_bench.training.model import tiny_config, word_tokenizer
from oar_bench.training.plan import as_rows, layout_of, memory_plan
from oar_bench.training.plan import step_operations as operations_of
from oar_bench.training.policy import add_adapters
from oar_bench.training.sources import source_of

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""What configurations call the number of experts of a layer."""


def estimate(
    recipe: Recipe, method: str, seed: int, tflops: float, *, replayed: bool = False
) -> dict[str, Any]:
    """What a run needs, JSON-ready.

    Args:
        recipe, method, seed: of the run.
        tflops: 10^12 operations a second that the device sustains, for the hours.
        replayed: its responses come from a file: nothing is sampled.

    Raises:
        InputError: what training would raise for the recipe's data and model, weights aside.
    """
    config, source = _config(recipe), source_of(recipe)
    train, text = recipe.train, config.get_text_config()
    count, size, response = train.prompts_per_step, train.group_size, train.max_new_tokens
    problems = source.of_step(count, seed, 1)
    lengths = source.lengths or _lengths(recipe, [problem.prompt for problem in problems])
    longest = max(lengths)
    limit = getattr(text, "max_position_embeddings", None)
    check_length(longest, Sampling(max_new_tokens=response), limit)
    saved = getattr(text, "dtype", None) or torch.float32
    dtype = saved if recipe.model.dtype == "auto" else getattr(torch, recipe.model.dtype)
    sizes = Sizes.of(config, dtype)
    work, whole, trained = _weights(recipe, config)
    memory = memory_plan(recipe, sizes, whole, trained, longest + response)
    prompt = round(sum(lengths) / len(lengths))
    layout = layout_of(prompt, response)
    found = operations_of(recipe, work, trained, method, layout, replayed=replayed)
    known = {phase: value for phase, value in found.items() if value is not None}
    step, steps = sum(known.values()), train.steps
    return {
        "recipe": recipe.name,
        "method": method,
        "data": source.summary,
        "model": {
            "parameters": whole, "trained": trained, "dtype": str(dtype).removeprefix("torch."),
            "experts": next((n for name in EXPERTS if (n := getattr(text, name, None))), None),
        },
        "tokens": {
            "prompt_mean": prompt, "prompt_longest": longest, "response_at_most": response,
            "a_step_at_most": (sum(sorted(lengths)[-count:]) + response * count) * size
            * (1 + (0 if replayed else train.dynamic_sampling)),
        },
        "memory_gib": as_rows(memory),
        "operations_a_step": {**found, "total": step},
        "operations": step * steps,
        "hours": step * steps / (tflops * 1e12) / 3600,
        "tflops": tflops,
        "steps": steps,
    }  # fmt: skip


def _config(recipe: Recipe) -> PreTrainedConfig:
    """Configuration of the model that a recipe trains."""
    if recipe.model.path is None:
        return tiny_config(recipe.model, word_tokenizer())
    return load_config(check_checkpoint(Path(recipe.model.path)))


def _lengths(recipe: Recipe, prompts: Sequence[str]) -> list[int]:
    """Tokens of each prompt."""
    folder = recipe.model.path
    tokenizer = word_tokenizer() if folder is None else load_tokenizer(folder)
    return [len(ids) for ids in encode_all(tokenizer, prompts).values()]


def _weights(recipe: Recipe, config: PreTrainedConfig) -> tuple[Work, int, int]:
    """What a pass multiplies by, all weights and those that are trained, counted on the model
    itself, made without memory."""
    model = empty_model(config)
    work = Work.of_model(model)
    whole = sum(parameter.numel() for parameter in model.parameters())
    if recipe.model.lora is not None:
        add_adapters(model, recipe.model.lora)
    return work, whole, sum(p.numel() for p in model.parameters() if p.requires_grad)


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
            f"  {phase:<14}" + ("  no closed form" if value is None else f"{_count(value):>12}")
            for phase, value in found["operations_a_step"].items()
        ),
        *(
            [f"            (too few: of a layer's {model['experts']} experts none is counted)"]
            if model["experts"]
            else []
        ),
        f"time        {_time(found['hours'])} for {found['steps']} steps at {found['tflops']:g} "
        "TFLOP/s sustained (--tflops)",
    ]
    return "\n".join(lines)


def _size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"


def _count(operations: int) -> str:
    """With the prefix that leaves up to three digits before the point.

    >>> _count(1_500_000_000), _count(36_334_139_424_768), _count(0)
    ('1.50 G', '36.33 T', '0.00  ')
    """
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if operations >= size:
            return f"{operations / size:.2f} {prefix}"
    return f"{operations:.2f}  "


def _time(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 3600:.2g} s"
