"""The arrows between packages point one way (design.md), and nothing heavy loads at the start."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "oar_bench"

# Lower layers never import from higher ones; packages of one layer only along the pairs below.
LAYERS = [
    {"errors", "resources", "keyed"},
    {"records", "config", "identity", "console"},
    {"answers", "engines", "credit", "tasks"},
    {"overhead", "monitor"},
    {"training", "evaluation"},
    {"integrations", "importing", "claims"},
    {"reporting", "reproduce", "doctor"},
    {"regression"},
    {"stages"},
    {
        "cli_check",
        "cli_claims",
        "cli_evaluation",
        "cli_credit",
        "cli_data",
        "cli_import",
        "cli_overhead",
        "cli_watch",
    },
    {"cli_training"},
    {"cli", "__main__"},
]
WITHIN = {
    ("cli_credit", "cli_evaluation"),
    ("cli_data", "cli_evaluation"),
    ("reproduce", "reporting"),
    ("tasks", "answers"),
    ("identity", "records"),
    ("__main__", "cli"),
    ("cli_import", "cli_evaluation"),
}


def level(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("oar_bench."):
                found.add(name.split(".")[1])
    return found


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if "_shipped" not in p.parts]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_point_down(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for other in imports(path) - {own}:
        assert level(other) < level(own) or (own, other) in WITHIN, f"{own} imports {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("oar_bench.cli", {"torch", "transformers", "lm_eval", "pandas", "numpy", "pydantic"}),
        ("oar_bench.monitor.folder", {"torch", "numpy", "pydantic", "rich"}),
        ("oar_bench.answers", {"torch", "sympy", "math_verify", "numpy"}),
        ("oar_bench.evaluation.statistics", {"torch", "transformers"}),
    ],
)
def test_light_imports(module, unwanted):
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not unwanted & set(done.stdout.split())
