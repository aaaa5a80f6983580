"""`train --dry-run`: data, tokens, memory, operations and hours, without weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
)

from oar_bench.config import Recipe, parse_recipe
from oar_bench.errors import InputError
from oar_bench.training.dry_run import estimate
from oar_bench.training.model import word_tokenizer
from oar_bench.training.sources import source_of

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


def tiny(folder: Path, config) -> Path:
    """The configuration of a small model, with a tokenizer."""
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    config.vocab_size = len(tokenizer)
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


LLAMA = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                    num_attention_heads=4, max_position_embeddings=64)  # fmt: skip
GPT2 = GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=64)
MIXTRAL = MixtralConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
                        max_position_embeddings=64)  # fmt: skip


def recipe_of(folder: Path, problems: Path, **changes) -> Recipe:
    data = {"path": str(problems), "prompt": "plain"}
    train = {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 8, "steps": 2}
    return parse_recipe(
        {"name": "mine", "model": {"path": str(folder), **changes.pop("model", {})},
         "data": {**data, **changes.pop("data", {})}, "train": {**train, **changes}}, "mine"
    )  # fmt: skip


@pytest.fixture
def uneven(tmp_path) -> Path:
    """Ten problems, of 1, 3, ... 19 tokens."""
    rows = [{"id": str(i), "problem": "3" + " + 4" * i, "answer": "1"} for i in range(10)]
    file = tmp_path / "uneven.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("config", [LLAMA, GPT2, MIXTRAL], ids=lambda c: c.model_type)
def test_weights_are_counted_on_the_model_whatever_its_family(tmp_path, uneven, config):
    folder = tiny(tmp_path / "model", config)
    model = AutoModelForCausalLM.from_config(config)
    found = estimate(recipe_of(folder, uneven), "grpo", 0, 1.0)["model"]
    assert found["parameters"] == found["trained"] == sum(p.numel() for p in model.parameters())
    assert found["experts"] == (4 if config is MIXTRAL else None)


def test_adapters_are_counted_on_the_layers_that_are_named(tmp_path, uneven):
    folder = tiny(tmp_path / "model", LLAMA)
    for targets, trained in ((["q_proj"], 2 * 4 * 32), ("all-linear", 2 * 4 * (4 * 32 + 3 * 48))):
        lora = {"rank": 4, "targets": targets}
        found = estimate(recipe_of(folder, uneven, model={"lora": lora}), "grpo", 0, 1.0)
        assert found["model"]["trained"] == trained
    wrong = recipe_of(folder, uneven, model={"lora": {"targets": ["attention"]}})
    with pytest.raises(InputError, match=r"model\.lora\.targets"):
        estimate(wrong, "grpo", 0, 1.0)


def test_prompts_are_those_of_all_problems_and_no_step_has_more_tokens(tmp_path, uneven):
    """Prompts of 1, 3, ... 19 tokens: mean 10, two longest 17 + 19."""
    folder = tiny(tmp_path / "model", LLAMA)
    recipe = recipe_of(folder, uneven)
    found = estimate(recipe, "grpo", 0, 1.0)["tokens"]
    assert (found["prompt_mean"], found["prompt_longest"]) == (10, 19)
    assert found["a_step_at_most"] == 2 * (17 + 19) + 4 * 8
    steps = [source_of(recipe).of_step(2, seed, 1) for seed in range(20)]
    assert all(sum(len(p.prompt.split()) for p in step) <= 17 + 19 for step in steps)
    drawn = recipe_of(folder, uneven, dynamic_sampling=2)
    assert estimate(drawn, "grpo", 0, 1.0)["tokens"]["a_step_at_most"] == 3 * (72 + 32)


def test_the_tokenizer_is_loaded_once(tmp_path, uneven, monkeypatch):
    folder = tiny(tmp_path / "model", LLAMA)
    loaded = []
    honest = AutoTokenizer.from_pretrained
    monkeypatch.setattr(
        AutoTokenizer, "from_pretrained", lambda *a, **k: loaded.append(1) or honest(*a, **k)
    )
    recipe = recipe_of(folder, uneven, data={"chat_template": True, "max_prompt_tokens": 9})
    assert estimate(recipe, "grpo", 0, 1.0)["data"]["kept"] == 5
    assert len(loaded) == 1
