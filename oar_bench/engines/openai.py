"""The engine on any server that speaks OpenAI's completions protocol: vLLM, llama.cpp, SGLang, ...

With a checkpoint's folder at hand prompts go out as token ids of our own tokenizer call, so that
the server can't add a second BOS; without one they go out as text. A vLLM server is also asked for
the sampled ids, and told to leave its checkpoint's sampling defaults out. Each sample is a request
of its own with its own seed; whether a seed is honoured is up to the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from oar_bench.engines.base import Completion, Request, Sampling, cut_at_stop
from oar_bench.engines.remote import Policy, Session, as_ready, fetch
from oar_bench.engines.tokens import (
    check_length,
    encode_all,
    end_ids_of,
    load_tokenizer,
    response_text,
)
from oar_bench.errors import InputError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Served:
    """A model as its server describes it."""

    name: str
    context: int | None = None
    vllm: bool = False
    """Whether the server is vLLM, which takes more settings and shows token ids."""


NAMED = "--model-name (in a recipe rollout.model_name)"


def look_up(base_url: str, name: str | None) -> Served:
    """The model of that name on a server, or its only one.

    Raises:
        InputError: no server there, no such model, or several and no name.
    """
    listing = fetch(base_url, "models")
    listed = listing.get("data") if listing else None
    cards = {
        str(card["id"]): card
        for card in (listed if isinstance(listed, list) else [])
        if isinstance(card, dict) and "id" in card
    }
    if name is None and len(cards) == 1:
        name = next(iter(cards))
    if name is None:
        if cards:
            served = f"it serves {', '.join(sorted(cards)[:8])}"
            raise InputError(served, base_url, f"choose one with {NAMED}")
        hint = f"check the address, most end in /v1, or name a model with {NAMED}"
        raise InputError("it lists no models", base_url, hint)
    if cards and name not in cards:
        raise InputError(
            f"unknown model {name!r} on {base_url}", NAMED, nearest(name, sorted(cards))
        )
    card = cards.get(name, {})
    context = card.get("max_model_len")
    return Served(
        name, context if isinstance(context, int) else None, card.get("owned_by") == "vllm"
    )


class OpenAIEngine:
    """Generates through a server."""

    name = "openai"

    def __init__(
        self, base_url: str, served: Served, policy: Policy = Policy(), *,  # noqa: B008  frozen
        tokenizer: PreTrainedTokenizerBase | None = None, ends: Sequence[int] = (),
        endpoint: Literal["completions", "chat"] = "completions",
    ) -> None:  # fmt: skip
        self.base_url, self.served, self.policy = base_url, served, policy
        self.tokenizer, self.ends, self.endpoint = tokenizer, list(ends), endpoint

    @classmethod
    def load(
        cls, model: str | Path, base_url: str | None = None, model_name: str | None = None,
        concurrency: int = 32, *, endpoint: str = "completions", timeout: float = 1800.0,
        retries: int = 8,
    ) -> OpenAIEngine:  # fmt: skip
        """Reach a server and its model.

        Args:
            model: a checkpoint's folder, for its tokenizer, or the model's name on the server.
            base_url: for example `http://127.0.0.1:8000/v1`; default is $OPENAI_BASE_URL.
            model_name: the model's name on the server; not needed where it serves one only.
            concurrency: requests under way at once.
            endpoint: `completions`, or `chat` (the prompt as one user message).
            timeout: seconds that one response may take.
            retries: tries after the first.

        Raises:
            InputError: no server, no such model, or a folder without a tokenizer.
        """
        url = (base_url or os.environ.get("OPENAI_BASE_URL") or "").rstrip("/")
        if not url:
            raise InputError(
                "the openai engine needs a server", "--base-url",
                "give its address, such as http://127.0.0.1:8000/v1",
            )  # fmt: skip
        if endpoint not in ("completions", "chat"):
            raise InputError(
                f"unknown endpoint {endpoint!r}", "--engine-arg", "use completions or chat"
            )
        try:
            policy = Policy(concurrency=concurrency, timeout=float(timeout), retries=int(retries))
        except (ValueError, TypeError) as error:
            raise InputError(f"not a number ({error})", "--engine-arg timeout, retries") from error
        folder = Path(model)
        if not folder.is_dir():
            if folder.is_absolute() or str(model).startswith("."):
                raise InputError(
                    "no such checkpoint folder", str(model),
                    "give a folder with a tokenizer, or the model's name on the server",
                )  # fmt: skip
            return cls(url, look_up(url, model_name or str(model)), policy, endpoint=endpoint)  # type: ignore[arg-type]
        tokenizer = load_tokenizer(folder) if endpoint == "completions" else None
        return cls(
            url, look_up(url, model_name), policy, tokenizer=tokenizer,
            ends=end_ids_of(folder, tokenizer) if tokenizer else (),
            endpoint=endpoint,  # type: ignore[arg-type]
        )  # fmt: skip

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[Completion]:
        """Completions as the server gives them."""
        prompts: dict[str, list[int] | str] = {r.prompt: r.prompt for r in requests}
        if self.tokenizer is not None:
            encoded = encode_all(self.tokenizer, prompts)
            check_length(max(map(len, encoded.values()), default=0), sampling, self.served.context)
            prompts = {**encoded}

        async def ask(session: Session, request: Request) -> Completion:
            prompt = prompts[request.prompt]
            path = "completions" if self.endpoint == "completions" else "chat/completions"
            return await session.post(
                path, self.body(request.seed, prompt, sampling),
                lambda reply: self._completion(request, prompt, reply, sampling),
            )  # fmt: skip

        yield from as_ready(requests, ask, self.base_url, self.policy)

    def body(self, seed: int, prompt: list[int] | str, sampling: Sampling) -> dict[str, Any]:
        """What is sent for one sample, under its seed."""
        body: dict[str, Any] = {
            "model": self.served.name, "n": 1, "stream": False, "seed": seed,
            "max_tokens": sampling.max_new_tokens, "temperature": sampling.temperature,
            "top_p": sampling.top_p, "frequency_penalty": 0.0, "presence_penalty": 0.0,
        }  # fmt: skip
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self.served.vllm:
            body |= {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
            if self.tokenizer is not None:
                body |= {
                    "return_token_ids": True, "skip_special_tokens": False,
                    "stop_token_ids": self.ends,
                }  # fmt: skip
        return body

    def _completion(
        self, request: Request, prompt: list[int] | str, reply: dict[str, Any], sampling: Sampling
    ) -> Completion:
        """A reply's only choice; KeyError, TypeError or ValueError when it has none."""
        [choice] = reply["choices"]
        reason = choice["finish_reason"]
        if reason not in ("stop", "length", "content_filter"):
            raise ValueError(f"finish_reason {reason!r}")
        shown = choice.get("token_ids") if self.tokenizer is not None else None
        usage = reply.get("usage")
        if shown is None and not isinstance(usage, dict):
            raise InputError(
                "the server doesn't say how many tokens it used", self.base_url,
                "use a server that gives `usage`",
            )  # fmt: skip
        counts: dict[str, Any] = usage if isinstance(usage, dict) else {}
        if shown is not None and self.tokenizer is not None:
            ids = tuple(int(token) for token in shown)
            text = response_text(self.tokenizer, ids, sampling.stop)
        else:
            ids = ()
            chat = self.endpoint == "chat"
            text = str((choice["message"]["content"] or "") if chat else choice["text"])
            text = cut_at_stop(text, sampling.stop)
        return Completion(
            request=request,
            response=text,
            finish_reason="length" if reason == "length" else "stop",
            prompt_tokens=len(prompt) if isinstance(prompt, list) else int(counts["prompt_tokens"]),
            response_tokens=len(ids) if shown is not None else int(counts["completion_tokens"]),
            token_ids=ids,
        )
