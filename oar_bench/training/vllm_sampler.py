"""Rollouts by vLLM, in processes that the run starts, with the trainer's weights at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.config import RolloutSettings
from oar_bench.engines.base import Sampling
from oar_bench.engines.heads import WiderHeads, head_size
from oar_bench.engines.hf import Sampled
from oar_bench.engines.vllm import VLLMEngine, head_sizes
from oar_bench.engines.weights import WeightsFolder, base_of, exchange_of, weights_dtype
from oar_bench.errors import InputError
from oar_bench.training.samplers import nothing


class VLLMSampler:
    """Samples with an engine of vLLM that lives beside the trainer.

    Before each rollout the weights go through a file in shared memory (`WeightsFolder`), vLLM
    reads them in place and drops what it had computed with the old ones. The log-probabilities of
    the sampled tokens come from vLLM's own distribution, temperature and top-p included.
    """

    name = "vllm"

    def __init__(self, engine: VLLMEngine, folder: WeightsFolder, *, sleep: bool = False) -> None:
        """Use an engine that was started on the folder.

        Args:
            sleep: have the engine give its memory back from the end of a rollout to the next sync.
        """
        self.engine, self.folder, self.sleep = engine, folder, sleep
        if sleep:
            engine.sleep()
        self.asleep = sleep
        self.between: Callable[[], None] = nothing

    @classmethod
    def start(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: RolloutSettings,
        load: Callable[..., VLLMEngine] = VLLMEngine.load,
    ) -> VLLMSampler:
        """Start vLLM with the model's weights.

        Raises:
            InputError: no vLLM here, a model that it can't serve, or `sleep` without a GPU.
        """
        if settings.sleep and not torch.cuda.is_available():
            raise InputError(
                "vLLM sleeps on a GPU only", "rollout.sleep", "leave it out on this machine"
            )
        sizes = head_sizes()
        heads = WiderHeads(head_size(base_of(model).config), sizes) if sizes else None
        folder = WeightsFolder(
            model, tokenizer, weights_dtype(settings.dtype), exchange_of(settings.exchange),
            heads if heads and heads.needed else None,
        )  # fmt: skip
        options: dict[str, Any] = {"logprobs_mode": "processed_logprobs"}
        if torch.cuda.is_available():
            options |= {
                "gpu_memory_utilization": settings.gpu_memory,
                "enable_sleep_mode": settings.sleep,
            }
        try:
            engine = load(folder.path, settings.batch_size, **{**options, **settings.engine_args})
            return cls(engine, folder, sleep=settings.sleep)
        except BaseException:
            folder.close()
            raise

    def sync(self, model: PreTrainedModel, step: int) -> None:
        """See `Sampler`; an engine that sleeps is woken, since its weights are gone."""
        if self.asleep:
            self.engine.wake("weights")
        self.folder.write(model)
        self.engine.reload()
        if self.asleep:
            self.engine.wake("kv_cache")
            self.asleep = False

    def sample(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling
    ) -> Sampled:
        """See `Sampler`."""
        drawn = self.engine.draw(prompts, seeds, sampling, logprobs=True, between=self.between)
        found = dict(drawn)
        outputs = [found[i] for i in range(len(prompts))]
        if self.sleep:
            self.engine.sleep()
            self.asleep = True
        return Sampled(
            [list(prompt) for prompt in prompts],
            [list(output.token_ids) for output in outputs],
            [output.finish_reason == "stop" for output in outputs],
            [
                [place[token].logprob for place, token in zip(o.logprobs, o.token_ids, strict=True)]
                for o in outputs
            ],
        )

    def metrics(self) -> dict[str, Any]:
        """`weights_age`, in steps: 0, since a step without newest weights is no step."""
        return {"weights_age": 0, "stale": False}

    def close(self) -> None:
        """End vLLM's processes and free the shared memory."""
        self.engine.close()
        self.folder.close()
