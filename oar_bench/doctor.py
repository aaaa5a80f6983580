"""`oar-bench doctor`: what this machine has, and which engines work on it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from typing import Any

from oar_bench.console import say
from oar_bench.errors import InputError
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
        "engines": {"hf": _hf(), "vllm": _vllm(), "openai": _openai()},
    }


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        return f"cuda: {torch.cuda.get_device_name(0)}"
    return f"cpu, {torch.get_num_threads()} threads"


def _hf() -> str:
    """Let a model of a few weights answer, rather than guess from what is installed."""
    from oar_bench.engines.base import Request, Sampling
    from oar_bench.engines.hf import HFEngine

    engine = HFEngine(*_tiny())
    done = list(engine.generate([Request("p", 0, "1 + 1 =", 0)], Sampling(max_new_tokens=4)))
    return f"works ({done[0].response_tokens} tokens sampled)"


def _tiny() -> tuple[Any, Any]:
    from oar_bench.config import ModelSettings
    from oar_bench.training.model import tiny_model, word_tokenizer

    tokenizer = word_tokenizer()
    settings = ModelSettings(layers=1, hidden=64, heads=1, intermediate=8, max_context=16)
    return tiny_model(settings, tokenizer, 0), tokenizer


def _vllm() -> str:
    """Let vLLM answer in a process of its own: what it needs is only known once it has run."""
    if importlib.util.find_spec("vllm") is None:
        return "not installed: python -m pip install 'oar-bench[vllm]'"
    say("doctor: trying vLLM, which takes a minute (give up after 5)")
    command = [sys.executable, "-c", "from oar_bench.doctor import try_vllm; try_vllm()"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "installed, but gave no answer within 5 minutes"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    line = lines[-1][:300] if lines else f"exit code {done.returncode}"
    return line if done.returncode == 0 else f"installed, but fails: {line}"


def try_vllm() -> None:
    """Have vLLM answer with a model of a few weights; print so as the last line."""
    from oar_bench.engines.base import Request, Sampling
    from oar_bench.engines.vllm import VLLMEngine

    with tempfile.TemporaryDirectory() as folder:
        for part in _tiny():
            part.save_pretrained(folder)
        try:
            engine = VLLMEngine.load(folder, 1)
        except InputError as error:
            sys.exit(error.message)
        done = list(engine.generate([Request("p", 0, "1 + 1 =", 0)], Sampling(max_new_tokens=4)))
        engine.close()
    print(f"works ({done[0].response_tokens} tokens sampled)")


def _openai() -> str:
    """Whether the client is there, and the server of the environment, if one is named."""
    try:
        from oar_bench.engines.openai import look_up
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed: python -m pip install 'oar-bench[openai]'"
    url = os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    if not url:
        return "client works; name a server with --base-url or OPENAI_BASE_URL"
    try:
        return f"works ({url} serves {look_up(url, None).name})"
    except InputError as error:
        return f"client works; {error}"


def _writable(folder: Any) -> str:
    place = folder
    while not place.exists():
        place = place.parent
    return "writable" if os.access(place, os.W_OK) else "NOT writable: set OAR_BENCH_CACHE"
