"""The module that the update runs: in one process, copied to several (DDP), or sharded (FSDP2).

Gradients of several processes are averaged, so the update scales each process's share of the loss
by their number. Under FSDP2 the module is a second one, in shards; everything but the update runs
on the plain model, which gets the new weights after each optimizer step. So rollouts and credit
may take as many forward passes as they like, and no hook stands in their way.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from oar_bench.errors import InputError
from oar_bench.training.logprobs import LogprobModel, TokenLogprobs


class Trainee:
    """The plain case: the module itself, whose gradients are the whole batch's."""

    def __init__(self, scorer: LogprobModel) -> None:
        self.plain = scorer
        self.module: nn.Module = scorer
        self.model: PreTrainedModel = scorer.model
        """The model whose parameters are trained."""

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, response_mask: torch.Tensor
    ) -> TokenLogprobs:
        """Log-probabilities with their graph; see `LogprobModel`."""
        scored: TokenLogprobs = self.module(input_ids, attention_mask, response_mask)
        return scored

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of a micro-batch; the last one's gradients are shared."""
        return nullcontext()

    def whole(self, value: torch.Tensor) -> torch.Tensor:
        """All of a tensor that this process may hold a part of; every process must ask."""
        return value

    def placed(self, value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """A whole tensor as `like` is held: on its device, or its shard."""
        return value.to(like.device)

    def take(self) -> None:
        """Begin from the weights of the plain model."""

    def give(self) -> None:
        """Put the trained weights into the plain model."""


class Replicated(Trainee):
    """DDP: every process holds the whole module, the plain one."""

    def __init__(self, scorer: LogprobModel) -> None:
        super().__init__(scorer)
        device = scorer.model.device
        ids = [device.index] if device.type == "cuda" else None
        self.module: Any = DistributedDataParallel(scorer, device_ids=ids)

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """See `Trainee`."""
        held: AbstractContextManager[None] = nullcontext() if last else self.module.no_sync()
        return held


class Sharded(Trainee):
    """FSDP2: every process holds a part of each parameter, its gradient and its optimizer state.

    Each class of layers that transformers won't split is gathered and dropped as one;
    FSDP_TRANSFORMER_CLS_TO_WRAP names others. Gradients are summed in float32.
    """

    def __init__(self, scorer: LogprobModel, count: int) -> None:
        super().__init__(scorer)
        sharded: Any = copy.deepcopy(scorer)
        mesh = init_device_mesh(scorer.model.device.type, (count,))
        asked = os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower()
        settings: dict[str, Any] = {
            "mesh": mesh, "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32)
        }  # fmt: skip
        for layer in layers_of(sharded.model):
            fully_shard(layer, reshard_after_forward=asked != "false", **settings)
        # What is left (embeddings, last norm, head) stays whole from forward to backward, since
        # logits made in parts go through the head again and again.
        fully_shard(sharded, reshard_after_forward=False, **settings)
        self.module, self.model = sharded, sharded.model

    @contextmanager
    def accumulating(self, *, last: bool) -> Iterator[None]:
        """See `Trainee`."""
        assert isinstance(self.module, FSDPModule)
        self.module.set_requires_gradient_sync(last)
        self.module.set_is_last_backward(last)
        yield

    def whole(self, value: torch.Tensor) -> torch.Tensor:
        """See `Trainee`."""
        return value.full_tensor() if isinstance(value, DTensor) else value

    def placed(self, value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """See `Trainee`."""
        if not isinstance(like, DTensor):
            return super().placed(value, like)
        there = value.detach().to(like.to_local().device)
        # No source rank: each process has the whole and cuts out its own part.
        return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)

    @torch.no_grad()
    def take(self) -> None:
        """See `Trainee`."""
        plain = dict(self.plain.model.named_parameters())
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(self.placed(plain[name], parameter))

    @torch.no_grad()
    def give(self) -> None:
        """See `Trainee`."""
        plain = dict(self.plain.model.named_parameters())
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                plain[name].copy_(self.whole(parameter))


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a model that FSDP2 gathers one at a time.

    Raises:
        InputError: it has none of the classes named.
    """
    named = os.environ.get("FSDP_TRANSFORMER_CLS_TO_WRAP", "")
    classes = {name.strip() for name in named.split(",") if name.strip()}
    own: Any = getattr(model, "_no_split_modules", None)
    wanted = classes or set(own or ())
    found = [module for module in model.modules() if type(module).__name__ in wanted]
    if not found:
        raise InputError(
            f"the model has no layer of class {', '.join(sorted(wanted)) or '(none named)'}",
            "FSDP_TRANSFORMER_CLS_TO_WRAP", "name the class of its layers with "
            "accelerate launch --fsdp_transformer_layer_cls_to_wrap",
        )  # fmt: skip
    return found
