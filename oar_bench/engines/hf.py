"""The engine on Hugging Face transformers: `generate` with keyed sampling.

The random part of a token is Gumbel noise keyed by (the sample's seed, the token's number), added
to the logits before an argmax (design.md, decision 4). So the text of a sample depends neither on
which others share its batch, nor on order, nor on resuming.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TopPLogitsWarper,
)
from transformers.utils import logging as transformers_logging

from oar_bench.engines.base import Completion, Request, Sampling
from oar_bench.engines.tokens import (
    check_checkpoint,
    check_length,
    encode_all,
    end_ids,
    load_tokenizer,
    response_text,
)
from oar_bench.errors import InputError
from oar_bench.keyed import GumbelStreams

# transformers draws bars of its own for loading and saving; ours show the progress that matters.
transformers_logging.disable_progress_bar()


class KeyedGumbel(LogitsProcessor):
    """Logits -> logits / temperature, cut to top-p, plus keyed Gumbel noise: argmax samples."""

    def __init__(self, seeds: torch.Tensor, prompt_length: int, sampling: Sampling) -> None:
        self.seeds, self.prompt_length, self.temperature = (
            seeds,
            prompt_length,
            sampling.temperature,
        )
        self.top_p = TopPLogitsWarper(sampling.top_p) if sampling.top_p < 1 else None
        self._noise: GumbelStreams | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Scores (B, V) of the next token -> noisy float64 scores (B, V)."""
        logits: Any = scores.double() / self.temperature
        if self.top_p is not None:
            logits = self.top_p(input_ids, logits)
        step = input_ids.shape[1] - self.prompt_length
        if self._noise is None:
            self._noise = GumbelStreams(self.seeds, scores.shape[1])
        noisy: Any = logits + self._noise.of(step)
        return noisy  # type: ignore[no-any-return]


class StopStrings(StoppingCriteria):
    """Stops a row when one of the stop sequences stands in its freshly sampled text.

    `lengths` holds how many tokens a row had when its stop sequence was complete, or None: what
    follows is padding, which the ids alone don't tell where pad and end of sequence are one token.
    """

    # Tokens looked back at: a stop sequence ends within this many tokens of its start.
    LOOK_BACK = 16

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], prompt_length: int, rows: int
    ) -> None:
        self.tokenizer, self.stop, self.prompt_length = tokenizer, stop, prompt_length
        self.lengths: list[int | None] = [None] * rows

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **_: Any
    ) -> torch.BoolTensor:
        """(B,) bool: rows that are done."""
        start = max(self.prompt_length, input_ids.shape[1] - self.LOOK_BACK)
        going = [row for row, length in enumerate(self.lengths) if length is None]
        tails = self.tokenizer.batch_decode(input_ids[going, start:])
        for row, tail in zip(going, tails, strict=True):
            if any(word in tail for word in self.stop):
                self.lengths[row] = input_ids.shape[1] - self.prompt_length
        done = [length is not None for length in self.lengths]
        return torch.tensor(done, device=input_ids.device)  # type: ignore[return-value]


@dataclass(frozen=True)
class Sampled:
    """Responses of one batch, as ids: the ones that were sampled, end of sequence included."""

    prompts: list[list[int]]
    responses: list[list[int]]
    finished: list[bool]
    """False where the token limit cut the response."""
    logprobs: list[list[float]] | None = None
    """Of each sampled token under the sampler's distribution, where it isn't the trainer's own."""


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The padding id; where a tokenizer has none, its end of sequence, which masks allow."""
    pad = tokenizer.pad_token_id
    chosen = pad if pad is not None else tokenizer.eos_token_id
    if chosen is None:
        raise InputError("the tokenizer has neither a pad nor an eos token", "checkpoint")
    return int(chosen)


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every id that ends a response: the tokenizer's and those of the generation config."""
    return end_ids(getattr(model.generation_config, "eos_token_id", None), tokenizer)


def context_limit(model: PreTrainedModel) -> int | None:
    """Longest sequence the model's positions allow, or None when its config doesn't say."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


def check_context(longest_prompt: int, sampling: Sampling, model: PreTrainedModel) -> None:
    """Refuse prompts and responses that don't fit the model's context together."""
    check_length(longest_prompt, sampling, context_limit(model))


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[list[int]],
    seeds: Sequence[int],
    sampling: Sampling,
    *,
    full_length: bool = False,
) -> Sampled:
    """Sample one response to each of B prompts of token ids, under B seeds.

    The model is used as it is (mode and weights); its parameters are not touched. With
    `full_length` no response ends before the token limit.
    """
    device = model.device
    longest = max(map(len, prompts))
    pad = pad_id(tokenizer)
    ids = torch.full((len(prompts), longest), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    ends = eos_ids(model, tokenizer)
    processors, criteria = LogitsProcessorList(), StoppingCriteriaList()
    if sampling.temperature > 0:
        keys = torch.tensor(seeds, dtype=torch.int64, device=device)
        processors.append(KeyedGumbel(keys, longest, sampling))
    stops = StopStrings(tokenizer, sampling.stop, longest, len(prompts))
    if sampling.stop:
        criteria.append(stops)
    # Every sampling knob is set, so that no default of the checkpoint's own slips in.
    config = GenerationConfig(
        do_sample=False, num_beams=1, repetition_penalty=1.0, no_repeat_ngram_size=0,
        max_new_tokens=sampling.max_new_tokens, eos_token_id=ends, pad_token_id=pad, use_cache=True,
        min_new_tokens=sampling.max_new_tokens if full_length else None,
    )  # fmt: skip
    output = model.generate(  # type: ignore[operator]
        input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=config,
        logits_processor=processors, stopping_criteria=criteria,
    )  # fmt: skip
    responses, finished = [], []
    for row, length in zip(output[:, longest:].tolist(), stops.lengths, strict=True):
        response, done = _own_tokens(row[:length], ends)
        responses.append(response)
        finished.append(done or length is not None)
    return Sampled(list(prompts), responses, finished)


def _own_tokens(row: list[int], ends: list[int]) -> tuple[list[int], bool]:
    """A row of `generate`'s output without the padding after its end; whether it ended itself."""
    for place, token in enumerate(row):
        if token in ends:
            return row[: place + 1], True
    return row, False


class HFEngine:
    """Generates with a transformers model, in batches sorted by prompt length."""

    name = "hf"

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int = 256
    ) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size

    @classmethod
    def load(cls, path: str | Path, batch_size: int = 256, device: str | None = None) -> HFEngine:
        """Load a checkpoint's folder; InputError when it isn't one, or the device isn't there."""
        model, tokenizer = load_model(path)
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            model = model.to(chosen)  # type: ignore[arg-type]
        except (RuntimeError, AssertionError) as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(f"the device can't be used ({line})", f"device {chosen}") from error
        return cls(model, tokenizer, batch_size)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Completion]:
        """Completions batch by batch, longest prompts first (so that memory shows at once)."""
        if not requests:
            return
        encoded = encode_all(self.tokenizer, (request.prompt for request in requests))
        prompts = [encoded[request.prompt] for request in requests]
        check_context(max(map(len, prompts)), sampling, self.model)
        order = sorted(range(len(requests)), key=lambda i: -len(prompts[i]))
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            drawn = sample(
                self.model, self.tokenizer, [prompts[i] for i in batch],
                [requests[i].seed for i in batch], sampling,
            )  # fmt: skip
            for i, response, finished in zip(batch, drawn.responses, drawn.finished, strict=True):
                yield Completion(
                    request=requests[i],
                    response=response_text(self.tokenizer, response, sampling.stop),
                    finish_reason="stop" if finished else "length",
                    prompt_tokens=len(prompts[i]),
                    response_tokens=len(response),
                    token_ids=tuple(response),
                )


def load_model(
    path: str | Path, dtype: str = "auto", attention: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (evaluation mode) and tokenizer of a local checkpoint folder.

    Only safetensors weights are read and no code of the checkpoint is run.

    Args:
        path: the folder.
        dtype: of the weights: `float32`, `bfloat16`, or `auto` for the saved one.
        attention: an implementation of transformers' (`sdpa`, `eager`, ...), or its default.

    Raises:
        InputError: the folder is absent, holds no checkpoint, or its files are broken.
    """
    folder = check_checkpoint(path)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=dtype,
            attn_implementation=attention,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError, ImportError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(f"the checkpoint can't be read ({line})", str(path)) from error
    return model.eval(), load_tokenizer(folder)


def empty_model(config: PreTrainedConfig) -> PreTrainedModel:
    """A model of a configuration without memory for its weights: to count them.

    Raises:
        InputError: there is no causal language model of that kind.
    """
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    except (ValueError, ImportError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(f"no model can be made of it ({line})", "config.json") from error
    return model
