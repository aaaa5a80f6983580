"""The engine on vLLM, in this process: one request a sample, each under its own seed.

Prompts go in as token ids of our own tokenizer call, and text comes out of our own decoding, so
that neither BOS nor spaces can differ from the hf engine's. Completions are given out one by one as
they finish, while the others go on. Greedy decoding gives the hf engine's tokens (up to rounding);
at a temperature above 0 the samples follow the same distribution, but are other samples than hf's.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase

from oar_bench.engines.base import Completion, Request, Sampling
from oar_bench.engines.tokens import (
    check_checkpoint,
    check_length,
    encode_all,
    end_ids_of,
    load_config,
    load_tokenizer,
    response_text,
)
from oar_bench.engines.vllm_process import (
    COMPANION,
    alive,
    exit_on_terminate,
    installed,
    shielded,
    watch,
)
from oar_bench.errors import AGAIN, InputError

# Requests kept inside vLLM, in batches: enough that a place that falls free is filled at once.
AHEAD = 2


class VLLMEngine:
    """Generates with an engine of vLLM."""

    name = "vllm"

    def __init__(
        self, engine: Any, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int], batch_size: int
    ) -> None:
        """Use a `vllm.v1.engine.llm_engine.LLMEngine` (the `llm_engine` of a `vllm.LLM`)."""
        self.engine, self.tokenizer, self.ends = engine, tokenizer, list(ends)
        self.batch_size = batch_size
        self._numbers = itertools.count()

    @classmethod
    def load(cls, path: str | Path, batch_size: int = 256, **options: Any) -> VLLMEngine:
        """Load a checkpoint's folder.

        Args:
            path: the folder.
            batch_size: most sequences in one pass.
            options: go to `vllm.LLM` over our own, for example `tensor_parallel_size=2`.

        Raises:
            InputError: vLLM isn't installed, or it can't serve this checkpoint.
        """
        folder = check_checkpoint(path)
        LLM = installed().LLM
        tokenizer = load_tokenizer(folder)
        settings: dict[str, Any] = {
            "dtype": saved_dtype(folder),
            "max_num_seqs": batch_size,
            "max_model_len": -1,  # the checkpoint's, or as much of it as memory allows
            "generation_config": "vllm",  # no sampling default of the checkpoint slips in
            "enforce_eager": not torch.cuda.is_available(),
            # vLLM's CPU build dies of a prompt that is split over two passes under a seed
            # ("CPU Generator does not use offset").
            **({} if torch.cuda.is_available() else {"enable_chunked_prefill": False}),
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            "worker_extension_cls": COMPANION,
            **options,
        }
        exit_on_terminate()
        try:
            with shielded():
                llm = LLM(model=str(folder), **settings)
        except (RuntimeError, ValueError, TypeError, OSError, NotImplementedError) as error:
            raise InputError(
                f"vLLM can't load it ({_cause(error)})", str(path),
                "see vLLM's lines above, or use --engine hf",
            ) from error  # fmt: skip
        llm.collective_rpc("oar_settle", args=(os.getpid(),))
        watch(llm.llm_engine.engine_core)
        return cls(llm.llm_engine, tokenizer, end_ids_of(folder, tokenizer), batch_size)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Completion]:
        """Completions as they finish; samples of one problem go in together and share its prefix.

        Requests that are still inside when the caller stops listening are taken back.
        """
        encoded = encode_all(self.tokenizer, (request.prompt for request in requests))
        prompts = [encoded[request.prompt] for request in requests]
        seeds = [request.seed for request in requests]
        with closing(self.draw(prompts, seeds, sampling)) as outputs:
            for i, output in outputs:
                yield self._completion(requests[i], len(prompts[i]), output, sampling)

    def draw(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling,
        *, logprobs: bool = False, between: Callable[[], None] = lambda: None,
    ) -> Generator[tuple[int, Any]]:  # fmt: skip
        """Responses to B prompts of token ids under B seeds, as they finish.

        Args:
            logprobs: ask for each sampled token's own log-probability too.
            between: called before each pass; what it raises takes the requests back.

        Yields:
            The number of a prompt, and vLLM's `CompletionOutput` for it.

        Raises:
            InputError: a prompt that leaves no room for the response; vLLM's processes died.
        """
        limit = int(self.engine.model_config.max_model_len)
        check_length(max(map(len, prompts), default=0), sampling, limit)
        # Longest prompts first; the sort keeps samples of one problem together.
        waiting = iter(sorted(range(len(prompts)), key=lambda i: -len(prompts[i])))
        inside = dict[str, int]()
        # vLLM copies what it is given, so that one object does where no seed tells them apart.
        greedy = self._params(sampling, None, logprobs) if sampling.temperature == 0 else None
        try:
            while True:
                room = AHEAD * self.batch_size - len(inside)
                for i in itertools.islice(waiting, room):
                    number = f"oar-{next(self._numbers)}"
                    with alive():
                        self.engine.add_request(
                            number, {"prompt_token_ids": prompts[i]},
                            greedy or self._params(sampling, seeds[i], logprobs),
                        )  # fmt: skip
                    inside[number] = i
                if not inside:
                    return
                between()
                with alive():
                    outputs = self.engine.step()
                for output in outputs:
                    if output.finished and output.request_id in inside:
                        done = output.outputs[0]
                        if done.finish_reason not in ("stop", "length"):
                            raise InputError(
                                f"vLLM ended a response by {done.finish_reason!r}: its processes "
                                "were told to end", "engine vllm", AGAIN,
                            )  # fmt: skip
                        yield inside.pop(output.request_id), done
        finally:
            if inside:
                with suppress(InputError), alive():
                    self.engine.abort_request(list(inside))

    def reload(self) -> None:
        """Read the weights anew from the engine's folder, and forget what the old ones computed.

        Raises:
            InputError: vLLM's processes died, or they can't take the weights.
        """
        with alive():
            try:
                self.engine.collective_rpc("oar_reload")
            except Exception as error:
                # vLLM hands on whatever its worker ran into as a bare Exception.
                if type(error) is not Exception:
                    raise
                raise InputError(
                    f"vLLM can't take over the weights ({_cause(error)})", "engine vllm"
                ) from error
            if not self.engine.reset_prefix_cache():
                raise RuntimeError("vLLM's prefix cache couldn't be reset: it is in use")

    def sleep(self) -> None:
        """Give back the memory of weights and cache; both are lost."""
        with alive():
            self.engine.sleep(level=2)

    def wake(self, part: Literal["weights", "kv_cache"]) -> None:
        """Take the memory of one of the two again; its content is undefined."""
        with alive():
            self.engine.wake_up(tags=[part])

    def close(self) -> None:
        """End vLLM's processes; they end with this one in any case."""
        self.engine.engine_core.shutdown()

    def _params(self, sampling: Sampling, seed: int | None, logprobs: bool = False) -> Any:
        """vLLM's parameters of a sample under its seed; None in greedy decoding."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=1, seed=seed, temperature=sampling.temperature, top_p=sampling.top_p,
            max_tokens=sampling.max_new_tokens, stop=list(sampling.stop),
            stop_token_ids=self.ends, skip_special_tokens=False,
            # vLLM needs the text to find stop sequences in it, and for nothing else.
            detokenize=bool(sampling.stop), logprobs=0 if logprobs else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip

    def _completion(
        self, request: Request, prompt_tokens: int, output: Any, sampling: Sampling
    ) -> Completion:
        ids = tuple(output.token_ids)
        return Completion(
            request=request,
            response=response_text(self.tokenizer, ids, sampling.stop),
            finish_reason=output.finish_reason,
            prompt_tokens=prompt_tokens,
            response_tokens=len(ids),
            token_ids=ids,
        )


def head_sizes() -> list[int] | None:
    """Sizes of attention heads that vLLM's CPU kernels have; None on a GPU, where any will do."""
    if torch.cuda.is_available():
        return None
    installed()
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    return list(CPUAttentionBackend.get_supported_head_sizes())


def saved_dtype(folder: Path) -> str:
    """The precision in which a checkpoint is saved; vLLM's own choice would halve float32."""
    dtype = load_config(folder).get_text_config().dtype
    return str(dtype).removeprefix("torch.") if dtype is not None else "auto"


def _cause(error: BaseException) -> str:
    """The innermost reason that vLLM gives, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300]
