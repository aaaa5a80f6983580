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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

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
    trainer: Mapping[str, torch.Tensor] | None = None,
    state: dict[str, Any] | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a checkpoint to `folder` (which must not exist) by way of a temporary neighbour.

    Args:
        folder: for example RUN/checkpoints/step-000010.
        trainer: tensors that the trainer needs to go on, such as `optimizer_tensors`.
        state: JSON-ready numbers of the trainer: the step, and what else it needs to go on.
        weights: the weights to save, by name, where they aren't those of `model` as it stands.
    """
    temporary = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        _save_weights(model, temporary, weights)
        tokenizer.save_pretrained(temporary)
        if trainer is not None:
            tensors = {"rng": torch.get_rng_state(), **trainer}
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


def _save_weights(
    model: PreTrainedModel, folder: Path, weights: Mapping[str, torch.Tensor] | None
) -> None:
    """Write weights and configuration in Hugging Face layout."""
    saved: Any = model
    if weights is not None:
        with torch.device("meta"):  # the model's plain form, without adapters and without memory
            saved = type(model)(model.config)
    own = model.generation_config
    # transformers refuses to save what many published models say (a temperature without sampling,
    # for one), though it loads it: it is written as it was read.
    saved.generation_config = GenerationConfig()
    try:
        state = None if weights is None else dict(weights)
        saved.save_pretrained(folder, state_dict=state, safe_serialization=True)
    finally:
        saved.generation_config = own
    if own is not None:
        own.to_json_file(folder / "generation_config.json")


def _sealed(path: Path) -> dict[str, Any]:
    """Size and digest of a file whose content is forced to disk first."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint's files are all there with the content that was written."""
    return damage(folder) is None


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint's files, in words; None when nothing is."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())["files"]
        files = [
            (str(name), sealed["bytes"], sealed["sha256"]) for name, sealed in manifest.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"its {MANIFEST} is missing or damaged"
    for name, size, digest in files:
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes of {size}"
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return f"{name} has another content than was written"
    return None


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


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """An optimizer's state as `name/key`, by the names of its parameters."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    return {
        f"{names[id(parameter)]}/{key}": torch.as_tensor(value).contiguous()
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }


def fill_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.Tensor],
    tensors: Mapping[str, torch.Tensor],
    placed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda value, like: value.to(
        like.device
    ),
) -> None:
    """Put the state given by `optimizer_tensors` into a new optimizer of the same parameters.

    `placed(value, parameter)` is a whole tensor as the parameter is held: on its device.
    """
    for key, value in tensors.items():
        name, _, part = key.rpartition("/")
        if name in parameters:
            parameter = parameters[name]
            optimizer.state[parameter][part] = placed(value, parameter) if value.dim() else value


def load_state(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The trainer's tensors and numbers of a checkpoint; torch's generator is set to its state.

    Raises:
        InputError: they are absent or broken.
    """
    try:
        tensors = load_file(str(folder / TRAINER_TENSORS))
        numbers: dict[str, Any] = json.loads((folder / TRAINER_NUMBERS).read_text())
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"the trainer's state can't be read ({error})", str(folder)) from error
    torch.set_rng_state(tensors.pop("rng"))
    return tensors, numbers
