"""OAR-G and other scores by gradients of the input embeddings (method.md, section 2).

    e = input embeddings of the reasoning;  J = KL(p_clean || p(e + noise))
    oar-g    I_t = | <dJ/de_t, e_t> |
    oar-g0   I_t = | <d logp(answer)/de_t, e_t> |                       no noise
    oar-gp   I_t = | <d logp(answer)/de_t, e_pad - e_t> |               first order of OAR-P
    oar-gf   I_t = 1/2 sum_a sum_v p_v <d logp_v/de_t, e_pad - e_t>^2   second order of OAR-P's KL

Only embeddings carry a gradient: the weights enter as constants, so that nothing is computed for
them and no `.grad` is written or wiped. They enter in float32, since in bfloat16 the saliencies of
a difference of two close distributions are mostly rounding. What precedes the first scored token
is the clean prefix; its keys and values are computed once, without a graph.

Noise is keyed by row and by the token's number among the scored tokens: neither batch, padding nor
the memory budget changes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call
from torch.nn.functional import log_softmax, pad

from oar_bench.credit.aligned import (
    Aligned,
    Layers,
    aligned_chunks,
    at,
    forward,
    has_plain_cache,
    prefix,
)
from oar_bench.credit.answer import divergence, longest
from oar_bench.credit.memory import DEFAULT_MEMORY
from oar_bench.keyed import normal

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def keyed_noise(
    positions: torch.Tensor, width: int, seeds: torch.Tensor, draw: int
) -> torch.Tensor:
    """Standard normal noise (B, S, width) on the marked positions, zero elsewhere, float32."""
    most = longest(positions)
    # Stream 0 belongs to the controls: noise and permutation of a response are independent.
    values = normal(seeds, draw + 1, most * width).view(len(seeds), most, width).float()
    number = (positions.long().cumsum(1) - 1).clamp(min=0)
    spread = values.gather(1, number[:, :, None].expand(-1, -1, width))
    return spread * positions[:, :, None]


class _Constant:
    """A model's function at its present weights, in float32, with no gradient to them."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.config = model, model.config
        self.weights = {name: p.detach().float() for name, p in model.named_parameters()}
        self.forward = model.forward  # has_plain_cache reads its signature

    def __call__(self, **inputs: Any) -> Any:
        return functional_call(self.model, self.weights, (), inputs)


class _Slopes:
    """Logits of a chunk of rows as a function of the embeddings from column `begin` on."""

    def __init__(self, model: PreTrainedModel, constant: _Constant, rows: Aligned) -> None:
        self.constant, self.rows = constant, rows
        self.begin = 0
        if has_plain_cache(constant, model.config):
            first_scored = int(torch.nonzero(rows.scored.any(0))[0])
            self.begin = min(first_scored, int(rows.index.min()))
        table = model.get_input_embeddings()
        with torch.no_grad():
            # Detached: gradient checkpointing hooks the table so that its output asks for slopes.
            self.embeddings = table(rows.ids[:, self.begin :]).detach().float()
        self.scored = rows.scored[:, self.begin :]
        self.past: Layers = []
        if self.begin:
            with torch.no_grad():
                _, self.past = forward(constant, rows, until=self.begin, cached=True)

    def logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Float32 logits (B, A, V) that predict the answer."""
        rows, begin = self.rows, self.begin
        everyone = torch.arange(len(rows.ids), device=rows.ids.device)
        past = prefix(self.past, everyone, begin)
        output: Any = self.constant(
            inputs_embeds=embeddings, attention_mask=rows.mask,
            position_ids=rows.where[:, begin:], past_key_values=past,
            use_cache=past is not None, logits_to_keep=rows.wanted - begin,
        )  # fmt: skip
        return at(output.logits, rows.wanted, rows.index)

    def leaf(self, noise: torch.Tensor | float = 0.0) -> torch.Tensor:
        """The embeddings (B, n, H), moved by the noise, as the variable of a gradient."""
        moved: torch.Tensor = self.embeddings + noise
        return moved.requires_grad_(True)

    def importance(self, values: torch.Tensor) -> torch.Tensor:
        """Values (B, n) of the columns from `begin` on all W of them."""
        everywhere: torch.Tensor = pad(values, (self.begin, 0))
        return everywhere * self.rows.scored


def gradient_importance(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    seeds: torch.Tensor,
    *,
    sigma: float = 1e-3,
    sigma_scale: str = "absolute",
    noise_draws: int = 1,
    pfinal: str = "answer_mean",
    memory: int = DEFAULT_MEMORY,
) -> torch.Tensor:
    """OAR-G: importance of each marked token by the noisy input-gradient proxy.

    Args:
        model: any causal LM of transformers that takes `inputs_embeds`, in any precision; its
            parameters and their `.grad` stay exactly as they are.
        input_ids, attention_mask, positions, answer: (B, S), as for `perturbation_importance`.
        seeds: (B,) int64, the key of each row's noise.
        sigma: standard deviation of the noise on the embeddings; with `sigma_scale="relative"` in
            units of the embedding table's root mean square.
        noise_draws: |.| is averaged over so many draws.
        pfinal: see `oar_bench.credit.answer.divergence`.
        memory: bytes that one pass may take over the model's own (and its float32 copy's).

    Returns:
        (B, S) float32, >= 0, 0 outside `positions` and in rows without an answer.
    """
    table: Any = model.get_input_embeddings()
    scale = sigma * (_rms(table.weight) if sigma_scale == "relative" else 1.0)
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    sequences = (input_ids, attention_mask, positions, answer)
    for chosen, slopes in _chunks(model, *sequences, memory=memory):
        rows = slopes.rows
        with torch.no_grad():
            clean = slopes.logits(slopes.embeddings)
        total = torch.zeros(slopes.scored.shape, device=input_ids.device)
        for draw in range(noise_draws):
            noise = keyed_noise(slopes.scored, slopes.embeddings.shape[2], seeds[chosen], draw)
            leaf = slopes.leaf(scale * noise)
            with torch.enable_grad():
                moved = slopes.logits(leaf)
                j = divergence(pfinal, clean, moved, rows.answer_ids, rows.real).sum()
                (slope,) = torch.autograd.grad(j, leaf)
            total += (slope * slopes.embeddings).sum(-1).abs() / noise_draws
        importance[chosen] = rows.spread(slopes.importance(total), importance[chosen].shape)
    return importance


def answer_gradient_importance(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    *,
    replacement: int | None = None,
    top_k: int | None = None,
    memory: int = DEFAULT_MEMORY,
) -> torch.Tensor:
    """The scores without noise: `oar-g0`, `oar-gp` and `oar-gf`.

    Args:
        model, input_ids, attention_mask, positions, answer, memory: as for `gradient_importance`.
        replacement: None for `oar-g0` (the slope along the token's own embedding); else the id
            whose embedding the slope points to: attribution patching.
        top_k: None for the slope of the answer's log-probability; else `oar-gf`: the expected
            square of the slope over the `top_k` likeliest tokens at each answer position.

    Returns:
        (B, S) float32, >= 0, 0 outside `positions` and in rows without an answer.
    """
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    sequences = (input_ids, attention_mask, positions, answer)
    table: Any = model.get_input_embeddings()
    for chosen, slopes in _chunks(model, *sequences, memory=memory):
        rows, step = slopes.rows, slopes.embeddings
        if replacement is not None:
            with torch.no_grad():
                other = torch.tensor(replacement, device=input_ids.device)
                step = table(other).detach().float() - slopes.embeddings
        leaf = slopes.leaf()
        with torch.enable_grad():
            logp = log_softmax(slopes.logits(leaf), -1)
            if top_k is None:
                own = logp.gather(2, rows.answer_ids[:, :, None])[:, :, 0]
                (slope,) = torch.autograd.grad((own * rows.real).sum(), leaf)
                found = (slope * step).sum(-1).abs()
            else:
                found = _fisher(logp, leaf, step, rows.real, top_k)
        importance[chosen] = rows.spread(slopes.importance(found), importance[chosen].shape)
    return importance


def _fisher(
    logp: torch.Tensor, leaf: torch.Tensor, step: torch.Tensor, real: torch.Tensor, top_k: int
) -> torch.Tensor:
    """1/2 sum_a sum_v p_v <d logp_v/de_t, step_t>^2 over the top k tokens, (B, n)."""
    found = torch.zeros(step.shape[:2], device=step.device)
    top = logp.detach().topk(min(top_k, logp.shape[2]), dim=2)
    chosen = logp.gather(2, top.indices)
    # Rows don't touch each other: one backward pass serves the same answer place of all of them.
    for a in range(logp.shape[1]):
        for v in range(chosen.shape[2]):
            (slope,) = torch.autograd.grad(
                (chosen[:, a, v] * real[:, a]).sum(), leaf, retain_graph=True
            )
            share = top.values[:, a, v].exp() * real[:, a]
            found += 0.5 * share[:, None] * (slope * step).sum(-1).square()
    return found


def _chunks(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    positions: torch.Tensor,
    answer: torch.Tensor,
    *,
    memory: int,
) -> Iterator[tuple[torch.Tensor, _Slopes]]:
    """Chunks of rows whose graph fits the memory budget."""
    constant = _Constant(model)
    for chosen, rows in aligned_chunks(
        model, input_ids, attention_mask, positions, answer, memory=memory,
        row_bytes=lambda sizes, width, answers: sizes.graph(width, width, answers),
    ):  # fmt: skip
        if bool(rows.scored.any()):  # else every scored token follows the answer
            yield chosen, _Slopes(model, constant, rows)


def _rms(weight: torch.Tensor) -> float:
    return float(weight.detach().float().square().mean().sqrt())
