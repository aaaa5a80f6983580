"""The policy: the model being trained, what it began as, and the optimizer that moves it.

Precision: weights in float32 are updated as they are. Weights in bfloat16 are updated through
float32 copies, since steps of RL's size would be lost in their rounding; forward passes, rollouts
and checkpoints use the bfloat16 weights.

LoRA: the adapters alone are trained. A checkpoint holds the merged weights, so that every engine
loads it as any other model, and beside them the adapters, from which training goes on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from oar_bench.config import LoraSettings, Recipe
from oar_bench.engines.hf import load_model, pad_id
from oar_bench.engines.weights import merged
from oar_bench.errors import InputError, not_installed
from oar_bench.training.checkpoint import (
    fill_optimizer,
    load_state,
    optimizer_tensors,
    save_checkpoint,
)
from oar_bench.training.logprobs import LogprobModel
from oar_bench.training.processes import ALONE, Processes

ADAPTER = "oar"
MASTER, TRAINED = "master", "trained"
"""Keys of the trainer's tensors beside the optimizer's own."""


class Policy:
    """The model, its frozen start, and AdamW over what is trained."""

    def __init__(
        self, recipe: Recipe, start: Path, device: str, processes: Processes = ALONE
    ) -> None:
        """Load `start` with the recipe's precision, adapters and optimizer.

        Every one of several processes has the whole model; what is trained lies as the trainee
        has it.

        Raises:
            InputError: the checkpoint can't be read, or peft is missing.
        """
        settings, train = recipe.model, recipe.train
        self.processes = processes
        model, self.tokenizer = load_model(start, settings.dtype, settings.attention)
        self.model: PreTrainedModel = model.to(device)  # type: ignore[arg-type]
        self.pad_id = pad_id(self.tokenizer)
        without_dropout(self.model)
        self.adapted = settings.lora is not None
        # With adapters the start is the model without them: no second copy.
        self.start = copy.deepcopy(self.model) if train.scores_start and not self.adapted else None
        if settings.lora is not None:
            add_adapters(self.model, settings.lora)
        if settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.checkpointing = settings.gradient_checkpointing
        self.scorer = LogprobModel(self.model, train.temperature, train.logits_mib)
        self._start_scorer = LogprobModel(
            self.start if self.start is not None else self.model,
            train.temperature, train.logits_mib,
        )  # fmt: skip
        self.trainee = processes.wrap(self.scorer)
        parameters = self.trainee.model.named_parameters()
        self.trained = {name: p for name, p in parameters if p.requires_grad}
        self.masters: dict[str, torch.Tensor] = {
            name: p if p.dtype == torch.float32 else nn.Parameter(p.detach().float())
            for name, p in self.trained.items()
        }
        self.optimizer = torch.optim.AdamW(
            self.masters.values(), lr=train.lr, weight_decay=train.weight_decay
        )
        self.max_grad_norm = train.max_grad_norm

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return self.model.device

    @contextmanager
    def start_scorer(self) -> Iterator[LogprobModel]:
        """The weights that the run began from, as a function to log-probabilities."""
        if not self.adapted:
            yield self._start_scorer
            return
        self.model.disable_adapters()
        try:
            yield self._start_scorer
        finally:
            self.model.enable_adapters()

    @contextmanager
    def updating(self) -> Iterator[None]:
        """The mode in which gradients are taken: checkpointing works in training mode alone."""
        if not self.checkpointing:
            yield
            return
        self.trainee.model.train()
        try:
            with _config_without_dropout(self.trainee.model):
                yield
        finally:
            self.trainee.model.eval()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self.trained.values():
            parameter.grad = None

    def apply(self, rate: float) -> tuple[float, bool]:
        """Clip the gradients and do one optimizer step with learning rate `rate`.

        Returns:
            The norm before clipping, and whether the step was done: where the norm isn't finite,
            neither weights nor optimizer are touched.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        clipped = nn.utils.clip_grad_norm_(self.trained.values(), self.max_grad_norm)
        norm = float(self.trainee.whole(clipped))
        if not math.isfinite(norm):
            self.zero_grad()
            return norm, False
        for name, parameter in self.trained.items():
            master = self.masters[name]
            if master is not parameter and parameter.grad is not None:
                master.grad = parameter.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for name, parameter in self.trained.items():
                if self.masters[name] is not parameter:
                    parameter.copy_(self.masters[name])
                    self.masters[name].grad = None
        self.trainee.give()
        return norm, True

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        """Write a checkpoint: weights for every engine, and what training needs to go on.

        It is the same whatever the number of processes: tensors by name, whole. Each process must
        call this; the first one writes.
        """
        tensors = optimizer_tensors(self.optimizer, self.masters)
        for name, master in self.masters.items():
            if master is not self.trained[name]:
                tensors[f"{name}/{MASTER}"] = master.detach()
        if self.adapted:
            tensors |= {f"{n}/{TRAINED}": p.detach() for n, p in self.trained.items()}
        for name in list(tensors):
            whole = self.trainee.whole(tensors.pop(name))
            if self.processes.is_first:
                tensors[name] = whole.cpu()
        if self.processes.is_first:
            save_checkpoint(
                folder, self.model, self.tokenizer, trainer=tensors, state=state,
                weights=merged_weights(self.model) if self.adapted else None,
            )  # fmt: skip

    def restore(self, folder: Path) -> dict[str, Any]:
        """Take weights and optimizer from a checkpoint of this run; its numbers."""
        tensors, numbers = load_state(folder)
        if not self.adapted:
            saved = load_model(folder, str(self.model.dtype).removeprefix("torch."))[0]
            self.model.load_state_dict(saved.state_dict())
            self.trainee.take()
        placed = self.trainee.placed
        extra = {k: tensors.pop(k) for k in list(tensors) if k.endswith((MASTER, TRAINED))}
        with torch.no_grad():
            for key, value in extra.items():
                name, _, kind = key.rpartition("/")
                place = (self.masters if kind == MASTER else self.trained)[name]
                place.copy_(placed(value, place))
        fill_optimizer(self.optimizer, self.masters, tensors, placed)
        self.processes.gather(None)  # all have read it: what follows is said to each other
        self.trainee.give()
        return numbers


def without_dropout(model: PreTrainedModel) -> None:
    """Switch off every dropout: the ratio of new to old probability must be 1 before the update."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in _rates(module):
            setattr(module, name, 0.0)


def _rates(holder: object) -> dict[str, float]:
    """Rates of what is random in training, under the many names that models have for them."""
    return {
        name: value
        for name, value in vars(holder).items()
        if isinstance(value, float) and ("drop" in name or "jitter" in name)
    }


@contextmanager
def _config_without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside, models that read a rate off their configuration at each pass read 0 (Falcon, GPT-J);
    afterwards it is what a checkpoint is to say again."""
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    kept = [(config, _rates(config)) for config in configs.values()]
    try:
        for config, rates in kept:
            vars(config).update(dict.fromkeys(rates, 0.0))
        yield
    finally:
        for config, rates in kept:
            vars(config).update(rates)


def add_adapters(model: PreTrainedModel, settings: LoraSettings) -> None:
    """Freeze a model and give it low-rank adapters; at first they change no output.

    Raises:
        InputError: peft isn't installed, or no layer has such a name.
    """
    try:
        from peft import LoraConfig
    except ModuleNotFoundError as error:
        raise not_installed(error, "model.lora", "lora") from error
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, target_modules=settings.targets,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    try:
        model.add_adapter(config, adapter_name=ADAPTER)
    except ValueError as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(f"no adapter can be made ({line})", "model.lora.targets") from error


@torch.no_grad()
def merged_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A model's weights by the names of its plain form, adapters added in.

    Without adapters it is the state dict. See `oar_bench.engines.weights.merged`.
    """
    layers = {n: m for n, m in model.named_modules() if hasattr(m, "get_delta_weight")}
    found: dict[str, torch.Tensor] = {}
    for key, value in model.state_dict().items():
        if ".lora_" in key:
            continue
        layer, _, rest = key.partition(".base_layer.")
        plain = f"{layer}.{rest}" if rest else key
        if rest == "weight" and layer in layers:
            value = merged(value, layers[layer])
        found[plain] = value
    return found
