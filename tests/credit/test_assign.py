"""Methods by name, the probe's masks, and the released file's other defects."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from oar_bench.config import METHODS, CreditSettings
from oar_bench.credit.assign import assign
from oar_bench.credit.probe import TokenSpans, locate, token_pieces
from oar_bench.training.rollout import answer_spans
from tests.credit.batches import RESPONSES, SPANS, batch_of, own

ALL = list(METHODS)


def test_the_graders_answer_is_the_probes_answer(tokenizer):
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in RESPONSES]
    texts = [str(tokenizer.decode(row[:-1])) for row in ids]
    found = answer_spans(tokenizer, texts, ids)
    # Row 3 goes on after its answer; the rest of the line is the stated answer.
    assert found[:3] == SPANS[:3]
    assert found[3] == TokenSpans(6, 7, 10)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte: a character of several bytes spans several tokens."""
    letters = sorted(ByteLevel.alphabet())
    model = BPE({letter: number for number, letter in enumerate(letters)}, [])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def test_pieces_join_to_the_decoded_text(tokenizer):
    special = [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id]
    for text in RESPONSES:
        ids = tokenizer(text)["input_ids"]
        for row in (ids, [*special, *ids], [ids[0], special[1], *ids[1:], special[2]]):
            decoded = tokenizer.decode(row, skip_special_tokens=True)
            assert "".join(token_pieces(tokenizer, row)) == decoded
    bytewise = byte_tokenizer()
    for text in ("€ so\n#### 7", "😀😀 #### 12", "ü", "a€"):
        ids = bytewise(text)["input_ids"]
        assert "".join(token_pieces(bytewise, ids)) == text
    half = bytewise("a€")["input_ids"][:-1]  # the last character was cut in the middle
    assert "".join(token_pieces(bytewise, half)) == bytewise.decode(half)


def test_special_tokens_and_long_characters_do_not_shift_the_answer(tokenizer):
    words = tokenizer("3 + 4 = 7 ; #### 7")["input_ids"]
    ids = [tokenizer.pad_token_id, words[0], tokenizer.unk_token_id, *words[1:]]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    [span] = answer_spans(tokenizer, [text], [ids])
    assert span == TokenSpans(8, 9, 10)
    bytewise = byte_tokenizer()
    ids = bytewise("😀😀 so\n#### 7")["input_ids"]
    [span] = answer_spans(bytewise, ["😀😀 so\n#### 7"], [ids])
    assert span is not None
    assert bytewise.decode(ids[span.answer_start : span.answer_end]) == "7"
    # Where text and tokens don't agree, no place in one is a place in the other.
    assert answer_spans(bytewise, ["so #### 7"], [ids]) == [None]


def test_a_token_across_the_border_is_not_reasoning():
    # "=\boxed{" is one token: it opens the answer, so it is no reasoning.
    assert locate(["1+1", "=\\boxed{", "2", "}."], 4, 11, 12) == TokenSpans(1, 2, 3)
    # "{2" holds the mark's end and the answer.
    assert locate(["1+1 ", "\\boxed", "{2", "}"], 4, 11, 12) == TokenSpans(1, 2, 3)
    assert locate(["ab"], 5, 9, 9) is None


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("scope", ["reasoning", "response"])
def test_every_method_keeps_the_mass_of_every_response(model, tokenizer, method, scope):
    batch = batch_of(tokenizer)
    settings = CreditSettings(scope=scope, sigma=0.3)
    credit = assign(method, model, batch, settings, tokenizer.pad_token_id)
    assert bool((credit.weights >= 0).all())
    tokens = batch.response_mask.sum(1).float()
    torch.testing.assert_close((credit.weights * batch.response_mask).sum(1), tokens)
    outside = ~batch.weighted(settings)
    assert bool((credit.weights[outside] == 1).all())
    if method not in ("grpo", "uniform"):
        assert float(credit.weights.max()) > 1.2


@pytest.mark.parametrize("method", ALL)
def test_no_answer_means_weight_one(model, tokenizer, method):
    batch = batch_of(tokenizer)
    credit = assign(method, model, batch, CreditSettings(), tokenizer.pad_token_id)
    assert not bool(batch.probe.found[2])
    assert bool((credit.weights[2] == 1).all())


def test_shuffled_and_inverted_rearrange_oar_ps_weights(model, tokenizer):
    batch = batch_of(tokenizer)
    pad = tokenizer.pad_token_id
    weights = assign("oar-p", model, batch, CreditSettings(), pad).weights
    for control in ("shuffled", "inverted"):
        other = assign(control, model, batch, CreditSettings(), pad).weights
        assert not torch.equal(other, weights)
        torch.testing.assert_close(other.sort(1).values, weights.sort(1).values)


def test_rows_that_need_no_credit_are_skipped_exactly(model, tokenizer):
    batch = batch_of(tokenizer)
    pad = tokenizer.pad_token_id
    every = assign("oar-p", model, batch, CreditSettings(), pad)
    needed = torch.tensor([True, False, True, True])
    some = assign("oar-p", model, batch, CreditSettings(), pad, needed)
    expected = every.importance[needed]
    torch.testing.assert_close(some.importance[needed], expected, atol=1e-5, rtol=1e-4)
    assert bool((some.weights[1] == 1).all())
    nothing = assign("shuffled", model, batch, CreditSettings(), pad, torch.zeros(4).bool())
    assert bool((nothing.weights == 1).all())


def test_defect_3_the_perturbed_sequences_hold_the_answer(model, tokenizer):
    """The released file cuts the answer off before two modes read it: here changing the second
    answer token's place in the sequence changes the score, so it is read."""
    batch = batch_of(tokenizer)
    pad = tokenizer.pad_token_id
    first = assign("oar-p", model, batch, CreditSettings(pfinal="last"), pad).importance
    mean = assign("oar-p", model, batch, CreditSettings(pfinal="answer_mean"), pad).importance
    assert not torch.allclose(first[1], mean[1])  # two answer tokens
    torch.testing.assert_close(first[0], mean[0])  # one answer token


def test_defect_4_logits_are_kept_at_the_answer_alone(model, tokenizer, monkeypatch):
    widths = []
    forward = model.forward

    def spy(*args, **kwargs):
        output = forward(*args, **kwargs)
        widths.append(output.logits.shape[1])
        return output

    monkeypatch.setattr(model, "forward", spy)
    batch = batch_of(tokenizer, order=(0, 1))
    assign("oar-p", model, batch, CreditSettings(), tokenizer.pad_token_id)
    assert widths
    assert max(widths) == 2  # right-aligned answers of one and two tokens share two columns


def test_defects_5_and_7_weights_follow_the_sampled_ids(model, tokenizer):
    """Each weight stands at its own token: perturbing a token by hand changes its score alone."""
    left, right = batch_of(tokenizer, "left"), batch_of(tokenizer, "right")
    pad = tokenizer.pad_token_id
    a = assign("oar-p", model, left, CreditSettings(), pad)
    b = assign("oar-p", model, right, CreditSettings(), pad)
    for row in range(4):
        torch.testing.assert_close(
            own(a.weights, left, row), own(b.weights, right, row), atol=1e-4, rtol=1e-4
        )
        assert left.input_ids[row][left.response_mask[row]].tolist() == (
            right.input_ids[row][right.response_mask[row]].tolist()
        )
