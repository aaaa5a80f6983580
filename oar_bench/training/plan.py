"""What a run would cost, before it is begun: memory of one process, operations, hours.

Estimates from the sizes in config.json; no weights are read. Memory is that of the update, where
a step needs the most; a process that rolls out with an engine of its own needs that engine's too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oar_bench.config import Recipe
from oar_bench.credit.memory import Sizes
from oar_bench.overhead.flops import Layout, Work, backward, forward, step_flops

GIB = 2**30
ADAM_BYTES, MASTER_BYTES = 8, 4
"""A trained weight: two float32 moments; its float32 copy where it is kept in bfloat16."""


def activation_bytes(sizes: Sizes, tokens: int, checkpointing: bool) -> int:
    """What a forward pass keeps for its backward pass, attention by a kernel that keeps no scores.

    A layer keeps its input, both norms' float32 inputs and outputs, queries, keys, values, the
    attention's output, and four rows of the feed-forward part; with checkpointing every layer keeps
    its input alone, and one layer at a time keeps the rest. The last norm comes on top.

    >>> sizes = Sizes(layers=4, hidden=8, intermediate=16, heads=4, kv_heads=2, head_size=2,
    ...               vocabulary=10, item=2)
    >>> activation_bytes(sizes, 1, False), activation_bytes(sizes, 1, True)
    (1536, 496)
    """
    width = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_size
    rows = 4 * sizes.hidden + width + sizes.heads * sizes.head_size + 4 * sizes.intermediate
    layer = rows * sizes.item + 4 * 4 * sizes.hidden
    norm = 2 * 4 * sizes.hidden
    if checkpointing:
        return tokens * (sizes.layers * sizes.hidden * sizes.item + layer + norm)
    return tokens * (sizes.layers * layer + norm)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one process during the update."""

    weights: int
    start: int
    gradients: int
    optimizer: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """All together."""
        return sum(asdict(self).values())


def memory_plan(recipe: Recipe, sizes: Sizes, whole: int, trained: int, longest: int) -> MemoryPlan:
    """Memory of the update.

    Args:
        recipe: its sections `model` and `train`.
        sizes: of the model, `item` being the bytes of a weight.
        whole, trained: its weights, and those that are trained.
        longest: tokens of the longest prompt and response together.
    """
    model, train = recipe.model, recipe.train
    item = sizes.item if model.lora is None else 4  # adapters are float32
    room = (train.micro_batch_tokens or train.micro_batch_size * longest) // longest
    rows = max(1, min(train.micro_batch_size, room, train.prompts_per_step * train.group_size))
    copies = MASTER_BYTES if item < 4 else 0
    tokens = rows * longest
    return MemoryPlan(
        weights=whole * sizes.item + (trained * item if model.lora else 0),
        start=whole * sizes.item if train.scores_start and model.lora is None else 0,
        gradients=trained * item,
        optimizer=trained * (ADAM_BYTES + copies),
        activations=activation_bytes(sizes, tokens, model.gradient_checkpointing),
        logits=min(train.logits_mib * 2**20, 12 * tokens * sizes.vocabulary),
    )


def layout_of(prompt: int, response: int, answer: int = 4) -> Layout:
    """A response that ends in a marked answer of a few tokens.

    >>> layout_of(16, 64)
    Layout(prompt=16, reasoning=58, region=6, answer=4)
    """
    region = min(answer + 2, response)
    return Layout(prompt, response - region, region, min(answer, region))


def step_operations(
    recipe: Recipe, work: Work, trained: int, method: str, layout: Layout, *, replayed: bool = False
) -> dict[str, int | None]:
    """Operations of one step by phase, all responses being of one length and with an advantage.

    With adapters the update has no gradients of the other weights, with checkpointing it passes
    twice through the layers; dynamic sampling draws as often as it may.

    Args:
        recipe: its sections `train`, `credit` and `model`.
        work: of the model without adapters.
        trained: weights of the adapters, where the recipe has some.
        method: of credit.
        layout: tokens of a response.
        replayed: nothing is sampled.
    """
    train, model = recipe.train, recipe.model
    responses = train.prompts_per_step * train.group_size
    found = step_flops(work, layout, method, responses, train, recipe.credit)
    draws = 0 if replayed else 1 + train.dynamic_sampling
    shape = (layout.length, 0, layout.response)
    learnt = forward(work, *shape) + backward(work, *shape, weights=model.lora is None)
    if model.lora is not None:
        learnt += 6 * trained * layout.length
    if model.gradient_checkpointing:
        learnt += forward(work, layout.length)
    return {
        **found,
        "rollout": (found["rollout"] or 0) * draws,
        "update": responses * train.num_iterations * learnt,
    }


def as_rows(plan: MemoryPlan) -> dict[str, Any]:
    """The plan in GiB, by part and in all."""
    return {name: value / GIB for name, value in {**asdict(plan), "total": plan.total}.items()}
