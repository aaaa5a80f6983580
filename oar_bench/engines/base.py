"""What every engine takes and gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from oar_bench.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How responses are sampled; temperature 0 is greedy decoding."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(
                f"{self.temperature} is no temperature", "temperature", "use 0 or more"
            )
        if not 0 < self.top_p <= 1:
            raise InputError(f"{self.top_p} is no top-p", "top_p", "use above 0 and at most 1")

    def settings(self) -> dict[str, Any]:
        """JSON-ready values, as they enter the sampling fingerprint."""
        return {**asdict(self), "stop": list(self.stop)}


@dataclass(frozen=True)
class Request:
    """One response to be made: sample number `sample` of problem `problem`, under its own seed."""

    problem: str
    sample: int
    prompt: str
    seed: int


@dataclass(frozen=True)
class Completion:
    """One response: its text without stop sequence or special tokens, and what it cost.

    `finish_reason` is `stop` (end of sequence or stop sequence) or `length` (token limit).
    `response_tokens` counts the sampled tokens, the end of sequence included; `token_ids` are
    these tokens, where the engine shows them.
    """

    request: Request
    response: str
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    response_tokens: int
    token_ids: tuple[int, ...] = ()


class Engine(Protocol):
    """A model that answers requests, in any order, as completions become ready."""

    name: str
    """What samples it: `hf`, `vllm` or `openai`; one evaluation folder holds one engine's rows."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Completion]:
        """Completions of the requests; each (problem, sample) exactly once."""
        ...


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop sequence.

    >>> cut_at_stop("4 + 4 = 8 Question: next", ["Question:", "= 9"])
    '4 + 4 = 8 '
    """
    places = [place for word in stop if word and (place := text.find(word)) >= 0]
    return text[: min(places)] if places else text


def check_samples(samples: int, temperature: float) -> None:
    """Refuse several samples a problem under greedy decoding: they would all be the same."""
    if samples > 1 and temperature == 0:
        raise InputError(
            f"{samples} samples at temperature 0 would be {samples} equal responses",
            "--samples",
            "use --samples 1 or a temperature above 0",
        )
