from __future__ import annotations

from pathlib import Path

import pytest

from oar_bench.training.trainer import train


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes is run when it is asked for."""
    if "slow" in config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("slow") and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="takes minutes: `pytest -m slow` runs it"))


@pytest.fixture(scope="session")
def unbroken(smoke, start, tmp_path_factory) -> Path:
    """A run that nothing befell: GRPO, seed 0."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    train(smoke, "grpo", 0, start, out)
    return out
