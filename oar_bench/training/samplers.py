"""Who samples the rollouts: the model being trained, or an engine that gets its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.config import Recipe, TrainSettings
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled, check_context, sample
from oar_bench.engines.weights import base_of
from oar_bench.errors import InputError, not_installed
from oar_bench.training.processes import ALONE, Processes

FOREIGN = 0.5
"""Mean gap in nats that equal weights don't have at temperature 1: bfloat16 against float32 makes
some 0.01."""


def nothing() -> None:
    """What is done between two computations, unless `heed` says more."""


class Sampler(Protocol):
    """Samples responses with the newest weights it was given."""

    name: str
    between: Callable[[], None]
    """Called again and again within a rollout; what it raises ends the rollout."""

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
        self.between = nothing  # the model's own passes say more

    def sync(self, model: PreTrainedModel, step: int) -> None:
        """Keep the model; its weights are the newest."""
        self.model = model

    def sample(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling
    ) -> Sampled:
        """See `Sampler`; at most `batch_size` rows at once, which changes memory and no token."""
        if not prompts:
            return Sampled([], [], [])
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


class ForAll:
    """A sampler that the first of several processes has, and that samples for all of them.

    So an engine beside the trainer, or a server, is started, given weights and asked once. Every
    process must call `sample` at the same time, without prompts if it has none.
    """

    def __init__(self, processes: Processes, make: Callable[[], Sampler]) -> None:
        self.processes = processes
        self.own = make() if processes.is_first else None
        self.name = "for all"
        self.between = nothing  # none of several processes can break off by itself

    def sync(self, model: PreTrainedModel, step: int) -> None:
        """See `Sampler`."""
        if self.own is not None:
            self.own.sync(model, step)

    def sample(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling
    ) -> Sampled:
        """See `Sampler`; the first process asks for all, each takes what it asked for."""
        asked = self.processes.gather((list(prompts), list(seeds)))

        def ask() -> Sampled:
            assert self.own is not None
            rows = [row for theirs, _ in asked for row in theirs]
            return self.own.sample(rows, [seed for _, theirs in asked for seed in theirs], sampling)

        found = self.processes.by_first(ask)
        begin = sum(len(rows) for rows, _ in asked[: self.processes.rank])
        mine = slice(begin, begin + len(prompts))
        known = found.logprobs
        return Sampled(
            found.prompts[mine], found.responses[mine], found.finished[mine],
            None if known is None else known[mine],
        )  # fmt: skip

    def metrics(self) -> dict[str, Any]:
        """See `Sampler`."""
        return {} if self.own is None else self.own.metrics()

    def close(self) -> None:
        """See `Sampler`."""
        if self.own is not None:
            self.own.close()


@contextmanager
def heed(between: Callable[[], None], model: PreTrainedModel, sampler: Sampler) -> Iterator[None]:
    """Inside, have `between` called before each forward pass of a model, so before each token that
    it samples, and again and again while another engine samples."""
    # Every pass begins there, also where adapters or a loss pass the model's own call by.
    embedding = base_of(model).get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda *_: between())
    sampler.between = between
    try:
        yield
    finally:  # the model would keep alive what `between` knows, and that the model
        hook.remove()
        sampler.between = nothing


def check_gap(gap: float | None, weights: Mapping[str, Any], train: TrainSettings) -> None:
    """Refuse a sampler that is given the trainer's weights and yet samples from another model.

    Args:
        gap: mean |log pi_trainer - log pi_sampler| of a step, in nats; None: there is none.
        weights: what the sampler's `metrics` says of its weights.
        train: its temperature, which divides logits and so their rounding, and its top-p, which
            raises the sampler's log-probabilities by up to -log(top_p).

    Raises:
        InputError: the gap of equal weights is beyond what their precision explains.

    >>> check_gap(3e-7, {"weights_age": 0}, TrainSettings())
    >>> check_gap(2.0, {"weights_age": 3}, TrainSettings())  # old weights explain it
    >>> check_gap(2.0, {"weights_age": 0}, TrainSettings(temperature=0.1))
    >>> try:
    ...     check_gap(2.0, {"weights_age": 0}, TrainSettings())
    ... except InputError as error:
    ...     error.message
    'the sampler of this run has another model: their log-probabilities lie 2.00 nats apart'
    """
    explained = FOREIGN / min(train.temperature, 1) - math.log(train.top_p)
    # A gap that is no number is the trainer's own fault, which its update counts.
    if gap is None or weights.get("weights_age") != 0 or not gap > explained:
        return
    raise InputError(
        f"the sampler of this run has another model: their log-probabilities lie {gap:.2f} nats "
        "apart", "rollout.engine",
        "have a server serve the checkpoint that the run begins from, then go on with --resume",
    )  # fmt: skip


def sampler_of(
    recipe: Recipe,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    processes: Processes = ALONE,
) -> Sampler:
    """The sampler that a recipe's section `rollout` names, with the model's present weights.

    In several processes each samples with its own model, while vLLM and a server sample for all.

    Raises:
        InputError: vLLM isn't installed or can't serve this model, or the server can't be used.
    """
    if recipe.rollout.engine == "hf":
        return HFSampler(model, tokenizer, recipe.rollout.batch_size)
    if processes.count > 1:
        return ForAll(processes, lambda: _engine_of(recipe, model, tokenizer))
    return _engine_of(recipe, model, tokenizer)


def _engine_of(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Sampler:
    """vLLM beside the trainer, or a server."""
    settings = recipe.rollout
    if settings.engine == "vllm":
        from oar_bench.training.vllm_sampler import VLLMSampler

        return VLLMSampler.start(model, tokenizer, settings)
    try:
        from oar_bench.training.server_sampler import ServerSampler
    except ModuleNotFoundError as error:
        raise not_installed(error, "rollout.engine server", "openai") from error

    return ServerSampler.connect(model, tokenizer, settings, recipe.train)
