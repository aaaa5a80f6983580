"""torch's FLOP counter, mended in two places (torch 2.13).

It leaves out the attention kernel of CPUs. And the hooks by which it tells modules apart fail when
a gradient is taken with respect to what enters a module, as OAR-G does; only totals are wanted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, ...]


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Scores and weighted sum of a fused attention: 2 b h q k (d + d_v), masked or not."""
    batch, heads, queries, size = query
    return 2 * batch * heads * queries * key[2] * (size + value[3])


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any
) -> int:
    """Five products: the scores again, and the gradients of scores, value, query and key."""
    batch, heads, queries, size = query
    return 2 * batch * heads * queries * key[2] * (3 * size + 2 * value[3])


class _NoModules:
    """In place of the tracker of modules: everything counts as one."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def counter() -> FlopCounterMode:
    """A silent counter of matrix products and attention, forward and backward.

    >>> with counter() as counted:
    ...     _ = torch.ones(2, 3) @ torch.ones(3, 5)
    >>> counted.get_total_flops()
    60
    """
    kernels: dict[Any, Any] = {}
    for name, formula in (("", _attention), ("_backward", _attention_backward)):
        kernel = getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention_for_cpu{name}", None)
        if kernel is not None:
            kernels[kernel] = formula
    counted: Any = FlopCounterMode(display=False, custom_mapping=kernels)
    counted.mod_tracker = _NoModules()
    return counted  # type: ignore[no-any-return]
