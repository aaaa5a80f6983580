"""The recipe: everything that a training run depends on, checked when it is read.

A recipe is a YAML file; baselines/recipes/ holds the shipped ones. Unknown keys are errors that
name the nearest known key, and every value has its range, so that a run fails before it starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from oar_bench.errors import InputError, nearest
from oar_bench.resources import shipped

Importance = Literal[
    "oar-p", "oar-d", "oar-g", "oar-g0", "oar-gp", "oar-gf",
    "oar-p-span", "oar-p-sample", "oar-p-preselect", "entropy", "attention", "position", "random",
]  # fmt: skip
Method = Literal["grpo", "uniform", Importance, "shuffled", "inverted"]
IMPORTANCE_METHODS: tuple[str, ...] = get_args(Importance)
METHODS: tuple[str, ...] = ("grpo", "uniform", *IMPORTANCE_METHODS, "shuffled", "inverted")
Pfinal = Literal["last", "answer_mean", "answer_kl", "answer_joint"]

Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """Base of every part of a recipe: unknown keys refused, values fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSettings(Section):
    """The model to train: a small one made from scratch, or a checkpoint's folder."""

    path: str | None = None
    """Folder of a Hugging Face checkpoint; absent: a Llama of the sizes below is made."""
    layers: Positive = 3
    hidden: Positive = 96
    heads: Positive = 4
    intermediate: Positive = 256
    max_context: Positive = 128
    """Longest prompt and response together, in tokens."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """CPU threads. Part of the recipe because sums differ in their last bits with it."""

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSettings:
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden must be a multiple of 2 x heads ({2 * self.heads})")
        return self


class WarmStartSettings(Section):
    """Supervised training on worked solutions until the sampled accuracy reaches `target`."""

    target: Rate = 0.3
    lr: Rate = 3e-3
    weight_decay: NonNegative = 0.01
    batch_size: Positive = 64
    warmup_steps: Positive = 50
    max_steps: Positive = 1200
    check_every: Positive = 20
    check_problems: Positive = 64
    check_samples: Positive = 4
    seed: int = 0
    per_seed: bool = False
    """Give each training seed a warm start of its own, so that differences hold over starts too."""


class TrainSettings(Section):
    """GRPO (method.md section 1), each setting under the name the field uses."""

    steps: Positive = 30
    prompts_per_step: Positive = 16
    group_size: Annotated[int, Field(ge=2)] = 8
    num_iterations: Positive = 1
    """Optimizer steps on each rollout batch."""
    micro_batch_size: Positive = 128
    """Responses a forward and backward pass; changes memory, never the gradient."""
    lr: Rate = 3e-4
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    weight_decay: NonNegative = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    max_new_tokens: Positive = 58
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Rate = 1.0
    loss_type: Literal["grpo", "dapo", "dr_grpo"] = "grpo"
    scale_rewards: bool = True
    """Divide advantages by the group's standard deviation (never for dr_grpo)."""
    clip_eps_low: Share = 0.2
    clip_eps_high: NonNegative = 0.2
    kl_beta: NonNegative = 0.0
    mask_truncated: bool = False
    save_every: Positive = 10


class CreditSettings(Section):
    """From a response to its token weights (method.md section 2)."""

    probe: Literal["own"] = "own"
    pfinal: Pfinal = "answer_mean"
    replacement: Literal["pad"] | Annotated[int, Field(ge=0)] = "pad"
    """What takes a token's place: the pad token, or a token's id."""
    sigma: Annotated[float, Field(gt=0)] = 1e-3
    sigma_scale: Literal["absolute", "relative"] = "absolute"
    noise_draws: Positive = 1
    fisher_top_k: Positive = 4
    """Likeliest tokens at each answer position that oar-gf goes through."""
    mediator_count: Annotated[int, Field(ge=0)] | Literal["all"] = 8
    """Later tokens that oar-d recomputes; all of them make it exact OAR-P."""
    mediators: Literal["attention", "next"] = "attention"
    span: Positive = 8
    """Neighbouring tokens that oar-p-span replaces together."""
    exact_share: Rate = 0.25
    """Share of the tokens that oar-p-sample and oar-p-preselect score exactly."""
    q: Share = 0.4
    beta: NonNegative = 2.0
    floor: Share = 0.1
    scope: Literal["reasoning", "response"] = "reasoning"
    preserve_mass: bool = True
    released_quirks: bool = False
    control_of: Importance = "oar-p"
    """Whose weights the controls `shuffled` and `inverted` rearrange."""
    memory_mib: Positive = 256
    """MiB that a pass of credit may take over the model's own; changes speed, no importance."""
    save_weights: bool = False
    """Write every response's importances and weights to credit.jsonl; changes no number."""


class EvaluationSettings(Section):
    """The held-out evaluation of each checkpoint."""

    task: str = "oar_arithmetic"
    problems: Positive = 400
    samples: Positive = 4
    temperature: NonNegative = 1.0
    top_p: Rate = 1.0
    batch_size: Positive = 256

    @model_validator(mode="after")
    def _samples_differ(self) -> EvaluationSettings:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("several samples at temperature 0 would be equal; use samples: 1")
        return self


class ReproduceSettings(Section):
    """What `oar-bench reproduce` trains."""

    methods: Annotated[list[Method], Field(min_length=1)] = ["grpo", "oar-p", "oar-g", "shuffled"]
    seeds: Positive = 3


class Recipe(Section):
    """A whole recipe; see baselines/recipes/tiny.yaml for one with comments."""

    name: str
    family: Literal["arithmetic", "digits", "sum"] = "arithmetic"
    """Which built-in problems are trained on."""
    model: ModelSettings = ModelSettings()
    warmstart: WarmStartSettings | None = None
    train: TrainSettings = TrainSettings()
    credit: CreditSettings = CreditSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    reproduce: ReproduceSettings = ReproduceSettings()

    def of_seed(self, seed: int) -> Recipe:
        """The recipe whose warm start is the one that a training seed begins from."""
        start = self.warmstart
        if start is None or not start.per_seed:
            return self
        own = start.model_copy(update={"seed": start.seed + seed})
        return self.model_copy(update={"warmstart": own})

    def settings(self) -> dict[str, Any]:
        """The recipe as plain JSON-ready values."""
        return self.model_dump(mode="json")


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
            content[section] = {**before, **values}
        elif isinstance(values, dict):
            continue  # not a section at all: said when the recipe is checked
        else:
            content[section] = values
    return parse_recipe(content, str(path))


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
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError("no such recipe file", str(path)) from error
    except IsADirectoryError as error:
        raise InputError("a YAML file is expected, not a folder", str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise InputError(f"not a YAML file ({line})", str(path)) from error
    if not isinstance(content, dict):
        raise InputError("a recipe is a mapping of keys to values", str(path))
    return path, content


def _on_its_base(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """A recipe's content laid over that of the recipe named by its key `base`, section by section.

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
    return {
        **under,
        **{
            key: {**under[key], **value}
            if isinstance(value, dict) and isinstance(under.get(key), dict)
            else value
            for key, value in content.items()
        },
    }


def parse_recipe(content: dict[str, Any], where: str) -> Recipe:
    """Check a recipe's values; `where` names their source in errors."""
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = _known_keys(first["loc"][:-1])
            raise InputError(
                f"unknown key {place!r}", where, nearest(str(first["loc"][-1]), known)
            ) from error
        said = first["msg"][:1].lower() + first["msg"][1:]
        if first["type"] == "missing":
            raise InputError(f"the key {place!r} is missing", where) from error
        raise InputError(f"{place}: {said}, not {first['input']!r}", where) from error


def _known_keys(place: tuple[int | str, ...]) -> list[str]:
    """Keys of the section at `place` of a recipe."""
    section: type[BaseModel] = Recipe
    for part in place:
        annotation = section.model_fields[str(part)].annotation
        choices = [annotation, *get_args(annotation)]
        section = next(c for c in choices if isinstance(c, type) and issubclass(c, BaseModel))
    return list(section.model_fields)


def load_credit(recipe: str | None, changes: dict[str, Any]) -> CreditSettings:
    """Credit settings of a recipe (see `load_recipe`), or the defaults, with some values changed.

    >>> load_credit(None, {"q": 0.25}).q
    0.25
    """
    if recipe is not None:
        return load_recipe(recipe, {"credit": changes}).credit
    return parse_recipe({"name": "defaults", "credit": changes}, "settings").credit
