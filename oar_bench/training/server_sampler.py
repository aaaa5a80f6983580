"""Rollouts by a vLLM server that runs already, by way of its completions protocol.

The server is given the weights of each step where it can take them: it has to run in vLLM's
development mode (VLLM_SERVER_DEV_MODE=1) and see the folder in which they lie. Where it can't, it
samples with the weights that it has; that is said at the start, and in every row of metrics.jsonl.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.config import RolloutSettings, TrainSettings
from oar_bench.console import say
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled, eos_ids
from oar_bench.engines.openai import OpenAIEngine, look_up
from oar_bench.engines.remote import Policy, Session, as_ready, fetch
from oar_bench.engines.tokens import check_length
from oar_bench.engines.vllm_process import COMPANION
from oar_bench.engines.weights import WeightsFolder, base_of, exchange_of, weights_dtype
from oar_bench.errors import InputError
from oar_bench.training.samplers import nothing

CONTROL = Policy(concurrency=1, timeout=1800.0, retries=0)
"""Of calls that change the server: not tried again, since one that fails may have done half."""
PROCESSED = "processed_logprobs"


class ServerSampler:
    """Samples through a server; see the module's docstring."""

    name = "server"

    def __init__(
        self, engine: OpenAIEngine, folder: WeightsFolder | None, *, companion: bool = False
    ) -> None:
        """Use a server.

        Args:
            engine: speaks to it; prompts go out as token ids.
            folder: through which it is given weights; None where it keeps those that it has.
            companion: whether its workers have the methods of `Companion`.
        """
        self.engine, self.folder, self.companion = engine, folder, companion
        self.root = engine.base_url.removesuffix("/v1")
        self.step = 1
        self.version: str | None = None
        self.between: Callable[[], None] = nothing

    @classmethod
    def connect(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: RolloutSettings,
        train: TrainSettings,
    ) -> ServerSampler:
        """Reach the server, and find out whether it can take weights.

        Raises:
            InputError: no server there, not vLLM's, or log-probabilities that aren't those of the
                distribution sampled from.
        """
        url = str(settings.base_url).rstrip("/")
        served = look_up(url, settings.model_name)
        if not served.vllm:
            raise InputError(
                "not a vLLM server: training needs the sampled token ids, which others don't show",
                url, "use vllm serve",
            )  # fmt: skip
        known = fetch(url.removesuffix("/v1"), "server_info?config_format=json", 60.0)
        _check_logprobs(known, train, url)
        policy = Policy(concurrency=min(settings.batch_size, 256))
        engine = OpenAIEngine(
            url, served, policy, tokenizer=tokenizer, ends=eos_ids(base_of(model), tokenizer)
        )
        reason = why_not(known, settings)
        if reason is not None:
            say(f"{url} keeps its own weights ({reason}); metrics.jsonl tells their age in steps")
            return cls(engine, None)
        folder = WeightsFolder(
            model, tokenizer, weights_dtype(settings.dtype), exchange_of(settings.exchange)
        )
        return cls(engine, folder, companion=_has_companion(known))

    def sync(self, model: PreTrainedModel, step: int) -> None:
        """See `Sampler`.

        Raises:
            InputError: the server can't take the weights. It may then be left with half of them.
        """
        self.step = step
        if self.folder is None:
            return
        self.folder.write(model)
        where = {"weights_path": str(self.folder.path)}
        method = "oar_reload" if self.companion else "reload_weights"
        self._tell("collective_rpc", {"method": method, "kwargs": where})
        reset = self._tell("reset_prefix_cache?reset_running_requests=true", {})
        if reset.get("success") is not True:
            raise InputError("the server didn't drop what old weights computed", self.root)
        # A name of these weights, by which a restart or another's weights are noticed.
        self.version = f"oar-bench {os.getpid()} step {step}"
        self._tell("update_weight_version", {"new_version": self.version})

    def sample(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], sampling: Sampling
    ) -> Sampled:
        """See `Sampler`."""
        check_length(max(map(len, prompts), default=0), sampling, self.engine.served.context)

        async def ask(session: Session, i: int) -> tuple[int, tuple[list[int], bool, list[float]]]:
            body = {**self.engine.body(seeds[i], list(prompts[i]), sampling), "logprobs": 0}
            read = lambda reply: self._response(reply, prompts[i])  # noqa: E731
            return i, await session.post("completions", body, read)

        numbers = range(len(prompts))
        found = {}
        with closing(as_ready(numbers, ask, self.engine.base_url, self.engine.policy)) as ready:
            for i, response in ready:
                found[i] = response
                self.between()
        if self.version is not None:
            now = (fetch(self.root, "weight_info") or {}).get("weight_version")
            if now != self.version:
                raise InputError(
                    "the server's weights were changed during the rollout, or it was restarted",
                    self.root, "give it to one run alone, then go on with --resume",
                )  # fmt: skip
        return Sampled(
            [list(prompt) for prompt in prompts],
            [found[i][0] for i in numbers],
            [found[i][1] for i in numbers],
            [found[i][2] for i in numbers],
        )

    def _response(
        self, reply: dict[str, Any], prompt: Sequence[int]
    ) -> tuple[list[int], bool, list[float]]:
        """Ids, whether they ended by themselves, and their log-probabilities, of a reply."""
        [choice] = reply["choices"]
        if choice["finish_reason"] not in ("stop", "length"):
            raise ValueError(f"finish_reason {choice['finish_reason']!r}")
        ids = [int(token) for token in choice["token_ids"]]
        logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(logprobs)} log-probabilities of {len(ids)} tokens")
        if list(choice["prompt_token_ids"]) != list(prompt):
            raise ValueError("the prompt's token ids are not those that were sent")
        return ids, choice["finish_reason"] == "stop", logprobs

    def _tell(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call of the server's control paths; its reply."""

        async def ask(session: Session, path: str) -> dict[str, Any]:
            return await session.post(path, body, dict)

        try:
            [reply] = as_ready([path], ask, self.root, CONTROL)
        except InputError as error:
            folder = self.folder.path if self.folder else ""
            raise InputError(
                f"the server can't take the weights ({error.message})", self.root,
                f"it must see {folder} and serve a model of the same kind; restart it, then go on "
                "with --resume",
            ) from error  # fmt: skip
        return reply

    def metrics(self) -> dict[str, Any]:
        """`weights_age`, in steps, and whether that is above 0.

        A server that isn't given weights is taken to serve those that the run began from.
        """
        age = self.step - 1 if self.folder is None else 0
        return {"weights_age": age, "stale": age > 0}

    def close(self) -> None:
        """Free the shared memory; the server is another's and runs on."""
        if self.folder is not None:
            self.folder.close()


def why_not(known: dict[str, Any] | None, settings: RolloutSettings) -> str | None:
    """Why a server can't be given weights, in words; None where it can.

    Args:
        known: what its path `server_info` says; None where it has none.

    >>> why_not(None, RolloutSettings(engine="server", base_url="http://127.0.0.1:8000/v1"))
    "it wasn't started with VLLM_SERVER_DEV_MODE=1"
    """
    if not settings.sync:
        return "rollout.sync is false"
    if known is None:
        return "it wasn't started with VLLM_SERVER_DEV_MODE=1"
    if settings.exchange is None and not _is_here(str(settings.base_url)):
        return "it is on another machine; set rollout.exchange to a folder that both see"
    if _config(known, "device_config").get("device_type") == "cpu" and not _has_companion(known):
        # Plain reloading leaves a tied output layer behind: see Companion.oar_reload.
        return f"on a CPU it has to be started with --worker-extension-cls {COMPANION}"
    return None


def _config(known: dict[str, Any] | None, part: str) -> dict[str, Any]:
    """A part of the server's configuration; empty where it doesn't say."""
    found = ((known or {}).get("vllm_config") or {}).get(part)
    return found if isinstance(found, dict) else {}


def _has_companion(known: dict[str, Any] | None) -> bool:
    return _config(known, "parallel_config").get("worker_extension_cls") == COMPANION


def _check_logprobs(known: dict[str, Any] | None, train: TrainSettings, url: str) -> None:
    """Refuse a server whose log-probabilities may be those before temperature and top-p."""
    if train.temperature == 1 and train.top_p == 1:
        return
    mode = _config(known, "model_config").get("logprobs_mode")
    if mode != PROCESSED:
        raise InputError(
            "its log-probabilities leave out temperature and top-p" if mode else
            "it doesn't say whether its log-probabilities leave out temperature and top-p",
            url, f"start it with VLLM_SERVER_DEV_MODE=1 and --logprobs-mode {PROCESSED}, or use "
            "train.temperature 1 and train.top_p 1",
        )  # fmt: skip


def _is_here(url: str) -> bool:
    """Whether an address is this machine's loopback.

    >>> _is_here("http://127.0.0.1:8000/v1"), _is_here("http://gpu-7:8000/v1")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
