"""Recipes: every mistake is one line that names its place and the mend."""

from __future__ import annotations

import pytest

from oar_bench.config import Recipe, load_recipe, parse_recipe, shipped_recipes, suite_of
from oar_bench.config.check import known_keys
from oar_bench.config.other_names import TRL_KEYS
from oar_bench.errors import InputError


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_load(name):
    members = suite_of(name)
    assert [load_recipe(recipe).name for recipe in members or [name]] == (members or [name])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"name": "x", "trian": {}}, r"unknown key 'trian'; did you mean 'train'\?"),
        ({"name": "x", "train": {"stps": 3}}, r"unknown key 'train.stps'; did you mean 'steps'\?"),
        ({"name": "x", "warmstart": {"tarmget": 3}}, "did you mean 'target'"),
        (
            {"name": "x", "train": {"num_generations": 8}},
            "num_generations is train.group_size",
        ),
        (
            {"name": "x", "train": {"report_to": "wandb"}},
            "report_to is the option --log here",
        ),
        ({"name": "x", "warmstart": {"num_generations": 8}}, "use one of target, lr"),
        ({"name": "x", "train": {"steps": 0}}, "train.steps: input should be greater than 0"),
        ({"name": "x", "train": {"group_size": 1}}, "train.group_size"),
        ({"name": "x", "train": {"loss_type": "ppo"}}, "'grpo', 'dapo', 'dr_grpo' or 'cispo'"),
        ({"name": "x", "credit": {"q": 1.5}}, "credit.q"),
        ({"name": "x", "reproduce": {"methods": ["nope"]}}, "reproduce.methods.0"),
        ({"train": {}}, "'name' is missing"),
        ({"name": "x", "train": 3}, "train: input should be"),
        ({"name": "x", "train": {"lr": float("nan")}}, "train.lr"),
    ],
)
def test_a_mistake_is_named(content, said):
    with pytest.raises(InputError, match=said) as caught:
        parse_recipe(content, "file.yaml")
    assert str(caught.value).startswith("file.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "not a YAML file"),
        ("- 1\n- 2\n", "a mapping"),
        ("", "a mapping"),
        ("name: !!python/object/apply:os.system ['true']", "not a YAML file"),
        ("name: \x00", "not a YAML file"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, said):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_recipe(str(path))


def test_names_of_other_tools_lead_to_keys_that_exist():
    for place in TRL_KEYS.values():
        section, key = place.split(".")
        assert key in known_keys(Recipe, (section,)), place


def test_absent_files_folders_and_names(tmp_path):
    with pytest.raises(InputError, match="no such recipe file"):
        load_recipe(str(tmp_path / "no.yaml"))
    (tmp_path / "dir.yaml").mkdir()
    with pytest.raises(InputError, match="not a folder"):
        load_recipe(str(tmp_path / "dir.yaml"))
    with pytest.raises(InputError, match="did you mean 'tiny'"):
        load_recipe("tinny")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"lora": {"targets": "q_proj"}}},
         "model.lora.targets: input should be 'all-linear' or a valid list, not 'q_proj'"),
        ({"model": {"lora": {"targets": [3]}}},
         "model.lora.targets: input should be 'all-linear' or a valid string, not [3]"),
        ({"credit": {"replacement": -1}},
         "credit.replacement: input should be 'pad' or greater than or equal to 0, not -1"),
        ({"train": {"track": ["x"]}}, "train.track.0: input should be 'entropy' or 'kl_start'"),
    ],
)  # fmt: skip
def test_a_value_of_several_kinds_is_told_by_its_key_and_all_kinds(changes, said):
    with pytest.raises(InputError) as caught:
        load_recipe("tiny", changes)
    assert said in str(caught.value)
