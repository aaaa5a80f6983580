"""The commands `oar-bench credit ...`: what token weights a model's responses get, and why."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from oar_bench.cli_evaluation import (
    AnswerType,
    AsJson,
    Chat,
    DataDir,
    Samples,
    Seed,
    Temperature,
    Tokens,
)
from oar_bench.stages import choice, split_words, this_command

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
        str | None, typer.Option(help="Take the credit settings of this recipe, not the defaults.")
    ] = None,
    answer_type: AnswerType = None,
    as_json: AsJson = False,
) -> None:
    """Write every response's token weights, for any trainer to read. Run it again to resume.

    Token ids are those of the fields prompt_ids and response_ids where the rows have them; else
    the text is encoded. docs/integrations.md describes the file.

    Examples:

      oar-bench credit weights CHECKPOINT --responses runs/tiny/grpo/seed-0/rollouts.jsonl \
--out weights.jsonl

      oar-bench credit weights CHECKPOINT --responses mine.jsonl --method oar-g --out weights.jsonl
    """
    from oar_bench.config import check_method, load_credit

    check_method(method, "--method")
    kind = choice(answer_type, ("math", "number", "choice", "exact"), "--answer-type")
    settings = load_credit(recipe, {})
    from oar_bench.console import Progress
    from oar_bench.integrations.saved import weigh_file

    done = weigh_file(model, responses, out, method, settings, kind, Progress())
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


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="Folder of a Hugging Face checkpoint.")],
    prompt: Annotated[str | None, typer.Option(help="The prompt, with --response.")] = None,
    response: Annotated[str | None, typer.Option(help="The response to it.")] = None,
    responses: Annotated[
        Path | None, typer.Option(help="rollouts.jsonl, samples.jsonl, or rows with both texts.")
    ] = None,
    row: Annotated[int | None, typer.Option(min=1, help="Its row, from 1 (the default).")] = None,
    problem: Annotated[str | None, typer.Option(help="The row of this problem instead.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=0, help="Which of the problem's responses, from 0.")
    ] = None,
    method: Annotated[
        str,
        typer.Option("--methods", "--method", help="Methods side by side, separated by commas."),
    ] = "oar-p,oar-g",
    recipe: Annotated[
        str | None, typer.Option(help="Take the credit settings of this recipe, not the defaults.")
    ] = None,
    q: Annotated[
        float | None,
        typer.Option(
            "--q", help="Quantile below which tokens weigh least, 0 to 1; default the recipe's."
        ),
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Boost of the most important token; default the recipe's.")
    ] = None,
    pfinal: Annotated[
        str | None,
        typer.Option(help="last, answer_mean, answer_kl or answer_joint; default the recipe's."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(help="Tokens to weigh: reasoning or response; default the recipe's."),
    ] = None,
    answer_type: AnswerType = None,
    out: Annotated[
        Path | None, typer.Option(help="The page; default credit.html, none with --json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a response token by token, methods side by side.

    Shaded by importance and by weight. Prints it and writes a page that needs neither network nor
    script.

    Examples:

      oar-bench credit show CHECKPOINT --prompt "3 + 4 =" --response "3 + 4 = 7 ; #### 7"

      oar-bench credit show CHECKPOINT --responses RUN/rollouts.jsonl --row 5 --out row-5.html

      oar-bench credit show CHECKPOINT --responses EVAL/samples.jsonl --problem ID --sample 2

      oar-bench credit show CHECKPOINT --responses EVAL/samples.jsonl --methods oar-p,inverted
    """
    from oar_bench.config import check_method, load_credit

    names = split_words(method, "--methods")
    for name in names:
        check_method(name, "--methods")
    given = {"q": q, "beta": beta, "pfinal": pfinal, "scope": scope}
    settings = load_credit(recipe, {key: v for key, v in given.items() if v is not None})
    kind = choice(answer_type, ("math", "number", "choice", "exact"), "--answer-type")
    from oar_bench.engines.tokens import check_checkpoint
    from oar_bench.reporting.credit_source import choose

    chosen = choose(prompt, response, responses, row, problem, sample)
    check_checkpoint(model)
    from oar_bench.console import Progress
    from oar_bench.reporting import credit_show

    page = out if out is not None or as_json else Path("credit.html")
    if page is not None:
        credit_show.check_page(page)
    found = credit_show.show(model, chosen, names, settings, kind, Progress())
    if page is not None:
        credit_show.write_page(page, found, shlex.join(this_command()))
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from oar_bench.reporting.credit_terminal import print_credit

    print_credit(found)
    print(page)


@app.command()
def fidelity(
    model: Annotated[Path, typer.Argument(help="Folder of a Hugging Face checkpoint.")],
    task: Annotated[str | None, typer.Option(help="Task whose problems it answers.")] = None,
    responses: Annotated[
        Path | None, typer.Option(help="Responses from a file (as `weights` reads it) instead.")
    ] = None,
    gold: Annotated[
        bool, typer.Option("--gold", help="The task's worked solutions instead of sampling.")
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            "--methods",
            "--method",
            help="Importances beside oar-p and position, separated by commas.",
        ),
    ] = "oar-d,oar-g",
    problems: Annotated[
        int | None,
        typer.Option("--problems", "--limit", min=1, help="The first so many problems only."),
    ] = None,
    samples: Samples = 1,
    temperature: Temperature = 1.0,
    seed: Seed = 0,
    max_new_tokens: Tokens = None,
    data_dir: DataDir = None,
    chat_template: Chat = False,
    recipe: Annotated[
        str | None, typer.Option(help="Take the credit settings of this recipe, not the defaults.")
    ] = None,
    memory_mib: Annotated[
        int | None,
        typer.Option(
            min=1, help="MiB that a pass may take over the model's own; default the recipe's."
        ),
    ] = None,
    replacement_other: Annotated[
        str, typer.Option(help="Id of the second replacement token, or frequent.")
    ] = "frequent",
    answer_type: AnswerType = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=2, help="Leave out responses with more tokens to rank.")
    ] = None,
    curves: Annotated[
        bool, typer.Option("--curves/--no-curves", help="Deletion and insertion curves, or not.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder of table, figure and numbers; none if absent.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well an importance stands in for exact OAR-P.

    On responses of this model: rank agreement, overlap of the top tokens, agreement of two draws
    and across the replacement token, deletion and insertion curves, and the cost; position, which
    needs no model, beside them. With --out every response's numbers are kept as they come: run it
    again to resume.

    Examples:

      oar-bench credit fidelity CHECKPOINT --task oar_arithmetic --problems 32 --methods oar-d,oar-g

      oar-bench credit fidelity CHECKPOINT --task oar_gsm8k --data-dir DIR --gold --problems 8 \
--methods oar-d,oar-gf,attention --out fidelity

      oar-bench credit fidelity CHECKPOINT --responses EVAL/samples.jsonl --methods oar-p-span
    """
    from oar_bench.config import load_credit
    from oar_bench.evaluation.asking import Asking

    names = split_words(method, "--methods")
    kind = choice(answer_type, ("math", "number", "choice", "exact"), "--answer-type")
    changes = {} if memory_mib is None else {"memory_mib": memory_mib}
    settings = load_credit(recipe, changes)
    from oar_bench.engines.tokens import check_checkpoint
    from oar_bench.reporting import fidelity as stage
    from oar_bench.reporting import fidelity_text as text
    from oar_bench.reporting.fidelity_source import Source

    stage.rows_of(names)
    check_checkpoint(model)
    source = Source(
        task, responses, gold, problems, samples, temperature, seed, kind, max_tokens,
        max_new_tokens, Asking(data_dir, chat_template),
    )  # fmt: skip
    source.check()
    if out is not None:
        text.check_out(out)
    from oar_bench.console import Progress

    found = stage.fidelity(
        model, source, names, settings, replacement_other, Progress(), curves, out
    )
    command = shlex.join(this_command())
    written = [] if out is None else text.write(out, found, command)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(text.plain(found))
    for path in written:
        print(path)
