"""Who samples the rollouts: the model being trained, or an engine that gets its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.config import Recipe
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled, check_context, sample
from oar_bench.errors import InputError


class Sampler(Protocol):
    """Samples responses with the newest weights it was given."""

    name: str

    def sync(self, model: PreTrainedModel, step: int) -> None:
        """Take over the weights with which step `step` begins; called before its rollout."""
        ...

    def sample(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling
    ) -> Sampled:
        """One response to each of B prompts of token ids, under B seeds, in the order given."""
        ...

    def metrics(self) -> dict[str, Any]:
        """What a step's row of metrics.jsonl says of its rollout's weights."""
        ...

    def close(self) -> None:
        """End what the sampler started."""
        ...


class HFSampler:
    """The model being trained samples for itself: no weights to copy, no gap to correct."""

    name = "hf"

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int
    ) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size

    def sync(self, model: PreTrainedModel, step: int) -> None:
        """Keep the model; its weights are the newest."""
        self.model = model

    def sample(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling
    ) -> Sampled:
        """See `Sampler`; at most `batch_size` rows at once, which changes memory and no token."""
        check_context(max(map(len, prompts)), sampling, self.model)
        parts = [
            sample(
                self.model, self.tokenizer, prompts[at : at + self.batch_size],
                seeds[at : at + self.batch_size], sampling,
            )
            for at in range(0, len(prompts), self.batch_size)
        ]  # fmt: skip
        return Sampled(
            [row for part in parts for row in part.prompts],
            [row for part in parts for row in part.responses],
            [row for part in parts for row in part.finished],
        )

    def metrics(self) -> dict[str, Any]:
        """Nothing: the weights are always the newest."""
        return {}

    def close(self) -> None:
        """Nothing was started."""


def sampler_of(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Sampler:
    """The sampler that a recipe's section `rollout` names, with the model's present weights.

    Raises:
        InputError: vLLM isn't installed or can't serve this model, or the server can't be used.
    """
    settings = recipe.rollout
    if settings.engine == "vllm":
        from oar_bench.training.vllm_sampler import VLLMSampler

        return VLLMSampler.start(model, tokenizer, settings)
    if settings.engine == "server":
        try:
            from oar_bench.training.server_sampler import ServerSampler
        except ModuleNotFoundError as error:
            raise InputError(
                f"{error.name} is not installed", "rollout.engine server",
                "install it with `python -m pip install 'oar-bench[openai]'`",
            ) from error  # fmt: skip

        return ServerSampler.connect(model, tokenizer, settings, recipe.train)
    return HFSampler(model, tokenizer, settings.batch_size)
