"""`oar-bench credit show`: one response, its tokens' importances and weights, on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oar_bench.answers.extract import AnswerType
from oar_bench.config import CreditSettings
from oar_bench.console import Console
from oar_bench.errors import InputError
from oar_bench.records import SCHEMA, write_text
from oar_bench.reporting.credit_page import GENERATOR, credit_page
from oar_bench.reporting.credit_source import Chosen

if TYPE_CHECKING:
    from oar_bench.integrations.responses import Response


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
        `answer_type`, `extract`, `settings`, `fingerprints`, `environment` and `notes` (what to
        beware of).

    Raises:
        InputError: no such checkpoint, an empty prompt or response, or one beyond its context.
    """
    from oar_bench.engines.hf import HFEngine
    from oar_bench.engines.tokens import response_text
    from oar_bench.identity import environment, fingerprint, fingerprint_checkpoint
    from oar_bench.integrations.responses import Grading, as_tokens, check_fit, grading_of
    from oar_bench.training.token_credit import token_credit

    engine = HFEngine.load(model)
    tokenizer = engine.tokenizer
    tokens = as_tokens(chosen.row, chosen.name, tokenizer)
    prompt, response = tokens.prompt_ids, tokens.response_ids
    if not prompt and chosen.file is None:
        raise InputError("the prompt has no token", "--prompt", "write one")
    if not response:
        raise InputError("the response has no token", chosen.source, "show one that has some")
    check_fit(tokens, engine.model, chosen.source)
    grading = Grading(answer_type or "math")
    if chosen.file is not None:
        grading = grading_of(chosen.file, answer_type)
    # As in training: the answer is looked for in what the ids decode to.
    text = response_text(tokenizer, response)
    prints = {
        "model": fingerprint_checkpoint(model),
        "credit": fingerprint(settings.model_dump(mode="json")),
    }
    with console.stage("credit", len(methods)) as tick:
        found = token_credit(
            engine.model, tokenizer, prompt, response, text, tokens.seed, methods, settings,
            answer_type=grading.answer_type, extract=grading.extract, progress=tick,
        )  # fmt: skip
    return {
        "schema": SCHEMA, "kind": "credit", "source": chosen.source, "model": str(model),
        "prompt": chosen.row.get("prompt", str(tokenizer.decode(prompt))), "response": text,
        "gold": str(chosen.row.get("gold", "")), "seed": tokens.seed,
        "prompt_tokens": len(prompt), **grading._asdict(),
        **found,
        "names": [str(name) for name in tokenizer.convert_ids_to_tokens(response)],
        "settings": settings.model_dump(mode="json"), "fingerprints": prints,
        "environment": environment(), "notes": _notes(chosen.row, tokens, text, prints["model"]),
    }  # fmt: skip


def _notes(row: Mapping[str, Any], tokens: Response, text: str, model: str) -> list[str]:
    """What a reader should know before trusting the places of the tokens."""
    notes = []
    if tokens.other_length:
        notes.append(
            f"{row['response_tokens']} tokens were sampled, the text makes "
            f"{len(tokens.response_ids)}: this tokenizer cuts it otherwise than it was sampled."
        )
    if tokens.encoded and text != row["response"]:
        notes.append("This tokenizer doesn't give the text back as it was; its own is shown.")
    if row.get("model", model) != model:
        notes.append(
            f"Another checkpoint ({row['model']}) sampled this response than the one asked "
            f"about its tokens ({model})."
        )
    return notes


def write_page(out: Path, found: dict[str, Any], command: str) -> None:
    """Write the page of what `show` found; `command` is printed on it."""
    check_page(out)
    write_text(out, credit_page(found, command))
