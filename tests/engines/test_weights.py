"""Weights on their way to an engine: the trainer's to the bit, in one file rewritten in place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from oar_bench.config import ModelSettings
from oar_bench.engines.heads import WiderHeads
from oar_bench.engines.weights import FILE, WeightsFolder, exchange_of, named_weights
from oar_bench.errors import InputError
from oar_bench.training.model import tiny_model

SIZES = ModelSettings(layers=2, hidden=32, heads=2, intermediate=48)


@pytest.fixture
def fresh(tokenizer):
    """A model of the test's own, since its weights are changed."""
    return tiny_model(SIZES, tokenizer, 3)


def untied(tokenizer):
    model = tiny_model(SIZES, tokenizer, 3)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() + 0.5)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_the_folder_is_a_checkpoint_of_the_model(tokenizer, tmp_path, tied):
    model = tiny_model(SIZES, tokenizer, 3) if tied else untied(tokenizer)
    model.generation_config.eos_token_id = [1, 7]
    folder = WeightsFolder(model, tokenizer, parent=tmp_path)
    assert ("lm_head.weight" in load_file(folder.path / FILE)) is not tied
    loaded = AutoModelForCausalLM.from_pretrained(folder.path)
    ids = torch.arange(12)[None]
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.generation_config.eos_token_id == [1, 7]
    assert AutoTokenizer.from_pretrained(folder.path)("3 + 4").input_ids
    assert folder.path.stat().st_mode & 0o077 == 0, "others can read it"
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_writing_again_changes_the_same_file(fresh, tokenizer, tmp_path):
    folder = WeightsFolder(fresh, tokenizer, parent=tmp_path)
    number, names = (folder.path / FILE).stat().st_ino, set(load_file(folder.path / FILE))
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(torch.randn_like(parameter))
    folder.write(fresh)
    found = load_file(folder.path / FILE)
    assert (folder.path / FILE).stat().st_ino == number
    assert set(found) == names
    for name, value in fresh.named_parameters():
        assert torch.equal(found[name], value), name
    folder.close()


def test_weights_are_converted_as_asked(fresh, tokenizer, tmp_path):
    folder = WeightsFolder(fresh, tokenizer, torch.bfloat16, tmp_path)
    found = load_file(folder.path / FILE)
    for name, value in fresh.named_parameters():
        assert torch.equal(found[name], value.to(torch.bfloat16)), name
    assert AutoModelForCausalLM.from_pretrained(folder.path).dtype == torch.bfloat16
    folder.close()


def test_mixed_dtypes_stay_what_they_are(fresh, tokenizer, tmp_path):
    """A bfloat16 model with float32 norms: every tensor aligned, none converted."""
    fresh.to(torch.bfloat16)
    fresh.model.norm.float()
    folder = WeightsFolder(fresh, tokenizer, parent=tmp_path)
    found = load_file(folder.path / FILE)
    assert found["model.norm.weight"].dtype == torch.float32
    for name, value in fresh.named_parameters():
        assert torch.equal(found[name], value), name
    folder.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lora_is_merged_and_the_base_untouched(fresh, tokenizer, tmp_path, dtype):
    peft = pytest.importorskip("peft")
    fresh.to(dtype)
    config = peft.LoraConfig(
        r=4, lora_alpha=16, target_modules=["q_proj", "down_proj"], use_rslora=True
    )
    model = peft.get_peft_model(fresh, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folder = WeightsFolder(model, tokenizer, parent=tmp_path)
    found = load_file(folder.path / FILE)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    base = {n.replace(".base_layer", ""): v for n, v in model.get_base_model().named_parameters()}
    assert torch.equal(found["model.norm.weight"], base["model.norm.weight"])
    merged = model.merge_and_unload()
    assert set(found) == {name for name, _ in merged.named_parameters()}
    changed = found["model.layers.0.self_attn.q_proj.weight"]
    old = before["base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight"]
    assert (changed - old).abs().max() > 0.1
    for name, value in merged.named_parameters():
        torch.testing.assert_close(found[name], value.to(dtype), msg=name)
    folder.close()


def test_adapters_within_the_model_are_merged_too(fresh, tokenizer, tmp_path):
    """As the trainer adds them: by transformers' own `add_adapter`, without a wrapper."""
    peft = pytest.importorskip("peft")
    plain = dict(named_weights(fresh))
    old = {name: value.clone() for name, value in plain.items()}
    fresh.add_adapter(peft.LoraConfig(r=2, lora_alpha=6, target_modules=["v_proj"]), "mine")
    layer = fresh.model.layers[1].self_attn.v_proj
    with torch.no_grad():
        layer.lora_B["mine"].weight.normal_()
    found = dict(named_weights(fresh))
    assert list(found) == list(old)
    name = "model.layers.1.self_attn.v_proj.weight"
    difference = 3.0 * layer.lora_B["mine"].weight @ layer.lora_A["mine"].weight
    torch.testing.assert_close(found[name], old[name] + difference)
    assert torch.equal(found["model.norm.weight"], old["model.norm.weight"])


def test_dora_is_refused(fresh):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], use_dora=True)
    with pytest.raises(InputError, match="can't be merged"):
        list(named_weights(peft.get_peft_model(fresh, config)))


def test_another_model_is_refused(fresh, tokenizer, tmp_path):
    folder = WeightsFolder(fresh, tokenizer, parent=tmp_path)
    other = tiny_model(SIZES.model_copy(update={"layers": 1}), tokenizer, 3)
    with pytest.raises(InputError, match="the model has lost a weight"):
        folder.write(other)
    wider = tiny_model(SIZES.model_copy(update={"hidden": 64}), tokenizer, 3)
    with pytest.raises(InputError, match="a weight of another model"):
        folder.write(wider)
    folder.close()


def test_integer_weights_are_refused_and_leave_nothing(fresh, tokenizer, tmp_path):
    fresh.model.norm.weight = torch.nn.Parameter(torch.ones(32).long(), requires_grad=False)
    with pytest.raises(InputError, match="int64 can't be handed to vLLM"):
        WeightsFolder(fresh, tokenizer, parent=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_room_is_said_in_one_line(fresh, tokenizer, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage(10**6, 10**6, 1000))
    with pytest.raises(InputError, match="no room for weights of") as caught:
        WeightsFolder(fresh, tokenizer, parent=tmp_path)
    assert "rollout.exchange" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_system_that_fills_meanwhile_is_said_too(fresh, tokenizer, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match="No space left on device"):
        WeightsFolder(fresh, tokenizer, parent=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_small_shared_memory_gives_way_to_the_folder_for_temporary_files(
    fresh, tokenizer, tmp_path, monkeypatch
):
    usage = namedtuple("usage", "total used free")
    small = tmp_path / "shm"
    small.mkdir()
    monkeypatch.setattr("oar_bench.engines.weights.SHARED", small)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(
        "shutil.disk_usage", lambda place: usage(1, 1, 1000 if place == small else 10**9)
    )
    folder = WeightsFolder(fresh, tokenizer)
    assert folder.path.parent == tmp_path
    folder.close()


def test_an_absent_exchange_is_refused(tmp_path):
    assert exchange_of(None) is None
    with pytest.raises(InputError, match="no such folder"):
        exchange_of(str(tmp_path / "absent"))


OWNER = """
import sys, time
from pathlib import Path
from oar_bench.config import ModelSettings
from oar_bench.engines.weights import WeightsFolder
from oar_bench.training.model import tiny_model, word_tokenizer

tokenizer = word_tokenizer()
model = tiny_model(ModelSettings(layers=1, hidden=32, heads=2), tokenizer, 0)
folder = WeightsFolder(model, tokenizer, parent=Path(sys.argv[1]))
print(folder.path, flush=True)
time.sleep(300)
"""


def test_what_a_killed_owner_left_is_removed_by_the_next(fresh, tokenizer, tmp_path):
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        left = Path(owner.stdout.readline().strip())
        WeightsFolder(fresh, tokenizer, parent=tmp_path).close()
        assert (left / FILE).is_file(), "a living owner's folder was removed"
        owner.send_signal(signal.SIGKILL)
    assert left.is_dir()
    WeightsFolder(fresh, tokenizer, parent=tmp_path).close()
    assert not left.exists()


def attention(x, q, k, v, o, heads):
    """Causal attention without rotation, (T, D) -> (T, D)."""
    split = lambda w: (x @ w.T).unflatten(1, (heads, -1)).transpose(0, 1)  # noqa: E731
    a, b, c = split(q), split(k), split(v)
    scores = a @ b.transpose(1, 2) / a.shape[2] ** 0.5
    mask = torch.ones(len(x), len(x)).triu(1).bool()
    mixed = scores.masked_fill(mask, float("-inf")).softmax(-1) @ c
    return mixed.transpose(0, 1).flatten(1) @ o.T


def test_wider_heads_attend_alike():
    torch.manual_seed(0)
    x = torch.randn(5, 36, dtype=torch.float64)
    q, k, v = (torch.randn(36, 36, dtype=torch.float64) for _ in range(3))
    o = torch.randn(36, 36, dtype=torch.float64)
    wider = WiderHeads(12, [16, 32])
    names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkvo"]
    wide = [wider.weight(name, w) for name, w in zip(names, (q, k, v, o), strict=True)]
    assert [tuple(w.shape) for w in wide] == [(48, 36)] * 3 + [(36, 48)]
    torch.testing.assert_close(attention(x, *wide, 3), attention(x, q, k, v, o, 3))
    bias = wider.weight("model.layers.0.self_attn.k_proj.bias", torch.arange(36.0))
    assert bias.tolist() == [
        *range(12), *[0] * 4, *range(12, 24), *[0] * 4, *range(24, 36), *[0] * 4
    ]  # fmt: skip
    assert wider.weight("model.norm.weight", q) is q


def test_heads_that_cannot_be_wider_are_refused():
    with pytest.raises(InputError, match="no attention heads of 640"):
        WiderHeads(640, [32, 512])
    with pytest.raises(InputError, match="normalised attention heads"):
        WiderHeads(24, [32]).weight("model.layers.0.self_attn.q_norm.weight", torch.ones(24))
