"""`oar-bench doctor`: what this machine has, and which engines work on it."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from oar_bench.identity import PACKAGES, environment
from oar_bench.resources import cache_folder, shipped


def examine() -> dict[str, Any]:
    """Versions, device, memory, folders and engines, as plain values."""
    import psutil
    import torch

    facts = environment()
    memory = psutil.virtual_memory()
    return {
        "python": facts["python"],
        "platform": facts["platform"],
        "cpu": f"{facts['cpu']} ({facts['cores']} cores)",
        "memory": f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free",
        "device": _device(torch),
        "tasks": str(shipped("tasks")),
        "cache": f"{cache_folder()} ({_writable(cache_folder())})",
        "packages": {name: facts["packages"].get(name, "not installed") for name in PACKAGES},
        "engines": {"hf": _hf(), "vllm": _vllm()},
    }


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        return f"cuda: {torch.cuda.get_device_name(0)}"
    return f"cpu, {torch.get_num_threads()} threads"


def _hf() -> str:
    """Let a model of a few weights answer, rather than guess from what is installed."""
    from oar_bench.config import ModelSettings
    from oar_bench.engines.base import Request, Sampling
    from oar_bench.engines.hf import HFEngine
    from oar_bench.training.model import tiny_model, word_tokenizer

    tokenizer = word_tokenizer()
    settings = ModelSettings(layers=1, hidden=8, heads=1, intermediate=8, max_context=16)
    engine = HFEngine(tiny_model(settings, tokenizer, 0), tokenizer)
    done = list(engine.generate([Request("p", 0, "1 + 1 =", 0)], Sampling(max_new_tokens=4)))
    return f"works ({done[0].response_tokens} tokens sampled)"


def _vllm() -> str:
    if importlib.util.find_spec("vllm") is None:
        return "not installed"
    return "installed; oar-bench has no engine for it yet"


def _writable(folder: Any) -> str:
    place = folder
    while not place.exists():
        place = place.parent
    return "writable" if os.access(place, os.W_OK) else "NOT writable: set OAR_BENCH_CACHE"
