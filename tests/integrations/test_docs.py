"""The snippets of docs/integrations.md: TRL's is run, verl's is run against a stand-in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from tests.integrations.test_tensors import tensors

PAGE = Path(__file__).parent.parent.parent / "docs" / "integrations.md"


def snippet(heading: str) -> str:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_script_for_trl_runs(tmp_path):
    pytest.importorskip("trl")
    (tmp_path / "script.py").write_text(snippet("TRL"))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.splitlines()[-1]) >= 1


def test_the_recipe_for_verl_weighs_what_verl_made(model, tokenizer, monkeypatch):
    """A stand-in that has the names and shapes that the page states; it is not verl."""
    trainer = types.ModuleType("verl.trainer.ppo.ray_trainer")
    prompts, prompt_mask, responses, mask = tensors(tokenizer)
    advantages = torch.tensor([1.0, -0.5, 2.0, 0.0])[:, None] * mask

    def compute_advantage(data, adv_estimator, gamma=1.0):
        data.batch["advantages"] = advantages.clone()
        return data

    trainer.compute_advantage = compute_advantage
    ppo = types.ModuleType("verl.trainer.ppo")
    ppo.ray_trainer = trainer
    for name, module in (("verl", None), ("verl.trainer", None), ("verl.trainer.ppo", ppo)):
        monkeypatch.setitem(sys.modules, name, module or types.ModuleType(name))
    space: dict = {}
    exec(snippet("verl"), space)  # noqa: S102
    space["install"](lambda: model, tokenizer)
    data = types.SimpleNamespace(
        batch={
            "prompts": prompts, "responses": responses,
            "attention_mask": torch.cat([prompt_mask, mask], 1), "response_mask": mask,
        }
    )  # fmt: skip
    data = trainer.compute_advantage(data, "grpo", gamma=1.0)
    got = data.batch["advantages"]
    assert got.shape == responses.shape
    assert torch.equal(got[3], torch.zeros_like(got[3]))
    torch.testing.assert_close(got.sum(1), advantages.sum(1))  # mass kept
    assert float((got[0] - advantages[0]).abs().max()) > 0.1
