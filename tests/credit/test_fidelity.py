"""Ranks, overlaps and curves: by hand, against scipy, and where the right order is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from transformers import GPT2Config

from oar_bench.config import CreditSettings
from oar_bench.credit.answer import divergence
from oar_bench.credit.fidelity import (
    SHARES,
    answer_curves,
    aopc,
    by_importance,
    spearman,
    top_count,
    top_overlap,
)
from oar_bench.credit.methods import importance
from tests.credit.batches import batch_of
from tests.credit.references import real_rows, state_space_model


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_spearman_by_hand():
    # Without ties 1 - 6 sum d^2 / (n (n^2 - 1)).
    assert spearman(floats(1, 2, 3, 4), floats(2, 1, 4, 3)) == pytest.approx(1 - 6 * 4 / 60)
    assert spearman(floats(1, 2, 3), floats(3, 2, 1)) == pytest.approx(-1)
    # A tie: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4 -> 4.5 / sqrt(4.5 * 5).
    assert spearman(floats(0, 1, 1, 2), floats(0, 1, 2, 3)) == pytest.approx(4.5 / math.sqrt(22.5))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=30))
def test_spearman_equals_scipys_with_ties(pairs):
    a, b = (torch.tensor(values, dtype=torch.float32) for values in zip(*pairs, strict=True))
    found = spearman(a, b)
    if len(set(a.tolist())) == 1 or len(set(b.tolist())) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(a.numpy(), b.numpy()).statistic, abs=1e-12)
        assert spearman(a, a) == pytest.approx(1)
        assert top_overlap(a, a) == 1.0


@pytest.mark.parametrize("nothing", [floats(3, 3, 3), floats(1, math.nan, 2)])
def test_what_ranks_nothing_is_undefined_and_not_zero(nothing):
    for agreement in (spearman, top_overlap):
        assert math.isnan(agreement(nothing, floats(1, 2, 3)))
        assert math.isnan(agreement(floats(1, 2, 3), nothing))


def test_overlap_by_hand_ties_by_position():
    exact = floats(5, 4, 3, 2, 1, 0)  # top 2 of 6: the first and the second
    assert top_count(0.2, 6) == 2
    assert top_overlap(exact, floats(0, 9, 8, 0, 0, 0)) == 0.5
    assert top_overlap(exact, floats(0, 0, 1, 1, 1, 1)) == 0.0
    assert top_overlap(exact, floats(1, 1, 1, 1, 1, 0)) == 1.0  # of equal ones the earlier two
    assert top_overlap(exact, floats(0, 1, 1, 1, 1, 1)) == 0.5


def test_order_and_aopc_by_hand():
    assert by_importance(floats(1, 3, 3, 2)).tolist() == [1, 2, 3, 0]
    assert aopc([0.0, 0.5, 1.0, 2.5]) == 1.0


@torch.no_grad()
def naive_curves(model, batch, scores, replacement, shares):
    """Both curves by whole passes over single unpadded rows."""
    found = torch.full((len(batch.input_ids), 2, len(shares)), math.nan)
    for row, real, ids, answer, thinking in real_rows(batch):
        order = thinking[by_importance(scores[row, real[thinking]])]
        for k, share in enumerate(shares):
            few = math.ceil(share * len(order))
            for kind, gone in enumerate((order[:few], order[few:])):
                changed = ids.clone()
                changed[gone] = replacement
                clean, moved = (model(x[None]).logits[:, answer - 1] for x in (ids, changed))
                marks = torch.ones(1, len(answer), dtype=torch.bool)
                value = divergence("answer_mean", clean, moved, ids[answer][None], marks)
                found[row, kind, k] = value.clamp(min=0)
    return found


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("memory", [1, 2**28])
def test_curves_equal_whole_passes(model, tokenizer, side, memory):
    batch = batch_of(tokenizer, side)
    scores = importance("random", model, batch, CreditSettings(), tokenizer.pad_token_id)
    shares = (0.0, 0.25, 0.5, 1.0)
    expected = naive_curves(model, batch, scores, 0, shares)
    deletion, insertion = answer_curves(
        model, batch.input_ids, batch.attention_mask, batch.weighted(CreditSettings()),
        batch.probe.answer, scores, replacement=0, shares=shares, memory=memory,
    )  # fmt: skip
    found = torch.stack([deletion, insertion], 1)
    assert float(expected[0].max()) > 0.01
    assert bool(found[2].isnan().all())  # no answer there
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4, equal_nan=True)
    # Both ends: nothing replaced moves nothing, all replaced is the same from either side.
    there = [0, 1, 3]
    assert bool((deletion[there, 0] == 0).all() and (insertion[there, -1] == 0).all())
    torch.testing.assert_close(deletion[there, -1], insertion[there, 0])


def test_curves_without_a_plain_past(tokenizer):
    model = state_space_model(len(tokenizer))
    batch = batch_of(tokenizer, order=(0,))
    scores = importance("position", model, batch, CreditSettings(), 0)
    expected = naive_curves(model, batch, scores, 0, (0.2, 0.5))
    found = answer_curves(
        model, batch.input_ids, batch.attention_mask, batch.probe.reasoning, batch.probe.answer,
        scores, replacement=0, shares=(0.2, 0.5),
    )  # fmt: skip
    torch.testing.assert_close(torch.stack(found, 1), expected, atol=1e-5, rtol=1e-4)


class Additive(torch.nn.Module):
    """Logits of every token: 0 and the sum of the values of the tokens up to it."""

    dtype = torch.float32

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values = values
        # A layer type without keys and values: whole sequences are run.
        self.config = GPT2Config(vocab_size=2, n_embd=4, n_layer=1, n_head=1)
        self.config.layer_types = ["none"]

    def forward(self, input_ids, logits_to_keep, **_):
        total = self.values[input_ids].cumsum(1)[:, logits_to_keep]
        return SimpleNamespace(logits=torch.stack([torch.zeros_like(total), total], 2))


def test_where_tokens_add_up_the_order_of_deletion_is_known():
    """The value removed is the sum of the deleted ones: larger first deletes more at every share,
    smaller first restores less, and the divergence is the one of the two sums."""
    values = floats(0.0, 0.1, 0.8, 0.4, 0.2, 0.0)  # of the ids; 0 is the replacement
    model = Additive(values)
    ids = torch.tensor([[1, 2, 3, 4, 5, 5]])
    thinking = torch.tensor([[1, 1, 1, 1, 0, 0]]).bool()
    answer = torch.tensor([[0, 0, 0, 0, 0, 1]]).bool()
    parts = (ids, torch.ones_like(ids), thinking, answer)
    true = values[ids] * thinking
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    deleted, restored = answer_curves(model, *parts, true, replacement=0, shares=shares)
    worst = answer_curves(model, *parts, 1 - true, replacement=0, shares=shares)

    def moved(left: float) -> float:
        p, q = (1 / (1 + math.exp(-z)) for z in (1.5, left))
        return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))

    for found, left in ((deleted, (1.5, 0.7, 0.3, 0.1, 0.0)), (restored, (0, 0.8, 1.2, 1.4, 1.5))):
        assert found[0].tolist() == pytest.approx([moved(z) for z in left], abs=1e-6)
    for at in (1, 2, 3):
        assert deleted[0, at] > worst[0][0, at]
        assert restored[0, at] < worst[1][0, at]
    assert aopc(deleted[0].tolist()) > aopc(worst[0][0].tolist())
    # Its exact OAR-P orders the tokens the same way.
    from oar_bench.credit.perturbation import perturbation_importance

    exact = perturbation_importance(model, *parts, replacement=0)
    assert spearman(exact[thinking], true[thinking]) == pytest.approx(1)


def test_all_mediators_agree_wholly_with_the_exact(model, tokenizer):
    batch = batch_of(tokenizer)
    settings = CreditSettings(mediator_count="all")
    marked = batch.weighted(settings)
    exact, direct = (importance(name, model, batch, settings, 0) for name in ("oar-p", "oar-d"))
    for row in (0, 1, 3):
        a, b = exact[row, marked[row]], direct[row, marked[row]]
        assert spearman(a.round(decimals=5), b.round(decimals=5)) > 0.99
        assert top_overlap(a, b) == 1.0


def test_the_shares_of_the_curves_begin_with_none():
    assert SHARES[0] == 0.0
    assert list(SHARES) == sorted(SHARES)
