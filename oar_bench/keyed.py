"""Randomness by key instead of by stream: the same key gives the same draw, whatever ran before.

Every random choice of the suite (which problems, which tokens, which noise) is a function of a
key such as (run seed, task, problem, sample), never of a generator's position. So a draw depends
neither on the composition of a batch, nor on order, nor on whether the run was resumed.

`uniform`, `gumbel` and `normal` are counter-based: SplitMix64 (Steele, Lea and Flood, 2014) over
(seed, stream, index), in int64 tensors, with the same integers on every device.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

GAMMA = 0x9E3779B97F4A7C15  # odd integer nearest 2^64 / golden ratio: SplitMix64's increment


def derive(*key: object) -> int:
    """A seed in [0, 2^63) from the parts of a key.

    >>> derive(0, "oar_arithmetic", "arithmetic-7", 1) == derive(0, "oar_arithmetic",
    ...                                                          "arithmetic-7", 1)
    True
    >>> derive(0, "a", 1) != derive(0, "a", 2)
    True
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _mix(z: torch.Tensor) -> torch.Tensor:
    """SplitMix64's output function on int64 tensors of any shape (wrapping multiplication)."""
    # `>>` on int64 copies the sign bit down; the masks make the shifts logical.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def uniform(seeds: torch.Tensor, stream: int, count: int) -> torch.Tensor:
    """Uniform draws strictly inside (0, 1).

    Args:
        seeds: (B,) int64, one key a row (see `derive`).
        stream: which block of draws of that key, for example the token's number in a response.
        count: N, how many draws a row.

    Returns:
        (B, N) float64 on the device of `seeds`; row b depends on seeds[b], stream and N's index
        alone.

    >>> import torch
    >>> one = uniform(torch.tensor([5, 9]), stream=3, count=4)
    >>> two = uniform(torch.tensor([9, 1, 5]), stream=3, count=4)
    >>> bool((one[0] == two[2]).all()), bool((one[1] == two[0]).all())
    (True, True)
    """
    import torch

    keys = _mix(seeds + _signed(GAMMA * (stream + 1)))
    index = torch.arange(1, count + 1, dtype=torch.int64, device=seeds.device)
    bits = _mix(keys[:, None] + index[None, :] * _signed(GAMMA))
    # 52 bits and a half: with 53 the largest draw would round up to 1.
    mantissa = (bits >> 12) & ((1 << 52) - 1)
    return (mantissa.double() + 0.5) * 2.0**-52


def gumbel(seeds: torch.Tensor, stream: int, count: int) -> torch.Tensor:
    """Standard Gumbel draws, (B, N) float64: argmax(logits + gumbel) samples softmax(logits).

    Source: the Gumbel-max trick (Gumbel 1954; Maddison et al. 2014).
    """
    import torch

    return -torch.log(-torch.log(uniform(seeds, stream, count)))


class GumbelStreams:
    """`gumbel` of one stream after the other, made for several streams at once.

    For a small vocabulary the calls cost more than the numbers; a block of streams is one call.

    >>> import torch
    >>> seeds = torch.tensor([5, 9])
    >>> streams = GumbelStreams(seeds, count=4)
    >>> all(torch.equal(streams.of(i), gumbel(seeds, i, 4)) for i in (0, 1, 70, 3))
    True
    """

    BLOCK = 2**18
    """Draws that are made at once, at most."""

    def __init__(self, seeds: torch.Tensor, count: int) -> None:
        """Take (B,) int64 seeds and N, the draws of a row."""
        self.seeds, self.count = seeds, count
        self.length = max(1, self.BLOCK // max(1, len(seeds) * count))
        self._start = -1
        self._block: torch.Tensor | None = None

    def of(self, stream: int) -> torch.Tensor:
        """The draws (B, N) of a stream."""
        import torch

        if self.length == 1:
            return gumbel(self.seeds, stream, self.count)
        start = stream - stream % self.length
        if self._block is None or start != self._start:
            # A row for each (stream, seed), whose key `uniform` makes of their sum.
            shifts = torch.tensor(
                [_signed(GAMMA * (start + i)) for i in range(self.length)],
                dtype=torch.int64, device=self.seeds.device,
            )  # fmt: skip
            rows = (shifts[:, None] + self.seeds[None, :]).flatten()
            block = gumbel(rows, 0, self.count)
            self._block = block.view(self.length, len(self.seeds), self.count)
            self._start = start
        return self._block[stream - start]


def normal(seeds: torch.Tensor, stream: int, count: int) -> torch.Tensor:
    """Standard normal draws, (B, N) float64, by Box and Muller (1958)."""
    import torch

    pairs = (count + 1) // 2
    u = uniform(seeds, stream, 2 * pairs)
    # Draws 2j and 2j+1 come from uniforms 2j and 2j+1, so a longer row begins with the shorter.
    radius = torch.sqrt(-2.0 * torch.log(u[:, 0::2]))
    angle = 2.0 * math.pi * u[:, 1::2]
    both = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=2)
    return both.flatten(1)[:, :count]
