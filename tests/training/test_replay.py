"""Training from saved rollouts: the same run without a sampler, or another method on its data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oar_bench.cli_training import train as command
from oar_bench.config import Recipe, load_recipe
from oar_bench.errors import InputError
from oar_bench.records import read_json, read_jsonl
from oar_bench.training import samplers
from oar_bench.training.trainer import train


@pytest.fixture(scope="module")
def live(smoke: Recipe, start: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("live")
    train(smoke, "oar-p", 0, start, out)
    return out


@pytest.fixture
def no_sampler(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was sampled")

    monkeypatch.setattr(samplers, "sample", refuse)


def test_a_replayed_run_is_the_run_bit_for_bit(live, smoke, start, tmp_path, no_sampler):
    final = train(smoke, "oar-p", 0, start, tmp_path / "run", rollouts=live / "rollouts.jsonl")
    assert final.name == "step-000004"
    for name in ("model.safetensors", "trainer_state.safetensors"):
        mine, theirs = (p / "checkpoints" / final.name / name for p in (tmp_path / "run", live))
        assert mine.read_bytes() == theirs.read_bytes()
    for name in ("metrics.jsonl", "rollouts.jsonl"):
        rows = [list(read_jsonl(p / name)) for p in (tmp_path / "run", live)]
        assert rows[0] == rows[1], name


def test_another_method_learns_from_the_same_responses(live, smoke, start, tmp_path, no_sampler):
    file = live / "rollouts.jsonl"
    final = train(smoke, "grpo", 0, start, tmp_path / "run", rollouts=file)
    ours, theirs = (
        [row["response_ids"] for row in read_jsonl(path)]
        for path in (tmp_path / "run" / "rollouts.jsonl", file)
    )
    assert ours == theirs
    last = live / "checkpoints" / final.name / "model.safetensors"
    assert (final / "model.safetensors").read_bytes() != last.read_bytes()
    prints = read_json(tmp_path / "run" / "run.json")["fingerprints"]
    assert "rollouts" in prints
    assert "rollouts" not in read_json(live / "run.json")["fingerprints"]


def edited(live: Path, tmp_path: Path, change) -> Path:
    rows = [change(row) for row in read_jsonl(live / "rollouts.jsonl")]
    file = tmp_path / "edited.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows if row is not None))
    return file


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: {k: v for k, v in r.items() if k != "response_ids"}, "line 1 is no rollout"),
        (lambda r: r | {"step": "one"}, "line 1 is no rollout"),
        (lambda r: r | {"response_ids": [99999]}, "vocabulary"),
        (lambda r: r | {"response_ids": []}, "vocabulary"),
        (lambda r: r | {"prompt": 5}, "no prompt that is a str"),
        (lambda r: r | {"sampler_logprobs": [0.5]}, "one for each token"),
        (lambda r: r | {"sampler_logprobs": ["x"] * len(r["response_ids"])}, "one for each token"),
        (lambda r: None if r["sample"] == 0 else r, "groups of 4"),
        (lambda r: None if r["step"] == 2 else r, r"no rollouts of step 2; train --steps 1"),
        (lambda r: None, "no rollouts of step 1; give the rollouts.jsonl"),
        (lambda r: r | {"sampler_logprobs": [float("nan")] * len(r["response_ids"])}, "one for"),
        (lambda r: r | {"prompt": ""}, "has no token"),
        (lambda r: r | {"prompt": r["prompt"] + " +" * 40}, "exceed the model's context of 48"),
        (lambda r: r | {"response": "9 9"}, "don't spell its responses"),
    ],
)
def test_other_files_are_refused(live, smoke, start, tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        train(smoke, "grpo", 0, start, tmp_path / "run", rollouts=edited(live, tmp_path, change))


def test_half_a_group_is_no_group(live, smoke, start, tmp_path):
    halves = load_recipe("smoke", {"train": {"group_size": 2}})
    with pytest.raises(InputError, match="step 1 has no groups of 2 responses"):
        train(halves, "grpo", 0, start, tmp_path / "run", rollouts=live / "rollouts.jsonl")


def test_a_file_that_cannot_be_replayed_is_refused_before_the_warm_start(
    live, tmp_path, monkeypatch
):
    monkeypatch.setattr("oar_bench.reproduce.starting_point", lambda *_: pytest.fail("begun"))
    (tmp_path / "empty.jsonl").touch()
    files = tmp_path / "no.jsonl", live, live / "metrics.jsonl", tmp_path / "empty.jsonl"
    said = "no such file", "a folder is given", "line 1 is no rollout", "no rollouts of step 1"
    for file, wanted in zip(files, said, strict=True):
        for dry_run in (False, True):
            with pytest.raises(InputError, match=wanted):
                command("smoke", rollouts=file, out=tmp_path / "run", dry_run=dry_run)
    assert not (tmp_path / "run").exists()


def test_a_last_row_without_a_newline_counts(live, smoke, start, tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_text((live / "rollouts.jsonl").read_text().removesuffix("\n"))
    assert train(smoke, "grpo", 0, start, tmp_path / "run", rollouts=file).is_dir()


def test_the_first_step_of_another_run_is_shared(live, smoke, start, tmp_path, monkeypatch):
    """The rest is sampled; with the built-in sampler nothing differs from a run on its own."""
    asked = []
    honest = samplers.sample
    monkeypatch.setattr(samplers, "sample", lambda *a, **k: asked.append(1) or honest(*a, **k))
    shared = train(smoke, "grpo", 0, start, tmp_path / "a", first=live / "rollouts.jsonl")
    assert len(asked) == 3
    alone = train(smoke, "grpo", 0, start, tmp_path / "b")
    assert (shared / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def test_the_samplers_own_logprobs_come_from_the_file(live, smoke, start, tmp_path):
    """They differ from the trainer's by 0.1 nats: that is the gap, and it is corrected for."""
    recipe = load_recipe("smoke", {"train": {"steps": 1}})
    plain = train(recipe, "grpo", 0, start, tmp_path / "plain", rollouts=live / "rollouts.jsonl")
    first = {}
    for row in read_jsonl(live / "rollouts.jsonl"):
        first[row["step"], row["problem"], row["sample"]] = row

    def shifted(row):
        return row | {"sampler_logprobs": [-1.0] * len(row["response_ids"])}

    file = edited(live, tmp_path, shifted)
    final = train(recipe, "grpo", 0, start, tmp_path / "run", rollouts=file)
    [row] = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert row["logprob_gap"] > 0.1
    assert 0 <= row["tis_capped"] <= 1
    weights = [(p / "model.safetensors").read_bytes() for p in (plain, final)]
    assert weights[0] != weights[1]
    off = load_recipe("smoke", {"train": {"steps": 1, "tis_cap": None}})
    without = train(off, "grpo", 0, start, tmp_path / "off", rollouts=file)
    assert (without / "model.safetensors").read_bytes() == weights[0]
