"""Reading recipes: a shipped name or a YAML file, a base under it, checked values.

baselines/recipes/ holds the shipped ones. Unknown keys are errors that name the nearest known key,
and every value has its range, so that a run fails before it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from oar_bench.config.check import read_mapping, validated
from oar_bench.config.other_names import key_here
from oar_bench.config.settings import METHODS, CreditSettings, Recipe
from oar_bench.errors import InputError, nearest
from oar_bench.resources import shipped


def check_method(method: str, where: str) -> None:
    """Raise InputError, naming the nearest method, when `method` is unknown."""
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}", where, nearest(method, list(METHODS)))


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with oar-bench.

    >>> "tiny" in shipped_recipes()
    True
    """
    return sorted(path.stem for path in (shipped("baselines") / "recipes").glob("*.yaml"))


def load_recipe(name: str, changes: dict[str, Any] | None = None) -> Recipe:
    """A recipe by its shipped name or by the path of a YAML file.

    Args:
        name: `tiny`, or `my/recipe.yaml`.
        changes: values that replace the file's, by section: `{"train": {"steps": 5}}`.

    Raises:
        InputError: no such recipe, not YAML, an unknown key or a value out of range.

    >>> load_recipe("tiny", {"train": {"steps": 5}}).train.steps
    5
    """
    path, content = _read(name)
    if "recipes" in content:
        named = ", ".join(map(str, content["recipes"] or ()))
        raise InputError("this is a suite of recipes", str(path), f"name one of them: {named}")
    content = _on_its_base(content, path)
    for section, values in (changes or {}).items():
        before = content.get(section) or {}
        if isinstance(values, dict) and isinstance(before, dict):
            content[section] = _laid_over(before, values)
        elif isinstance(values, dict):
            continue  # not a section at all: said when the recipe is checked
        else:
            content[section] = values
    return parse_recipe(content, str(path))


def changes_of(words: Sequence[str]) -> dict[str, Any]:
    """`SECTION.KEY=VALUE` words as changes for `load_recipe`; values are read as YAML.

    >>> changes_of(["train.lr=1e-4", "model.lora.rank=8", "family=digits"])
    {'train': {'lr': 0.0001}, 'model': {'lora': {'rank': 8}}, 'family': 'digits'}

    Raises:
        InputError: a word of another form.
    """
    changes: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        *path, last = key.strip().split(".")
        if not equals or not last or not all(path):
            raise InputError(f"{word!r} is not SECTION.KEY=VALUE", "--set")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"the value of {word!r} is not YAML", "--set") from error
        if isinstance(value, str):  # YAML 1.1 reads 1e-4 as text
            with suppress(ValueError):
                value = float(value)
        place = changes
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise InputError(f"{key!r} goes through a value that was set", "--set")
        place[last] = value
    return changes


def suite_of(name: str) -> list[str] | None:
    """The recipes that a suite names under its key `recipes`; None when `name` is a recipe itself.

    A suite is a file of two keys: `name`, and `recipes`, which are reproduced one after the other.

    >>> suite_of("tiny") is None
    True
    """
    path, content = _read(name)
    if "recipes" not in content:
        return None
    members = content["recipes"]
    if set(content) != {"name", "recipes"}:
        raise InputError("a suite holds the keys name and recipes, nothing else", str(path))
    if not isinstance(members, list) or not members or len({*map(str, members)}) < len(members):
        raise InputError(f"recipes: a list of names is expected, not {members!r}", str(path))
    for member in members:
        if not isinstance(member, str) or "recipes" in _read(member)[1]:
            raise InputError(f"recipes: {member!r} is no recipe", str(path))
    return members


def _read(name: str) -> tuple[Path, dict[str, Any]]:
    """A recipe's file and what stands in it."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = shipped("baselines") / "recipes" / f"{name}.yaml"
        if not path.is_file():
            known = shipped_recipes()
            raise InputError(f"unknown recipe {name!r}", "recipe", nearest(name, known))
    return path, read_mapping(path, "recipe")


def _laid_over(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One mapping over another, mapping by mapping."""
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        deep = isinstance(value, dict) and isinstance(below, dict)
        both[key] = _laid_over(below or {}, value) if deep else value
    return both


def _on_its_base(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """A recipe's content laid over that of the recipe named by its key `base`, key by key.

    A base has no base: what a recipe says stands in two files at most.
    """
    if "base" not in content:
        return content
    base = content.pop("base")
    if not isinstance(base, str):
        raise InputError(f"base: the name of a recipe is expected, not {base!r}", str(path))
    _, under = _read(base)
    if "base" in under:
        raise InputError(f"base: {base} has a base itself", str(path), f"name {under['base']}")
    return _laid_over(under, content)


def parse_recipe(content: dict[str, Any], where: str) -> Recipe:
    """Check a recipe's values; `where` names their source in errors."""
    return validated(Recipe, content, where, key_here)


def load_credit(recipe: str | None, changes: dict[str, Any]) -> CreditSettings:
    """Credit settings of a recipe (see `load_recipe`), or the defaults, with some values changed.

    >>> load_credit(None, {"q": 0.25}).q
    0.25
    """
    if recipe is not None:
        return load_recipe(recipe, {"credit": changes}).credit
    return parse_recipe({"name": "defaults", "credit": changes}, "settings").credit
