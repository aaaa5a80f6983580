"""A step of two processes is the step of one: samples, gradient, metrics, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from oar_bench.config import load_recipe
from oar_bench.training.policy import Policy
from tests.distributed.launch import WORKER, launch
from tests.distributed.worker import CASES, LAYOUTS, observe

KINDS = ("ddp", "fsdp2")
TEXTS = ("model.safetensors", "trainer_state.safetensors", "trainer_state.json", "config.json")


@pytest.fixture(scope="module")
def folder(start: Path, tmp_path_factory) -> Path:
    """Everything that two processes do, by DDP and by FSDP2, in one go."""
    out = tmp_path_factory.mktemp("two")
    for layout, model in LAYOUTS.items():
        policy = Policy(load_recipe("smoke", {"model": model}), start, "cpu")
        generator = torch.Generator().manual_seed(3)
        for parameter in policy.trained.values():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.grad = noise.to(parameter.dtype)
        policy.apply(1e-3)
        policy.save(out / f"one-{layout}", {"step": 1, "skipped": 0})
    done = launch(WORKER, str(start), str(out))
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.fixture(scope="module")
def alone(start: Path) -> dict[str, Any]:
    return {name: observe(name, start) for name in CASES}


def close(found: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    """Equal to within `tolerance` of the largest value."""
    scale = float(want.abs().max())
    assert float((found - want).abs().max()) <= tolerance * max(scale, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_the_first_gradient_is_that_of_one_process(folder, alone, kind, name):
    want = alone[name]["gradient"]
    found = load_file(folder / f"{kind}-{name}.safetensors")
    mine = {k.removeprefix("gradient/"): v for k, v in found.items() if k.startswith("gradient/")}
    assert mine.keys() == want.keys()
    if name in ("nothing", "broken"):
        assert not want
        return
    flat = [torch.cat([tensors[key].flatten() for key in want]) for tensors in (mine, want)]
    assert float(flat[1].norm()) > 0.01
    # Importances are rounded by the shape of their batch; bfloat16 has three digits.
    rough = {"bfloat16": 2e-2}.get(name, 1e-6 if CASES[name].method == "grpo" else 1e-5)
    close(*flat, rough)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_samples_rows_and_metrics_are_those_of_one_process(folder, alone, kind, name):
    want, found = alone[name], json.loads((folder / f"{kind}-{name}.json").read_text())
    assert found["optimizer_steps"] == want["optimizer_steps"]
    names = ("problem", "sample", "seed", "response_ids", "status", "used", "advantage")
    mine, theirs = ([[r[k] for k in names] for r in f["rollouts"]] for f in (found, want))
    assert mine == theirs
    assert found["metrics"].keys() == want["metrics"].keys()
    # Later optimizer steps begin from weights that differ in their last bits.
    rough = 2e-2 if name == "bfloat16" else 1e-4
    for key, value in want["metrics"].items():
        want_now = value if value is None else pytest.approx(value, rel=rough, abs=rough)
        assert found["metrics"][key] == want_now, key
    assert len(found["credit"]) == len(want["credit"])
    for a, b in zip(found["credit"], want["credit"], strict=True):
        assert a["token_ids_sha256"] == b["token_ids_sha256"]
        assert a["weights"] == pytest.approx(b["weights"], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_the_weights_after_the_step_are_those_of_one_process(folder, alone, kind, name):
    """The plain model of the first process, which FSDP2 refreshes from the shards."""
    found = load_file(folder / f"{kind}-{name}.safetensors")
    want = alone[name]["after"]
    gap = max(float((found[f"after/{key}"] - value).abs().max()) for key, value in want.items())
    # Adam's first step moves a weight by the rate whatever the gradient's size: where a gradient
    # is all rounding, by as much in either direction.
    assert gap <= 2.1 * 3e-4 * max(1, alone[name]["optimizer_steps"]) + (name == "bfloat16") * 0.01
    moved = torch.cat([(found[f"after/{k}"] - v).abs().flatten() for k, v in want.items()])
    assert float((moved > 1e-6).float().mean()) < 0.01


def test_the_cases_are_what_they_say(alone):
    for name, used in (("uneven", 5), ("dynamic", 3), ("even", 8)):
        assert sum(row["used"] for row in alone[name]["rollouts"]) == used * 4
    silent = alone["silent"]["rollouts"]
    signal = {i // 4 for i, row in enumerate(silent) if row["advantage"] != 0}
    assert signal == {0, 2, 4, 6}  # all of them the first process's
    dynamic = alone["dynamic"]["rollouts"]
    assert {i // 4 for i, row in enumerate(dynamic) if row["used"]} == {0, 2, 4}
    assert alone["nothing"]["optimizer_steps"] == 0
    assert alone["broken"]["metrics"]["skipped_steps"] == 1
    assert alone["broken"]["metrics"]["loss"] is None
    assert alone["kl"]["optimizer_steps"] == 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_goes_through_either_layout_unchanged(folder, kind, layout):
    """So each loads what the other saved, to the bit."""
    for name in TEXTS:
        mine, want = (folder / f"{k}-{layout}" / name for k in (kind, "one"))
        assert mine.read_bytes() == want.read_bytes(), name
