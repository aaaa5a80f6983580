"""Settings that must give one gradient: padding side, order, micro-batch, uniform weights."""

from __future__ import annotations

import pytest
import torch

from oar_bench.config import TrainSettings
from oar_bench.training.logprobs import token_logprobs
from oar_bench.training.loss import policy_loss, token_coefficients
from oar_bench.training.model import pad_batch
from tests.credit.batches import PROMPTS, RESPONSES

ADVANTAGES = [1.0, -0.5, 0.75, -1.25]
WEIGHTS = [0.3, 2.0, 1.0, 0.7, 1.4, 0.2, 1.1]


def gradient(
    model,
    tokenizer,
    *,
    side: str = "left",
    order: tuple[int, ...] = (0, 1, 2, 3),
    micro: int = 4,
    loss_type: str = "grpo",
    weighted: bool = True,
) -> torch.Tensor:
    """The flattened gradient of one optimizer step, by the trainer's own pieces."""
    encode = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    ids, attention, response = pad_batch(
        [encode(PROMPTS[i]) for i in order], [encode(RESPONSES[i]) for i in order],
        tokenizer.pad_token_id, side=side,
    )  # fmt: skip
    weights = torch.ones(ids.shape)
    if weighted:  # a pattern over each response's own tokens
        for row in range(len(order)):
            place = torch.nonzero(response[row]).flatten()
            weights[row, place] = torch.tensor([WEIGHTS[i % 7] for i in range(len(place))])
    advantages = torch.tensor([ADVANTAGES[i] for i in order])
    with torch.no_grad():
        old = token_logprobs(model, ids, attention, response)[0] - 0.05
    coefficients = token_coefficients(response, loss_type, 20)
    model.zero_grad()
    for rows in torch.arange(len(order)).split(micro):
        logprobs, _ = token_logprobs(model, ids[rows], attention[rows], response[rows])
        policy_loss(
            logprobs, old[rows], advantages[rows], weights[rows], coefficients[rows],
            clip_eps_low=0.2, clip_eps_high=0.2,
        ).loss.backward()  # fmt: skip
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    return flat


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_one_gradient(model, tokenizer, loss_type):
    base = gradient(model, tokenizer, loss_type=loss_type)
    assert float(base.norm()) > 0.01
    scale = float(base.abs().max())
    for change in (
        {"side": "right"},
        {"order": (2, 0, 3, 1)},
        {"micro": 1},
        {"micro": 3},
        {"side": "right", "order": (3, 2, 1, 0), "micro": 2},
    ):
        other = gradient(model, tokenizer, loss_type=loss_type, **change)
        torch.testing.assert_close(other / scale, base / scale, atol=1e-6, rtol=1e-5)


def test_weights_change_the_gradient(model, tokenizer):
    one, two = gradient(model, tokenizer), gradient(model, tokenizer, weighted=False)
    assert float((one - two).norm() / one.norm()) > 0.05


def test_padding_that_equals_a_sampled_token_is_still_masked(tokenizer):
    """pad == eos must not hide a sampled end of sequence."""
    end = tokenizer.eos_token_id
    ids, attention, response = pad_batch([[5], [5, 6]], [[7, end], [end]], pad_id=end)
    assert attention.sum(1).tolist() == [3, 3]
    assert response.sum(1).tolist() == [2, 1]
    assert ids[response].tolist() == [7, end, end]


def test_logprobs_are_those_of_the_plain_softmax(model, tokenizer):
    encode = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    prompt, response = encode(PROMPTS[0]), encode(RESPONSES[0])
    ids, attention, mask = pad_batch([prompt, prompt], [response, response[:3]], 0)
    logprobs, entropy = token_logprobs(model, ids, attention, mask, temperature=0.7)
    logits = model(torch.tensor([prompt + response])).logits[0].detach() / 0.7
    table = logits.log_softmax(-1)
    expected = [float(table[len(prompt) + i - 1, t]) for i, t in enumerate(response)]
    assert logprobs[0][mask[0]].tolist() == pytest.approx(expected, abs=1e-5)
    assert logprobs[1][mask[1]].tolist() == pytest.approx(expected[:3], abs=1e-5)
    assert bool((logprobs[~mask] == 0).all())
    spread = -(table.exp() * table).sum(-1)[len(prompt) - 1 : -1]
    assert entropy[0][mask[0]].tolist() == pytest.approx(spread.tolist(), abs=1e-4)


def test_defaults_are_grpos():
    settings = TrainSettings()
    assert (settings.clip_eps_low, settings.clip_eps_high) == (0.2, 0.2)
    assert (settings.loss_type, settings.kl_beta, settings.num_iterations) == ("grpo", 0.0, 1)
