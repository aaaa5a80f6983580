"""Engines turn prompts into responses; one protocol, `generate(requests) -> completions`."""

from __future__ import annotations

from oar_bench.engines.base import Completion, Engine, Request, Sampling

__all__ = ["Completion", "Engine", "Request", "Sampling"]
