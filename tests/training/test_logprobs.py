"""Log-probabilities in parts: equal to whole tables, for every kind of head, and in less memory."""

from __future__ import annotations

import pytest
import torch

from oar_bench.training import logprobs as module
from oar_bench.training.logprobs import LogprobModel
from oar_bench.training.model import pad_batch
from tests.credit.references import other_models, state_space_model

PROMPTS, RESPONSES = [[5, 6, 7], [8]], [[9, 10, 11, 12], [13, 14]]


def plain(model, ids, attention, response, temperature):
    """Log-probabilities and entropies by a table of all logits."""
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=attention, position_ids=positions).logits
    table = (logits.float() / temperature).log_softmax(-1)[:, :-1]
    chosen = torch.zeros(ids.shape)
    chosen[:, 1:] = table.gather(2, ids[:, 1:, None])[:, :, 0]
    spread = torch.zeros(ids.shape)
    spread[:, 1:] = -(table.exp() * table).sum(-1)
    return chosen * response, spread * response


WORDS = 40


@pytest.fixture(params=[*other_models.values(), state_space_model], ids=[*other_models, "mamba"])
def model(request):
    return request.param(WORDS)


@pytest.mark.parametrize("tokens", [1, 4, 1000])
@pytest.mark.parametrize("side", ["left", "right"])
def test_parts_give_values_entropies_and_gradients_of_the_whole(model, tokens, side, monkeypatch):
    vocabulary = model.config.vocab_size
    monkeypatch.setattr(module, "TABLES", 2**20 // (4 * vocabulary * tokens) + 1)
    batch = pad_batch(PROMPTS, RESPONSES, 0, side=side)
    want, spread = plain(model, *batch, 0.7)
    weights = torch.arange(1.0, want.numel() + 1).view(want.shape)
    model.zero_grad()
    (want * weights).sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    found = LogprobModel(model, 0.7, logits_mib=1)(*batch, entropy=True)
    (found.logprobs * weights).sum().backward()
    torch.testing.assert_close(found.logprobs, want, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(found.entropy, spread, atol=2e-6, rtol=1e-5)
    assert not found.entropy.requires_grad
    for name, parameter in model.named_parameters():
        scale = expected[name].abs().max().clamp(min=1e-3)
        torch.testing.assert_close(
            parameter.grad / scale, expected[name] / scale, atol=1e-5, rtol=1e-4
        )


def test_the_kind_of_head_is_found_out():
    plain = {name: module._head_is_plain(make(WORDS)) for name, make in other_models.items()}
    assert plain == {"qwen2": True, "mistral": True, "gpt2": True, "gemma2": False}


def test_parts_are_not_kept_for_the_backward_pass(monkeypatch):
    """What autograd saves in parts doesn't hold a table of tokens x vocabulary."""
    model = other_models["qwen2"](WORDS)
    monkeypatch.setattr(module, "TABLES", 2**20 // (4 * model.config.vocab_size) + 1)
    batch = pad_batch(PROMPTS, [[9] * 40, [10] * 40], 0)

    def saved(logits_mib: int) -> int:
        sizes: list[int] = []

        def pack(tensor):
            sizes.append(tensor.numel() if tensor.shape[-1:] == (model.config.vocab_size,) else 0)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            LogprobModel(model, 1.0, logits_mib)(*batch)
        return sum(sizes)

    assert saved(1000) >= 80 * model.config.vocab_size
    assert saved(1) < 2 * model.config.vocab_size
