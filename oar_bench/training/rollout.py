"""Rollouts: groups of sampled responses with rewards, and everything a step needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from oar_bench.answers import Grade, Grader, extract_answer
from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.config import TrainSettings
from oar_bench.credit.assign import CreditBatch
from oar_bench.credit.probe import TokenSpans, build_probe, locate, token_pieces
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled, pad_id
from oar_bench.engines.tokens import encode_all, response_text
from oar_bench.keyed import derive
from oar_bench.records import SCHEMA
from oar_bench.tasks.problems import ANSWER_TYPE, Problem
from oar_bench.training.model import pad_batch
from oar_bench.training.samplers import Sampler


@dataclass(frozen=True)
class Rollout:
    """B = problems x group_size responses, group by group.

    The ids trained on are the ids sampled; masks come from lengths, never from ids.
    """

    problems: list[Problem]
    """(B,), each problem group_size times"""
    prompts: list[list[int]]
    responses: list[list[int]]
    texts: list[str]
    seeds: list[int]
    finished: list[bool]
    input_ids: torch.Tensor
    """(B, S) int64"""
    attention_mask: torch.Tensor
    """(B, S) int64"""
    response_mask: torch.Tensor
    """(B, S) bool"""
    drawn_logprobs: list[list[float]] | None = None
    """Of each response's tokens by their sampler; None where trainer and sampler are one model."""
    places: list[int] | None = None
    """(B,), each response's number in the step's whole rollout, where this is one process's share;
    None: this is the whole."""

    @property
    def numbers(self) -> list[int]:
        """(B,) each response's number in the step's whole rollout."""
        return list(range(len(self.problems))) if self.places is None else self.places

    @property
    def sampler_logprobs(self) -> torch.Tensor | None:
        """`drawn_logprobs` as (B, S) float32, 0 outside the response."""
        if self.drawn_logprobs is None:
            return None
        placed = torch.zeros(self.response_mask.shape, device=self.response_mask.device)
        flat = [value for row in self.drawn_logprobs for value in row]
        placed[self.response_mask] = torch.tensor(flat, device=placed.device)
        return placed

    @property
    def response_tokens(self) -> int:
        """Sampled tokens of the whole batch."""
        return sum(map(len, self.responses))


def roll_out(
    sampler: Sampler,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    settings: TrainSettings,
    seed: int,
    step: int,
    device: torch.device,
    groups: Sequence[int] | None = None,
) -> Rollout:
    """Sample a group of responses to each problem, each response under its own key.

    The key holds the run's seed, the step, the problem and the number in the group, but neither
    the method nor the process: methods with equal weights sample equal responses.

    Args:
        groups: the number of each problem's group in the step, where `problems` are a part of it.
    """
    asked = [problem for problem in problems for _ in range(settings.group_size)]
    keys = [
        derive("rollout", seed, step, problem.id, i)
        for problem in problems
        for i in range(settings.group_size)
    ]
    encoded = encode_all(tokenizer, (problem.prompt for problem in problems))
    sampling = Sampling(settings.temperature, settings.top_p, settings.max_new_tokens)
    drawn = sampler.sample([encoded[problem.prompt] for problem in asked], keys, sampling)
    places = None if groups is None else rows_of(groups, settings.group_size)
    return gather(tokenizer, asked, keys, drawn, device, places)


def rows_of(groups: Sequence[int], size: int) -> list[int]:
    """The numbers of the rows of groups of `size` rows each.

    >>> rows_of([0, 2], 2)
    [0, 1, 4, 5]
    """
    return [group * size + i for group in groups for i in range(size)]


def gather(
    tokenizer: PreTrainedTokenizerBase,
    asked: list[Problem],
    keys: list[int],
    drawn: Sampled,
    device: torch.device,
    places: list[int] | None = None,
) -> Rollout:
    """The rollout of responses sampled under `keys` (B,) to the problems `asked` (B,)."""
    padded = pad_batch(drawn.prompts, drawn.responses, pad_id(tokenizer))
    ids, attention, response = (values.to(device) for values in padded)
    return Rollout(
        problems=asked, prompts=drawn.prompts, responses=drawn.responses,
        texts=[response_text(tokenizer, ids) for ids in drawn.responses],
        seeds=keys, finished=drawn.finished, input_ids=ids, attention_mask=attention,
        response_mask=response, drawn_logprobs=drawn.logprobs, places=places,
    )  # fmt: skip


def part_of(rollout: Rollout, rows: Sequence[int]) -> Rollout:
    """Some rows of a rollout, padding included."""
    if list(rows) == list(range(len(rollout.problems))):
        return rollout
    drawn = rollout.drawn_logprobs
    return Rollout(
        problems=[rollout.problems[i] for i in rows], prompts=[rollout.prompts[i] for i in rows],
        responses=[rollout.responses[i] for i in rows], texts=[rollout.texts[i] for i in rows],
        seeds=[rollout.seeds[i] for i in rows], finished=[rollout.finished[i] for i in rows],
        input_ids=rollout.input_ids[rows], attention_mask=rollout.attention_mask[rows],
        response_mask=rollout.response_mask[rows],
        drawn_logprobs=None if drawn is None else [drawn[i] for i in rows],
        places=[rollout.numbers[i] for i in rows],
    )  # fmt: skip


def joined(tokenizer: PreTrainedTokenizerBase, parts: Sequence[Rollout]) -> Rollout:
    """The rows of several rollouts in one."""
    parts = [part for part in parts if part.problems] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    known = all(part.drawn_logprobs is not None for part in parts)
    drawn = Sampled(
        [row for part in parts for row in part.prompts],
        [row for part in parts for row in part.responses],
        [row for part in parts for row in part.finished],
        [row for part in parts for row in part.drawn_logprobs or []] if known else None,
    )
    asked = [problem for part in parts for problem in part.problems]
    keys = [seed for part in parts for seed in part.seeds]
    places = None
    if all(part.places is not None for part in parts):
        places = [place for part in parts for place in part.places or ()]
    return gather(tokenizer, asked, keys, drawn, parts[0].input_ids.device, places)


def grade_rollout(rollout: Rollout, grader: Grader) -> list[Grade]:
    """The verdict on each response, (B,)."""
    return [
        grader.grade(text, problem.answer, truncated=not finished, tolerance=problem.tolerance)
        for text, problem, finished in zip(
            rollout.texts, rollout.problems, rollout.finished, strict=True
        )
    ]


def answer_spans(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    responses: Sequence[Sequence[int]],
    answer_type: AnswerType = ANSWER_TYPE,
    extract: ExtractMode = "auto",
) -> list[TokenSpans | None]:
    """Where each response reasons and answers, in tokens: the answer is the grader's own find."""
    return [
        _answer_span(tokenizer, text, ids, answer_type, extract)
        for text, ids in zip(texts, responses, strict=True)
    ]


def _answer_span(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    ids: Sequence[int],
    answer_type: AnswerType,
    extract: ExtractMode,
) -> TokenSpans | None:
    found = extract_answer(text, answer_type=answer_type, extract=extract)
    pieces = token_pieces(tokenizer, ids) if found else []
    # Places in the text are places in the tokens only where both are the same text.
    if found is None or "".join(pieces) != text:
        return None
    return locate(pieces, found.mark_start, found.start, found.end)


def probed_batch(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    responses: Sequence[Sequence[int]],
    padded: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    seeds: Sequence[int],
    answer_type: AnswerType = ANSWER_TYPE,
    extract: ExtractMode = "auto",
) -> CreditBatch:
    """The tensors that credit assignment needs of B responses, whoever sampled them.

    Args:
        texts, responses: (B,) each response as text and as the ids that were sampled.
        padded: input_ids (B, S) int64, attention_mask (B, S), response_mask (B, S) bool, as
            `pad_batch` makes them.
        seeds: (B,) the key of each response; its randomness in credit is derived from it.
        answer_type, extract: what counts as an answer in the text, and where it is looked for.
    """
    ids, attention, mask = padded
    spans = answer_spans(tokenizer, texts, responses, answer_type, extract)
    keys = [derive("credit", seed) for seed in seeds]
    return CreditBatch(
        input_ids=ids, attention_mask=attention, response_mask=mask,
        probe=build_probe(mask, spans), seeds=torch.tensor(keys, device=ids.device),
    )  # fmt: skip


def credit_batch(
    rollout: Rollout,
    tokenizer: PreTrainedTokenizerBase,
    answer_type: AnswerType = ANSWER_TYPE,
    extract: ExtractMode = "auto",
) -> CreditBatch:
    """The tensors that credit assignment needs of a rollout."""
    padded = rollout.input_ids, rollout.attention_mask, rollout.response_mask
    return probed_batch(
        tokenizer, rollout.texts, rollout.responses, padded, rollout.seeds, answer_type, extract
    )


def rollout_rows(
    rollout: Rollout,
    grades: Sequence[Grade],
    advantages: torch.Tensor,
    used: Sequence[bool],
    step: int,
) -> list[dict[str, Any]]:
    """The rows of rollouts.jsonl: each response with its ids, verdict, reward and advantage.

    They are all that `oar_bench.training.replay` needs to do the step again without a sampler.
    """
    first: dict[str, int] = {}  # the row at which a problem's group begins
    for i, problem in enumerate(rollout.problems):
        first.setdefault(problem.id, i)
    drawn = rollout.drawn_logprobs
    return [
        {
            "schema": SCHEMA,
            "step": step,
            "problem": rollout.problems[i].id,
            "sample": i - first[rollout.problems[i].id],
            "prompt": rollout.problems[i].prompt,
            "response": rollout.texts[i],
            "response_ids": rollout.responses[i],
            "response_tokens": len(rollout.responses[i]),
            "finish_reason": "stop" if rollout.finished[i] else "length",
            "seed": rollout.seeds[i],
            "gold": rollout.problems[i].answer,
            "extracted": grade.extracted,
            "status": grade.status,
            "reward": float(grade.correct),
            "advantage": float(advantages[i]),
            "used": used[i],
            **({} if drawn is None else {"sampler_logprobs": drawn[i]}),
            **_tolerance(rollout.problems[i]),
        }
        for i, grade in enumerate(grades)
    ]


def _tolerance(problem: Problem) -> dict[str, float]:
    """A gold's own tolerance as a field of its rows, where it has one."""
    return {} if problem.tolerance is None else {"tolerance": problem.tolerance}
