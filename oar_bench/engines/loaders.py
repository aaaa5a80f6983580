"""Engines by name. Light: what an engine needs is imported when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.engines.base import Engine
from oar_bench.errors import InputError, nearest, not_installed


@dataclass(frozen=True)
class EngineChoice:
    """Which engine, and what only some engines need."""

    name: str = "hf"
    base_url: str | None = None
    model_name: str | None = None
    concurrency: int | None = None
    arguments: tuple[str, ...] = ()
    """KEY=VALUE, for the engine's loader."""

    def check(self) -> None:
        """InputError when the engine is unknown, or an option is another engine's."""
        if self.name not in LOADERS:
            raise InputError(
                f"unknown engine {self.name!r}", "--engine", nearest(self.name, list(LOADERS))
            )
        if self.name != "openai":
            for option in ("base_url", "model_name", "concurrency"):
                if getattr(self, option) is not None:
                    raise InputError(
                        f"the {self.name} engine has no such option",
                        f"--{option.replace('_', '-')}", "use --engine openai",
                    )  # fmt: skip


@dataclass(frozen=True)
class LoadedEngine:
    """An engine, and what the records call its model."""

    engine: Engine
    model: str
    fingerprint: str
    """Names the weights; for a server, which doesn't show them, its model's name."""


def load_engine(model: Path, choice: EngineChoice, batch_size: int) -> LoadedEngine:
    """Load the chosen engine.

    Raises:
        InputError: the engine isn't installed, or the model can't be used with it.
    """
    choice.check()
    options = parse_arguments(choice.arguments)
    try:
        return LOADERS[choice.name](model, choice, batch_size, options)
    except TypeError as error:
        if "keyword argument" not in str(error) and "multiple values" not in str(error):
            raise
        raise InputError(
            f"the {choice.name} engine doesn't know it ({error})", "--engine-arg"
        ) from error


def parse_arguments(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE words as values: JSON where it reads as such, else text.

    >>> parse_arguments(["tensor_parallel_size=2", "device=cpu"])
    {'tensor_parallel_size': 2, 'device': 'cpu'}
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"{word!r} is not KEY=VALUE", "--engine-arg")
        try:
            found[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            found[key.strip()] = value
    return found


def _hf(
    model: Path, choice: EngineChoice, batch_size: int, options: Mapping[str, Any]
) -> LoadedEngine:
    from oar_bench.engines.hf import HFEngine

    return LoadedEngine(HFEngine.load(model, batch_size, **options), str(model), _weights(model))


def _vllm(
    model: Path, choice: EngineChoice, batch_size: int, options: Mapping[str, Any]
) -> LoadedEngine:
    from oar_bench.engines.vllm import VLLMEngine

    return LoadedEngine(VLLMEngine.load(model, batch_size, **options), str(model), _weights(model))


def _openai(
    model: Path, choice: EngineChoice, batch_size: int, options: Mapping[str, Any]
) -> LoadedEngine:
    try:
        from oar_bench.engines.openai import OpenAIEngine
    except ModuleNotFoundError as error:
        raise not_installed(error, "--engine openai", "openai") from error
    from oar_bench.identity import fingerprint

    engine = OpenAIEngine.load(
        model, choice.base_url, choice.model_name,
        32 if choice.concurrency is None else choice.concurrency, **options,
    )  # fmt: skip
    name = engine.served.name
    return LoadedEngine(engine, name, fingerprint(["served", name]))


def _weights(model: Path) -> str:
    from oar_bench.identity import fingerprint_checkpoint

    return fingerprint_checkpoint(model)


LOADERS: Mapping[str, Callable[[Path, EngineChoice, int, Mapping[str, Any]], LoadedEngine]] = {
    "hf": _hf,
    "vllm": _vllm,
    "openai": _openai,
}
