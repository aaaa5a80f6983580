"""The hf engine: keyed sampling, greedy parity with plain `generate`, limits and stops."""

from __future__ import annotations

import pytest
import torch

from oar_bench.engines.base import Request, Sampling, check_samples
from oar_bench.engines.hf import HFEngine, load_model, sample
from oar_bench.engines.tokens import encode, encode_all
from oar_bench.errors import InputError
from oar_bench.keyed import derive
from oar_bench.tasks.problems import distinct

PROBLEMS = distinct("sum", "train", 12) + distinct("digits", "train", 6)
REQUESTS = [Request(p.id, k, p.prompt, derive("t", p.id, k)) for p in PROBLEMS for k in range(3)]
SAMPLING = Sampling(temperature=1.0, max_new_tokens=12)


@pytest.fixture(scope="module")
def engine(start) -> HFEngine:
    return HFEngine.load(start, batch_size=16)


def texts(engine, requests, sampling=SAMPLING):
    return {
        (c.request.problem, c.request.sample): (c.response, c.finish_reason, c.response_tokens)
        for c in engine.generate(requests, sampling)
    }


def test_a_sample_depends_on_its_key_alone(engine):
    """Not on order, batch size or on which other requests there are."""
    base = texts(engine, REQUESTS)
    assert len(base) == len(REQUESTS)
    assert texts(engine, REQUESTS[::-1]) == base
    small = HFEngine(engine.model, engine.tokenizer, batch_size=5)
    assert texts(small, REQUESTS) == base
    some = REQUESTS[7:20]
    assert texts(small, some) == {(r.problem, r.sample): base[r.problem, r.sample] for r in some}


def test_samples_of_a_problem_differ(engine):
    base = texts(engine, REQUESTS)
    distinct_ones = {text for text, _, _ in base.values()}
    assert len(distinct_ones) > len(PROBLEMS)


def test_greedy_equals_plain_generate(engine):
    greedy = Sampling(temperature=0.0, max_new_tokens=12)
    for problem in PROBLEMS[:6]:
        ids = engine.tokenizer(problem.prompt, return_tensors="pt")
        plain = engine.model.generate(**ids, do_sample=False, max_new_tokens=12)
        text = engine.tokenizer.decode(
            plain[0, ids["input_ids"].shape[1] :], skip_special_tokens=True
        )
        [done] = engine.generate([Request("p", 0, problem.prompt, 0)], greedy)
        assert done.response == text


def test_sampling_follows_the_models_distribution(engine):
    """First tokens over many keys against softmax(logits / T), by a chi-square test."""
    from scipy import stats

    ids = engine.tokenizer(PROBLEMS[0].prompt)["input_ids"]
    with torch.no_grad():
        logits = engine.model(torch.tensor([ids])).logits[0, -1].double()
    expected = torch.softmax(logits / 1.5, 0)
    seeds = [derive("chi", n) for n in range(4000)]
    drawn = sample(
        engine.model, engine.tokenizer, [ids] * 4000, seeds,
        Sampling(temperature=1.5, max_new_tokens=1),
    )  # fmt: skip
    counts = torch.bincount(torch.tensor([r[0] for r in drawn.responses]), minlength=len(expected))
    common = expected * 4000 >= 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]]).double()
    wanted = torch.cat([expected[common], expected[~common].sum()[None]]) * 4000
    kept = wanted > 0.5
    ratio = observed[kept].sum() / wanted[kept].sum()
    assert stats.chisquare(observed[kept], wanted[kept] * ratio).pvalue > 0.001


def test_top_p_keeps_the_nucleus(engine):
    ids = engine.tokenizer(PROBLEMS[0].prompt)["input_ids"]
    with torch.no_grad():
        chances = engine.model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    order = chances.argsort(descending=True)
    before = chances[order].cumsum(0) - chances[order]
    nucleus = set(order[before < 0.5].tolist())
    drawn = sample(
        engine.model, engine.tokenizer, [ids] * 500, list(range(500)),
        Sampling(top_p=0.5, max_new_tokens=1),
    )  # fmt: skip
    assert {r[0] for r in drawn.responses} == nucleus


def test_stop_strings_cut_text_and_tokens(engine):
    greedy = Sampling(temperature=0.0, max_new_tokens=12, stop=("####",))
    [whole] = engine.generate([REQUESTS[0]], Sampling(temperature=0.0, max_new_tokens=12))
    [cut] = engine.generate([REQUESTS[0]], greedy)
    assert "####" in whole.response
    assert cut.response == whole.response.partition("####")[0]
    assert cut.finish_reason == "stop"
    assert cut.response_tokens < whole.response_tokens


def test_padding_after_a_stop_is_no_token_even_where_pad_is_the_end(engine, start):
    """As in checkpoints without a padding token: rows that stop early are padded with their end."""
    greedy = Sampling(temperature=0.0, max_new_tokens=12, stop=("####", "= 7"))
    requests = [Request(p.id, 0, p.prompt, 0) for p in PROBLEMS]
    expected = texts(engine, requests, greedy)
    assert len({tokens for _, _, tokens in expected.values()}) > 1
    without_pad = HFEngine.load(start, batch_size=16)
    without_pad.tokenizer.pad_token = without_pad.tokenizer.eos_token
    assert texts(without_pad, requests, greedy) == expected
    alone = {}
    for request in requests:
        alone |= texts(engine, [request], greedy)
    assert alone == expected


def test_a_prompt_is_encoded_once_for_all_its_samples(engine, monkeypatch):
    """In one call; and each as `encode` gives it, a second BOS taken away."""
    calls = []
    whole = type(engine.tokenizer).__call__
    monkeypatch.setattr(
        type(engine.tokenizer), "__call__", lambda self, t: calls.append(t) or whole(self, t)
    )
    drawn = list(engine.generate(REQUESTS, Sampling(max_new_tokens=1)))
    assert [sorted(call) for call in calls] == [sorted(p.prompt for p in PROBLEMS)]
    assert {(c.request.prompt, c.prompt_tokens) for c in drawn} == {
        (p.prompt, len(encode(engine.tokenizer, p.prompt))) for p in PROBLEMS
    }
    assert encode_all(engine.tokenizer, []) == {}


def test_the_token_limit_says_length(engine):
    [done] = engine.generate([REQUESTS[0]], Sampling(max_new_tokens=2))
    assert (done.finish_reason, done.response_tokens) == ("length", 2)


def test_beyond_the_context_is_refused(engine):
    with pytest.raises(InputError, match="context of 48"):
        list(engine.generate(REQUESTS, Sampling(max_new_tokens=45)))


def test_bad_sampling_is_refused():
    with pytest.raises(InputError, match="equal responses"):
        check_samples(4, 0.0)
    for wrong in ({"temperature": float("nan")}, {"temperature": -1.0}, {"top_p": 0.0}):
        with pytest.raises(InputError):
            Sampling(**wrong)


def test_a_device_that_is_not_there_is_told_in_one_line(start):
    with pytest.raises(InputError, match="device nonsense: the device can't be used") as caught:
        HFEngine.load(start, device="nonsense")
    assert "\n" not in str(caught.value)


def test_broken_checkpoints_are_refused(tmp_path, start):
    with pytest.raises(InputError, match="no such checkpoint folder"):
        load_model(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no config\.json"):
        load_model(tmp_path)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((start / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(InputError, match="can't be read"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="can't be read"):
        load_model(tmp_path)
