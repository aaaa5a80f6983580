"""Prompts to token ids and sampled ids to text, the same way for every engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oar_bench.engines.base import Sampling, cut_at_stop
from oar_bench.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


def check_checkpoint(path: str | Path) -> Path:
    """The folder of a checkpoint; InputError when it is absent or holds none."""
    folder = Path(path)
    if not folder.is_dir():
        raise InputError("no such checkpoint folder", str(path), "give a Hugging Face model folder")
    if not (folder / "config.json").is_file():
        hint = "give the folder with config.json, such as RUN/checkpoints/step-000030"
        raise InputError("not a checkpoint: it has no config.json", str(path), hint)
    return folder


def load_config(path: str | Path) -> PreTrainedConfig:
    """The configuration of a local folder; InputError when it can't be read."""
    from transformers import AutoConfig

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(f"the checkpoint can't be read ({line})", str(path)) from error
    return config


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a local folder; no code of the folder is run."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(f"the tokenizer can't be read ({line})", str(path)) from error
    return tokenizer


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a prompt, with the special tokens that the tokenizer puts before a text.

    A text that a chat template has already begun with BOS gets no second one.
    """
    return encode_all(tokenizer, [text])[text]


def encode_all(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> dict[str, list[int]]:
    """Token ids of every text as `encode` gives them: each distinct one once, in one call."""
    distinct = list(dict.fromkeys(texts))
    found: list[list[int]] = tokenizer(distinct)["input_ids"] if distinct else []
    bos = tokenizer.bos_token_id
    return {
        text: ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids
        for text, ids in zip(distinct, found, strict=True)
    }


def response_text(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stop: Sequence[str] = ()
) -> str:
    """The text of sampled ids: special tokens and everything from a stop sequence on left out."""
    return cut_at_stop(str(tokenizer.decode(list(ids), skip_special_tokens=True)), stop)


def end_ids(
    configured: int | Sequence[int] | None, tokenizer: PreTrainedTokenizerBase
) -> list[int]:
    """Every id that ends a response: those of a generation config, and the tokenizer's."""
    several = [configured] if configured is None or isinstance(configured, int) else configured
    return sorted({i for i in [*several, tokenizer.eos_token_id] if i is not None})


def end_ids_of(folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ends of a checkpoint that isn't loaded: of its generation config, else its config."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        settings: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        if settings.get("eos_token_id") is not None:
            return end_ids(settings["eos_token_id"], tokenizer)
    return end_ids(None, tokenizer)


def check_length(longest_prompt: int, sampling: Sampling, limit: int | None) -> None:
    """Refuse prompts and responses that don't fit a model's context together."""
    if limit is not None and longest_prompt + sampling.max_new_tokens > limit:
        raise InputError(
            f"the longest prompt ({longest_prompt} tokens) and max_new_tokens "
            f"({sampling.max_new_tokens}) exceed the model's context of {limit}",
            "max_new_tokens",
            f"use at most {limit - longest_prompt}" if longest_prompt < limit
            else "ask with fewer or shorter --fewshot examples, or use another model",
        )  # fmt: skip
