"""OAR-D: equal to a pass whose other tokens are held at their clean states, and its limits."""

from __future__ import annotations

import pytest
import torch
from transformers import GemmaConfig, GemmaForCausalLM, MistralConfig, MistralForCausalLM

from oar_bench.config import CreditSettings
from oar_bench.credit.assign import importance
from oar_bench.errors import InputError
from tests.credit.batches import batch_of
from tests.credit.references import held_direct, other_models


@pytest.mark.parametrize("mediators", ["attention", "next"])
@pytest.mark.parametrize("count", [0, 2, 5])
@torch.no_grad()
def test_equals_a_pass_with_all_other_tokens_held(model, tokenizer, count, mediators):
    batch = batch_of(tokenizer)
    pad = tokenizer.pad_token_id
    expected = held_direct(model, batch, pad, count, mediators)
    settings = CreditSettings(mediator_count=count, mediators=mediators)
    found = importance("oar-d", model, batch, settings, pad)
    assert float(expected.max()) > 0.01
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scope", ["reasoning", "response"])
@pytest.mark.parametrize("pfinal", ["last", "answer_mean", "answer_kl", "answer_joint"])
def test_all_mediators_make_it_exact(model, tokenizer, scope, pfinal):
    batch = batch_of(tokenizer)
    settings = CreditSettings(scope=scope, pfinal=pfinal, mediator_count="all")
    pad = tokenizer.pad_token_id
    exact = importance("oar-p", model, batch, settings, pad)
    found = importance("oar-d", model, batch, settings, pad)
    assert float(exact.max()) > 0.01
    torch.testing.assert_close(found, exact, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", other_models)
def test_other_architectures(kind, tokenizer):
    model = other_models[kind](len(tokenizer))
    batch = batch_of(tokenizer)
    pad = tokenizer.pad_token_id
    exact = importance("oar-p", model, batch, CreditSettings(), pad)
    implementation = model.config._attn_implementation
    found = importance("oar-d", model, batch, CreditSettings(mediator_count=60), pad)
    assert float(exact.max()) > 1e-3
    torch.testing.assert_close(found, exact, atol=1e-5, rtol=1e-4)
    assert model.config._attn_implementation == implementation


def test_more_mediators_are_no_worse_in_total(model, tokenizer):
    batch = batch_of(tokenizer)
    pad = tokenizer.pad_token_id
    exact = importance("oar-p", model, batch, CreditSettings(), pad)
    gaps = [
        float((importance("oar-d", model, batch, CreditSettings(mediator_count=m), pad) - exact)
              .abs().sum())
        for m in (0, 4, 8, 12)
    ]  # fmt: skip
    assert gaps[0] > gaps[-1]
    assert gaps[-1] < 0.1 * float(exact.sum())


def test_a_window_shorter_than_the_sequence_is_refused(tokenizer):
    sizes = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    }  # fmt: skip
    model = MistralForCausalLM(MistralConfig(**sizes, sliding_window=6)).eval()
    with pytest.raises(InputError, match="attention window of 6 tokens is shorter"):
        importance("oar-d", model, batch_of(tokenizer), CreditSettings(), tokenizer.pad_token_id)
    wide = GemmaForCausalLM(GemmaConfig(**sizes, head_dim=8)).eval()
    found = importance("oar-d", wide, batch_of(tokenizer), CreditSettings(), tokenizer.pad_token_id)
    assert bool(torch.isfinite(found).all())
