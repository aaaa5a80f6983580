"""The engine on vLLM, in this process: one request a sample, each under its own seed.

Prompts go in as token ids of our own tokenizer call, and text comes out of our own decoding, so
that neither BOS nor spaces can differ from the hf engine's. Completions are given out one by one as
they finish, while the others go on. Greedy decoding gives the hf engine's tokens (up to rounding);
at a temperature above 0 the samples follow the same distribution, but are other samples than hf's.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from oar_bench.engines.base import Completion, Request, Sampling
from oar_bench.engines.tokens import (
    check_checkpoint,
    check_length,
    encode_all,
    end_ids_of,
    load_tokenizer,
    response_text,
)
from oar_bench.errors import InputError

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
        quiet()
        try:
            from vllm import LLM
        except ImportError as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(
                f"vLLM can't be imported ({line})", "--engine vllm",
                "install it with `python -m pip install 'oar-bench[vllm]'`",
            ) from error  # fmt: skip
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
            **options,
        }
        _exit_on_terminate()
        try:
            llm = LLM(model=str(folder), **settings)
        except (RuntimeError, ValueError, TypeError, OSError, NotImplementedError) as error:
            raise InputError(
                f"vLLM can't load it ({_cause(error)})", str(path),
                "see vLLM's lines above, or use --engine hf",
            ) from error  # fmt: skip
        return cls(llm.llm_engine, tokenizer, end_ids_of(folder, tokenizer), batch_size)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Completion]:
        """Completions as they finish; samples of one problem go in together and share its prefix.

        Requests that are still inside when the caller stops listening are taken back.
        """
        prompts = encode_all(self.tokenizer, (request.prompt for request in requests))
        limit = int(self.engine.model_config.max_model_len)
        check_length(max(map(len, prompts.values()), default=0), sampling, limit)
        # Longest prompts first; the sort keeps samples of one problem together.
        waiting = iter(sorted(requests, key=lambda request: -len(prompts[request.prompt])))
        inside = dict[str, Request]()
        # vLLM copies what it is given, so that one object does where no seed tells them apart.
        greedy = self._params(sampling, None) if sampling.temperature == 0 else None
        try:
            while True:
                room = AHEAD * self.batch_size - len(inside)
                for request in itertools.islice(waiting, room):
                    number = f"oar-{next(self._numbers)}"
                    self.engine.add_request(
                        number, {"prompt_token_ids": prompts[request.prompt]},
                        greedy or self._params(sampling, request.seed),
                    )  # fmt: skip
                    inside[number] = request
                if not inside:
                    return
                for output in self._step():
                    if output.finished and output.request_id in inside:
                        request = inside.pop(output.request_id)
                        yield self._completion(
                            request, len(prompts[request.prompt]), output.outputs[0], sampling
                        )
        finally:
            if inside:
                self.engine.abort_request(list(inside))

    def _step(self) -> list[Any]:
        """One pass; InputError when vLLM's processes have died, of memory for instance."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            return list(self.engine.step())
        except EngineDeadError as error:
            raise InputError(
                "vLLM's engine died", "--engine vllm",
                "see vLLM's lines above; what is finished is kept, and the same command goes on",
            ) from error  # fmt: skip

    def close(self) -> None:
        """End vLLM's processes; they end with this one in any case."""
        self.engine.engine_core.shutdown()

    def _params(self, sampling: Sampling, seed: int | None) -> Any:
        """vLLM's parameters of a sample under its seed; None in greedy decoding."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=1, seed=seed, temperature=sampling.temperature, top_p=sampling.top_p,
            max_tokens=sampling.max_new_tokens, stop=list(sampling.stop),
            stop_token_ids=self.ends, skip_special_tokens=False,
            # vLLM needs the text to find stop sequences in it, and for nothing else.
            detokenize=bool(sampling.stop), output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip

    def _completion(
        self, request: Request, prompt_tokens: int, output: Any, sampling: Sampling
    ) -> Completion:
        ids = tuple(output.token_ids)
        if output.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended a response by {output.finish_reason!r}")
        return Completion(
            request=request,
            response=response_text(self.tokenizer, ids, sampling.stop),
            finish_reason=output.finish_reason,
            prompt_tokens=prompt_tokens,
            response_tokens=len(ids),
            token_ids=ids,
        )


def quiet() -> None:
    """Have vLLM log errors only, to standard error, unless the user's environment says otherwise.

    It does nothing once vLLM is imported.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")


def _exit_on_terminate() -> None:
    """Turn SIGTERM into an exit that cleans up: else vLLM's processes would run on without us."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def saved_dtype(folder: Path) -> str:
    """The precision in which a checkpoint is saved; vLLM's own choice would halve float32."""
    try:
        dtype = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config().dtype
    except (OSError, ValueError, KeyError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(f"the checkpoint can't be read ({line})", str(folder)) from error
    return str(dtype).removeprefix("torch.") if dtype is not None else "auto"


def _cause(error: BaseException) -> str:
    """The innermost reason that vLLM gives, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300]
