"""OAR-P and input gradients against captum, an attribution library that others rely on."""

from __future__ import annotations

import pytest
import torch

from oar_bench.config import CreditSettings
from oar_bench.credit.assign import importance
from tests.credit.batches import batch_of
from tests.credit.references import divergence_of, real_rows

captum = pytest.importorskip("captum.attr")


@pytest.mark.parametrize("pfinal", ["last", "answer_mean", "answer_kl"])
def test_oar_p_is_captums_feature_ablation(model, tokenizer, pfinal):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("oar-p", model, batch, CreditSettings(pfinal=pfinal), pad)
    for row, real, ids, answer, thinking in real_rows(batch):
        with torch.no_grad():
            clean = model(ids[None]).logits[0, answer - 1]

        def moved(rows, clean=clean, answer=answer, ids=ids):
            with torch.no_grad():
                logits = model(rows).logits[:, answer - 1]
            return torch.stack([divergence_of(clean, x, pfinal, ids[answer]) for x in logits])

        ablation = captum.FeatureAblation(moved)
        expected = -ablation.attribute(ids[None], baselines=pad, perturbations_per_eval=4)[0]
        assert float(expected[thinking].max()) > 1e-3
        torch.testing.assert_close(
            found[row, real[thinking]], expected[thinking].float(), atol=1e-5, rtol=1e-4
        )


def test_oar_g0_is_captums_gradient_times_input(model, tokenizer):
    batch, pad = batch_of(tokenizer), tokenizer.pad_token_id
    found = importance("oar-g0", model, batch, CreditSettings(), pad)
    for row, real, ids, answer, thinking in real_rows(batch):

        def logp(ids, answer=answer):
            table = model(ids).logits[0, answer - 1].log_softmax(-1)
            return table[torch.arange(len(answer)), ids[0, answer]].sum()[None]

        layer = captum.LayerGradientXActivation(logp, model.get_input_embeddings())
        signed = layer.attribute(ids[None])[0].sum(-1)
        expected = signed.abs()[thinking].detach()
        assert float(expected.max()) > 1e-3
        torch.testing.assert_close(found[row, real[thinking]], expected, atol=1e-5, rtol=1e-4)
