"""kill -9 in the middle of everything, then resume: same weights, no row lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from oar_bench.records import read_json, read_jsonl

from .moments import begin
from .runs import assert_same_run


def run(log: Path, *arguments: str, die: tuple[str, int, str] | None = None) -> int | None:
    """The exit code of a command; its output goes to a file of the folder `log`."""
    process = begin(list(arguments), log / "log.txt", die)
    process.join(300)
    process.kill()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")  # of another method than the one of conftest.py
def unbroken(start, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert run(out.parent, "train", "smoke", "--method", "oar-p", "--out", str(out)) == 0
    return out


TRAIN = [
    pytest.param("oar_bench.training.trainer:roll_out", 3, "before", id="before a rollout"),
    pytest.param("oar_bench.training.rollout:response_text", 70, "after", id="within a rollout"),
    pytest.param("oar_bench.training.trainer:update", 1, "before", id="first update"),
    pytest.param("oar_bench.training.update:policy_loss", 3, "after", id="within an update"),
    pytest.param("oar_bench.training.trainer:update", 4, "after", id="after an update"),
    pytest.param("oar_bench.training.checkpoint:save_file", 1, "before", id="first checkpoint"),
    pytest.param("oar_bench.training.checkpoint:save_file", 2, "after", id="second checkpoint"),
    pytest.param("oar_bench.training.checkpoint:_sealed", 4, "after", id="sealing a checkpoint"),
    pytest.param("oar_bench.training.checkpoint:sync_folder", 2, "before", id="after the rename"),
    pytest.param("oar_bench.training.trainer:tidy", 1, "before", id="before tidying"),
]


@pytest.mark.parametrize(("target", "call", "when"), TRAIN)
def test_a_killed_training_ends_with_the_same_weights(unbroken, tmp_path, target, call, when):
    out = tmp_path / "run"
    arguments = ("train", "smoke", "--method", "oar-p", "--out", str(out), "--resume")
    assert run(tmp_path, *arguments, die=(target, call, when)) == -9
    assert run(tmp_path, *arguments) == 0
    assert_same_run(out, unbroken)


EVALUATE = [
    pytest.param("oar_bench.engines.hf:sample", 2, "after", id="within generation"),
    pytest.param("oar_bench.evaluation.generate:_row", 20, "before", id="while writing samples"),
    pytest.param(
        "oar_bench.evaluation.generate:write_json", 1, "after", id="right after the claim"
    ),
    pytest.param("oar_bench.evaluation.score:_row", 30, "before", id="within scoring"),
    pytest.param("oar_bench.evaluation.score:write_json", 1, "before", id="before results"),
]


def evaluation(start: Path, out: Path) -> tuple[str, ...]:
    return ("evaluate", str(start), "--tasks", "oar_sum", "-n", "3", "--batch-size", "16",
            "--limit", "20", "--out", str(out))  # fmt: skip


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert run(out, *evaluation(start, out)) == 0
    return out


@pytest.mark.parametrize(("target", "call", "when"), EVALUATE)
def test_a_killed_evaluation_has_every_sample_once(start, whole, tmp_path, target, call, when):
    broken = tmp_path / "broken"
    assert run(tmp_path, *evaluation(start, broken), die=(target, call, when)) == -9
    assert run(tmp_path, *evaluation(start, broken)) == 0
    key = lambda row: (row["problem"], row["sample"])  # noqa: E731
    for name in ("samples.jsonl", "scores.jsonl"):
        a, b = (sorted(read_jsonl(p / "oar_sum" / name), key=key) for p in (whole, broken))
        for row in (*a, *b):
            row.pop("milliseconds", None)
        assert a == b
        assert len(a) == 60 == len({key(row) for row in a})
    first, second = (read_json(p / "oar_sum" / "results.json") for p in (whole, broken))
    assert first["metrics"] == second["metrics"]


def test_a_killed_warm_start_goes_on(start, tmp_path, monkeypatch):
    """From its last partial checkpoint, to the very weights of an unbroken one."""
    monkeypatch.setenv("OAR_BENCH_CACHE", str(tmp_path / "cache"))
    arguments = ("train", "smoke", "--steps", "1", "--out", str(tmp_path / "run"))
    saved = ("oar_bench.training.warmstart:_supervised_loss", 105, "after")
    assert run(tmp_path, *arguments, die=saved) == -9
    [partial] = (tmp_path / "cache").rglob("partial/step-*")
    assert partial.name == "step-000100"
    assert run(tmp_path, *arguments) == 0
    [done] = (tmp_path / "cache").rglob("done/model.safetensors")
    assert done.read_bytes() == (start / "model.safetensors").read_bytes()
