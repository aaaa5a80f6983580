"""The plan against what a real model needs."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from oar_bench.config import load_recipe
from oar_bench.credit.memory import Sizes
from oar_bench.overhead.flops import Layout, Work
from oar_bench.training.logprobs import LogprobModel
from oar_bench.training.plan import (
    GIB,
    activation_bytes,
    memory_plan,
    step_operations,
)


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=96, intermediate_size=256, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_near_what_autograd_keeps(llama, checkpointing):
    """By storage, each once, weights left out."""
    tokens = 2 * 200
    ids = torch.randint(3, 64, (2, 200))
    response = torch.zeros(ids.shape, dtype=torch.bool)
    response[:, -1] = True
    weights = {p.untyped_storage().data_ptr() for p in llama.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    if checkpointing:
        llama.gradient_checkpointing_enable({"use_reentrant": False})
        llama.train()
    scorer = LogprobModel(llama)
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            scorer(ids, torch.ones_like(ids), response)
    finally:
        llama.gradient_checkpointing_disable()
        llama.eval()
    planned = activation_bytes(Sizes.of(llama.config), tokens, checkpointing)
    if checkpointing:  # the layer that is run again comes on top, in the backward pass
        planned -= activation_bytes(Sizes.of(llama.config), tokens, False) // 6
    assert sum(kept.values()) == pytest.approx(planned, rel=0.3)


def test_the_plan_of_a_known_size():
    """A dense 7B (Qwen2.5's sizes) in bfloat16 with float32 copies: 16 bytes a weight."""
    sizes = Sizes(28, 3584, 18944, 28, 4, 128, 152064, 2)
    recipe = load_recipe("tiny", {
        "model": {"dtype": "bfloat16", "gradient_checkpointing": True},
        "train": {"track": [], "micro_batch_tokens": 4096},
    })  # fmt: skip
    whole = 7_615_616_512
    plan = memory_plan(recipe, sizes, whole, whole, longest=1500)
    fixed = plan.weights + plan.gradients + plan.optimizer
    assert fixed == 16 * whole
    assert plan.start == 0
    assert plan.total / GIB == pytest.approx(116, rel=0.05)
    lora = recipe.model_copy(
        update={"model": recipe.model.model_copy(update={"lora": load_lora()})}
    )
    assert memory_plan(lora, sizes, whole, 80_740_352, longest=1500).total < plan.total / 3


def test_operations_by_hand():
    """N 1000, a 0, HV 100; L 10, T 6; 4 responses: forward 2 N L + 2 HV T, backward twice that."""
    work, layout = Work(1000, 0, 100), Layout(4, 2, 4, 2)
    train = {"prompts_per_step": 2, "group_size": 2, "num_iterations": 3}
    plain = load_recipe("tiny", {"train": train})
    found = step_operations(plain, work, 0, "grpo", layout)
    assert found["update"] == 4 * 3 * (6 * 10_000 + 6 * 600)
    saving = load_recipe("tiny", {"train": train, "model": {"gradient_checkpointing": True}})
    again = step_operations(saving, work, 0, "grpo", layout)
    assert again == {**found, "update": 4 * 3 * (8 * 10_000 + 6 * 600)}
    lora = load_recipe("tiny", {"train": train, "model": {"lora": {"rank": 1}}})
    adapted = step_operations(lora, work, 50, "grpo", layout)
    assert adapted["update"] == 4 * 3 * (4 * 10_000 + 4 * 600 + 6 * 50 * 10)
    drawn = load_recipe("tiny", {"train": {**train, "dynamic_sampling": 2}})
    assert found["rollout"] == 4 * (2 * 1000 * 9 + 2 * 100 * 6)
    assert step_operations(drawn, work, 0, "grpo", layout) == {
        **found, "rollout": 3 * found["rollout"]
    }  # fmt: skip
    assert step_operations(drawn, work, 0, "grpo", layout, replayed=True)["rollout"] == 0


def load_lora():
    from oar_bench.config import LoraSettings

    return LoraSettings(rank=32)
