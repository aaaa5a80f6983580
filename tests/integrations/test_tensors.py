"""Weights on (B, P) prompts and (B, T) responses: what other trainers hold."""

from __future__ import annotations

import copy
import re

import pytest
import torch

from oar_bench.config import METHODS, CreditSettings
from oar_bench.credit.assign import assign
from oar_bench.errors import InputError
from oar_bench.integrations.tensors import evaluating, response_credit, weighted_advantages
from tests.credit.batches import PROMPTS, RESPONSES, batch_of


def tensors(tokenizer, prompt_side="left", response_side="right"):
    """The hand-made batch as two padded tensors, each padded on its side."""

    def pad(rows, side):
        width = max(map(len, rows)) + 2
        ids, mask = torch.zeros(len(rows), width).long(), torch.zeros(len(rows), width).long()
        for i, row in enumerate(rows):
            start = width - len(row) if side == "left" else 0
            ids[i, start : start + len(row)] = torch.tensor(row)
            mask[i, start : start + len(row)] = 1
        return ids, mask

    prompts = [tokenizer(text)["input_ids"] for text in PROMPTS]
    responses = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in RESPONSES]
    return *pad(prompts, prompt_side), *pad(responses, response_side)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sides", [("left", "right"), ("right", "right"), ("left", "left")])
def test_weights_are_those_of_assign_whatever_the_padding(model, tokenizer, method, sides):
    batch = batch_of(tokenizer)
    given = tensors(tokenizer, *sides)
    found = response_credit(
        model, tokenizer, *given, method=method, seeds=[1, 2, 3, 4], answer_type="exact"
    )
    batch = type(batch)(
        batch.input_ids, batch.attention_mask, batch.response_mask, batch.probe, found.batch.seeds
    )
    expected = assign(method, model, batch, CreditSettings(), tokenizer.pad_token_id)
    mask = given[3].bool()
    for i in range(3):  # by hand, the fourth's answer ends before the " then 1" that exact takes in
        own = batch.response_mask[i]
        torch.testing.assert_close(
            found.weights[i][mask[i]], expected.weights[i][own], atol=1e-3, rtol=1e-3
        )
    assert found.weights.shape == found.importance.shape == given[2].shape
    assert bool((found.weights[~mask] == 1).all())
    assert bool((found.importance[~mask] == 0).all())


def test_rows_that_need_none_keep_weight_one(model, tokenizer):
    needed = torch.tensor([True, False, True, False])
    found = response_credit(
        model, tokenizer, *tensors(tokenizer), method="oar-p", seeds=[0] * 4,
        answer_type="exact", needed=needed,
    )  # fmt: skip
    assert float(found.weights[0].max()) > 1.1
    assert bool((found.weights[~needed] == 1).all())
    assert bool((found.weights[2] == 1).all())  # states no answer


def test_what_is_needed_may_be_numbers(model, tokenizer):
    """0 and 1 mean no and yes, and are never taken for the numbers of rows."""
    given = tensors(tokenizer)
    asked = {"method": "oar-p", "seeds": [0] * 4, "answer_type": "exact"}
    as_bool, as_int = (
        response_credit(model, tokenizer, *given, **asked, needed=needed).weights
        for needed in (torch.tensor([False, True, False, True]), torch.tensor([0, 1, 0, 2]))
    )
    assert torch.equal(as_bool, as_int)
    assert float(as_int[1].max()) > 1.1
    assert bool((as_int[0] == 1).all())


def test_no_response_has_no_weights(model, tokenizer):
    given = [part[:0] for part in tensors(tokenizer)]
    found = response_credit(model, tokenizer, *given, method="oar-p", seeds=[])
    assert found.weights.shape == given[2].shape


def test_a_model_gone_astray_gives_weights_of_one(model, tokenizer):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.get_input_embeddings().weight[:] = float("nan")
    for method in METHODS:
        found = response_credit(
            broken, tokenizer, *tensors(tokenizer), method=method, seeds=[0] * 4
        )  # fmt: skip
        assert bool(torch.isfinite(found.weights).all())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "oar_p"}, "method: unknown method 'oar_p'; did you mean 'oar-p'"),
        ({"answer_type": "maths"}, "answer_type: unknown answer type 'maths'; did you mean 'math'"),
        ({"seeds": [0]}, "4 prompts, 4 responses and 1 seeds don't belong together"),
        ({"seeds": [0] * 5}, "4 responses and 5 seeds"),
        ({"needed": torch.tensor([True])}, "one value of `needed`"),
        ({"cut": True}, "a mask hasn't the shape of its ids"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(model, tokenizer, change, said):
    ids, mask, response, response_mask = tensors(tokenizer)
    asked = {"method": "oar-p", "seeds": [0] * 4, **change}
    given = ids, mask, response, response_mask[:, 1:] if asked.pop("cut", False) else response_mask
    with pytest.raises(InputError, match=re.escape(said)):
        response_credit(model, tokenizer, *given, **asked)


def test_advantages_of_both_shapes():
    weights = torch.tensor([[2.0, 0.0], [0.5, 1.5]])
    assert weighted_advantages(torch.tensor([1.0, -2.0]), weights).tolist() == [[2, 0], [-1, -3]]
    spread = torch.tensor([[1.0, 1.0], [-2.0, 0.0]])
    assert weighted_advantages(spread, weights).tolist() == [[2, 0], [-1, 0]]


def test_evaluating_gives_the_mode_back():
    layer = torch.nn.Dropout()
    with evaluating(layer):
        assert not layer.training
    assert layer.training
    layer.eval()
    with pytest.raises(KeyError), evaluating(layer):
        raise KeyError
    assert not layer.training
