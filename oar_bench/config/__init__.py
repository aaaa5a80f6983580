"""The recipe: everything that a training run depends on, checked when it is read."""

from oar_bench.config.check import read_mapping, validated
from oar_bench.config.load import (
    check_method,
    load_credit,
    load_recipe,
    parse_recipe,
    shipped_recipes,
    suite_of,
)
from oar_bench.config.settings import (
    IMPORTANCE_METHODS,
    METHODS,
    CreditSettings,
    EvaluationSettings,
    Importance,
    Method,
    ModelSettings,
    Pfinal,
    Recipe,
    ReproduceSettings,
    RolloutSettings,
    Section,
    TrainSettings,
    WarmStartSettings,
)

__all__ = [
    "IMPORTANCE_METHODS",
    "METHODS",
    "CreditSettings",
    "EvaluationSettings",
    "Importance",
    "Method",
    "ModelSettings",
    "Pfinal",
    "Recipe",
    "ReproduceSettings",
    "RolloutSettings",
    "Section",
    "TrainSettings",
    "WarmStartSettings",
    "check_method",
    "load_credit",
    "load_recipe",
    "parse_recipe",
    "read_mapping",
    "shipped_recipes",
    "suite_of",
    "validated",
]
