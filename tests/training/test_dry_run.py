"""`train --dry-run`: data, tokens, memory, operations and hours, without weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import LlamaConfig

from oar_bench.training.model import word_tokenizer

SIZES_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
NO_OVERLAP = ("--set", "data.overlap=[]", "--set", "data.drop_overlap=false")


@pytest.fixture
def seven(tmp_path) -> Path:
    """A folder without weights: the configuration of a model of Qwen2.5-7B's sizes."""
    folder = tmp_path / "model"
    LlamaConfig(**SIZES_7B).save_pretrained(folder)
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def problems(tmp_path) -> Path:
    folder = tmp_path / "data"
    for name in ("deepmath", "math", "gsm8k"):
        (folder / name).mkdir(parents=True)
        rows = [
            {"id": f"{name}-{i}", "problem": f"{i} + {i} =", "answer": str(2 * i)}
            for i in range(200)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name / "train.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize("recipe", ["qwen2.5-7b-oar", "qwen2.5-math-7b-oar"])
def test_the_recipes_of_the_field(recipe, seven, problems, call):
    done = call(
        "train", recipe, "--method", "oar-g", "--dry-run", "--json", "--data-dir", str(problems),
        "--set", f"model.path={seven}", *NO_OVERLAP,
        "--tflops", "400",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["data"]["kept"] == 200
    assert found["model"]["parameters"] == pytest.approx(7.6e9, rel=0.01)
    parts = dict(found["memory_gib"])
    assert parts.pop("total") == pytest.approx(sum(parts.values()))
    # A step of 1024 responses: about 2 N a token sampled, 2 scored, 6 and more to learn from.
    length = found["tokens"]["response_at_most"]
    floor = 1024 * length * 10 * 6.5e9
    assert floor < found["operations_a_step"]["total"] < 3 * floor
    assert found["hours"] == pytest.approx(found["operations"] / 400e12 / 3600)
    text = call(
        "train", recipe, "--dry-run", "--data-dir", str(problems), "--set", f"model.path={seven}",
        *NO_OVERLAP,
    )  # fmt: skip
    assert "nothing was trained" in text.stdout
    assert not list(Path.cwd().glob("runs/qwen*"))


def test_the_same_path_trains_a_small_model(start, problems, call, tmp_path):
    """The 7B recipe end to end, with a small model, its sizes cut and the built-in sampler."""
    sets = {
        "model.path": start, "data.prompt": "plain",
        "train.steps": 2, "train.prompts_per_step": 4, "train.group_size": 2,
        "train.max_new_tokens": 8, "rollout.engine": "hf", "train.save_every": 1,
    }  # fmt: skip
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = call(
        "train", "qwen2.5-7b-oar", "--method", "oar-g", "--data-dir", str(problems),
        "--out", str(tmp_path / "run"), *words, *NO_OVERLAP,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "checkpoints" / "step-000002" / "model.safetensors").is_file()


def test_what_training_would_refuse_is_refused(call, tmp_path, problems):
    for words, said in (
        (["--set", "model.path=" + str(tmp_path / "none")], "no such checkpoint folder"),
        (["--set", "train.lr=-1"], "train.lr"),
        (["--tflops", "0"], "--tflops"),
    ):
        done = call("train", "qwen2.5-7b-oar", "--dry-run", "--data-dir", str(problems), *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
