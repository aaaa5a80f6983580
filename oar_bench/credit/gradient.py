"""OAR-G: OAR-P's importance guessed from one input gradient (method.md, section 2).

    e = input embeddings;  J = KL(p_clean || p(e + noise));  I_t = | <dJ/de_t, e_t> |

Only the gradient with respect to the embeddings is asked for, so no parameter's gradient is
computed, written or wiped. Noise is keyed by row and by the token's number among the scored
tokens: neither batch, padding nor chunk changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oar_bench.credit.answer import answer_logits, divergence, longest, padded_index
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
    chunk_size: int = 64,
) -> torch.Tensor:
    """Importance of each marked token by the noisy input-gradient proxy.

    Args:
        model: any causal LM of transformers that takes `inputs_embeds`; its parameters' `.grad`
            stay exactly as they are.
        input_ids, attention_mask, positions, answer: (B, S), as for `perturbation_importance`.
        seeds: (B,) int64, the key of each row's noise.
        sigma: standard deviation of the noise on the embeddings; with `sigma_scale="relative"` in
            units of the embedding table's root mean square.
        noise_draws: |.| is averaged over so many draws.
        pfinal: see `oar_bench.credit.answer.divergence`.
        chunk_size: sequences in one pass.

    Returns:
        (B, S) float32, >= 0, 0 outside `positions` and in rows without an answer.
    """
    importance = torch.zeros(input_ids.shape, dtype=torch.float32, device=input_ids.device)
    table = model.get_input_embeddings()
    scale = sigma * (_rms(table.weight) if sigma_scale == "relative" else 1.0)  # type: ignore[arg-type]
    answered = torch.nonzero(answer.any(1)).flatten()
    # `split` of nothing is one empty chunk, not none.
    for rows in answered.split(chunk_size) if len(answered) else ():
        ids, mask, marked = input_ids[rows], attention_mask[rows], positions[rows]
        index, real = padded_index(answer[rows])
        answer_ids = ids.gather(1, index)
        with torch.no_grad():
            embeddings = table(ids)
            clean = answer_logits(model, mask, index, inputs_embeds=embeddings)
        for draw in range(noise_draws):
            noise = keyed_noise(marked, embeddings.shape[2], seeds[rows], draw)
            leaf = (embeddings + scale * noise.to(embeddings.dtype)).requires_grad_(True)
            with torch.enable_grad():
                moved = answer_logits(model, mask, index, inputs_embeds=leaf)
                total = divergence(pfinal, clean, moved, answer_ids, real).sum()
                (slope,) = torch.autograd.grad(total, leaf)
            saliency = (slope.float() * embeddings.float()).sum(-1).abs()
            importance[rows] += saliency * marked / noise_draws
    return importance


def _rms(weight: torch.Tensor) -> float:
    return float(weight.detach().float().square().mean().sqrt())
