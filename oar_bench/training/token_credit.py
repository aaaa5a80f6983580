"""Credit of one response, token by token: what `oar-bench credit show` and a report's example show.

Lists have one entry for each response token; `place` of a token is its number in them, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.answers.extract import AnswerType, ExtractMode
from oar_bench.config import CreditSettings
from oar_bench.credit.assign import assign
from oar_bench.credit.probe import token_pieces
from oar_bench.engines.hf import pad_id
from oar_bench.tasks.problems import ANSWER_TYPE
from oar_bench.training.model import pad_batch
from oar_bench.training.rollout import probed_batch


def token_credit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: list[int],
    response: list[int],
    text: str,
    seed: int,
    methods: Sequence[str],
    settings: CreditSettings,
    *,
    answer_type: AnswerType = ANSWER_TYPE,
    extract: ExtractMode = "auto",
    progress: Callable[[int, str], None] = lambda done, method: None,
) -> dict[str, Any]:
    """Importance and weight of every token of one response by each method.

    Args:
        model, tokenizer: the policy whose answer is watched.
        prompt, response: token ids, never empty.
        text: the decoded response, in which the answer is looked for.
        seed: the sample's key, from which each method's own randomness is derived.
        methods: names that `oar_bench.credit.assign.assign` knows.
        settings: the recipe's credit section.
        answer_type, extract: what the grader takes for the answer, and where it looks for it.
        progress: called with the number of methods done and the one just finished.

    Returns:
        JSON-ready: `ids`, `pieces` (the text each token adds), `sections` (`reasoning`, `prefix`,
        `answer`, `rest`), `scored` (whether its weight may differ from 1), each a list of R
        entries; `found`, whether an answer was; `methods`, from name to `importance` and `weight`
        of R floats each (None where one isn't finite).
    """
    ids, attention, mask = (
        values.to(model.device) for values in pad_batch([prompt], [response], pad_id(tokenizer))
    )
    batch = probed_batch(
        tokenizer, [text], [response], (ids, attention, mask), [seed], answer_type, extract
    )  # fmt: skip
    by_method = {}
    for done, method in enumerate(methods, start=1):
        credit = assign(method, model, batch, settings, pad_id(tokenizer))
        by_method[method] = {
            "importance": _finite(credit.importance[mask]),
            "weight": _finite(credit.weights[mask]),
        }
        progress(done, method)
    return {
        "ids": response,
        "pieces": token_pieces(tokenizer, response),
        "sections": sections(
            batch.probe.reasoning[mask].tolist(), batch.probe.answer[mask].tolist()
        ),
        "scored": batch.weighted(settings)[mask].tolist(),
        "found": bool(batch.probe.found[0]),
        "methods": by_method,
    }


def sections(reasoning: Sequence[bool], answer: Sequence[bool]) -> list[str]:
    """The part of the response that each token belongs to, from the probe's two masks.

    >>> sections([True, True, False, False, False], [False, False, False, True, False])
    ['reasoning', 'reasoning', 'prefix', 'answer', 'rest']
    >>> sections([False, False], [False, False])
    ['rest', 'rest']
    """
    start = list(answer).index(True) if any(answer) else 0
    return [
        "reasoning" if reasons else "answer" if answers else "prefix" if place < start else "rest"
        for place, (reasons, answers) in enumerate(zip(reasoning, answer, strict=True))
    ]


def _finite(values: torch.Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
