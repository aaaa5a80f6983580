"""OAR-P and OAR-G: equal to their definitions, whatever the batch, padding and chunk."""

from __future__ import annotations

import pytest
import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.assign import importance
from oar_bench.credit.gradient import gradient_importance
from oar_bench.credit.perturbation import perturbation_importance
from tests.credit.batches import batch_of, own
from tests.credit.references import naive, other_models, state_space_model, windowed_models

PFINALS = ["last", "answer_mean", "answer_kl", "answer_joint"]


@pytest.mark.parametrize("pfinal", PFINALS)
@torch.no_grad()
def test_perturbation_equals_the_naive_loop(model, tokenizer, pfinal):
    batch = batch_of(tokenizer)
    expected = naive(model, batch, tokenizer.pad_token_id, pfinal)
    found = importance("oar-p", model, batch, CreditSettings(pfinal=pfinal), tokenizer.pad_token_id)
    assert expected.max() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [*other_models, *windowed_models, "state space"])
@torch.no_grad()
def test_perturbation_of_other_architectures(kind, tokenizer):
    makers = {**other_models, **windowed_models, "state space": state_space_model}
    model = makers[kind](len(tokenizer))
    # A state runs over padding: such a model is used on rows of equal length.
    batch = batch_of(tokenizer, order=(0,) if kind == "state space" else (0, 1, 2, 3))
    expected = naive(model, batch, tokenizer.pad_token_id, "answer_mean")
    found = importance("oar-p", model, batch, CreditSettings(), tokenizer.pad_token_id)
    assert expected.max() > 1e-3
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["oar-p", "oar-g"])
def test_importance_does_not_depend_on_batch_padding_or_chunk(model, tokenizer, method):
    pad = tokenizer.pad_token_id
    one = batch_of(tokenizer)
    first = importance(method, model, one, CreditSettings(sigma=0.3), pad)
    order = (3, 1, 0, 2)
    for side in ("left", "right"):
        for chunk in (1, 64):
            settings = CreditSettings(sigma=0.3, memory_mib=chunk)
            other = batch_of(tokenizer, side, order)
            second = importance(method, model, other, settings, pad)
            for row, source in enumerate(order):
                torch.testing.assert_close(
                    own(second, other, row), own(first, one, source), atol=1e-5, rtol=1e-4
                )


@pytest.mark.parametrize("pfinal", PFINALS)
def test_gradient_equals_its_definition(model, tokenizer, pfinal):
    """Row by row: embed, add the very noise, take J's gradient by `backward` on a leaf."""
    from oar_bench.credit.answer import divergence
    from oar_bench.credit.gradient import keyed_noise

    batch = batch_of(tokenizer)
    found = gradient_importance(
        model, batch.input_ids, batch.attention_mask, batch.probe.reasoning, batch.probe.answer,
        batch.seeds, sigma=0.3, pfinal=pfinal,
    )  # fmt: skip
    noise = keyed_noise(batch.probe.reasoning, 32, batch.seeds, 0)
    for row in (0, 1, 3):
        real = torch.nonzero(batch.attention_mask[row]).flatten()
        ids = batch.input_ids[row, real]
        at = torch.nonzero(batch.probe.answer[row, real]).flatten()
        clean_e = model.get_input_embeddings()(ids).detach()
        leaf = (clean_e + 0.3 * noise[row, real]).requires_grad_()
        clean = model(inputs_embeds=clean_e[None]).logits[:, at - 1].detach()
        moved = model(inputs_embeds=leaf[None]).logits[:, at - 1]
        marks = torch.ones(1, len(at), dtype=torch.bool)
        divergence(pfinal, clean, moved, ids[at][None], marks).sum().backward(inputs=[leaf])
        expected = (leaf.grad * clean_e).sum(-1).abs() * batch.probe.reasoning[row, real]
        assert expected.max() > 1e-4
        torch.testing.assert_close(found[row, real], expected, atol=1e-5, rtol=1e-4)


def test_gradient_leaves_every_parameter_gradient_untouched(model, tokenizer):
    batch = batch_of(tokenizer)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    importance("oar-g", model, batch, CreditSettings(), tokenizer.pad_token_id)
    for name, parameter in model.named_parameters():
        assert bool((parameter.grad == 0.25).all()), name
        parameter.grad = None
    importance("oar-g", model, batch, CreditSettings(), tokenizer.pad_token_id)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_noise_draws_average_the_absolute_saliencies(model, tokenizer):
    batch = batch_of(tokenizer)
    parts = (batch.input_ids, batch.attention_mask, batch.probe.reasoning, batch.probe.answer)
    both = gradient_importance(model, *parts, batch.seeds, sigma=0.3, noise_draws=2)
    one = gradient_importance(model, *parts, batch.seeds, sigma=0.3, noise_draws=1)
    assert not torch.allclose(both, one)
    assert bool((2 * both >= one - 1e-6).all())  # the other draw adds something >= 0


def test_relative_sigma_is_in_units_of_the_embeddings_rms(model, tokenizer):
    batch = batch_of(tokenizer)
    parts = (batch.input_ids, batch.attention_mask, batch.probe.reasoning, batch.probe.answer)
    rms = float(model.get_input_embeddings().weight.detach().square().mean().sqrt())
    relative = gradient_importance(model, *parts, batch.seeds, sigma=0.5, sigma_scale="relative")
    absolute = gradient_importance(model, *parts, batch.seeds, sigma=0.5 * rms)
    torch.testing.assert_close(relative, absolute)


def test_tokens_behind_the_answer_score_nothing(model, tokenizer):
    batch = batch_of(tokenizer)
    scope = CreditSettings(scope="response")
    for method in ("oar-p", "oar-g"):
        scores = importance(method, model, batch, scope, tokenizer.pad_token_id)
        answer_end = int(torch.nonzero(batch.probe.answer[3]).max())
        assert float(scores[3, answer_end:].abs().max()) < 1e-6
        assert float(scores[3, :answer_end].max()) > 0


def test_scope_response_scores_answer_tokens_too(model, tokenizer):
    """The first of two answer tokens moves the second; the naive loop agrees."""
    batch = batch_of(tokenizer)
    with torch.no_grad():
        found = perturbation_importance(
            model, batch.input_ids, batch.attention_mask,
            batch.response_mask & batch.probe.found[:, None], batch.probe.answer,
            replacement=tokenizer.pad_token_id, pfinal="answer_kl",
        )  # fmt: skip
        row = 1
        real = torch.nonzero(batch.attention_mask[row]).flatten()
        ids = batch.input_ids[row, real]
        at = torch.nonzero(batch.probe.answer[row, real]).flatten()
        changed = ids.clone()
        changed[at[0]] = tokenizer.pad_token_id
        clean = model(ids[None]).logits[0, at - 1].log_softmax(-1)
        moved = model(changed[None]).logits[0, at - 1].log_softmax(-1)
        expected = (clean.exp() * (clean - moved)).sum()
    assert float(expected) > 1e-3
    assert float(found[row, real[at[0]]]) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("method", ["oar-g", "oar-g0", "oar-gp", "oar-gf"])
def test_importances_ask_for_no_slope_under_gradient_checkpointing(model, tokenizer, method):
    """It hooks the embeddings, whose output then asks for slopes even where none are kept."""
    batch = batch_of(tokenizer)
    plain = importance(method, model, batch, CreditSettings(), tokenizer.pad_token_id)
    model.enable_input_require_grads()
    try:
        hooked = importance(method, model, batch, CreditSettings(), tokenizer.pad_token_id)
    finally:
        model.disable_input_require_grads()
    assert not hooked.requires_grad
    assert torch.equal(plain, hooked)
