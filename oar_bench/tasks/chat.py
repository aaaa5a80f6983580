"""The tokenizer of a model: its chat template, and how many tokens a text has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError


def load_tokenizer(model: Path, where: str) -> Any:
    """The tokenizer in a checkpoint's folder; InputError when there is none."""
    from transformers import AutoTokenizer

    if not model.is_dir():
        raise InputError("no such checkpoint folder", str(model), f"{where} needs its tokenizer")
    try:
        return AutoTokenizer.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(f"{where} needs its tokenizer ({line})", str(model)) from error


def chat_template_of(
    model: Path,
    asked: str = "--chat-template",
    system: str = "--system",
    tokenizer: Any = None,
) -> Callable[..., str]:
    """The chat template of a model's tokenizer, called as lm-eval calls it.

    Args:
        model: a checkpoint's folder.
        asked, system: the options that ask for the template and give a system prompt, for errors.
        tokenizer: the checkpoint's, where it is loaded already.

    Raises:
        InputError: the tokenizer has no chat template, or it doesn't take these messages.
    """
    from jinja2 import TemplateError

    tokenizer = tokenizer or load_tokenizer(model, asked)
    if not tokenizer.chat_template:
        raise InputError(
            "its tokenizer has no chat template", str(model),
            f"leave {asked} out, as for a base model",
        )  # fmt: skip

    def apply(messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        try:
            return str(
                tokenizer.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=not add_generation_prompt,
                )
            )
        except TemplateError as error:
            roles = " ".join(message["role"] for message in messages)
            raise InputError(
                f"its chat template refuses the messages ({error}; roles: {roles})", str(model),
                f"leave {system} out if it knows no system prompt",
            ) from error  # fmt: skip

    return apply
