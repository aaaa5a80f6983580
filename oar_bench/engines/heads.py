"""Attention heads made wider without changing what a model computes.

vLLM's CPU kernels have heads of 32 dimensions at least, and of some sizes only. A head of h
dimensions is one of H > h whose further dimensions are zero, if the rotation stays among the first
h (`partial_rotary_factor` h / H) and queries make up for the scale: q k / sqrt(h) is
(sqrt(H / h) q) k / sqrt(H).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from oar_bench.errors import InputError


def head_size(config: Any) -> int:
    """Dimensions of an attention head, by a model's config."""
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


class WiderHeads:
    """Rewrites weights and config of a model whose heads have `before` dimensions to `after`.

    Args:
        before: dimensions of a head.
        sizes: those that are to be had; the least that is large enough is taken.

    Raises:
        InputError: none is large enough.

    >>> WiderHeads(24, [32, 64]).after
    32
    >>> WiderHeads(64, [32, 64]).needed
    False
    """

    def __init__(self, before: int, sizes: Sequence[int]) -> None:
        wide = [size for size in sorted(sizes) if size >= before]
        if not wide:
            raise InputError(f"vLLM has no attention heads of {before} here", "rollout.engine")
        self.before, self.after = before, wide[0]

    @property
    def needed(self) -> bool:
        """Whether anything changes."""
        return self.after != self.before

    def weight(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A weight of the wider model.

        Args:
            name: as in the model's state: only `q_proj`, `k_proj`, `v_proj` (heads x h rows) and
                `o_proj` (heads x h columns) change.
        """
        part = name.split(".")[-2:]
        extra = self.after - self.before
        if part[0] in ("q_proj", "k_proj", "v_proj"):
            heads = value.unflatten(0, (-1, self.before))
            shape = (heads.shape[0], extra, *heads.shape[2:])
            wide = torch.cat([heads, heads.new_zeros(shape)], 1).flatten(0, 1)
            return wide * math.sqrt(self.after / self.before) if part[0] == "q_proj" else wide
        if part == ["o_proj", "weight"]:
            heads = value.unflatten(1, (-1, self.before))
            return torch.cat([heads, heads.new_zeros(*heads.shape[:2], extra)], 2).flatten(1, 2)
        if part[0] in ("q_norm", "k_norm"):
            raise InputError(
                f"vLLM has no normalised attention heads of {self.before} here", "rollout.engine",
                "use rollout.engine: hf",
            )  # fmt: skip
        return value

    def config(self, config: Any) -> None:
        """Set a config (in place) to the wider heads."""
        config.head_dim = self.after
        rope = dict(config.rope_parameters)
        rope["partial_rotary_factor"] = self.before / self.after
        config.rope_parameters = rope
