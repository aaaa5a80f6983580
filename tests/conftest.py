"""What the tests share: small models, the smoke recipe and its warm start."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from oar_bench.cli import main
from oar_bench.config import ModelSettings, Recipe, load_recipe
from oar_bench.training.model import tiny_model, word_tokenizer
from oar_bench.training.warmstart import warm_start

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Warm starts are kept in one folder for all workers of a test run, not in the user's."""
    import os

    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent
    os.environ["OAR_BENCH_CACHE"] = str(folder / "oar-bench-cache")
    return folder


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Ctrl-C means what it means to a program started by hand: a shell starts what it puts in the
    background with SIGINT ignored, which the command line honours and children inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tokenizer():
    return word_tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer):
    """A random model; its weights are larger than usual, so that tokens matter to each other."""
    model = tiny_model(ModelSettings(layers=2, hidden=32, heads=4, intermediate=64), tokenizer, 7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    return model


@pytest.fixture(scope="session")
def smoke() -> Recipe:
    return load_recipe("smoke")


@pytest.fixture(scope="session")
def start(smoke: Recipe, cache: Path) -> Path:
    """The smoke recipe's warm start: a model that is right about one time in five."""
    return warm_start(smoke)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def call(monkeypatch, capsys) -> Callable[..., Done]:
    """The command line in this process, as `oar-bench ARGUMENTS` would run it."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["oar-bench", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main()
        captured = capsys.readouterr()
        return Done(int(exit.value.code or 0), captured.out, captured.err)

    return run
