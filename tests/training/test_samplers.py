"""Samplers with stand-ins for vLLM and its server: order of calls, stale weights told, refusals.

What vLLM itself makes of them is in test_vllm_rollouts.py and test_vllm_runs.py.
"""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oar_bench.config import RolloutSettings, TrainSettings, load_recipe
from oar_bench.engines.base import Sampling
from oar_bench.engines.vllm_process import COMPANION
from oar_bench.engines.weights import FILE
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.training import samplers
from oar_bench.training.run import describe
from oar_bench.training.samplers import HFSampler, check_gap, sampler_of
from oar_bench.training.server_sampler import ServerSampler, why_not
from oar_bench.training.trainer import train
from oar_bench.training.vllm_sampler import VLLMSampler
from tests.engines.fake_server import Reply, running

PROMPTS = [[5, 6], [7, 8, 9]]


class StandIn:
    """An engine that notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            self.calls.append(" ".join([name, *map(str, arguments)]))

        return call

    def draw(self, prompts, seeds, sampling, *, logprobs, between):
        self.calls.append(f"draw {len(prompts)}")
        between()
        for i in reversed(range(len(prompts))):  # they finish in any order
            ids = [prompts[i][0], 1]
            places = [{token: SimpleNamespace(logprob=-float(token))} for token in ids]
            reason = "stop" if i else "length"
            yield i, SimpleNamespace(token_ids=ids, logprobs=places, finish_reason=reason)


class Folder:
    path = "folder"

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def write(self, model: Any) -> None:
        self.calls.append("write")

    def close(self) -> None:
        self.calls.append("remove")


@pytest.mark.parametrize("sleep", [False, True])
def test_an_engine_sleeps_while_the_trainer_learns(sleep):
    engine = StandIn()
    sampler = VLLMSampler(engine, Folder(engine.calls), sleep=sleep)
    for step in (1, 2):
        sampler.sync(None, step)
        sampler.sample(PROMPTS, [1, 2], Sampling())
    sampler.close()
    once = ["wake weights", "write", "reload", "wake kv_cache", "draw 2", "sleep"]
    kept = once if sleep else ["write", "reload", "draw 2"]
    assert engine.calls == [*(["sleep"] if sleep else []), *kept, *kept, "close", "remove"]
    assert sampler.metrics() == {"weights_age": 0, "stale": False}


def test_vllms_outputs_come_in_the_order_asked_for():
    engine = StandIn()
    drawn = VLLMSampler(engine, Folder(engine.calls)).sample(PROMPTS, [1, 2], Sampling())
    assert drawn.prompts == PROMPTS
    assert drawn.responses == [[5, 1], [7, 1]]
    assert drawn.finished == [False, True]
    assert drawn.logprobs == [[-5.0, -1.0], [-7.0, -1.0]]


def test_what_a_gpu_engine_is_started_with(model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    given: dict[str, Any] = {}

    def load(path, batch_size, **options):
        given.update(options, batch_size=batch_size, weights=(path / FILE).is_file())
        return StandIn()

    settings = RolloutSettings(
        engine="vllm", batch_size=7, gpu_memory=0.3, sleep=True, exchange=str(tmp_path),
        engine_args={"tensor_parallel_size": 2},
    )  # fmt: skip
    VLLMSampler.start(model, tokenizer, settings, load).close()
    assert given == {
        "batch_size": 7, "weights": True, "logprobs_mode": "processed_logprobs",
        "gpu_memory_utilization": 0.3, "enable_sleep_mode": True, "tensor_parallel_size": 2,
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_does_not_start_leaves_no_weights(model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def load(*_, **__):
        raise InputError("vLLM can't load it")

    settings = RolloutSettings(engine="vllm", exchange=str(tmp_path))
    with pytest.raises(InputError, match="can't load it"):
        VLLMSampler.start(model, tokenizer, settings, load)
    assert list(tmp_path.iterdir()) == []


def test_sleep_without_a_gpu_is_refused(model, tokenizer):
    with pytest.raises(InputError, match="vLLM sleeps on a GPU only"):
        VLLMSampler.start(model, tokenizer, RolloutSettings(engine="vllm", sleep=True))


def test_a_recipe_names_its_sampler_by_one_key(model, tokenizer):
    recipe = load_recipe("smoke", {"rollout": {"base_url": "http://127.0.0.1:1/v1"}})
    assert isinstance(sampler_of(recipe, model, tokenizer), HFSampler)
    served = load_recipe("smoke", {"rollout": {"base_url": "http://127.0.0.1:1/v1",
                                               "engine": "server"}})  # fmt: skip
    with pytest.raises(InputError, match="can't be reached"):
        sampler_of(served, model, tokenizer)
    with pytest.raises(InputError, match="engine: server needs base_url"):
        load_recipe("smoke", {"rollout": {"engine": "server"}})


def test_where_the_engine_is_does_not_make_another_run():
    def prints(**rollout: Any) -> str:
        return describe(load_recipe("smoke", {"rollout": rollout}), "grpo", 0, "s")["fingerprints"][
            "recipe"
        ]

    assert prints(base_url="http://a/v1", exchange="/x", gpu_memory=0.2) == prints()
    assert prints(engine="vllm") != prints()
    assert prints(engine="vllm", dtype="bfloat16") != prints(engine="vllm")


class VLLMServer:
    """What a vLLM server says, given what it was started with."""

    def __init__(self, server: Any, *, dev: bool = True, **config: Any) -> None:
        self.server, self.dev, self.version = server, dev, "default"
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.config = {
            "parallel_config": {"worker_extension_cls": COMPANION},
            "device_config": {"device_type": "cpu"},
            "model_config": {"logprobs_mode": "raw_logprobs"}, **config,
        }  # fmt: skip
        self.choice: dict[str, Any] = {}
        server.models = [{"id": "toy", "owned_by": "vllm", "max_model_len": 48}]
        server.behave = self.post
        server.pages = self.get

    def get(self, path: str) -> Any:
        if self.dev and path.startswith("/server_info"):
            return {"vllm_config": self.config}
        return {"weight_version": self.version} if self.dev and path == "/weight_info" else None

    def post(self, body: dict[str, Any]) -> Reply:
        path = self.server.paths[-1] if "prompt" not in body else "/v1/completions"
        if path != "/v1/completions":
            self.told.append((path, body))
            self.version = body.get("new_version", self.version)
            return 200, {}, json.dumps({"success": True, "results": [None]}).encode()
        ids = [body["prompt"][0], 1]
        choice = {
            "index": 0, "finish_reason": "stop", "text": "", "token_ids": ids,
            "prompt_token_ids": body["prompt"], "logprobs": {"token_logprobs": [-0.5, -0.25]},
            **self.choice,
        }  # fmt: skip
        return 200, {}, json.dumps({"choices": [choice], "usage": {}}).encode()


@pytest.fixture
def server():
    with running() as found:
        yield found


def connect(server, model, tokenizer, train=TrainSettings(), **settings):  # noqa: B008  frozen
    settings = RolloutSettings(engine="server", base_url=server.url, **settings)
    return ServerSampler.connect(model, tokenizer, settings, train)


def test_a_server_is_given_weights_and_asked_for_token_ids(model, tokenizer, server, tmp_path):
    vllm = VLLMServer(server)
    sampler = connect(server, model, tokenizer, exchange=str(tmp_path))
    [folder] = tmp_path.iterdir()
    sampler.sync(model, 3)
    assert [path for path, _ in vllm.told] == [
        "/collective_rpc", "/reset_prefix_cache?reset_running_requests=true",
        "/update_weight_version",
    ]  # fmt: skip
    assert vllm.told[0][1] == {"method": "oar_reload", "kwargs": {"weights_path": str(folder)}}
    drawn = sampler.sample(PROMPTS, [11, 12], Sampling(max_new_tokens=4))
    assert (drawn.prompts, drawn.responses) == (PROMPTS, [[5, 1], [7, 1]])
    assert drawn.logprobs == [[-0.5, -0.25]] * 2
    assert drawn.finished == [True, True]
    asked = [body for body in server.bodies if "prompt" in body]
    assert {(tuple(b["prompt"]), b["seed"]) for b in asked} == {((5, 6), 11), ((7, 8, 9), 12)}
    assert all(b["logprobs"] == 0 and b["return_token_ids"] for b in asked)
    assert sampler.metrics() == {"weights_age": 0, "stale": False}
    sampler.close()
    assert list(tmp_path.iterdir()) == []


def test_plain_reloading_does_where_no_matrix_is_packed(model, tokenizer, server, tmp_path):
    vllm = VLLMServer(server, device_config={"device_type": "cuda"}, parallel_config={})
    sampler = connect(server, model, tokenizer, exchange=str(tmp_path))
    sampler.sync(model, 1)
    assert vllm.told[0][1]["method"] == "reload_weights"
    sampler.close()


@pytest.mark.parametrize(
    ("options", "settings", "words"),
    [
        ({"dev": False}, {}, "VLLM_SERVER_DEV_MODE=1"),
        ({"parallel_config": {}}, {}, "--worker-extension-cls oar_bench"),
        ({}, {"sync": False}, "rollout.sync is false"),
    ],
)
def test_stale_weights_are_said_openly(model, tokenizer, server, capsys, options, settings, words):
    VLLMServer(server, **options)
    sampler = connect(server, model, tokenizer, **settings)
    said = capsys.readouterr().err
    assert words in said
    assert "keeps its own weights" in said
    assert said.count("\n") == 1
    found = []
    for step in (1, 2, 31):
        sampler.sync(model, step)
        sampler.sample(PROMPTS, [1, 2], Sampling(max_new_tokens=4))
        found.append(sampler.metrics())
    assert found == [
        {"weights_age": 0, "stale": False}, {"weights_age": 1, "stale": True},
        {"weights_age": 30, "stale": True},
    ]  # fmt: skip


def test_another_machine_needs_a_folder_that_both_see(tmp_path):
    known = {"vllm_config": {"parallel_config": {"worker_extension_cls": COMPANION}}}
    far = RolloutSettings(engine="server", base_url="http://gpu-7:8000/v1")
    assert "rollout.exchange" in str(why_not(known, far))
    assert why_not(known, far.model_copy(update={"exchange": str(tmp_path)})) is None


def test_a_rows_age_reaches_metrics_jsonl(smoke, start, server, monkeypatch, tmp_path):
    monkeypatch.setattr(samplers, "FOREIGN", math.inf)  # the stand-in invents log-probabilities
    VLLMServer(server, dev=False)
    rollout = RolloutSettings(engine="server", base_url=server.url)
    recipe = smoke.model_copy(update={
        "rollout": rollout, "train": smoke.train.model_copy(update={"steps": 2}),
    })  # fmt: skip
    train(recipe, "grpo", 0, start, tmp_path / "run")
    rows = list(read_jsonl(tmp_path / "run" / "metrics.jsonl"))
    assert [(row["weights_age"], row["stale"]) for row in rows] == [(0, False), (1, True)]
    assert read_json(tmp_path / "run" / "run.json")["status"] == "finished"


def test_saved_responses_need_no_engine(smoke, start, tmp_path):
    """A recipe whose server isn't there learns from a file all the same."""
    train_settings = smoke.train.model_copy(update={"steps": 1})
    recipe = smoke.model_copy(update={"train": train_settings})
    train(recipe, "grpo", 0, start, tmp_path / "first")
    rollout = RolloutSettings(engine="server", base_url="http://127.0.0.1:1/v1")
    absent = recipe.model_copy(update={"rollout": rollout})
    with pytest.raises(InputError, match="can't be reached"):
        train(absent, "grpo", 0, start, tmp_path / "sampled")
    saved = tmp_path / "first" / "rollouts.jsonl"
    train(absent, "grpo", 0, start, tmp_path / "replayed", rollouts=saved)
    assert read_json(tmp_path / "replayed" / "run.json")["status"] == "finished"


def test_log_probabilities_before_temperature_are_refused(model, tokenizer, server):
    cool = TrainSettings(temperature=0.7)
    VLLMServer(server)
    with pytest.raises(InputError, match="leave out temperature and top-p; start it with"):
        connect(server, model, tokenizer, cool)
    VLLMServer(server, dev=False)
    with pytest.raises(InputError, match="it doesn't say whether"):
        connect(server, model, tokenizer, cool)
    VLLMServer(server, model_config={"logprobs_mode": "processed_logprobs"})
    connect(server, model, tokenizer, cool, sync=False)


def test_a_server_that_is_not_vllms_is_refused(model, tokenizer, server):
    with pytest.raises(InputError, match="not a vLLM server"):
        connect(server, model, tokenizer)


def test_a_restart_within_a_rollout_is_noticed(model, tokenizer, server, tmp_path):
    vllm = VLLMServer(server)
    sampler = connect(server, model, tokenizer, exchange=str(tmp_path))
    sampler.sync(model, 1)
    vllm.version = "default"
    with pytest.raises(InputError, match="or it was restarted"):
        sampler.sample(PROMPTS, [1, 2], Sampling(max_new_tokens=4))
    sampler.close()


def test_a_server_that_cannot_take_them_is_told_once(model, tokenizer, server, tmp_path):
    VLLMServer(server)
    sampler = connect(server, model, tokenizer, exchange=str(tmp_path))
    server.behave = lambda body: (500, {}, b'{"error": {"message": "no such file"}}')
    before = len(server.paths)
    with pytest.raises(InputError, match=r"can't take the weights.*no such file") as caught:
        sampler.sync(model, 1)
    assert "\n" not in str(caught.value)
    assert len(server.paths) == before + 1, "half-loaded weights were loaded again"
    sampler.close()


@pytest.mark.parametrize(
    "choice",
    [{"prompt_token_ids": [5]}, {"token_ids": None}, {"logprobs": {"token_logprobs": [-1.0]}}],
    ids=["another prompt", "no ids", "too few log-probabilities"],
)
def test_replies_that_cannot_be_trained_on_are_refused(model, tokenizer, server, choice):
    vllm = VLLMServer(server, dev=False)
    sampler = connect(server, model, tokenizer)
    sampler.engine.policy = type(sampler.engine.policy)(retries=1, first_wait=0.01)
    vllm.choice = choice
    with pytest.raises(InputError, match="its reply can't be read"):
        sampler.sample(PROMPTS, [1, 2], Sampling(max_new_tokens=4))
    with pytest.raises(InputError, match="context of 48"):
        sampler.sample(PROMPTS, [1, 2], Sampling(max_new_tokens=46))


@pytest.mark.parametrize(("age", "refused"), [(0, True), (1, False)])
def test_a_sampler_of_another_model_is_refused_before_its_first_update(
    smoke, start, monkeypatch, tmp_path, age, refused
):
    """With newest weights no token is 0.5 nats off; with old ones it may be."""
    honest = HFSampler.sample

    def foreign(self, prompts, seeds, sampling):
        drawn = honest(self, prompts, seeds, sampling)
        return replace(drawn, logprobs=[[-9.0] * len(row) for row in drawn.responses])

    monkeypatch.setattr(HFSampler, "sample", foreign)
    monkeypatch.setattr(HFSampler, "metrics", lambda self: {"weights_age": age, "stale": age > 0})
    recipe = smoke.model_copy(update={"train": smoke.train.model_copy(update={"steps": 1})})
    if refused:
        with pytest.raises(InputError, match=r"another model.*nats apart; have a server serve"):
            train(recipe, "grpo", 0, start, tmp_path / "run")
        assert not list(read_jsonl(tmp_path / "run" / "metrics.jsonl"))
    else:
        assert train(recipe, "grpo", 0, start, tmp_path / "run").is_dir()


@pytest.mark.parametrize(
    ("gap", "changes", "refused"),
    [(0.6, {}, True), (0.6, {"temperature": 0.5}, False), (1.1, {"temperature": 0.5}, True),
     (0.6, {"temperature": 2.0}, True), (1.1, {"top_p": 0.5}, False), (1.2, {"top_p": 0.5}, True),
     (math.nan, {}, False)],
)  # fmt: skip
def test_what_a_gap_may_be(gap, changes, refused):
    """0.5 / T, and -log(top_p), which is 0.69 at 0.5, on top. A loss that isn't finite is skipped
    and counted as that of any run."""
    with pytest.raises(InputError) if refused else nullcontext():
        check_gap(gap, {"weights_age": 0}, TrainSettings(**changes))


def test_rollouts_of_engines_can_be_broken_off(model, tokenizer, server, tmp_path):
    """Between vLLM's passes, and between the responses of a server."""

    class Enough(BaseException):
        pass

    def enough():
        raise Enough

    vllm = VLLMSampler(StandIn(), Folder([]))
    VLLMServer(server)
    for sampler in (vllm, connect(server, model, tokenizer, exchange=str(tmp_path))):
        sampler.between = enough
        with pytest.raises(Enough):
            sampler.sample(PROMPTS, [1, 2], Sampling(max_new_tokens=2))
