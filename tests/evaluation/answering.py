"""An engine that answers by a function of (problem, sample)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from oar_bench.engines.base import Completion, Request, Sampling


class Answering:
    name = "hf"

    def __init__(self, answer: Callable[[str, int], str]) -> None:
        self.answer = answer

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Completion]:
        for request in requests:
            text = self.answer(request.problem, request.sample)
            yield Completion(request, text, "stop", 5, len(text))
