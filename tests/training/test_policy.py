"""Precision, adapters, checkpointing: what they may change and what not; checkpoints of each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    GPT2Config,
    MixtralConfig,
    OPTConfig,
)

from oar_bench.config import Recipe, load_recipe
from oar_bench.engines.hf import load_model
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.training.policy import Policy, merged_weights
from oar_bench.training.trainer import train

LORA = {"rank": 4, "alpha": 8}


def recipe_of(steps: int = 2, model: dict | None = None, **changes) -> Recipe:
    return load_recipe(
        "smoke", {"train": {"steps": steps, "save_every": 1, **changes}, "model": model or {}}
    )


def gradients(policy: Policy, batch) -> dict[str, torch.Tensor]:
    with policy.updating():
        policy.scorer(*batch).logprobs.sum().backward()
    found = {name: p.grad.clone() for name, p in policy.trained.items()}
    policy.zero_grad()
    return found


@pytest.fixture
def batch(tokenizer):
    from oar_bench.training.model import pad_batch

    ids = [tokenizer("3 + 4 =")["input_ids"], tokenizer("1 * 2 =")["input_ids"]]
    responses = [tokenizer(text)["input_ids"] for text in ("so 3 + 4 = 7 ; #### 7", "#### 2")]
    return pad_batch(ids, responses, tokenizer.pad_token_id)


def test_checkpointing_changes_no_gradient(start: Path, batch):
    plain = Policy(recipe_of(), start, "cpu")
    saving = Policy(recipe_of(model={"gradient_checkpointing": True}), start, "cpu")
    entered: list[str] = []
    saving.scorer(*batch)  # finds out about the head
    for layer in saving.model.base_model.layers:
        layer.register_forward_pre_hook(lambda *_: entered.append("layer"))
    ours, theirs = gradients(saving, batch), gradients(plain, batch)
    assert len(entered) == 2 * len(saving.model.base_model.layers)  # each was run again
    assert not saving.model.training
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-6, rtol=1e-5)


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
RANDOM_IN_TRAINING = [  # rates on modules, on the configuration, of whole layers, of routers
    OPTConfig(**SMALL, ffn_dim=32, word_embed_proj_dim=16, dropout=0.5, layerdrop=0.5),
    FalconConfig(**SMALL, hidden_dropout=0.5, attention_dropout=0.5),
    GPT2Config(n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5),
    MixtralConfig(**SMALL, num_key_value_heads=2, intermediate_size=32, num_local_experts=2,
                  router_jitter_noise=0.5),
]  # fmt: skip


@pytest.mark.parametrize("config", RANDOM_IN_TRAINING, ids=lambda config: config.model_type)
def test_nothing_is_random_in_the_update(config, tokenizer, tmp_path, batch):
    """Checkpointing needs training mode, in which models drop and jitter unless told not to."""
    config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = Policy(recipe_of(model={"gradient_checkpointing": True}), tmp_path, "cpu")
    with torch.no_grad():
        before = policy.scorer(*batch).logprobs
    with policy.updating():
        during = policy.scorer(*batch).logprobs.detach()
    torch.testing.assert_close(during, before, atol=1e-5, rtol=1e-5)
    policy.save(tmp_path / "saved", {})
    theirs, ours = (read_json(p / "config.json") for p in (tmp_path, tmp_path / "saved"))
    rates = {key for key in theirs if "drop" in key or "jitter" in key}
    assert {key: theirs[key] for key in rates} == {key: ours[key] for key in rates} != {}


def test_small_steps_are_not_lost_in_bfloat16(start: Path, batch):
    """An update of a thousandth of a weight moves it after enough steps, through the copies."""
    policy = Policy(recipe_of(model={"dtype": "bfloat16"}), start, "cpu")
    assert policy.model.dtype == torch.bfloat16
    name, parameter = next((n, p) for n, p in policy.trained.items() if p.dim() == 2)
    before = parameter.detach().clone()
    ones = torch.ones_like(parameter)
    rate = float(before.abs().max()) * 2e-4  # a tenth of bfloat16's step at that size
    moved = []
    for _ in range(40):
        policy.zero_grad()
        parameter.grad = ones.clone()
        _, done = policy.apply(rate)
        assert done
        moved.append(int((parameter != before).sum()))
    large = before.abs() > 0.5 * before.abs().max()
    assert not bool((parameter[large] == before[large]).any())
    assert moved[0] < moved[-1]
    torch.testing.assert_close(
        policy.masters[name].float(), before.float() - 40 * rate, atol=2e-6, rtol=0
    )


def test_a_gradient_that_is_not_finite_changes_nothing(start: Path, batch):
    policy = Policy(recipe_of(), start, "cpu")
    before = {n: p.detach().clone() for n, p in policy.trained.items()}
    name, parameter = next(iter(policy.trained.items()))
    parameter.grad = torch.full_like(parameter, torch.inf)
    norm, done = policy.apply(1e-3)
    assert not done
    assert norm == float("inf")
    assert all(torch.equal(p, before[n]) for n, p in policy.trained.items())
    assert not policy.optimizer.state
    assert parameter.grad is None, name


def test_adapters_begin_as_the_start_and_alone_are_trained(start: Path, batch):
    policy = Policy(recipe_of(model={"lora": LORA}), start, "cpu")
    plain = Policy(recipe_of(), start, "cpu")
    want = plain.scorer(*batch).logprobs
    torch.testing.assert_close(policy.scorer(*batch).logprobs, want)
    assert policy.trained
    assert all(".lora_" in name for name in policy.trained)
    for parameter in policy.trained.values():
        parameter.grad = torch.ones_like(parameter)
    policy.apply(1e-1)
    moved = policy.scorer(*batch).logprobs
    assert float((moved - want).abs().max()) > 1e-3
    with policy.start_scorer() as scorer, torch.no_grad():
        torch.testing.assert_close(scorer(*batch).logprobs, want)
    torch.testing.assert_close(policy.scorer(*batch).logprobs, moved)


@pytest.mark.parametrize(
    "model",
    [{"lora": LORA}, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "lora": LORA}],
    ids=["lora", "bfloat16", "both"],
)
def test_a_resumed_run_equals_an_unbroken_one(model, start: Path, tmp_path):
    unbroken = train(recipe_of(3, model), "oar-p", 0, start, tmp_path / "a")
    recipe = recipe_of(3, model)

    class Stop(Exception):
        pass

    def stop(step, steps, metrics):
        if step == 2:
            raise Stop

    with pytest.raises(Stop):
        train(recipe, "oar-p", 0, start, tmp_path / "b", report=stop)
    resumed = train(recipe, "oar-p", 0, start, tmp_path / "b", resume=True)
    a, b = ((p / "model.safetensors").read_bytes() for p in (unbroken, resumed))
    assert a == b
    rows = [list(read_jsonl(tmp_path / n / "metrics.jsonl")) for n in "ab"]
    assert rows[0] == rows[1]


def test_a_checkpoint_of_adapters_is_a_plain_model(start: Path, tmp_path, batch):
    recipe = recipe_of(1, {"lora": LORA}, lr=1e-2)
    final = train(recipe, "grpo", 0, start, tmp_path / "run")
    plain, _ = load_model(final)
    assert not any(".lora_" in name for name in plain.state_dict())
    policy = Policy(recipe, start, "cpu")
    policy.restore(final)
    torch.testing.assert_close(
        plain.state_dict(), merged_weights(policy.model), atol=1e-7, rtol=1e-6
    )
    whole = Policy(recipe_of(), final, "cpu").scorer(*batch).logprobs
    torch.testing.assert_close(policy.scorer(*batch).logprobs, whole, atol=1e-5, rtol=1e-5)
    begun, _ = load_model(start)
    gap = max(float((plain.state_dict()[k] - v).abs().max()) for k, v in begun.state_dict().items())
    assert gap > 1e-4


@pytest.mark.parametrize("model", [{}, {"lora": LORA}])
def test_a_generation_config_that_cannot_be_validated_is_kept_as_it_is(
    model, start: Path, tmp_path
):
    """Llama 2's has a temperature without sampling: transformers loads it and won't save it."""
    folder = shutil.copytree(start, tmp_path / "start")
    said = {"eos_token_id": [1, 5], "temperature": 0.6, "top_p": 0.9, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(said))
    policy = Policy(recipe_of(model=model), folder, "cpu")
    policy.save(tmp_path / "saved", {})
    saved = read_json(tmp_path / "saved" / "generation_config.json")
    assert {key: saved.get(key, False) for key in said} == said
    assert load_model(tmp_path / "saved")[0].generation_config.eos_token_id == [1, 5]
    assert policy.model.generation_config.temperature == 0.6


def test_layers_that_are_not_there_are_refused(start: Path):
    with pytest.raises(InputError, match=r"model\.lora\.targets"):
        Policy(recipe_of(model={"lora": {**LORA, "targets": ["no_such_layer"]}}), start, "cpu")


def test_credit_of_a_model_with_adapters(start: Path, tmp_path):
    """OAR-P, OAR-D and OAR-G run through adapters; gradients reach no weight by them."""
    for method in ("oar-p", "oar-d", "oar-g"):
        train(recipe_of(1, {"lora": LORA}), method, 0, start, tmp_path / method)
        [row] = read_jsonl(tmp_path / method / "metrics.jsonl")
        assert row["weight_max"] > 1.1, method
