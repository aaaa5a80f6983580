"""Every importance by name: its definition, and that nothing but the response decides it."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import spearmanr

from oar_bench.config import IMPORTANCE_METHODS, CreditSettings
from oar_bench.credit.assign import assign, importance
from oar_bench.credit.methods import IMPORTANCES
from tests.credit.batches import batch_of, own
from tests.credit.references import divergence_of, other_models, real_rows, windowed_models

GRADIENTS = ["oar-g", "oar-g0", "oar-gp", "oar-gf"]


def test_every_name_has_its_function():
    assert tuple(IMPORTANCES) == IMPORTANCE_METHODS


@pytest.mark.parametrize("method", IMPORTANCE_METHODS)
def test_neither_batch_padding_nor_memory_changes_it(model, tokenizer, method):
    pad, settings = tokenizer.pad_token_id, {"sigma": 0.3, "span": 3, "mediator_count": 3}
    one = batch_of(tokenizer)
    first = importance(method, model, one, CreditSettings(**settings), pad)
    assert float(first[0].max()) > 0
    assert not bool(first[~one.probe.reasoning].any())
    order = (3, 1, 0, 2)
    for side in ("left", "right"):
        for memory in (1, 64):
            other = batch_of(tokenizer, side, order)
            second = importance(
                method, model, other, CreditSettings(**settings, memory_mib=memory), pad
            )
            for row, source in enumerate(order):
                torch.testing.assert_close(
                    own(second, other, row), own(first, one, source), atol=1e-5, rtol=1e-4
                )


@pytest.mark.parametrize("method", GRADIENTS)
def test_gradients_leave_the_weights_alone(model, tokenizer, method):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    importance(method, model, batch, CreditSettings(), pad)
    assert all(bool((p.grad == 0.25).all()) for p in model.parameters())
    for parameter in model.parameters():
        parameter.grad = None
    importance(method, model, batch, CreditSettings(), pad)
    assert all(p.grad is None for p in model.parameters())


def _slopes(model, ids, answer):
    """Embeddings (T, H) and the log-probabilities (A, V) that depend on them."""
    leaf = model.get_input_embeddings()(ids).detach().requires_grad_()
    return leaf, model(inputs_embeds=leaf[None]).logits[0, answer - 1].log_softmax(-1)


def test_attribution_patching_is_the_slope_toward_the_replacement(model, tokenizer):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("oar-gp", model, batch, CreditSettings(), pad)
    toward = model.get_input_embeddings().weight[pad].detach()
    for row, real, ids, answer, thinking in real_rows(batch):
        leaf, logp = _slopes(model, ids, answer)
        logp[torch.arange(len(answer)), ids[answer]].sum().backward(inputs=[leaf])
        expected = (leaf.grad * (toward - leaf.detach())).sum(-1).abs()[thinking]
        torch.testing.assert_close(found[row, real[thinking]], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("top_k", [2, 36])
def test_fisher_score_is_the_expected_squared_slope(model, tokenizer, top_k):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("oar-gf", model, batch, CreditSettings(fisher_top_k=top_k), pad)
    toward = model.get_input_embeddings().weight[pad].detach()
    for row, real, ids, answer, thinking in real_rows(batch):
        leaf, logp = _slopes(model, ids, answer)
        expected = torch.zeros(len(ids))
        for a in range(len(answer)):
            for v in logp[a].topk(min(top_k, logp.shape[1])).indices:
                (slope,) = torch.autograd.grad(logp[a, v], leaf, retain_graph=True)
                along = (slope * (toward - leaf.detach())).sum(-1)
                expected += 0.5 * logp[a, v].detach().exp() * along.square()
        torch.testing.assert_close(
            found[row, real[thinking]], expected[thinking], atol=1e-5, rtol=1e-4
        )


def test_fisher_score_is_oar_ps_second_order(model, tokenizer):
    """Moved a small part of the way to the replacement, the KL is the score times that part
    squared: I(s) = s^2 I + O(s^3)."""
    batch, pad = batch_of(tokenizer, order=(0,)), tokenizer.pad_token_id
    score = importance("oar-gf", model, batch, CreditSettings(fisher_top_k=36), pad)
    toward = model.get_input_embeddings().weight[pad].detach()
    [(row, real, ids, answer, thinking)] = real_rows(batch)
    model.double()
    try:
        base = model.get_input_embeddings()(ids).detach()
        clean = model(inputs_embeds=base[None]).logits[0, answer - 1].detach()
        part = 1e-4
        for t in thinking.tolist():
            moved = base.clone()
            moved[t] += part * (toward.double() - base[t])
            other = model(inputs_embeds=moved[None]).logits[0, answer - 1].detach()
            kl = float(divergence_of(clean, other, "answer_kl", ids[answer])) / part**2
            assert kl == pytest.approx(float(score[row, real[t]]), rel=0.05, abs=1e-4)
    finally:
        model.float()


def test_entropy_is_that_of_the_token_s_own_distribution(model, tokenizer):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("entropy", model, batch, CreditSettings(), pad)
    with torch.no_grad():
        for row, real, ids, _, thinking in real_rows(batch):
            p = model(ids[None]).logits[0].softmax(-1)[thinking - 1]
            expected = -(p * p.log()).sum(-1)
            torch.testing.assert_close(found[row, real[thinking]], expected, atol=1e-5, rtol=1e-4)


def test_attention_is_the_models_own_mean(model, tokenizer):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("attention", model, batch, CreditSettings(), pad)
    model.set_attn_implementation("eager")
    try:
        for row, real, ids, answer, thinking in real_rows(batch):
            layers = model(ids[None], output_attentions=True).attentions
            mean = torch.stack(layers)[:, 0].mean((0, 1))
            expected = mean[answer - 1].mean(0)[thinking].detach()
            torch.testing.assert_close(found[row, real[thinking]], expected, atol=1e-5, rtol=1e-4)
    finally:
        model.set_attn_implementation("sdpa")


def test_spans_share_what_they_moved(model, tokenizer):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("oar-p-span", model, batch, CreditSettings(span=3), pad)
    with torch.no_grad():
        for row, real, ids, answer, thinking in real_rows(batch):
            clean = model(ids[None]).logits[0, answer - 1]
            for span in thinking.split(3):
                changed = ids.clone()
                changed[span] = pad
                moved = model(changed[None]).logits[0, answer - 1]
                share = divergence_of(clean, moved, "answer_mean", None) / len(span)
                torch.testing.assert_close(
                    found[row, real[span]], share.expand(len(span)), atol=1e-5, rtol=1e-4
                )


@pytest.mark.parametrize("method", ["oar-p-sample", "oar-p-preselect"])
def test_the_share_that_is_scored_is_exact(model, tokenizer, method):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    exact = importance("oar-p", model, batch, CreditSettings(), pad)
    whole = importance(method, model, batch, CreditSettings(exact_share=1.0), pad)
    torch.testing.assert_close(whole, exact, atol=1e-5, rtol=1e-4)
    part = importance(method, model, batch, CreditSettings(exact_share=0.5), pad)
    for row, real, _, _, thinking in real_rows(batch):
        mine, theirs = part[row, real[thinking]], exact[row, real[thinking]]
        same = int(torch.isclose(mine, theirs, atol=1e-5).sum())
        assert (len(thinking) + 1) // 2 <= same < len(thinking)
        if method == "oar-p-preselect":
            left_out = ~torch.isclose(mine, theirs, atol=1e-5)
            assert float(mine[left_out].max()) <= float(mine[~left_out].min()) + 1e-6
        else:
            assert float(theirs.min()) - 1e-6 <= float(mine.min())
            assert float(mine.max()) <= float(theirs.max()) + 1e-6


@pytest.mark.parametrize("method", [*GRADIENTS, "attention", "entropy"])
@pytest.mark.parametrize("kind", [*other_models, *windowed_models])
def test_other_architectures_score_alike_in_any_company(kind, method, tokenizer):
    model = {**other_models, **windowed_models}[kind](len(tokenizer))
    pad, settings = tokenizer.pad_token_id, CreditSettings(sigma=0.3)
    together = batch_of(tokenizer)
    scores = importance(method, model, together, settings, pad)
    assert float(scores.max()) > 0
    for row in (0, 1, 3):
        alone = batch_of(tokenizer, "right", (row,))
        single = importance(method, model, alone, settings, pad)
        torch.testing.assert_close(
            own(single, alone, 0), own(scores, together, row), atol=1e-5, rtol=1e-3
        )


@pytest.mark.parametrize("method", ["oar-p", "oar-d", *GRADIENTS])
def test_half_precision(tokenizer, method):
    """Gradients of a bfloat16 model are taken in float32; replacing tokens follows the model."""
    pad, settings = tokenizer.pad_token_id, CreditSettings(sigma=0.3)
    batch = batch_of(tokenizer)
    single = other_models["qwen2"](len(tokenizer))
    half = other_models["qwen2"](len(tokenizer)).bfloat16()
    rounded = other_models["qwen2"](len(tokenizer))
    rounded.load_state_dict({k: v.float() for k, v in half.state_dict().items()})
    for buffer, cast in zip(rounded.buffers(), half.buffers(), strict=True):
        buffer.copy_(cast)  # the rotary frequencies, which `bfloat16()` rounds too
    found = importance(method, half, batch, settings, pad)
    assert found.dtype == torch.float32
    assert bool(torch.isfinite(found).all())
    assert half.dtype == torch.bfloat16
    expected = importance(method, rounded, batch, settings, pad)
    if method in GRADIENTS:
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)
    else:
        for row in (0, 1, 3):
            marked = batch.probe.reasoning[row]
            assert spearmanr(found[row, marked], expected[row, marked])[0] > 0.8
    assert float(importance(method, single, batch, settings, pad).max()) > 0


@pytest.mark.parametrize("method", IMPORTANCE_METHODS)
def test_weights_of_every_method_are_finite_on_odd_responses(model, tokenizer, method):
    """An answer at the start, one reasoning token, no response at all, pad and eos inside."""
    from oar_bench.credit.methods import CreditBatch
    from oar_bench.credit.probe import TokenSpans, build_probe
    from oar_bench.training.model import pad_batch

    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    words = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    responses = [words("7"), words("3 7"), [], [pad, eos, *words("3 #### 7")], words("7 7 7 7 7")]
    spans = [TokenSpans(0, 0, 1), TokenSpans(1, 1, 2), None, TokenSpans(3, 4, 5),
             TokenSpans(4, 4, 5)]  # fmt: skip
    for side in ("left", "right"):
        for scope in ("reasoning", "response"):
            ids, attention, response = pad_batch(
                [words("3 + 4 =")] * len(responses), responses, pad, side=side
            )
            batch = CreditBatch(
                ids, attention, response, build_probe(response, spans), torch.arange(5)
            )
            settings = CreditSettings(scope=scope)
            credit = assign(method, model, batch, settings, pad)
            assert bool(torch.isfinite(credit.weights).all())
            assert bool((credit.weights >= 0).all())
            torch.testing.assert_close(
                (credit.weights * response).sum(1), response.sum(1).float(), atol=1e-4, rtol=1e-4
            )
            assert bool((credit.weights[2] == 1).all())
            if scope == "reasoning":
                assert bool((credit.weights[:2] == 1).all())  # nothing or one token to weigh
