"""Closed forms against torch's counter, on models small enough that attention counts too."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from oar_bench.config import CreditSettings, TrainSettings
from oar_bench.credit.assign import CreditBatch, importance
from oar_bench.credit.memory import Sizes
from oar_bench.credit.probe import TokenSpans, build_probe
from oar_bench.overhead.counter import counter
from oar_bench.overhead.flops import (
    Layout,
    Work,
    backward,
    forward,
    oar_d,
    oar_g,
    oar_p,
    oar_p_naive,
    step_flops,
)

PAD = 0
KERNELS = ["sdpa", "eager"]
ONE = Layout(prompt=40, reasoning=200, region=9, answer=8)
SMALL = Layout(prompt=12, reasoning=40, region=4, answer=3)


@pytest.fixture(scope="module")
def qwen():
    """Fewer key heads than heads, biases, a head of its own."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(
        vocab_size=61, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        tie_word_embeddings=False,
    )).eval()  # fmt: skip


def batch(layout: Layout, rows: int) -> CreditBatch:
    ids = torch.randint(1, 60, (rows, layout.length), generator=torch.Generator().manual_seed(1))
    response = torch.zeros(ids.shape, dtype=torch.bool)
    response[:, layout.prompt :] = True
    span = TokenSpans(layout.reasoning, layout.response - layout.answer, layout.response)
    return CreditBatch(
        ids, torch.ones_like(ids), response, build_probe(response, [span] * rows),
        torch.arange(rows),
    )  # fmt: skip


def of_credit(model, method: str, layout: Layout, rows: int = 1, **settings) -> int:
    with counter() as counted:
        importance(method, model, batch(layout, rows), CreditSettings(**settings), PAD)
    return counted.get_total_flops()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_forward_pass_is_exact(qwen, kernel):
    work = Work.of_model(qwen)
    assert work == Work.of(Sizes.of(qwen.config))
    ids = torch.randint(1, 60, (3, 30))
    qwen.set_attn_implementation(kernel)
    with torch.no_grad(), counter() as counted:
        past = qwen(ids[:, :20], use_cache=True, logits_to_keep=1).past_key_values
    assert counted.get_total_flops() == 3 * forward(work, 20, 0, 1)
    with torch.no_grad(), counter() as counted:
        qwen(ids[:, 20:], past_key_values=past, logits_to_keep=4)
    assert counted.get_total_flops() == 3 * forward(work, 10, 20, 4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_backward_pass_is_exact(qwen, kernel):
    work, fused = Work.of_model(qwen), kernel == "sdpa"
    qwen.set_attn_implementation(kernel)
    loss = qwen(torch.randint(1, 60, (2, 25)), use_cache=False).logits.sum()
    with counter() as counted:
        loss.backward()
    qwen.zero_grad()
    assert counted.get_total_flops() == 2 * backward(work, 25, 0, 25, fused=fused)


def test_a_decoder_without_gates_is_read_from_its_modules():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=16, n_layer=2, n_head=2))
    assert Work.of_model(model) == Work(2 * 12 * 16 * 16, 2 * 16, 61 * 16)


@pytest.mark.parametrize(("layout", "rows"), [(ONE, 1), (SMALL, 5)])
def test_oar_p_is_within_a_tenth(qwen, layout, rows):
    """Branches of unequal length share a pass: that costs a little more, never less."""
    qwen.set_attn_implementation("sdpa")
    expected = rows * oar_p(Work.of_model(qwen), layout)
    assert expected <= of_credit(qwen, "oar-p", layout, rows) <= 1.1 * expected


def test_what_reusing_the_prefix_saves(qwen):
    """L / (R / 2 + C) in the linear layers, more with the head: 2.3 and up for 40 + 200 + 9."""
    work = Work.of_model(qwen)
    assert oar_p_naive(work, ONE) / oar_p(work, ONE) > 2.3
    assert oar_p(Work(1, 0, 0), ONE) == 2 * (248 + sum(208 - t for t in range(200)))


@pytest.mark.parametrize("mediators", [0, 8])
def test_oar_d_is_within_a_tenth(qwen, mediators):
    expected = oar_d(Work.of_model(qwen), ONE, mediators)
    counted = of_credit(qwen, "oar-d", ONE, mediator_count=mediators)
    assert expected <= counted <= 1.1 * expected


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("draws", [1, 3])
def test_oar_g_is_exact(qwen, kernel, draws):
    qwen.set_attn_implementation(kernel)
    expected = 5 * oar_g(Work.of_model(qwen), SMALL, draws, fused=kernel == "sdpa")
    assert of_credit(qwen, "oar-g", SMALL, 5, noise_draws=draws) == expected


def test_oar_g_costs_three_forward_passes_and_no_weight_gradient(qwen):
    """At most 3.3 passes (plain attention): with weights' gradients it would be 4 and more."""
    qwen.set_attn_implementation("eager")
    qwen.zero_grad(set_to_none=True)
    work = Work.of_model(qwen)
    whole = forward(work, ONE.length, 0, ONE.answer)
    assert 2 < of_credit(qwen, "oar-g", ONE) / whole <= 3.3
    assert all(p.grad is None and p.requires_grad for p in qwen.parameters())
    shape = (ONE.length, 0, ONE.answer)
    weights_too = 2 * whole + backward(work, *shape, fused=False)
    assert weights_too / whole > 3.8


def test_a_step_adds_up_by_hand():
    layout = Layout(prompt=2, reasoning=1, region=2, answer=1)
    train, credit = TrainSettings(num_iterations=2), CreditSettings()
    found = step_flops(Work(10, 2, 6), layout, "grpo", 3, train, credit)
    assert found == {
        "rollout": 3 * 204, "grading": 0, "logprobs": 3 * 672, "credit": 0, "update": 3 * 2 * 1108
    }  # fmt: skip
    shuffled = step_flops(Work(10, 2, 6), layout, "shuffled", 3, train, credit)
    assert shuffled["credit"] == 3 * oar_p(Work(10, 2, 6), layout)
    assert step_flops(Work(10, 2, 6), layout, "attention", 3, train, credit)["credit"] is None
