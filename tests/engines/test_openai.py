"""The openai engine against a fake server on loopback: faults that pass, faults that don't."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import time
from email.utils import formatdate

import pytest

from oar_bench.engines.base import Request, Sampling
from oar_bench.engines.loaders import EngineChoice, load_engine, parse_arguments
from oar_bench.engines.openai import OpenAIEngine
from oar_bench.engines.remote import Policy
from oar_bench.errors import InputError
from oar_bench.evaluation.generate import generate
from oar_bench.records import read_jsonl
from oar_bench.stages import Job, run_generation
from oar_bench.tasks.registry import load_task
from tests.engines.fake_server import answer, error, garbage, hang_up, running, sleeping

REQUESTS = [Request(f"p{n}", k, f"prompt {n}", 100 * n + k) for n in range(6) for k in range(3)]
SAMPLING = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=5, stop=("END",))


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with running() as server:
        yield server


def engine_for(server, **policy) -> OpenAIEngine:
    """An engine that waits milliseconds where a real one waits seconds."""
    engine = OpenAIEngine.load("toy", server.url)
    settings = {"concurrency": 4, "first_wait": 0.01, "longest_wait": 0.02, "timeout": 5.0}
    engine.policy = Policy(**{**settings, **policy})
    return engine


def check_all(engine, requests=REQUESTS):
    done = list(engine.generate(requests, SAMPLING))
    assert sorted((c.request.problem, c.request.sample) for c in done) == sorted(
        (r.problem, r.sample) for r in requests
    )
    for c in done:
        assert c.response == f" {c.request.prompt} under {c.request.seed} "
        assert (c.finish_reason, c.prompt_tokens, c.response_tokens) == ("stop", 3, 7)


def test_every_request_is_answered_once_and_sent_whole(server):
    check_all(engine_for(server))
    assert len(server.bodies) == len(REQUESTS)
    body = next(b for b in server.bodies if b["seed"] == 201)
    expected = {"model": "toy", "prompt": "prompt 2", "temperature": 0.7, "top_p": 0.9, "n": 1,
                "max_tokens": 5, "stop": ["END"]}  # fmt: skip
    assert {key: body[key] for key in expected} == expected
    assert "top_k" not in body, "only vLLM takes it"
    assert set(server.paths) == {"/v1/completions"}


def test_the_limit_is_reported(server):
    server.behave = lambda body: answer(body, finish_reason="length")
    assert {c.finish_reason for c in engine_for(server).generate(REQUESTS, SAMPLING)} == {"length"}


def test_the_chat_endpoint(server):
    engine = engine_for(server)
    engine.endpoint = "chat"
    check_all(engine)
    assert server.bodies[0]["messages"][0]["role"] == "user"
    assert set(server.paths) == {"/v1/chat/completions"}


@pytest.mark.parametrize(
    "fault",
    [error(429), error(500, "boom"), error(503), error(408), garbage, hang_up,
     lambda body: (200, {}, b"[]"), lambda body: (200, {}, b'{"choices": []}'),
     lambda body: answer(body, finish_reason="abort")],
    ids=["429", "500", "503", "408", "bad json", "hang up", "no object", "no choice", "abort"],
)  # fmt: skip
def test_passing_faults_are_tried_again(server, fault):
    server.script = [fault, None, fault, fault]
    check_all(engine_for(server))
    assert len(server.bodies) == len(REQUESTS) + 3


def test_a_time_out_is_tried_again(server):
    server.script = [sleeping(2.0)]
    check_all(engine_for(server, timeout=0.3), REQUESTS[:3])
    assert len(server.bodies) == 4


@pytest.mark.parametrize("value", [lambda: "1", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_retry_after_is_honoured(server, value):
    """Seconds or a date, which is made as the server answers: a busy machine may come late."""
    server.script = [lambda body: error(429, "slow down", {"Retry-After": value()})(body)]
    check_all(engine_for(server), REQUESTS[:1])
    assert server.times[1] - server.times[0] >= 0.9


def test_waits_grow_and_differ():
    policy = Policy(first_wait=1.0, longest_wait=8.0)
    for attempt, ceiling in zip(range(1, 7), [1, 2, 4, 8, 8, 8], strict=True):
        drawn = [policy.wait(attempt, None) for _ in range(50)]
        assert ceiling / 2 <= min(drawn) < max(drawn) <= ceiling
    assert policy.wait(1, 20.0) >= 20.0


def test_the_tries_end(server):
    server.behave = error(500, "boom\x1b[31m\nagain")
    with pytest.raises(InputError, match=r"fails after 3 tries \(HTTP 500: boom\[31m again\)"):
        list(engine_for(server, retries=2, concurrency=1).generate(REQUESTS[:1], SAMPLING))
    assert len(server.bodies) == 3


def test_no_more_requests_at_once_than_asked(server):
    server.behave = sleeping(0.03)
    check_all(engine_for(server, concurrency=5))
    assert 2 <= server.most_active <= 5


def test_completions_stream(server):
    """The first is out while the last still waits."""
    server.script = [None, sleeping(1.0)]
    stream = engine_for(server, concurrency=2).generate(REQUESTS[:2], SAMPLING)
    start = time.monotonic()
    next(stream)
    assert time.monotonic() - start < 0.8
    assert len(list(stream)) == 1


def test_nothing_answered_is_lost_to_a_failure(server):
    """A refusal of one request: the ones under way are given out, then the error is raised."""
    slow = sleeping(0.5)
    server.script = [slow, slow, slow, error(400, "too long")]
    stream = engine_for(server).generate(REQUESTS, SAMPLING)
    assert len({next(stream).request.seed for _ in range(3)}) == 3
    with pytest.raises(InputError, match="HTTP 400: too long"):
        next(stream)
    assert len(server.bodies) == 4, "no request is begun after a refusal"


def test_a_refusal_ends_the_waiting_of_others(server):
    server.script = [error(429, "", {"Retry-After": "30"}), sleeping(0.2), error(400, "no")]
    start = time.monotonic()
    with pytest.raises(InputError, match="HTTP 400"):
        list(engine_for(server, concurrency=3).generate(REQUESTS[:3], SAMPLING))
    assert time.monotonic() - start < 5


def test_leaving_early_cancels(server):
    server.behave = sleeping(0.2)
    stream = engine_for(server, concurrency=2).generate(REQUESTS, SAMPLING)
    next(stream)
    stream.close()
    time.sleep(0.5)
    assert len(server.bodies) <= 5


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [(401, "no key", "OPENAI_API_KEY"), (404, "no such model", "--model-name"),
     (400, "prompt too long", "prompt too long"), (422, "bad seed", "bad seed")],
)  # fmt: skip
def test_refusals_say_what_to_do_in_one_line(server, status, message, said):
    server.behave = error(status, message)
    with pytest.raises(InputError) as caught:
        list(engine_for(server).generate(REQUESTS[:1], SAMPLING))
    assert said in str(caught.value)
    assert f"HTTP {status}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.bodies) == 1


def test_a_used_up_quota_is_not_tried_again(server):
    server.behave = lambda body: (
        429, {}, b'{"error": {"message": "pay", "code": "insufficient_quota"}}')  # fmt: skip
    with pytest.raises(InputError, match="quota"):
        list(engine_for(server).generate(REQUESTS[:1], SAMPLING))
    assert len(server.bodies) == 1


def test_a_server_without_usage_is_refused(server):
    server.behave = lambda body: (
        200, {}, b'{"choices": [{"text": "a", "finish_reason": "stop"}]}')  # fmt: skip
    with pytest.raises(InputError, match="how many tokens"):
        list(engine_for(server).generate(REQUESTS[:1], SAMPLING))


def test_the_key_is_sent_and_never_shown(server, monkeypatch):
    server.key = "sk-right"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-secret")
    with pytest.raises(InputError) as caught:
        engine_for(server)
    assert "sk-wrong-secret" not in str(caught.value)
    assert "OPENAI_API_KEY" in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right\n")
    check_all(engine_for(server))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ключ")
    with pytest.raises(InputError, match="no key has"):
        engine_for(server)


def test_which_model(server, start):
    assert OpenAIEngine.load("toy", server.url).served.name == "toy"
    assert OpenAIEngine.load("toy", server.url + "/").base_url == server.url
    with pytest.raises(InputError, match="did you mean 'toy'"):
        OpenAIEngine.load("toyy", server.url)
    server.models = [{"id": "toy"}, {"id": "other"}]
    assert OpenAIEngine.load("x", server.url, "other").served.name == "other"
    server.models = None  # a server that lists no models
    assert OpenAIEngine.load("anything", server.url).served.name == "anything"
    with pytest.raises(InputError, match="lists no models; check the address, most end in /v1"):
        OpenAIEngine.load(start, server.url)


def test_a_folder_gives_token_ids(server, start):
    engine = OpenAIEngine.load(start, server.url)
    assert engine.served.name == "toy", "the only one there"
    engine.policy = Policy(first_wait=0.01)
    [done] = engine.generate([Request("p", 0, "1 + 1 =", 3)], SAMPLING)
    ids = engine.tokenizer("1 + 1 =")["input_ids"]
    assert server.bodies[0]["prompt"] == ids
    assert (done.prompt_tokens, done.response_tokens) == (len(ids), 7)
    server.models = [{"id": "a"}, {"id": "b"}]
    with pytest.raises(InputError, match="serves a, b; choose one with --model-name"):
        OpenAIEngine.load(start, server.url)


def test_a_vllm_server_is_asked_for_ids_and_told_its_context(server, start):
    server.models = [{"id": "toy", "owned_by": "vllm", "max_model_len": 12}]
    server.behave = lambda body: answer(body, token_ids=[5, 6, 1])
    engine = OpenAIEngine.load(start, server.url)
    [done] = engine.generate([Request("p", 0, "1 + 1 =", 3)], SAMPLING)
    assert (done.token_ids, done.response_tokens) == ((5, 6, 1), 3)
    assert done.response == engine.tokenizer.decode([5, 6])
    body = server.bodies[0]
    assert (body["top_k"], body["repetition_penalty"], body["stop_token_ids"]) == (0, 1.0, [1])
    with pytest.raises(InputError, match="exceed the model's context of 12"):
        list(engine.generate(REQUESTS[:1], dataclasses.replace(SAMPLING, max_new_tokens=11)))


def test_no_server_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(InputError, match=r"can't be reached .*; start it"):
            OpenAIEngine.load("toy", url)
    for wrong in ("nonsense", "ftp://host/v1", "http://"):
        with pytest.raises(InputError, match=r"not an address|can't be reached"):
            OpenAIEngine.load("toy", wrong)


@pytest.mark.parametrize(
    ("choice", "said"),
    [(EngineChoice("vlm"), "did you mean 'vllm'"),
     (EngineChoice("openai"), "--base-url"),
     (EngineChoice("hf", base_url="http://x"), "--base-url: the hf engine has no such option"),
     (EngineChoice("hf", concurrency=3), "--concurrency"),
     (EngineChoice("hf", arguments=("devise=cpu",)), "--engine-arg"),
     (EngineChoice("hf", arguments=("devise",)), "KEY=VALUE"),
     (EngineChoice("openai", "http://x", arguments=("retries=many",)), "not a number"),
     (EngineChoice("openai", "http://x", arguments=("endpoint=chatt",)), "unknown endpoint")],
)  # fmt: skip
def test_bad_choices(start, choice, said):
    with pytest.raises(InputError, match=said):
        load_engine(start, choice, 4)


def test_arguments():
    assert parse_arguments(["a=1", "b=x=y", "c=[1]"]) == {"a": 1, "b": "x=y", "c": [1]}


def test_rows_made_before_a_failure_stay_and_the_next_run_makes_the_others(server, tmp_path):
    task = load_task("oar_sum", limit=6)
    sampling = Sampling(max_new_tokens=5)
    calls = itertools.count()
    server.behave = lambda body: error(400)(body) if next(calls) == 7 else answer(body)

    def run():
        generate(
            engine_for(server), "toy", "m", task, tmp_path, samples=2, sampling=sampling, seed=1
        )

    with pytest.raises(InputError, match="HTTP 400"):
        run()
    made = [(row["problem"], row["sample"]) for row in read_jsonl(tmp_path / "samples.jsonl")]
    assert 7 <= len(made) < 12
    run()
    rows = list(read_jsonl(tmp_path / "samples.jsonl"))
    assert len({(row["problem"], row["sample"]) for row in rows}) == len(rows) == 12


def test_an_evaluation_through_the_stage(server, tmp_path, start):
    choice = EngineChoice("openai", server.url, concurrency=3)
    [folder] = run_generation(Job("toy", "oar_sum", 2, 1.0, 1.0, 0, 4, None, 8, tmp_path, choice))
    assert sum(1 for _ in read_jsonl(folder / "samples.jsonl")) == 8
    with pytest.raises(InputError, match="another"):  # the same folder by another engine
        run_generation(Job(start, "oar_sum", 2, 1.0, 1.0, 0, 4, None, 8, tmp_path))
