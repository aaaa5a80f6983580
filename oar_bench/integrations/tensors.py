"""Weights for a trainer that holds prompts and responses in two padded tensors, as most do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.answers.extract import AnswerType
from oar_bench.config import CreditSettings, check_method
from oar_bench.credit.assign import Credit, CreditBatch, assign
from oar_bench.engines.hf import pad_id
from oar_bench.engines.tokens import response_text
from oar_bench.errors import InputError, nearest
from oar_bench.training.rollout import probed_batch


@dataclass(frozen=True)
class ResponseCredit:
    """Credit of B responses in the response tensor's own columns, and what it was made from."""

    weights: torch.Tensor
    """(B, T) float32, 1 on padding"""
    importance: torch.Tensor
    """(B, T) float32, 0 on padding"""
    credit: Credit
    """the same over prompt and response, (B, P + T)"""
    batch: CreditBatch


def response_credit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: torch.Tensor,
    prompt_mask: torch.Tensor,
    response_ids: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    method: str,
    seeds: Sequence[int],
    settings: CreditSettings | None = None,
    needed: torch.Tensor | None = None,
    answer_type: AnswerType = "math",
) -> ResponseCredit:
    """Token weights of B responses by a method's name, for any trainer that has these tensors.

    Args:
        model: the policy that sampled the responses, in evaluation mode (see `evaluating`).
        tokenizer: the policy's; the response's text is decoded from its ids, never the reverse.
        prompt_ids, prompt_mask: (B, P) int64 and (B, P), 1 on real tokens; padding on any side.
        response_ids, response_mask: (B, T) int64 and (B, T), 1 on sampled tokens.
        method: a name of `oar_bench.config.METHODS`.
        seeds: (B,) a key for each response, for methods that draw (`oar-g`, the controls).
        settings: the credit section of a recipe; its defaults when absent.
        needed: (B,) bool; rows left out keep weight 1: those of zero advantage need no credit.
        answer_type: what counts as the answer of a response: math, number, choice or exact.

    Returns:
        Weights and importances (B, T) float32. On a response without a stated answer, and on
        padding, weights are 1.

    Raises:
        InputError: an unknown method or answer type, or tensors and seeds whose shapes don't fit.
    """
    check_method(method, "method")
    check_answer_type(answer_type, "answer_type")
    rows = (len(prompt_ids), len(response_ids), len(seeds))
    if prompt_ids.shape != prompt_mask.shape or response_ids.shape != response_mask.shape:
        raise InputError("a mask hasn't the shape of its ids", "response_credit")
    if len(set(rows)) > 1 or (needed is not None and needed.shape != rows[:1]):
        raise InputError(
            f"{rows[0]} prompts, {rows[1]} responses and {rows[2]} seeds don't belong together",
            "response_credit", "give one seed, and one value of `needed`, for each response",
        )  # fmt: skip
    padded = (
        torch.cat([prompt_ids, response_ids], 1),
        torch.cat([prompt_mask, response_mask], 1).long(),
        torch.cat([torch.zeros_like(prompt_mask), response_mask], 1).bool(),
    )
    responses = [
        ids[mask.bool()].tolist() for ids, mask in zip(response_ids, response_mask, strict=True)
    ]
    texts = [response_text(tokenizer, ids) for ids in responses]
    batch = probed_batch(tokenizer, texts, responses, padded, seeds, answer_type)
    credit = assign(
        method, model, batch, settings or CreditSettings(), pad_id(tokenizer),
        None if needed is None else needed.bool(),
    )  # fmt: skip
    width = prompt_ids.shape[1]
    return ResponseCredit(credit.weights[:, width:], credit.importance[:, width:], credit, batch)


def check_answer_type(kind: str, where: str) -> None:
    """Refuse what is no answer type.

    >>> check_answer_type("exact", "answer_type")
    """
    if kind not in get_args(AnswerType):
        raise InputError(
            f"unknown answer type {kind!r}", where, nearest(kind, [*get_args(AnswerType)])
        )


def weighted_advantages(advantages: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A_{i,t} = A_i w_{i,t}: advantages (B,) or (B, T) times weights (B, T), as (B, T).

    >>> weighted_advantages(torch.tensor([2.0, -1.0]), torch.tensor([[1.5, 0.5], [1, 1]])).tolist()
    [[3.0, 1.0], [-1.0, -1.0]]
    """
    return (advantages[:, None] if advantages.dim() == 1 else advantages) * weights


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """The model in evaluation mode (no dropout) inside, in the mode it had afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
