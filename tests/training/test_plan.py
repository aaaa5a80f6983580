"""The plan against what a real model needs."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from oar_bench.config import load_recipe
from oar_bench.credit.memory import Sizes
from oar_bench.training.logprobs import LogprobModel
from oar_bench.training.plan import (
    GIB,
    activation_bytes,
    adapter_parameters,
    memory_plan,
    parameters,
)
from oar_bench.training.policy import add_adapters


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=96, intermediate_size=256, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_parameters_are_those_of_the_model(llama):
    whole = sum(p.numel() for n, p in llama.named_parameters() if "norm" not in n)
    assert parameters(Sizes.of(llama.config), tied=True) == whole


def test_adapters_are_those_of_peft(llama):
    import copy

    from oar_bench.config import LoraSettings

    model = copy.deepcopy(llama)
    add_adapters(model, LoraSettings(rank=4))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert adapter_parameters(Sizes.of(llama.config), rank=4) == trained


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
    plan = memory_plan(recipe, sizes, tied=False, longest=1500)
    assert parameters(sizes, tied=False) == pytest.approx(7.6e9, rel=0.01)
    fixed = plan.weights + plan.gradients + plan.optimizer
    assert fixed == 16 * parameters(sizes, tied=False)
    assert plan.start == 0
    assert plan.total / GIB == pytest.approx(116, rel=0.05)
    lora = recipe.model_copy(
        update={"model": recipe.model.model_copy(update={"lora": load_lora()})}
    )
    assert memory_plan(lora, sizes, tied=False, longest=1500).total < plan.total / 3


def load_lora():
    from oar_bench.config import LoraSettings

    return LoraSettings(rank=32)
