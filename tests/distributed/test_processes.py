"""What can be told of several processes without starting any."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from oar_bench.config import load_recipe
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled, load_model
from oar_bench.errors import InputError
from oar_bench.training.processes import ALONE, Processes, asked_kind, joined
from oar_bench.training.replay import Replay
from oar_bench.training.rollout import joined as joined_rollout
from oar_bench.training.samplers import ForAll
from oar_bench.training.trainer import Trainer, train


class One(Processes):
    """One of several, as far as it is told what it owns."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count


class Threads(One):
    """Several processes played by threads."""

    def __init__(self, rank: int, count: int, slots: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(rank, count)
        self.slots, self.barrier = slots, barrier

    def gather(self, value: Any) -> list[Any]:
        self.slots[self.rank] = value
        self.barrier.wait(30)
        heard = list(self.slots)
        self.barrier.wait(30)
        return heard


def in_threads(count: int, work: Callable[[Processes], Any]) -> list[Any]:
    slots, found, barrier = [None] * count, [None] * count, threading.Barrier(count)

    def one(rank: int) -> None:
        found[rank] = work(Threads(rank, count, slots, barrier))

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """No launcher's variables but the test's own."""
    for name in list(os.environ):
        if name.startswith(("ACCELERATE_", "FSDP_")) or name in ("WORLD_SIZE", "RANK"):
            monkeypatch.delenv(name)


def test_every_group_has_one_owner():
    for count in (1, 2, 3, 5):
        owned = [One(rank, count).share(7) for rank in range(count)]
        assert sorted(group for groups in owned for group in groups) == list(range(7))
        assert max(map(len, owned)) - min(map(len, owned)) <= 1


def test_one_process_is_alone():
    with joined() as processes:
        assert processes is ALONE
        assert processes.gather(3) == [3]
        assert processes.by_first(lambda: "made") == "made"
        assert processes.in_order([2, 0, 1], ["c", "a", "b"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, "ddp"),
        ({"ACCELERATE_MIXED_PRECISION": "no"}, "ddp"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "fsdp2"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "1"}, "--fsdp_version 2"),
        ({"ACCELERATE_USE_FSDP": "true"}, "--fsdp_version 2"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"},
         "--fsdp_offload_params false"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, "Megatron"),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, "model.dtype"),
    ],
)  # fmt: skip
def test_what_the_launcher_may_ask_for(monkeypatch, variables, kind):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if kind in ("ddp", "fsdp2"):
        assert asked_kind() == kind
        return
    with pytest.raises(InputError, match=kind):
        asked_kind()


def test_a_refusal_is_said_by_the_first_process(monkeypatch, call):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        done = call("train", "smoke")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, lines)


def test_more_processes_than_problems_are_refused(smoke, start):
    with pytest.raises(InputError, match=r"8 problems a step are too few for 9 processes"):
        Trainer(smoke, "grpo", 0, start, "cpu", processes=One(0, 9))


@pytest.mark.parametrize("count", [2, 3, 9])
def test_saved_rollouts_are_shared_by_groups(start, tokenizer, tmp_path, count):
    recipe = load_recipe("smoke", {"train": {"steps": 1, "track": []}})
    train(recipe, "grpo", 0, start, tmp_path / "run")
    replay = Replay(tmp_path / "run" / "rollouts.jsonl", 4)
    model = load_model(start)[0]
    whole = replay.of_step(1, tokenizer, model)
    parts = [replay.of_step(1, tokenizer, model, One(rank, count)) for rank in range(count)]
    assert len(parts[-1].problems) == (0 if count == 9 else 8 // count * 4)
    every = joined_rollout(tokenizer, parts)
    order = [every.numbers.index(number) for number in range(32)]
    assert [every.responses[i] for i in order] == whole.responses
    assert [every.seeds[i] for i in order] == whole.seeds


class Echo:
    """Answers a prompt with its seed and the number of prompts it was asked at once."""

    name = "echo"

    def sync(self, model, step):
        self.step = step

    def sample(self, prompts, seeds, sampling):
        rows = [[seed, len(prompts)] for seed in seeds]
        return Sampled(list(prompts), rows, [True] * len(rows), [[-0.5, -float(s)] for s in seeds])

    def metrics(self):
        return {"weights_age": self.step}

    def close(self):
        self.step = -1


def test_an_engine_is_asked_once_for_all():
    """One of the three processes has no prompt; each gets what it asked for."""
    made = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    def work(processes: Processes) -> Any:
        sampler = ForAll(processes, make)
        sampler.sync(None, 4)
        prompts = [[[1, 2], [3]], [], [[4]]][processes.rank]
        seeds = [[10, 11], [], [12]][processes.rank]
        drawn = sampler.sample(prompts, seeds, Sampling(max_new_tokens=2))
        told = sampler.metrics()
        sampler.close()
        return drawn, told

    found = in_threads(3, work)
    assert len(made) == 1
    assert made[0].step == -1
    drawn = [d for d, _ in found]
    assert [d.prompts for d in drawn] == [[[1, 2], [3]], [], [[4]]]
    assert [d.responses for d in drawn] == [[[10, 3], [11, 3]], [], [[12, 3]]]
    assert [d.logprobs for d in drawn] == [[[-0.5, -10.0], [-0.5, -11.0]], [], [[-0.5, -12.0]]]
    assert [told for _, told in found] == [{"weights_age": 4}, {}, {}]
