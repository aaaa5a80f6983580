"""What a run would cost, before it is begun: memory of one process, operations, hours.

Estimates from the sizes in config.json; no weights are read. Memory is that of the update, where
a step needs the most; a process that rolls out with an engine of its own needs that engine's too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oar_bench.config import Recipe
from oar_bench.credit.memory import Sizes
from oar_bench.overhead.flops import Layout, Work, step_flops

GIB = 2**30
ADAM_BYTES, MASTER_BYTES = 8, 4
"""A trained weight: two float32 moments; its float32 copy where it is kept in bfloat16."""


def parameters(sizes: Sizes, tied: bool) -> int:
    """Weights of a dense decoder with gated feed-forward layers, norms left out.

    >>> parameters(Sizes(layers=2, hidden=8, intermediate=16, heads=4, kv_heads=2, head_size=2,
    ...                  vocabulary=10, item=4), tied=True)  # 1152 + 80
    1232
    """
    work = Work.of(sizes)
    return work.linear + work.head * (1 if tied else 2)


def adapter_parameters(sizes: Sizes, rank: int) -> int:
    """Weights of adapters of a rank on every projection: rank x (inputs + outputs) of each.

    >>> adapter_parameters(Sizes(layers=1, hidden=8, intermediate=16, heads=4, kv_heads=2,
    ...                          head_size=2, vocabulary=10, item=4), rank=2)
    256
    """
    width, narrow = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
    attention = (sizes.hidden + width) * 2 + (sizes.hidden + narrow) * 2
    return sizes.layers * rank * (attention + 3 * (sizes.hidden + sizes.intermediate))


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


def memory_plan(recipe: Recipe, sizes: Sizes, tied: bool, longest: int) -> MemoryPlan:
    """Memory of the update.

    Args:
        recipe: its sections `model` and `train`.
        sizes: of the model, `item` being the bytes of a weight.
        tied: whether embedding and head are one matrix.
        longest: tokens of the longest prompt and response together.
    """
    model, train = recipe.model, recipe.train
    whole = parameters(sizes, tied)
    trained = whole if model.lora is None else adapter_parameters(sizes, model.lora.rank)
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


def step_operations(
    recipe: Recipe, work: Work, method: str, prompt: int, response: int, answer: int = 4
) -> dict[str, int | None]:
    """Operations of one step by phase, all responses being of one length and with an advantage."""
    region = min(answer + 2, response)
    layout = Layout(prompt, response - region, region, min(answer, region))
    responses = recipe.train.prompts_per_step * recipe.train.group_size
    return step_flops(work, layout, method, responses, recipe.train, recipe.credit)


def as_rows(plan: MemoryPlan) -> dict[str, Any]:
    """The plan in GiB, by part and in all."""
    return {name: value / GIB for name, value in {**asdict(plan), "total": plan.total}.items()}
