"""What an evaluation would ask and cost, before anything is generated: `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oar_bench.console import printable
from oar_bench.engines.base import Sampling
from oar_bench.evaluation.shards import Shard
from oar_bench.tasks.registry import LoadedTask

SHOWN = 2  # prompts that are printed whole


@dataclass(frozen=True)
class Plan:
    """The size of an evaluation; `most_tokens` bounds what can be generated."""

    task: str
    problems: int
    samples: int
    requests: int
    prompt_tokens_min: int
    prompt_tokens_mean: float
    prompt_tokens_max: int
    prompt_tokens_total: int
    max_new_tokens: int
    most_tokens: int
    prompts: tuple[str, ...]
    """The first prompts, exactly as the model gets them."""


def plan(
    task: LoadedTask,
    samples: int,
    sampling: Sampling,
    count_tokens: Callable[[str], int],
    shard: Shard | None = None,
) -> Plan:
    """Count what `generate` with the same settings would ask.

    Args:
        task: as it would be asked.
        samples: responses to each problem.
        sampling: its token limit enters the bound.
        count_tokens: of a prompt, special tokens included.
        shard: only these problems.
    """
    asked = [
        question.prompt
        for number, question in enumerate(task.questions)
        if shard is None or shard.has(number)
    ]
    tokens = [count_tokens(prompt) for prompt in asked]
    requests = len(asked) * samples
    return Plan(
        task=task.name,
        problems=len(asked),
        samples=samples,
        requests=requests,
        prompt_tokens_min=min(tokens, default=0),
        prompt_tokens_mean=sum(tokens) / max(1, len(tokens)),
        prompt_tokens_max=max(tokens, default=0),
        prompt_tokens_total=sum(tokens) * samples,
        max_new_tokens=sampling.max_new_tokens,
        most_tokens=requests * sampling.max_new_tokens,
        prompts=tuple(asked[:SHOWN]),
    )


def format_plan(found: Plan, shown: bool = True) -> str:
    """A plan for people; prompts between rulers, control characters made harmless."""
    lines = []
    for number, prompt in enumerate(found.prompts if shown else (), start=1):
        lines += [f"--- prompt {number} ---", printable(prompt)]
    lines += [
        "---",
        f"{found.task}: {found.problems} problems x {found.samples} samples "
        f"= {found.requests} requests",
        f"  prompt tokens     min {found.prompt_tokens_min}, mean {found.prompt_tokens_mean:.1f}, "
        f"max {found.prompt_tokens_max}; {found.prompt_tokens_total} over all requests",
        f"  max new tokens    {found.max_new_tokens}",
        f"  to be generated   at most {found.most_tokens} tokens",
    ]
    return "\n".join(lines)
