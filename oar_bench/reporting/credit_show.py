"""`oar-bench credit show`: one response, its tokens' importances and weights, on a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oar_bench.answers.extract import AnswerType
from oar_bench.config import CreditSettings
from oar_bench.errors import InputError
from oar_bench.records import SCHEMA, write_text
from oar_bench.reporting.credit_page import GENERATOR, credit_page
from oar_bench.reporting.credit_source import Chosen

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Console(Protocol):
    """What the stage tells of its progress."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Callable[[int, str], None]]:
        """A named stage of `total` units; the value is called with the units done and a note."""
        ...


def check_page(out: Path) -> None:
    """Refuse a page's file that isn't named so, or in which something else stands."""
    if out.suffix not in (".html", ".htm"):
        raise InputError("a page is HTML", f"--out {out}", "name a file that ends in .html")
    if out.is_dir():
        raise InputError("a file is expected, not a folder", f"--out {out}")
    if out.exists():
        with out.open("rb") as file:
            if GENERATOR.encode() not in file.read(4096):
                raise InputError(
                    "this file is no page of `credit show`", f"--out {out}", "choose another --out"
                )


def show(
    model: Path, chosen: Chosen, methods: Sequence[str], settings: CreditSettings,
    answer_type: AnswerType | None, console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Credit of the chosen response by each method, JSON-ready.

    Without an `answer_type` it is the response's own.

    Returns:
        What `oar_bench.training.token_credit.token_credit` gives, and `prompt`, `response`,
        `gold`, `source`, `model`, `names` (each id's entry in the vocabulary), `prompt_tokens`,
        `answer_type`, `settings`, `fingerprints`, `environment` and `notes` (what to beware of).

    Raises:
        InputError: no such checkpoint, an empty prompt or response, or one beyond its context.
    """
    from oar_bench.engines.hf import HFEngine, context_limit
    from oar_bench.engines.tokens import encode, response_text
    from oar_bench.identity import environment, fingerprint, fingerprint_checkpoint
    from oar_bench.training.token_credit import token_credit

    engine = HFEngine.load(model)
    tokenizer = engine.tokenizer
    prompt = chosen.prompt_ids or encode(tokenizer, chosen.prompt)
    response = chosen.response_ids or _encoded(tokenizer, chosen)
    for name, ids in (("prompt", prompt), ("response", response)):
        if not ids:
            raise InputError(f"the {name} has no token", chosen.source)
    entries = int(engine.model.get_input_embeddings().weight.shape[0])  # type: ignore[index]
    if max(*prompt, *response) >= entries:
        raise InputError(
            f"a token id is beyond the model's vocabulary of {entries}", chosen.source,
            "give the checkpoint that sampled it",
        )  # fmt: skip
    length, limit = len(prompt) + len(response), context_limit(engine.model)
    if limit is not None and length > limit:
        raise InputError(
            f"prompt and response have {length} tokens, the model's context {limit}",
            chosen.source, "choose a shorter response",
        )  # fmt: skip
    kind = answer_type or chosen.answer_type
    # As in training: the answer is looked for in what the ids decode to.
    text = response_text(tokenizer, response)
    prints = {
        "model": fingerprint_checkpoint(model),
        "credit": fingerprint(settings.model_dump(mode="json")),
    }
    with console.stage("credit", len(methods)) as tick:
        found = token_credit(
            engine.model, tokenizer, prompt, response, text, chosen.seed, methods, settings,
            answer_type=kind, progress=tick,
        )  # fmt: skip
    return {
        "schema": SCHEMA, "kind": "credit", "source": chosen.source, "model": str(model),
        "prompt": chosen.prompt or str(tokenizer.decode(prompt)), "response": text,
        "gold": chosen.gold, "seed": chosen.seed, "prompt_tokens": len(prompt), "answer_type": kind,
        **found,
        "names": [str(name) for name in tokenizer.convert_ids_to_tokens(response)],
        "settings": settings.model_dump(mode="json"), "fingerprints": prints,
        "environment": environment(), "notes": _notes(chosen, text, len(response), prints["model"]),
    }  # fmt: skip


def _encoded(tokenizer: PreTrainedTokenizerBase, chosen: Chosen) -> list[int]:
    """The response's token ids, with the end of sequence where it was sampled too."""
    ids: list[int] = tokenizer(chosen.response, add_special_tokens=False)["input_ids"]
    end = tokenizer.eos_token_id
    return [*ids, end] if chosen.ended and end is not None else ids


def _notes(chosen: Chosen, text: str, tokens: int, model: str) -> list[str]:
    """What a reader should know before trusting the places of the tokens."""
    notes = []
    if chosen.tokens is not None and chosen.tokens != tokens:
        notes.append(
            f"{chosen.tokens} tokens were sampled, the text makes {tokens}: this tokenizer cuts it "
            "otherwise than it was sampled."
        )
    if chosen.response_ids is None and text != chosen.response:
        notes.append("This tokenizer doesn't give the text back as it was; its own is shown.")
    if chosen.model is not None and chosen.model != model:
        notes.append(
            f"Another checkpoint ({chosen.model}) sampled this response than the one asked "
            f"about its tokens ({model})."
        )
    return notes


def write_page(out: Path, found: dict[str, Any], command: str) -> None:
    """Write the page of what `show` found; `command` is printed on it."""
    check_page(out)
    write_text(out, credit_page(found, command))
