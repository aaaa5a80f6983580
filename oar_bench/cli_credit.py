"""The commands `oar-bench credit ...`: what token weights a model's responses get, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="credit",
    help="Token importances and weights of responses.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def top() -> None:
    """Token importances and weights of responses."""


@app.command()
def weights(
    model: Annotated[Path, typer.Argument(help="Folder of the checkpoint that answered.")],
    responses: Annotated[
        Path, typer.Option(help="samples.jsonl, rollouts.jsonl, or JSON lines with both texts.")
    ],
    out: Annotated[Path, typer.Option(help="File of the weights (JSON lines).")],
    method: Annotated[str, typer.Option(help="oar-p, oar-g, shuffled, ...")] = "oar-p",
    recipe: Annotated[
        str | None, typer.Option(help="Recipe whose credit section holds; else the defaults.")
    ] = None,
    answer_type: Annotated[
        str | None, typer.Option(help="math, number, choice or exact, instead of the file's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Write every response's token weights, for any trainer to read. Run it again to resume.

    Token ids are those of the fields prompt_ids and response_ids where the rows have them; else
    the text is encoded. docs/integrations.md describes the file.

    Examples:

      oar-bench credit weights CHECKPOINT --responses runs/tiny/grpo/seed-0/rollouts.jsonl \
--out weights.jsonl

      oar-bench credit weights CHECKPOINT --responses mine.jsonl --method oar-g --out weights.jsonl
    """
    from oar_bench.config import CreditSettings, check_method, load_recipe
    from oar_bench.stages import choice

    check_method(method, "--method")
    kind = choice(answer_type, ("math", "number", "choice", "exact"), "--answer-type")
    settings = load_recipe(recipe).credit if recipe is not None else CreditSettings()
    from oar_bench.console import Progress
    from oar_bench.integrations.saved import weigh_file
    from oar_bench.records import read_jsonl

    total = sum(1 for _ in read_jsonl(responses))
    with Progress().stage(f"weigh {responses.name}", total) as tick:
        done = weigh_file(
            model, responses, out, method, settings, kind, lambda n, _: tick(n, "")
        )  # fmt: skip
    if as_json:
        print(json.dumps(done, indent=2))
        return
    print(f"{done['rows']} responses, {done['made']} of them weighed now by {method}")
    if done["encoded"]:
        print(
            f"  {done['encoded']} have no token ids in the file: their text was encoded, "
            f"{done['other_length']} of them to another number of tokens than was sampled"
        )
    if done["frac_no_probe"] is not None:
        print(f"  {100 * done['frac_no_probe']:.1f} % state no answer and keep weight 1")
    print(f"  {done['weights']}")
