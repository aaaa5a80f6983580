"""Batches for the credit tests, with reasoning and answer marked by hand."""

from __future__ import annotations

import torch

from oar_bench.credit.assign import CreditBatch
from oar_bench.credit.probe import TokenSpans, build_probe
from oar_bench.training.model import pad_batch

PROMPTS = ["3 + 4 =", "5 * 2 , 1 - 7 =", "9 - 9 =", "2 + 2 ="]
RESPONSES = [
    "so 3 + 4 = 7 ; #### 7",
    "5 * 2 = 0 ; well 1 - 7 = 4 ; #### 0 4",
    "hmm nothing to see",
    "2 + 2 = 4 ; #### 4 then 1",
]
# By hand: reasoning ends where "####" stands, the answer is what follows on it.
SPANS = [TokenSpans(7, 8, 9), TokenSpans(13, 14, 16), None, TokenSpans(6, 7, 8)]


def batch_of(tokenizer, side: str = "left", order: tuple[int, ...] = (0, 1, 2, 3)) -> CreditBatch:
    encode = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    ids, attention, response = pad_batch(
        [encode(PROMPTS[i]) for i in order],
        [[*encode(RESPONSES[i]), tokenizer.eos_token_id] for i in order],
        tokenizer.pad_token_id,
        side=side,
    )
    return CreditBatch(
        ids, attention, response, build_probe(response, [SPANS[i] for i in order]),
        torch.tensor([100 + i for i in order]),
    )  # fmt: skip


def own(values: torch.Tensor, batch: CreditBatch, row: int) -> torch.Tensor:
    """A row's values on its response tokens."""
    return values[row][batch.response_mask[row]]
