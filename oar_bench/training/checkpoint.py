"""Checkpoints: model in Hugging Face layout plus the trainer's state, whole or not there at all.

A checkpoint is written into a temporary folder, synced, given a manifest of sizes and SHA-256,
and renamed. A kill or a full disk leaves the temporary folder, which the next start removes. The
state is safetensors and JSON: nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.errors import InputError
from oar_bench.records import sync_folder, write_json

MANIFEST = "manifest.json"
TRAINER_TENSORS = "trainer_state.safetensors"
TRAINER_NUMBERS = "trainer_state.json"
KEPT = 2  # newest checkpoints of a run that stay on disk


def save_checkpoint(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    state: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint to `folder` (which must not exist) by way of a temporary neighbour.

    Args:
        folder: for example RUN/checkpoints/step-000010.
        optimizer: its state is saved by parameter name, so that it loads into a new one.
        state: JSON-ready numbers of the trainer: the step, and what else it needs to go on.
    """
    temporary = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        model.save_pretrained(temporary, safe_serialization=True)
        tokenizer.save_pretrained(temporary)
        if optimizer is not None:
            tensors = {"rng": torch.get_rng_state()}
            names = {id(p): name for name, p in model.named_parameters()}
            for parameter, values in optimizer.state.items():
                for key, value in values.items():
                    tensors[f"{names[id(parameter)]}/{key}"] = torch.as_tensor(value).contiguous()
            save_file(tensors, str(temporary / TRAINER_TENSORS))
        (temporary / TRAINER_NUMBERS).write_text(json.dumps(state or {}, indent=2) + "\n")
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        manifest = {str(path.relative_to(temporary)): _sealed(path) for path in files}
        write_json(temporary / MANIFEST, {"files": manifest})
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        # safetensors reports a full disk as an error of its own, with the number in its text.
        number = re.search(r"\(os error (\d+)\)", str(error))
        if isinstance(error, SafetensorError) and number:
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(folder)) from error
        raise


def _sealed(path: Path) -> dict[str, Any]:
    """Size and digest of a file whose content is forced to disk first."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint's files are all there with the content that was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())["files"]
        files = [
            (str(name), sealed["bytes"], sealed["sha256"]) for name, sealed in manifest.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    for name, size, digest in files:
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            return False
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return False
    return True


def steps_of(folder: Path) -> list[Path]:
    """Checkpoint folders of a run, oldest first, whole or not."""
    return sorted(folder.glob("step-[0-9]*"))


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in `folder`, or None; broken ones are passed over."""
    for candidate in reversed(steps_of(folder)):
        if is_whole(candidate):
            return candidate
    return None


def tidy(folder: Path) -> None:
    """Remove temporary folders that a kill left, and all but the newest checkpoints."""
    for left in folder.glob(".tmp-*"):
        shutil.rmtree(left)
    for old in steps_of(folder)[:-KEPT]:
        shutil.rmtree(old)


def load_state(
    folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Load the trainer's state of a checkpoint into `optimizer` and torch's generator.

    Returns:
        The numbers given to `save_checkpoint` as `state`.
    """
    try:
        tensors = load_file(str(folder / TRAINER_TENSORS))
        numbers: dict[str, Any] = json.loads((folder / TRAINER_NUMBERS).read_text())
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"the trainer's state can't be read ({error})", str(folder)) from error
    torch.set_rng_state(tensors.pop("rng"))
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, part = key.rpartition("/")
        parameter = parameters[name]
        optimizer.state[parameter][part] = value.to(parameter.device) if value.dim() else value
    return numbers
