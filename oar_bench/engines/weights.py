"""Weights on their way from a model being trained to an engine that samples with it.

They travel in a safetensors file in shared memory that is laid out once and then rewritten in
place, tensor by tensor: no checkpoint on disk, no second copy of the model in the trainer, no
pickle. Beside it lie the model's config and tokenizer, so that an engine can be started on the
folder like on any checkpoint, and already has the trainer's weights when it is up.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.engines.heads import WiderHeads
from oar_bench.errors import InputError

SHARED = Path("/dev/shm")
PREFIX = "oar-bench-weights-"
FILE = "model.safetensors"
# Names of the format for the dtypes that weights are trained in.
FORMAT = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
ALIGNMENT = 64
# What wrappers put into the names of parameters: torch.compile, gradient checkpointing.
WRAPPERS = re.compile(r"_orig_mod\.|_checkpoint_wrapped_module\.")


def weights_dtype(name: str) -> torch.dtype | None:
    """The dtype that a recipe names; None for `model`.

    >>> weights_dtype("bfloat16"), weights_dtype("model")
    (torch.bfloat16, None)
    """
    return None if name == "model" else getattr(torch, name)


def exchange_of(folder: str | None) -> Path | None:
    """The folder that a recipe names for the exchange; InputError when there is none."""
    if folder is None:
        return None
    if not Path(folder).is_dir():
        raise InputError("no such folder", folder, "set rollout.exchange to one that is there")
    return Path(folder)


def named_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of each weight of the model that samples, each once, adapters merged.

    Tied weights appear under their first name only. The model isn't touched: merging LoRA into the
    base and taking it out again would change the base by rounding, so the sum W + s B A of an
    adapted weight is made here, in float32, and given out in the base's dtype. Sharded parameters
    (DTensor) are gathered, which every process must do in step.

    Raises:
        InputError: an adapter that isn't a plain weight difference (DoRA, say).
    """
    base = base_of(model)
    adapted = {name: m for name, m in base.named_modules() if hasattr(m, "get_delta_weight")}
    for name, parameter in base.named_parameters():
        if ".experts." in name:
            raise InputError(
                "mixtures of experts can't be handed to vLLM", f"weight {name}",
                "use rollout.engine: hf",
            )  # fmt: skip
        owner = next((n for n in adapted if name.startswith(f"{n}.")), None)
        if owner is not None and not name.startswith(f"{owner}.base_layer."):
            continue  # a piece of an adapter: it is in the merged weight
        if ".original_module." in name:
            continue  # a copy is trained in its stead
        value = _whole(parameter.detach())
        if owner is not None and name == f"{owner}.base_layer.weight":
            value = merged(value, adapted[owner])
        name = re.sub(r"\.modules_to_save\.[^.]+\.", ".", name).replace(".base_layer.", ".")
        yield WRAPPERS.sub("", name), value


def base_of(model: Any) -> Any:
    """The model below its adapters, if it has any."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _whole(value: torch.Tensor) -> torch.Tensor:
    gather = getattr(value, "full_tensor", None)
    return gather() if callable(gather) else value


def merged(value: torch.Tensor, layer: Any) -> torch.Tensor:
    """W + sum of the active adapters' differences: added in float32, given in W's dtype.

    Raises:
        InputError: an adapter that isn't a plain weight difference (DoRA, say).
    """
    if any(getattr(layer, "lora_variant", None) or ()):
        kind = ", ".join(type(v).__name__ for v in layer.lora_variant.values())
        raise InputError(
            f"an adapter of this kind can't be merged ({kind})", "model.lora", "use plain LoRA",
        )  # fmt: skip
    total = value.float()
    for adapter in layer.active_adapters:
        if adapter in layer.scaling:
            total = total + _whole(layer.get_delta_weight(adapter).detach()).float()
    return total.to(value.dtype)


class WeightsFolder:
    """A checkpoint's folder in shared memory whose weights are rewritten in place.

    It is removed by `close`. Should its owner be killed, the next one of the same user and machine
    removes it: an owner holds a file lock, which the kernel lets go when it dies.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        dtype: torch.dtype | None = None,
        parent: Path | None = None,
        heads: WiderHeads | None = None,
    ) -> None:
        """Lay the folder out and write the model's weights.

        Args:
            dtype: of the weights in the folder; None for the model's own.
            parent: where the folder is made; default is shared memory, or the folder for temporary
                files where that is too small.
            heads: how attention heads change on the way; None where they stay as they are.

        Raises:
            InputError: no room there, or weights that can't be handed over.
        """
        self._heads = heads
        self._views: dict[str, torch.Tensor] = {}
        layout = {
            name: (value.dtype if dtype is None else dtype, tuple(value.shape))
            for name, value in self._weights(model)
        }
        head, size, places = _header(layout)
        self.path = _make_folder(parent, len(head) + size)
        self._lock = _hold(self.path)
        try:
            _reserve(self.path / FILE, head, size)
            mapped = torch.from_file(
                str(self.path / FILE), shared=True, size=len(head) + size, dtype=torch.uint8
            )
            self._views = {
                name: mapped[len(head) + start : len(head) + end].view(kind).view(shape)
                for name, (start, end, kind, shape) in places.items()
            }
            base = base_of(model)
            config = copy.deepcopy(base.config)
            config.architectures = [type(base).__name__.removeprefix("FSDP")]
            config.dtype = dtype or next(iter(layout.values()))[0]
            if heads is not None:
                heads.config(config)
            config.save_pretrained(self.path)
            if getattr(base, "generation_config", None) is not None:
                # Only its ends matter; sampling defaults are never used.
                ends = base.generation_config.eos_token_id
                (self.path / "generation_config.json").write_text(
                    json.dumps({"eos_token_id": ends}), "utf-8"
                )
            tokenizer.save_pretrained(self.path)
            self.write(model)
        except BaseException:
            self.close()
            raise

    def _weights(self, model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in named_weights(model):
            yield name, value if self._heads is None else self._heads.weight(name, value)

    @torch.no_grad()
    def write(self, model: PreTrainedModel) -> None:
        """Take over the model's weights, converted to the folder's dtype.

        Raises:
            InputError: the model has other weights than the one that the folder was made for.
        """
        missing = dict(self._views)
        for name, value in self._weights(model):
            place = missing.pop(name, None)
            if place is None or place.shape != value.shape:
                raise InputError(f"a weight of another model ({name})", str(self.path))
            place.copy_(value)
        if missing:
            raise InputError(f"the model has lost a weight ({next(iter(missing))})", str(self.path))

    def close(self) -> None:
        """Remove the folder."""
        self._views = {}
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _header(
    layout: dict[str, tuple[torch.dtype, tuple[int, ...]]],
) -> tuple[bytes, int, dict[str, tuple[int, int, torch.dtype, tuple[int, ...]]]]:
    """The head of a safetensors file, the bytes that follow it, and each tensor's place in them.

    Wider dtypes come first, so that every tensor is aligned without a gap.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    places: dict[str, tuple[int, int, torch.dtype, tuple[int, ...]]] = {}
    end = 0
    for name, (kind, shape) in sorted(layout.items(), key=lambda item: -item[1][0].itemsize):
        if kind not in FORMAT:
            raise InputError(f"weights of {kind} can't be handed to vLLM ({name})", "rollout")
        start, end = end, end + torch.Size(shape).numel() * kind.itemsize
        places[name] = (start, end, kind, shape)
        entries[name] = {"dtype": FORMAT[kind], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, end, places


def _make_folder(parent: Path | None, size: int) -> Path:
    """A new folder of our own where `size` bytes have room."""
    if parent is None:
        places = [SHARED] if SHARED.is_dir() else []
        places.append(Path(tempfile.gettempdir()))
    else:
        places = [parent]
    for place in places:
        _sweep(place)
        try:
            if shutil.disk_usage(place).free > size:
                return Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        except OSError as error:
            raise InputError(
                f"weights can't be handed over there ({error.strerror})", str(place),
                "set rollout.exchange to a folder that can be written",
            ) from error  # fmt: skip
    raise InputError(
        f"no room for weights of {size / 2**20:,.0f} MiB", " or ".join(map(str, places)),
        "make shared memory larger (docker run --shm-size), or set rollout.exchange to a folder",
    )  # fmt: skip


def _hold(folder: Path) -> IO[bytes]:
    """The folder's lock, held for as long as this process lives."""
    lock = (folder / "lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _sweep(place: Path) -> None:
    """Remove the folders whose owners died before they could."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            with (folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # alive, another user's, or just being made


def _reserve(path: Path, head: bytes, size: int) -> None:
    """Write the head and claim the room for all that follows.

    Without the claim a full file system would end the process by a signal while it writes.
    """
    with path.open("wb") as file:
        file.write(head)
        file.flush()
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, len(head) + size)
            else:
                file.truncate(len(head) + size)
        except OSError as error:
            raise InputError(
                f"no room for weights of {size / 2**20:,.0f} MiB ({error.strerror})", str(path),
                "make shared memory larger, or set rollout.exchange to a folder",
            ) from error  # fmt: skip
